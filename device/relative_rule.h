/* Distances between tokens as rows of a table (T5, MPNet): near distances have a row each, farther ones share
 * rows whose ranges grow, and all from `distance` on share the last.
 *
 * both_sides: half of the rows are for later tokens. Else only earlier ones count, and a later token is like
 * the token itself. */
#ifndef FERRY_DEVICE_RELATIVE_RULE_H
#define FERRY_DEVICE_RELATIVE_RULE_H

#include <stdint.h>

enum { RELATIVE_ROWS_MAX = 128 };
struct relative_rule {
	int64_t rows, distance; /* rows 0: there is none */
	int both_sides;
};

/* Rows of one side: row r holds the distances from first[r] to first[r + 1] - 1, the last one all others. */
struct relative_side {
	int rows, both_sides;
	int32_t first[RELATIVE_ROWS_MAX];
};

/* Why ferry does not take the rule, or NULL. */
const char *relative_rule_problem(const struct relative_rule *rule);
struct relative_side relative_side_of(const struct relative_rule *rule);

#ifdef __CUDACC__
#define RELATIVE_ANYWHERE __host__ __device__
#else
#define RELATIVE_ANYWHERE
#endif

/* The row of distance d = j - i of key j and query i; of both sides, later tokens have the second half. */
static RELATIVE_ANYWHERE inline int relative_row(const struct relative_side *side, int64_t d)
{
	int64_t away = d < 0 ? -d : side->both_sides ? d : 0;
	int row = side->rows - 1;

	while (row > 0 && side->first[row] > away)
		row--;
	return side->both_sides && d > 0 ? side->rows + row : row;
}

#endif
