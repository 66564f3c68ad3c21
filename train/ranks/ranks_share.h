/* Sends the small inputs that only rank 0 reads (load=rank0_only) to all ranks. Each function is then
 * collective. It returns 0 at once if all ranks read files (placement/ranks.h, ranks_reads_files). */
#ifndef FERRY_TRAIN_RANKS_RANKS_SHARE_H
#define FERRY_TRAIN_RANKS_RANKS_SHARE_H

#include "config/config.h"
#include "data/rows/dataset.h"
#include "data/tokenizer/token_list.h"
#include "model/model.h"

/* Copies rank 0's data to the others. A block (mem_free) ends with an uncounted NUL; NULL stays NULL. */
int ranks_share_block(const struct config *c, char **block, int64_t *len_bytes);
int ranks_share_dataset(const struct config *c, struct dataset **d);
int ranks_share_tokens(const struct config *c, struct token_list *ids);

/* Shares the model's table; call when rank 0 knows whether its head is tied. */
int ranks_share_model(const struct config *c, struct model **model);

/* Shares the formats that weights have in the files, and which of these frozen tensors keep. */
int ranks_share_formats(const struct config *c, struct model *model);

#endif
