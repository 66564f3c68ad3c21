/* Plans the best of many estimated candidates with all of their micro-batches. */
#include "placement/choice_whole.h"

#include "placement/choice.h"

#include "base/mem.h"
#include "base/size.h"

#include <stdlib.h>

/* The best candidates are planned whole until their plans have so many operations, but at most so many plans,
 * and none that the estimate puts this far behind the best. */
enum { WHOLE_OPS = 250000, WHOLE_PLANS = 6, ROUNDS = 4 };
static const double whole_behind = 1.01;

/* A budget of which the estimates leave this share unused is searched once more. */
static const double unused_share = 1.0 / 64;

/* Keeps the candidates of `estimates` that fit when planned whole. *missed: bytes by which the best one's
 * estimate was too low; negative: too high. */
static int wholes_judge(struct choice *wholes, int64_t *missed, struct chooser *s,
        const struct choice *estimates, int64_t device_bytes)
{
	int64_t ops = s->listed_ops;
	int rc = 0, planned = 0;

	*missed = 0;
	for (int i = 0; i < estimates->count && !rc; i++) {
		struct choice_candidate k = estimates->list[i];
		double estimated_ms = k.step_ms;
		int64_t estimated_bytes = k.device_bytes;

		if (planned && (planned == WHOLE_PLANS || s->listed_ops - ops > WHOLE_OPS ||
		                       estimated_ms > whole_behind * estimates->list[0].step_ms))
			break;
		rc = candidate_judge_whole(s, &k, device_bytes);
		if (!rc && !planned++)
			*missed = k.device_bytes - estimated_bytes;
		if (!rc && (k.step_ms > 0 || (!estimated_ms && (!device_bytes || k.device_bytes <= device_bytes))))
			rc = choice_keep(wholes, &k);
	}
	return rc;
}

/* What fits the device but not the host is said of the least candidate, so that has to be whole too. */
static int least_judge(struct chooser *s, int64_t *missed, int64_t device_bytes)
{
	struct choice_candidate *least = &s->choice->least;
	int64_t estimated_bytes = least->device_bytes;
	int rc;

	if (!estimated_bytes)
		return 0;
	rc = candidate_judge_whole(s, least, device_bytes);
	*missed = least->device_bytes - estimated_bytes;
	if (device_bytes && least->device_bytes > device_bytes)
		*least = (struct choice_candidate){0};
	return rc;
}

/* One search and its wholes. *missed as above. */
static int round_find(struct choice *wholes, int64_t *missed, struct chooser *s, choice_search_fn *search,
        const void *context, int64_t device_bytes)
{
	int rc;

	s->choice->count = 0;
	s->choice->least = (struct choice_candidate){0};
	rc = search(s, context);
	if (!rc && s->choice->count)
		qsort(s->choice->list, (size_t)s->choice->count, sizeof(*s->choice->list), choice_by_step);
	if (!rc && s->choice->count)
		return wholes_judge(wholes, missed, s, s->choice, device_bytes);
	return rc ? rc : least_judge(s, missed, device_bytes);
}

int choice_whole_find(struct chooser *s, choice_search_fn *search, const void *context)
{
	struct choice wholes = {.best = -1};
	int64_t device_bytes = s->limits->device_bytes, missed = 0;
	int rc = 0;

	for (int round = 0; round < ROUNDS && !rc; round++) {
		int64_t before = s->device_bytes;

		rc = round_find(&wholes, &missed, s, search, context, device_bytes);
		if (rc || !device_bytes)
			break;
		s->device_bytes = device_bytes - missed;
		if (wholes.count || s->choice->least.device_bytes) {
			int64_t more = s->device_bytes - before;

			if (round || more < (int64_t)(unused_share * (double)device_bytes))
				break;
		} else if (s->device_bytes >= before) {
			s->device_bytes = before - (int64_t)(unused_share * (double)device_bytes);
		}
		if (s->device_bytes <= 0)
			break;
	}
	mem_free(s->choice->list);
	s->choice->list = wholes.list;
	s->choice->count = wholes.count;
	s->choice->cap = wholes.cap;
	return rc;
}
