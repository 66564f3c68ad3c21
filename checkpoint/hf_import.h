/* Weights of a HuggingFace directory, matched to a model and streamed into its planes.
 *
 * Opening finds, for every tensor of the model's table, the tensor of a file that holds it (names by
 * model_find_tensor, shape and dtype checked); nothing is read but headers. Loading then reads BF16 straight
 * into hi, and F32 and F16 by way of a small buffer of each thread that is split into hi and lo, so that peak
 * memory is what the sink holds plus load_memory_bytes (checkpoint/load_memory.h).
 *
 * Tied heads: a file may hold the embedding, the head, or both. Only the head: it becomes the embedding.
 * Both, and equal: one. Both, and different: the model is untied (model_untie), whatever config.json says.
 * Tensors of no known name are left out with a warning, as transformers does, unless they look like
 * quantized weights or an adapter: these are refused.
 */
#ifndef FERRY_CHECKPOINT_HF_IMPORT_H
#define FERRY_CHECKPOINT_HF_IMPORT_H

#include "checkpoint/plane_io.h"
#include "host/pool.h"
#include "model/model.h"

#include <stdint.h>

struct hf_import;

/* Before anything is derived from the model's table: the model may be untied here, and the storage of each
 * tensor is set by what the files store; it must then outlive the import unchanged. ERR_INPUT names every way
 * in which the directory does not hold this model (the first few missing tensors, a shape, a dtype);
 * ERR_UNSUPPORTED for quantized weights and other formats. */
int hf_import_open(struct hf_import **import, const char *dir, struct model *model);
void hf_import_close(struct hf_import *import);

/* Elements [first, first + count) of a tensor of the table as fp32, read and widened into dst. `count` is at
 * most PLANE_PIECE_COUNT. ERR_INPUT names the first element that is not finite. One thread per import. */
int hf_import_read(struct hf_import *import, float *dst, int tensor, int64_t first, int64_t count);

/* These disjoint ranges (NULL: all of everything) into HI and LO of the sink; M and V are not touched. The
 * threads of `pool` (NULL: this one) read pieces of the files in the order of their bytes, each straight to
 * its place where the sink knows one. Of several errors the one that comes first in the files is reported;
 * after one the planes hold anything. */
int hf_import_load(struct hf_import *import, const struct plane_sink *sink, const struct plane_range *ranges,
        int64_t range_count, struct pool *pool);

#endif
