/* The vectors of optim/adamw_kernel.inc: 16 elements, 32 in a pair, of 16-bit planes those of even and
 * those of odd places. */
#include <immintrin.h>
#include <stdint.h>

#define KERNEL(name) name##_avx512
#define INLINE static inline __attribute__((always_inline))

enum { LANES = 16, PREFETCH_LOCALITY = 3 }; /* the nearest cache */

typedef __m512 vf;
typedef __m512i vi; /* of 32-bit lanes */
typedef __m512i vh; /* of 16-bit lanes */

struct vf2 {
	vf a, b;
};

INLINE vf vf_all(float x)
{
	return _mm512_set1_ps(x);
}

INLINE vf vf_sub(vf x, vf y)
{
	return _mm512_sub_ps(x, y);
}

INLINE vf vf_mul(vf x, vf y)
{
	return _mm512_mul_ps(x, y);
}

INLINE vf vf_div(vf x, vf y)
{
	return _mm512_div_ps(x, y);
}

INLINE vf vf_sqrt(vf x)
{
	return _mm512_sqrt_ps(x);
}

/* x * y + z, x * y - z */
INLINE vf vf_fma(vf x, vf y, vf z)
{
	return _mm512_fmadd_ps(x, y, z);
}

INLINE vf vf_fms(vf x, vf y, vf z)
{
	return _mm512_fmsub_ps(x, y, z);
}

/* x where it, or its size, is not below `least`, else +0; NaN stays. */
INLINE vf vf_from(vf x, vf least)
{
	return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, least, _CMP_NLT_UQ), x);
}

INLINE vf vf_size_from(vf x, vf least)
{
	return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(_mm512_abs_ps(x), least, _CMP_NLT_UQ), x);
}

INLINE vf vf_size(vf x)
{
	return _mm512_abs_ps(x);
}

/* x, or +0 where it is subnormal or -0. */
INLINE vf vf_normal(vf x)
{
	return _mm512_maskz_mov_ps(
	        _mm512_test_epi32_mask(_mm512_castps_si512(x), _mm512_set1_epi32(0x7f800000)), x);
}

INLINE vi vf_bits(vf x)
{
	return _mm512_castps_si512(x);
}

INLINE vf vf_load(const float *x)
{
	return _mm512_loadu_ps(x);
}

INLINE void vf_store(float *x, vf v)
{
	_mm512_storeu_ps(x, v);
}

INLINE struct vf2 vf2_load(const float *x)
{
	const vi even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30),
	         odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
	vf first = _mm512_loadu_ps(x), second = _mm512_loadu_ps(x + 16);

	return (struct vf2){
	        _mm512_permutex2var_ps(first, even, second), _mm512_permutex2var_ps(first, odd, second)};
}

INLINE vi vi_all(uint32_t x)
{
	return _mm512_set1_epi32((int)x);
}

INLINE vi vi_load(const uint32_t *x)
{
	return _mm512_loadu_si512(x);
}

INLINE vi vi_xor(vi x, vi y)
{
	return _mm512_xor_si512(x, y);
}

/* From the order of memory to that of a pair. */
INLINE void vi2_reorder(uint32_t *x)
{
	struct vf2 y = vf2_load((const float *)(const void *)x);

	vf_store((float *)(void *)x, y.a);
	vf_store((float *)(void *)x + LANES, y.b);
}

INLINE vh vh_all(int x)
{
	return _mm512_set1_epi16((short)x);
}

INLINE vh vh_load(const void *x)
{
	return _mm512_loadu_si512(x);
}

INLINE void vh_store(void *x, vh v)
{
	_mm512_storeu_si512(x, v);
}

INLINE vh vh_and(vh x, vh y)
{
	return _mm512_and_si512(x, y);
}

INLINE vh vh_normal(vh x)
{
	return _mm512_maskz_mov_epi16(_mm512_test_epi16_mask(x, _mm512_set1_epi16(0x7f80)), x);
}

/* As signed numbers. */
INLINE vh vh_above(vh x, vh y)
{
	return _mm512_movm_epi16(_mm512_cmpgt_epi16_mask(x, y));
}

INLINE vh vh_max(vh x, vh y)
{
	return _mm512_max_epi16(x, y);
}

INLINE int vh_any(vh x)
{
	return _mm512_movepi16_mask(x) != 0;
}

/* Upper halves of dwords of y, lower ones of x. */
INLINE vi vi_halves(vi x, vi y)
{
	return _mm512_mask_blend_epi16(0xaaaaaaaa, x, y);
}

INLINE struct vf2 vf2_of(vi a, vi b)
{
	return (struct vf2){_mm512_castsi512_ps(a), _mm512_castsi512_ps(b)};
}

INLINE struct vf2 vh_widen(vh x)
{
	return vf2_of(_mm512_slli_epi32(x, 16), _mm512_and_si512(x, _mm512_set1_epi32((int)0xffff0000)));
}

/* hi + (lo < 0 ? -1 : 0) is the upper half of the sum. */
INLINE struct vf2 vh_join(vh hi, vh lo)
{
	vh upper = _mm512_add_epi16(hi, _mm512_srai_epi16(lo, 15));

	return vf2_of(
	        vi_halves(lo, _mm512_slli_epi32(upper, 16)), vi_halves(_mm512_srli_epi32(lo, 16), upper));
}

/* Also the upper halves of w as they are, before lo is taken off. */
INLINE void vh_split(vh *hi, vh *lo, vh *upper, struct vf2 w)
{
	vi a = vf_bits(w.a), b = vf_bits(w.b);

	*lo = vi_halves(a, _mm512_slli_epi32(b, 16));
	*upper = vi_halves(_mm512_srli_epi32(a, 16), b);
	*hi = _mm512_sub_epi16(*upper, _mm512_srai_epi16(*lo, 15));
}

/* Upper halves of x + random. */
INLINE vh vh_round(struct vf2 x, vi random_a, vi random_b)
{
	return vi_halves(_mm512_srli_epi32(_mm512_add_epi32(vf_bits(x.a), random_a), 16),
	        _mm512_add_epi32(vf_bits(x.b), random_b));
}

/* The same for pairs in the order of memory. unpack and pack work inside 128 bits. */
INLINE vh vh_spread(vh x)
{
	return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), x);
}

INLINE vh vh_gather(vh x)
{
	return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), x);
}

INLINE struct vf2 vh_widen_in_order(vh x)
{
	vh zero = _mm512_setzero_si512();

	x = vh_spread(x);
	return vf2_of(_mm512_unpacklo_epi16(zero, x), _mm512_unpackhi_epi16(zero, x));
}

INLINE struct vf2 vh_join_in_order(vh hi, vh lo)
{
	vh upper;

	lo = vh_spread(lo);
	upper = _mm512_add_epi16(vh_spread(hi), _mm512_srai_epi16(lo, 15));
	return vf2_of(_mm512_unpacklo_epi16(lo, upper), _mm512_unpackhi_epi16(lo, upper));
}

INLINE void vh_split_in_order(vh *hi, vh *lo, vh *upper, struct vf2 w)
{
	const vi halves =
	        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
	vi a = _mm512_shuffle_epi8(vf_bits(w.a), halves), b = _mm512_shuffle_epi8(vf_bits(w.b), halves);

	*lo = vh_gather(_mm512_unpacklo_epi64(a, b));
	*upper = vh_gather(_mm512_unpackhi_epi64(a, b));
	*hi = _mm512_sub_epi16(*upper, _mm512_srai_epi16(*lo, 15));
}

INLINE vi vi_max(vi x, vi y)
{
	return _mm512_max_epi32(x, y);
}

INLINE uint32_t vi_largest(vi x)
{
	return (uint32_t)_mm512_reduce_max_epi32(x);
}

/* ---- for codes of 8 bits ---- */

/* A number of no sign takes that of the other. */
INLINE vf vf_with_sign(vf number, vf other)
{
	vi sign = _mm512_and_si512(vf_bits(other), _mm512_set1_epi32(INT32_MIN));

	return _mm512_or_ps(number, _mm512_castsi512_ps(sign));
}

INLINE vh vh_add(vh x, vh y)
{
	return _mm512_add_epi16(x, y);
}

INLINE vh vh_left(vh x, unsigned count)
{
	return _mm512_slli_epi16(x, count);
}

/* Of signed numbers. */
INLINE vh vh_right(vh x, unsigned count)
{
	return _mm512_srai_epi16(x, count);
}

INLINE vh vh_size(vh x)
{
	return _mm512_abs_epi16(x);
}

/* The number with x's sign. */
INLINE vh vh_with_sign(vh number, vh x)
{
	return _mm512_mask_sub_epi16(number, _mm512_movepi16_mask(x), _mm512_setzero_si512(), number);
}

INLINE vh vh_upper(struct vf2 x)
{
	return vi_halves(_mm512_srli_epi32(vf_bits(x.a), 16), vf_bits(x.b));
}

INLINE vh vh_of_bytes(const uint8_t *x)
{
	return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)x));
}

INLINE vh vh_of_signed_bytes(const uint8_t *x)
{
	return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const void *)x));
}

/* The nearest numbers that bytes hold. */
INLINE void vh2_store_bytes(uint8_t *x, vh a, vh b)
{
	vh_store(x, vh_gather(_mm512_packus_epi16(a, b)));
}

INLINE void vh2_store_signed_bytes(uint8_t *x, vh a, vh b)
{
	vh_store(x, vh_gather(_mm512_packs_epi16(a, b)));
}

#include "optim/sumsq_kernel.inc"

#include "optim/adamw_kernel.inc"
