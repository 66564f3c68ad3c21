/* links: base */
/* also: usual */
/* Dtypes: their constants against real conversions, and the bytes of formats. */
#include "check.h"

#include "base/dtype.h"
#include "base/num.h"

#include <float.h>
#include <math.h>

static void test_names(void **state)
{
	enum dtype found = DTYPE_COUNT;

	(void)state;
	for (int i = 0; i < DTYPE_COUNT; i++) {
		const char *name = dtype_name((enum dtype)i);

		assert_true(dtype_find(&found, name) && (int)found == i); /* each name once */
		assert_true(dtype_bits((enum dtype)i) >= dtype_fraction_bits((enum dtype)i));
		/* "F32", "I16", "F8_E4M3": the digits that follow the letters are bits */
		name += strcspn(name, "0123456789");
		if (*name)
			assert_int_equal(strtol(name, NULL, 10), dtype_bits((enum dtype)i));
	}
	assert_int_equal(dtype_find(&found, "F33"), 0);
	assert_string_equal(dtype_name(DTYPE_COUNT), "?");
	assert_string_equal(dtype_name((enum dtype) - 1), "?");
	assert_string_equal(dtype_computes_text(), "F32 or BF16");
	assert_true(dtype_computes(DTYPE_BF16) && !dtype_computes(DTYPE_F16) && !dtype_computes(DTYPE_COUNT));
	assert_int_equal(dtype_bytes(DTYPE_F64), 8);
	assert_int_equal(dtype_bytes(DTYPE_BF16), 2);
	assert_int_equal(dtype_bytes(DTYPE_U8), 1);
}

/* The last number before 2 that 1 + x can be, and the largest finite one. */
static void test_floats(void **state)
{
	double largest_f16 = (double)f16_to_f32(0x7bff), largest_bf16 = (double)bf16_to_f32(0x7f7f);

	(void)state;
	assert_true((double)f16_to_f32(0x3c01) - 1 == ldexp(1, -dtype_fraction_bits(DTYPE_F16)));
	assert_true((double)bf16_to_f32(0x3f81) - 1 == ldexp(1, -dtype_fraction_bits(DTYPE_BF16)));
	assert_true((double)FLT_EPSILON == ldexp(1, -dtype_fraction_bits(DTYPE_F32)));
	assert_true(DBL_EPSILON == ldexp(1, -dtype_fraction_bits(DTYPE_F64)));
	assert_int_equal(ilogb(largest_f16), (1 << (dtype_exponent_bits(DTYPE_F16) - 1)) - 1);
	assert_int_equal(ilogb(largest_bf16), (1 << (dtype_exponent_bits(DTYPE_BF16) - 1)) - 1);
	assert_int_equal(FLT_MAX_EXP - 1, (1 << (dtype_exponent_bits(DTYPE_F32) - 1)) - 1);
	for (int i = 0; i < DTYPE_COUNT; i++) /* sign, exponent, fraction, and nothing else */
		if (dtype_exponent_bits((enum dtype)i) && i != DTYPE_F8_E8M0)
			assert_int_equal(dtype_bits((enum dtype)i),
			        1 + dtype_exponent_bits((enum dtype)i) + dtype_fraction_bits((enum dtype)i));
}

static void test_formats(void **state)
{
	(void)state;
	assert_int_equal(FORMAT_BLOCK_CODES_8, format_facts[FORMAT_CODES_8].block);
	assert_int_equal(FORMAT_BLOCK_BF16, 0);
	for (int i = 0; i < FORMAT_COUNT; i++) {
		const struct format_facts *f = &format_facts[i];

		if (!f->name || !f->torch_name)
			fail_msg("format %d has no name", i);
		if (f->is_of_weights) {
			enum format found = FORMAT_COUNT;

			if (!format_of_weights(&found, f->element) || (int)found != i ||
			        !format_of_torch_name(&found, f->torch_name) || (int)found != i)
				fail_msg("format %s shares its dtype or name with another", f->name);
		}
		assert_true(f->block >= 0 && dtype_bits(f->element) > 0 && dtype_bits(f->scale) > 0);
	}
}

/* A number of the narrower type, read as the wider one: by its largest, its smallest and its last bit. */
static void test_fits(void **state)
{
	enum format found;

	(void)state;
	for (int i = 0; i < FORMAT_COUNT; i++)
		assert_int_equal(format_fits((enum format)i, DTYPE_F32),
		        i != FORMAT_CODES_8); /* codes are no numbers */
	assert_true(format_fits(FORMAT_BF16, DTYPE_BF16));
	assert_false(format_fits(FORMAT_F16, DTYPE_BF16));
	assert_false(format_fits(FORMAT_F32, DTYPE_BF16));
	assert_false(format_fits(FORMAT_BF16, DTYPE_F16));
	assert_true(bf16_to_f32(bf16_from_f32(f16_to_f32(0x3c01))) != f16_to_f32(0x3c01));
	assert_false(format_of_weights(&found, DTYPE_U8)); /* quantized: refused */
	assert_false(format_of_torch_name(&found, "int8"));
	assert_true(format_of_torch_name(&found, "float16") && found == FORMAT_F16);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_names),
	        cmocka_unit_test(test_floats),
	        cmocka_unit_test(test_formats),
	        cmocka_unit_test(test_fits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
