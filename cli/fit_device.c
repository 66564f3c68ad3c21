/* The device's memory. */
#include "cli/fit.h"

#include "cli/fit_search.h"
#include "cli/progress.h"
#include "cli/ranks.h"

#include "base/err.h"
#include "base/mem.h"
#include "comm/world.h"

#include <inttypes.h>
#include <string.h>

/* Of what is free a 64th is left: a driver hands memory out in pieces, and other programs start meanwhile. */
static int64_t less_a_64th(int64_t bytes)
{
	return bytes - bytes / 64;
}

void fit_device_find(struct fit_device *f, const struct config *c, const struct device *device,
        const struct machine *machine)
{
	int on_gpu = machine ? machine->gpu_count > 0 : c->device == CONFIG_DEVICE_CUDA;
	const char *name = device_has_bytes(device) ? device_name(device) : on_gpu ? "cuda" : "host";
	int64_t there_bytes;

	*f = (struct fit_device){.name = name, .limit_bytes = c->vram_budget_bytes};
	f->reserve_count = device_reserve_list(f->reserves, name);
	for (int i = 0; i < f->reserve_count; i++)
		f->reserve_bytes += f->reserves[i].bytes;
	there_bytes = less_a_64th(machine ? machine->gpu_memory_bytes : device_free_bytes(device));
	f->is_budget = c->vram_budget_bytes > 0 && (!there_bytes || c->vram_budget_bytes <= there_bytes);
	if (!f->is_budget)
		f->limit_bytes = there_bytes;
}

static const char *text_of(const struct str *s)
{
	return s->data ? s->data : "";
}

static void limit_text(struct str *out, const struct fit_device *f)
{
	str_add(out, f->is_budget ? "vram_budget, " : "the ");
	progress_bytes(out, f->limit_bytes);
	if (!f->is_budget)
		str_add(out, " that may be taken of the device");
	if (f->limit_bytes > f->reserve_bytes)
		return;
	str_add(out, ", no more than the libraries of the device take (");
	progress_bytes(out, f->reserve_bytes);
	str_add(out, ")");
}

int64_t fit_device_budget(const struct fit_device *f)
{
	int64_t rest = f->limit_bytes - f->reserve_bytes;

	return !f->limit_bytes ? 0 : rest > 0 ? rest : -1;
}

void fit_resident_text(struct str *out, const struct engine_memory *m, const struct unit_map *units)
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
		progress_bytes(out, m->spared_bytes);
		str_add(out, " fewer cross than if nothing stayed");
	}
}

int fit_device_refuse(const struct fit_device *f, const struct config *c, const struct engine_options *base,
        const struct machine *machine)
{
	struct str need = {0}, over = {0}, limit = {0}, least = {0};
	struct fit_found found;
	int rc = fit_search(&found, c, base, f, machine);
	int64_t need_bytes = found.before_bytes + f->reserve_bytes, bytes = found.bytes + f->reserve_bytes;

	if (rc)
		goto out;
	progress_bytes(&need, need_bytes);
	progress_bytes(&over, need_bytes - f->limit_bytes);
	limit_text(&limit, f);
	progress_bytes(&least, bytes);
	if (bytes <= f->limit_bytes)
		rc = err_set(ERR_FIT,
		        "the plan needs %s on the device, %s more than %s; it fits, in %s, with%s",
		        text_of(&need), text_of(&over), text_of(&limit), text_of(&least),
		        text_of(&found.settings));
	else if (found.settings.data)
		rc = err_set(ERR_FIT,
		        "the plan needs %s on the device, %s more than %s; the least found is %s (%" PRId64
		        " bytes), with%s",
		        text_of(&need), text_of(&over), text_of(&limit), text_of(&least), bytes,
		        text_of(&found.settings));
	else
		rc = err_set(ERR_FIT,
		        "the plan needs %s (%" PRId64
		        " bytes) on the device, %s more than %s, and no setting "
		        "that was tried needs less",
		        text_of(&need), need_bytes, text_of(&over), text_of(&limit));
out:
	str_free(&need);
	str_free(&over);
	str_free(&limit);
	str_free(&least);
	str_free(&found.settings);
	return rc;
}

void fit_freedom(struct choice_freedom *f, const struct config *c, const struct engine_options *o)
{
	const struct plan_policy *p = &o->policy;

	*f = (struct choice_freedom){
	        .residency = 1,
	        .activations = !p->inference && c->activations == CONFIG_ACTIVATIONS_AUTO,
	        .ahead = c->prefetch_units == CONFIG_AUTO && p->forward_prefetch &&
	                 (p->inference || p->backward_prefetch == BACKWARD_PREFETCH_PRE),
	};
}

/* Ranks choose alike: within the least that any of them has. */
static int limits_share(struct choice_limits *l)
{
	const struct world *w = world_self();
	double *all = mem_alloc((size_t)w->size * 2, sizeof(*all));
	int rc;

	rc = world_agree(all ? 0 : ERR_NOMEM);
	if (rc) {
		mem_free(all);
		return rc;
	}
	all[2 * w->rank] = (double)l->device_bytes;
	all[2 * w->rank + 1] = (double)l->host_bytes;
	rc = world_sum(all, 2 * w->size);
	for (int r = 0; r < w->size && !rc; r++) {
		if (all[2 * r] < (double)l->device_bytes)
			l->device_bytes = (int64_t)all[2 * r];
		if (all[2 * r + 1] < (double)l->host_bytes)
			l->host_bytes = (int64_t)all[2 * r + 1];
	}
	mem_free(all);
	return rc;
}

/* What rank 0 has chosen. */
static int policy_share(struct plan_policy *p)
{
	int chosen[] = {p->resident_states, p->resident_weights, p->kept_blocks, (int)p->activations,
	        (int)p->backward_prefetch, p->forward_prefetch, p->prefetch_units};
	int rc = world_broadcast(chosen, sizeof(chosen), 0);

	if (rc)
		return rc;
	p->resident_states = chosen[0];
	p->resident_weights = chosen[1];
	p->kept_blocks = chosen[2];
	p->activations = (enum activation_policy)chosen[3];
	p->backward_prefetch = (enum backward_prefetch)chosen[4];
	p->forward_prefetch = chosen[5];
	p->prefetch_units = chosen[6];
	return 0;
}

int fit_spends(const struct config *c, int64_t device_budget_bytes)
{
	return c->vram_budget_bytes && (device_budget_bytes || c->ram_budget_bytes != CONFIG_AUTO);
}

static struct choice_limits limits_find(const struct engine_options *o, const struct config *c,
        const struct fit_device *device, const struct machine *machine)
{
	return (struct choice_limits){.device_bytes = o->device_budget_bytes,
	        .host_bytes = fit_host_limit(c, machine, ranks_of_host(c, machine)),
	        .host_bytes_of = fit_host_bytes,
	        .device_is_host = !strcmp(device->name, "host")};
}

static int choose(struct choice *choice, struct engine_options *o, const struct choice_limits *limits,
        const struct config *c, const struct fit_device *device, enum fit_thoroughness thoroughness)
{
	struct choice_freedom freedom;

	fit_freedom(&freedom, c, o);
	freedom.smaller = thoroughness == FIT_AS_A_RUN;
	return choice_find(choice, o, limits, &freedom, &device->speed.rates);
}

int fit_would_spend(struct choice *choice, struct engine_options *o, const struct config *c,
        const struct fit_device *device, const struct machine *machine, enum fit_thoroughness thoroughness)
{
	struct choice_limits limits = limits_find(o, c, device, machine);

	*choice = (struct choice){.best = -1};
	return fit_spends(c, limits.device_bytes) ? choose(choice, o, &limits, c, device, thoroughness) : 0;
}

int fit_spend(struct choice *choice, struct engine_options *o, const struct config *c,
        struct fit_device *device, const struct machine *machine)
{
	struct choice_limits limits = limits_find(o, c, device, machine);
	int rc;

	if (!fit_spends(c, limits.device_bytes))
		return 0;
	rc = limits_share(&limits); /* and so all measure at once */
	if (!rc)
		rc = world_agree(speed_find(&device->speed, c, machine, device->name, o));
	if (!rc)
		rc = speed_share(&device->speed);
	if (!rc && !world_self()->rank)
		rc = choose(choice, o, &limits, c, device, FIT_AS_A_RUN);
	rc = world_agree(rc);
	return rc ? rc : policy_share(&o->policy);
}
