/* Finds the device's memory limit and describes its use. */
#include "placement/device_memory.h"

#include "base/quantity.h"
#include "comm/world.h"
#include "placement/host_memory.h"
#include "placement/ranks.h"

/* Leaves a 64th of the free memory: a driver allocates in pieces, and other programs may start. */
static int64_t less_a_64th(int64_t bytes)
{
	return bytes - bytes / 64;
}

/* Communicators with more than one rank: ranks that share a unit, and ranks that hold the same shard. */
static struct device_comms comms_of(
        const struct engine_options *o, const struct config *c, const struct machine *machine)
{
	int shards = o->shard_ranks ? o->shard_ranks : o->world_size;

	return (struct device_comms){.count = (shards > 1) + (o->world_size > shards),
	        .ranks_on_node = ranks_on_node(c, machine, world_self(), o->world_size)};
}

/* What a process finds free on the described GPU. */
static int64_t memory_of(const struct machine *m)
{
	return m->gpu_memory_bytes > DEVICE_CONTEXT_BYTES ? m->gpu_memory_bytes - DEVICE_CONTEXT_BYTES
	                                                  : m->gpu_memory_bytes;
}

void device_memory_find(struct device_memory *f, const struct config *c, const struct engine_options *o,
        const struct machine *machine)
{
	const struct device *device = o->device;
	int on_gpu = machine ? machine->gpu_count > 0 : c->device == CONFIG_DEVICE_CUDA;
	enum device_kind kind = device_has_bytes(device) ? device_kind_of(device)
	                        : on_gpu                 ? DEVICE_CUDA
	                                                 : DEVICE_HOST;
	const struct device_comms comms = comms_of(o, c, machine);
	int64_t there_bytes;

	*f = (struct device_memory){
	        .kind = kind, .is_host = device_facts_of(kind)->is_host, .limit_bytes = c->vram_budget_bytes};
	f->reserve_count = device_reserve_list(f->reserves, kind, &comms);
	for (int i = 0; i < f->reserve_count; i++)
		f->reserve_bytes += f->reserves[i].bytes;
	there_bytes = less_a_64th(machine ? memory_of(machine) : device_free_bytes(device));
	f->is_budget = c->vram_budget_bytes > 0 && (!there_bytes || c->vram_budget_bytes <= there_bytes);
	if (!f->is_budget)
		f->limit_bytes = there_bytes;
	if (!f->is_budget && c->vram_budget_bytes > 0)
		budget_warn(c, "vram_budget", c->vram_budget_bytes,
		        machine      ? "the GPU has"
		        : f->is_host ? "the free memory of the host is"
		                     : "the free memory of the GPU is",
		        there_bytes);
}

int64_t device_memory_head_rows(const struct device_memory *f, const struct model *model)
{
	return model_head_rows(model->config.V, device_facts_of(f->kind)->piece);
}

int64_t device_memory_budget(const struct device_memory *f)
{
	int64_t rest = f->limit_bytes - f->reserve_bytes;

	return !f->limit_bytes ? 0 : rest > 0 ? rest : -1;
}

void device_memory_resident_text(struct str *out, const struct device_memory *device,
        const struct engine_memory *m, const struct unit_map *units)
{
	const struct {
		const char *what, *noun;
		int count, all;
	} parts[] = {
	        {"state", "groups", m->resident_states, units->unit_count},
	        {"weights", "groups", m->resident_weights, units->unit_count},
	        {acts_level_title(m->kept_level), "layers", m->kept_blocks, units->model->block_group_count},
	};
	const char *before = device->is_host ? "on the device: " : "on the GPU: ";

	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		if (!parts[i].count)
			continue;
		str_printf(out, "%s%s of %d of %d %s", before, parts[i].what, parts[i].count, parts[i].all,
		        parts[i].noun);
		before = ", ";
	}
	if (m->hosted_blocks)
		str_printf(out, "%s%s of %d of %d layers wait in host memory", out->len_bytes ? "; " : "",
		        acts_level_title(m->hosted_level), m->hosted_blocks, units->model->block_group_count);
	if (m->spared_bytes > 0) {
		str_add(out, "; saves ");
		quantity_bytes(out, m->spared_bytes);
		str_add(out, " of copies each step");
	}
}
