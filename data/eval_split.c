/* Splits rows off a data set: both parts share the records. */
#include "data/eval_split.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

/* The sets of the rows with chosen[row] == want; each keeps its place, with fewer rows. */
static void cut_sets(struct dataset *to, const struct dataset *d, const uint8_t *chosen, int want)
{
	int64_t first = 0;

	for (int i = 0; i < d->set_count; i++) {
		const struct dataset_set *from = &d->sets[i];

		to->sets[i].first_row = first;
		for (int64_t row = from->first_row; row < from->first_row + from->row_count; row++)
			first += chosen[row] == want;
		to->sets[i].row_count = first - to->sets[i].first_row;
	}
}

/* Makes a dataset of the rows with chosen[row] == want; it shares the records. */
static int choose_rows(struct dataset **out, const struct dataset *d, const uint8_t *chosen, int want)
{
	struct dataset *to = mem_alloc(1, sizeof(*to));
	int64_t count = 0;

	*out = NULL;
	if (!to)
		return ERR_NOMEM;
	for (int64_t row = 0; row < d->row_count; row++)
		count += chosen[row] == want;
	*to = *d; /* own_label_rows is an upper bound: dataset_hash_labels checks the rows */
	to->row_count = to->token_count = to->target_count = 0;
	to->content_hash = 0;
	to->own_rows = mem_alloc((size_t)count, sizeof(*to->own_rows));
	if (!to->own_rows) {
		mem_free(to);
		return ERR_NOMEM;
	}
	for (int64_t row = 0; row < d->row_count; row++) {
		if (chosen[row] != want)
			continue;
		to->own_rows[to->row_count++] = d->rows[row];
		to->token_count += d->rows[row].token_count;
		to->target_count += d->rows[row].target_count;
	}
	to->rows = to->own_rows;
	to->store = row_store_share(d->store);
	cut_sets(to, d, chosen, want);
	*out = to;
	return 0;
}

/* Marks the rows to take of units [first_row + each * unit]. */
static int choose_part(uint8_t *chosen, const struct dataset *d, int64_t first_row, int64_t each,
        int64_t count, double part, uint64_t seed)
{
	double taken = part < 1 ? ceil(part * (double)count) : part;
	const char *what = dataset_unit(d);

	if (!(part > 0) || taken != floor(taken) || !(taken < (double)count))
		return err_set(ERR_INPUT,
		        "of %" PRId64
		        " %ss: set a fraction below 1 or a whole number of %ss, and leave %ss to train on",
		        count, what, what, what);
	for (int64_t i = 0; i < (int64_t)taken; i++)
		memset(chosen + first_row +
		                each * permutation_at(seed, PERMUTATION_STREAM_EVAL_SPLIT, count, i),
		        1, (size_t)each);
	return 0;
}

int dataset_split(struct dataset **eval, struct dataset *d, double part, uint64_t seed)
{
	uint8_t *chosen = mem_alloc((size_t)d->row_count, 1);
	struct dataset *kept = NULL, old;
	int rc = chosen ? 0 : ERR_NOMEM;

	*eval = NULL;
	if (!rc && !d->is_apart)
		rc = choose_part(
		        chosen, d, 0, dataset_set_unit_rows(d, 0), dataset_unit_count(d), part, seed);
	for (int i = 0; d->is_apart && i < d->set_count && !rc; i++) {
		rc = choose_part(chosen, d, d->sets[i].first_row, dataset_set_unit_rows(d, i),
		        dataset_set_unit_count(d, i), part, seed);
		rc = rc ? err_note(rc, "%s", d->sets[i].name) : 0;
	}
	if (rc == 0)
		rc = choose_rows(eval, d, chosen, 1);
	if (rc == 0)
		rc = choose_rows(&kept, d, chosen, 0);
	if (rc == 0) { /* the caller keeps its pointer: put the kept rows there */
		old = *d;
		*d = *kept;
		*kept = old;
	} else {
		dataset_close(*eval);
		*eval = NULL;
	}
	dataset_close(kept);
	mem_free(chosen);
	return rc;
}
