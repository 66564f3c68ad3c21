/* What the directory of an embedder says of a run: pooling, prompts, length of texts. */
#ifndef FERRY_TRAIN_INPUTS_SENTENCE_H
#define FERRY_TRAIN_INPUTS_SENTENCE_H

#include "checkpoint/hf/sentence_dir.h"
#include "config/config.h"
#include "data/rows/dataset.h"
#include "model/model.h"

/* Reads the directory of the configuration's model with embedding_loss, and finds the pooling. */
int sentence_open(struct sentence_dir *s, const struct config *c, const struct model *model);

/* Replaces the names of the model's prompts by these, and sets the numbers of a teacher's vectors. */
void sentence_texts(struct dataset_texts *texts, const struct sentence_dir *s);

/* The same, and the model's length of texts. */
void sentence_rows(struct dataset_options *o, const struct sentence_dir *s, const struct config *c);

#endif
