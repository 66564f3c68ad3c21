/* Searches the fastest way to spend a budget. */
#include "placement/choice.h"

#include "placement/choice_candidate.h"

#include "base/err.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

int choice_by_step(const void *a, const void *b)
{
	const struct choice_candidate *x = a, *y = b;

	return x->step_ms != y->step_ms ? (x->step_ms > y->step_ms) - (x->step_ms < y->step_ms)
	                                : (x->link_bytes > y->link_bytes) - (x->link_bytes < y->link_bytes);
}

/* Prefetch distances to try. CHOICE_AHEAD_AS_SET is tried only alone. */
static const int aheads[] = {2, 1, 3, 0};
enum { AHEAD_COUNT = sizeof(aheads) / sizeof(*aheads) };
_Static_assert(
        2 * AHEAD_COUNT <= CHOICE_WAYS, "each prefetch distance with and without inputs in host memory");

/* The numbers of resident states to try: each up to 16, then about six for each doubling, and all. Three
 * units ahead is rarely best, so it gets one number for each doubling. Without prefetch only 0 is tried,
 * because only the smallest budgets call for it. */
static int ladder_next(int states, int most, int ahead)
{
	int next = states < 16 ? states + 1 : states + states / 8;

	if (!ahead)
		return most + 1;
	if (ahead > 2 && states)
		next = 2 * states;
	return states < most && next > most ? most : next;
}

/* Numbers of states that differ by less than this share of the budget are not worth a plan each: those of
 * adapters are small. */
static const double rung_share = 1.0 / 128;

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
	return 0;
}

/* Finds the shortest step. Among steps equal to a millionth it takes the one with the least traffic, which is
 * better if the real machine differs from the simulated one. */
static void best_find(struct choice *f)
{
	double least_ms = INFINITY;

	for (int i = 0; i < f->count; i++)
		least_ms = fmin(least_ms, f->list[i].step_ms);
	for (int i = 0; i < f->count; i++) {
		const struct choice_candidate *k = &f->list[i],
		                              *best = f->best < 0 ? NULL : &f->list[f->best];

		if (k->step_ms > least_ms * (1 + 1e-6))
			continue;
		if (!best || k->link_bytes < best->link_bytes ||
		        (k->link_bytes == best->link_bytes && k->device_bytes < best->device_bytes))
			f->best = i;
	}
}

/* ---- as much as fits ---- */

/* Bytes that a candidate leaves free; INFINITY without a limit. */
static double room_bytes(const struct chooser *s, const struct choice_candidate *k)
{
	const struct choice_limits *l = s->limits;
	double room = s->device_bytes ? (double)(s->device_bytes - k->device_bytes) : INFINITY;

	if (l->host_bytes && l->device_is_host && (double)(l->host_bytes - k->host_bytes) < room)
		room = (double)(l->host_bytes - k->host_bytes);
	return room;
}

/* The next number to try, between one that fits (low) and one that does not (high). If the bytes of one more
 * are known, it is the last number that should fit, or the first that should not. */
static int count_guess(const struct chooser *s, const struct choice_candidate *fitting, int low, int high,
        double one_bytes, int tried)
{
	double room = room_bytes(s, fitting);
	double more = one_bytes > 0 && isfinite(room) ? room / one_bytes : tried ? 0 : high - low - 1;

	if (tried >= 5 || (tried && more < 1 && high - low > 2))
		return low + (high - low) / 2;
	return low + (more < 1 ? 1 : more < high - low ? (int)more : high - low - 1);
}

/* Raises *count, a number in *k that fits now, to the largest that fits. It does not try the next number if
 * one more takes what it takes alone, to a hundredth. The result depends only on the limit, not on earlier
 * plans, so that every budget finds the same numbers. */
static int count_raise(struct chooser *s, struct choice_candidate *k, int *count, int most, double one_bytes)
{
	struct choice_candidate fitting = *k;
	int low = *count, high = most + 1, rc = 0;

	for (int tried = 0; high - low > 1; tried++) {
		int guess = count_guess(s, &fitting, low, high, one_bytes, tried);
		double known_bytes = one_bytes;

		*count = guess;
		rc = candidate_plan(s, k);
		if (rc)
			break;
		if (k->device_bytes > fitting.device_bytes)
			one_bytes = (double)(k->device_bytes - fitting.device_bytes) / (guess - low);
		if (!candidate_fits(s, k)) {
			high = guess;
			continue;
		}
		fitting = *k;
		low = guess;
		if (fabs(known_bytes - one_bytes) < 0.01 * known_bytes &&
		        room_bytes(s, k) < 0.99 * known_bytes)
			break;
	}
	*k = fitting;
	return rc;
}

static const struct way *way_of(const struct chooser *s, const struct choice_candidate *k)
{
	const struct way *way = s->ways;

	while (way->ahead != k->ahead || way->spills != k->spills)
		way++;
	return way;
}

/* Remembers the candidate with the least host memory among those that fit the device. */
static void least_keep(struct choice *f, const struct chooser *s, const struct choice_candidate *k)
{
	if (candidate_fits_device(s, k) && (!f->least.device_bytes || k->host_bytes < f->least.host_bytes))
		f->least = *k;
}

/* With this many states, fills the rest of the budget with kept activations, then with weights, and simulates
 * the step. With k->spills at least one block does not keep its activations. *is_fitting is 0 if not even the
 * states fit. */
static int states_fill(struct chooser *s, struct choice_candidate *k, int *is_fitting)
{
	int rc = candidate_plan(s, k);

	*is_fitting = !rc && candidate_fits(s, k);
	if (!rc && !*is_fitting)
		least_keep(s->choice, s, k);
	if (!*is_fitting)
		return rc;
	if (s->blocks)
		rc = count_raise(s, k, &k->kept, s->blocks - k->spills, way_of(s, k)->kept_bytes);
	if (!rc && s->units > k->states)
		rc = count_raise(s, k, &k->weights, s->units - k->states, way_of(s, k)->weight_bytes);
	return rc ? rc : candidate_judge(s, k);
}

/* ---- candidates of smaller budgets ---- */

/* A lower bound for all steps with fewer kept blocks than *k: the bound with all weights resident. */
static int kept_bound(double *bound_ms, struct chooser *s, const struct choice_candidate *k)
{
	struct choice_candidate all = *k;
	int rc;

	all.kept--;
	all.weights = s->units - k->states;
	rc = candidate_bound(s, &all);
	*bound_ms = all.bound_ms;
	return rc;
}

/* Keeps the activations of one block fewer, and as many weights as fit into the memory of *k without
 * weights. */
static int kept_lower(struct chooser *s, struct choice_candidate *k)
{
	int64_t device_bytes = s->device_bytes;
	int rc;

	k->weights = 0;
	rc = candidate_plan(s, k);
	s->device_bytes = k->device_bytes;
	k->kept--;
	if (!rc)
		rc = candidate_plan(s, k);
	if (s->device_bytes < k->device_bytes)
		s->device_bytes = k->device_bytes;
	if (!rc && s->units > k->states)
		rc = count_raise(s, k, &k->weights, s->units - k->states, way_of(s, k)->weight_bytes);
	if (!rc)
		rc = candidate_judge(s, k);
	s->device_bytes = device_bytes;
	return rc;
}

/* Goes from the candidate that fills the budget down through the candidates of smaller budgets with the same
 * number of states. It ends if no candidate below can beat the best. Fewer resident weights raise the bound.
 * So do fewer kept blocks, except for the weights that then have room. */
static int fillings_walk(struct chooser *s, const struct choice_candidate *most, double *best_ms)
{
	struct choice_candidate k = *most;
	double bound_ms = k.bound_ms;
	int rc = 0;

	while (!rc && bound_ms < *best_ms && s->choice->planned_count < s->most_plans) {
		if (k.step_ms > 0) {
			rc = candidate_keep(s->choice, &k);
			*best_ms = fmin(*best_ms, k.step_ms);
		}
		if (!rc && k.weights && k.bound_ms < *best_ms) {
			k.weights--;
			rc = candidate_judge(s, &k);
		} else if (!rc && k.kept) {
			rc = kept_bound(&bound_ms, s, &k);
			if (!rc && bound_ms < *best_ms)
				rc = kept_lower(s, &k);
		} else {
			break;
		}
	}
	return rc;
}

/* ---- the choice ---- */

/* Finds the upper bounds of states, weights and kept blocks. */
static int most_find(struct chooser *s, const struct choice_freedom *freedom)
{
	const struct engine_options *o = s->base;
	int rc = engine_units_open(&s->map, o);

	if (rc)
		return rc;
	if (freedom->residency && plan_residency_is_open(&o->policy))
		s->units = s->map->unit_count;
	s->states = o->policy.inference ? 0 : s->units;
	s->blocks = freedom->activations ? o->model->block_group_count : 0;
	return 0;
}

/* The bytes of one more: the average over `most`. */
static int one_find(double *one_bytes, struct chooser *s, const struct choice_candidate *without, int most,
        struct choice_candidate with)
{
	int rc = most ? candidate_plan(s, &with) : 0;

	*one_bytes = most && !rc ? (double)(with.device_bytes - without->device_bytes) / most : 0;
	return rc;
}

static int way_find(struct chooser *s, int ahead, int spills)
{
	struct choice_candidate k = {.ahead = ahead, .spills = spills}, more = k;
	struct way *way = &s->ways[s->way_count++];
	int rc = candidate_plan(s, &k);

	*way = (struct way){.ahead = ahead, .spills = spills};
	more.kept = s->blocks;
	if (!rc)
		rc = one_find(&way->kept_bytes, s, &k, s->blocks, more);
	more = k;
	more.weights = s->units;
	if (!rc)
		rc = one_find(&way->weight_bytes, s, &k, s->units, more);
	more = k;
	more.states = s->states;
	return rc ? rc : one_find(&way->state_bytes, s, &k, s->states, more);
}

/* Finds the ways to stream, and their first guesses. */
static int ways_find(struct chooser *s, const struct choice_freedom *freedom)
{
	int rc = 0;

	for (int a = 0; a < (freedom->ahead ? AHEAD_COUNT : 1) && !rc; a++)
		for (int spills = 0; spills <= freedom->activations && !rc; spills++)
			rc = way_find(s, freedom->ahead ? aheads[a] : CHOICE_AHEAD_AS_SET, spills);
	return rc;
}

static int states_next(const struct chooser *s, const struct way *way, int states)
{
	double step_bytes = rung_share * (double)s->device_bytes;
	int next = ladder_next(states, s->states, way->ahead);

	while (next < s->states && (next - states) * way->state_bytes < step_bytes)
		next = ladder_next(next, s->states, way->ahead);
	return next;
}

/* Fills the budget with each number of states, for one way to stream. */
static int way_judge(struct chooser *s, struct choice *filled, const struct way *way)
{
	int is_fitting = 1, rc = 0;

	for (int states = 0; states <= s->states && !rc; states = states_next(s, way, states)) {
		struct choice_candidate k = {.ahead = way->ahead, .spills = way->spills, .states = states};

		rc = states_fill(s, &k, &is_fitting);
		if (!rc && is_fitting)
			rc = candidate_keep(filled, &k);
		if (!rc && !k.kept && !is_fitting && !candidate_fits_device(s, &k))
			break;
	}
	return rc;
}

static struct choice_candidate all_on_device(const struct chooser *s)
{
	return (struct choice_candidate){
	        .ahead = CHOICE_AHEAD_AS_SET, .states = s->states, .kept = s->blocks};
}

/* The candidate with everything on the device. */
static int all_judge(struct chooser *s, double *best_ms)
{
	struct choice_candidate k = all_on_device(s);
	int rc;

	s->device_bytes = s->limits->device_bytes;
	rc = candidate_plan(s, &k);
	if (!rc && !candidate_fits(s, &k))
		least_keep(s->choice, s, &k);
	if (rc || !candidate_fits(s, &k))
		return rc;
	rc = candidate_judge(s, &k);
	*best_ms = k.step_ms;
	return rc ? rc : candidate_keep(s->choice, &k);
}

static int ways_judge(struct chooser *s, const struct choice_freedom *freedom)
{
	struct choice filled = {0};
	int rc = ways_find(s, freedom),
	    counts_all = !s->base->policy.inference && s->limits->device_bytes > 0,
	    walks = counts_all && freedom->smaller;
	double best_ms = INFINITY;

	for (int i = 0; i < s->way_count && !rc; i++)
		rc = way_judge(s, &filled, &s->ways[i]);
	s->most_plans = 2 * s->choice->planned_count + 200;
	if (filled.count)
		qsort(filled.list, (size_t)filled.count, sizeof(*filled.list), choice_by_step);
	if (!rc && counts_all)
		rc = all_judge(s, &best_ms);
	for (int i = 0; i < filled.count && !rc; i++)
		rc = walks && s->choice->planned_count < s->most_plans
		             ? fillings_walk(s, &filled.list[i], &best_ms)
		             : candidate_keep(s->choice, &filled.list[i]);
	mem_free(filled.list);
	return rc;
}

int choice_find(struct choice *choice, struct engine_options *o, const struct choice_limits *limits,
        const struct choice_freedom *freedom, const struct device_speed *speed)
{
	struct device_options meta = {.pool = o->pool, .speed = *speed, .remembers = 1};
	struct chooser s = {.choice = choice, .base = o, .limits = limits};
	int rc;

	*choice = (struct choice){.best = -1};
	rc = device_open(&s.meta, "meta", &meta);
	if (!rc)
		rc = most_find(&s, freedom);
	s.device_bytes = limits->device_bytes;
	if (!rc)
		rc = ways_judge(&s, freedom);
	best_find(choice);
	chooser_close(&s);
	if (!rc && choice->best >= 0)
		candidate_apply(&o->policy, &choice->list[choice->best]);
	else if (!rc && choice->least.device_bytes)
		candidate_apply(&o->policy, &choice->least);
	return rc;
}

static int least_lower(struct choice_candidate *least, struct chooser *s, struct choice_candidate k)
{
	int rc = candidate_plan(s, &k);

	if (!rc && k.device_bytes < least->device_bytes)
		*least = k;
	return rc;
}

int choice_find_least(int64_t *least_bytes, struct engine_options *o, const struct choice_freedom *freedom)
{
	struct choice_candidate least = {.device_bytes = INT64_MAX, .ahead = CHOICE_AHEAD_AS_SET};
	struct device_options meta = {.pool = o->pool};
	struct choice_limits none = {0};
	struct choice choice = {0};
	struct chooser s = {.choice = &choice, .base = o, .limits = &none};
	int rc = device_open(&s.meta, "meta", &meta);

	if (!rc)
		rc = most_find(&s, freedom);
	for (int a = 0; a < (freedom->ahead ? AHEAD_COUNT : 1) && !rc; a++)
		for (int spills = 0; spills <= freedom->activations && !rc; spills++)
			rc = least_lower(&least, &s,
			        (struct choice_candidate){
			                .ahead = freedom->ahead ? aheads[a] : CHOICE_AHEAD_AS_SET,
			                .spills = spills});
	if (!rc && !o->policy.inference)
		rc = least_lower(&least, &s, all_on_device(&s));
	*least_bytes = least.device_bytes;
	chooser_close(&s);
	if (!rc)
		candidate_apply(&o->policy, &least);
	return rc;
}

void choice_free(struct choice *choice)
{
	mem_free(choice->list);
	*choice = (struct choice){.best = -1};
}
