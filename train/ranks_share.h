/* What only rank 0 reads (load=rank0_only), besides weights: small, and the same on all ranks. Each function
 * is collective then, and returns 0 at once where all ranks have files (placement/ranks.h,
 * ranks_reads_files).
 */
#ifndef FERRY_TRAIN_RANKS_SHARE_H
#define FERRY_TRAIN_RANKS_SHARE_H

#include "config/config.h"
#include "data/dataset.h"
#include "data/tokenizer/token_list.h"
#include "model/model.h"

/* What rank 0 read reaches the others. A block is freed by mem_free and ends with a NUL that is not counted;
 * NULL stays NULL. */
int ranks_share_block(const struct config *c, char **block, int64_t *len_bytes);
int ranks_share_dataset(const struct config *c, struct dataset **d);
int ranks_share_tokens(const struct config *c, struct token_list *ids);

/* The model's table, once rank 0 knows whether its head is tied. */
int ranks_share_model(const struct config *c, struct model **model);

/* And how its weights are stored, which frozen ones ask for. */
int ranks_share_formats(const struct config *c, struct model *model);

#endif
