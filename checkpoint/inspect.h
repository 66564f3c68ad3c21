/* What a file or directory holds, as a JSON object; nothing but headers and manifests is read.
 *
 * kind is one of
 *   "safetensors"  one file
 *   "model"        a HuggingFace directory
 *   "checkpoint"   a ferry checkpoint
 *   "output_dir"   what a training run leaves: checkpoints and perhaps model/
 *
 * The first three have tensors: [{name, dtype, shape, bytes, file}], parameters (elements of floating-point
 * tensors) and bytes. A checkpoint's tensors are the model's (dtype "F32": the master), bytes all planes'
 * together, file where the first element lies; besides: step, model_type, world_size, planes, training and
 * files: [{name, bytes, elements}]. A model has model_type and files. A file has metadata. An output_dir has
 * checkpoints: [{path, step, bytes, whole, error}] in order of steps, newest (a path, or null) and model (a
 * path, or null).
 */
#ifndef FERRY_CHECKPOINT_INSPECT_H
#define FERRY_CHECKPOINT_INSPECT_H

#include "base/json.h"

/* A new object (json_decref). ERR_INPUT: there is nothing, or none of the above; the readers' own errors. */
int inspect_path(json_t **out, const char *path);

#endif
