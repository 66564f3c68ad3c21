/* Plans the best of many estimated candidates with all of their micro-batches. */
#include "placement/choice_whole.h"

#include "base/mem.h"
#include "base/size.h"

#include <stdlib.h>

/* The best candidates are planned whole until their plans have so many operations, but at most so many plans,
 * and none that the estimate puts this far behind the best. */
enum { WHOLE_OPS = 250000, WHOLE_PLANS = 4, ROUNDS = 4 };
static const double whole_behind = 1.01;

/* A budget of which the estimates leave this share unused is searched once more. */
static const double unused_share = 1.0 / 512;

struct wholes {
	struct chooser *s;
	struct choice judged;               /* all that were planned whole, so that none is twice */
	struct choice kept;                 /* those that fit */
	struct choice_candidate least;      /* as in struct choice */
	int64_t device_missed, host_missed; /* bytes by which estimates were too low; negative: too high */
};

static int fits(int64_t bytes, int64_t limit_bytes)
{
	return !limit_bytes || bytes <= limit_bytes;
}

static int judged_find(struct wholes *w, struct choice_candidate *k)
{
	int rc;

	for (int i = 0; i < w->judged.count; i++)
		if (candidate_is_same(&w->judged.list[i], k)) {
			*k = w->judged.list[i];
			return 0;
		}
	rc = candidate_judge_whole(w->s, k);
	return rc ? rc : choice_keep(&w->judged, k);
}

/* Plans a candidate whole, and keeps it. */
static int whole_judge(struct wholes *w, const struct choice_candidate *estimate)
{
	const struct choice_limits *l = w->s->limits;
	struct choice_candidate k = *estimate;
	int rc = judged_find(w, &k);

	if (rc)
		return rc;
	w->device_missed = max_i64(w->device_missed, k.device_bytes - estimate->device_bytes);
	w->host_missed = max_i64(w->host_missed, k.host_bytes - estimate->host_bytes);
	if (!fits(k.device_bytes, l->device_bytes))
		return 0;
	if (fits(k.host_bytes, l->host_bytes))
		return choice_keep(&w->kept, &k);
	if (!w->least.device_bytes || k.host_bytes < w->least.host_bytes)
		w->least = k;
	return 0;
}

static int wholes_judge(struct wholes *w, const struct choice *estimates)
{
	int64_t ops = w->s->listed_ops;
	int rc = 0;

	w->device_missed = w->host_missed = INT64_MIN;
	for (int i = 0; i < estimates->count && !rc; i++) {
		const struct choice_candidate *k = &estimates->list[i];

		if (i && (i == WHOLE_PLANS || w->s->listed_ops - ops > WHOLE_OPS ||
		                 k->step_ms > whole_behind * estimates->list[0].step_ms))
			break;
		rc = whole_judge(w, k);
	}
	if (!rc && !estimates->count && estimates->least.device_bytes)
		rc = whole_judge(w, &estimates->least);
	return rc;
}

/* Corrects a limit of estimates by what they missed. */
static void limit_correct(int64_t *now_bytes, int64_t limit_bytes, int64_t missed_bytes)
{
	int64_t bytes = limit_bytes - missed_bytes, less = limit_bytes / 256 + 1;

	if (!limit_bytes || missed_bytes == INT64_MIN)
		return;
	*now_bytes = bytes < *now_bytes ? bytes : max_i64(*now_bytes - less, 1);
}

/* Whether estimates were so high that more would have fit. */
static int leaves_much(const struct wholes *w)
{
	return w->device_missed != INT64_MIN && w->s->limits->device_bytes &&
	       -w->device_missed > (int64_t)(unused_share * (double)w->s->limits->device_bytes);
}

/* Searches once, and plans the best whole. */
static int round_find(struct wholes *w, choice_search_fn *search, const void *context)
{
	struct choice *c = w->s->choice;
	int rc;

	c->count = 0;
	c->least = (struct choice_candidate){0};
	rc = search(w->s, context);
	if (!rc && c->count)
		qsort(c->list, (size_t)c->count, sizeof(*c->list), choice_by_step);
	return rc ? rc : wholes_judge(w, c);
}

/* Whether estimates have no candidate for the host, and the one that needs least of it is beyond its memory
 * as a whole plan too. Then none fits: further rounds only have less memory. */
static int is_hopeless(const struct wholes *w)
{
	return !w->s->choice->count && w->least.device_bytes;
}

int choice_whole_find(struct chooser *s, choice_search_fn *search, const void *context)
{
	struct wholes w = {.s = s};
	int rc = 0;

	for (int round = 0; round < ROUNDS && !rc && !w.kept.count && !is_hopeless(&w); round++) {
		rc = round_find(&w, search, context);
		limit_correct(&s->host_bytes, s->limits->host_bytes, w.host_missed);
		limit_correct(&s->device_bytes, s->limits->device_bytes, w.device_missed);
	}
	if (!rc && leaves_much(&w)) {
		s->device_bytes = s->limits->device_bytes - w.device_missed;
		rc = round_find(&w, search, context);
	}
	mem_free(w.judged.list);
	mem_free(s->choice->list);
	s->choice->list = w.kept.list;
	s->choice->count = w.kept.count;
	s->choice->cap = w.kept.cap;
	s->choice->least = w.least;
	return rc;
}
