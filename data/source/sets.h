/* Splits the data that a user names into sets: one, or several with or without weights.
 *
 *     rows.jsonl                       one set: a file, folder, pattern or pipe (data/source/files.h)
 *     a.jsonl,b/                       two sets, one after the other
 *     a.jsonl:0.7,b.parquet:0.3        two sets; an epoch draws from them in the ratio 7 to 3
 *
 * An existing file name is never split, so file names may contain commas and colons.
 */
#ifndef FERRY_DATA_SOURCE_SETS_H
#define FERRY_DATA_SOURCE_SETS_H

#include <stddef.h>

enum { DATA_SETS_MAX = 64 };

struct data_set {
	char *path;    /* for files_find */
	double weight; /* above 0; 0 = none */
	char *weight_text;
};

struct data_sets {
	struct data_set sets[DATA_SETS_MAX];
	int count;
	int is_weighted; /* all sets have weights */
};

/* ERR_INPUT: an empty name, a weight that is not a positive number, weights for only some sets or for a
 * single one. Call data_sets_free even after an error. */
int data_sets_parse(struct data_sets *sets, const char *spec);
void data_sets_free(struct data_sets *sets);

/* The sets as one text again (mem_free); NULL if out of memory. */
char *data_sets_join(const struct data_sets *sets);

#endif
