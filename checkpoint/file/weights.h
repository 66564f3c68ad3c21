/* Weights as numbers of a file's format, in and out of the planes that hold them.
 *
 * Mental model. A source or a sink (plane_io.h) knows planes. Who loads, draws, merges or exports
 * thinks in floats. These functions are the only place in checkpoint/ that turns one into the other:
 *
 *     weights_put   F32, F16 or BF16 -> the planes of a sink
 *     weights_get   a source -> F32, or BF16 as it crosses to the device
 *
 * Weights come in pieces of one tensor. Where the planes lie in host memory, the loops of
 * checkpoint/file/convert.h work on them directly; else pieces go through a small buffer on the stack.
 */
#ifndef FERRY_CHECKPOINT_FILE_WEIGHTS_H
#define FERRY_CHECKPOINT_FILE_WEIGHTS_H

#include "base/dtype.h"
#include "checkpoint/file/plane_io.h"
#include "model/model.h"

#include <pthread.h>

/* A sink that several threads fill. */
struct weights_target {
	const struct plane_sink *sink;
	const struct model *model;
	pthread_mutex_t lock; /* held while the sink writes */
	/* [tensor_count]: fp32 scales of tensors that need all of them at once (NESTED), while they are
	 * put. */
	struct weights_pending {
		float *scales;
		int64_t put_count; /* elements */
	} * pending;
};
void weights_target_open(
        struct weights_target *target, const struct plane_sink *sink, const struct model *model);
void weights_target_close(struct weights_target *target);

/* Ranges to put begin and end at multiples of this, or at the tensor's end. */
int64_t weights_granule(const struct weights_target *target, int tensor);

/* Puts elements of a tensor, which `src` holds in `format` (F32, F16, BF16). Returns WEIGHTS_NOT_FINITE if
 * one is not finite; the planes are then undefined. */
enum { WEIGHTS_NOT_FINITE = 1 };
int weights_put(struct weights_target *target, enum format format, int tensor, int64_t first, int64_t count,
        const void *src);

/* The format in which a tensor is kept. weights_put_plane puts a range of one of its planes as it is
 * (plane_io.h): codes that the files have. */
const struct weight_format *weights_kept(const struct weights_target *target, int tensor);
int weights_put_plane(struct weights_target *target, int tensor, enum plane plane, int64_t first,
        int64_t count, const void *src);

/* Puts the NESTED scales of a whole tensor: its fp32 numbers [nested_outer_count], and the codes. */
int weights_put_nested(struct weights_target *target, int tensor, const float *outer, const uint8_t *codes);

/* Where the planes hold numbers in `format` as they are, and contiguous: their address, for reading a file
 * to. weights_put must follow, with this address as src. Else NULL. */
void *weights_place(
        const struct weights_target *target, enum format format, int tensor, int64_t first, int64_t count);

/* Gets elements of a tensor in F32 or BF16: the HI plane (ties away), or, from a source of numbers, these
 * rounded to nearest even. *out is `buffer`, or the
 * place where they lie. weights_read always fills dst. */
int weights_get(const void **out, const struct plane_source *source, enum format format, int tensor,
        int64_t first, int64_t count, void *buffer);
int weights_read(const struct plane_source *source, int tensor, int64_t first, int64_t count, float *dst);

#endif
