/* Tries activations that are kept in part, or in host memory. */
#include "placement/choice_hosted.h"

#include "base/mem.h"
#include "base/size.h"
#include "model/blocks/blocks.h"
#include "placement/choice_bound.h"
#include "placement/choice_whole.h"

#include <math.h>

enum { TRIALS = 60, AHEAD_MOST = 3 };

struct hoster {
	struct chooser *s;
	int trials;
	struct choice_candidate tried[TRIALS];
	double pin_bytes; /* a second; 0: what is pinned does not count */
	/* Bytes of activations of all blocks; of a level that keeps no more than the one before: 0. */
	double level_bytes[ACTS_LEVELS];
};

static int is_over(const struct hoster *h)
{
	return h->trials >= TRIALS;
}

/* Whether the candidate may fit and be shorter, by bounds: it takes no less memory on the GPU than without
 * hosted activations or parts of them, and no less time than if all stayed there. */
static int may_be_better(
        const struct hoster *h, const struct choice_candidate *best, struct choice_candidate k)
{
	const struct choice_bound *bound = NULL;
	struct choice_candidate least = k;

	for (int i = 0; i < h->s->way_count; i++)
		if (h->s->ways[i].ahead == k.ahead && h->s->ways[i].spills == k.spills)
			bound = h->s->ways[i].bound;
	least.kept = k.kept_level ? 0 : k.kept;
	if (!choice_bound_fits(bound, &least, h->s->device_bytes))
		return 0;
	k.kept += k.hosted;
	return choice_bound_ms(bound, &k) < best->step_ms;
}

/* Whether the same was tried. Levels of no blocks are the same. */
static int was_tried(const struct hoster *h, struct choice_candidate *k)
{
	k->kept_level = k->kept ? k->kept_level : ACTS_ALL;
	k->hosted_level = k->hosted ? k->hosted_level : ACTS_ALL;
	for (int i = 0; i < h->trials; i++)
		if (candidate_is_same(&h->tried[i], k))
			return 1;
	return 0;
}

/* The time that a share of pinning at the start of a run adds to a step. */
static double pin_ms(const struct choice_candidate *k, double pin_bytes)
{
	return pin_bytes > 0 ? 1e3 * (double)k->host_bytes / pin_bytes / CHOICE_HOSTED_STEPS : 0;
}

static int is_better(
        const struct hoster *h, const struct choice_candidate *k, const struct choice_candidate *than)
{
	return k->step_ms > 0 &&
	       k->step_ms + pin_ms(k, h->pin_bytes) < than->step_ms + pin_ms(than, h->pin_bytes);
}

/* Takes *k in place of *best if it fits and is better. */
static int try_better(struct hoster *h, struct choice_candidate *best, struct choice_candidate k)
{
	int rc;

	if (is_over(h) || was_tried(h, &k) || !may_be_better(h, best, k))
		return 0;
	h->tried[h->trials++] = k;
	rc = candidate_judge(h->s, &k);
	if (!rc && is_better(h, &k, best))
		*best = k;
	return rc;
}

/* Other ways to stream: fewer or more units fetched ahead, where that is free, and block inputs on the GPU or
 * in host memory. */
static int way_change(struct hoster *h, struct choice_candidate *best)
{
	int rc = 0, most = best->ahead == CHOICE_AHEAD_AS_SET ? 0 : AHEAD_MOST;

	for (int i = 0; i < 2 * (most + 1) && !rc; i++) {
		struct choice_candidate k = *best;

		k.ahead = most ? i / 2 : k.ahead;
		k.spills = i % 2;
		if (k.ahead != best->ahead || k.spills != best->spills)
			rc = try_better(h, best, k);
	}
	return rc;
}

/* Moves each number up and down by a part of its range, and again while steps get shorter. */
static int climb(struct hoster *h, struct choice_candidate *best, int divisor, int least_hosted)
{
	double before = best->step_ms + 1;
	int rc = 0;

	while (!rc && best->step_ms < before && !is_over(h)) {
		const int most[] = {h->s->blocks, h->s->states, h->s->blocks, h->s->units};
		int number;

		before = best->step_ms;
		for (int i = 0; i < 8 && !rc; i++) {
			struct choice_candidate k = *best;
			int *const of[] = {&k.hosted, &k.states, &k.kept, &k.weights};
			int by = (int)max_i64(most[i / 2] / divisor, 1);

			number = *of[i / 2] + (i % 2 ? -by : by);
			number = (int)min_i64(max_i64(number, i / 2 ? 0 : least_hosted), most[i / 2]);
			if (number == *of[i / 2])
				continue;
			*of[i / 2] = number;
			k.hosted = (int)min_i64(k.hosted, h->s->blocks - k.kept);
			k.weights = (int)min_i64(k.weights, h->s->units - k.states);
			if (k.hosted >= least_hosted)
				rc = try_better(h, best, k);
		}
	}
	return rc;
}

/* Begins with a share of the blocks that the choice's best candidate computes again in host memory, with its
 * block inputs in either memory, and with less and less of the rest on the GPU. */
static int share_try(
        struct hoster *h, struct choice_candidate *best, const struct choice_candidate *from, int shift)
{
	int rc = 0;

	for (int less = 0; less < 8 && !rc; less++) {
		struct choice_candidate k = *from;

		k.spills = less % 2 ? !k.spills : k.spills;
		k.kept = less / 2 >= 2 ? 0 : (int)max_i64(k.kept - less / 2 * 2, 0);
		k.weights = less / 2 ? 0 : k.weights;
		k.states = less / 2 == 3 ? k.states * 3 / 4 : k.states;
		k.hosted = (h->s->blocks - k.kept) >> shift;
		if (k.hosted > 0)
			rc = try_better(h, best, k);
	}
	return rc;
}

/* All, or where none of that fits a quarter, or a sixteenth. */
static int begin(struct hoster *h, struct choice_candidate *best, const struct choice_candidate *from)
{
	int rc = 0;

	for (int shift = 0; shift <= 4 && !rc && !best->hosted; shift += 2)
		rc = share_try(h, best, from, shift);
	return rc;
}

/* Keeps the shortest step with hosted activations, beginning at the candidate without. */
static int search(struct chooser *s, const void *from)
{
	struct choice_candidate best = {.step_ms = INFINITY};
	struct hoster h = {.s = s};
	int rc = begin(&h, &best, from);

	if (!rc && best.hosted)
		rc = way_change(&h, &best);
	for (int divisor = 4; divisor <= 64 && !rc && best.hosted; divisor *= 2)
		rc = climb(&h, &best, divisor, 1);
	return rc || !best.hosted ? rc : choice_keep(s->choice, &best);
}

/* ---- levels ---- */

/* Finds what levels keep of all blocks. */
static void levels_find(struct hoster *h)
{
	const struct engine_options *o = h->s->base;
	const struct model *model = o->model;
	double before = 0;

	for (int g = 0; g < model->group_count; g++)
		h->level_bytes[ACTS_ALL] +=
		        (double)model_acts_bytes(model, g, o->policy.compute_dtype, o->train.max_tokens);
	for (int level = ACTS_ALL + 1; level < ACTS_LEVELS; level++) {
		double bytes = 0;

		for (int g = 0; g < model->group_count; g++)
			bytes += (double)model_kept_bytes(model, g, (enum acts_level)level,
			        o->policy.compute_dtype, o->train.max_tokens);
		h->level_bytes[level] = bytes > before ? bytes : 0;
		before = bytes;
	}
}

/* Blocks whose activations of a level take the bytes of `count` blocks of another. */
static int count_of_level(const struct hoster *h, int count, enum acts_level from, enum acts_level to)
{
	return (int)min_i64((int64_t)(count * h->level_bytes[from] / h->level_bytes[to]), h->s->blocks);
}

/* Other levels of what is kept or hosted, with as many blocks as take the same bytes, and with all. */
static int levels_change(struct hoster *h, struct choice_candidate *best)
{
	int rc = 0;

	for (int i = 0; i < 4 * ACTS_LEVELS && !rc; i++) {
		struct choice_candidate k = *best;
		int is_hosted = i / 2 % 2, is_all = i % 2;
		enum acts_level *level = is_hosted ? &k.hosted_level : &k.kept_level,
		                to = (enum acts_level)(i / 4);
		int *count = is_hosted ? &k.hosted : &k.kept, others = is_hosted ? k.kept : k.hosted;

		if (to == *level || h->level_bytes[to] <= 0 || (!*count && !is_all))
			continue;
		if (!is_all)
			*count = count_of_level(h, *count, *level, to);
		if (is_all || *count > h->s->blocks - others)
			*count = h->s->blocks - others;
		*level = to;
		rc = try_better(h, best, k);
	}
	return rc;
}

/* Begins with a level of all blocks that the candidate computes again in host memory, if need be with less of
 * the rest on the GPU; or with the level of as many blocks on the GPU as take the bytes of those that keep
 * all, or of all blocks. */
static int level_try(struct hoster *h, struct choice_candidate *best, const struct choice_candidate *from,
        enum acts_level level)
{
	int rc = 0;

	for (int less = 0; less < 4 && !rc; less++) {
		struct choice_candidate k = *from, kept;

		k.kept = less >= 2 ? 0 : (int)max_i64(k.kept - 2 * less, 0);
		k.weights = less ? 0 : k.weights;
		k.states = less == 3 ? k.states * 3 / 4 : k.states;
		kept = k;
		k.hosted = h->s->blocks - k.kept;
		k.hosted_level = level;
		rc = try_better(h, best, k);
		kept.kept = less ? h->s->blocks : count_of_level(h, k.kept, ACTS_ALL, level);
		kept.kept_level = level;
		if (!rc && kept.kept > 0)
			rc = try_better(h, best, kept);
	}
	return rc;
}

static int improve(struct hoster *h, struct choice_candidate *best)
{
	int rc = best->step_ms < INFINITY ? way_change(h, best) : 0;

	for (int divisor = 4; divisor <= 64 && !rc && best->step_ms < INFINITY; divisor *= 2) {
		rc = climb(h, best, divisor, 0);
		if (!rc && divisor <= 16)
			rc = levels_change(h, best);
	}
	return rc;
}

/* Where levels begin: the best candidate without hosted activations, and the best of all. What is near to one
 * need not be near to the other. */
struct level_from {
	struct choice_candidate plain, best;
	double pin_bytes;
};

/* Keeps the shortest step with levels. */
static int levels_search(struct chooser *s, const void *context)
{
	const struct level_from *from = context;
	struct choice_candidate other = {.step_ms = INFINITY}, best = from->best;
	struct hoster h = {.s = s, .pin_bytes = from->pin_bytes};
	int rc;

	levels_find(&h);
	rc = candidate_judge(s, &best);
	best.step_ms = best.step_ms > 0 ? best.step_ms : INFINITY;
	for (int level = ACTS_ALL + 1; level < ACTS_LEVELS && !rc; level++)
		if (h.level_bytes[level] > 0)
			rc = level_try(&h, &other, &from->plain, (enum acts_level)level);
	if (!rc)
		rc = improve(&h, &other);
	if (!rc)
		rc = improve(&h, &best);
	if (is_better(&h, &other, &best))
		best = other;
	return rc || !best.step_ms || !(best.step_ms < INFINITY) ? rc : choice_keep(s->choice, &best);
}

/* ---- the choice ---- */

/* Whether a step is shorter by more than a simulation is worth, and by so much that the memory is pinned
 * within the time that some steps save. */
static int is_worth(const struct choice_candidate *hosted, const struct choice_candidate *best,
        double least_gain, double pin_bytes)
{
	double gain_ms = best->step_ms - hosted->step_ms;

	return gain_ms >= least_gain * best->step_ms &&
	       pin_ms(hosted, pin_bytes) - pin_ms(best, pin_bytes) <= gain_ms;
}

/* A search for a better candidate than the best one. */
struct hosted_search {
	choice_search_fn *find;
	const void *context;
	double least_gain;
	int is_estimate;
};

static int search_take(struct chooser *s, const struct hosted_search *search, double pin_bytes)
{
	struct choice *choice = s->choice, hosted = {.best = -1};
	const struct choice_candidate *best = &choice->list[choice->best];
	int rc;

	s->choice = &hosted;
	rc = chooser_estimates(s) && !search->is_estimate
	             ? choice_whole_find(s, search->find, search->context)
	             : search->find(s, search->context);
	s->choice = choice;
	choice->planned_count += hosted.planned_count;
	choice_best_find(&hosted);
	if (!rc && hosted.best >= 0 &&
	        is_worth(&hosted.list[hosted.best], best, search->least_gain, pin_bytes)) {
		rc = choice_keep(choice, &hosted.list[hosted.best]);
		choice->best = rc ? choice->best : choice->count - 1;
	}
	mem_free(hosted.list);
	return rc;
}

int choice_host(struct chooser *s, int is_estimate, double pin_bytes)
{
	const struct choice_limits *l = s->limits;
	const struct choice *choice = s->choice;
	struct level_from from;
	int rc;

	if (choice->best < 0 || l->device_is_host || !l->device_bytes || s->base->policy.inference ||
	        !s->base->train.max_tokens || choice->list[choice->best].step_ms <= 0 ||
	        choice->list[choice->best].kept >= s->blocks)
		return 0;
	from.plain = choice->list[choice->best];
	rc = search_take(
	        s, &(struct hosted_search){search, &from.plain, CHOICE_HOSTED_GAIN, is_estimate}, pin_bytes);
	from.best = choice->list[choice->best];
	from.pin_bytes = pin_bytes;
	return rc ? rc
	          : search_take(s,
	                    &(struct hosted_search){levels_search, &from, CHOICE_LEVELS_GAIN, is_estimate},
	                    pin_bytes);
}
