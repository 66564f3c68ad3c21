/* links: optim */
/* The values that formats keep of a matrix, found piece by piece: those of all its codes at once. */
#include "optim/weight_rounded.h"

#include "tests/check.h"

#include "base/num.h"
#include "optim/weight_codes.h"

#include <stdlib.h>
#include <string.h>

/* What the codes of the whole matrix stand for. */
static void whole(const struct weight_format *f, float *value, int64_t rows, int64_t cols)
{
	int64_t r = rows, c = cols, count = weight_format_scales(f, rows, cols), across;
	uint8_t *codes = calloc((size_t)(rows * cols), 1), *nested = calloc((size_t)count, 1);
	float *scales = calloc((size_t)count, sizeof(*scales)),
	      *outer = calloc((size_t)nested_outer_count(count), sizeof(*outer));

	weight_format_shape(f, &r, &c);
	across = f->block_cols ? (c + f->block_cols - 1) / f->block_cols : 1;
	f->put(f, codes, scales, value, r, c);
	if (f->scale == CODE_SCALE_NESTED) {
		nested_make(outer, nested, scales, count);
		code_scales_read(CODE_SCALE_NESTED, scales, nested, outer, 0, count);
	}
	for (int64_t i = 0; i < r * c; i++)
		value[i] =
		        code_values(
		                f->code)[code_at(f->code, codes + i / c * code_bytes(f->code, c), i % c)] *
		        scales[i / c / f->block_rows * across + (f->block_cols ? i % c / f->block_cols : 0)];
	free(codes);
	free(nested);
	free(scales);
	free(outer);
}

static void check(const struct weight_format *f, int64_t rows, int64_t cols, int64_t about)
{
	size_t count = (size_t)(rows * cols);
	float *want = calloc(count, sizeof(*want)), *got = calloc(count, sizeof(*got));
	struct weight_rounded w;

	assert_int_equal(weight_rounded_open(&w, f, rows, cols, about), 0);
	for (size_t i = 0; i < count; i++)
		want[i] = got[i] = (float)rng_normal(3, 4, i) * (i / 512 % 7 ? 1 : 0.01F);
	whole(f, want, rows, cols);
	for (int64_t at = 0; f->scale == CODE_SCALE_NESTED && at < rows * cols; at += w.most)
		weight_rounded_see(&w, got + at, at, w.most < rows * cols - at ? w.most : rows * cols - at);
	assert_int_equal(weight_rounded_end(&w, rows), 0);
	for (int64_t at = 0; at < rows * cols; at += w.most)
		weight_rounded_put(&w, got + at, at, w.most < rows * cols - at ? w.most : rows * cols - at);
	for (size_t i = 0; i < count; i++)
		if (f32_bits(got[i]) != f32_bits(want[i]))
			fail_msg("%s, %d at once: element %zu is %g, wanted %g", f->name, (int)about, i,
			        (double)got[i], (double)want[i]);
	weight_rounded_close(&w);
	free(want);
	free(got);
}

static void test_pieces(void **state)
{
	const struct weight_format *const formats[] = {weight_format_coded(CODE_NF4, CODE_SCALE_NESTED, 64),
	        weight_format_coded(CODE_NF4, CODE_SCALE_F32, 128),
	        weight_format_coded(CODE_FP4, CODE_SCALE_NESTED, 32),
	        weight_format_coded(CODE_E4M3, CODE_SCALE_F32, 128),
	        weight_format_coded(CODE_E4M3, CODE_SCALE_F32, WEIGHT_BLOCK_ROW),
	        weight_format_coded(CODE_I8, CODE_SCALE_F32, 0),
	        weight_format_coded(CODE_E2M1, CODE_SCALE_E8M0, 0)};

	(void)state;
	for (size_t f = 0; f < sizeof(formats) / sizeof(*formats); f++) {
		assert_non_null(formats[f]);
		for (int64_t about = 1; about < 1 << 20; about = about * 37 + 1) {
			check(formats[f], 300, 416, about);
			check(formats[f], 1, 32, about);
			check(formats[f], 5, 96, about);
		}
	}
	check(formats[0], 33, 8191, 5000);    /* a last block of less than 64 */
	check(formats[0], 1, 700001, 700001); /* more blocks than are made at once */
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_pieces)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
