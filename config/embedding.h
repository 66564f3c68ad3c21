/* Keys of embedders (keys_embedding.inc). */
#ifndef FERRY_CONFIG_EMBEDDING_H
#define FERRY_CONFIG_EMBEDDING_H

#include "config/config.h"
#include "data/rows/dataset.h"

enum { EMBEDDING_DIMS_MAX = 16 }; /* of matryoshka_dims */

/* What embedding_loss needs of each row. */
struct dataset_texts embedding_rows_of(const struct config *c);

/* objective=reward: rows are pairs of answers. objective=reranking: labels are from 0 to 1. */
int embedding_has_pairs(const struct config *c);
int embedding_is_share(const struct config *c);

/* The problem_type of config.json; NULL: none. */
const char *embedding_problem(const struct config *c);

/* Labels are numbers: regression, reranking, reward. */
int embedding_is_regression(const struct config *c);
int embedding_hides_tokens(const struct config *c); /* objective=masked */
int embedding_is_of_tokens(const struct config *c);

/* ERR_INPUT: settings of an embedder that have no effect, or contradict each other. */
int embedding_check(const struct config *c);

/* 1: the rows to train on are single answers with a label (KTO). */
int config_is_judged(const struct config *c);

#endif
