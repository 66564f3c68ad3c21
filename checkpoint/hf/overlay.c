/* Reads each tensor from the source that has it. */
#include "checkpoint/hf/overlay.h"

#include "base/num.h"
#include "base/size.h"
#include "checkpoint/file/weights.h"

enum { PIECE_COUNT = 16 << 10 }; /* on the stack */

static int overlay_floats(void *context, int tensor, int64_t first, int64_t count, float *dst)
{
	struct overlay *o = context;

	return o->has(o->context, tensor) ? weights_read(o->top, tensor, first, count, dst)
	                                  : hf_import_read(o->files, dst, tensor, first, count);
}

/* HI or LO of numbers that are only floats. */
static int halves_read(
        struct overlay *o, int tensor, enum plane plane, int64_t first, int64_t count, void *dst)
{
	float piece[PIECE_COUNT];
	int err = 0;

	for (int64_t at = 0, part; at < count && !err; at += part) {
		part = min_i64(PIECE_COUNT, count - at);
		err = overlay_floats(o, tensor, first + at, part, piece);
		for (int64_t i = 0; i < part && !err; i++)
			if (plane == PLANE_HI)
				((uint16_t *)dst)[at + i] = plane_hi(f32_bits(piece[i]));
			else
				((int16_t *)dst)[at + i] = plane_lo(f32_bits(piece[i]));
	}
	return err;
}

static int overlay_read(void *context, int tensor, enum plane plane, int64_t first, int64_t count, void *dst)
{
	struct overlay *o = context;

	return o->top->read && o->has(o->context, tensor)
	               ? o->top->read(o->top->context, tensor, plane, first, count, dst)
	               : halves_read(o, tensor, plane, first, count, dst);
}

static int overlay_at(
        void *context, int tensor, enum plane plane, int64_t first, int64_t count, const void **at)
{
	struct overlay *o = context;

	*at = NULL;
	return o->top->at && o->has(o->context, tensor)
	               ? o->top->at(o->top->context, tensor, plane, first, count, at)
	               : 0;
}

void overlay_set(struct overlay *o, struct hf_import *files, const struct plane_source *top,
        int (*has)(const void *context, int tensor), const void *context)
{
	*o = (struct overlay){
	        .source = {.context = o, .floats = overlay_floats, .read = overlay_read, .at = overlay_at},
	        .top = top,
	        .has = has,
	        .context = context,
	        .files = files};
}
