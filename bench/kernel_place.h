/* Operands of benchmarked ops: memory for them, and arrays that must not be random. */
#ifndef FERRY_BENCH_KERNEL_PLACE_H
#define FERRY_BENCH_KERNEL_PLACE_H

#include "base/size.h"
#include "bench/rig.h"

/* Hands out device memory, aligned to 256 bytes, for one set of operands. */
struct kernel_place {
	dev_addr base;
	int64_t used_bytes;
};

/* The next `count` elements of the place. */
static inline dev_addr kernel_take(struct kernel_place *p, int64_t count, enum dtype dtype)
{
	dev_addr at = dev_at(p->base, p->used_bytes);

	p->used_bytes += (count * dtype_bytes(dtype) + 255) / 256 * 256;
	return at;
}

/* Preference pairs of a micro-batch: two documents each. */
static inline int64_t kernel_pairs(const struct bench_scale *scale)
{
	return max_i64(1, scale->tokens / scale->document_tokens / 2);
}

/* Operands that must not be random: int32 index arrays, [tokens] each, and the rotary table. All sets share
 * them. */
struct kernel_index {
	dev_addr position, doc_start, doc_end, /* documents of scale.document_tokens */
	        id,                            /* below vocab, some repeated */
	        order,                         /* each number below tokens once */
	        label, first,                  /* begin of each text of the pairs, and the end of the last */
	        last,                          /* last token of each of these texts */
	        expert, expert_rows, /* of KERNEL_EXPERTS the one of each row; the first row of each */
	        rope;                /* F32 [document_tokens, head_dim] */
};
enum { KERNEL_INDEX_COUNT = 10, KERNEL_EXPERTS = 8 };

#endif
