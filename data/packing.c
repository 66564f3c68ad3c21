/* Best-fit decreasing: which rows share a bin. */
#include "data/packing.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"

/* Open bins by the room they have left: a stack per room, as a list through `below`. A binary tree of counts
 * finds the smallest room that is large enough. */
struct rooms {
	int64_t leaf_count; /* power of two above max_tokens */
	int64_t *counts;    /* [2 * leaf_count], heap-shaped: node i has children 2i and 2i + 1 */
	int64_t *top;       /* [leaf_count] bin on top of each room's stack, -1 = none */
	int64_t *below;     /* [row_count] next bin down */
};

static void rooms_add(struct rooms *r, int64_t room, int64_t change)
{
	for (int64_t node = r->leaf_count + room; node > 0; node /= 2)
		r->counts[node] += change;
}

static void rooms_push(struct rooms *r, int64_t room, int64_t bin)
{
	r->below[bin] = r->top[room];
	r->top[room] = bin;
	rooms_add(r, room, 1);
}

static int64_t rooms_pop(struct rooms *r, int64_t room)
{
	int64_t bin = r->top[room];

	r->top[room] = r->below[bin];
	rooms_add(r, room, -1);
	return bin;
}

/* Smallest room >= need that some bin has, or -1. */
static int64_t rooms_find(const struct rooms *r, int64_t need)
{
	int64_t node = r->leaf_count + need;

	if (r->counts[node] == 0) {
		/* up until a right sibling has bins, then down to its smallest room */
		while (node > 1 && (node % 2 == 1 || r->counts[node + 1] == 0))
			node /= 2;
		if (node <= 1)
			return -1;
		node++;
		while (node < r->leaf_count)
			node = r->counts[2 * node] ? 2 * node : 2 * node + 1;
	}
	return node - r->leaf_count;
}

/* Rows by length, longest first, equal lengths in row order: a counting sort. `starts` has
 * max_tokens + 2 zeroed entries. */
static void sort_by_length(
        int64_t *order, int64_t *starts, const int64_t *row_tokens, int64_t row_count, int64_t max_tokens)
{
	for (int64_t i = 0; i < row_count; i++)
		starts[max_tokens - row_tokens[i] + 1]++;
	for (int64_t k = 0; k < max_tokens; k++)
		starts[k + 1] += starts[k];
	for (int64_t i = 0; i < row_count; i++)
		order[starts[max_tokens - row_tokens[i]]++] = i;
}

/* Decides the bin of every row; returns the number of bins. */
static int64_t place_rows(int64_t *bin_of, struct rooms *rooms, const int64_t *order,
        const int64_t *row_tokens, int64_t row_count, int64_t max_tokens)
{
	int64_t bin_count = 0;

	for (int64_t i = 0; i < row_count; i++) {
		int64_t row = order[i], tokens = row_tokens[row];
		int64_t room = rooms_find(rooms, tokens), bin;

		if (room < 0) {
			bin = bin_count++;
			room = max_tokens;
		} else {
			bin = rooms_pop(rooms, room);
		}
		rooms_push(rooms, room - tokens, bin);
		bin_of[row] = bin;
	}
	return bin_count;
}

/* Lists the rows of each bin in the order in which they were placed. */
static void list_bins(struct packing *p, const int64_t *bin_of, const int64_t *order)
{
	for (int64_t row = 0; row < p->row_count; row++)
		p->bin_start[bin_of[row] + 1]++;
	for (int64_t b = 0; b < p->bin_count; b++)
		p->bin_start[b + 1] += p->bin_start[b];
	for (int64_t i = 0; i < p->row_count; i++)
		p->rows[p->bin_start[bin_of[order[i]]]++] = order[i];
	/* each start has moved to its end: shift back */
	memmove(p->bin_start + 1, p->bin_start, (size_t)p->bin_count * sizeof(*p->bin_start));
	p->bin_start[0] = 0;
}

int packing_build(struct packing **out, const int64_t *row_tokens, int64_t row_count, int64_t max_tokens)
{
	struct packing *p = NULL;
	struct rooms rooms = {.leaf_count = 1};
	int64_t *order = NULL, *starts = NULL, *bin_of = NULL, total = 0;
	int rc = 0;

	*out = NULL;
	if (max_tokens < 1 || max_tokens > INT32_MAX)
		return err_set(ERR_RANGE, "packing into bins of %lld tokens", (long long)max_tokens);
	for (int64_t i = 0; i < row_count; i++) {
		if (row_tokens[i] < 1 || row_tokens[i] > max_tokens)
			return err_set(ERR_RANGE, "row %lld has %lld tokens and a bin holds %lld",
			        (long long)i, (long long)row_tokens[i], (long long)max_tokens);
		total += row_tokens[i];
	}
	if (max_tokens > total) /* the tables below have an entry per room: keep them small */
		max_tokens = total;
	while (rooms.leaf_count <= max_tokens)
		rooms.leaf_count *= 2;
	p = mem_alloc(1, sizeof(*p));
	order = mem_alloc((size_t)row_count, sizeof(*order));
	starts = mem_alloc((size_t)max_tokens + 2, sizeof(*starts));
	bin_of = mem_alloc((size_t)row_count, sizeof(*bin_of));
	rooms.counts = mem_alloc((size_t)rooms.leaf_count * 2, sizeof(*rooms.counts));
	rooms.top = mem_alloc((size_t)rooms.leaf_count, sizeof(*rooms.top));
	rooms.below = mem_alloc((size_t)row_count, sizeof(*rooms.below));
	if (!p || !order || !starts || !bin_of || !rooms.counts || !rooms.top || !rooms.below) {
		rc = ERR_NOMEM;
		goto out;
	}
	memset(rooms.top, -1, (size_t)rooms.leaf_count * sizeof(*rooms.top));
	sort_by_length(order, starts, row_tokens, row_count, max_tokens);
	p->row_count = row_count;
	p->bin_count = place_rows(bin_of, &rooms, order, row_tokens, row_count, max_tokens);
	p->bin_start = mem_alloc((size_t)p->bin_count + 1, sizeof(*p->bin_start));
	p->rows = mem_alloc((size_t)row_count, sizeof(*p->rows));
	if (!p->bin_start || !p->rows) {
		rc = ERR_NOMEM;
		goto out;
	}
	list_bins(p, bin_of, order);
	*out = p;
	p = NULL;
out:
	packing_free(p);
	mem_free(order);
	mem_free(starts);
	mem_free(bin_of);
	mem_free(rooms.counts);
	mem_free(rooms.top);
	mem_free(rooms.below);
	return rc;
}

/* Appends the bins of `more` to those of p. Row 0 of `more` is `first_row`. */
static int append(struct packing *p, const struct packing *more, int64_t first_row)
{
	int64_t *bins = mem_resize(p->bin_start, (size_t)(p->bin_count + more->bin_count + 1), sizeof(*bins));
	int64_t *rows = mem_resize(p->rows, (size_t)(p->row_count + more->row_count), sizeof(*rows));

	p->bin_start = bins ? bins : p->bin_start;
	p->rows = rows ? rows : p->rows;
	if (!bins || !rows)
		return ERR_NOMEM;
	for (int64_t i = 0; i <= more->bin_count; i++)
		p->bin_start[p->bin_count + i] = p->row_count + more->bin_start[i];
	for (int64_t i = 0; i < more->row_count; i++)
		p->rows[p->row_count + i] = first_row + more->rows[i];
	p->bin_count += more->bin_count;
	p->row_count += more->row_count;
	return 0;
}

int packing_build_parts(
        struct packing **out, const int64_t *row_tokens, int64_t *starts, int part_count, int64_t max_tokens)
{
	struct packing *more = NULL;
	int64_t first_row = starts[0], first_bin = 0;
	int rc = packing_build(out, row_tokens + first_row, starts[1] - first_row, max_tokens);

	for (int i = 1; !rc && i < part_count; i++) {
		first_row = starts[i];
		starts[i - 1] = first_bin;
		first_bin = (*out)->bin_count;
		rc = packing_build(&more, row_tokens + first_row, starts[i + 1] - first_row, max_tokens);
		if (!rc)
			rc = append(*out, more, first_row);
		packing_free(more);
		more = NULL;
	}
	if (rc) {
		packing_free(*out);
		*out = NULL;
		return rc;
	}
	starts[part_count - 1] = first_bin;
	starts[part_count] = (*out)->bin_count;
	return 0;
}

int packing_build_group_parts(struct packing **out, int64_t *starts, int part_count, const int64_t *each)
{
	int64_t row_count = starts[part_count], bins = 0, first = starts[0];
	struct packing *p;

	*out = NULL;
	for (int i = 0; i < part_count; i++)
		if ((starts[i + 1] - starts[i]) % each[i])
			return err_set(ERR_RANGE, "%s is torn at row %lld",
			        each[i] == 2 ? "a pair" : "a row of texts", (long long)starts[i + 1]);
	p = mem_alloc(1, sizeof(*p));
	if (!p)
		return ERR_NOMEM;
	p->row_count = row_count;
	for (int i = 0; i < part_count; i++)
		p->bin_count += (starts[i + 1] - starts[i]) / each[i];
	p->bin_start = mem_alloc((size_t)p->bin_count + 1, sizeof(*p->bin_start));
	p->rows = mem_alloc((size_t)row_count, sizeof(*p->rows));
	if (!p->bin_start || !p->rows) {
		packing_free(p);
		return ERR_NOMEM;
	}
	for (int64_t i = 0; i < row_count; i++)
		p->rows[i] = i;
	for (int i = 0; i < part_count; i++) {
		int64_t end = starts[i + 1];

		starts[i] = bins;
		for (; first < end; first += each[i])
			p->bin_start[bins++] = first;
	}
	p->bin_start[bins] = row_count;
	starts[part_count] = bins;
	*out = p;
	return 0;
}

int packing_build_groups(struct packing **out, int64_t *starts, int part_count, int64_t each)
{
	int64_t *same = mem_alloc((size_t)part_count, sizeof(*same));
	int rc = same ? 0 : ERR_NOMEM;

	*out = NULL;
	for (int i = 0; i < part_count && !rc; i++)
		same[i] = each;
	rc = rc ? rc : packing_build_group_parts(out, starts, part_count, same);
	mem_free(same);
	return rc;
}

void packing_free(struct packing *p)
{
	if (!p)
		return;
	mem_free(p->bin_start);
	mem_free(p->rows);
	mem_free(p);
}
