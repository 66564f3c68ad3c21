/* Describes the contents of a file or directory as a JSON object. Reads only headers and manifests.
 *
 * Its `kind` is one of
 *
 *     "safetensors"  one file
 *     "model"        a HuggingFace directory
 *     "checkpoint"   a ferry checkpoint
 *     "output_dir"   the directory of a training run: checkpoints and perhaps model/
 *
 * The first three have tensors: [{name, dtype, shape, bytes, file}], parameters (elements of floating-point
 * tensors) and bytes. In a checkpoint, tensors are those of the model (dtype "F32": the master weights),
 * bytes counts all planes, and file has the first element. It also has step, model_type, world_size, planes,
 * training and files: [{name, bytes, elements}]. A model has model_type and files. A file has metadata. An
 * output_dir has checkpoints: [{path, step, bytes, whole, error}] in order of steps, newest (a path, or null)
 * and model (a path, or null).
 */
#ifndef FERRY_CHECKPOINT_INSPECT_H
#define FERRY_CHECKPOINT_INSPECT_H

#include "base/json.h"

/* Returns a new object (json_decref). ERR_INPUT: the path does not exist or is none of the above; also the
 * readers' errors. */
int inspect_path(json_t **out, const char *path);

#endif
