/* Quantizes pieces of a matrix and takes the values of the codes. */
#include "optim/weight_rounded.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/size.h"

int weight_rounded_open(struct weight_rounded *w, const struct weight_format *format, int64_t rows,
        int64_t cols, int64_t about)
{
	int64_t granule = weight_format_granule(format, cols), scales;

	*w = (struct weight_rounded){.format = format, .cols = cols};
	w->most = max_i64(about / granule, 1) * granule;
	scales = format->scale == CODE_SCALE_NESTED
	                 ? weight_format_scales(format, rows, cols)
	                 : weight_format_scales(format, w->most / (format->is_flat ? 1 : cols),
	                           format->is_flat ? 1 : cols);
	w->codes = mem_alloc((size_t)w->most, 1);
	w->scales = mem_alloc((size_t)scales + 1, sizeof(*w->scales));
	return w->codes && w->scales ? 0 : ERR_NOMEM;
}

void weight_rounded_close(struct weight_rounded *w)
{
	mem_free(w->codes);
	mem_free(w->scales);
	*w = (struct weight_rounded){0};
}

/* A piece as its blocks see it. */
static void shape_of(const struct weight_rounded *w, int64_t count, int64_t *rows, int64_t *cols)
{
	*cols = w->format->is_flat ? count : w->cols;
	*rows = count / *cols;
}

/* The scales of a piece: within those of the matrix, or alone. */
static float *scales_at(const struct weight_rounded *w, int64_t first)
{
	return w->scales + (w->format->scale == CODE_SCALE_NESTED ? first / w->format->block_cols : 0);
}

void weight_rounded_see(struct weight_rounded *w, const float *value, int64_t first, int64_t count)
{
	int64_t rows, cols;

	shape_of(w, count, &rows, &cols);
	w->format->put(w->format, w->codes, scales_at(w, first), value, rows, cols);
}

int weight_rounded_end(struct weight_rounded *w, int64_t rows)
{
	int64_t count = weight_format_scales(w->format, rows, w->cols);
	uint8_t *codes;
	float *outer;

	if (w->format->scale != CODE_SCALE_NESTED)
		return 0;
	codes = mem_alloc((size_t)count, 1);
	outer = mem_alloc((size_t)nested_outer_count(count), sizeof(*outer));
	if (codes && outer) {
		nested_make(outer, codes, w->scales, count);
		code_scales_read(CODE_SCALE_NESTED, w->scales, codes, outer, 0, count);
	}
	count = codes && outer ? 0 : ERR_NOMEM;
	mem_free(codes);
	mem_free(outer);
	return (int)count;
}

/* Elements of a row of codes that share a scale. */
static void block_values(const struct weight_rounded *w, float *value, const uint8_t *codes, int64_t from,
        int64_t n, float scale)
{
	const float *values = code_values(w->format->code);

	for (int64_t i = 0; i < n; i++)
		value[i] = values[code_at(w->format->code, codes, from + i)] * scale;
}

void weight_rounded_put(struct weight_rounded *w, float *value, int64_t first, int64_t count)
{
	const struct weight_format *f = w->format;
	float own[4096], *scales = scales_at(w, first);
	int64_t rows, cols, wide, across;

	shape_of(w, count, &rows, &cols);
	wide = f->block_cols ? f->block_cols : cols;
	across = (cols + wide - 1) / wide;
	if (f->scale != CODE_SCALE_NESTED)
		f->put(f, w->codes, scales, value, rows, cols);
	else /* blocks of one row: their own scales make the codes, those of the matrix the values */
		for (int64_t b = 0, n; b < across; b += n) {
			n = min_i64((int64_t)(sizeof(own) / sizeof(*own)), across - b);
			f->put(f, w->codes + code_bytes(f->code, b * wide), own, value + b * wide, 1,
			        min_i64(n * wide, cols - b * wide));
		}
	for (int64_t r = 0; r < rows; r++)
		for (int64_t b = 0; b < across; b++)
			block_values(w, value + r * cols + b * wide, w->codes + r * code_bytes(f->code, cols),
			        b * wide, min_i64(wide, cols - b * wide),
			        scales[r / f->block_rows * across + b]);
}
