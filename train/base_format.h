/* The format of frozen matrices in memory: what the key base_format asks for, and the files' own. */
#ifndef FERRY_TRAIN_BASE_FORMAT_H
#define FERRY_TRAIN_BASE_FORMAT_H

#include "config/config.h"
#include "model/model.h"

/* Sets `kept` of the frozen matrices of blocks, and what products read (train/products.h). Embeddings,
 * heads, norms and biases stay as they are, and so does what trains. Needs to know what trains
 * (model_freeze). `leaves_base`: the run has the frozen weights in the model's files. ERR_INPUT,
 * ERR_UNSUPPORTED: the format does not fit the run or a matrix. */
int base_format_set(struct model *model, const struct config *c, int leaves_base);

/* The same for a command that trains nothing: freezes and keeps in codes the matrices that the files have so
 * or that the key quantizes. Adapters must be there. */
int base_format_infer(struct model *model, const struct config *c);

/* Says whose weights the result has, if those of the run were quantized. `coded`: what the model's files are
 * quantized to, or NULL. */
void base_format_say_result(const struct model *model, const struct config *c, const char *coded);

/* 1 if it is a matrix of a block that multiplies activations, and no router. */
int base_format_is_matrix(const struct model_tensor *tensor);

/* 1 if a tensor is a matrix that base_format is about. */
int base_format_is_of(const struct model_tensor *tensor);

#endif
