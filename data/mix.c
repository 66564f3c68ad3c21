/* Mixes data sets by weights. */
#include "data/mix.h"

#include <inttypes.h>
#include <math.h>

#include "base/err.h"
#include "data/permutation.h"

/* The set that ends an epoch: depending on `end`, the first or the last to be used up. */
static int limiting_set(const struct mix *m)
{
	int limit = 0;

	for (int i = 1; i < m->set_count; i++) {
		const struct mix_set *a = &m->sets[i], *b = &m->sets[limit];
		double epochs = (double)a->row_count / a->weight, least = (double)b->row_count / b->weight;

		if (m->end == MIX_FIRST_EXHAUSTED ? epochs < least : epochs > least)
			limit = i;
	}
	return limit;
}

int mix_make(struct mix *m, int *bad)
{
	int limit;

	m->epoch_rows = 0;
	for (*bad = 0; *bad < m->set_count; ++*bad)
		if (m->sets[*bad].row_count < 1)
			return err_set(ERR_INPUT, "it has no rows to mix");
	limit = limiting_set(m);
	for (*bad = 0; *bad < m->set_count; ++*bad) {
		struct mix_set *set = &m->sets[*bad];
		double rows = (double)m->sets[limit].row_count * set->weight / m->sets[limit].weight;

		if (!(rows < 9007199254740992.0 / DATA_SETS_MAX))
			return err_set(ERR_INPUT,
			        "its weight gives it more than 2^47 rows in an epoch; choose "
			        "weights closer to each other");
		set->draws = *bad == limit ? set->row_count : (int64_t)round(rows);
		if (set->draws < 1)
			return err_set(ERR_INPUT,
			        "its weight gives it only %.2g rows in an epoch, because the epoch ends "
			        "after the %" PRId64
			        " rows of another set; raise its weight, or set data_mix=all_exhausted",
			        rows, m->sets[limit].row_count);
		m->epoch_rows += set->draws;
	}
	return 0;
}

int64_t mix_row(const struct mix *m, int set, int64_t epoch, int64_t nth, enum mix_order order, uint64_t seed)
{
	const struct mix_set *s = &m->sets[set];
	/* The number of the draw since the run began. 128 bits: epochs times rows may exceed 2^63. */
	unsigned __int128 draw = (unsigned __int128)(uint64_t)epoch * (uint64_t)s->draws + (uint64_t)nth;
	uint64_t pass = (uint64_t)(draw / (uint64_t)s->row_count);
	int64_t at = (int64_t)(draw % (uint64_t)s->row_count);

	if (order == MIX_ORDER_SHUFFLE)
		at = permutation_at(
		        seed, PERMUTATION_STREAM_SET * (uint64_t)(set + 1) + pass, s->row_count, at);
	return s->first + at;
}

int64_t mix_place(const struct mix *m, int64_t epoch, int64_t x, enum mix_order order, uint64_t seed)
{
	int set = 0;

	while (set + 1 < m->set_count && x >= m->sets[set].draws)
		x -= m->sets[set++].draws;
	return mix_row(m, set, epoch, x, order, seed);
}
