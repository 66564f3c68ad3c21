#include "cli/fit.h"

#include "cli/progress.h"

#include "base/err.h"
#include "base/mem.h"
#include "host/topology.h"

#include <string.h>

int fit_host(struct fit *fit, const struct config *c, const struct engine_memory *memory,
        const struct fit_device *device, const struct machine *machine)
{
	struct topology *t;
	int err = 0;

	fit->need_bytes = memory->store_bytes + memory->stage_bytes;
	if (!strcmp(device->name, "host"))
		fit->need_bytes += memory->device_bytes;
	fit->limit_bytes = c->ram_budget_bytes;
	if (machine) {
		fit->need_bytes *= machine_ranks_here(machine, c->world_size);
		if (c->ram_budget_bytes == CONFIG_AUTO)
			fit->limit_bytes = machine->host_memory_bytes - machine->host_reserve_bytes;
	} else if (c->ram_budget_bytes == CONFIG_AUTO) {
		t = mem_alloc(1, sizeof(*t));
		err = t ? topology_read(t) : ERR_NOMEM;
		if (!err) {
			fit->limit_bytes = t->usable_bytes;
			fit->need_bytes *= t->ranks.size; /* of this host, each of which needs as much */
		}
		mem_free(t);
	}
	fit->fits = fit->need_bytes <= fit->limit_bytes;
	return err;
}

/* What would make it fit, where anything would. */
static const char *advice(const struct fit *fit, const struct config *c, const struct engine_memory *memory)
{
	if (memory->store_bytes > fit->limit_bytes && c->compute_dtype == CONFIG_DTYPE_FP32)
		return "compute_dtype=bf16 and gradient_dtype=bf16 take 2 bytes a parameter less";
	if (memory->store_bytes > fit->limit_bytes && c->verb == VERB_TRAIN &&
	        c->optimizer_state == CONFIG_OPTIMIZER_STATE_FP32)
		return "optimizer_state=bf16 takes 4 bytes a parameter less, optimizer_state=8bit 6";
	if (memory->store_bytes > fit->limit_bytes)
		return "weights, gradients and optimizer state alone are more than that: a smaller model is "
		       "needed";
	if (c->activations == CONFIG_ACTIVATIONS_KEEP)
		return "activations=recompute, a smaller per_device_train_batch_size or a smaller max_length "
		       "need less";
	return "a smaller per_device_train_batch_size or a smaller max_length need less";
}

int fit_refuse(const struct fit *fit, const struct config *c, const struct engine_memory *memory)
{
	struct str need = {0}, over = {0};

	progress_bytes(&need, fit->need_bytes);
	progress_bytes(&over, fit->need_bytes - fit->limit_bytes);
	err_set(ERR_FIT, "the plan needs %s of host memory, %s more than %s%s; %s",
	        need.data ? need.data : "", over.data ? over.data : "",
	        c->ram_budget_bytes == CONFIG_AUTO ? "this process may take here" : "ram_budget=",
	        c->ram_budget_bytes == CONFIG_AUTO ? "" : config_text(c, "ram_budget"),
	        advice(fit, c, memory));
	str_free(&need);
	str_free(&over);
	return ERR_FIT;
}
