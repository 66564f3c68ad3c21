/* The parts of an attention op that cuDNN computes one after the other.
 *
 * A deterministic backward needs workspace for every document and every kv head of one call (143 MB for one
 * of 4096 tokens and 4 query heads), more than an op's scratch has room for. What is computed for a
 * document's kv head and its query heads depends on no other: so one call follows another, each of
 * `documents` and `kv_heads`, and each gets the same workspace. */
#ifndef FERRY_GPU_CUDA_DNN_PART_H
#define FERRY_GPU_CUDA_DNN_PART_H

#include "device/op_attention.h"

struct cuda_dnn_part {
	int64_t documents, kv_heads;
};

/* The largest part that `room_bytes` holds at one_bytes for a document's kv head: whole documents, or kv
 * heads of one; at least {1, 1}, divides `all`. */
struct cuda_dnn_part cuda_dnn_part_choose(struct cuda_dnn_part all, int64_t one_bytes, int64_t room_bytes);

/* The op with its addresses moved to a document and a kv head; sizes stay those of the whole, scratch too. */
struct op_attention_grad cuda_dnn_part_of(
        const struct op_attention_grad *op, int64_t document, int64_t kv_head);

#endif
