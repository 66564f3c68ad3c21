/* Data sets as lists of mappings, in files of other tools and in ferry's own:
 *
 *     data:                                    datasets:                 dataset: a,b
 *       - path: a.jsonl                          - path: a.jsonl         interleave_probs: 0.7,0.3
 *         weight: 0.7                              type: alpaca
 *
 * The parser adds their parts one by one. At the end of a layer they become data=a.jsonl:0.7,... and
 * data_format. data_format is auto if the types differ.
 */
#ifndef FERRY_CONFIG_FOREIGN_SETS_H
#define FERRY_CONFIG_FOREIGN_SETS_H

#include "config/table.h"

enum { FOREIGN_SETS_MAX = 64 };

enum foreign_set_part {
	FOREIGN_SET_PATH,
	FOREIGN_SET_FILES, /* replaces the path */
	FOREIGN_SET_WEIGHT,
	FOREIGN_SET_TYPE,
	FOREIGN_SET_PARTS
};

struct foreign_set {
	char *text, *name; /* the name as typed: "datasets.0.path" */
	int line;
};

struct foreign_sets {
	struct foreign_set parts[FOREIGN_SETS_MAX][FOREIGN_SET_PARTS];
	int count, line;
	char *weights; /* for data sets given as a list of names: LLaMA-Factory's interleave_probs */
	char *as;      /* the key of the first part, for messages */
};

/* Adds a part. `name` is its dotted name ("datasets.0.path"). ERR_INPUT for more than FOREIGN_SETS_MAX sets,
 * ERR_NOMEM. */
int foreign_sets_add(
        struct foreign_sets *s, enum foreign_set_part part, const char *name, const char *text, int line);
int foreign_sets_weights(struct foreign_sets *s, const char *name, const char *text, int line);

/* Sets the keys and empties *s. Errors of config_set, or ERR_INPUT if a set has no path or the numbers of
 * weights and sets differ. */
int foreign_sets_end(struct foreign_sets *s, struct config *c, struct config_layer *layer);
void foreign_sets_free(struct foreign_sets *s);

#endif
