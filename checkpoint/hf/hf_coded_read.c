/* Reads quantized weights of HuggingFace files: as values, or as codes and scales. */
#include "checkpoint/hf/hf_coded.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/size.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { PIECE = 16 << 10 /* elements on the stack */, TURNED_BYTES = 64 << 10 };

/* The largest magnitude of a code. A scale near 2^127 is a number, but its product with a code is none. */
static float code_most(enum code code)
{
	return code == CODE_E4M3 ? 448 : code == CODE_I8 ? 127 : code == CODE_E2M1 ? 6 : 1;
}

static int fail_value(const struct hf_place *at, int64_t index, double value)
{
	return err_set(ERR_INPUT, "%s: tensor \"%s\" holds %g at element %" PRId64 "; the file is damaged",
	        at->file->path, safetensors_name_show(at->tensor->name).text, value, index);
}

/* ---- scales ---- */

/* A scale is a largest magnitude, or follows from one. */
static int is_scale(float x)
{
	return x >= 0 && isfinite(x);
}

/* Checks scales of scales from one on. The largest scale that follows from one must be a number, too. */
static int outer_check(const struct hf_coded *c, const float *outer, int64_t first, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		if (!is_scale(outer[i]) || !is_scale((outer[i] + c->offset) * code_most(c->format->code)))
			return fail_value(&c->outer, first + i, (double)outer[i]);
	return 0;
}

/* Scales as fp32: `count` of them from the first on. Fails for one that is no number. */
static int nested_read(const struct hf_coded *c, float *dst, int64_t first, int64_t count)
{
	const float *map = c->map ? c->map : nested_map();
	uint8_t codes[PIECE];
	float outer[PIECE / NESTED_BLOCK + 2];
	int rc = 0;

	for (int64_t at = 0, n; at < count && !rc; at += n) {
		int64_t from = first + at, block = from / NESTED_BLOCK, blocks;

		n = min_i64(PIECE, count - at);
		blocks = (from + n - 1) / NESTED_BLOCK - block + 1;
		rc = safetensors_read(c->scales.file, c->scales.tensor, codes, from, n);
		if (!rc)
			rc = safetensors_read(c->outer.file, c->outer.tensor, outer, block * 4, blocks * 4);
		if (!rc)
			rc = outer_check(c, outer, block, blocks);
		for (int64_t i = 0; i < n && !rc; i++) {
			float product = map[codes[i]] * outer[(from + i) / NESTED_BLOCK - block];

			dst[at + i] = product + c->offset;
		}
	}
	return rc;
}

static float scale_widen(enum safetensors_dtype dtype, const void *raw, int64_t i)
{
	switch (dtype) {
	case SAFETENSORS_F32:
		return ((const float *)raw)[i];
	case SAFETENSORS_BF16:
		return bf16_to_f32(((const uint16_t *)raw)[i]);
	case SAFETENSORS_F16:
		return f16_to_f32(((const uint16_t *)raw)[i]);
	default:
		return code_e8m0(((const uint8_t *)raw)[i]);
	}
}

static int scales_read(const struct hf_coded *c, float *dst, int64_t first, int64_t count)
{
	const struct safetensors_tensor *t = c->scales.tensor;
	int64_t width = safetensors_dtype_bits(t->dtype) / 8;
	float raw[PIECE / 4];
	int rc = 0;

	if (c->format->scale == CODE_SCALE_NESTED)
		return nested_read(c, dst, first, count);
	for (int64_t at = 0, n; at < count && !rc; at += n) {
		n = min_i64((int64_t)(sizeof(raw) / sizeof(*raw)), count - at);
		rc = safetensors_read(c->scales.file, t, raw, c->is_one ? 0 : (first + at) * width,
		        c->is_one ? width : n * width);
		for (int64_t i = 0; i < n && !rc; i++) {
			dst[at + i] = scale_widen(t->dtype, raw, c->is_one ? 0 : i) * c->factor;
			if (!is_scale(dst[at + i] * code_most(c->format->code)))
				rc = fail_value(
				        &c->scales, c->is_one ? 0 : first + at + i, (double)dst[at + i]);
		}
	}
	return rc;
}

/* ---- codes ---- */

/* Reads the codes of elements; *skip: the first is the second of its byte. */
static int codes_read(const struct hf_coded *c, uint8_t *dst, int64_t first, int64_t count, int *skip)
{
	enum code code = c->format->code;
	int64_t begin = code_bits(code) == 8 ? first : first / 2;

	*skip = code_bits(code) == 8 ? 0 : (int)(first % 2);
	return safetensors_read(c->codes.file, c->codes.tensor, dst, begin, code_bytes(code, count + *skip));
}

/* Elements [first, first + count) that lie in one row of scales: `scales` has them from `scale_first` on. */
static int values_read(const struct hf_coded *c, float *dst, int64_t first, int64_t count, int64_t col,
        const float *scales, int64_t block_cols, int64_t scale_first)
{
	const float *value = code_values(c->format->code);
	uint8_t codes[PIECE + 2];
	int rc = 0;

	for (int64_t at = 0, n; at < count && !rc; at += n) {
		int skip;

		n = min_i64(PIECE, count - at);
		rc = codes_read(c, codes, first + at, n, &skip);
		for (int64_t i = 0; i < n && !rc; i++)
			dst[at + i] = value[code_at(c->format->code, codes, i + skip)] *
			              scales[(col + at + i) / block_cols - scale_first];
	}
	return rc;
}

/* ---- matrices whose codes are turned ---- */

/* Some rows of codes, each a column of the matrix, and their scales. */
struct turned {
	const struct hf_coded *c;
	int64_t in, out; /* of each matrix */
	int64_t rows;    /* that are read at once */
	uint8_t *codes, *powers;
	float power[256];
};

static int turned_open(struct turned *t, const struct hf_coded *c)
{
	int64_t in = c->as.shape[1];

	*t = (struct turned){.c = c, .in = in, .out = c->as.shape[2]};
	t->rows = min_i64(max_i64(TURNED_BYTES / (in / 2), 1), t->out);
	t->codes = mem_alloc((size_t)t->rows, (size_t)in / 2);
	t->powers = mem_alloc((size_t)t->rows, (size_t)in / 32);
	for (int i = 0; i < 256; i++)
		t->power[i] = code_e8m0((uint8_t)i);
	return t->codes && t->powers ? 0 : ERR_NOMEM;
}

static void turned_close(struct turned *t)
{
	mem_free(t->codes);
	mem_free(t->powers);
}

/* Reads `rows` rows of codes, the first of which is `row` of all. */
static int turned_get(struct turned *t, int64_t row, int64_t rows)
{
	const struct hf_coded *c = t->c;
	int64_t across = t->in / 32;
	int rc =
	        safetensors_read(c->codes.file, c->codes.tensor, t->codes, row * t->in / 2, rows * t->in / 2);

	if (!rc)
		rc = safetensors_read(
		        c->scales.file, c->scales.tensor, t->powers, row * across, rows * across);
	for (int64_t i = 0; i < rows * across && !rc; i++)
		if (!isfinite(t->power[t->powers[i]] * code_most(c->format->code)))
			rc = fail_value(&c->scales, row * across + i, (double)t->power[t->powers[i]]);
	return rc;
}

/* Elements [first, end) of one matrix, from its codes of columns [begin, begin + rows). */
static void turned_put(
        const struct turned *t, float *dst, int64_t first, int64_t end, int64_t begin, int64_t rows)
{
	const float *value = code_values(t->c->format->code);

	for (int64_t k = first / t->out; k * t->out < end; k++) {
		int64_t from = max_i64(first, k * t->out + begin),
		        to = min_i64(end, k * t->out + begin + rows);

		for (int64_t at = from; at < to; at++) {
			int64_t row = at - k * t->out - begin, element = row * t->in + k;

			dst[at - first] = value[code_at(t->c->format->code, t->codes, element)] *
			                  t->power[t->powers[element / 32]];
		}
	}
}

static int turned_read(const struct hf_coded *c, float *dst, int64_t first, int64_t count)
{
	struct turned t;
	int64_t matrix = c->as.shape[1] * c->as.shape[2];
	int rc = turned_open(&t, c);

	for (int64_t at = first, end; at < first + count && !rc; at = end) {
		int64_t expert = at / matrix, begin = expert * matrix;

		end = min_i64(first + count, begin + matrix);
		for (int64_t row = 0, rows; row < t.out && !rc; row += rows) {
			rows = min_i64(t.rows, t.out - row);
			rc = turned_get(&t, expert * t.out + row, rows);
			if (!rc)
				turned_put(&t, dst + (at - first), at - begin, end - begin, row, rows);
		}
	}
	turned_close(&t);
	return rc;
}

int hf_coded_read(const struct hf_coded *c, float *dst, int64_t first, int64_t count)
{
	int64_t rows = c->as.shape[0], cols = c->as.shape[1], block_cols, across;
	float *scales;
	int rc = 0;

	if (c->is_turned)
		return turned_read(c, dst, first, count);
	weight_format_shape(c->format, &rows, &cols);
	block_cols = c->format->block_cols ? c->format->block_cols : cols;
	across = (cols + block_cols - 1) / block_cols;
	scales = mem_alloc((size_t)min_i64(across, count / block_cols + 2), sizeof(*scales));
	if (!scales)
		return ERR_NOMEM;
	for (int64_t at = 0, n; at < count && !rc; at += n) { /* the part of a row */
		int64_t row = (first + at) / cols, col = (first + at) % cols, block = col / block_cols,
		        blocks;

		n = min_i64(cols - col, count - at);
		blocks = (col + n - 1) / block_cols - block + 1;
		rc = scales_read(c, scales, row / c->format->block_rows * across + block, blocks);
		if (!rc)
			rc = values_read(c, dst + at, first + at, n, col, scales, block_cols, block);
	}
	mem_free(scales);
	return rc;
}

/* ---- as they are ---- */

const struct weight_format *hf_coded_format(const struct hf_coded *c, int64_t at, int64_t rows, int64_t cols)
{
	const struct weight_format *f = c->format;
	int is_whole = !at && rows * cols == c->as.count;

	if (c->is_turned)
		return is_whole ? f : NULL;
	if (!f->is_flat) /* rows stay rows */
		return cols == c->as.shape[1] && at % (f->block_rows * cols) == 0 &&
		                       (f->block_rows == 1 || is_whole || rows % f->block_rows == 0)
		               ? f
		               : NULL;
	if (at % f->block_cols || (!is_whole && rows * cols % f->block_cols))
		return NULL;
	return f->scale == CODE_SCALE_NESTED && (!is_whole || c->map)
	               ? weight_format_coded(f->code, CODE_SCALE_F32, f->block_cols)
	               : f;
}

/* NESTED scales of a whole matrix, as EXPAND reads them. */
static int nested_store(const struct hf_coded *c, struct weights_target *target, int tensor)
{
	uint8_t *codes = mem_alloc((size_t)c->scales.tensor->len_bytes, 1);
	float *outer = mem_alloc((size_t)c->outer.tensor->count + 1, sizeof(*outer));
	int rc = codes && outer ? 0 : ERR_NOMEM;

	if (!rc)
		rc = safetensors_read(
		        c->scales.file, c->scales.tensor, codes, 0, c->scales.tensor->len_bytes);
	if (!rc)
		rc = safetensors_read(
		        c->outer.file, c->outer.tensor, outer + 1, 0, c->outer.tensor->len_bytes);
	if (!rc)
		rc = outer_check(c, outer + 1, 0, c->outer.tensor->count);
	if (!rc) {
		outer[0] = c->offset;
		rc = weights_put_nested(target, tensor, outer, codes);
	}
	mem_free(outer);
	mem_free(codes);
	return rc;
}

static int scales_store(const struct hf_coded *c, struct weights_target *target, int tensor, int64_t first,
        int64_t at, int64_t count)
{
	const struct weight_format *f = c->format;
	int64_t cols = c->as.shape[1], scale_first, scale_count;
	float *scales;
	int rc;

	scale_first = f->is_flat ? at / f->block_cols : weight_format_scales(f, at / cols, cols);
	scale_count =
	        f->is_flat ? weight_format_scales(f, 1, count) : weight_format_scales(f, count / cols, cols);
	scales = mem_alloc((size_t)scale_count + 1, sizeof(*scales));
	if (!scales)
		return ERR_NOMEM;
	rc = scales_read(c, scales, scale_first, scale_count);
	for (int64_t i = 0; i < scale_count && !rc && f->scale == CODE_SCALE_E8M0; i++)
		((uint8_t *)scales)[i] = (uint8_t)(f32_bits(scales[i]) >> 23);
	if (!rc)
		rc = weights_put_plane(target, tensor, PLANE_CODE_SCALE, first, count, scales);
	mem_free(scales);
	return rc;
}

/* Codes are granules of 8 bits or an even number of 4. */
int hf_coded_store(const struct hf_coded *c, struct weights_target *target, int tensor, int64_t first,
        int64_t at, int64_t count)
{
	const struct weight_format *kept = weights_kept(target, tensor);
	enum code code = c->format->code;
	uint8_t *codes = mem_alloc((size_t)code_bytes(code, count), 1);
	int rc = codes ? 0 : ERR_NOMEM, skip;

	if (!rc)
		rc = codes_read(c, codes, at, count, &skip);
	for (int64_t i = 0; i < count && !rc && code == CODE_E4M3; i++)
		if ((codes[i] & 0x7f) == 0x7f)
			rc = fail_value(&c->codes, at + i, (double)NAN);
	if (!rc)
		rc = weights_put_plane(target, tensor, PLANE_CODES, first, count, codes);
	mem_free(codes);
	if (rc || kept->scale != CODE_SCALE_NESTED)
		return rc ? rc : scales_store(c, target, tensor, first, at, count);
	return first ? 0 : nested_store(c, target, tensor);
}
