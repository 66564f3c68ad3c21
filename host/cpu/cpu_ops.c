#include "host/cpu/cpu_inner.h"

#include "base/err.h"
#include "base/mem.h"

cpu_op_fn *const cpu_ops[OP_KIND_COUNT] = {
        [OP_FILL] = cpu_fill,
        [OP_COPY] = cpu_copy,
        [OP_CAST] = cpu_cast,
        [OP_JOIN] = cpu_join,
        [OP_ADD] = cpu_add,
        [OP_MATMUL] = cpu_matmul,
        [OP_COLSUM] = cpu_colsum,
        [OP_GATHER] = cpu_gather,
        [OP_SCATTER] = cpu_scatter,
        [OP_EMBED_GRAD] = cpu_embed_grad,
        [OP_RMSNORM] = cpu_rmsnorm,
        [OP_RMSNORM_GRAD] = cpu_rmsnorm_grad,
        [OP_LAYERNORM] = cpu_layernorm,
        [OP_LAYERNORM_GRAD] = cpu_layernorm_grad,
        [OP_ROPE] = cpu_rope,
        [OP_ATTENTION] = cpu_attention,
        [OP_ATTENTION_GRAD] = cpu_attention_grad,
        [OP_GLU] = cpu_glu,
        [OP_GLU_GRAD] = cpu_glu_grad,
        [OP_ACT] = cpu_act,
        [OP_ACT_GRAD] = cpu_act_grad,
        [OP_CROSS_ENTROPY] = cpu_cross_entropy,
        [OP_SUMSQ] = cpu_sumsq,
        [OP_CAST_SUMSQ] = cpu_cast_sumsq,
        [OP_ADAMW] = cpu_adamw,
};

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
