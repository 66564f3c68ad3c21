/* Shared by the op files: pieces on the pool, and both compute dtypes as fp32. */
#ifndef FERRY_HOST_CPU_CPU_INNER_H
#define FERRY_HOST_CPU_CPU_INNER_H

#include "base/dtype.h"
#include "base/size.h"
#include "device/row_range.h"
#include "host/cpu/cpu.h"
#include "host/cpu/kernels.h"

/* Elements that pass through a worker's cache at once, and elements of one piece of an elementwise op. */
enum { CPU_CHUNK = 512, CPU_PIECE = 16384 };

/* Runs fn(context, piece, worker) for each piece; 0 <= worker < cpu_workers(cx). */
typedef void cpu_piece_fn(void *context, int64_t piece, int worker);
void cpu_run(struct cpu_context *cx, int64_t piece_count, cpu_piece_fn *fn, void *context);
int cpu_workers(const struct cpu_context *cx);

static inline int64_t cpu_pieces(int64_t count, int64_t piece)
{
	return (count + piece - 1) / piece;
}

/* Rows of row_count elements in a piece. A piece of some microseconds is worth waking a thread. */
static inline int64_t cpu_piece_rows(int64_t row_count)
{
	return cpu_pieces(8192, row_count);
}

/* The rows of a range, of `rows` in all; and those of one of its pieces. */
struct cpu_rows {
	int64_t begin, end;
};
struct cpu_rows cpu_rows_of(const struct row_range *range, int64_t rows);
struct cpu_rows cpu_rows_piece(const struct row_range *range, int64_t rows, int64_t piece, int64_t each);

/* Runs fn for each piece of `each` rows of the range. */
void cpu_run_rows(struct cpu_context *cx, const struct row_range *range, int64_t rows, int64_t each,
        cpu_piece_fn *fn, void *context);

/* Elements src[at .. at + n) as fp32: in place if they are F32, else widened into buffer. */
static inline const float *cpu_load(
        const struct cpu_kernels *k, float *buffer, const void *src, int64_t at, int64_t n, enum dtype dtype)
{
	if (dtype == DTYPE_F32)
		return (const float *)src + at;
	k->widen(buffer, (const uint16_t *)src + at, n);
	return buffer;
}

/* The place to compute dst[at ..): dst itself if it is F32, else buffer, which cpu_store then rounds. */
static inline float *cpu_out(float *buffer, void *dst, int64_t at, enum dtype dtype)
{
	return dtype == DTYPE_F32 ? (float *)dst + at : buffer;
}

static inline void cpu_store(
        const struct cpu_kernels *k, void *dst, int64_t at, const float *value, int64_t n, enum dtype dtype)
{
	if (dtype == DTYPE_BF16)
		k->narrow((uint16_t *)dst + at, value, n);
}

/* One number of an array; one number as dtype keeps it. */
static inline float cpu_number(const void *src, int64_t at, enum dtype dtype)
{
	float buffer;

	return *cpu_load(cpu_kernels(), &buffer, src, at, 1, dtype);
}

static inline float cpu_rounded(float x, enum dtype dtype)
{
	uint16_t bits;

	if (dtype == DTYPE_F32)
		return x;
	cpu_kernels()->narrow(&bits, &x, 1);
	cpu_kernels()->widen(&x, &bits, 1);
	return x;
}

/* Checks 0 <= index < limit. Returns 0, or ERR_RANGE naming op, position and value. */
int cpu_check_index(const char *op_name, const int32_t *index, int64_t count, int64_t limit);

#endif
