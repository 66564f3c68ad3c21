/* Groups the rows of an epoch into steps without duplicates. */
#include "data/batches.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

enum { TRIES = 16 };

struct batches {
	struct sampler_steps steps; /* for samplers; the first member */
	struct sampler sampler;
	int64_t each, per_epoch;
	int64_t texts;  /* different ones */
	int64_t *text;  /* [row_count * each] numbers from 0 */
	int64_t *after; /* [texts] the first step that may have the text */
	int64_t *count; /* [row_count] rows of each step */
	int64_t *open;  /* [row_count + 1] the next step from here on that has room */
	int64_t *step;  /* [row_count] of the drawn row at each place */
	int64_t *drawn; /* [row_count] */
	int64_t *start; /* [row_count + 1] of each step's rows */
	int64_t *rows;  /* [row_count] step by step */
	int64_t epoch;  /* the one that is here; -1: none */
};

/* ---- equal texts ---- */

struct numbered {
	uint64_t text;
	int64_t at;
};

static int by_text(const void *a, const void *b)
{
	const struct numbered *x = a, *y = b;

	return x->text < y->text ? -1 : x->text > y->text;
}

/* Numbers equal texts alike. *most: how many numbers there are. */
static int texts_number(int64_t *to, int64_t *most, const uint64_t *text, int64_t count)
{
	struct numbered *sorted = mem_alloc((size_t)count, sizeof(*sorted));

	*most = 0;
	if (!sorted)
		return ERR_NOMEM;
	for (int64_t i = 0; i < count; i++)
		sorted[i] = (struct numbered){text[i], i};
	qsort(sorted, (size_t)count, sizeof(*sorted), by_text);
	for (int64_t i = 0; i < count; i++) {
		*most += i > 0 && sorted[i].text != sorted[i - 1].text;
		to[sorted[i].at] = *most;
	}
	++*most;
	mem_free(sorted);
	return 0;
}

/* ---- an epoch ---- */

/* The first step from `at` on that has room, with shorter ways for the next search. */
static int64_t open_find(struct batches *b, int64_t at)
{
	int64_t to = at;

	while (b->open[to] != to)
		to = b->open[to];
	while (b->open[at] != to) {
		int64_t next = b->open[at];

		b->open[at] = to;
		at = next;
	}
	return to;
}

/* Gives each drawn row a step. Returns the number of steps. */
static int64_t rows_place(struct batches *b, int64_t epoch)
{
	const struct sampler *s = &b->sampler;
	int64_t steps = 0;

	memset(b->after, 0, (size_t)b->texts * sizeof(*b->after));
	memset(b->count, 0, (size_t)s->row_count * sizeof(*b->count));
	for (int64_t i = 0; i <= s->row_count; i++)
		b->open[i] = i;
	for (int64_t place = 0; place < s->row_count; place++) {
		int64_t row = sampler_draw(s, epoch, place), to = 0;
		const int64_t *text = b->text + row * b->each;

		for (int64_t t = 0; t < b->each; t++)
			to = b->after[text[t]] > to ? b->after[text[t]] : to;
		to = open_find(b, to);
		for (int64_t t = 0; t < b->each; t++)
			b->after[text[t]] = to + 1;
		b->drawn[place] = row;
		b->step[place] = to;
		if (++b->count[to] == s->step_rows)
			b->open[to] = to + 1;
		steps = to + 1 > steps ? to + 1 : steps;
	}
	return steps;
}

/* Halves the fullest step until there are enough. */
static void steps_split(struct batches *b, int64_t steps)
{
	for (; steps < b->per_epoch; steps++) {
		int64_t fullest = 0, moved;

		for (int64_t i = 1; i < steps; i++)
			fullest = b->count[i] > b->count[fullest] ? i : fullest;
		moved = b->count[fullest] / 2;
		b->count[fullest] -= moved;
		b->count[steps] = moved;
		for (int64_t place = b->sampler.row_count - 1; place >= 0 && moved; place--)
			if (b->step[place] == fullest) {
				b->step[place] = steps;
				moved--;
			}
	}
}

static void rows_sort(struct batches *b)
{
	b->start[0] = 0;
	for (int64_t i = 0; i < b->per_epoch; i++) {
		b->start[i + 1] = b->start[i] + b->count[i];
		b->count[i] = b->start[i];
	}
	for (int64_t place = 0; place < b->sampler.row_count; place++)
		b->rows[b->count[b->step[place]]++] = b->drawn[place];
}

/* Groups an epoch. One that needs more steps than the first is shuffled again; after some tries it has the
 * groups of the first. */
static void epoch_make(struct batches *b, int64_t epoch)
{
	int64_t steps = b->per_epoch + 1;

	for (int64_t i = 0; i < TRIES && steps > b->per_epoch; i++)
		steps = rows_place(b, epoch + (i << 40));
	if (steps > b->per_epoch)
		steps = rows_place(b, 0);
	steps_split(b, steps);
	rows_sort(b);
	b->epoch = epoch;
}

/* ---- for samplers ---- */

static int64_t step_rows(struct sampler_steps *s, int64_t epoch, int64_t step)
{
	const int64_t *rows;

	return batches_rows((struct batches *)s, &rows, epoch, step);
}

static int64_t step_row(struct sampler_steps *s, int64_t epoch, int64_t step, int64_t place)
{
	const int64_t *rows;

	(void)batches_rows((struct batches *)s, &rows, epoch, step);
	return rows[place];
}

static double step_done(struct sampler_steps *s, int64_t epoch, int64_t step)
{
	return (double)batches_rows_before((struct batches *)s, epoch, step) / (double)s->epoch_rows;
}

struct sampler_steps *batches_steps(struct batches *b)
{
	return &b->steps;
}

int batches_open(struct batches **out, const struct sampler *s, const uint64_t *text, int64_t each)
{
	struct batches *b = mem_alloc(1, sizeof(*b));
	size_t rows = (size_t)s->row_count, size = sizeof(*b->rows);

	*out = NULL;
	if (!b)
		return ERR_NOMEM;
	*b = (struct batches){.sampler = *s, .each = each, .epoch = -1};
	b->text = mem_alloc(rows * (size_t)each, size);
	b->after = mem_alloc(rows * (size_t)each, size);
	b->count = mem_alloc(rows, size);
	b->open = mem_alloc(rows + 1, size);
	b->step = mem_alloc(rows, size);
	b->drawn = mem_alloc(rows, size);
	b->start = mem_alloc(rows + 1, size);
	b->rows = mem_alloc(rows, size);
	if (!b->text || !b->after || !b->count || !b->open || !b->step || !b->drawn || !b->start ||
	        !b->rows || texts_number(b->text, &b->texts, text, s->row_count * each)) {
		batches_close(b);
		return ERR_NOMEM;
	}
	b->per_epoch = rows_place(b, 0);
	b->steps = (struct sampler_steps){.per_epoch = b->per_epoch,
	        .epoch_rows = s->row_count,
	        .rows = step_rows,
	        .row = step_row,
	        .done = step_done};
	*out = b;
	return 0;
}

void batches_close(struct batches *b)
{
	if (!b)
		return;
	mem_free(b->text);
	mem_free(b->after);
	mem_free(b->count);
	mem_free(b->open);
	mem_free(b->step);
	mem_free(b->drawn);
	mem_free(b->start);
	mem_free(b->rows);
	mem_free(b);
}

int64_t batches_per_epoch(const struct batches *b)
{
	return b->per_epoch;
}

int64_t batches_rows_before(struct batches *b, int64_t epoch, int64_t step)
{
	if (b->epoch != epoch)
		epoch_make(b, epoch);
	return b->start[step];
}

int64_t batches_rows(struct batches *b, const int64_t **rows, int64_t epoch, int64_t step)
{
	int64_t first = batches_rows_before(b, epoch, step);

	*rows = b->rows + first;
	return b->start[step + 1] - first;
}
