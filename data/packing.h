/* Best-fit decreasing: packs rows into bins of at most max_tokens tokens.
 *
 * Rows go longest first (equal lengths in row order). Each goes into the open bin with the least sufficient
 * room (among equals, the one changed last), or opens a new bin. Rows stay whole and apart: a bin is only a
 * list of rows, and positions, attention and loss still end at each row's borders (data/batch.h).
 * Deterministic; O(rows * log max_tokens).
 *
 * Pairs of rows (data/rows/dataset.h) use bins too, of two rows each, so that nothing separates them.
 */
#ifndef FERRY_DATA_PACKING_H
#define FERRY_DATA_PACKING_H

#include <stdint.h>

struct packing {
	int64_t bin_count, row_count;
	int64_t *bin_start; /* [bin_count + 1]: bin b holds rows[bin_start[b] .. bin_start[b + 1]) */
	int64_t *rows;      /* [row_count] */
};

/* row_tokens[row_count] are the lengths, each 1..max_tokens, else ERR_RANGE naming the row. */
int packing_build(struct packing **p, const int64_t *row_tokens, int64_t row_count, int64_t max_tokens);
/* Packs parts separately, one after another: part i has rows [starts[i], starts[i + 1]). Afterwards
 * starts[i] is the first bin of part i, and starts[part_count] the number of bins. */
int packing_build_parts(
        struct packing **p, const int64_t *row_tokens, int64_t *starts, int part_count, int64_t max_tokens);
/* The same interface for rows that stay together: bin b holds rows each * b up to each * (b + 1). The parts
 * have a multiple of that number of rows, else ERR_RANGE. */
int packing_build_groups(struct packing **p, int64_t *starts, int part_count, int64_t each);
/* The same where each part has a number of its own, each[part_count]. */
int packing_build_group_parts(struct packing **p, int64_t *starts, int part_count, const int64_t *each);
void packing_free(struct packing *p);

#endif
