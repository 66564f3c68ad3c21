/* Matrix instructions, after the tables of the PTX ISA ("Matrix Fragments for mma.m16n8k16 with floating
 * point type", "Warp-level matrix load instruction: ldmatrix"), like gpu/mma.cuh. */
#include "tests/simt/simt_machine.h"

#include <math.h>
#include <string.h>

enum { M = 16, N = 8, K = 16, ROW_BYTES = 16 };

static const uint32_t all_lanes = 0xffffffffu;

static float float_of(uint32_t bits)
{
	float x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

static uint32_t bf16_of(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	if (x != x)
		return 0x7fff; /* the one NaN that cvt gives */
	return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

uint32_t simt_bf16_pack(float low, float high)
{
	return bf16_of(low) | bf16_of(high) << 16;
}

#if defined(__x86_64__)
#define WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDEST
#endif

/* To fp32, towards zero: tensor cores do not round to nearest (Fasi, Higham, Mikaitis and Pranesh, "Numerical
 * behavior of NVIDIA tensor cores", 2021). */
static float truncated(double x)
{
	float y = (float)x;

	return fabs((double)y) > fabs(x) ? nextafterf(y, 0) : y;
}

/* sums += a * b, of exact products, in double: hardware's own order and width are not published. */
static WIDEST void product(double sums[M][N], float a[M][K], float b[K][N])
{
	for (int m = 0; m < M; m++)
		for (int k = 0; k < K; k++)
			for (int n = 0; n < N; n++)
				sums[m][n] += (double)a[m][k] * (double)b[k][n];
}

struct mma_slot {
	float *d;
	const uint32_t *a, *b;
};

static void mma_complete(struct warp *warp, uint32_t mask)
{
	float a[M][K], b[K][N];
	double sums[M][N];

	(void)mask;
	for (int lane = 0; lane < SIMT_WARP; lane++) {
		struct mma_slot *s = warp->lanes[lane].slot;
		int group = lane / 4, pair = lane % 4;

		for (int r = 0; r < 4; r++)
			for (int half = 0; half < 2; half++)
				a[group + r % 2 * 8][2 * pair + r / 2 * 8 + half] =
				        float_of((half ? s->a[r] >> 16 : s->a[r]) << 16);
		for (int r = 0; r < 4; r++)
			sums[group + r / 2 * 8][2 * pair + r % 2] = s->d[r];
		for (int r = 0; r < 2; r++)
			for (int half = 0; half < 2; half++)
				b[2 * pair + r * 8 + half][group] =
				        float_of((half ? s->b[r] >> 16 : s->b[r]) << 16);
	}
	product(sums, a, b);
	for (int lane = 0; lane < SIMT_WARP; lane++) {
		struct mma_slot *s = warp->lanes[lane].slot;
		int group = lane / 4, pair = lane % 4;

		for (int r = 0; r < 4; r++)
			s->d[r] = truncated(sums[group + r / 2 * 8][2 * pair + r % 2]);
	}
}

void simt_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2], const char *file, int line)
{
	static const struct meeting meeting = {"mma", mma_complete, 1};
	struct mma_slot slot = {d, a, b};

	warp_meet(all_lanes, &meeting, &slot, file, line);
}

struct ldmatrix_slot {
	uint32_t *r;
	const char *row;
	int transposed;
};

static void ldmatrix_complete(struct warp *warp, uint32_t mask)
{
	(void)mask;
	for (int lane = 0; lane < SIMT_WARP; lane++) {
		struct ldmatrix_slot *s = warp->lanes[lane].slot;

		for (int matrix = 0; matrix < 4; matrix++) {
			uint16_t elements[2];

			for (int e = 0; e < 2; e++) {
				int row = s->transposed ? 2 * (lane % 4) + e : lane / 4;
				int col = s->transposed ? lane / 4 : 2 * (lane % 4) + e;
				struct ldmatrix_slot *from = warp->lanes[8 * matrix + row].slot;

				memcpy(&elements[e], from->row + 2 * col, 2);
			}
			s->r[matrix] = elements[0] | (uint32_t)elements[1] << 16;
		}
	}
}

void simt_ldmatrix_x4(uint32_t r[4], const void *row, int transposed, const char *file, int line)
{
	static const struct meeting plain = {"ldmatrix", ldmatrix_complete, 1};
	static const struct meeting trans = {"ldmatrix.trans", ldmatrix_complete, 1};
	struct ldmatrix_slot slot = {r, row, transposed};

	if ((const char *)row < machine.shared || (const char *)row >= machine.shared + SHARED_REGION_BYTES)
		thread_stop(FOUND_BAD_ADDRESS, "ldmatrix at %s:%d: address %p is not in shared memory", file,
		        line, row);
	if ((uintptr_t)row % ROW_BYTES)
		thread_stop(
		        FOUND_MISALIGNED, "misaligned: ldmatrix at %s:%d of a row at %p", file, line, row);
	check_access_of(__builtin_return_address(0), row, ROW_BYTES, ACCESS_READ, ROW_BYTES);
	warp_meet(all_lanes, transposed ? &trans : &plain, &slot, file, line);
}
