/* Data sets as lists of mappings, in files of other tools and in ferry's own:
 *
 *     data:                                    datasets:                 dataset: a,b
 *       - path: a.jsonl                          - path: a.jsonl         interleave_probs: 0.7,0.3
 *         weight: 0.7                              type: alpaca
 *
 *     data:
 *       nli: {path: nli.jsonl, embedding_loss: mnrl}
 *
 * The parser adds their parts one by one. At the end of a layer they become data=a.jsonl:0.7,... and
 * data_format. data_format is auto if the types differ. Names and keys of single sets become data_keys.
 */
#ifndef FERRY_CONFIG_DIALECT_SETS_H
#define FERRY_CONFIG_DIALECT_SETS_H

#include "base/json.h"
#include "config/table.h"

enum { DIALECT_SETS_MAX = 64 };

enum dialect_set_part {
	DIALECT_SET_PATH,
	DIALECT_SET_FILES, /* replaces the path */
	DIALECT_SET_WEIGHT,
	DIALECT_SET_TYPE,
	DIALECT_SET_PARTS
};

struct dialect_set {
	char *text, *name; /* the name as typed: "datasets.0.path" */
	int line;
};

struct dialect_sets {
	struct dialect_set parts[DIALECT_SETS_MAX][DIALECT_SET_PARTS];
	json_t *own[DIALECT_SETS_MAX]; /* objects of a set's own keys; NULL: none */
	json_t *lines;                 /* where those stand: "data.0.embedding_loss" */
	char *names[DIALECT_SETS_MAX]; /* of sets in a mapping; NULL: in a list */
	int count, line;
	char *weights; /* for data sets given as a list of names: LLaMA-Factory's interleave_probs */
	char *as;      /* the key of the first part, for messages */
};

/* Adds a part. `name` is its dotted name ("datasets.0.path"). ERR_INPUT for more than DIALECT_SETS_MAX sets,
 * ERR_NOMEM. */
int dialect_sets_add(
        struct dialect_sets *s, enum dialect_set_part part, const char *name, const char *text, int line);
int dialect_sets_weights(struct dialect_sets *s, const char *name, const char *text, int line);

/* Adds a key that a set has of its own, or its name ("data.0.name"). */
int dialect_sets_own(struct dialect_sets *s, const char *name, const char *text, int line);

/* Sets the keys for `data` or `eval_data` and empties *s. Errors of config_set, or ERR_INPUT if a set has
 * no path or the numbers of weights and sets differ. */
int dialect_sets_end(struct dialect_sets *s, const char *data, struct config *c, struct config_layer *layer);
void dialect_sets_free(struct dialect_sets *s);

#endif
