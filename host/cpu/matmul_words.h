/* Words of two bf16 values of k in AVX-512 registers, for matmul_amx.c and matmul_avx512bf16.c. The lower
 * half of a word has the even k. Values beyond the operand are 0. */
#ifndef FERRY_HOST_CPU_MATMUL_WORDS_H
#define FERRY_HOST_CPU_MATMUL_WORDS_H

#include "host/cpu/matmul_parts.h"
#include "host/cpu/transpose16.h"

enum { WORDS_SIDE = 16 };

/* A mask of the lowest `count` lanes; all if count is larger. */
static inline __attribute__((always_inline)) __mmask32 first32(int64_t count)
{
	return count < 0 ? 0 : count < 32 ? ((__mmask32)1 << count) - 1 : (__mmask32)-1;
}

/* The words of k and k + 1 at 32 of count from `at` on. Requires has_k_rows. */
static inline __attribute__((always_inline)) void words_of_pair(
        __m512i *low, __m512i *high, struct operand o, int64_t at, int64_t k)
{
	const uint16_t *x = o.x + k * o.stride + at;
	__m512i even, odd;

	if (at + 32 <= o.count && k + 2 <= o.depth) {
		even = _mm512_loadu_si512(x);
		odd = _mm512_loadu_si512(x + o.stride);
	} else {
		even = _mm512_maskz_loadu_epi16(k < o.depth ? first32(o.count - at) : 0, x);
		odd = _mm512_maskz_loadu_epi16(k + 1 < o.depth ? first32(o.count - at) : 0, x + o.stride);
	}
	*low = pairs16(even, odd, 0);
	*high = pairs16(even, odd, 1);
}

/* Loads 32 of count from `at` on and 32 of k, in whole lines. low is of the first 16 of count, high of the
 * others. by_pairs: a vector has one word of each of the 16, else the 16 words of one. */
static inline __attribute__((always_inline)) void words_load(__m512i low[WORDS_SIDE],
        __m512i high[WORDS_SIDE], struct operand o, int64_t at, int64_t k, int by_pairs)
{
	if (o.has_k_rows) {
#pragma GCC unroll 16
		for (int i = 0; i < WORDS_SIDE; i++)
			words_of_pair(&low[i], &high[i], o, at, k + 2 * i);
	} else if (at + 32 <= o.count && k + 32 <= o.depth) {
#pragma GCC unroll 16
		for (int i = 0; i < WORDS_SIDE; i++) {
			const uint16_t *x = o.x + (at + i) * o.stride + k;

			low[i] = _mm512_loadu_si512(x);
			high[i] = _mm512_loadu_si512(x + WORDS_SIDE * o.stride);
		}
	} else {
		__mmask32 here = first32(o.depth - k);

		for (int i = 0; i < WORDS_SIDE; i++) {
			const uint16_t *x = o.x + (at + i) * o.stride + k;

			low[i] = _mm512_maskz_loadu_epi16(at + i < o.count ? here : 0, x);
			high[i] = _mm512_maskz_loadu_epi16(
			        at + i + WORDS_SIDE < o.count ? here : 0, x + WORDS_SIDE * o.stride);
		}
	}
	if (o.has_k_rows != by_pairs) {
		transpose16(low);
		transpose16(high);
	}
}

#endif
