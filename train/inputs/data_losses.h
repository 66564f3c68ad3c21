/* Data sets with a loss each: the objective's settings, rows and name of each set of `data`.
 *
 * `data` and `eval_data` name sets of files. What a set of `data` is trained for stands in its configuration
 * (config/data_keys.h); a set of `eval_data` has that of the set with its name, or at its place. */
#ifndef FERRY_TRAIN_INPUTS_DATA_LOSSES_H
#define FERRY_TRAIN_INPUTS_DATA_LOSSES_H

#include "checkpoint/hf/sentence_dir.h"
#include "config/data_keys.h"
#include "data/rows/dataset.h"
#include "placement/options.h"

struct data_loss {
	const struct config *config;
	char *name;  /* for metrics: as given, else that of the file without its ends */
	char *where; /* "run.yaml:3: data.0.embedding_loss", for messages */
	struct objective_use use;
};

struct data_losses {
	int count; /* 0: steps have rows of all sets, and one loss */
	struct data_loss *sets;
	struct data_keys keys;
};

/* Reads the keys; no files. ERR_INPUT: another number of sets than `data` has, weights, a name that
 * stands twice or that no metric can have, one set where several are needed. Call data_losses_free even
 * after an error. */
int data_losses_open(struct data_losses *l, const struct config *c);
void data_losses_free(struct data_losses *l);

/* The number in l->sets of each set of a path, c->data or c->eval_data. ERR_INPUT: eval_data has a set
 * that is none of data's. */
int data_losses_of(
        int of[DATA_SETS_MAX], const struct data_losses *l, const struct config *c, const char *path);

/* What the sets of the path have of their own, in o->own, of own[DATA_SETS_MAX]. */
int data_losses_rows(struct dataset_options *o, struct dataset_own *own, const struct data_losses *l,
        const struct config *c, const struct sentence_dir *s);

#endif
