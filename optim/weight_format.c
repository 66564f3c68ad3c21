/* Formats of weights: the table behind the list. */
#include "optim/weight_format.h"

#include "base/size.h"

enum { SCALE_ALIGN = 16 };

const struct weight_format weight_formats[WEIGHT_FORMAT_COUNT] = {
#define FACTS(id, title, kept, set) [WEIGHT_##id] = {.name = title, .keeps = DTYPE_##kept, .planes = set},
        WEIGHT_FORMATS(FACTS)
#undef FACTS
};

int weight_format_keeps(const struct weight_format *kept, enum format format)
{
	return format_fits(format, kept->keeps);
}

const struct weight_format *weight_format_for(enum format format)
{
	return &weight_formats[weight_format_keeps(&weight_formats[WEIGHT_BF16], format) ? WEIGHT_BF16
	                                                                                 : WEIGHT_FP32];
}

void weight_format_shape(const struct weight_format *f, int64_t *rows, int64_t *cols)
{
	if (!f->is_flat)
		return;
	*cols *= *rows;
	*rows = 1;
}

int64_t weight_format_scales(const struct weight_format *f, int64_t rows, int64_t cols)
{
	int64_t block_cols;

	weight_format_shape(f, &rows, &cols);
	block_cols = f->block_cols ? f->block_cols : cols;
	return ((rows + f->block_rows - 1) / f->block_rows) * ((cols + block_cols - 1) / block_cols);
}

int64_t weight_format_granule(const struct weight_format *f, int64_t cols)
{
	if (!weight_format_is_coded(f))
		return 1;
	return f->is_flat ? f->block_cols : f->block_rows * cols;
}

int64_t weight_format_align(const struct weight_format *f)
{
	return f->block_cols * (f->scale == CODE_SCALE_NESTED ? NESTED_BLOCK : 1);
}

int64_t weight_format_scale_begin(const struct weight_format *f, int64_t rows, int64_t cols)
{
	return f->scale == CODE_SCALE_NESTED
	               ? nested_outer_count(weight_format_scales(f, rows, cols)) * (int64_t)sizeof(float)
	               : 0;
}

int64_t weight_format_scale_bytes(const struct weight_format *f, int64_t rows, int64_t cols)
{
	return round_up(weight_format_scale_begin(f, rows, cols) +
	                        weight_format_scales(f, rows, cols) * code_scale_bytes(f->scale),
	        SCALE_ALIGN);
}

unsigned planes_of_unit(const struct weight_format *format, int trainable, enum adamw_state state)
{
	return format->planes | (trainable ? planes_of(state) & ~(unsigned)PLANES_WEIGHT : 0);
}
