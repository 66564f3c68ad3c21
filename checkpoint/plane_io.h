/* How weights and optimizer state come and go without this folder knowing where they live.
 *
 * A tensor is a number of the model's table, a range is elements inside one tensor. Whoever holds the planes
 * (the store, a test's arrays) implements a source to be read from and a sink to be written to. Ranges come
 * in pieces of at most PLANE_PIECE_COUNT elements; within one plane, those of a tensor in rising order.
 * Planes may come one after another (a checkpoint) or by turns (weights of a HuggingFace directory).
 *
 * Both return 0 or ERR_* with a text; the error ends the transfer and reaches its caller. They are called on
 * the thread that asked for the transfer.
 */
#ifndef FERRY_CHECKPOINT_PLANE_IO_H
#define FERRY_CHECKPOINT_PLANE_IO_H

#include <stdint.h>

/* HI: uint16, the bf16 weight; LO: int16; (hi << 16) + lo is the fp32 master (base/num.h).
 * M, V: fp32 moments of AdamW. */
enum plane { PLANE_HI, PLANE_LO, PLANE_M, PLANE_V, PLANE_COUNT };

enum { PLANE_PIECE_COUNT = 512 << 10 };

static inline int plane_bytes(enum plane plane)
{
	return plane == PLANE_HI || plane == PLANE_LO ? 2 : 4;
}

struct plane_source {
	void *context;
	int (*read)(
	        void *context, int tensor, enum plane plane, int64_t first_element, int64_t count, void *dst);
};

struct plane_sink {
	void *context;
	int (*write)(void *context, int tensor, enum plane plane, int64_t first_element, int64_t count,
	        const void *src);
};

#endif
