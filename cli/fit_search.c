#include "cli/fit_search.h"

#include "cli/ranks.h"

#include "base/err.h"
#include "offload/simulate.h"

#include <inttypes.h>
#include <math.h>

/* What of a run is changed on trial. Values are in the order of how much they change; 0 leaves it as it is.
 */
enum ahead { AHEAD_AS_IT_IS, AHEAD_ONE, AHEAD_NOTHING, AHEAD_COUNT };
enum keeping { KEEPING_AS_IT_IS, KEEPING_INPUTS, KEEPING_NOTHING, KEEPING_COUNT };

struct trial {
	int offload_on, wrap_size; /* 0 or 1 */
	enum keeping keeping;
	enum ahead ahead;
	int64_t batch_divisor, eval_divisor, length_divisor;
};

enum { WRAP_MIN_PARAMS = 1000000, LENGTH_MIN = 64 };

struct search {
	struct fit_found *found;
	int64_t limit_bytes;
	const struct config *config;
	const struct engine_options *base;
	const struct fit_device *device;
	const struct machine *machine;
	struct device *meta;
	struct trial best;
	double best_ms; /* 0: none fits yet */
	/* 1: what a budget chooses by itself wherever keys do not say otherwise */
	int keeping_is_chosen, ahead_is_chosen;
};

static int trains(const struct config *c)
{
	return c->verb == VERB_TRAIN || c->verb == VERB_PLAN;
}

static int64_t divided(int64_t value, int64_t divisor)
{
	return (value + divisor - 1) / divisor;
}

/* The most that a micro-batch of fewer rows, each of them cut to row_tokens, may take. */
static struct engine_sizes sizes_cut(const struct engine_sizes *sizes, int64_t rows, int64_t row_tokens)
{
	struct engine_sizes less = *sizes;

	if (rows * row_tokens < less.max_tokens)
		less.max_tokens = rows * row_tokens;
	if (less.max_targets > less.max_tokens)
		less.max_targets = less.max_tokens;
	return less;
}

static void trial_options(struct engine_options *o, const struct trial *t, const struct search *s)
{
	const struct engine_options *base = s->base;
	const struct config *c = s->config;
	int64_t row_tokens = c->packing == CONFIG_PACKING_BFD ? c->max_length : base->policy.rope_positions;
	struct plan_policy *p = &o->policy;

	*o = *base;
	o->device = s->meta;
	o->device_budget_bytes = 0;
	if (t->offload_on)
		p->offload_params = p->offload_gradients = p->offload_optimizer = 1;
	if (t->keeping != KEEPING_AS_IT_IS)
		p->activations = t->keeping == KEEPING_INPUTS ? ACTIVATION_RECOMPUTE : ACTIVATION_OFFLOAD;
	if (t->ahead == AHEAD_ONE)
		p->prefetch_units = 1;
	if (t->ahead == AHEAD_NOTHING) {
		p->forward_prefetch = 0;
		p->backward_prefetch = BACKWARD_PREFETCH_NONE;
	}
	if (t->wrap_size) {
		o->wrap = WRAP_SIZE;
		o->min_num_params = WRAP_MIN_PARAMS;
	}
	row_tokens = divided(row_tokens, t->length_divisor);
	o->train = sizes_cut(&base->train, c->per_device_train_batch_size / t->batch_divisor, row_tokens);
	o->eval = sizes_cut(&base->eval, c->per_device_eval_batch_size / t->eval_divisor, row_tokens);
	p->micro_batches *= (int)t->batch_divisor;
	p->rope_positions = divided(p->rope_positions, t->length_divisor);
}

/* Would it change something? What is so already needs no trial. */
static int trial_changes(const struct trial *t, const struct search *s)
{
	const struct plan_policy *p = &s->base->policy;
	int fetches_ahead =
	        p->forward_prefetch || (trains(s->config) && p->backward_prefetch != BACKWARD_PREFETCH_NONE);

	if (t->offload_on && p->offload_params && p->offload_gradients && p->offload_optimizer)
		return 0;
	if (t->keeping != KEEPING_AS_IT_IS && !trains(s->config))
		return 0;
	if (t->keeping == KEEPING_INPUTS && p->activations != ACTIVATION_KEEP)
		return 0;
	if (t->keeping == KEEPING_NOTHING && p->activations == ACTIVATION_OFFLOAD)
		return 0;
	if (t->ahead != AHEAD_AS_IT_IS &&
	        (!fetches_ahead || (t->ahead == AHEAD_ONE && p->prefetch_units == 1)))
		return 0;
	return !t->wrap_size || s->base->wrap != WRAP_SIZE || s->base->min_num_params > WRAP_MIN_PARAMS;
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

/* Plans it, and lets a step run where it fits. Without training each that fits is as good. */
static int trial_judge(struct search *s, const struct trial *t)
{
	struct simulated step = {.step_ms = 1};
	struct engine *engine = NULL;
	struct engine_memory memory;
	struct engine_options o;
	int rc;

	trial_options(&o, t, s);
	rc = engine_open(&engine, &o);
	if (rc)
		return rc;
	engine_get_memory(engine, &memory);
	if (memory.device_bytes > s->limit_bytes) {
		if (!s->best_ms && memory.device_bytes < s->found->bytes)
			found_keep(s, t, memory.device_bytes, 0);
	} else {
		if (o.train.max_tokens)
			rc = engine_start(engine);
		if (!rc && o.train.max_tokens)
			rc = simulate_step(&step, engine, &o, NULL);
		if (!rc && (!s->best_ms || step.step_ms < 0.995 * s->best_ms ||
		                   (step.step_ms < 1.005 * s->best_ms &&
		                           change_count(t) < change_count(&s->best))))
			found_keep(s, t, memory.device_bytes, step.step_ms);
	}
	engine_close(engine);
	return rc;
}

/* The most that can be changed at these sizes, units cut either way: where that does not fit, nothing does.
 */
static int sizes_judge_least(struct search *s, const struct trial *sizes)
{
	struct trial t = *sizes;
	int rc = 0;

	for (t.wrap_size = 0; t.wrap_size < 2 && !rc; t.wrap_size++) {
		t.offload_on = trial_changes(&(struct trial){.offload_on = 1}, s);
		t.keeping = trial_changes(&(struct trial){.keeping = KEEPING_NOTHING}, s) ? KEEPING_NOTHING
		                                                                          : KEEPING_AS_IT_IS;
		t.ahead = trial_changes(&(struct trial){.ahead = AHEAD_NOTHING}, s) ? AHEAD_NOTHING
		                                                                    : AHEAD_AS_IT_IS;
		if (trial_changes(&t, s))
			rc = trial_judge(s, &t);
	}
	return rc;
}

/* All that changes nothing of what is trained, at these sizes. */
static int sizes_judge(struct search *s, const struct trial *sizes)
{
	struct trial t = *sizes;
	int rc = sizes_judge_least(s, sizes);

	if (rc || !s->best_ms)
		return rc;
	for (t.offload_on = 0; t.offload_on < 2; t.offload_on++)
		for (t.wrap_size = 0; t.wrap_size < 2; t.wrap_size++)
			for (t.keeping = 0; t.keeping < KEEPING_COUNT; t.keeping++)
				for (t.ahead = 0; t.ahead < AHEAD_COUNT && !rc; t.ahead++)
					if (trial_changes(&t, s))
						rc = trial_judge(s, &t);
	return rc;
}

/* The next one above `divisor`, or 0. */
static int64_t next_divisor(int64_t value, int64_t divisor)
{
	while (++divisor <= value)
		if (value % divisor == 0)
			return divisor;
	return 0;
}

/* The next smaller sizes; 0: there are none. */
static int sizes_lower(struct trial *t, const struct search *s)
{
	const struct engine_options *base = s->base;
	const struct config *c = s->config;
	int64_t fewer_rows = trains(c) ? next_divisor(c->per_device_train_batch_size, t->batch_divisor) : 0;

	if (base->eval.max_tokens && c->per_device_eval_batch_size >= 2 * t->eval_divisor)
		t->eval_divisor *= 2;
	else if (fewer_rows)
		t->batch_divisor = fewer_rows;
	else if (c->verb != VERB_GENERATE &&
	         base->policy.rope_positions / (2 * t->length_divisor) >= LENGTH_MIN)
		t->length_divisor *= 2;
	else
		return 0;
	return 1;
}

/* Sizes were lowered in turn: what was lowered early may not have been needed. */
static int sizes_raise(struct search *s)
{
	int64_t *const divisors[] = {&s->best.eval_divisor, &s->best.batch_divisor};
	int rc = 0;

	for (int i = 0; i < 2 && !rc; i++) {
		int64_t kept = *divisors[i];
		struct engine_memory memory;
		struct engine_options o;
		struct engine *engine;

		if (kept == 1)
			continue;
		*divisors[i] = 1;
		trial_options(&o, &s->best, s);
		rc = engine_open(&engine, &o);
		if (rc)
			break;
		engine_get_memory(engine, &memory);
		engine_close(engine);
		if (memory.device_bytes > s->limit_bytes)
			*divisors[i] = kept;
		else
			s->found->bytes = memory.device_bytes;
	}
	return rc;
}

/* ---- what a budget chooses ---- */

static void choices_find(struct search *s)
{
	const struct plan_policy *p = &s->base->policy;
	int spends = fit_spends(s->config, s->limit_bytes ? s->limit_bytes : -1); /* none is no limit */

	s->keeping_is_chosen = spends && !p->inference;
	s->ahead_is_chosen = spends && p->forward_prefetch &&
	                     (p->inference || p->backward_prefetch == BACKWARD_PREFETCH_PRE);
}

/* The keys that a trial leaves to the budget. */
static void trial_config(struct config *c, const struct trial *t, const struct search *s)
{
	*c = *s->config; /* its texts stay the configuration's */
	if (t->keeping != KEEPING_AS_IT_IS && s->keeping_is_chosen)
		c->activations = CONFIG_ACTIVATIONS_AUTO;
	if (t->ahead != AHEAD_AS_IT_IS && s->ahead_is_chosen)
		c->prefetch_units = CONFIG_AUTO;
}

/* A run with it spends its budget: *spent is what it comes to, step_ms INFINITY where it does not fit. */
static int trial_spend(struct choice_candidate *spent, const struct trial *t, const struct search *s,
        enum fit_thoroughness thoroughness)
{
	struct engine_options o;
	struct choice choice;
	struct config c;
	int rc;

	trial_config(&c, t, s);
	trial_options(&o, t, s);
	if (s->keeping_is_chosen && c.activations == CONFIG_ACTIVATIONS_AUTO)
		o.policy.activations = ACTIVATION_RECOMPUTE;
	if (s->ahead_is_chosen && c.prefetch_units == CONFIG_AUTO)
		o.policy.prefetch_units = PREFETCH_UNITS;
	o.device_budget_bytes = s->limit_bytes;
	rc = fit_would_spend(&choice, &o, &c, s->device, s->machine, thoroughness);
	*spent = (struct choice_candidate){.step_ms = INFINITY};
	if (!rc && choice.best >= 0)
		*spent = choice.list[choice.best];
	choice_free(&choice);
	return rc;
}

/* Its step with the budget spent, in place of the best where that is longer. */
static int trial_spend_better(double *best_ms, struct search *s, const struct trial *t)
{
	struct choice_candidate spent;
	int rc = trial_spend(&spent, t, s, FIT_ROUGHLY);

	if (!rc && (spent.step_ms < 0.995 * *best_ms ||
	                   (spent.step_ms < 1.005 * *best_ms && change_count(t) < change_count(&s->best)))) {
		s->best = *t;
		*best_ms = spent.step_ms;
	}
	return rc;
}

/* Of what fits, at the sizes of the best: the shortest step with the budget spent. What the budget chooses by
 * itself is set free where a key held it. */
static int best_spend(struct search *s)
{
	int free_keeping = s->keeping_is_chosen && s->config->activations != CONFIG_ACTIVATIONS_AUTO,
	    free_ahead = s->ahead_is_chosen && s->config->prefetch_units != CONFIG_AUTO, rc = 0;
	struct choice_candidate spent;
	struct trial t = s->best;
	double best_ms = INFINITY;

	for (int i = 0; i < 16 && !rc; i++) {
		t.offload_on = i & 1;
		t.wrap_size = i >> 1 & 1;
		t.keeping = i & 4 ? KEEPING_INPUTS : KEEPING_AS_IT_IS;
		t.ahead = i & 8 ? AHEAD_ONE : AHEAD_AS_IT_IS;
		if ((i & 4 && !free_keeping) || (i & 8 && !free_ahead) ||
		        (i & 1 && !trial_changes(&(struct trial){.offload_on = 1}, s)) ||
		        (i & 2 && !trial_changes(&(struct trial){.wrap_size = 1}, s)))
			continue;
		rc = trial_spend_better(&best_ms, s, &t);
	}
	if (!rc && isfinite(best_ms))
		rc = trial_spend(&spent, &s->best, s, FIT_AS_A_RUN);
	if (!rc && isfinite(best_ms))
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
	if (t->batch_divisor > 1)
		str_printf(out,
		        " per_device_train_batch_size=%" PRId64 " gradient_accumulation_steps=%" PRId64,
		        c->per_device_train_batch_size / t->batch_divisor,
		        c->gradient_accumulation_steps * t->batch_divisor);
	if (t->eval_divisor > 1)
		str_printf(out, " per_device_eval_batch_size=%" PRId64,
		        c->per_device_eval_batch_size / t->eval_divisor);
	if (t->length_divisor > 1)
		str_printf(out, " max_length=%" PRId64,
		        divided(s->base->policy.rope_positions, t->length_divisor));
}

/* The least that the budget could choose, no key changed. */
static int chosen_judge(struct search *s)
{
	struct trial t = s->best;

	if (s->keeping_is_chosen && s->config->activations == CONFIG_ACTIVATIONS_AUTO)
		t.keeping = KEEPING_NOTHING;
	if (s->ahead_is_chosen && s->config->prefetch_units == CONFIG_AUTO)
		t.ahead = AHEAD_NOTHING;
	return t.keeping || t.ahead ? trial_judge(s, &t) : 0;
}

int fit_search(struct fit_found *found, const struct config *c, const struct engine_options *base,
        const struct fit_device *device, const struct machine *machine)
{
	int64_t limit_bytes = device->limit_bytes - device->reserve_bytes;
	struct trial t = {.batch_divisor = 1, .eval_divisor = 1, .length_divisor = 1};
	struct search s = {.found = found,
	        .limit_bytes = limit_bytes,
	        .config = c,
	        .base = base,
	        .device = device,
	        .machine = machine,
	        .best = t};
	struct device_options o = {.pool = base->pool};
	int rc;

	*found = (struct fit_found){.bytes = INT64_MAX};
	o.node_ranks = ranks_on_node(c, machine, c->world_size);
	o.speed = device->speed.rates;
	rc = device_open(&s.meta, "meta", &o);
	choices_find(&s);
	if (!rc)
		rc = trial_judge(&s, &t);
	if (!rc)
		rc = chosen_judge(&s);
	found->before_bytes = found->bytes;
	do {
		if (!rc)
			rc = sizes_judge(&s, &t);
	} while (!rc && !s.best_ms && sizes_lower(&t, &s));
	if (!rc && s.best_ms)
		rc = sizes_raise(&s);
	if (!rc && s.best_ms && fit_spends(c, limit_bytes) && trains(c))
		rc = best_spend(&s);
	if (!rc) {
		settings_text(&found->settings, &s);
		rc = str_check(&found->settings);
	}
	device_close(s.meta);
	return rc;
}
