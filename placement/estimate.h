/* Weights by dtype, nothing else: the table that `accelerate estimate-memory` prints, for comparison.
 *
 * Its totals are those of transformers' AutoModel without LM head, in the given dtype, with the model's
 * registered buffers: the rotary frequencies, twice, in fp32 (GPT-2 has none). The largest layer is a block
 * or the embedding. "Training with Adam" is four times the total: weights, gradients, two moments.
 * Accelerate's documentation shows it for all four dtypes; its later versions print it for float32 and
 * float16 only. A run of ferry needs other amounts, which a plan counts from its operations.
 *
 * BERT, the example of that documentation, is also counted where ferry cannot train it.
 *
 * Source: accelerate's usage guide "Model memory estimator"; tests/golden/make_estimate_golden.py runs
 * accelerate itself.
 */
#ifndef FERRY_PLACEMENT_ESTIMATE_H
#define FERRY_PLACEMENT_ESTIMATE_H

#include "base/json.h"
#include "base/str.h"
#include "model/model.h"

struct estimate {
	char *model_type;
	int64_t total_bytes, largest_bytes; /* in float32 */
};

/* path: a config.json or its directory. ERR_INPUT, ERR_UNSUPPORTED (neither BERT nor a family of ferry). */
int estimate_read(struct estimate *e, const char *path);
void estimate_of_model(struct estimate *e, const struct model *model); /* model_type stays NULL */
void estimate_free(struct estimate *e);

/* Appends the table: a heading and four rows. */
void estimate_text(struct str *out, const struct estimate *e);

/* [{"dtype", "largest_layer_bytes", "total_bytes", "adam_bytes"}, ...]; NULL if out of memory. */
json_t *estimate_json(const struct estimate *e);

#endif
