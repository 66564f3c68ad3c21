/* How weights and optimizer state come and go without this folder knowing where they live.
 *
 * A tensor is a number of the model's table, a range is elements inside one tensor. Whoever holds the planes
 * (the store, a test's arrays) implements a source to be read from and a sink to be written to. Ranges come
 * in pieces of at most PLANE_PIECE_COUNT elements, from a source in rising order, into a sink in any order.
 *
 * Loading is done by several threads, and nothing is copied that need not be: where a sink can say at which
 * address of host memory elements lie, they are read from the file to that place.
 *
 * read and write return 0 or ERR_* with a text; the error ends the transfer and reaches its caller. They are
 * called by one thread at a time, which may not be the one that asked for the transfer.
 */
#ifndef FERRY_CHECKPOINT_PLANE_IO_H
#define FERRY_CHECKPOINT_PLANE_IO_H

#include <stdint.h>

/* HI: uint16, the bf16 weight; LO: int16; (hi << 16) + lo is the fp32 master (base/num.h).
 * M, V: moments of AdamW, of the state that goes with them: fp32, bf16, or 8-bit codes with fp32 scales, one
 * for every PLANE_BLOCK_COUNT elements of the tensor. Ranges of scales are named by the elements that they
 * are of: they begin at a block's border and end at one, or where the tensor ends. */
enum plane { PLANE_HI, PLANE_LO, PLANE_M, PLANE_V, PLANE_M_SCALE, PLANE_V_SCALE, PLANE_COUNT };
enum plane_state { PLANE_STATE_F32, PLANE_STATE_BF16, PLANE_STATE_8BIT, PLANE_STATE_COUNT };

enum { PLANE_BLOCK_COUNT = 256, PLANE_PIECE_COUNT = 512 << 10 };

/* Sets of planes: bit 1 << enum plane. */
enum {
	PLANES_WEIGHT = 1 << PLANE_HI | 1 << PLANE_LO,
	PLANES_MOMENT = 1 << PLANE_M | 1 << PLANE_V,
	PLANES_SCALE = 1 << PLANE_M_SCALE | 1 << PLANE_V_SCALE,
};

/* All planes of a training run with that state. */
static inline unsigned planes_of(enum plane_state state)
{
	return PLANES_WEIGHT | PLANES_MOMENT | (state == PLANE_STATE_8BIT ? PLANES_SCALE : 0u);
}

/* How many numbers of a plane belong to `count` elements. */
static inline int64_t plane_numbers(enum plane plane, int64_t count)
{
	if (!(PLANES_SCALE >> plane & 1))
		return count;
	return count / PLANE_BLOCK_COUNT + (count % PLANE_BLOCK_COUNT != 0);
}

/* Bytes of each. */
static inline int plane_width(enum plane plane, enum plane_state state)
{
	if (PLANES_WEIGHT >> plane & 1)
		return 2;
	if (PLANES_SCALE >> plane & 1)
		return 4;
	return state == PLANE_STATE_F32 ? 4 : state == PLANE_STATE_BF16 ? 2 : 1;
}

static inline int64_t plane_bytes(enum plane plane, enum plane_state state, int64_t count)
{
	return plane_numbers(plane, count) * plane_width(plane, state);
}

/* "hi", "lo", "m", "v", "m_scale", "v_scale" */
const char *plane_name(enum plane plane);

/* "fp32", "bf16", "8bit", as optimizer_state= has them. */
const char *plane_state_name(enum plane_state state);

/* Planes in the order in which a shard file has those of a range: wide numbers first, so that few are cut by
 * the border of a block of checksums. */
const enum plane *plane_file_order(enum plane_state state);

struct plane_source {
	void *context;
	int (*read)(
	        void *context, int tensor, enum plane plane, int64_t first_element, int64_t count, void *dst);
	/* Where these elements lie in host memory, one behind the other, unchanged until done; waits as read
	 * does. *at is NULL for ones that are elsewhere, to be had by read. The callback may be NULL. */
	int (*at)(void *context, int tensor, enum plane plane, int64_t first_element, int64_t count,
	        const void **at);
	/* Nothing more of this tensor will be read, or, with PLANE_SOURCE_END, of any: said by
	 * checkpoint/save.h, after an error too, so that planes that wait for it may change. May be NULL. */
	void (*done)(void *context, int tensor);
};
enum { PLANE_SOURCE_END = -1 };

struct plane_sink {
	void *context;
	int (*write)(void *context, int tensor, enum plane plane, int64_t first_element, int64_t count,
	        const void *src);
	/* Where these elements lie in host memory, one behind the other, to be filled by any thread; NULL for
	 * ones that are elsewhere, which then come by way of write. The callback may be NULL. */
	void *(*at)(void *context, int tensor, enum plane plane, int64_t first_element, int64_t count);
	int is_zero; /* 1: planes hold zeros until they are written, so zeros may be left out */
};

/* Elements [first, first + count) of one tensor. */
struct plane_range {
	int tensor;
	int64_t first, count;
};

#endif
