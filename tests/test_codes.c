/* links: optim base host checkpoint */
/* Codes and scales of base_format: NF4 as bitsandbytes makes it, bit for bit (../shared/golden/nf4/vectors);
 * the others by their definitions. */
#include "tests/check.h"
#include "tests/ferry_run.h"

#include "base/codes.h"
#include "base/num.h"
#include "checkpoint/file/safetensors.h"
#include "optim/weight_codes.h"
#include "optim/weight_nearest.h"

#include <math.h>

static const char *golden;

/* ---- bitsandbytes ---- */

struct vectors {
	json_t *json;
	struct safetensors *file;
};

static void *vector_read(const struct vectors *v, const char *name, const char *part, int64_t *count)
{
	char full[200];
	const struct safetensors_tensor *t;
	void *data;

	snprintf(full, sizeof(full), "%s%s%s", name, *part ? "." : "", part);
	t = safetensors_find(v->file, full);
	if (!t)
		fail_msg("no tensor %s", full);
	data = calloc((size_t)t->len_bytes + 4, 1);
	check_ok(safetensors_read(v->file, t, data, 0, t->len_bytes));
	*count = t->count;
	return data;
}

static float *input_read(const struct vectors *v, const char *name, int64_t *count)
{
	void *raw = vector_read(v, name, "input", count);
	float *value = calloc((size_t)*count, sizeof(*value));

	for (int64_t i = 0; i < *count; i++)
		value[i] = strstr(name, "float32")    ? ((float *)raw)[i]
		           : strstr(name, "bfloat16") ? bf16_to_f32(((uint16_t *)raw)[i])
		                                      : f16_to_f32(((uint16_t *)raw)[i]);
	free(raw);
	return value;
}

/* Codes, scales and what they stand for; of a block of zeros in a file, whose scale may be 1e-38, the
 * codes. */
static void nf4_compare(const struct vectors *v, const char *name, int64_t block)
{
	const struct weight_format *f = weight_format_coded(CODE_NF4, CODE_SCALE_F32, block);
	int64_t count, bytes, scale_count, n;
	float *x = input_read(v, name, &count);
	uint8_t *packed = vector_read(v, name, "packed", &bytes), *codes = calloc((size_t)bytes, 1);
	float *absmax = vector_read(v, name, "absmax", &scale_count),
	      *scales = calloc((size_t)scale_count, sizeof(*scales)),
	      *back = vector_read(v, name, "dequantized", &n);

	assert_non_null(f);
	assert_int_equal(bytes, code_bytes(CODE_NF4, count));
	assert_int_equal(scale_count, weight_format_scales(f, 1, count));
	f->put(f, codes, scales, x, 1, count);
	for (int64_t i = 0; i < bytes; i++)
		if (codes[i] != packed[i])
			fail_msg(
			        "%s: byte %d is %02x, bitsandbytes' %02x", name, (int)i, codes[i], packed[i]);
	for (int64_t i = 0; i < scale_count; i++)
		if (f32_bits(scales[i]) != f32_bits(absmax[i]) && !(scales[i] == 0 && absmax[i] <= 1e-37F))
			fail_msg("%s: scale %d is %.9g, bitsandbytes' %.9g", name, (int)i, (double)scales[i],
			        (double)absmax[i]);
	for (int64_t i = 0; i < count; i++) {
		float got = code_values(CODE_NF4)[code_at(CODE_NF4, codes, i)] * scales[i / block];

		if (got != back[i])
			fail_msg("%s: element %d is %.9g, bitsandbytes' %.9g", name, (int)i, (double)got,
			        (double)back[i]);
	}
	free(x);
	free(packed);
	free(codes);
	free(absmax);
	free(scales);
	free(back);
}

static void test_nf4(void **state)
{
	struct vectors v;
	const char *name;
	json_t *facts;
	char path[700];

	(void)state;
	if (!golden)
		skip();
	snprintf(path, sizeof(path), "%s/nf4/vectors.json", golden);
	check_ok(json_read_file(&v.json, path, 1 << 20));
	snprintf(path, sizeof(path), "%s/nf4/vectors.safetensors", golden);
	check_ok(safetensors_open(&v.file, path));
	json_object_foreach(json_object_get(v.json, "nf4"), name, facts)
	        nf4_compare(&v, name, json_integer_value(json_object_get(facts, "blocksize")));
	assert_true(json_object_size(json_object_get(v.json, "nf4")) > 20);
	for (int i = 0; i < 2; i++) {
		int64_t count;
		const char *table = i ? "dynamic_map" : "nf4_code";
		float *want = vector_read(&v, table, "", &count);

		assert_int_equal(count, i ? 256 : 16);
		assert_memory_equal(
		        want, i ? nested_map() : code_values(CODE_NF4), (size_t)count * sizeof(*want));
		free(want);
	}
	safetensors_close(v.file);
	json_decref(v.json);
}

/* Scales in codes: the nearest of the map, for the same offset; and what they restore. */
static void test_nested(void **state)
{
	static const int sizes[] = {1, 7, 255, 256, 257, 1000};
	struct safetensors *file;
	struct vectors v = {0};
	char path[700], name[40];

	(void)state;
	if (!golden)
		skip();
	snprintf(path, sizeof(path), "%s/nf4/vectors.safetensors", golden);
	check_ok(safetensors_open(&file, path));
	v.file = file;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		int64_t count, n;
		float *x, *want, outer[10], got[1000];
		uint8_t *nearest, codes[1000];

		snprintf(name, sizeof(name), "absmax%d", sizes[i]);
		x = vector_read(&v, name, "input", &count);
		want = vector_read(&v, name, "restored_nearest", &n);
		nearest = vector_read(&v, name, "codes_nearest", &n);
		assert_int_equal(count, sizes[i]);
		nested_make(outer, codes, x, count);
		code_scales_read(CODE_SCALE_NESTED, got, codes, outer, 0, count);
		for (int64_t k = 0; k < count; k++) {
			/* the offset's last bit depends on the order of torch's sum */
			if ((abs(codes[k] - nearest[k]) > 1 && got[k] != want[k]) ||
			        !(fabsf(got[k] - want[k]) <= 1e-6F))
				fail_msg("%s: scale %d: code %d, %.9g; bitsandbytes %d, %.9g", name, (int)k,
				        codes[k], (double)got[k], nearest[k], (double)want[k]);
		}
		free(x);
		free(want);
		free(nearest);
	}
	safetensors_close(file);
}

/* ---- definitions ---- */

/* Whether code `at` is as near to x as any; at a tie, one with an even number. */
static int is_nearest(enum code code, int at, double x)
{
	const float *value = code_values(code);
	double error = fabs(x - (double)value[at]);

	if (isnan(error)) /* of no number */
		return 0;
	for (int i = 0; i < 1 << code_bits(code); i++)
		if (!isnan(value[i]) && fabs(x - (double)value[i]) < error)
			return 0;
	for (int i = 0; i < 1 << code_bits(code); i++)
		if (value[i] != value[at] && fabs(x - (double)value[i]) == error && at % 2)
			return 0;
	return 1;
}

static void test_floats(void **state)
{
	static const struct {
		enum code code;
		enum code_scale scale;
		float most;
	} all[] = {{CODE_E4M3, CODE_SCALE_F32, 448}, {CODE_E2M1, CODE_SCALE_E8M0, 6}};

	(void)state;
	for (size_t n = 0; n < sizeof(all) / sizeof(*all); n++) {
		const struct weight_format *f = weight_format_coded(all[n].code, all[n].scale, 0);
		int wide = code_bits(all[n].code) == 8;

		for (int at = 0; at < 20000; at++) {
			/* values, midpoints of values, and what lies beside them; the first is the largest */
			float x[32] = {all[n].most}, scale;
			uint8_t codes[32];

			for (int i = 1; i < 32; i++) {
				const float *value = code_values(all[n].code);
				int a = (at * 31 + i) % (wide ? 127 : 8), b = (at / 7 + i) % (wide ? 127 : 8);

				x[i] = (value[a] + value[b]) / 2;
				x[i] = i % 3 == 1   ? nextafterf(x[i], 1000)
				       : i % 3 == 2 ? nextafterf(x[i], 0)
				                    : x[i];
				x[i] = fminf(x[i], all[n].most) * (at % 2 ? 1 : -1);
			}
			f->put(f, codes, &scale, x, 1, 32);
			assert_true(scale == 1);
			for (int i = 0; i < 32; i++)
				if (!is_nearest(all[n].code, code_at(all[n].code, codes, i), (double)x[i]))
					fail_msg("%s: %.9g has code %d", f->name, (double)x[i],
					        code_at(all[n].code, codes, i));
		}
	}
}

/* The published values of all codes of OCP FP8 and MXFP4, by sign, exponent and fraction. */
static void test_values(void **state)
{
	static const float of_e2m1[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};

	(void)state;
	for (int at = 0; at < 256; at++) {
		int exponent = at >> 3 & 15, fraction = at & 7;
		double want = exponent ? ldexp(1 + fraction / 8.0, exponent - 7) : ldexp(fraction / 8.0, -6);

		if ((at & 127) == 127)
			assert_true(isnan(code_values(CODE_E4M3)[at]));
		else
			assert_true((double)code_values(CODE_E4M3)[at] == (at & 128 ? -want : want));
		if (at < 255)
			assert_true((double)code_e8m0((uint8_t)at) == ldexp(1, at - 127));
		assert_int_equal((int)code_values(CODE_I8)[at], (int8_t)at);
	}
	assert_true(isnan(code_e8m0(255)));
	for (int at = 0; at < 16; at++)
		assert_true(code_values(CODE_E2M1)[at] == (at & 8 ? -of_e2m1[at & 7] : of_e2m1[at & 7]));
}

/* Scales: the exponent of the largest less 2; the largest over 448 or 127. Zeros stay zeros. */
static void test_scales(void **state)
{
	const struct weight_format *mx = weight_format_coded(CODE_E2M1, CODE_SCALE_E8M0, 0),
	                           *fp8 = weight_format_coded(CODE_E4M3, CODE_SCALE_F32, 0),
	                           *int8 = weight_format_coded(CODE_I8, CODE_SCALE_F32, 0);

	(void)state;
	for (int e = -140; e < 127; e++) {
		float x[32] = {0}, scale;
		uint8_t codes[32];

		x[7] = ldexpf(1.75F, e);
		mx->put(mx, codes, &scale, x, 1, 32);
		assert_true(scale == ldexpf(1, e - 2 < -127 ? -127 : e - 2));
		if (e > -125) /* 7 scales: the most that has a code is 6 */
			assert_true(code_values(CODE_E2M1)[code_at(CODE_E2M1, codes, 7)] == 6);
		fp8->put(fp8, codes, &scale, x, 1, 32);
		if (e > -120)
			assert_true(scale == x[7] / 448 && codes[7] == 0x7e);
		int8->put(int8, codes, &scale, x, 1, 32);
		if (e > -120)
			assert_true(scale == x[7] / 127 && codes[7] == 127);
	}
	for (int n = 0; n < 3; n++) {
		const struct weight_format *f = n == 0 ? mx : n == 1 ? fp8 : int8;
		float x[64] = {0}, scale[2];
		uint8_t codes[64];

		memset(codes, 255, sizeof(codes));
		f->put(f, codes, scale, x, 1, 64);
		for (int i = 0; i < 64; i++)
			assert_true(code_values(f->code)[code_at(f->code, codes, i)] * scale[0] == 0);
	}
}

/* Both instruction sets make the same codes. */
static void test_isa(void **state)
{
	const struct weight_nearest_kernels *a = &weight_nearest_scalar, *b = weight_nearest_kernels();
	float x[1024], middles[15], wide[2][1024];
	uint8_t codes[2][512], byte[256];
	uint16_t half[1024];

	(void)state;
	for (int i = 0; i < 1024; i++) {
		x[i] = sinf((float)i * 1.7F) * (float)(i % 37);
		half[i] = bf16_from_f32(x[i]);
	}
	for (int i = 0; i < 15; i++)
		middles[i] = (float)(i - 7) * 0.9F;
	for (int i = 0; i < 256; i++)
		byte[i] = (uint8_t)(i * 7);
	for (int n = 0; n < 1000; n += 13) {
		int steps = n / NEAREST_STEP * NEAREST_STEP;
		float most = 0;

		for (int i = 0; i < n; i++)
			most = fmaxf(most, fabsf(x[i]));
		assert_true(a->largest(x, n) == most && b->largest(x, n) == most);
		a->nearest(codes[0], x, 0.3F, middles, byte, steps);
		b->nearest(codes[1], x, 0.3F, middles, byte, steps);
		assert_memory_equal(codes[0], codes[1], (size_t)steps / 2);
		for (int i = 0; i < steps; i += 2) {
			int two = 0;

			for (int m = 0; m < 15; m++)
				two += (x[i] * 0.3F > middles[m]) * 16 + (x[i + 1] * 0.3F > middles[m]);
			assert_int_equal(codes[0][i / 2], byte[two]);
		}
		assert_false(a->widen(wide[0], half, n));
		assert_false(b->widen(wide[1], half, n));
		for (int i = 0; i < n; i++)
			assert_true(wide[0][i] == bf16_to_f32(half[i]) && wide[1][i] == wide[0][i]);
	}
	half[77] = 0xff80;
	assert_true(a->widen(wide[0], half, 100) && b->widen(wide[1], half, 100));
}

/* Codes of bf16 weights for FP8 products: as a block's numbers say; a NaN or an infinity spoils its block. */
static void test_multiplied(void **state)
{
	enum { ROWS = 100, COLS = 300, BLOCKS = 3 };
	static uint16_t hi[ROWS * COLS];
	static uint8_t codes[ROWS * COLS];

	(void)state;
	for (int kind = 0; kind < 4; kind++) {
		float scales[BLOCKS];

		for (int i = 0; i < ROWS * COLS; i++)
			hi[i] = kind == 3 ? 0
			                  : bf16_from_f32((float)rng_normal(7, (uint64_t)kind, (uint64_t)i));
		hi[130 + 5 * COLS] = kind == 1 ? 0x7fc1 : kind == 2 ? 0xff80 : hi[0];
		weight_codes_multiplied(codes, scales, hi, ROWS, COLS);
		for (int b = 0; b < BLOCKS; b++) {
			int end = b + 1 < BLOCKS ? (b + 1) * 128 : COLS;
			float most = 0, scale;

			for (int r = 0; r < ROWS; r++)
				for (int c = b * 128; c < end; c++)
					most = fabsf(bf16_to_f32(hi[r * COLS + c])) > most
					               ? fabsf(bf16_to_f32(hi[r * COLS + c]))
					               : most;
			scale = kind == 1 && b == 1 ? NAN : most / 448;
			assert_true(isnan(scale) ? isnan(scales[b]) : scales[b] == scale);
			for (int r = 0; r < ROWS; r++)
				for (int c = b * 128; c < end; c++)
					assert_int_equal(codes[r * COLS + c],
					        scale > 0 && isfinite(scale)
					                ? code_e4m3(bf16_to_f32(hi[r * COLS + c]) / scale)
					                : 0);
		}
	}
	assert_int_equal(code_e4m3(NAN) & 0x7f, 0x7f);
	assert_int_equal(code_e4m3(1e9F), 0x7e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_nf4),
	        cmocka_unit_test(test_nested),
	        cmocka_unit_test(test_floats),
	        cmocka_unit_test(test_values),
	        cmocka_unit_test(test_scales),
	        cmocka_unit_test(test_isa),
	        cmocka_unit_test(test_multiplied),
	};

	golden = golden_dir("test_codes");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
