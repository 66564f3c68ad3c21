/* Words of 32 bits in AVX-512 registers, for files that are compiled for it and for AVX512-BF16. */
#ifndef FERRY_HOST_CPU_TRANSPOSE16_H
#define FERRY_HOST_CPU_TRANSPOSE16_H

#include <immintrin.h>
#include <stdint.h>

/* Transposes 16 x 16 words. */
static inline __attribute__((always_inline)) void transpose16(__m512i r[16])
{
	__m512i t[16];

	for (int i = 0; i < 8; i++) {
		t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
		t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
	}
	for (int i = 0; i < 4; i++) {
		r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
		r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
		r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
		r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
	}
	for (int i = 0; i < 4; i++) {
		t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
		t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
		t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
		t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
	}
	for (int i = 0; i < 4; i++) {
		r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
		r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
		r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
		r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
	}
}

/* Pairs the elements of two rows of 32 bf16, for the 16 low columns or the 16 high ones. */
static inline __attribute__((always_inline)) __m512i pairs16(__m512i even, __m512i odd, int high)
{
	const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39,
	        7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);

	return _mm512_permutex2var_epi16(
	        even, high ? _mm512_add_epi16(low, _mm512_set1_epi16(16)) : low, odd);
}

/* A mask of the lowest `count` words; all if count is larger. */
static inline __attribute__((always_inline)) __mmask16 first16(int64_t count)
{
	return count < 0 ? 0 : count < 16 ? (__mmask16)((1u << count) - 1) : (__mmask16)-1;
}

/* Rounds to bf16: word i holds even[i] in its low half and odd[i] in its high half. */
static inline __attribute__((always_inline)) __m512i round_pairs(__m512 even, __m512 odd)
{
	const __m512i pairs = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,
	        23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);

	return _mm512_permutexvar_epi16(pairs, (__m512i)_mm512_cvtne2ps_pbh(odd, even));
}

#endif
