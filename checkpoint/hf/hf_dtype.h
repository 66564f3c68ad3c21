/* The dtype in config.json: "dtype", or "torch_dtype" in older files.
 *
 * transformers loads weights in this dtype regardless of the files, so it must equal the dtype of the
 * export. Only the value changes; the rest of the text stays byte for byte.
 */
#ifndef FERRY_CHECKPOINT_HF_HF_DTYPE_H
#define FERRY_CHECKPOINT_HF_HF_DTYPE_H

#include "checkpoint/file/safetensors.h"

/* Sets the dtype in config.json of `dir`, including nested configurations; adds torch_dtype if none is
 * present. Does nothing without config.json. ERR_INPUT, ERR_IO, ERR_NOMEM. */
int hf_dtype_write(enum safetensors_dtype dtype, const char *dir);

#endif
