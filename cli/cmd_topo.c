/* ferry topo: the machine, the limits in force, and what will be used of it and why.
 */
#include "cli/cli.h"
#include "cli/devices.h"
#include "cli/progress.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "host/pool.h"
#include "host/topology.h"
#include "optim/adamw.h"

#include <string.h>

/* ---- memory bandwidth ---- */

enum { PIECE_BYTES = 1 << 20, COPY_BYTES_MAX = 256 << 20, ROUNDS = 5 };

struct copying {
	char *to, *from;
};

static void copy_piece(void *context, int64_t task, int worker)
{
	struct copying *c = context;

	(void)worker;
	memcpy(c->to + task * PIECE_BYTES, c->from + task * PIECE_BYTES, PIECE_BYTES);
}

/* Bytes read and written in a second by copies on all threads, the best of some rounds. A quarter of a second
 * at most; 0 where memory is too short for buffers beyond the caches. */
static int measure_copy(double *bytes_per_s, const struct topology *t)
{
	int64_t bytes = t->usable_bytes / 16;
	struct copying c = {0};
	struct pool *pool = NULL;
	int err = 0;

	*bytes_per_s = 0;
	bytes = (bytes > COPY_BYTES_MAX ? COPY_BYTES_MAX : bytes) / PIECE_BYTES * PIECE_BYTES;
	if (bytes < 32 << 20)
		return 0;
	c.to = mem_alloc(1, (size_t)bytes);
	c.from = mem_alloc(1, (size_t)bytes);
	if (!c.to || !c.from)
		err = ERR_NOMEM;
	if (!err) {
		memset(c.from, 1, (size_t)bytes); /* pages of zeros would be one page */
		err = pool_open(&pool, t->thread_count);
	}
	for (int round = 0; round < ROUNDS && !err; round++) {
		double start = clock_now_s(), rate;

		pool_run(pool, bytes / PIECE_BYTES, copy_piece, &c);
		rate = 2 * (double)bytes / (clock_now_s() - start);
		if (round && rate > *bytes_per_s) /* the first round touches the pages */
			*bytes_per_s = rate;
	}
	pool_close(pool);
	mem_free(c.to);
	mem_free(c.from);
	return err;
}

/* ---- output ---- */

static void say_bytes(const struct config *c, const char *label, int64_t bytes, const char *more)
{
	struct str text = {0};

	progress_bytes(&text, bytes);
	cli_say(c, "%-22s %s%s\n", label, text.data ? text.data : "", more);
	str_free(&text);
}

static int print_text(const struct config *c, const struct topology *t, const char *isa, double copy)
{
	int err;

	cli_say(c, "%-22s %s\n", "processor", t->cpu_name);
	cli_say(c, "%-22s %d packages, %d cores, %d hardware threads\n", "machine", t->machine.package_count,
	        t->machine.core_count, t->machine.processor_count);
	cli_say(c, "%-22s %d cores, %d hardware threads\n", "allowed here", t->allowed.core_count,
	        t->allowed.processor_count);
	if (t->cgroup.cpu_quota > 0)
		cli_say(c, "%-22s %.2f processors\n", "cgroup quota", t->cgroup.cpu_quota);
	for (int i = 0; i < TOPOLOGY_CACHE_LEVELS; i++)
		if (t->cache[i].count) {
			char label[32], more[64];

			snprintf(label, sizeof(label), "cache L%d", i + 1);
			snprintf(more, sizeof(more), ", %d of them, shared by %d threads each",
			        t->cache[i].count, t->cache[i].shared_count);
			say_bytes(c, label, t->cache[i].bytes, more);
		}
	for (int i = 0; i < t->machine.node_count && i < TOPOLOGY_NODES_MAX; i++) {
		char label[32], more[32];

		snprintf(label, sizeof(label), "NUMA node %d", t->node[i].os_index);
		snprintf(more, sizeof(more), ", %d cores", t->node[i].core_count);
		say_bytes(c, label, t->node[i].ram_bytes, more);
	}
	say_bytes(c, "RAM", t->ram_bytes, "");
	say_bytes(c, "RAM available", t->ram_available_bytes, "");
	if (t->cgroup.memory_bytes) {
		say_bytes(c, "cgroup memory limit", t->cgroup.memory_bytes, "");
		say_bytes(c, "  of it in use", t->cgroup.memory_used_bytes, "");
	}
	if (t->memlock_bytes < 0)
		cli_say(c, "%-22s no limit\n", "page-locked memory");
	else
		say_bytes(c, "page-locked memory", t->memlock_bytes, " at most (ulimit -l)");
	if (copy > 0)
		cli_say(c, "%-22s %.1f GB/s read and written, by copies on %d threads\n", "memory bandwidth",
		        copy * 1e-9, t->thread_count);
	err = devices_print(c);
	cli_say(c, "\n%-22s %d: %s\n", "threads", t->thread_count, t->thread_reason);
	cli_say(c, "%-22s %s: the widest that processor and build have\n", "instruction set", isa);
	say_bytes(c, "host memory to use", t->usable_bytes, ": what is available, within the limits");
	return err;
}

static json_t *caches_json(const struct topology *t)
{
	json_t *caches = json_array();

	for (int i = 0; i < TOPOLOGY_CACHE_LEVELS; i++)
		if (t->cache[i].count)
			json_array_append_new(
			        caches, json_pack("{s:i, s:I, s:i, s:i}", "level", i + 1, "bytes",
			                        (json_int_t)t->cache[i].bytes, "count", t->cache[i].count,
			                        "shared_threads", t->cache[i].shared_count));
	return caches;
}

static json_t *nodes_json(const struct topology *t)
{
	json_t *nodes = json_array();

	for (int i = 0; i < t->machine.node_count && i < TOPOLOGY_NODES_MAX; i++)
		json_array_append_new(
		        nodes, json_pack("{s:i, s:i, s:I}", "node", t->node[i].os_index, "cores",
		                       t->node[i].core_count, "ram_bytes", (json_int_t)t->node[i].ram_bytes));
	return nodes;
}

static json_t *counts_json(const struct topology_counts *counts)
{
	return json_pack("{s:i, s:i, s:i, s:i}", "packages", counts->package_count, "numa_nodes",
	        counts->node_count, "cores", counts->core_count, "threads", counts->processor_count);
}

static int print_object(const struct topology *t, const char *isa, double copy)
{
	json_t *root = json_pack("{s:s, s:o, s:o, s:o, s:o}", "processor", t->cpu_name, "machine",
	        counts_json(&t->machine), "allowed", counts_json(&t->allowed), "caches", caches_json(t),
	        "numa_nodes", nodes_json(t));
	int err = 0;

	if (!root)
		return err_set(ERR_NOMEM, "out of memory for JSON");
	json_object_set_new(
	        root, "cpu_quota", t->cgroup.cpu_quota > 0 ? json_real(t->cgroup.cpu_quota) : json_null());
	json_object_set_new(root, "ram_bytes", json_integer(t->ram_bytes));
	json_object_set_new(root, "ram_available_bytes", json_integer(t->ram_available_bytes));
	json_object_set_new(root, "cgroup_memory_bytes",
	        t->cgroup.memory_bytes ? json_integer(t->cgroup.memory_bytes) : json_null());
	json_object_set_new(
	        root, "memlock_bytes", t->memlock_bytes < 0 ? json_null() : json_integer(t->memlock_bytes));
	json_object_set_new(root, "usable_bytes", json_integer(t->usable_bytes));
	json_object_set_new(root, "copy_bytes_per_s", copy > 0 ? json_real(copy) : json_null());
	json_object_set_new(root, "threads", json_integer(t->thread_count));
	json_object_set_new(root, "threads_reason", json_string(t->thread_reason));
	json_object_set_new(root, "isa", json_string(isa));
	err = devices_json(root);
	if (!err)
		err = cli_print_json(root);
	json_decref(root);
	return err;
}

int cli_topo(const struct config *c)
{
	struct topology *t = mem_alloc(1, sizeof(*t));
	enum adamw_isa isa = ADAMW_ISA_SCALAR;
	double copy = 0;
	int err = t ? topology_read(t) : ERR_NOMEM;

	if (!err)
		err = adamw_isa_find(&isa, "auto");
	if (!err)
		err = measure_copy(&copy, t);
	if (!err && c->json)
		err = print_object(t, adamw_isa_name(isa), copy);
	else if (!err)
		err = print_text(c, t, adamw_isa_name(isa), copy);
	mem_free(t);
	return err;
}
