/* The resources of an op, scratch memory and the pool's workers, and the check of its indices. */
#include "host/cpu/cpu_inner.h"

#include "base/err.h"
#include "base/mem.h"

void cpu_context_free(struct cpu_context *cx)
{
	if (!cx)
		return;
	mem_free(cx->scratch);
	cx->scratch = NULL;
	cx->scratch_bytes = 0;
}

void *cpu_scratch(struct cpu_context *cx, int64_t bytes)
{
	if (bytes <= cx->scratch_bytes)
		return cx->scratch;
	cpu_context_free(cx);
	cx->scratch = mem_alloc_aligned((size_t)bytes, 1, 64);
	cx->scratch_bytes = cx->scratch ? bytes : 0;
	return cx->scratch;
}

void cpu_run(struct cpu_context *cx, int64_t piece_count, cpu_piece_fn *fn, void *context)
{
	pool_run(cx->pool, piece_count, fn, context);
}

struct cpu_rows cpu_rows_of(const struct row_range *range, int64_t rows)
{
	const int32_t *first;

	if (dev_is_none(range->first))
		return (struct cpu_rows){0, rows};
	first = cpu_ptr(range->first);
	return (struct cpu_rows){first[0], first[range->experts]};
}

struct cpu_rows cpu_rows_piece(const struct row_range *range, int64_t rows, int64_t piece, int64_t each)
{
	struct cpu_rows all = cpu_rows_of(range, rows);
	int64_t begin = all.begin + piece * each;

	return (struct cpu_rows){begin, min_i64(begin + each, all.end)};
}

void cpu_run_rows(struct cpu_context *cx, const struct row_range *range, int64_t rows, int64_t each,
        cpu_piece_fn *fn, void *context)
{
	struct cpu_rows all = cpu_rows_of(range, rows);

	if (all.end > all.begin)
		cpu_run(cx, cpu_pieces(all.end - all.begin, each), fn, context);
}

int cpu_workers(const struct cpu_context *cx)
{
	return pool_worker_count(cx->pool);
}

int cpu_check_index(const char *op_name, const int32_t *index, int64_t count, int64_t limit)
{
	for (int64_t i = 0; i < count; i++)
		if (index[i] < 0 || index[i] >= limit)
			return err_set(ERR_RANGE, "%s: index %d at position %lld is not in [0, %lld)",
			        op_name, (int)index[i], (long long)i, (long long)limit);
	return 0;
}
