/* The parts of an attention op that cuDNN computes one after the other.
 *
 * A deterministic backward needs workspace for every document and every kv head of one call (143 MB for one
 * of 4096 tokens and 4 query heads). An op's scratch has less room. The results of a document's kv head and
 * its query heads depend on no other head or document. So calls follow each other, each for `documents` and
 * `kv_heads`, and all use the same workspace. */
#ifndef FERRY_GPU_CUDA_DNN_PART_H
#define FERRY_GPU_CUDA_DNN_PART_H

#include "device/op_attention.h"

struct cuda_dnn_part {
	int64_t documents, kv_heads;
};

/* The largest part that fits room_bytes, at one_bytes for a document's kv head: whole documents, or kv heads
 * of one document. It is at least {1, 1} and divides `all`. */
struct cuda_dnn_part cuda_dnn_part_choose(struct cuda_dnn_part all, int64_t one_bytes, int64_t room_bytes);

/* The op with its addresses moved to a document and a kv head; sizes and scratch stay those of the whole op.
 */
struct op_attention_grad cuda_dnn_part_of(
        const struct op_attention_grad *op, int64_t document, int64_t kv_head);

#endif
