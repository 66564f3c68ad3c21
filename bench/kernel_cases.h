/* The ops as a model calls them: one row for each op and variant, in the shapes of a scale (rig.h). */
#ifndef FERRY_BENCH_KERNEL_CASES_H
#define FERRY_BENCH_KERNEL_CASES_H

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

/* Operands that must not be random: int32 index arrays, [tokens] each, and the rotary table. All sets share
 * them. */
struct kernel_index {
	dev_addr position, doc_start, doc_end, /* documents of scale.document_tokens */
	        id,                            /* below vocab, some repeated */
	        order,                         /* each number below tokens once */
	        label, first,                  /* begin of each text of the pairs, and the end of the last */
	        rope;                          /* F32 [document_tokens, head_dim] */
};
enum { KERNEL_INDEX_COUNT = 7 };

enum kernel_limit { KERNEL_COPY, KERNEL_PRODUCT };

struct kernel_case {
	const char *name;
	enum op_kind kind;
	enum dtype dtype;
	int variant; /* its meaning depends on the op */
	enum kernel_limit limit;
};

/* Preference pairs of a micro-batch: two documents each. */
int64_t kernel_pairs(const struct bench_scale *scale);

/* Rows in order; NULL after the last. */
const struct kernel_case *kernel_case_at(int index);

/* Fills in the op, with operands from `place`. */
void kernel_case_make(const struct kernel_case *k, struct op *op, struct kernel_place *place,
        const struct bench_scale *scale, const struct kernel_index *index);

#endif
