/* One valid op of each kind. */
#ifndef FERRY_TESTS_VALID_OPS_H
#define FERRY_TESTS_VALID_OPS_H

#include "device/op.h"

/* Addresses far apart. Every size field has its own value, so that the tests find it. */
enum { PLACE = 1 << 24 };
#define AT(i) ((dev_addr){PLACE * (uint64_t)(i)})

/* Fields that several rows share. */
#define NORM_SHAPE .rows = 5, .groups = 1, .cols = 7, .x_stride = 8, .y_stride = 9, .dtype = DTYPE_F32
#define NORM_GRAD                                                                                            \
	.dx = AT(1), .dweight = AT(2), .dy = AT(4), .x = AT(5), .weight = AT(6), .rstd = AT(7),              \
	.scratch = AT(9), NORM_SHAPE
/* k and v follow q in each row, at these elements. */
#define ATTENTION(k_at, v_at, bytes)                                                                         \
	.q = AT(3), .k = {3 * PLACE + (bytes) * (k_at)}, .v = {3 * PLACE + (bytes) * (v_at)},                \
	.doc_start = AT(6), .doc_end = AT(7), .tokens = 5, .heads = 4, .kv_heads = 2, .head_dim = 8,         \
	.qkv_stride = 64, .q_head_stride = 9, .kv_head_stride = 10, .out_stride = 33, .scale = 1

#define CONV                                                                                                 \
	.x = AT(2), .weight = AT(3), .doc_start = AT(5), .tokens = 5, .cols = 7, .taps = 4, .x_stride = 8,   \
	.y_stride = 9, .act = CONV_SILU, .dtype = DTYPE_BF16
#define DELTA                                                                                                \
	.q = AT(2), .k = AT(3), .v = AT(4), .a = AT(5), .b = AT(6), .decay = AT(7), .dt_bias = AT(8),        \
	.skip = DEV_NONE, .doc_start = AT(9), .tokens = 5, .key_heads = 2, .value_heads = 6, .key_dim = 7,   \
	.value_dim = 3, .qkv_stride = 23, .gate_stride = 11, .out_stride = 19, .scale = 1, .epsilon = 1e-6,  \
	.dtype = DTYPE_BF16
#define GATED                                                                                                \
	.x = AT(2), .gate = AT(3), .weight = AT(4), .rstd = AT(5), .rows = 5, .groups = 3, .cols = 7,        \
	.weight_groups = 1, .x_stride = 23, .gate_stride = 24, .y_stride = 25, .order = GATE_AFTER_NORM,     \
	.dtype = DTYPE_BF16
#define ROUTE                                                                                                \
	.tokens = 5, .experts = 14, .chosen = 3, .rule = ROUTE_SIGMOID, .is_normed = 1, .scale = 2,          \
	.norm_epsilon = 1e-20
#define GATE 5, 3, 7, 22, 23, 40, 9, ACT_SIGMOID, DTYPE_F32

static const struct op valid[OP_KIND_COUNT] = {
        [OP_CONV] = {.kind = OP_CONV, .conv = {CONV, .y = AT(1), .bias = AT(4)}},
        [OP_CONV_GRAD] = {.kind = OP_CONV_GRAD,
                .conv_grad = {CONV, .dx = AT(1), .dweight = AT(6), .dy = AT(8), .scratch = AT(9)}},
        [OP_CONV_CACHED] = {.kind = OP_CONV_CACHED,
                .conv_cached = {CONV, .y = AT(1), .window = AT(6), .doc_end = AT(7), .texts = 2,
                        .text_rows = 13}},
        [OP_DELTA] = {.kind = OP_DELTA, .delta = {DELTA, .out = AT(1)}},
        [OP_DELTA_GRAD] = {.kind = OP_DELTA_GRAD,
                .delta_grad = {DELTA, .dq = AT(10), .dk = AT(11), .dv = AT(12), .da = AT(13), .db = AT(14),
                        .ddecay = AT(15), .ddt_bias = AT(16), .dskip = DEV_NONE, .dout = AT(1),
                        .scratch = AT(17)}},
        [OP_DELTA_CACHED] = {.kind = OP_DELTA_CACHED,
                .delta_cached = {DELTA, .out = AT(1), .state = AT(10), .doc_end = AT(11), .texts = 2,
                        .text_rows = 13}},
        [OP_GATED_NORM] = {.kind = OP_GATED_NORM, .gated_norm = {GATED, .y = AT(1), .epsilon = 1e-6}},
        [OP_GATED_NORM_GRAD] = {.kind = OP_GATED_NORM_GRAD,
                .gated_norm_grad = {GATED, .dx = AT(1), .dgate = AT(6), .dweight = AT(7), .dy = AT(8),
                        .scratch = AT(9)}},
        [OP_ROUTE] = {.kind = OP_ROUTE,
                .route = {.ids = AT(1),
                        .weights = AT(2),
                        .logits = AT(3),
                        .bias = AT(4),
                        ROUTE,
                        .groups = 2,
                        .groups_chosen = 1,
                        .bias_dtype = DTYPE_BF16}},
        [OP_ROUTE_GRAD] = {.kind = OP_ROUTE_GRAD,
                .route_grad = {.dlogits = AT(1), .dweights = AT(2), .ids = AT(3), .logits = AT(4), ROUTE}},
        [OP_ORDER] = {.kind = OP_ORDER,
                .order = {.first = AT(1),
                        .slot = AT(2),
                        .row = AT(3),
                        .ids = AT(4),
                        .tokens = 5,
                        .chosen = 3,
                        .experts = 14}},
        [OP_ROUTER_SHARES] = {.kind = OP_ROUTER_SHARES, .router_shares = {AT(1), AT(2), 5, 14}},
        [OP_BALANCE_GRAD] = {.kind = OP_BALANCE_GRAD,
                .balance_grad = {AT(1), AT(2), AT(3), AT(4), 5, 14, 3, 64, 0.5}},
        [OP_DISPATCH] = {.kind = OP_DISPATCH, .dispatch = {AT(1), AT(2), AT(3), 5, 3, 7, DTYPE_BF16}},
        [OP_COMBINE] = {.kind = OP_COMBINE,
                .combine = {AT(1), AT(2), AT(3), 5, 3, 7, DTYPE_BF16, DTYPE_F32, 1}},
        [OP_WEIGH] = {.kind = OP_WEIGH, .weigh = {AT(1), AT(2), AT(3), 5, 7, DTYPE_BF16}},
        [OP_WEIGH_GRAD] = {.kind = OP_WEIGH_GRAD,
                .weigh_grad = {AT(1), AT(2), AT(3), AT(4), AT(5), 5, 7, DTYPE_BF16}},
        [OP_GROUPED] = {.kind = OP_GROUPED,
                .grouped = {.c = AT(1),
                        .a = AT(2),
                        .b = AT(3),
                        .bias = AT(5),
                        .first = AT(4),
                        .rows = 15,
                        .experts = 14,
                        .n = 7,
                        .k = 9,
                        .of = GROUPED_ROWS,
                        .b_layout = MATMUL_TRANSPOSED,
                        .ab_dtype = DTYPE_BF16,
                        .c_dtype = DTYPE_BF16}},
        [OP_GROUPED_COLSUM] = {.kind = OP_GROUPED_COLSUM,
                .grouped_colsum = {AT(1), AT(2), AT(3), 5, 12, 7, DTYPE_BF16}},
        [OP_EXPERT_SCALE] = {.kind = OP_EXPERT_SCALE,
                .expert_scale = {AT(1), AT(2), AT(3), 5, 3, 12, DTYPE_BF16}},
        [OP_EXPERT_SCALE_GRAD] = {.kind = OP_EXPERT_SCALE_GRAD,
                .expert_scale_grad = {AT(1), AT(2), AT(3), AT(4), AT(5), AT(6), 5, 3, 12, DTYPE_BF16}},
        [OP_FILL] = {.kind = OP_FILL, .fill = {AT(1), 101, 3}},
        [OP_COPY] = {.kind = OP_COPY, .copy = {AT(1), AT(2), 101}},
        [OP_CAST] = {.kind = OP_CAST, .cast = {AT(1), AT(2), 101, DTYPE_BF16, DTYPE_F32}},
        [OP_JOIN] = {.kind = OP_JOIN, .join = {AT(1), AT(2), AT(3), 101}},
        [OP_EXPAND] = {.kind = OP_EXPAND,
                .expand = {.dst = AT(1),
                        .codes = AT(2),
                        .scales = AT(3),
                        .rows = 5,
                        .cols = 7,
                        .block_rows = 2,
                        .block_cols = 3,
                        .code = CODE_I8,
                        .scale = CODE_SCALE_F32,
                        .dst_dtype = DTYPE_BF16}},
        [OP_ADD] = {.kind = OP_ADD, .add = {AT(1), AT(2), AT(3), 101, DTYPE_BF16}},
        [OP_SCALE] = {.kind = OP_SCALE, .scale = {AT(1), AT(2), AT(3), 101, 0.5, 3, DTYPE_BF16}},
        [OP_COLUMNS] = {.kind = OP_COLUMNS,
                .columns = {AT(1), AT(2), 5, 7, 9, 11, DTYPE_BF16, DTYPE_F32, 0, 1, 3}},
        [OP_MATMUL] = {.kind = OP_MATMUL,
                .matmul = {.c = AT(1),
                        .a = AT(2),
                        .b = AT(3),
                        .bias = AT(4),
                        .m = 5,
                        .n = 7,
                        .k = 11,
                        .a_stride = 13,
                        .b_stride = 17,
                        .c_stride = 19,
                        .b_layout = MATMUL_TRANSPOSED,
                        .ab_dtype = DTYPE_BF16,
                        .c_dtype = DTYPE_F32}},
        [OP_COLSUM] = {.kind = OP_COLSUM, .colsum = {AT(1), AT(2), 5, 7, 9, DTYPE_BF16}},
        [OP_GATHER] = {.kind = OP_GATHER, .gather = {AT(1), AT(2), AT(3), 5, 7, 11, DTYPE_F32, 0}},
        [OP_SCATTER] = {.kind = OP_SCATTER, .scatter = {AT(1), AT(2), AT(3), 5, 7, 11, DTYPE_F32}},
        [OP_EMBED_GRAD] = {.kind = OP_EMBED_GRAD,
                .embed_grad = {AT(1), AT(2), AT(3), AT(4), 5, 7, 11, -1, DTYPE_BF16}},
        [OP_POOL_MAX] = {.kind = OP_POOL_MAX,
                .pool_max = {AT(1), AT(2), AT(3), AT(4), AT(5), 5, 7, 11, DTYPE_BF16}},
        [OP_POOL_MAX_GRAD] = {.kind = OP_POOL_MAX_GRAD, .pool_max_grad = {AT(1), AT(2), AT(3), 5, 7, 11}},
        [OP_RMSNORM] = {.kind = OP_RMSNORM,
                .norm = {.y = AT(1),
                        .x = AT(2),
                        .weight = AT(3),
                        .rstd = AT(5),
                        .rows = 5,
                        .groups = 3,
                        .cols = 7,
                        .x_stride = 50,
                        .y_stride = 21,
                        .x_group_stride = 10,
                        .y_group_stride = 7,
                        .epsilon = 1e-5,
                        .dtype = DTYPE_BF16}},
        [OP_LAYERNORM] = {.kind = OP_LAYERNORM,
                .norm = {.y = AT(1),
                        .x = AT(2),
                        .weight = AT(3),
                        .bias = AT(4),
                        .rstd = AT(5),
                        .mean = AT(6),
                        NORM_SHAPE}},
        [OP_RMSNORM_GRAD] = {.kind = OP_RMSNORM_GRAD, .norm_grad = {NORM_GRAD, .accumulate_dx = 1}},
        [OP_LAYERNORM_GRAD] = {.kind = OP_LAYERNORM_GRAD,
                .norm_grad = {NORM_GRAD, .dbias = AT(3), .mean = AT(8)}},
        [OP_ROPE] = {.kind = OP_ROPE,
                .rope = {AT(1), AT(2), AT(3), 5, 3, 40, 12, 8, 9, ROPE_BACKWARD, DTYPE_BF16, ROPE_HALVES}},
        [OP_ATTENTION] = {.kind = OP_ATTENTION,
                .attention = {ATTENTION(32, 48, 2), .out = AT(1), .lse = AT(2), .window = 3,
                        .dtype = DTYPE_BF16}},
        [OP_ATTENTION_CACHED] = {.kind = OP_ATTENTION_CACHED,
                .attention_cached = {ATTENTION(32, 48, 2), .out = AT(1), .cache = AT(2), .cache_rows = 21,
                        .text_rows = 11, .kept_rows = 7, .window = 3, .dtype = DTYPE_BF16}},
        [OP_ATTENTION_GRAD] = {.kind = OP_ATTENTION_GRAD,
                .attention_grad = {ATTENTION(40, 50, 4), .dq = AT(8), .dk = {8 * PLACE + 4 * 40},
                        .dv = {8 * PLACE + 4 * 50}, .dout = AT(1), .out = AT(9), .lse = AT(2),
                        .scratch = AT(10), .dtype = DTYPE_F32}},
        [OP_GLU] = {.kind = OP_GLU, .glu = {AT(1), AT(2), AT(3), 101, ACT_SILU, DTYPE_F32}},
        [OP_GLU_GRAD] = {.kind = OP_GLU_GRAD,
                .glu_grad = {AT(1), AT(2), AT(3), AT(4), AT(5), 101, ACT_GELU, DTYPE_BF16}},
        [OP_GLU_LIMITED] = {.kind = OP_GLU_LIMITED,
                .glu_limited = {AT(1), AT(2), 5, 7, 1.702, 7.5, GLU_BY_TURNS, DTYPE_BF16}},
        [OP_GLU_LIMITED_GRAD] = {.kind = OP_GLU_LIMITED_GRAD,
                .glu_limited_grad = {AT(1), AT(2), AT(3), 5, 7, 1.702, 7.5, GLU_HALVES, DTYPE_F32}},
        [OP_ACT] = {.kind = OP_ACT, .act = {AT(1), AT(2), 101, ACT_RELU2, DTYPE_F32}},
        [OP_ACT_GRAD] = {.kind = OP_ACT_GRAD, .act_grad = {AT(1), AT(2), AT(3), 101, ACT_RELU, DTYPE_F32}},
        [OP_GATE] = {.kind = OP_GATE, .gate = {AT(1), AT(2), AT(3), GATE}},
        [OP_GATE_GRAD] = {.kind = OP_GATE_GRAD, .gate_grad = {AT(1), AT(2), AT(4), AT(3), AT(5), GATE}},
        [OP_CROSS_ENTROPY] = {.kind = OP_CROSS_ENTROPY,
                .cross_entropy = {AT(1), AT(2), AT(3), AT(4), AT(5), 5, 11, 1, DTYPE_BF16, 0, AT(6), 0.1}},
        [OP_PREFERENCE] = {.kind = OP_PREFERENCE,
                .preference = {AT(1), AT(2), AT(3), AT(4), 5, 13, {PREFERENCE_IPO, 0.1, 0, 0, 0}}},
        [OP_DROPOUT] = {.kind = OP_DROPOUT,
                .dropout = {AT(1), AT(2), AT(3), 5, 7, 9, 11, 12345, 0.25, 0, DTYPE_BF16, DTYPE_F32}},
        [OP_NEFTUNE] = {.kind = OP_NEFTUNE, .neftune = {AT(1), AT(2), AT(3), AT(4), 5, 7, 5, DTYPE_BF16}},
        [OP_SUMSQ] = {.kind = OP_SUMSQ, .sumsq = {AT(1), AT(2), 65537, DTYPE_BF16}},
        [OP_CAST_SUMSQ] = {.kind = OP_CAST_SUMSQ, .cast_sumsq = {AT(1), AT(2), AT(3), 65537}},
        [OP_ADAMW] = {.kind = OP_ADAMW,
                .adamw = {.hi = AT(1),
                        .lo = AT(2),
                        .m = AT(3),
                        .v = AT(4),
                        .grad = AT(5),
                        .count = 101,
                        .grad_dtype = DTYPE_BF16}},
};

#endif
