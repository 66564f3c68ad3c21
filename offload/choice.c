#include "offload/choice.h"

#include "offload/simulate.h"

#include "base/err.h"
#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* Units ahead that are tried; as set comes with CHOICE_AHEAD_AS_SET alone. */
static const int aheads[] = {2, 1, 3, 0};
enum { AHEAD_COUNT = sizeof(aheads) / sizeof(*aheads) };

/* Numbers of resident states: each up to 16, then about six for each doubling of them. */
static int ladder_next(int states)
{
	return states < 16 ? states + 1 : states + states / 8;
}

struct chooser {
	struct choice *choice;
	const struct engine_options *base;
	const struct choice_limits *limits;
	struct device *meta;
	int states, units, blocks; /* that may stay whole, as weights, and keep activations; 0: none may */
	double kept_bytes, weight_bytes; /* what one more took last; 0: not known */
	struct engine *engine;           /* of the last candidate that fit */
	struct choice_candidate planned;
};

static void candidate_apply(struct plan_policy *p, const struct choice_candidate *k)
{
	p->resident_states = k->states;
	p->resident_weights = k->weights;
	p->kept_blocks = k->kept;
	if (k->spills)
		p->activations = ACTIVATION_OFFLOAD;
	if (k->ahead == 0) {
		p->forward_prefetch = 0;
		p->backward_prefetch = BACKWARD_PREFETCH_NONE;
	} else if (k->ahead > 0) {
		p->prefetch_units = k->ahead;
	}
}

static struct engine_options candidate_options(const struct chooser *s, const struct choice_candidate *k)
{
	struct engine_options o = *s->base;

	o.device = s->meta;
	o.device_budget_bytes = 0;
	o.check_plans = 0;
	candidate_apply(&o.policy, k);
	return o;
}

static int fits_device(const struct chooser *s, const struct choice_candidate *k)
{
	return !s->limits->device_bytes || k->device_bytes <= s->limits->device_bytes;
}

/* What does not fit the host may do so with more on the device, unless that is host memory as well. */
static int fits(const struct chooser *s, const struct choice_candidate *k)
{
	return fits_device(s, k) && (!s->limits->host_bytes || k->host_bytes <= s->limits->host_bytes);
}

/* Its memory. The engine stays open where it fits, in place of the one before. */
static int candidate_plan(struct chooser *s, struct choice_candidate *k)
{
	struct engine_options o = candidate_options(s, k);
	struct engine *engine;
	struct engine_memory m;
	int rc = engine_open(&engine, &o);

	if (rc)
		return rc;
	s->choice->planned_count++;
	engine_get_memory(engine, &m);
	k->device_bytes = m.device_bytes;
	k->host_bytes = m.store_bytes + m.stage_bytes + (s->limits->device_is_host ? m.device_bytes : 0);
	k->link_bytes = m.h2d_bytes + m.d2h_bytes;
	if (!fits(s, k)) {
		engine_close(engine);
		if (fits_device(s, k) &&
		        (!s->choice->least.device_bytes || k->host_bytes < s->choice->least.host_bytes))
			s->choice->least = *k;
		return 0;
	}
	engine_close(s->engine);
	s->engine = engine;
	s->planned = *k;
	return 0;
}

/* ---- one candidate's step ---- */

static int step_simulate(struct choice_candidate *k, struct engine *engine, const struct engine_options *o)
{
	struct simulated step;
	struct plan_time time;
	int rc = simulate_bound(&step, &time, engine, o);

	if (rc)
		return rc;
	k->step_ms = step.step_ms;
	k->bound_ms = 1e-6 * (double)time.bound_ns;
	k->binds = time.binds;
	return 0;
}

/* Equal to a millionth: the one that crosses less is better where the machine is other than it is taken to
 * be.
 */
static int is_better(const struct choice_candidate *a, const struct choice_candidate *b)
{
	if (a->step_ms < b->step_ms * (1 - 1e-6) || b->step_ms < a->step_ms * (1 - 1e-6))
		return a->step_ms < b->step_ms;
	if (a->link_bytes != b->link_bytes)
		return a->link_bytes < b->link_bytes;
	return a->device_bytes < b->device_bytes;
}

static int candidate_keep(struct choice *f, const struct choice_candidate *k)
{
	if (f->count == f->cap) {
		int cap = f->cap ? 2 * f->cap : 64;
		struct choice_candidate *grown = mem_resize(f->list, (size_t)cap, sizeof(*grown));

		if (!grown)
			return ERR_NOMEM;
		f->list = grown;
		f->cap = cap;
	}
	f->list[f->count++] = *k;
	if (f->best < 0 || is_better(k, &f->list[f->best]))
		f->best = f->count - 1;
	return 0;
}

static int is_planned(const struct chooser *s, const struct choice_candidate *k)
{
	const struct choice_candidate *p = &s->planned;

	return s->engine && p->states == k->states && p->kept == k->kept && p->weights == k->weights &&
	       p->ahead == k->ahead && p->spills == k->spills;
}

/* Of one that fits. */
static int candidate_judge(struct chooser *s, const struct choice_candidate *candidate)
{
	struct choice_candidate k = *candidate;
	struct engine_options o = candidate_options(s, &k);
	int rc = is_planned(s, &k) ? 0 : candidate_plan(s, &k);

	if (!rc && engine_plan(s->engine, PLAN_TRAIN))
		rc = step_simulate(&k, s->engine, &o);
	engine_close(s->engine);
	s->engine = NULL;
	return rc ? rc : candidate_keep(s->choice, &k);
}

/* ---- as much as fits ---- */

/* Bytes that are left beside a candidate; INFINITY without a limit. */
static double room_bytes(const struct chooser *s, const struct choice_candidate *k)
{
	const struct choice_limits *l = s->limits;
	double room = l->device_bytes ? (double)(l->device_bytes - k->device_bytes) : INFINITY;

	if (l->host_bytes && l->device_is_host && (double)(l->host_bytes - k->host_bytes) < room)
		room = (double)(l->host_bytes - k->host_bytes);
	return room;
}

/* The next number to try between what fits and what does not: where the bytes of one more are known, the last
 * that should fit, or the first that should not. */
static int count_guess(const struct chooser *s, const struct choice_candidate *fitting, int low, int high,
        double one_bytes, int tried)
{
	double room = room_bytes(s, fitting);
	double more = one_bytes > 0 && isfinite(room) ? room / one_bytes : tried ? 0 : high - low - 1;

	if (tried >= 5 || (tried && more < 1 && high - low > 2))
		return low + (high - low) / 2;
	return low + (more < 1 ? 1 : more < high - low ? (int)more : high - low - 1);
}

/* Raises *count, a number of *k that fits as it is, to the most that fits. Where one more took what the one
 * before did, to a hundredth, the next takes as much and is not tried. */
static int count_raise(struct chooser *s, struct choice_candidate *k, int *count, int most, double *one_bytes)
{
	struct choice_candidate fitting = *k;
	int low = *count, high = most + 1, rc = 0;

	for (int tried = 0; high - low > 1; tried++) {
		int guess = count_guess(s, &fitting, low, high, *one_bytes, tried);
		double known = *one_bytes;

		*count = guess;
		rc = candidate_plan(s, k);
		if (rc)
			break;
		if (k->device_bytes > fitting.device_bytes)
			*one_bytes = (double)(k->device_bytes - fitting.device_bytes) / (guess - low);
		if (!fits(s, k)) {
			high = guess;
			continue;
		}
		fitting = *k;
		low = guess;
		if (fabs(known - *one_bytes) < 0.01 * known && room_bytes(s, k) < 0.99 * known)
			break;
	}
	*k = fitting;
	return rc;
}

/* With this many states: kept activations, then weights, fill what is left. Where all blocks keep theirs
 * nothing is left to leave. */
static int states_fill(struct chooser *s, struct choice_candidate *k)
{
	int rc = 0;

	if (s->blocks)
		rc = count_raise(s, k, &k->kept, s->blocks, &s->kept_bytes);
	if (!rc && k->spills && k->kept == s->blocks)
		return 0;
	if (!rc && s->units > k->states)
		rc = count_raise(s, k, &k->weights, s->units - k->states, &s->weight_bytes);
	return rc ? rc : candidate_judge(s, k);
}

/* All numbers of states on the ladder, and the most, one way to stream. */
static int streaming_judge(struct chooser *s, const struct choice_candidate *streaming)
{
	int states = 0, fitting = -1, rc = 0;
	struct choice_candidate k;

	for (; states <= s->states && !rc; states = ladder_next(states)) {
		k = *streaming;
		k.states = states;
		rc = candidate_plan(s, &k);
		if (rc || !fits_device(s, &k))
			break;
		fitting = states;
		if (fits(s, &k))
			rc = states_fill(s, &k);
	}
	if (rc || fitting < 0 || fitting == s->states)
		return rc;
	k = *streaming;
	k.states = fitting;
	rc = candidate_plan(s, &k);
	for (int high = states <= s->states ? states : s->states + 1; high - k.states > 1 && !rc;) {
		struct choice_candidate more = k;

		more.states += (high - k.states) / 2;
		rc = candidate_plan(s, &more);
		if (fits_device(s, &more))
			k = more;
		else
			high = more.states;
	}
	return rc || k.states == fitting || !fits(s, &k) ? rc : states_fill(s, &k);
}

/* ---- the choice ---- */

/* How many there are of what may stay. */
static int most_find(struct chooser *s, const struct choice_freedom *freedom)
{
	struct choice_candidate k = {.ahead = CHOICE_AHEAD_AS_SET};
	struct engine_options o = candidate_options(s, &k);
	struct engine *engine;
	int rc = engine_open(&engine, &o);

	if (rc)
		return rc;
	if (freedom->residency && plan_residency_is_open(engine_units(engine), &o.policy))
		s->units = engine_units(engine)->unit_count;
	s->states = o.policy.inference ? 0 : s->units;
	s->blocks = freedom->activations ? (int)o.model->config.L : 0;
	engine_close(engine);
	return 0;
}

int choice_find(struct choice *choice, struct engine_options *o, const struct choice_limits *limits,
        const struct choice_freedom *freedom, const struct device_speed *speed)
{
	struct device_options meta = {.pool = o->pool, .speed = *speed};
	struct chooser s = {.choice = choice, .base = o, .limits = limits};
	int rc;

	*choice = (struct choice){.best = -1};
	rc = device_open(&s.meta, "meta", &meta);
	if (!rc)
		rc = most_find(&s, freedom);
	for (int a = 0; a < (freedom->ahead ? AHEAD_COUNT : 1) && !rc; a++)
		for (int spills = 0; spills <= freedom->activations && !rc; spills++) {
			struct choice_candidate k = {
			        .ahead = freedom->ahead ? aheads[a] : CHOICE_AHEAD_AS_SET, .spills = spills};

			rc = streaming_judge(&s, &k);
		}
	engine_close(s.engine);
	device_close(s.meta);
	if (!rc && choice->best >= 0)
		candidate_apply(&o->policy, &choice->list[choice->best]);
	else if (!rc && choice->least.device_bytes)
		candidate_apply(&o->policy, &choice->least);
	return rc;
}

void choice_free(struct choice *choice)
{
	mem_free(choice->list);
	*choice = (struct choice){.best = -1};
}

/* ---- why ---- */

static int by_step(const void *a, const void *b)
{
	const struct choice_candidate *const *x = a, *const *y = b;

	return is_better(*x, *y) ? -1 : is_better(*y, *x);
}

static void candidate_text(
        struct str *out, const struct choice_candidate *k, const struct unit_map *units, const char *mark)
{
	str_printf(out, "%s ", mark);
	str_printf(out, "%.1f MiB", (double)k->device_bytes / 0x1p20);
	if (k->step_ms > 0)
		str_printf(out, ", %.1f ms (at least %.1f, bound by %s)", k->step_ms, k->bound_ms, k->binds);
	str_printf(out, ": state of %d of %d units, weights of %d, activations of %d of %d blocks", k->states,
	        units->unit_count, k->weights, k->kept, (int)units->model->config.L);
	if (k->spills)
		str_add(out, ", inputs of the others leave");
	if (k->ahead >= 0)
		str_printf(out, ", %d ahead", k->ahead);
	str_add_char(out, '\n');
}

void choice_explain(struct str *out, const struct choice *f, const struct unit_map *units)
{
	enum { SHOWN = 6 };
	const struct choice_candidate **sorted = mem_alloc((size_t)f->count + 1, sizeof(*sorted)),
	                              *shown_ways[2 * (AHEAD_COUNT + 1)];
	int ways = 0;

	for (int i = 0; i < f->count && sorted; i++)
		sorted[i] = &f->list[i];
	if (sorted)
		qsort(sorted, (size_t)f->count, sizeof(*sorted), by_step);
	if (f->count)
		str_printf(out,
		        "the budget: %d plans made, a step of %d that fit simulated; the best, and the best "
		        "of "
		        "each other way to stream\n",
		        f->planned_count, f->count);
	for (int i = 0; i < f->count && sorted; i++) {
		int seen = 0;

		for (int w = 0; w < ways; w++)
			seen |= shown_ways[w]->ahead == sorted[i]->ahead &&
			        shown_ways[w]->spills == sorted[i]->spills;
		if (!seen)
			shown_ways[ways++] = sorted[i];
		if (!seen || i < SHOWN)
			candidate_text(out, sorted[i], units, i ? " " : "*");
	}
	mem_free(sorted);
}
