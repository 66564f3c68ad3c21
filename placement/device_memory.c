/* The memory of the device. */
#include "placement/device_memory.h"

#include "base/quantity.h"

#include <string.h>

/* Of what is free a 64th is left: a driver hands memory out in pieces, and other programs start meanwhile. */
static int64_t less_a_64th(int64_t bytes)
{
	return bytes - bytes / 64;
}

void device_memory_find(struct device_memory *f, const struct config *c, const struct device *device,
        const struct machine *machine)
{
	int on_gpu = machine ? machine->gpu_count > 0 : c->device == CONFIG_DEVICE_CUDA;
	const char *name = device_has_bytes(device) ? device_name(device) : on_gpu ? "cuda" : "host";
	int64_t there_bytes;

	*f = (struct device_memory){
	        .name = name, .is_host = !strcmp(name, "host"), .limit_bytes = c->vram_budget_bytes};
	f->reserve_count = device_reserve_list(f->reserves, name);
	for (int i = 0; i < f->reserve_count; i++)
		f->reserve_bytes += f->reserves[i].bytes;
	there_bytes = less_a_64th(machine ? machine->gpu_memory_bytes : device_free_bytes(device));
	f->is_budget = c->vram_budget_bytes > 0 && (!there_bytes || c->vram_budget_bytes <= there_bytes);
	if (!f->is_budget)
		f->limit_bytes = there_bytes;
}

int64_t device_memory_budget(const struct device_memory *f)
{
	int64_t rest = f->limit_bytes - f->reserve_bytes;

	return !f->limit_bytes ? 0 : rest > 0 ? rest : -1;
}

void device_memory_resident_text(struct str *out, const struct engine_memory *m, const struct unit_map *units)
{
	const char *and = "";

	if (m->resident_states) {
		str_printf(out, "%d of %d units", m->resident_states, units->unit_count);
		and = ", ";
	}
	if (m->resident_weights) {
		str_printf(out, "%sweights of %d %s", and, m->resident_weights,
		        m->resident_states ? "more" : "units");
		and = ", ";
	}
	if (m->kept_blocks)
		str_printf(out, "%sactivations of %d of %d blocks", and, m->kept_blocks,
		        (int)units->model->config.L);
	if (m->spared_bytes > 0) {
		str_add(out, "; each step ");
		quantity_bytes(out, m->spared_bytes);
		str_add(out, " less is copied than with nothing resident");
	}
}
