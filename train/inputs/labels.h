/* The classes of a classifier: how many, and what they are called. */
#ifndef FERRY_TRAIN_INPUTS_LABELS_H
#define FERRY_TRAIN_INPUTS_LABELS_H

#include "base/batch_rule.h"
#include "checkpoint/hf/side_files.h"
#include "config/config.h"
#include "data/rows/dataset.h"
#include "model/model.h"

struct labels {
	struct dataset_labels of;
	json_t *config; /* the model's config.json, which has the names */
	const char **names;
	struct label_tag *tag; /* of labels of words; else NULL */
	const char *problem;   /* problem_type of config.json; NULL: none */
};

/* Gives the model a head for the classes of `objective`, as many as num_labels or config.json says. */
int labels_open(struct labels *l, const struct config *c, struct model *model);
void labels_free(struct labels *l);

/* Makes the config.json of a result that of a classifier: its class, and names of labels. */
int labels_complete(struct side_files *side, const struct labels *l, const struct model *model);

#endif
