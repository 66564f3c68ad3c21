/* Weights of a HuggingFace directory, matched to a model and streamed into its planes.
 *
 * Opening finds the file and tensor for every tensor of the model's table (names by model_find_tensor, shape
 * and dtype checked). It reads only headers. Loading then reads BF16 directly into hi. F32 and F16 go
 * through a small buffer per thread and are split into hi and lo. Peak memory is that of the sink plus
 * load_memory_bytes (checkpoint/file/load_memory.h).
 *
 * Tied heads: a file may have the embedding, the head, or both. A head alone becomes the embedding. Equal
 * ones become one tensor. If they differ, the model is untied (model_untie) regardless of config.json.
 * Tensors with unknown names are carried (hf_layout.h), with a warning unless the model also reads
 * images or sound. An adapter is an error, and so are quantized weights that hf_coded.h does not read.
 */
#ifndef FERRY_CHECKPOINT_HF_HF_IMPORT_H
#define FERRY_CHECKPOINT_HF_HF_IMPORT_H

#include "checkpoint/file/plane_io.h"
#include "checkpoint/hf/hf_layout.h"
#include "host/pool.h"
#include "model/model.h"

#include <stdint.h>

struct hf_import;

/* Call before anything uses the model's table: this may untie the model, and sets the storage of each tensor
 * to the files' format. The model must then outlive the import unchanged. ERR_INPUT names every way in which
 * the directory does not match the model (the first few missing tensors, a shape, a dtype). ERR_UNSUPPORTED
 * for such quantized weights and other formats. */
int hf_import_open(struct hf_import **import, const char *dir, struct model *model);

/* The same for another directory of the model, from which only values are read: formats stay. */
int hf_import_open_values(struct hf_import **import, const char *dir, struct model *model);

/* What the files have of most frozen matrices, "nf4"; NULL: numbers. */
const char *hf_import_coded_name(const struct hf_import *import);
void hf_import_close(struct hf_import *import);

/* How the files hold the model, for results that hold it so. NULL: as a result does without (is_plain), no
 * import, or a head that the files lack: the result is then another class. */
const struct hf_layout *hf_import_layout(const struct hf_import *import);

/* A hash, in hexadecimal, of the headers, of 32 blocks of each file and of the begin of each tensor: files of
 * other weights have another one, as good as always. ERR_IO. */
enum { HF_HASH_BYTES = 17 };
int hf_import_hash(char hash[HF_HASH_BYTES], const struct hf_import *import);

/* Reads elements [first, first + count) of a tensor of the table into dst as fp32. `count` is at most
 * PLANE_PIECE_COUNT. ERR_INPUT names the first element that is not finite. One thread per import. */
int hf_import_read(struct hf_import *import, float *dst, int tensor, int64_t first, int64_t count);

/* Loads these disjoint ranges (NULL: all elements) into HI and LO of the sink; M and V keep their values.
 * The threads of `pool` (NULL: this thread) read pieces in the order of the files' bytes, directly to their
 * place if the sink knows it. Reports the error that comes first in the files; after an error the planes are
 * undefined. */
int hf_import_load(struct hf_import *import, const struct plane_sink *sink, const struct plane_range *ranges,
        int64_t range_count, struct pool *pool);

#endif
