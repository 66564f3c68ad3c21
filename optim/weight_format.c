/* Formats of weights: the table behind the list. */
#include "optim/weight_format.h"

#include <stddef.h>

const struct weight_format weight_formats[WEIGHT_FORMAT_COUNT] = {
#define FACTS(id, name, keeps, planes) {name, DTYPE_##keeps, planes, 0, 0, 0, NULL},
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

int64_t weight_format_scales(const struct weight_format *f, int64_t rows, int64_t cols)
{
	int64_t block_cols = f->block_cols ? f->block_cols : cols;

	return ((rows + f->block_rows - 1) / f->block_rows) * ((cols + block_cols - 1) / block_cols);
}

int64_t weight_format_granule(const struct weight_format *f, int64_t cols)
{
	return weight_format_is_coded(f) ? f->block_rows * cols : 1;
}

unsigned planes_of_unit(const struct weight_format *format, int trainable, enum adamw_state state)
{
	return format->planes | (trainable ? planes_of(state) & ~(unsigned)PLANES_WEIGHT : 0);
}
