/* links: checkpoint */
/* Conversions and checksums of checkpoint bytes, in every instruction set, for every length. */
#include "checkpoint/file/convert.h"

#include "base/mem.h"
#include "base/num.h"
#include "checkpoint/file/hash.h"
#include "tests/check.h"

#include <math.h>
#include <xxhash.h>

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
	assert_int_equal(k->check(src, count), bad);
	assert_int_equal(hi[0], 0x5a5a);
	assert_int_equal(lo[0], 0x5a5a);
	assert_int_equal(hi[count + 1], 0x5a5a);
	assert_int_equal(lo[count + 1], 0x5a5a);
	for (int64_t i = 0; i < count && !bad; i++) {
		assert_int_equal(hi[i + 1], plane_hi(f32_bits(src[i])));
		assert_int_equal(lo[i + 1], plane_lo(f32_bits(src[i])));
		assert_int_equal(plane_join(hi[i + 1], lo[i + 1]), f32_bits(src[i]));
	}
	if (!bad) { /* and back */
		float back[MOST + 2];

		memset(back, 0x5a, sizeof(back));
		k->join(back + 1, hi + 1, lo + 1, count);
		assert_memory_equal(back + 1, src, (size_t)count * sizeof(*src));
		assert_int_equal(f32_bits(back[0]), 0x5a5a5a5a);
		assert_int_equal(f32_bits(back[count + 1]), 0x5a5a5a5a);
	}
}

static void check_product(const struct convert_kernels *k, const float *b, int64_t count)
{
	float sum[MOST + 2], want[MOST + 2];

	for (int64_t i = 0; i < count + 2; i++)
		sum[i] = want[i] = 1.5f - (float)i / 7;
	for (int64_t i = 0; i < count; i++)
		want[i + 1] = fmaf(0.3f, b[i], want[i + 1]);
	k->add_product(sum + 1, 0.3f, b, count);
	assert_memory_equal(sum, want, (size_t)(count + 2) * sizeof(*sum));
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
				check_f32(k, values + shift, count), check_product(k, values + shift, count);
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

/* The library's numbers, of the whole and of parts, at any place. */
static void each_hash(void **state)
{
	enum { LONGEST = 70000 };
	unsigned char *bytes = mem_alloc(LONGEST + 64, 1);
	const struct hash_kernels *k;

	(void)state;
	assert_non_null(bytes);
	for (int i = 0; i < LONGEST + 64; i++)
		bytes[i] = (unsigned char)rng_u64(5, 0, (uint64_t)i);
	for (int index = 0; (k = hash_kernels_at(index)); index++) {
		print_message("%s\n", k->name);
		for (int64_t len = 0; len <= LONGEST; len += len < 600 ? 1 : 9001) {
			const unsigned char *from = bytes + len % 64;
			uint64_t expected = XXH3_64bits(from, (size_t)len);
			struct hash hash;

			assert_true(k->of(from, (size_t)len) == expected);
			k->begin(&hash);
			for (int64_t at = 0, part; at < len; at += part) {
				part = (int64_t)rng_below(6, (uint64_t)len, (uint64_t)at, 1500) + 1;
				part = part < len - at ? part : len - at;
				k->add(&hash, from + at, (size_t)part);
			}
			assert_true(k->end(&hash) == expected);
		}
	}
	mem_free(bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(each_length),
	        cmocka_unit_test(each_half),
	        cmocka_unit_test(each_hash),
	};

	return cmocka_run_group_tests_name("checkpoint_convert", tests, NULL, NULL);
}
