/* Chooses the data set of each step. */
#include "data/turns.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/size.h"

#include <string.h>

/* A step of an epoch. */
struct turn {
	int set;
	int64_t step; /* of the set, in this epoch */
};

struct turns {
	struct sampler_steps all; /* for samplers; the first member */
	struct turns_set sets[DATA_SETS_MAX];
	int64_t steps[DATA_SETS_MAX]; /* of each set in an epoch */
	int count;
	enum turns_order order;
	uint64_t seed;
	struct turn *turn; /* [per_epoch] of the epoch that is here */
	int64_t epoch;     /* -1: none */
};

/* Every step once, in the order of a permutation; a set's steps count up. */
static void epoch_draw(struct turns *t, int64_t epoch)
{
	int64_t next[DATA_SETS_MAX] = {0};

	for (int64_t place = 0; place < t->all.per_epoch; place++) {
		int64_t at = permutation_at(
		        t->seed, PERMUTATION_STREAM_TURNS + (uint64_t)epoch, t->all.per_epoch, place);
		int set = 0;

		while (at >= t->steps[set])
			at -= t->steps[set++];
		t->turn[place] = (struct turn){set, next[set]++};
	}
}

static void epoch_list(struct turns *t)
{
	int64_t place = 0;

	if (t->order == TURNS_ROUND_ROBIN)
		for (; place < t->all.per_epoch; place++)
			t->turn[place] = (struct turn){(int)(place % t->count), place / t->count};
	for (int i = 0; i < t->count && t->order == TURNS_FILE; i++)
		for (int64_t step = 0; step < t->steps[i]; step++)
			t->turn[place++] = (struct turn){i, step};
}

static struct turn turn_at(struct turns *t, int64_t epoch, int64_t step)
{
	if (t->epoch != epoch && t->order == TURNS_PROPORTIONAL)
		epoch_draw(t, epoch);
	else if (t->epoch < 0)
		epoch_list(t);
	t->epoch = epoch;
	return t->turn[step];
}

/* ---- for samplers ---- */

/* The set's sampler, and its step. */
static const struct sampler *sampler_of(
        struct turns *t, int64_t epoch, int64_t step, int64_t *own, int64_t *first)
{
	struct turn turn = turn_at(t, epoch, step);
	const struct turns_set *set = &t->sets[turn.set];

	*own = epoch * set->sampler.steps_per_epoch + turn.step;
	*first = set->first;
	return &set->sampler;
}

static int64_t step_rows(struct sampler_steps *s, int64_t epoch, int64_t step)
{
	int64_t own, first;
	const struct sampler *of = sampler_of((struct turns *)s, epoch, step, &own, &first);

	return sampler_step_rows(of, own);
}

static int64_t step_row(struct sampler_steps *s, int64_t epoch, int64_t step, int64_t place)
{
	int64_t own, first;
	const struct sampler *of = sampler_of((struct turns *)s, epoch, step, &own, &first);

	return first + sampler_step_row(of, own, place);
}

static double step_done(struct sampler_steps *s, int64_t epoch, int64_t step)
{
	(void)epoch;
	return (double)step / (double)s->per_epoch;
}

static int step_set(struct sampler_steps *s, int64_t epoch, int64_t step)
{
	return turn_at((struct turns *)s, epoch, step).set;
}

struct sampler_steps *turns_steps(struct turns *t)
{
	return &t->all;
}

/* ---- opening ---- */

int turns_open(
        struct turns **out, const struct turns_set *sets, int count, enum turns_order order, uint64_t seed)
{
	struct turns *t = mem_alloc(1, sizeof(*t));
	int64_t least = INT64_MAX;

	*out = NULL;
	if (!t)
		return ERR_NOMEM;
	*t = (struct turns){.all = {.rows = step_rows, .row = step_row, .done = step_done, .set = step_set},
	        .count = count,
	        .order = order,
	        .seed = seed,
	        .epoch = -1};
	memcpy(t->sets, sets, (size_t)count * sizeof(*sets));
	for (int i = 0; i < count; i++)
		least = min_i64(least, sets[i].sampler.steps_per_epoch);
	for (int i = 0; i < count; i++) {
		t->steps[i] = order == TURNS_ROUND_ROBIN ? least : sets[i].sampler.steps_per_epoch;
		t->all.per_epoch += t->steps[i];
		for (int64_t step = 0; step < t->steps[i]; step++)
			t->all.epoch_rows += sampler_step_rows(&sets[i].sampler, step);
	}
	t->turn = mem_alloc((size_t)t->all.per_epoch, sizeof(*t->turn));
	if (!t->turn) {
		turns_close(t);
		return ERR_NOMEM;
	}
	*out = t;
	return 0;
}

void turns_close(struct turns *t)
{
	if (!t)
		return;
	mem_free(t->turn);
	mem_free(t);
}

enum turns_order turns_order_of(const struct turns *t)
{
	return t->order;
}

int64_t turns_per_epoch(const struct turns *t)
{
	return t->all.per_epoch;
}

const struct turns_set *turns_set(const struct turns *t, int set)
{
	return &t->sets[set];
}

int64_t turns_set_steps(const struct turns *t, int set)
{
	return t->steps[set];
}
