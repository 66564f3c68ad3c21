/* Planes in memory as the target of loading, and contents to compare them with.
 *
 * *Planes* are the arrays of a tensor's master weights and optimizer moments. The content of the files is
 * a function of tensor, plane and place. Loading writes to the planes by pieces or by address, as `hidden`
 * says.
 */
#ifndef FERRY_TESTS_LOADED_PLANES_H
#define FERRY_TESTS_LOADED_PLANES_H

#include "base/mem.h"
#include "base/num.h"
#include "checkpoint/load.h"
#include "model/model.h"
#include "tests/check.h"
#include "tests/plane_element.h"
#include "tests/sparing.h"

#include <stdatomic.h>
#include <string.h>

enum { TENSORS_MAX = 64, EACH = SANITIZED ? 11 : 1 }; /* every EACH-th element is compared */

static const enum adamw_state planes_format = ADAMW_STATE_F32;

/* Planes of all tensors. If `hidden` returns 1, a plane gives no address, so loading writes pieces. */
struct planes {
	const struct model *model;
	char *bytes[PLANE_COUNT][TENSORS_MAX];
	int (*hidden)(int tensor, enum plane plane);
	int64_t addressed, written;
	atomic_int writers, crowd; /* threads inside planes_write; 1 if there were ever two */
};

/* A finite value, also as a pair of hi and lo, in `width` bytes: 2, or 4. Cheap, because tests call it for
 * each element. */
static inline uint32_t value_of(enum plane plane, int width, int tensor, int64_t index)
{
	uint64_t bits = ((uint64_t)index * PLANE_COUNT + (uint64_t)plane + ((uint64_t)tensor << 40) + 1) *
	                UINT64_C(0x9e3779b97f4a7c15);

	bits ^= bits >> 29;
	return plane == PLANE_HI ? (bits & 0xbf7f) | 0x0100 : width == 2 ? bits & 0xffff : bits & 0xbf7fffff;
}

static inline void planes_open(
        struct planes *p, const struct model *model, int (*hidden)(int tensor, enum plane plane))
{
	*p = (struct planes){.model = model, .hidden = hidden};
	for (int plane = 0; plane <= PLANE_V; plane++)
		for (int t = 0; t < model->tensor_count; t++) {
			p->bytes[plane][t] = mem_alloc((size_t)model->tensors[t].count,
			        (size_t)plane_width((enum plane)plane, planes_format));
			assert_non_null(p->bytes[plane][t]);
		}
}

static inline void planes_close(struct planes *p)
{
	for (int plane = 0; plane <= PLANE_V; plane++)
		for (int t = 0; t < p->model->tensor_count; t++)
			mem_free(p->bytes[plane][t]);
}

static inline char *place(struct planes *p, int tensor, enum plane plane, int64_t first, int64_t count)
{
	assert_true(tensor >= 0 && tensor < p->model->tensor_count && first >= 0 && count > 0 &&
	            first + count <= p->model->tensors[tensor].count);
	return p->bytes[plane][tensor] + first * plane_width(plane, planes_format);
}

static inline int planes_write(
        void *context, int tensor, enum plane plane, int64_t first, int64_t count, const void *src)
{
	struct planes *p = context;

	assert_true(count <= PLANE_PIECE_COUNT);
	if (atomic_fetch_add(&p->writers, 1))
		atomic_store(&p->crowd, 1);
	memcpy(place(p, tensor, plane, first, count), src,
	        (size_t)(count * plane_width(plane, planes_format)));
	p->written += count;
	atomic_fetch_sub(&p->writers, 1);
	return 0;
}

static inline void *planes_at(void *context, int tensor, enum plane plane, int64_t first, int64_t count)
{
	struct planes *p = context;

	__atomic_add_fetch(&p->addressed, count, __ATOMIC_RELAXED);
	return p->hidden && p->hidden(tensor, plane) ? NULL : place(p, tensor, plane, first, count);
}

static inline int planes_read(
        void *context, int tensor, enum plane plane, int64_t first, int64_t count, void *dst)
{
	int width = plane_width(plane, planes_format);

	(void)context;
	for (int64_t i = 0; i < count; i++)
		element_put(dst, width, i, value_of(plane, width, tensor, first + i));
	return 0;
}

static inline int hide_all(int tensor, enum plane plane)
{
	(void)tensor, (void)plane;
	return 1;
}

static inline int hide_some(int tensor, enum plane plane)
{
	return (tensor + (int)plane) % 3 == 0;
}

static int (*const hiding[])(int tensor, enum plane plane) = {NULL, hide_all, hide_some};

static inline struct plane_sink sink_of(struct planes *p, int is_zero)
{
	return (struct plane_sink){.context = p, .write = planes_write, .at = planes_at, .is_zero = is_zero};
}

/* The number of elements that differ from the files of this dtype. */
static inline int64_t planes_differ(const struct planes *p, enum safetensors_dtype dtype)
{
	int64_t differ = 0;

	for (int t = 0; t < p->model->tensor_count; t++)
		for (int64_t i = 0; i < p->model->tensors[t].count; i += EACH) {
			uint16_t hi = (uint16_t)value_of(PLANE_HI, 2, t, i);
			int16_t lo = dtype == SAFETENSORS_BF16 ? 0 : (int16_t)value_of(PLANE_LO, 2, t, i);
			uint32_t bits = plane_join(hi, lo), got;

			got = plane_join(((uint16_t *)p->bytes[PLANE_HI][t])[i],
			        ((int16_t *)p->bytes[PLANE_LO][t])[i]);
			differ += got != bits;
		}
	return differ;
}

#endif
