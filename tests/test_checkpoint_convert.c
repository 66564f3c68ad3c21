/* links: checkpoint */
#include "checkpoint/convert.h"

#include "base/mem.h"
#include "base/num.h"
#include "tests/check.h"

#include <math.h>

/* Every kernel of this machine, at every length and place, against the definitions of base/num.h. */

enum { MOST = 300 };

static int bits_are_finite(uint32_t bits)
{
	return (bits & 0x7f800000) != 0x7f800000;
}

static void check_f32(const struct convert_kernels *k, const float *src, int64_t count)
{
	uint16_t hi[MOST + 2];
	int16_t lo[MOST + 2];
	int bad = 0;

	memset(hi, 0x5a, sizeof(hi));
	memset(lo, 0x5a, sizeof(lo));
	for (int64_t i = 0; i < count; i++)
		bad |= !bits_are_finite(f32_bits(src[i]));
	assert_int_equal(k->f32(hi + 1, lo + 1, src, count), bad);
	assert_int_equal(hi[0], 0x5a5a);
	assert_int_equal(lo[0], 0x5a5a);
	assert_int_equal(hi[count + 1], 0x5a5a);
	assert_int_equal(lo[count + 1], 0x5a5a);
	for (int64_t i = 0; i < count && !bad; i++) {
		assert_int_equal(hi[i + 1], plane_hi(f32_bits(src[i])));
		assert_int_equal(lo[i + 1], plane_lo(f32_bits(src[i])));
		assert_int_equal(plane_join(hi[i + 1], lo[i + 1]), f32_bits(src[i]));
	}
}

static void each_length(void **state)
{
	static const uint32_t odd[] = {0, 0x80000000, 1, 0x807fffff, 0x00800000, 0x7f7fffff, 0xff7fffff,
	        0x3f808000, 0x3f807fff, 0x7f7f8000, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001,
	        0xffffffff};
	enum { ODD = sizeof(odd) / sizeof(*odd) };
	const struct convert_kernels *k;
	float values[MOST + 8];

	(void)state;
	for (int index = 0; (k = convert_kernels_at(index)); index++) {
		print_message("%s\n", k->name);
		for (int64_t count = 0; count <= MOST; count += count < 80 ? 1 : 17) {
			for (int i = 0; i < MOST + 8; i++)
				values[i] = f32_from_bits(
				        (uint32_t)rng_u64(1, (uint64_t)count, (uint64_t)i) & 0xbfffffff);
			for (int shift = 0; shift < 8; shift++)
				check_f32(k, values + shift, count);
			for (int i = 0; i < ODD && count; i++) { /* one of them, anywhere */
				int64_t at =
				        (int64_t)rng_below(2, (uint64_t)count, (uint64_t)i, (uint64_t)count);
				float kept = values[at];

				values[at] = f32_from_bits(odd[i]);
				check_f32(k, values, count);
				values[at] = kept;
			}
		}
	}
}

/* All 65536 of them. */
static void each_half(void **state)
{
	const struct convert_kernels *k;

	(void)state;
	for (int index = 0; (k = convert_kernels_at(index)); index++) {
		for (uint32_t first = 0; first < 65536; first += 64) {
			uint16_t half[64], hi[64];
			int16_t lo[64];
			int bad = 0, bad_bf16 = 0;

			for (uint32_t i = 0; i < 64; i++) {
				half[i] = (uint16_t)(first + i);
				bad |= !bits_are_finite(f32_bits(f16_to_f32(half[i])));
				bad_bf16 |= !bits_are_finite((uint32_t)half[i] << 16);
			}
			assert_int_equal(k->f16(hi, lo, half, 64), bad);
			assert_int_equal(k->bf16(half, 64), bad_bf16);
			for (int i = 0; i < 64 && !bad; i++)
				assert_int_equal(plane_join(hi[i], lo[i]), f32_bits(f16_to_f32(half[i])));
		}
	}
	for (int index = 0; (k = convert_kernels_at(index)); index++) {
		for (int64_t count = 0; count < 100; count++) {
			uint16_t half[100] = {0};

			assert_int_equal(k->bf16(half, count), 0);
			for (int64_t at = 0; at < count; at++) {
				half[at] = at % 2 ? 0x7f80 : 0xffc1;
				assert_int_equal(k->bf16(half, count), 1);
				half[at] = 0;
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(each_length),
	        cmocka_unit_test(each_half),
	};

	return cmocka_run_group_tests_name("checkpoint_convert", tests, NULL, NULL);
}
