/* Turns numbers of a file's format into planes, and planes into numbers. */
#include "checkpoint/file/weights.h"

#include "base/err.h"
#include "base/num.h"
#include "base/size.h"
#include "checkpoint/file/convert.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Elements on the stack: to put, as many as make copies to a device worth their wait; to get, what stays in
 * the cache. */
enum { PUT_COUNT = 64 << 10, PIECE_COUNT = 16 << 10 };

void weights_target_open(
        struct weights_target *target, const struct plane_sink *sink, const struct model *model)
{
	target->sink = sink;
	target->model = model;
	pthread_mutex_init(&target->lock, NULL);
}

void weights_target_close(struct weights_target *target)
{
	pthread_mutex_destroy(&target->lock);
}

/* ---- put ---- */

static void *address(
        const struct weights_target *t, int tensor, enum plane plane, int64_t first, int64_t count)
{
	return t->sink->at ? t->sink->at(t->sink->context, tensor, plane, first, count) : NULL;
}

static int write_plane(
        struct weights_target *t, int tensor, enum plane plane, int64_t first, int64_t count, const void *src)
{
	int err;

	pthread_mutex_lock(&t->lock);
	err = t->sink->write(t->sink->context, tensor, plane, first, count, src);
	pthread_mutex_unlock(&t->lock);
	return err;
}

/* Splits `count` elements into halves. lo may be NULL for a format that fits in hi. */
static int split(enum format format, uint16_t *hi, int16_t *lo, const void *src, int64_t count)
{
	switch (format) {
	case FORMAT_F32:
		return convert_kernels()->f32(hi, lo, src, count);
	case FORMAT_F16:
		return convert_kernels()->f16(hi, lo, src, count);
	case FORMAT_BF16:
		if (src != hi)
			memcpy(hi, src, (size_t)count * sizeof(*hi));
		if (lo)
			memset(lo, 0, (size_t)count * sizeof(*lo));
		return convert_kernels()->bf16(hi, count);
	default: /* all formats of weights are above */
		break;
	}
	assert(!"a format of weights");
	return WEIGHTS_NOT_FINITE;
}

static const struct weight_format *kept_of(const struct weights_target *t, int tensor)
{
	return t->sink->format ? t->sink->format(t->sink->context, tensor) : &weight_formats[WEIGHT_FP32];
}

/* Whether the sink takes the low half of numbers in this format. */
static int needs_lo(const struct weights_target *t, enum format format, int tensor)
{
	if (!plane_is_in(PLANE_LO, kept_of(t, tensor)->planes))
		return 0;
	return !format_fits(format, DTYPE_BF16) || !t->sink->is_zero;
}

int64_t weights_granule(const struct weights_target *t, int tensor)
{
	return weight_format_granule(kept_of(t, tensor), model_tensor_cols(&t->model->tensors[tensor]));
}

/* Returns WEIGHTS_NOT_FINITE if one is not. */
static int widen(float *dst, enum format format, const void *src, int64_t count)
{
	int is_finite = 1;

	for (int64_t i = 0; i < count; i++) {
		dst[i] = format == FORMAT_F32   ? ((const float *)src)[i]
		         : format == FORMAT_F16 ? f16_to_f32(((const uint16_t *)src)[i])
		                                : bf16_to_f32(((const uint16_t *)src)[i]);
		is_finite &= isfinite(dst[i]) != 0;
	}
	return is_finite ? 0 : WEIGHTS_NOT_FINITE;
}

/* Makes codes and scales, some rows of blocks at once. */
static int put_codes(struct weights_target *t, enum format format, int tensor, int64_t first, int64_t count,
        const void *src)
{
	const struct weight_format *kept = kept_of(t, tensor);
	int64_t cols = model_tensor_cols(&t->model->tensors[tensor]), granule = weights_granule(t, tensor),
	        most = PUT_COUNT / granule * granule, width = dtype_bytes(format_facts[format].element);
	float value[PUT_COUNT], scales[PUT_COUNT / 8];
	char codes[PUT_COUNT];
	int err = 0;

	if (!most || weight_format_scales(kept, most / cols, cols) > PUT_COUNT / 8 || kept->code_bits > 8)
		return err_set(ERR_UNSUPPORTED, "tensor %s is too wide for the format %s",
		        t->model->tensors[tensor].name, kept->name);
	for (int64_t at = 0, part; at < count && !err; at += part) {
		part = min_i64(most, count - at);
		err = widen(value, format, (const char *)src + at * width, part);
		if (err)
			break;
		kept->put(codes, scales, value, part / cols, cols);
		err = write_plane(t, tensor, PLANE_CODES, first + at, part, codes);
		if (!err)
			err = write_plane(t, tensor, PLANE_CODE_SCALE, first + at, part, scales);
	}
	return err;
}

int weights_put(struct weights_target *t, enum format format, int tensor, int64_t first, int64_t count,
        const void *src)
{
	int64_t width = dtype_bytes(format_facts[format].element), most;
	int keeps_lo = needs_lo(t, format, tensor), makes_lo = keeps_lo || format != FORMAT_BF16, err = 0;
	uint16_t *hi = address(t, tensor, PLANE_HI, first, count), hi_piece[PUT_COUNT];
	int16_t *lo = keeps_lo ? address(t, tensor, PLANE_LO, first, count) : NULL, lo_piece[PUT_COUNT];

	if (weight_format_is_coded(kept_of(t, tensor)))
		return put_codes(t, format, tensor, first, count, src);
	if (!hi && format == FORMAT_BF16 && !keeps_lo) /* src is the plane */
		return convert_kernels()->bf16(src, count)
		               ? WEIGHTS_NOT_FINITE
		               : write_plane(t, tensor, PLANE_HI, first, count, src);
	most = hi && (lo || !makes_lo) ? count : PUT_COUNT;
	for (int64_t at = 0, part; at < count && !err; at += part) {
		uint16_t *to_hi = hi ? hi + at : hi_piece;
		int16_t *to_lo = lo ? lo + at : makes_lo ? lo_piece : NULL;

		part = min_i64(most, count - at);
		err = split(format, to_hi, to_lo, (const char *)src + at * width, part);
		if (!err && !hi)
			err = write_plane(t, tensor, PLANE_HI, first + at, part, to_hi);
		if (!err && keeps_lo && !lo)
			err = write_plane(t, tensor, PLANE_LO, first + at, part, to_lo);
	}
	return err;
}

void *weights_place(
        const struct weights_target *t, enum format format, int tensor, int64_t first, int64_t count)
{
	return format == FORMAT_BF16 && plane_is_in(PLANE_HI, kept_of(t, tensor)->planes)
	               ? address(t, tensor, PLANE_HI, first, count)
	               : NULL;
}

/* ---- get ---- */

/* Gets elements of a plane: *out is where they lie, or `piece`. */
static int plane_get(const void **out, const struct plane_source *s, int tensor, enum plane plane,
        int64_t first, int64_t count, void *piece)
{
	int err = 0;

	*out = NULL;
	if (s->at)
		err = s->at(s->context, tensor, plane, first, count, out);
	if (err || *out)
		return err;
	*out = piece;
	return s->read(s->context, tensor, plane, first, count, piece);
}

static int read_halves(const struct plane_source *s, int tensor, int64_t first, int64_t count, float *dst)
{
	uint16_t hi_piece[PIECE_COUNT];
	int16_t lo_piece[PIECE_COUNT];
	int err = 0;

	for (int64_t at = 0, part; at < count && !err; at += part) {
		const void *hi, *lo;

		part = min_i64(PIECE_COUNT, count - at);
		err = plane_get(&hi, s, tensor, PLANE_HI, first + at, part, hi_piece);
		if (!err)
			err = plane_get(&lo, s, tensor, PLANE_LO, first + at, part, lo_piece);
		if (!err)
			convert_kernels()->join(dst + at, hi, lo, part);
	}
	return err;
}

int weights_read(const struct plane_source *s, int tensor, int64_t first, int64_t count, float *dst)
{
	return s->floats ? s->floats(s->context, tensor, first, count, dst)
	                 : read_halves(s, tensor, first, count, dst);
}

/* Numbers of a source that has no planes, rounded to nearest even as in other programs. */
static int read_rounded(const struct plane_source *s, int tensor, int64_t first, int64_t count, uint16_t *dst)
{
	float piece[PIECE_COUNT];
	int err = 0;

	for (int64_t at = 0, part; at < count && !err; at += part) {
		part = min_i64(PIECE_COUNT, count - at);
		err = s->floats(s->context, tensor, first + at, part, piece);
		for (int64_t i = 0; i < part && !err; i++)
			dst[at + i] = bf16_from_f32(piece[i]);
	}
	return err;
}

int weights_get(const void **out, const struct plane_source *s, enum format format, int tensor, int64_t first,
        int64_t count, void *buffer)
{
	*out = buffer;
	assert(format == FORMAT_F32 || format == FORMAT_BF16);
	if (format == FORMAT_F32)
		return weights_read(s, tensor, first, count, buffer);
	return s->read ? plane_get(out, s, tensor, PLANE_HI, first, count, buffer)
	               : read_rounded(s, tensor, first, count, buffer);
}
