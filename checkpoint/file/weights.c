/* Turns numbers of a file's format into planes, and planes into numbers. */
#include "checkpoint/file/weights.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/size.h"
#include "checkpoint/file/convert.h"
#include "optim/weight_nearest.h"

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
	target->pending = NULL;
	pthread_mutex_init(&target->lock, NULL);
}

void weights_target_close(struct weights_target *target)
{
	for (int t = 0; target->pending && t < target->model->tensor_count; t++)
		mem_free(target->pending[t].scales);
	mem_free(target->pending);
	pthread_mutex_destroy(&target->lock);
}

/* ---- put ---- */

static void *address(
        const struct weights_target *t, int tensor, enum plane plane, int64_t first, int64_t count)
{
	return t->sink->at ? t->sink->at(t->sink->context, tensor, plane, first, count) : NULL;
}

int weights_put_plane(
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

const struct weight_format *weights_kept(const struct weights_target *t, int tensor)
{
	return t->sink->keeps_formats
	               ? model_tensor_format(&t->model->tensors[tensor], t->sink->compute_dtype)
	               : &weight_formats[WEIGHT_FP32];
}

/* Whether the sink takes the low half of numbers in this format. */
static int needs_lo(const struct weights_target *t, enum format format, int tensor)
{
	if (!plane_is_in(PLANE_LO, weights_kept(t, tensor)->planes))
		return 0;
	return !format_fits(format, DTYPE_BF16) || !t->sink->is_zero;
}

int64_t weights_granule(const struct weights_target *t, int tensor)
{
	return weight_format_granule(weights_kept(t, tensor), model_tensor_cols(&t->model->tensors[tensor]));
}

/* Returns WEIGHTS_NOT_FINITE if one is not. */
static int widen(float *dst, enum format format, const void *src, int64_t count)
{
	if (format == FORMAT_BF16)
		return weight_nearest_kernels()->widen(dst, src, count) ? WEIGHTS_NOT_FINITE : 0;
	if (format == FORMAT_F32)
		memcpy(dst, src, (size_t)count * sizeof(*dst));
	for (int64_t i = 0; i < count && format == FORMAT_F16; i++)
		dst[i] = f16_to_f32(((const uint16_t *)src)[i]);
	return convert_kernels()->check(dst, count) ? WEIGHTS_NOT_FINITE : 0;
}

/* ---- codes ---- */

/* Blocks that are made at once: some rows of a matrix, cut into strips of columns where these are many. */
struct strips {
	const struct weight_format *kept;
	int64_t cols, rows, width; /* of the piece; of a strip */
};

static struct strips strips_of(const struct weight_format *kept, int64_t cols, int64_t count)
{
	struct strips s = {kept, kept->is_flat ? count : cols, 1, 0};

	s.rows = count / s.cols;
	s.width = s.cols;
	if (count > PUT_COUNT)
		s.width = PUT_COUNT / s.rows / kept->block_cols * kept->block_cols;
	return s;
}

/* Elements of a piece: as many rows of blocks as a strip has room for, at least one. */
static int64_t piece_most(int64_t granule)
{
	return max_i64(PUT_COUNT / granule, 1) * granule;
}

/* Whether pieces fit the buffers: rows of whole blocks can be cut, blocks cannot. */
static int pieces_fit(const struct weight_format *kept, int64_t granule)
{
	int64_t narrowest = granule <= PUT_COUNT ? granule : kept->block_rows * kept->block_cols;

	return narrowest > 0 && narrowest <= PUT_COUNT;
}

/* Makes codes and scales of a piece. Codes of a strip lie beside those of the others. */
static int make_codes(
        const struct strips *s, enum format format, const char *src, uint8_t *codes, float *scales)
{
	enum code code = s->kept->code;
	int64_t width = dtype_bytes(format_facts[format].element);
	int64_t across = weight_format_scales(s->kept, s->kept->block_rows, s->cols);
	float value[PUT_COUNT];
	uint8_t own[PUT_COUNT];

	if (s->width == s->cols) {
		int err = widen(value, format, src, s->rows * s->cols);

		if (!err)
			s->kept->put(s->kept, codes, scales, value, s->rows, s->cols);
		return err;
	}
	for (int64_t c = 0; c < s->cols; c += s->width) { /* one row of blocks */
		int64_t n = min_i64(s->width, s->cols - c);

		for (int64_t r = 0; r < s->rows; r++)
			if (widen(value + r * n, format, src + (r * s->cols + c) * width, n))
				return WEIGHTS_NOT_FINITE;
		assert(c / s->kept->block_cols < across);
		s->kept->put(s->kept, own, scales + c / s->kept->block_cols, value, s->rows, n);
		for (int64_t r = 0; r < s->rows; r++)
			memcpy(codes + code_bytes(code, r * s->cols + c), own + r * code_bytes(code, n),
			        (size_t)code_bytes(code, n));
	}
	return 0;
}

/* Puts the scales of elements [first, first + count), which are a piece and begin with a block of scales. */
static int put_nested_piece(struct weights_target *t, int tensor, int64_t first, int64_t count,
        const float *outer, const uint8_t *codes)
{
	const struct weight_format *kept = weights_kept(t, tensor);
	int64_t cols = model_tensor_cols(&t->model->tensors[tensor]), rows = count / cols,
	        begin = weight_format_scale_begin(kept, rows, cols), at = first / kept->block_cols;
	char *bytes = mem_alloc((size_t)weight_format_scale_bytes(kept, rows, cols), 1);
	int err;

	if (!bytes)
		return ERR_NOMEM;
	assert(first % weight_format_align(kept) == 0);
	memcpy(bytes, outer, sizeof(*outer));
	memcpy(bytes + sizeof(*outer), outer + 1 + at / NESTED_BLOCK, (size_t)begin - sizeof(*outer));
	memcpy(bytes + begin, codes + at, (size_t)weight_format_scales(kept, rows, cols));
	err = weights_put_plane(t, tensor, PLANE_CODE_SCALE, first, count, bytes);
	mem_free(bytes);
	return err;
}

int weights_put_nested(struct weights_target *t, int tensor, const float *outer, const uint8_t *codes)
{
	int64_t all = t->model->tensors[tensor].count;
	int err = 0;

	for (int64_t first = 0, count; first < all && !err; first += count) {
		count = t->sink->run ? t->sink->run(t->sink->context, tensor, first, all - first) : all;
		err = put_nested_piece(t, tensor, first, count, outer, codes);
	}
	return err;
}

/* Keeps the scales of a tensor until all are there, then makes NESTED ones. */
static int put_nested(struct weights_target *t, int tensor, int64_t first, int64_t count, const float *scales)
{
	const struct model_tensor *m = &t->model->tensors[tensor];
	const struct weight_format *kept = weights_kept(t, tensor);
	int64_t rows = model_tensor_rows(m), cols = model_tensor_cols(m),
	        all = weight_format_scales(kept, rows, cols), put;
	struct weights_pending *p;
	float *outer;
	uint8_t *codes;
	int err = 0;

	pthread_mutex_lock(&t->lock);
	if (!t->pending)
		t->pending = mem_alloc((size_t)t->model->tensor_count, sizeof(*t->pending));
	p = t->pending ? &t->pending[tensor] : NULL;
	if (p && !p->scales)
		p->scales = mem_alloc((size_t)all, sizeof(*p->scales));
	if (!p || !p->scales)
		err = ERR_NOMEM;
	else
		memcpy(p->scales + first / kept->block_cols, scales,
		        (size_t)weight_format_scales(kept, 1, count) * sizeof(*scales));
	put = err ? 0 : (p->put_count += count);
	pthread_mutex_unlock(&t->lock);
	if (err || put < m->count)
		return err;
	outer = mem_alloc((size_t)nested_outer_count(all), sizeof(*outer));
	codes = mem_alloc((size_t)all, 1);
	err = outer && codes ? 0 : ERR_NOMEM;
	if (!err)
		nested_make(outer, codes, p->scales, all);
	mem_free(p->scales);
	if (!err)
		err = weights_put_nested(t, tensor, outer, codes);
	mem_free(codes);
	mem_free(outer);
	*p = (struct weights_pending){0};
	return err;
}

/* Writes the scales of a piece in the form in which they are kept. */
static int put_scales(struct weights_target *t, int tensor, int64_t first, int64_t count, float *scales,
        int64_t scale_count)
{
	const struct weight_format *kept = weights_kept(t, tensor);
	uint8_t *bytes = (uint8_t *)scales;

	if (kept->scale == CODE_SCALE_NESTED)
		return put_nested(t, tensor, first, count, scales);
	if (kept->scale == CODE_SCALE_E8M0) /* powers of two; in place */
		for (int64_t i = 0; i < scale_count; i++)
			bytes[i] = (uint8_t)(f32_bits(scales[i]) >> 23);
	return weights_put_plane(t, tensor, PLANE_CODE_SCALE, first, count, scales);
}

/* Makes codes and scales, some rows of blocks at once. */
static int put_codes(struct weights_target *t, enum format format, int tensor, int64_t first, int64_t count,
        const void *src)
{
	const struct weight_format *kept = weights_kept(t, tensor);
	int64_t cols = model_tensor_cols(&t->model->tensors[tensor]), granule = weights_granule(t, tensor),
	        most = piece_most(granule), width = dtype_bytes(format_facts[format].element);
	int64_t scale_count = weight_format_scales(kept, most / cols, cols);
	uint8_t *codes;
	float *scales;
	int err = 0;

	if (!pieces_fit(kept, granule))
		return err_set(ERR_UNSUPPORTED, "tensor %s is too wide for the format %s",
		        t->model->tensors[tensor].name, kept->name);
	if (kept->is_flat)
		scale_count = weight_format_scales(kept, 1, most);
	codes = mem_alloc((size_t)code_bytes(kept->code, most), 1);
	scales = mem_alloc((size_t)scale_count, sizeof(*scales));
	err = codes && scales ? 0 : ERR_NOMEM;
	for (int64_t at = 0, part; at < count && !err; at += part) {
		struct strips s;

		part = min_i64(most, count - at);
		s = strips_of(kept, cols, part);
		err = make_codes(&s, format, (const char *)src + at * width, codes, scales);
		if (!err)
			err = weights_put_plane(t, tensor, PLANE_CODES, first + at, part, codes);
		if (!err)
			err = put_scales(t, tensor, first + at, part, scales,
			        weight_format_scales(kept, s.rows, s.cols));
	}
	mem_free(codes);
	mem_free(scales);
	return err;
}

int weights_put(struct weights_target *t, enum format format, int tensor, int64_t first, int64_t count,
        const void *src)
{
	int64_t width = dtype_bytes(format_facts[format].element), most;
	int keeps_lo = needs_lo(t, format, tensor), makes_lo = keeps_lo || format != FORMAT_BF16, err = 0;
	uint16_t *hi = address(t, tensor, PLANE_HI, first, count), hi_piece[PUT_COUNT];
	int16_t *lo = keeps_lo ? address(t, tensor, PLANE_LO, first, count) : NULL, lo_piece[PUT_COUNT];

	if (weight_format_is_coded(weights_kept(t, tensor)))
		return put_codes(t, format, tensor, first, count, src);
	if (!hi && format == FORMAT_BF16 && !keeps_lo) /* src is the plane */
		return convert_kernels()->bf16(src, count)
		               ? WEIGHTS_NOT_FINITE
		               : weights_put_plane(t, tensor, PLANE_HI, first, count, src);
	most = hi && (lo || !makes_lo) ? count : PUT_COUNT;
	for (int64_t at = 0, part; at < count && !err; at += part) {
		uint16_t *to_hi = hi ? hi + at : hi_piece;
		int16_t *to_lo = lo ? lo + at : makes_lo ? lo_piece : NULL;

		part = min_i64(most, count - at);
		err = split(format, to_hi, to_lo, (const char *)src + at * width, part);
		if (!err && !hi)
			err = weights_put_plane(t, tensor, PLANE_HI, first + at, part, to_hi);
		if (!err && keeps_lo && !lo)
			err = weights_put_plane(t, tensor, PLANE_LO, first + at, part, to_lo);
	}
	return err;
}

void *weights_place(
        const struct weights_target *t, enum format format, int tensor, int64_t first, int64_t count)
{
	return format == FORMAT_BF16 && plane_is_in(PLANE_HI, weights_kept(t, tensor)->planes)
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
