/* The dtype that config.json names for its files: "dtype", or "torch_dtype" as older files have it.
 *
 * transformers loads weights in that dtype, whatever the files hold, so it must be what was written. Only the
 * value is changed; everything else of the text stays byte for byte.
 */
#ifndef FERRY_CHECKPOINT_HF_DTYPE_H
#define FERRY_CHECKPOINT_HF_DTYPE_H

#include "checkpoint/safetensors.h"

/* In config.json of `dir`, also in the configurations of parts that it holds; adds torch_dtype where none is
 * named. A directory without config.json stays so. ERR_INPUT, ERR_IO, ERR_NOMEM. */
int hf_dtype_write(enum safetensors_dtype dtype, const char *dir);

#endif
