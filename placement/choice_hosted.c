/* Tries activations in host memory. */
#include "placement/choice_hosted.h"

#include "base/mem.h"
#include "base/size.h"
#include "placement/choice_bound.h"
#include "placement/choice_whole.h"

#include <math.h>

enum { TRIALS = 60, AHEAD_MOST = 3 };

struct hoster {
	struct chooser *s;
	int trials;
};

static int is_over(const struct hoster *h)
{
	return h->trials >= TRIALS;
}

/* Whether the candidate may fit and be shorter, by bounds: it takes no less memory on the GPU than without
 * hosted activations, and no less time than if they stayed there. */
static int may_be_better(
        const struct hoster *h, const struct choice_candidate *best, struct choice_candidate k)
{
	const struct choice_bound *bound = NULL;

	for (int i = 0; i < h->s->way_count; i++)
		if (h->s->ways[i].ahead == k.ahead && h->s->ways[i].spills == k.spills)
			bound = h->s->ways[i].bound;
	if (!choice_bound_fits(bound, &k, h->s->device_bytes))
		return 0;
	k.kept += k.hosted;
	return choice_bound_ms(bound, &k) < best->step_ms;
}

/* Takes *k in place of *best if it fits and is shorter. */
static int try_better(struct hoster *h, struct choice_candidate *best, struct choice_candidate k)
{
	int rc;

	if (is_over(h) || !may_be_better(h, best, k))
		return 0;
	h->trials++;
	rc = candidate_judge(h->s, &k);
	if (!rc && k.step_ms > 0 && k.step_ms < best->step_ms)
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
static int climb(struct hoster *h, struct choice_candidate *best, int divisor)
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
			number = (int)min_i64(max_i64(number, i / 2 == 0), most[i / 2]);
			if (number == *of[i / 2])
				continue;
			*of[i / 2] = number;
			k.hosted = (int)min_i64(k.hosted, h->s->blocks - k.kept);
			k.weights = (int)min_i64(k.weights, h->s->units - k.states);
			if (k.hosted > 0)
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
		rc = climb(&h, &best, divisor);
	return rc || !best.hosted ? rc : choice_keep(s->choice, &best);
}

/* Whether a step is shorter by more than a simulation is worth, and by so much that the memory is pinned
 * within the time that some steps save. */
static int is_worth(
        const struct choice_candidate *hosted, const struct choice_candidate *best, double pin_bytes)
{
	double gain_ms = best->step_ms - hosted->step_ms;
	double pin_ms = pin_bytes > 0 ? 1e3 * (double)(hosted->host_bytes - best->host_bytes) / pin_bytes : 0;

	return gain_ms >= CHOICE_HOSTED_GAIN * best->step_ms && pin_ms <= CHOICE_HOSTED_STEPS * gain_ms;
}

int choice_host(struct chooser *s, int is_estimate, double pin_bytes)
{
	const struct choice_limits *l = s->limits;
	struct choice *choice = s->choice, hosted = {.best = -1};
	const struct choice_candidate *best = choice->best < 0 ? NULL : &choice->list[choice->best];
	int rc;

	if (!best || l->device_is_host || !l->device_bytes || s->base->policy.inference ||
	        !s->base->train.max_tokens || best->step_ms <= 0 || best->kept >= s->blocks)
		return 0;
	s->choice = &hosted;
	rc = chooser_estimates(s) && !is_estimate ? choice_whole_find(s, search, best) : search(s, best);
	s->choice = choice;
	choice->planned_count += hosted.planned_count;
	choice_best_find(&hosted);
	if (!rc && hosted.best >= 0 && is_worth(&hosted.list[hosted.best], best, pin_bytes)) {
		rc = choice_keep(choice, &hosted.list[hosted.best]);
		choice->best = rc ? choice->best : choice->count - 1;
	}
	mem_free(hosted.list);
	return rc;
}
