/* The vectors of optim/adamw_kernel.inc: 8 elements, 16 in a pair, of 16-bit planes those of even and those
 * of odd places. */
#include <immintrin.h>
#include <stdint.h>

#define KERNEL(name) name##_avx2
#define INLINE static inline __attribute__((always_inline))

enum { LANES = 8, PREFETCH_LOCALITY = 2 }; /* L2: some of these CPUs have a small nearest cache */

typedef __m256 vf;
typedef __m256i vi; /* of 32-bit lanes */
typedef __m256i vh; /* of 16-bit lanes */

struct vf2 {
	vf a, b;
};

INLINE vf vf_all(float x)
{
	return _mm256_set1_ps(x);
}

INLINE vf vf_sub(vf x, vf y)
{
	return _mm256_sub_ps(x, y);
}

INLINE vf vf_mul(vf x, vf y)
{
	return _mm256_mul_ps(x, y);
}

INLINE vf vf_div(vf x, vf y)
{
	return _mm256_div_ps(x, y);
}

INLINE vf vf_sqrt(vf x)
{
	return _mm256_sqrt_ps(x);
}

/* x * y + z, x * y - z */
INLINE vf vf_fma(vf x, vf y, vf z)
{
	return _mm256_fmadd_ps(x, y, z);
}

INLINE vf vf_fms(vf x, vf y, vf z)
{
	return _mm256_fmsub_ps(x, y, z);
}

INLINE vf vf_size(vf x)
{
	return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}

/* x where it is not below `least`, else +0; NaN stays. */
INLINE vf vf_from(vf x, vf least)
{
	return _mm256_and_ps(x, _mm256_cmp_ps(x, least, _CMP_NLT_UQ));
}

INLINE vf vf_size_from(vf x, vf least)
{
	return _mm256_and_ps(x, _mm256_cmp_ps(vf_size(x), least, _CMP_NLT_UQ));
}

/* x, or +0 where it is subnormal or -0: sign makes 0 of what it finds beside a 0. */
INLINE vf vf_normal(vf x)
{
	vi bits = _mm256_castps_si256(x);

	return _mm256_castsi256_ps(
	        _mm256_sign_epi32(bits, _mm256_and_si256(bits, _mm256_set1_epi32(0x7f800000))));
}

INLINE vi vf_bits(vf x)
{
	return _mm256_castps_si256(x);
}

INLINE vf vf_load(const float *x)
{
	return _mm256_loadu_ps(x);
}

INLINE void vf_store(float *x, vf v)
{
	_mm256_storeu_ps(x, v);
}

INLINE struct vf2 vf2_load(const float *x)
{
	vf a = _mm256_castps128_ps256(_mm_loadu_ps(x)), b = _mm256_castps128_ps256(_mm_loadu_ps(x + 4));

	a = _mm256_insertf128_ps(a, _mm_loadu_ps(x + 8), 1);
	b = _mm256_insertf128_ps(b, _mm_loadu_ps(x + 12), 1);
	return (struct vf2){_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd)};
}

INLINE vh vh_all(int x)
{
	return _mm256_set1_epi16((short)x);
}

INLINE vh vh_load(const void *x)
{
	return _mm256_loadu_si256(x);
}

INLINE void vh_store(void *x, vh v)
{
	_mm256_storeu_si256(x, v);
}

INLINE vh vh_and(vh x, vh y)
{
	return _mm256_and_si256(x, y);
}

INLINE vh vh_normal(vh x)
{
	return _mm256_sign_epi16(x, _mm256_and_si256(x, _mm256_set1_epi16(0x7f80)));
}

/* As signed numbers. */
INLINE vh vh_above(vh x, vh y)
{
	return _mm256_cmpgt_epi16(x, y);
}

INLINE vh vh_max(vh x, vh y)
{
	return _mm256_max_epi16(x, y);
}

INLINE int vh_any(vh x)
{
	return _mm256_movemask_epi8(x);
}

/* Upper halves of dwords of y, lower ones of x. */
INLINE vi vi_halves(vi x, vi y)
{
	return _mm256_blend_epi16(x, y, 0xaa);
}

INLINE struct vf2 vf2_of(vi a, vi b)
{
	return (struct vf2){_mm256_castsi256_ps(a), _mm256_castsi256_ps(b)};
}

INLINE struct vf2 vh_widen(vh x)
{
	__asm__("" : "+x"(x)); /* else it is loaded twice, and loads are as dear as arithmetic */
	return vf2_of(_mm256_slli_epi32(x, 16), _mm256_and_si256(x, _mm256_set1_epi32((int)0xffff0000)));
}

/* hi + (lo < 0 ? -1 : 0) is the upper half of the sum. */
INLINE struct vf2 vh_join(vh hi, vh lo)
{
	vh upper = _mm256_add_epi16(hi, _mm256_srai_epi16(lo, 15));

	return vf2_of(
	        vi_halves(lo, _mm256_slli_epi32(upper, 16)), vi_halves(_mm256_srli_epi32(lo, 16), upper));
}

/* Also the upper halves of w as they are, before lo is taken off. */
INLINE void vh_split(vh *hi, vh *lo, vh *upper, struct vf2 w)
{
	vi a = vf_bits(w.a), b = vf_bits(w.b);

	*lo = vi_halves(a, _mm256_slli_epi32(b, 16));
	*upper = vi_halves(_mm256_srli_epi32(a, 16), b);
	*hi = _mm256_sub_epi16(*upper, _mm256_srai_epi16(*lo, 15));
}

/* Upper halves of x + random. */
INLINE vh vh_round(struct vf2 x, vi random_a, vi random_b)
{
	return vi_halves(_mm256_srli_epi32(_mm256_add_epi32(vf_bits(x.a), random_a), 16),
	        _mm256_add_epi32(vf_bits(x.b), random_b));
}

/* The same for pairs in the order of memory. unpack and pack work inside 128 bits. */
INLINE vh vh_permute(vh x)
{
	return _mm256_permute4x64_epi64(x, 0xd8);
}

INLINE struct vf2 vh_widen_in_order(vh x)
{
	vh zero = _mm256_setzero_si256();

	x = vh_permute(x);
	return vf2_of(_mm256_unpacklo_epi16(zero, x), _mm256_unpackhi_epi16(zero, x));
}

INLINE struct vf2 vh_join_in_order(vh hi, vh lo)
{
	vh upper;

	lo = vh_permute(lo);
	upper = _mm256_add_epi16(vh_permute(hi), _mm256_srai_epi16(lo, 15));
	return vf2_of(_mm256_unpacklo_epi16(lo, upper), _mm256_unpackhi_epi16(lo, upper));
}

INLINE void vh_split_in_order(vh *hi, vh *lo, vh *upper, struct vf2 w)
{
	const vi halves = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 0, 1, 4, 5,
	        8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
	vi a = _mm256_shuffle_epi8(vf_bits(w.a), halves), b = _mm256_shuffle_epi8(vf_bits(w.b), halves);

	*lo = vh_permute(_mm256_unpacklo_epi64(a, b));
	*upper = vh_permute(_mm256_unpackhi_epi64(a, b));
	*hi = _mm256_sub_epi16(*upper, _mm256_srai_epi16(*lo, 15));
}

INLINE vi vi_all(uint32_t x)
{
	return _mm256_set1_epi32((int)x);
}

INLINE vi vi_load(const uint32_t *x)
{
	return _mm256_loadu_si256((const void *)x);
}

INLINE vi vi_xor(vi x, vi y)
{
	return _mm256_xor_si256(x, y);
}

/* From the order of memory to that of a pair. */
INLINE void vi2_reorder(uint32_t *x)
{
	struct vf2 y = vf2_load((const float *)(const void *)x);

	vf_store((float *)(void *)x, y.a);
	vf_store((float *)(void *)x + LANES, y.b);
}

INLINE vi vi_max(vi x, vi y)
{
	return _mm256_max_epi32(x, y);
}

INLINE uint32_t vi_largest(vi x)
{
	__m128i y = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));

	y = _mm_max_epi32(y, _mm_shuffle_epi32(y, 0x4e));
	return (uint32_t)_mm_cvtsi128_si32(_mm_max_epi32(y, _mm_shuffle_epi32(y, 0xb1)));
}

/* ---- for codes of 8 bits ---- */

/* A number of no sign takes that of the other. */
INLINE vf vf_with_sign(vf number, vf other)
{
	vi sign = _mm256_and_si256(vf_bits(other), _mm256_set1_epi32(INT32_MIN));

	return _mm256_or_ps(number, _mm256_castsi256_ps(sign));
}

INLINE vh vh_add(vh x, vh y)
{
	return _mm256_add_epi16(x, y);
}

INLINE vh vh_left(vh x, int count)
{
	return _mm256_slli_epi16(x, count);
}

/* Of signed numbers. */
INLINE vh vh_right(vh x, int count)
{
	return _mm256_srai_epi16(x, count);
}

INLINE vh vh_size(vh x)
{
	return _mm256_abs_epi16(x);
}

/* The number, 0 where x is a 0, with x's sign. */
INLINE vh vh_with_sign(vh number, vh x)
{
	return _mm256_sign_epi16(number, x);
}

INLINE vh vh_upper(struct vf2 x)
{
	return vi_halves(_mm256_srli_epi32(vf_bits(x.a), 16), vf_bits(x.b));
}

INLINE vh vh_of_bytes(const uint8_t *x)
{
	return _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)x));
}

INLINE vh vh_of_signed_bytes(const uint8_t *x)
{
	return _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)x));
}

/* The nearest numbers that bytes hold. */
INLINE void vh2_store_bytes(uint8_t *x, vh a, vh b)
{
	vh_store(x, vh_permute(_mm256_packus_epi16(a, b)));
}

INLINE void vh2_store_signed_bytes(uint8_t *x, vh a, vh b)
{
	vh_store(x, vh_permute(_mm256_packs_epi16(a, b)));
}

#include "optim/sumsq_kernel.inc"

#include "optim/adamw_kernel.inc"
