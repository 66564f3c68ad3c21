/* The device's memory. What does not fit is not only refused: settings that need less are planned one after
 * the other, mildest first, until the plan fits; what then turns out not to have been needed is taken back.
 */
#include "cli/fit.h"

#include "cli/progress.h"

#include "base/err.h"

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

	*f = (struct fit_device){.name = name, .limit_bytes = c->vram_budget_bytes};
	f->reserve_count = device_reserve_list(f->reserves, name);
	for (int i = 0; i < f->reserve_count; i++)
		f->reserve_bytes += f->reserves[i].bytes;
	if (c->vram_budget_bytes <= 0)
		f->limit_bytes = less_a_64th(machine ? machine->gpu_memory_bytes : device_free_bytes(device));
}

static const char *text_of(const struct str *s)
{
	return s->data ? s->data : "";
}

static void limit_text(struct str *out, const struct fit_device *f, const struct config *c)
{
	str_add(out, c->vram_budget_bytes <= 0 ? "the " : "vram_budget, ");
	progress_bytes(out, f->limit_bytes);
	if (c->vram_budget_bytes <= 0)
		str_add(out, " that may be taken of the device");
}

int fit_device_budget(int64_t *budget_bytes, const struct fit_device *f, const struct config *c)
{
	struct str limit = {0}, taken = {0};

	*budget_bytes = f->limit_bytes ? f->limit_bytes - f->reserve_bytes : 0;
	if (*budget_bytes >= 0 && (*budget_bytes || !f->limit_bytes))
		return 0;
	limit_text(&limit, f, c);
	progress_bytes(&taken, f->reserve_bytes);
	err_set(ERR_FIT, "what the libraries of the device take (%s) is no less than %s", text_of(&taken),
	        text_of(&limit));
	str_free(&limit);
	str_free(&taken);
	return ERR_FIT;
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
}

/* ---- settings that need less ---- */

/* What of a run is changed on trial. */
struct trial {
	int64_t offload_on, recompute, spill, no_prefetch,
	        wrap_size; /* 0 or 1; one type, so that no padding */
	int64_t batch_divisor, eval_divisor, length_divisor;
};

enum change {
	CHANGE_OFFLOAD,
	CHANGE_RECOMPUTE,
	CHANGE_NO_PREFETCH,
	CHANGE_SPILL,
	CHANGE_EVAL_BATCH,
	CHANGE_BATCH,
	CHANGE_WRAP,
	CHANGE_LENGTH,
	CHANGE_COUNT
};

enum { WRAP_MIN_PARAMS = 1000000, LENGTH_MIN = 64 };

static int trains(const struct config *c)
{
	return c->verb == VERB_TRAIN || c->verb == VERB_PLAN;
}

static int64_t divided(int64_t value, int64_t divisor)
{
	return (value + divisor - 1) / divisor;
}

/* The most that a micro-batch of fewer rows, each of them shorter, may take. */
static struct engine_sizes sizes_divided(
        const struct engine_sizes *sizes, int64_t rows, int64_t row_tokens, int64_t divisor, int64_t length)
{
	int64_t tokens = rows / divisor * row_tokens;
	struct engine_sizes less = *sizes;

	if (divisor > 1 && tokens < less.max_tokens)
		less.max_tokens = tokens;
	less.max_tokens = divided(less.max_tokens, length);
	if (less.max_targets > less.max_tokens)
		less.max_targets = less.max_tokens;
	return less;
}

static void trial_options(struct engine_options *o, const struct trial *t, const struct config *c,
        const struct engine_options *base)
{
	struct plan_policy *p = &o->policy;
	int64_t row_tokens = c->packing == CONFIG_PACKING_BFD ? c->max_length : base->policy.rope_positions;

	*o = *base;
	o->device_budget_bytes = 0;
	if (t->offload_on)
		p->offload_params = p->offload_gradients = p->offload_optimizer = 1;
	if (t->recompute)
		p->activations = ACTIVATION_RECOMPUTE;
	if (t->spill)
		p->activations = ACTIVATION_OFFLOAD;
	if (t->no_prefetch) {
		p->forward_prefetch = 0;
		p->backward_prefetch = BACKWARD_PREFETCH_NONE;
	}
	if (t->wrap_size) {
		o->wrap = WRAP_SIZE;
		o->min_num_params = WRAP_MIN_PARAMS;
	}
	o->train = sizes_divided(&base->train, c->per_device_train_batch_size, row_tokens, t->batch_divisor,
	        t->length_divisor);
	o->eval = sizes_divided(
	        &base->eval, c->per_device_eval_batch_size, row_tokens, t->eval_divisor, t->length_divisor);
	p->micro_batches *= (int)t->batch_divisor;
	p->rope_positions = divided(p->rope_positions, t->length_divisor);
}

/* Device memory of the trial, reserves included. */
static int trial_plan(int64_t *bytes, const struct trial *t, const struct fit_device *f,
        const struct config *c, const struct engine_options *base)
{
	struct engine_options o;
	struct engine_memory memory;
	struct engine *engine;
	int rc;

	trial_options(&o, t, c, base);
	rc = engine_open(&engine, &o);
	if (rc)
		return rc;
	engine_get_memory(engine, &memory);
	engine_close(engine);
	*bytes = memory.device_bytes + f->reserve_bytes;
	return 0;
}

/* Takes one step of a change; 0 where there is none left to take. */
static int trial_step(
        struct trial *t, enum change change, const struct config *c, const struct engine_options *base)
{
	const struct plan_policy *p = &base->policy;
	int64_t *flag = NULL;
	int open = 0;

	switch (change) {
	case CHANGE_OFFLOAD:
		flag = &t->offload_on;
		open = !p->offload_params || !p->offload_gradients || !p->offload_optimizer;
		break;
	case CHANGE_RECOMPUTE:
		flag = &t->recompute;
		open = trains(c) && p->activations == ACTIVATION_KEEP;
		break;
	case CHANGE_NO_PREFETCH:
		flag = &t->no_prefetch;
		open = p->forward_prefetch || (trains(c) && p->backward_prefetch != BACKWARD_PREFETCH_NONE);
		break;
	case CHANGE_SPILL:
		flag = &t->spill;
		open = trains(c) && p->activations != ACTIVATION_OFFLOAD;
		break;
	case CHANGE_WRAP:
		flag = &t->wrap_size;
		open = base->wrap != WRAP_SIZE || base->min_num_params > WRAP_MIN_PARAMS;
		break;
	case CHANGE_BATCH:
		if (!trains(c) || c->per_device_train_batch_size % (2 * t->batch_divisor))
			return 0;
		t->batch_divisor *= 2;
		return 1;
	case CHANGE_EVAL_BATCH:
		if (!base->eval.max_tokens || c->per_device_eval_batch_size < 2 * t->eval_divisor)
			return 0;
		t->eval_divisor *= 2;
		return 1;
	case CHANGE_LENGTH:
		if (c->verb == VERB_GENERATE || p->rope_positions / (2 * t->length_divisor) < LENGTH_MIN)
			return 0;
		t->length_divisor *= 2;
		return 1;
	case CHANGE_COUNT:
		break;
	}
	if (!flag || *flag || !open)
		return 0;
	*flag = 1;
	return 1;
}

static void trial_undo(struct trial *t, enum change change)
{
	switch (change) {
	case CHANGE_OFFLOAD:
		t->offload_on = 0;
		break;
	case CHANGE_RECOMPUTE:
		t->recompute = 0;
		break;
	case CHANGE_NO_PREFETCH:
		t->no_prefetch = 0;
		break;
	case CHANGE_SPILL:
		t->spill = 0;
		break;
	case CHANGE_WRAP:
		t->wrap_size = 0;
		break;
	case CHANGE_BATCH:
		t->batch_divisor = 1;
		break;
	case CHANGE_EVAL_BATCH:
		t->eval_divisor = 1;
		break;
	case CHANGE_LENGTH:
		t->length_divisor = 1;
		break;
	case CHANGE_COUNT:
		break;
	}
}

/* Steps of all changes in turn, each kept if it needs less, until *bytes fits. */
static int trial_search(struct trial *t, int64_t *bytes, const struct fit_device *f, const struct config *c,
        const struct engine_options *base)
{
	int rc = trial_plan(bytes, t, f, c, base);

	for (int change = 0; change < CHANGE_COUNT && !rc && *bytes > f->limit_bytes; change++) {
		struct trial less = *t;

		while (!rc && *bytes > f->limit_bytes && trial_step(&less, (enum change)change, c, base)) {
			int64_t less_bytes;

			rc = trial_plan(&less_bytes, &less, f, c, base);
			if (!rc && less_bytes < *bytes) {
				*t = less;
				*bytes = less_bytes;
			}
		}
	}
	for (int change = 0; change < CHANGE_COUNT && !rc && *bytes <= f->limit_bytes; change++) {
		struct trial without = *t;
		int64_t more_bytes;

		trial_undo(&without, (enum change)change);
		if (!memcmp(&without, t, sizeof(without)))
			continue;
		rc = trial_plan(&more_bytes, &without, f, c, base);
		if (!rc && more_bytes <= f->limit_bytes) {
			*t = without;
			*bytes = more_bytes;
		}
	}
	return rc;
}

static void trial_text(
        struct str *out, const struct trial *t, const struct config *c, const struct engine_options *base)
{
	if (t->offload_on)
		str_printf(out, " cpu_offload=on");
	if (t->spill)
		str_printf(out, " activations=offload");
	else if (t->recompute)
		str_printf(out, " activations=recompute");
	if (t->no_prefetch)
		str_printf(out, " forward_prefetch=off");
	if (t->no_prefetch && trains(c))
		str_printf(out, " backward_prefetch=NO_PREFETCH");
	if (t->wrap_size)
		str_printf(out, " wrap_policy=size min_num_params=%d", WRAP_MIN_PARAMS);
	if (t->batch_divisor > 1)
		str_printf(out,
		        " per_device_train_batch_size=%" PRId64 " gradient_accumulation_steps=%" PRId64,
		        c->per_device_train_batch_size / t->batch_divisor,
		        c->gradient_accumulation_steps * t->batch_divisor);
	if (t->eval_divisor > 1)
		str_printf(out, " per_device_eval_batch_size=%" PRId64,
		        c->per_device_eval_batch_size / t->eval_divisor);
	if (t->length_divisor > 1)
		str_printf(
		        out, " max_length=%" PRId64, divided(base->policy.rope_positions, t->length_divisor));
}

int fit_device_refuse(const struct fit_device *f, const struct config *c, const struct engine_options *base)
{
	struct trial t = {.batch_divisor = 1, .eval_divisor = 1, .length_divisor = 1};
	struct str need = {0}, over = {0}, limit = {0}, least = {0}, settings = {0};
	int64_t need_bytes, bytes;
	int rc = trial_plan(&need_bytes, &t, f, c, base);

	if (!rc)
		rc = trial_search(&t, &bytes, f, c, base);
	if (rc)
		return rc;
	progress_bytes(&need, need_bytes);
	progress_bytes(&over, need_bytes - f->limit_bytes);
	limit_text(&limit, f, c);
	progress_bytes(&least, bytes);
	trial_text(&settings, &t, c, base);
	if (bytes <= f->limit_bytes)
		rc = err_set(ERR_FIT,
		        "the plan needs %s on the device, %s more than %s; it fits, in %s, with%s",
		        text_of(&need), text_of(&over), text_of(&limit), text_of(&least), text_of(&settings));
	else if (settings.data)
		rc = err_set(ERR_FIT,
		        "the plan needs %s on the device, %s more than %s; the least found is %s (%" PRId64
		        " bytes), with%s",
		        text_of(&need), text_of(&over), text_of(&limit), text_of(&least), bytes,
		        text_of(&settings));
	else
		rc = err_set(ERR_FIT,
		        "the plan needs %s (%" PRId64
		        " bytes) on the device, %s more than %s, and no setting "
		        "that was tried needs less",
		        text_of(&need), need_bytes, text_of(&over), text_of(&limit));
	str_free(&need);
	str_free(&over);
	str_free(&limit);
	str_free(&least);
	str_free(&settings);
	return rc;
}
