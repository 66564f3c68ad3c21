/* Searches settings that need less device memory. */
#include "placement/device_search.h"

#include "placement/budget.h"
#include "placement/ranks.h"
#include "placement/simulate.h"
#include "placement/smaller.h"

#include "base/err.h"
#include "base/quantity.h"

#include <inttypes.h>
#include <math.h>

/* Settings that a trial changes, in the order of how much they change; 0 is the run's own setting. If a
 * budget chooses keeping or ahead, 1 means that the budget may override the key, and there are no further
 * values. */
enum ahead { AHEAD_AS_IT_IS, AHEAD_ONE, AHEAD_NOTHING, AHEAD_COUNT };
enum keeping { KEEPING_AS_IT_IS, KEEPING_INPUTS, KEEPING_NOTHING, KEEPING_COUNT };

struct trial {
	int offload_on, wrap_size; /* 0 or 1 */
	enum keeping keeping;
	enum ahead ahead;
	struct smaller less;
};

enum { WRAP_MIN_PARAMS = 1000000 };

struct search {
	struct device_found *found;
	int64_t limit_bytes;
	const struct config *config;
	const struct engine_options *base;
	const struct device_memory *device;
	const struct machine *machine;
	struct device *meta;
	struct engine_options tried; /* the plan of the bytes that were found last */
	struct trial best;
	double best_ms; /* 0: none fits yet */
	int spends;     /* 1: there is a budget to spend */
	/* 1: the budget chooses it unless a key is set */
	int keeping_is_chosen, ahead_is_chosen;
};

static int trains(const struct config *c)
{
	return c->verb == VERB_TRAIN || c->verb == VERB_PLAN;
}

/* The configuration with the keys that a trial leaves to the budget set to auto. */
static void trial_config(struct config *c, const struct trial *t, const struct search *s)
{
	*c = *s->config; /* borrows its texts */
	if (t->keeping != KEEPING_AS_IT_IS && s->keeping_is_chosen)
		c->activations = CONFIG_ACTIVATIONS_AUTO;
	if (t->ahead != AHEAD_AS_IT_IS && s->ahead_is_chosen)
		c->prefetch_units = CONFIG_AUTO;
}

/* Sets the trial's handling of activations and prefetch distance. */
static void trial_policy(struct plan_policy *p, const struct trial *t, const struct search *s)
{
	struct config c;

	trial_config(&c, t, s);
	if (s->keeping_is_chosen && c.activations == CONFIG_ACTIVATIONS_AUTO)
		p->activations = ACTIVATION_RECOMPUTE;
	else if (t->keeping != KEEPING_AS_IT_IS)
		p->activations = t->keeping == KEEPING_INPUTS ? ACTIVATION_RECOMPUTE : ACTIVATION_OFFLOAD;
	if (s->ahead_is_chosen && c.prefetch_units == CONFIG_AUTO) {
		p->prefetch_units = CONFIG_PREFETCH_UNITS;
	} else if (t->ahead == AHEAD_ONE) {
		p->prefetch_units = 1;
	} else if (t->ahead == AHEAD_NOTHING) {
		p->forward_prefetch = 0;
		p->backward_prefetch = BACKWARD_PREFETCH_NONE;
	}
}

static void trial_options(struct engine_options *o, const struct trial *t, const struct search *s)
{
	const struct engine_options *base = s->base;
	struct plan_policy *p = &o->policy;

	*o = *base;
	o->device = s->meta;
	o->device_budget_bytes = 0;
	if (t->offload_on)
		p->offload_params = p->offload_gradients = p->offload_optimizer = 1;
	trial_policy(p, t, s);
	if (t->wrap_size) {
		o->wrap = WRAP_SIZE;
		o->min_num_params = WRAP_MIN_PARAMS;
	}
	smaller_apply(o, &t->less, base, s->config);
}

static int keeping_changes(enum keeping keeping, const struct search *s)
{
	enum activation_policy kept = s->base->policy.activations;

	if (keeping == KEEPING_AS_IT_IS)
		return 1;
	if (s->keeping_is_chosen)
		return keeping == KEEPING_INPUTS && s->config->activations != CONFIG_ACTIVATIONS_AUTO;
	return trains(s->config) &&
	       (keeping == KEEPING_INPUTS ? kept == ACTIVATION_KEEP : kept != ACTIVATION_OFFLOAD);
}

static int ahead_changes(enum ahead ahead, const struct search *s)
{
	const struct plan_policy *p = &s->base->policy;

	if (ahead == AHEAD_AS_IT_IS)
		return 1;
	if (s->ahead_is_chosen)
		return ahead == AHEAD_ONE && s->config->prefetch_units != CONFIG_AUTO;
	return (p->forward_prefetch ||
	               (trains(s->config) && p->backward_prefetch != BACKWARD_PREFETCH_NONE)) &&
	       (ahead == AHEAD_NOTHING || p->prefetch_units != 1);
}

/* Whether the trial changes a setting of the run. */
static int trial_changes(const struct trial *t, const struct search *s)
{
	const struct plan_policy *p = &s->base->policy;

	if (t->offload_on && p->offload_params && p->offload_gradients && p->offload_optimizer)
		return 0;
	if (t->wrap_size && s->base->wrap == WRAP_SIZE && s->base->min_num_params <= WRAP_MIN_PARAMS)
		return 0;
	return keeping_changes(t->keeping, s) && ahead_changes(t->ahead, s);
}

static int change_count(const struct trial *t)
{
	return t->offload_on + t->wrap_size + (int)t->keeping + (int)t->ahead;
}

static void found_keep(struct search *s, const struct trial *t, int64_t bytes, double ms)
{
	s->best = *t;
	s->best_ms = ms;
	s->found->bytes = bytes;
}

/* The least that it takes: where a budget is spent, of all that the budget could choose. */
static int trial_bytes(int64_t *bytes, const struct trial *t, struct search *s, int is_exact)
{
	struct choice_freedom freedom;
	struct engine_options *o = &s->tried;
	struct engine_memory memory;
	struct engine *engine;
	struct config c;
	int rc;

	trial_config(&c, t, s);
	trial_options(o, t, s);
	if (s->spends || o->policy.micro_batches > BUDGET_MICROS) {
		freedom = (struct choice_freedom){0};
		if (s->spends)
			budget_freedom(&freedom, &c, o);
		return choice_find_least(bytes, o, &freedom, is_exact);
	}
	rc = engine_open(&engine, o);
	if (rc)
		return rc;
	engine_get_memory(engine, &memory);
	engine_close(engine);
	*bytes = memory.device_bytes;
	return 0;
}

/* The trial's simulated step; 1 for all if there is no training step or if best_spend decides later. */
static int trial_step(double *step_ms, const struct trial *t, const struct search *s)
{
	struct simulated step = {.step_ms = 1};
	struct engine *engine = NULL;
	struct engine_options o;
	int rc = 0;

	trial_options(&o, t, s);
	if (o.policy.micro_batches > BUDGET_MICROS && !s->spends && o.train.max_tokens) {
		struct choice_candidate k;
		const struct choice_limits none = {0};
		const struct choice_freedom freedom = {0};

		rc = choice_estimate(&k, &o, &none, &freedom, &s->device->rates.speed);
		*step_ms = !rc && k.step_ms > 0 ? k.step_ms : 1;
		return rc;
	}
	if (o.train.max_tokens && !s->spends)
		rc = engine_open(&engine, &o);
	if (!rc && engine)
		rc = engine_start(engine);
	if (!rc && engine)
		rc = simulate_step(&step, engine, &o, NULL);
	engine_close(engine);
	*step_ms = step.step_ms;
	return rc;
}

static int is_better(const struct search *s, const struct trial *t, double step_ms)
{
	return !s->best_ms || step_ms < 0.995 * s->best_ms ||
	       (step_ms < 1.005 * s->best_ms && change_count(t) < change_count(&s->best));
}

static int trial_judge(struct search *s, const struct trial *t)
{
	double step_ms;
	int64_t bytes;
	int rc = trial_bytes(&bytes, t, s, 0);

	if (rc)
		return rc;
	if (bytes > s->limit_bytes) {
		if (!s->best_ms && bytes < s->found->bytes)
			found_keep(s, t, bytes, 0);
		return 0;
	}
	rc = trial_step(&step_ms, t, s);
	if (!rc && is_better(s, t, step_ms))
		found_keep(s, t, bytes, step_ms);
	return rc;
}

/* Judges the trial with all changes at these sizes, with either wrapping. If it does not fit, smaller sizes
 * are next. */
static int sizes_judge_least(struct search *s, const struct trial *sizes)
{
	struct trial t = *sizes;
	int rc = 0;

	t.offload_on = trial_changes(&(struct trial){.offload_on = 1}, s);
	for (t.keeping = KEEPING_NOTHING; !keeping_changes(t.keeping, s);)
		t.keeping--;
	for (t.ahead = AHEAD_NOTHING; !ahead_changes(t.ahead, s);)
		t.ahead--;
	for (t.wrap_size = 0; t.wrap_size < 2 && !rc; t.wrap_size++)
		if (trial_changes(&t, s))
			rc = trial_judge(s, &t);
	return rc;
}

/* Judges all combinations of settings that do not change the training result, at these sizes. */
static int sizes_judge_all(
        struct search *s, const struct trial *sizes, int (*judge)(struct search *, const struct trial *))
{
	struct trial t = *sizes;
	int rc = 0;

	for (t.offload_on = 0; t.offload_on < 2; t.offload_on++)
		for (t.wrap_size = 0; t.wrap_size < 2; t.wrap_size++)
			for (t.keeping = 0; t.keeping < KEEPING_COUNT; t.keeping++)
				for (t.ahead = 0; t.ahead < AHEAD_COUNT && !rc; t.ahead++)
					if (trial_changes(&t, s))
						rc = judge(s, &t);
	return rc;
}

static int sizes_judge(struct search *s, const struct trial *sizes)
{
	int rc = sizes_judge_least(s, sizes);

	return rc || !s->best_ms ? rc : sizes_judge_all(s, sizes, trial_judge);
}

/* Restores sizes that were lowered early, if the later ones made that unnecessary. */
static int sizes_raise(struct search *s)
{
	int64_t *const divisors[] = {&s->best.less.eval, &s->best.less.batch};
	int rc = 0;

	for (int i = 0; i < 2 && !rc; i++) {
		int64_t kept = *divisors[i];
		int64_t bytes;

		if (kept == 1)
			continue;
		*divisors[i] = 1;
		rc = trial_bytes(&bytes, &s->best, s, 0);
		if (!rc && bytes > s->limit_bytes)
			*divisors[i] = kept;
		else if (!rc)
			s->found->bytes = bytes;
	}
	return rc;
}

/* ---- with a budget to spend ---- */

static void choices_find(struct search *s)
{
	const struct plan_policy *p = &s->base->policy;

	s->spends = budget_is_spent(s->config, s->limit_bytes ? s->limit_bytes : -1); /* 0 is no limit */
	s->keeping_is_chosen = s->spends && !p->inference;
	s->ahead_is_chosen = s->spends && p->forward_prefetch &&
	                     (p->inference || p->backward_prefetch == BACKWARD_PREFETCH_PRE);
}

/* Spends the budget with the trial's settings. *spent is the chosen candidate; step_ms INFINITY if none
 * fits. */
static int trial_spend(struct choice_candidate *spent, const struct trial *t, const struct search *s,
        enum budget_thoroughness thoroughness)
{
	struct engine_options o;
	struct choice choice;
	struct config c;
	int rc;

	trial_config(&c, t, s);
	trial_options(&o, t, s);
	o.device_budget_bytes = s->limit_bytes;
	rc = budget_try(&choice, &o, &c, s->device, s->machine, thoroughness);
	*spent = (struct choice_candidate){.step_ms = INFINITY};
	if (!rc && choice.best >= 0)
		*spent = choice.list[choice.best];
	choice_free(&choice);
	return rc;
}

/* Spends the budget with the trial's settings, and keeps the trial if its step is better than the best. */
static int trial_judge_spent(struct search *s, const struct trial *t)
{
	struct choice_candidate spent;
	int rc = trial_spend(&spent, t, s, BUDGET_ROUGHLY);

	if (!rc && isfinite(spent.step_ms) && is_better(s, t, spent.step_ms))
		found_keep(s, t, spent.device_bytes, spent.step_ms);
	return rc;
}

/* Finds the shortest step with the budget spent, at the sizes of the best trial. */
static int best_spend(struct search *s)
{
	struct choice_candidate spent;
	int rc;

	s->best_ms = 0;
	rc = sizes_judge_all(s, &s->best, trial_judge_spent);
	if (!rc && s->best_ms)
		rc = trial_spend(&spent, &s->best, s, BUDGET_AS_A_RUN);
	if (!rc && s->best_ms)
		s->found->bytes = spent.device_bytes;
	return rc;
}

static void settings_text(struct str *out, const struct search *s)
{
	const struct trial *t = &s->best;
	const struct config *c = s->config;

	if (t->offload_on)
		str_printf(out, " cpu_offload=on");
	if (t->keeping != KEEPING_AS_IT_IS && !s->keeping_is_chosen)
		str_printf(out, " activations=%s", t->keeping == KEEPING_INPUTS ? "recompute" : "offload");
	else if (t->keeping != KEEPING_AS_IT_IS && c->activations != CONFIG_ACTIVATIONS_AUTO)
		str_printf(out, " activations=auto");
	if (t->ahead == AHEAD_ONE && !s->ahead_is_chosen)
		str_printf(out, " prefetch_units=1");
	if (t->ahead == AHEAD_NOTHING && !s->ahead_is_chosen)
		str_printf(out, " forward_prefetch=off");
	if (t->ahead == AHEAD_NOTHING && !s->ahead_is_chosen && trains(c))
		str_printf(out, " backward_prefetch=NO_PREFETCH");
	if (t->ahead != AHEAD_AS_IT_IS && s->ahead_is_chosen && c->prefetch_units != CONFIG_AUTO)
		str_printf(out, " prefetch_units=auto");
	if (t->wrap_size)
		str_printf(out, " wrap_policy=size min_num_params=%d", WRAP_MIN_PARAMS);
	smaller_text(out, &t->less, s->base, c);
}

int device_search(struct device_found *found, const struct config *c, const struct engine_options *base,
        const struct device_memory *device, const struct machine *machine)
{
	int64_t limit_bytes = device->limit_bytes - device->reserve_bytes;
	struct trial t = {.less = SMALLER_NONE};
	struct search s = {.found = found,
	        .limit_bytes = limit_bytes,
	        .config = c,
	        .base = base,
	        .device = device,
	        .machine = machine,
	        .best = t};
	struct device_options o = {.pool = base->pool, .remembers = 1};
	int rc;

	*found = (struct device_found){.bytes = INT64_MAX};
	o.ranks_per_node = ranks_on_node(c, machine, world_self(), c->ranks);
	o.speed = device->rates.speed;
	rc = device_open(&s.meta, "meta", &o);
	choices_find(&s);
	if (!rc)
		rc = trial_judge(&s, &t);
	found->before_bytes = found->bytes;
	found->before = s.tried;
	found->before.device = base->device;
	found->is_least = s.spends;
	do {
		if (!rc)
			rc = sizes_judge(&s, &t);
	} while (!rc && !s.best_ms && smaller_next(&t.less, base, c, 0));
	if (!rc) /* what is said to be the least must be enough */
		rc = s.best_ms ? sizes_raise(&s) : trial_bytes(&found->bytes, &s.best, &s, 1);
	if (!rc && s.best_ms && s.spends && trains(c))
		rc = best_spend(&s);
	if (!rc) {
		settings_text(&found->settings, &s);
		rc = str_check(&found->settings);
	}
	device_close(s.meta);
	return rc;
}

/* ---- the refusal ---- */

static const char *text_of(const struct str *s)
{
	return s->data ? s->data : "";
}

static void limit_text(struct str *out, const struct device_memory *f, const struct machine *machine)
{
	str_add(out, f->is_budget ? "vram_budget is " : f->is_host ? "the host has " : "the GPU has ");
	quantity_bytes(out, f->limit_bytes);
	if (!f->is_budget && !machine)
		str_add(out, " free");
	if (f->limit_bytes > f->reserve_bytes)
		return;
	str_add(out, " and GPU libraries take ");
	quantity_bytes(out, f->reserve_bytes);
}

/* To the byte only for programs and for those who want every detail. */
static void bytes_text(struct str *out, int64_t bytes, const struct config *c)
{
	quantity_bytes(out, bytes);
	if (c->json || c->explain)
		str_printf(out, " (%" PRId64 " bytes)", bytes);
}

int device_search_refuse(struct engine_options *smallest, const struct device_memory *f,
        const struct config *c, const struct engine_options *base, const struct machine *machine)
{
	const char *memory = f->is_host ? "device memory" : "GPU memory", *at_least;
	struct str need = {0}, limit = {0}, least = {0};
	struct device_found found;
	int rc = device_search(&found, c, base, f, machine);
	int64_t need_bytes = found.before_bytes + f->reserve_bytes, bytes = found.bytes + f->reserve_bytes;

	if (rc)
		goto out;
	*smallest = found.before;
	at_least = found.is_least ? "at least " : "";
	limit_text(&limit, f, machine);
	if (bytes <= f->limit_bytes) {
		quantity_bytes(&need, need_bytes);
		quantity_bytes(&least, bytes);
		rc = err_set(ERR_FIT, "needs %s%s of %s; %s; set%s (then %s)", at_least, text_of(&need),
		        memory, text_of(&limit), text_of(&found.settings), text_of(&least));
	} else if (found.settings.data) {
		quantity_bytes(&need, need_bytes);
		bytes_text(&least, bytes, c);
		rc = err_set(ERR_FIT, "needs %s%s of %s; %s; smallest plan: %s with%s", at_least,
		        text_of(&need), memory, text_of(&limit), text_of(&least), text_of(&found.settings));
	} else {
		bytes_text(&need, need_bytes, c);
		rc = err_set(ERR_FIT, "needs %s%s of %s; %s; no setting needs less", at_least, text_of(&need),
		        memory, text_of(&limit));
	}
out:
	str_free(&need);
	str_free(&limit);
	str_free(&least);
	str_free(&found.settings);
	return rc;
}
