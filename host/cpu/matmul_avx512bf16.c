/* matmul_avx512bf16.h: 6 x 64 sums in registers, over operands packed for the L2 cache. */
#include "host/cpu/matmul_avx512bf16.h"

#include "host/cpu/matmul_words.h"

#define INLINE static inline __attribute__((always_inline))

enum {
	DEPTH = MATMUL_AVX512BF16_DEPTH,
	PAIRS = DEPTH / 2,
	LINE = 64, /* bytes that a prefetch loads */
	ROWS = 6,  /* with 4 vectors 24 registers of sums; 4 of b and 1 of a fit beside */
	VECTORS = 4,
	COLUMNS = WORDS_SIDE * VECTORS,
	BLOCK_ROWS = 43 * ROWS, /* of a: 387 KiB, beside 96 KiB of b */
	PACKED_ROWS = (BLOCK_ROWS + 31) / 32 * 32,
};

/* Lines that are still to be prefetched, one by one: `rows` of `count` lines, stride bytes apart. They may
 * lie outside of an operand, because a prefetch does not fault. */
struct ahead {
	uintptr_t at;
	int64_t rows, count, stride, line;
};

INLINE void ask_line(struct ahead *ahead)
{
	if (ahead->rows <= 0)
		return;
	_mm_prefetch((const char *)(ahead->at + LINE * (uintptr_t)ahead->line), _MM_HINT_T1);
	if (++ahead->line == ahead->count) {
		ahead->line = 0;
		ahead->at += (uintptr_t)ahead->stride;
		ahead->rows--;
	}
}

/* Of the columns of b from `at` on, over all of depth. */
static struct ahead ahead_of_columns(const struct operand *o, int64_t at)
{
	int64_t rows = o->has_k_rows ? o->depth : COLUMNS, cols = o->has_k_rows ? COLUMNS : o->depth;

	return (struct ahead){.at = (uintptr_t)o->x + 2 * (uintptr_t)(at * (o->has_k_rows ? 1 : o->stride)),
	        .rows = at < o->count ? rows : 0,
	        .count = (2 * cols + LINE - 1) / LINE,
	        .stride = 2 * o->stride};
}

/* Packs words of a as [count][PAIRS], in the order of storage. Rows after them, to a multiple of ROWS, stay
 * as they are: their sums are not stored. */
static void pack_rows(uint32_t *to, struct operand o)
{
	if (!o.has_k_rows) {
		for (int64_t i = 0; i < o.count; i++)
			for (int64_t k = 0; k < o.depth; k += 32)
				_mm512_store_si512(
				        to + i * PAIRS + k / 2, _mm512_maskz_loadu_epi16(first32(o.depth - k),
				                                        o.x + i * o.stride + k));
		return;
	}
	for (int64_t k = 0; k < o.depth; k += 32) {
		struct ahead next = {.at = (uintptr_t)o.x + 2 * (uintptr_t)((k + 32) * o.stride),
		        .rows = 32,
		        .count = (2 * o.count + LINE - 1) / LINE,
		        .stride = 2 * o.stride};

		while (next.rows)
			ask_line(&next);
		for (int64_t i = 0; i < o.count; i += 32) {
			__m512i low[WORDS_SIDE], high[WORDS_SIDE];

			words_load(low, high, o, i, k, 0);
#pragma GCC unroll 16
			for (int r = 0; r < WORDS_SIDE; r++) {
				_mm512_store_si512(to + (i + r) * PAIRS + k / 2, low[r]);
				_mm512_store_si512(to + (i + r + WORDS_SIDE) * PAIRS + k / 2, high[r]);
			}
		}
	}
}

/* Packs words of b from column `at` on as [depth / 2][COLUMNS], and prefetches as many lines of `ahead`, if
 * it is not NULL. */
static void pack_columns(uint32_t *to, struct operand o, int64_t at, struct ahead *ahead)
{
	if (o.has_k_rows) {
		for (int64_t k = 0; k < o.depth; k += 2, to += COLUMNS)
#pragma GCC unroll 2
			for (int j = 0; j < COLUMNS; j += 32) {
				__m512i low, high;

				words_of_pair(&low, &high, o, at + j, k);
				_mm512_store_si512(to + j, low);
				_mm512_store_si512(to + j + WORDS_SIDE, high);
				for (int line = 0; ahead && line < 2; line++)
					ask_line(ahead);
			}
		return;
	}
	for (int j = 0; j < COLUMNS; j += 32)
		for (int64_t k = 0; k < o.depth; k += 32) {
			__m512i low[WORDS_SIDE], high[WORDS_SIDE];

			words_load(low, high, o, at + j, k, 1);
			for (int line = 0; ahead && line < 32; line++)
				ask_line(ahead);
#pragma GCC unroll 16
			for (int l = 0; l < WORDS_SIDE; l++) {
				_mm512_store_si512(to + (k / 2 + l) * COLUMNS + j, low[l]);
				_mm512_store_si512(to + (k / 2 + l) * COLUMNS + j + WORDS_SIDE, high[l]);
			}
		}
}

/* Computes `rows` x COLUMNS of c, of which `here` are stored. Prefetches lines of c and of what comes next
 * one by one: many at once would hold up the loads. Callers pass accumulate and rounds as constants, and
 * count, the rows that it computes. */
INLINE void tile(const struct sums *s, int64_t rows, const uint32_t *a, const uint32_t *b, int64_t pairs,
        const __mmask16 here[VECTORS], struct ahead *ahead, int count, int accumulate, int rounds)
{
	float spare[COLUMNS] = {0};
	__m512 sum[ROWS][VECTORS];

	for (int i = 0; i < count; i++)
		for (int v = 0; v < VECTORS; v++)
			sum[i][v] = _mm512_setzero_ps();
	for (int64_t l = 0; l < pairs; l++) {
		__m512bh right[VECTORS];

		if (l % 4 == 0)
			ask_line(ahead);
		else if (l % 4 == 2 && l < 4 * ROWS * VECTORS && (accumulate || !rounds) && l / 16 < rows)
			_mm_prefetch(
			        (const char *)(s->c + l / 16 * s->c_stride + l / 4 % VECTORS * WORDS_SIDE),
			        _MM_HINT_T0);
		for (int v = 0; v < VECTORS; v++)
			right[v] = (__m512bh)_mm512_load_si512(b + l * COLUMNS + v * WORDS_SIDE);
		for (int i = 0; i < count; i++) {
			__m512bh left = (__m512bh)_mm512_set1_epi32((int)a[i * PAIRS + l]);

			for (int v = 0; v < VECTORS; v++)
				sum[i][v] = _mm512_dpbf16_ps(sum[i][v], left, right[v]);
		}
	}
#pragma GCC unroll 8
	for (int i = 0; i < count; i++) {
		float *c = i < rows ? s->c + i * s->c_stride : spare;
		uint16_t *rounded =
		        i < rows && rounds ? s->rounded + i * s->rounded_stride : (uint16_t *)spare;

#pragma GCC unroll 8
		for (int v = 0; v < VECTORS; v++) {
			__m512 x = sum[i][v];

			if (accumulate)
				x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(here[v], c + v * WORDS_SIDE));
			if (rounds)
				_mm256_mask_storeu_epi16(
				        rounded + v * WORDS_SIDE, here[v], (__m256i)_mm512_cvtneps_pbh(x));
			else
				_mm512_mask_storeu_ps(c + v * WORDS_SIDE, here[v], x);
		}
	}
}

INLINE void tile_of(const struct sums *s, int64_t rows, const uint32_t *a, const uint32_t *b, int64_t pairs,
        const __mmask16 here[VECTORS], struct ahead *ahead, int count)
{
	if (s->rounded && s->accumulate)
		tile(s, rows, a, b, pairs, here, ahead, count, 1, 1);
	else if (s->rounded)
		tile(s, rows, a, b, pairs, here, ahead, count, 0, 1);
	else if (s->accumulate)
		tile(s, rows, a, b, pairs, here, ahead, count, 1, 0);
	else
		tile(s, rows, a, b, pairs, here, ahead, count, 0, 0);
}

static void part(const struct sums *to, const struct operand *a, const struct operand *b)
{
	_Alignas(64) uint32_t rows[PACKED_ROWS * PAIRS], columns[COLUMNS * PAIRS];
	int64_t pairs = (a->depth + 1) / 2, tiles = (a->count + ROWS - 1) / ROWS;

	pack_rows(rows, *a);
	for (int64_t j = 0; j < b->count; j += COLUMNS) {
		struct ahead ahead = ahead_of_columns(b, j + COLUMNS);
		int64_t asked = tiles * ((pairs + 3) / 4); /* lines, while the tiles are computed */
		__mmask16 here[VECTORS];

		for (int v = 0; v < VECTORS; v++)
			here[v] = first16(b->count - j - v * WORDS_SIDE);
		pack_columns(columns, *b, j, asked < ahead.rows * ahead.count ? &ahead : NULL);
		for (int64_t t = 0; t < tiles; t++) {
			const uint32_t *packed = rows + t * ROWS * PAIRS;
			struct sums at = sums_at(to, t * ROWS, j);
			int64_t left = a->count - t * ROWS;

			if (left == 1) /* as for a token over a cache */
				tile_of(&at, left, packed, columns, pairs, here, &ahead, 1);
			else
				tile_of(&at, left, packed, columns, pairs, here, &ahead, ROWS);
		}
	}
}

void matmul_avx512bf16(const struct matmul_product *p)
{
	matmul_by_parts(p, part, DEPTH, BLOCK_ROWS, ROWS);
}
