/* Weights of a HuggingFace directory, matched to a model and streamed into its planes.
 *
 * Opening finds, for every tensor of the model's table, the tensor of a file that holds it (names by
 * model_find_tensor, shape and dtype checked); nothing is read but headers. Loading then reads pieces of at
 * most PLANE_PIECE_COUNT elements through one fixed staging buffer (6 MiB), widens F16 and BF16 to fp32,
 * splits into the planes and hands them to a sink, so that peak memory is what the sink holds plus staging.
 *
 * Tied heads: a file may hold the embedding, the head, or both. Only the head: it becomes the embedding.
 * Both, and equal: one. Both, and different: the model is untied (model_untie), whatever config.json says.
 * Tensors of no known name are left out with a warning, as transformers does, unless they look like
 * quantized weights or an adapter: these are refused.
 */
#ifndef FERRY_CHECKPOINT_HF_IMPORT_H
#define FERRY_CHECKPOINT_HF_IMPORT_H

#include "checkpoint/plane_io.h"
#include "model/model.h"

#include <stdint.h>

struct hf_import;

/* Before anything is derived from the model's table: the model may be untied here, and must then outlive the
 * import unchanged. ERR_INPUT names every way in which the directory does not hold this model (the first few
 * missing tensors, a shape, a dtype); ERR_UNSUPPORTED for quantized weights and other formats. */
int hf_import_open(struct hf_import **import, const char *dir, struct model *model);
void hf_import_close(struct hf_import *import);

/* Elements [first, first + count) of a tensor of the table as fp32, read and widened into dst. `count` is at
 * most PLANE_PIECE_COUNT. ERR_INPUT names the first element that is not finite. One thread per import. */
int hf_import_read(struct hf_import *import, float *dst, int tensor, int64_t first, int64_t count);

/* A range of one tensor, of any length, into HI and LO of the sink. */
int hf_import_load_range(
        struct hf_import *import, const struct plane_sink *sink, int tensor, int64_t first, int64_t count);

/* All tensors. M and V are not touched. */
int hf_import_load(struct hf_import *import, const struct plane_sink *sink);

#endif
