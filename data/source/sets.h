/* What a user names as data, cut into sets: one, or several with or without weights.
 *
 *     rows.jsonl                       one set: a file, folder, pattern or pipe, as data/source/files.h reads
 * it a.jsonl,b/                       two sets, one behind the other a.jsonl:0.7,b.parquet:0.3        two
 * sets that an epoch draws from in the ratio 7 to 3
 *
 * A name that exists as it stands is never cut: commas and colons in names of files work.
 */
#ifndef FERRY_DATA_SOURCE_SETS_H
#define FERRY_DATA_SOURCE_SETS_H

#include <stddef.h>

enum { DATA_SETS_MAX = 64 };

struct data_set {
	char *path;    /* as files_find takes it */
	double weight; /* above 0; 0 = none was given */
	char *weight_text;
};

struct data_sets {
	struct data_set sets[DATA_SETS_MAX];
	int count;
	int is_weighted; /* all sets have weights */
};

/* ERR_INPUT: an empty name, a weight that is no positive number, weights for some sets only or for a single
 * one. data_sets_free in any case. */
int data_sets_parse(struct data_sets *sets, const char *spec);
void data_sets_free(struct data_sets *sets);

/* Back to one text (mem_free); NULL when out of memory. */
char *data_sets_join(const struct data_sets *sets);

#endif
