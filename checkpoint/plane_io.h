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

#include "optim/plane.h"

enum { PLANE_PIECE_COUNT = 512 << 10 };

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
