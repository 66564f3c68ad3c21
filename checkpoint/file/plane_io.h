/* The interface to weights and optimizer state for loading and saving, independent of the memory that holds
 * them.
 *
 * A tensor is an index into the model's table, a range is elements of one tensor. The owner of the planes
 * (the store, a test's arrays) implements a source for reading and a sink for writing. Transfers split
 * ranges into pieces of at most PLANE_PIECE_COUNT elements. They read a source in rising order and write a
 * sink in any order.
 *
 * Several threads load. If a sink knows the host address of the elements, they are read from the file
 * directly to that place.
 *
 * read and write return 0 or ERR_* with a text; the error ends the transfer and reaches its caller. One
 * thread at a time calls them; it may differ from the thread that started the transfer.
 */
#ifndef FERRY_CHECKPOINT_FILE_PLANE_IO_H
#define FERRY_CHECKPOINT_FILE_PLANE_IO_H

#include "optim/weight_format.h"

#include <stdint.h>

enum { PLANE_PIECE_COUNT = 512 << 10 };

struct plane_source {
	void *context;
	/* Computes fp32 weights, for a source without planes, or with none of some tensors. NULL: it has
	 * planes of all. checkpoint/file/weights.h reads both. */
	int (*floats)(void *context, int tensor, int64_t first_element, int64_t count, float *dst);
	/* Copies elements of a plane. NULL: it has none. */
	int (*read)(
	        void *context, int tensor, enum plane plane, int64_t first_element, int64_t count, void *dst);
	/* Sets *at to the host address of these elements if they are contiguous in host memory, unchanged
	 * until done; waits as read does. NULL: use read. The callback may be NULL. */
	int (*at)(void *context, int tensor, enum plane plane, int64_t first_element, int64_t count,
	        const void **at);
	/* The reader needs no more of the range that begins with this element, or of any with
	 * PLANE_SOURCE_END, so waiting planes may change. checkpoint/save.h calls it for each of its ranges,
	 * also after an error. May be NULL. */
	void (*done)(void *context, int tensor, int64_t first);
};
enum { PLANE_SOURCE_END = -1 };

struct plane_sink {
	void *context;
	int (*write)(void *context, int tensor, enum plane plane, int64_t first_element, int64_t count,
	        const void *src);
	/* Returns the host address of these elements if they are contiguous in host memory; any thread fills
	 * them. NULL: use write. The callback may be NULL. */
	void *(*at)(void *context, int tensor, enum plane plane, int64_t first_element, int64_t count);
	/* Elements of a range that are in the same piece as its first one: scales of scales are written
	 * piece by piece. NULL: all are. */
	int64_t (*run)(void *context, int tensor, int64_t first_element, int64_t count);
	int is_zero; /* 1: planes are zero at first, so the transfer may skip zeros */
	/* 1: the owner keeps frozen weights in their formats for stages that compute in compute_dtype
	 * (model_tensor_format), and takes only the planes of these. 0: it keeps all as fp32. */
	int keeps_formats;
	enum dtype compute_dtype;
};

/* Elements [first, first + count) of one tensor. */
struct plane_range {
	int tensor;
	int64_t first, count;
};

/* Whoever reads ranges of weights into a sink, with any number of threads. 0 or ERR_*. */
typedef int plane_fill(
        void *context, const struct plane_sink *sink, const struct plane_range *ranges, int64_t range_count);

#endif
