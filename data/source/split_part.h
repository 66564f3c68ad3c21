/* A part of a split's records, written as in HuggingFace's datasets: train[:20%], train[100:200],
 * train[-500:].
 *
 * Numbers count records; percents are of all records, rounded to the nearest. Negative ones count from the
 * end.
 */
#ifndef FERRY_DATA_SOURCE_SPLIT_PART_H
#define FERRY_DATA_SOURCE_SPLIT_PART_H

#include <stdint.h>

enum { SPLIT_NAME_BYTES = 64 };

struct split_bound {
	int64_t value;
	int is_set, is_percent;
};

/* Zero: the whole split. */
struct split_part {
	struct split_bound from, to;
	int is_part;
};

/* Cuts "train[:20%]" into the name "train" and the part. ERR_INPUT: neither a name nor a part; the text says
 * what is supported. */
int split_part_parse(char name[SPLIT_NAME_BYTES], struct split_part *part, const char *text);

/* 1 if the range follows from the number of all records alone, so that they must be counted first. */
int split_part_needs_count(const struct split_part *part);

/* The records *first <= i < *end of `count`. */
void split_part_range(int64_t *first, int64_t *end, const struct split_part *part, int64_t count);

#endif
