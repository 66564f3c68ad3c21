/* ferry topo: shows the machine, the limits, and what ferry uses of it and why. */
#include "cli/cli.h"
#include "cli/topo.h"
#include "cli/topo_gpus.h"

#include "base/err.h"
#include "base/mem.h"
#include "host/numa.h"
#include "optim/adamw_options.h"

/* Seconds to measure; fewer for a made-up machine, because only the real memory can be measured. */
static const double measure_s = 0.8, made_up_s = 0.1;

/* Reads the machine, and opens a pool to find how its threads are bound. */
static int machine_find(struct topo *t)
{
	struct pool *pool;
	int rc = pool_open_here(&pool, &t->machine, 0, 1);

	if (rc)
		return rc;
	t->pinning = pool_pinning(pool, &t->pinning_why);
	pool_close(pool);
	return 0;
}

static int topo_read(struct topo *t)
{
	enum adamw_isa isa = ADAMW_ISA_SCALAR;
	int rc = machine_find(t);

	if (!rc)
		rc = adamw_isa_find(&isa, "auto");
	if (!rc)
		rc = bandwidth_measure(&t->bandwidth, &t->machine, t->machine.thread_count,
		        t->machine.is_synthetic ? made_up_s : measure_s);
	t->isa = adamw_isa_name(isa);
	t->may_bind_memory = numa_may_bind();
	t->device_count = topology_devices_read(t->devices, TOPO_DEVICES_MAX);
	return rc;
}

static int print_text(const struct config *c, const struct topo *t)
{
	struct str picture = {0}, rest = {0};
	int rc;

	topo_draw(&picture, t);
	topo_tell(&rest, t);
	rc = str_check(&picture);
	if (!rc)
		rc = str_check(&rest);
	if (!rc) {
		cli_tell(c, "%s", picture.data);
		rc = topo_gpus_print(c);
	}
	if (!rc)
		cli_tell(c, "\n%s", rest.data);
	str_free(&picture);
	str_free(&rest);
	return rc;
}

int cli_topo(const struct config *c)
{
	struct topo *t = mem_alloc(1, sizeof(*t));
	json_t *root = json_object();
	int rc = t && root ? topo_read(t) : ERR_NOMEM;

	if (!rc)
		rc = topo_gpus_json(root);
	if (!rc) {
		t->gpus = json_object_get(root, "gpus");
		topo_add_json(root, t);
		rc = c->json ? cli_print_json(root) : print_text(c, t);
	}
	json_decref(root);
	mem_free(t);
	return rc;
}
