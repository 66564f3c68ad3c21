/* Keys of embedders (keys_embedding.inc). */
#ifndef FERRY_CONFIG_EMBEDDING_H
#define FERRY_CONFIG_EMBEDDING_H

#include "config/config.h"
#include "data/rows/dataset.h"
#include "device/contrast_kind.h"

/* What embedding_loss needs of each row. */
struct dataset_texts embedding_rows_of(const struct config *c);

/* ERR_INPUT: settings of an embedder that have no effect, or contradict each other. */
int embedding_check(const struct config *c);

#endif
