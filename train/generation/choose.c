/* Chooses the next token. */
#include "train/generation/choose.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/num.h"

#include <inttypes.h>
#include <math.h>

enum { RNG_SAMPLE = 3, TEXT_BITS = 40 };

static int64_t likeliest(const float *logits, int64_t vocab)
{
	int64_t best = 0;

	for (int64_t i = 1; i < vocab; i++)
		if (logits[i] > logits[best])
			best = i;
	return best;
}

static int finite_check(const float *logits, int64_t vocab)
{
	for (int64_t k = 0; k < vocab; k++)
		if (!isfinite(logits[k]))
			return err_set(ERR_NONFINITE,
			        "logits are not finite (%g for id %" PRId64
			        "): the weights are damaged or their training diverged",
			        (double)logits[k], k);
	return 0;
}

/* Penalizes each id once, even if the text has it several times, because it reads all logits before it writes
 * any. */
static int penalize(float *logits, int64_t vocab, double penalty, const int32_t *seen, int64_t seen_count)
{
	float *before, by = (float)penalty;

	if (penalty == 1 || !seen_count)
		return 0;
	before = mem_alloc((size_t)seen_count, sizeof(*before));
	if (!before)
		return ERR_NOMEM;
	for (int64_t i = 0; i < seen_count; i++)
		before[i] = seen[i] < vocab ? logits[seen[i]] : 0;
	for (int64_t i = 0; i < seen_count; i++)
		if (seen[i] < vocab)
			logits[seen[i]] = before[i] < 0 ? before[i] * by : before[i] / by;
	mem_free(before);
	return 0;
}

/* ---- a heap with the likeliest first, because few are taken ---- */

static int is_before(const struct choose_candidate *a, const struct choose_candidate *b)
{
	return a->weight != b->weight ? a->weight > b->weight : a->id < b->id;
}

static void sift_down(struct choose_candidate *heap, int64_t at, int64_t count)
{
	struct choose_candidate item = heap[at];

	for (int64_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
		if (child + 1 < count && is_before(&heap[child + 1], &heap[child]))
			child++;
		if (is_before(&item, &heap[child]))
			break;
		heap[at] = heap[child];
		at = child;
	}
	heap[at] = item;
}

/* Moves the likeliest from the heap to list[count - 1], after the heap. */
static void pop(struct choose_candidate *list, int64_t count)
{
	struct choose_candidate top = list[0];

	list[0] = list[count - 1];
	sift_down(list, 0, count - 1);
	list[count - 1] = top;
}

/* Takes the top_k likeliest and equals of the last one from the heap. Returns their number. */
static int64_t take_top_k(struct choose_candidate *list, int64_t vocab, int64_t top_k)
{
	int64_t taken = 0;

	while (taken < vocab && (taken < top_k || list[0].weight == list[vocab - taken].weight)) {
		pop(list, vocab - taken);
		taken++;
	}
	return taken;
}

/* Moves the tokens at the list's end, likeliest last, to its begin, likeliest first. */
static void to_front(struct choose_candidate *list, int64_t vocab, int64_t count)
{
	for (int64_t i = 0; i < count && i < vocab - 1 - i; i++) {
		struct choose_candidate x = list[i];

		list[i] = list[vocab - 1 - i];
		list[vocab - 1 - i] = x;
	}
}

/* Applies top_k, then top_p to the remaining tokens. They become the list's first *count. */
static void cut(struct choose_candidate *list, int64_t *count, int64_t vocab, const struct choose_options *o)
{
	int64_t taken = 0, kept;
	double total = 0, sum = 0;

	if (o->top_k <= 0 && o->top_p >= 1)
		return;
	for (int64_t i = vocab / 2 - 1; i >= 0; i--)
		sift_down(list, i, vocab);
	if (o->top_k > 0)
		taken = take_top_k(list, vocab, o->top_k);
	kept = taken ? taken : vocab;
	for (int64_t i = 0; i < kept; i++)
		total += list[vocab - 1 - i].weight;
	*count = 0;
	while (*count < kept && (o->top_p >= 1 || !*count || sum < o->top_p * total)) {
		if (!taken)
			pop(list, vocab - *count);
		sum += list[vocab - 1 - (*count)++].weight;
	}
	to_front(list, vocab, *count);
}

int choose_candidates(struct choose_candidate *list, int64_t *count, double *total, float *logits,
        int64_t vocab, const struct choose_options *o, const int32_t *seen, int64_t seen_count)
{
	int rc = finite_check(logits, vocab);
	int64_t best, kept = 0;
	double most;

	if (!rc)
		rc = penalize(logits, vocab, o->repetition_penalty, seen, seen_count);
	if (rc)
		return rc;
	best = likeliest(logits, vocab);
	*count = 1;
	*total = 1;
	list[0] = (struct choose_candidate){1, (int32_t)best};
	if (o->temperature == 0)
		return 0;
	most = logits[best];
	for (int64_t i = 0; i < vocab; i++)
		list[i] = (struct choose_candidate){
		        exp(((double)logits[i] - most) / o->temperature), (int32_t)i};
	*count = vocab;
	cut(list, count, vocab, o);
	*total = 0;
	for (int64_t i = 0; i < *count; i++)
		if (list[i].weight >= o->min_p) { /* the likeliest has weight 1 */
			list[kept++] = list[i];
			*total += list[kept - 1].weight;
		}
	*count = kept;
	return 0;
}

int choose_token(int32_t *id, float *logits, int64_t vocab, const struct choose_options *o,
        const int32_t *seen, int64_t seen_count, int64_t text)
{
	struct choose_candidate *list = mem_alloc((size_t)vocab, sizeof(*list));
	int64_t count = 0, i = 0;
	double total = 0, at;
	int rc = list ? choose_candidates(list, &count, &total, logits, vocab, o, seen, seen_count)
	              : ERR_NOMEM;

	if (!rc) {
		at = rng_uniform(o->seed, RNG_SAMPLE, (uint64_t)text << TEXT_BITS | (uint64_t)seen_count);
		at *= total;
		while (i < count - 1 && at >= list[i].weight)
			at -= list[i++].weight;
		*id = list[i].id;
	}
	mem_free(list);
	return rc;
}
