/* Makes the benchmarked ops of layers with a recurrent state, as Qwen3.5 has them: heads of 128, twice as
 * many for values as for keys. */
#include "bench/kernel_recurrent.h"

#include "base/size.h"

enum { RECURRENT_DIM = 128, RECURRENT_TAPS = 4 };

static void make_conv(struct op *op, struct kernel_place *p, const struct bench_scale *s,
        const struct kernel_index *index, enum dtype dtype)
{
	int64_t cols = 2 * s->hidden, texts = 1;
	dev_addr x = kernel_take(p, s->tokens * cols, dtype), y = kernel_take(p, s->tokens * cols, dtype);
	dev_addr weight = kernel_take(p, cols * RECURRENT_TAPS, dtype);

	switch (op->kind) {
	case OP_CONV:
		op->conv = (struct op_conv){y, x, weight, DEV_NONE, index->doc_start, s->tokens, cols,
		        RECURRENT_TAPS, cols, cols, CONV_SILU, dtype};
		break;
	case OP_CONV_GRAD:
		op->conv_grad = (struct op_conv_grad){kernel_take(p, s->tokens * cols, dtype),
		        kernel_take(p, cols * RECURRENT_TAPS, DTYPE_F32), DEV_NONE, y, x, weight, DEV_NONE,
		        index->doc_start,
		        kernel_take(p, conv_scratch_count(s->tokens, cols, RECURRENT_TAPS), DTYPE_F32),
		        s->tokens, cols, RECURRENT_TAPS, cols, cols, CONV_SILU, dtype};
		break;
	default:
		op->conv_cached =
		        (struct op_conv_cached){y, kernel_take(p, texts * (RECURRENT_TAPS - 1) * cols, dtype),
		                x, weight, DEV_NONE, index->doc_start, index->doc_end, 1, texts, s->tokens,
		                cols, RECURRENT_TAPS, cols, cols, CONV_SILU, dtype};
	}
}

static void make_delta(struct op *op, struct kernel_place *p, const struct bench_scale *s,
        const struct kernel_index *index, enum dtype dtype)
{
	enum { DIM = RECURRENT_DIM };
	int64_t keys = max_i64(1, s->hidden / DIM / 2), values = 2 * keys, stride = (2 * keys + values) * DIM;
	dev_addr qkv = kernel_take(p, s->tokens * stride, dtype),
	         out = kernel_take(p, s->tokens * values * DIM, dtype);
	dev_addr a = kernel_take(p, s->tokens * values, dtype), b = kernel_take(p, s->tokens * values, dtype);
	dev_addr decay = kernel_take(p, values, dtype), dt_bias = kernel_take(p, values, dtype), grads;
	int64_t size = dtype_bytes(dtype), k_at = keys * DIM * size, v_at = 2 * k_at;

#define INPUTS                                                                                               \
	.q = qkv, .k = dev_at(qkv, k_at), .v = dev_at(qkv, v_at), .a = a, .b = b, .decay = decay,            \
	.dt_bias = dt_bias, .skip = DEV_NONE, .doc_start = index->doc_start, .tokens = s->tokens,            \
	.key_heads = keys, .value_heads = values, .key_dim = DIM, .value_dim = DIM, .qkv_stride = stride,    \
	.gate_stride = values, .out_stride = values * DIM, .scale = 1 / 11.3137085, .epsilon = 1e-6,         \
	.dtype = dtype

	switch (op->kind) {
	case OP_DELTA:
		op->delta = (struct op_delta){.out = out, INPUTS};
		break;
	case OP_DELTA_GRAD:
		grads = kernel_take(p, s->tokens * stride, dtype);
		op->delta_grad = (struct op_delta_grad){.dq = grads,
		        .dk = dev_at(grads, k_at),
		        .dv = dev_at(grads, v_at),
		        .da = kernel_take(p, s->tokens * values, dtype),
		        .db = kernel_take(p, s->tokens * values, dtype),
		        .ddecay = kernel_take(p, values, DTYPE_F32),
		        .ddt_bias = kernel_take(p, values, DTYPE_F32),
		        .dskip = DEV_NONE,
		        .dout = out,
		        .scratch =
		                kernel_take(p, delta_scratch_count(s->tokens, values, DIM, DIM), DTYPE_F32),
		        INPUTS};
		break;
	default:
		op->delta_cached = (struct op_delta_cached){.out = out,
		        .state = kernel_take(p, values * DIM * DIM, DTYPE_F32),
		        .doc_end = index->doc_end,
		        .texts = 1,
		        .text_rows = s->tokens,
		        INPUTS};
#undef INPUTS
		op->delta_cached.tokens = 1;
	}
}

static void make_gated_norm(
        struct op *op, struct kernel_place *p, const struct bench_scale *s, enum dtype dtype)
{
	int64_t groups = max_i64(1, s->hidden / RECURRENT_DIM), width = groups * RECURRENT_DIM;
	dev_addr x = kernel_take(p, s->tokens * width, dtype),
	         gate = kernel_take(p, s->tokens * width, dtype);
	dev_addr y = kernel_take(p, s->tokens * width, dtype), weight = kernel_take(p, RECURRENT_DIM, dtype);
	dev_addr rstd = kernel_take(p, s->tokens * groups, DTYPE_F32);

	if (op->kind == OP_GATED_NORM)
		op->gated_norm = (struct op_gated_norm){y, x, gate, weight, rstd, s->tokens, groups,
		        RECURRENT_DIM, 1, width, width, width, 1e-6, GATE_AFTER_NORM, dtype};
	else
		op->gated_norm_grad = (struct op_gated_norm_grad){kernel_take(p, s->tokens * width, dtype),
		        kernel_take(p, s->tokens * width, dtype), kernel_take(p, RECURRENT_DIM, DTYPE_F32), y,
		        x, gate, weight, rstd,
		        kernel_take(p, gated_norm_scratch_count(s->tokens, groups, RECURRENT_DIM), DTYPE_F32),
		        s->tokens, groups, RECURRENT_DIM, 1, width, width, width, GATE_AFTER_NORM, dtype};
}

void kernel_make_recurrent(struct op *op, struct kernel_place *p, const struct bench_scale *s,
        const struct kernel_index *index, enum dtype dtype)
{
	if (op->kind == OP_CONV || op->kind == OP_CONV_GRAD || op->kind == OP_CONV_CACHED)
		make_conv(op, p, s, index, dtype);
	else if (op->kind == OP_GATED_NORM || op->kind == OP_GATED_NORM_GRAD)
		make_gated_norm(op, p, s, dtype);
	else
		make_delta(op, p, s, index, dtype);
}
