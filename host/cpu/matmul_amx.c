/* matmul_amx.h: 32 x 32 sums in four of the unit's eight tiles, over operands packed as tiles (amx.h). */
#include "host/cpu/matmul_amx.h"

#include "host/cpu/amx.h"
#include "host/cpu/matmul_words.h"

#include <cpuid.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#define INLINE AMX_INLINE

enum {
	DEPTH = MATMUL_AMX_DEPTH,
	HALF = 2 * AMX_SIDE * DEPTH, /* bytes of 16 rows or columns */
	BLOCK = AMX_BLOCK,
	BLOCK_ROWS = 8 * BLOCK,    /* of a: 256 KiB stay in the L2 cache */
	BLOCK_COLUMNS = 4 * BLOCK, /* of b: 128 KiB too, 32 KiB of them in L1 */
};

INLINE void tile_store(uint16_t *to, const __m512i r[AMX_SIDE])
{
	for (int i = 0; i < AMX_SIDE; i++)
		_mm512_store_si512(to + i * AMX_STEP, r[i]);
}

/* Packs 32 of count and 32 of k as two tiles. by_pairs: as tiles of b, else of a. */
INLINE void pack_step(uint16_t *to, const struct operand *o, int64_t at, int64_t l, int by_pairs)
{
	__m512i low[AMX_SIDE], high[AMX_SIDE];

	words_load(low, high, *o, at, l, by_pairs);
	to += l / AMX_STEP * AMX_TILE;
	tile_store(to, low);
	tile_store(to + DEPTH * AMX_SIDE, high);
}

/* Packs [at, end) of count over all of depth: to[count / 16][l / AMX_STEP] are tiles. It reads in the order
 * of storage. */
INLINE void pack(uint16_t *to, const struct operand *o, int64_t at, int64_t end, int by_pairs)
{
	if (o->has_k_rows)
		for (int64_t l = 0; l < o->depth; l += AMX_STEP)
			for (int64_t i = at; i < end; i += BLOCK)
				pack_step(to + (i - at) * DEPTH, o, i, l, by_pairs);
	else
		for (int64_t i = at; i < end; i += BLOCK)
			for (int64_t l = 0; l < o->depth; l += AMX_STEP)
				pack_step(to + (i - at) * DEPTH, o, i, l, by_pairs);
}

/* Stores contiguous sums to rows x cols of c, or adds them to c. */
static void put(const struct sums *to, const float *sum, int64_t rows, int64_t cols)
{
	for (int64_t i = 0; i < rows; i++)
		for (int64_t j = 0; j < cols; j += AMX_SIDE) {
			__mmask16 here = first16(cols - j);
			__m512 x = _mm512_load_ps(sum + i * BLOCK + j);
			float *c = to->c + i * to->c_stride + j;

			if (to->accumulate)
				x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(here, c));
			if (to->rounded)
				_mm256_mask_storeu_epi16(to->rounded + i * to->rounded_stride + j, here,
				        (__m256i)_mm512_cvtneps_pbh(x));
			else
				_mm512_mask_storeu_ps(c, here, x);
		}
}

static void part(const struct sums *to, const struct operand *a, const struct operand *b)
{
	_Alignas(64) uint16_t rows[BLOCK_ROWS * DEPTH], columns[BLOCK_COLUMNS * DEPTH];
	_Alignas(64) float sum[BLOCK * BLOCK];
	int64_t steps = (b->depth + AMX_STEP - 1) / AMX_STEP;
	int is_plain = !to->accumulate && !to->rounded;

	pack(rows, a, 0, a->count, 0);
	for (int64_t j = 0; j < b->count; j += BLOCK) {
		const uint16_t *panel = columns + j % BLOCK_COLUMNS * DEPTH;
		struct amx_tiles right = {panel, AMX_LINE, HALF, 2 * AMX_TILE};
		int64_t n = min_i64(BLOCK, b->count - j);

		if (panel == columns)
			pack(columns, b, j, min_i64(j + BLOCK_COLUMNS, b->count), 1);
		for (int64_t i = 0; i < a->count; i += BLOCK) {
			int64_t m = min_i64(BLOCK, a->count - i);
			struct amx_tiles left = {rows + i * DEPTH, AMX_LINE, HALF, 2 * AMX_TILE};
			struct sums at = sums_at(to, i, j);

			amx_sums_zero();
			amx_sums_add(left, right, steps);
			if (m == BLOCK && n == BLOCK && is_plain) {
				amx_sums_store(at.c, 4 * at.c_stride);
			} else {
				amx_sums_store(sum, 4 * BLOCK);
				put(&at, sum, m, n);
			}
		}
	}
}

void matmul_amx(const struct matmul_product *p)
{
	amx_begin();
	matmul_by_parts(p, part, DEPTH, BLOCK_ROWS, BLOCK);
	_tile_release();
}

static int is_here;

static void look(void)
{
	enum { ARCH_REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 };
	const unsigned tile_states = 3u << 17, vector_states = 0xe6;
	unsigned a, b, c, d, states, high;

	if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d >> 22 & 1) == 0 || (d >> 24 & 1) == 0)
		return;
	if (!__get_cpuid(1, &a, &b, &c, &d) || (c >> 27 & 1) == 0) /* OSXSAVE, for xgetbv */
		return;
	__asm__("xgetbv" : "=a"(states), "=d"(high) : "c"(0));
	if ((states & (tile_states | vector_states)) != (tile_states | vector_states))
		return;
	/* 8 tiles of 16 rows of 64 bytes; some virtual machines show the instructions but not the sizes */
	if (!__get_cpuid_count(0x1d, 1, &a, &b, &c, &d) || b != (8u << 16 | AMX_LINE) ||
	        (c & 0xffff) != AMX_SIDE)
		return;
	is_here = syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0;
}

int matmul_amx_is_here(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, look);
	return is_here;
}
