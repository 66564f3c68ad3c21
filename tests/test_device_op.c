/* links: device */
/* Ops as data: refusals of op_check, bytes of op_access_list, costs of op_cost_of. */
#include "check.h"
#include "tests/op_sizes.h"
#include "tests/valid_ops.h"

#include "device/op.h"
#include "device/op_facts.h"

#include <math.h>

/* The 8-byte field of the op that holds `value`. */
static uint64_t *field_of(struct op *op, uint64_t value)
{
	uint64_t *found = NULL;

	for (size_t at = offsetof(struct op, fill); at + 8 <= sizeof(*op); at += 8) {
		uint64_t *field = (uint64_t *)(void *)((char *)op + at);

		if (*field != value)
			continue;
		assert_null(found);
		found = field;
	}
	assert_non_null(found);
	return found;
}

static void test_valid(void **state)
{
	struct op_access list[OP_ACCESS_MAX];

	(void)state;
	for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
		int count, writes = 0;

		if (valid[kind].kind != (enum op_kind)kind)
			fail_msg("%s has no row in `valid`", op_name((enum op_kind)kind));
		check_ok(op_check(&valid[kind]));
		count = op_access_list(&valid[kind], list);
		assert_in_range(count, 1, OP_ACCESS_MAX);
		for (int i = 0; i < count; i++) {
			assert_true(list[i].bytes > 0 && list[i].bytes < PLACE && !dev_is_none(list[i].base));
			writes += list[i].writes;
		}
		assert_true(writes > 0);
		assert_true(strlen(op_name((enum op_kind)kind)) >= 3);
	}
	assert_string_equal(op_name(OP_KIND_COUNT), "?");
	check_fails(op_check(&(struct op){.kind = OP_KIND_COUNT}), ERR_RANGE, "op kind");
}

/* Each address taken away, and moved off its alignment. */
static void test_addresses(void **state)
{
	(void)state;
	for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
		struct op_facts facts;
		const struct operand *o = facts.operands;
		int required = 0;

		check_ok(op_describe(&facts, &valid[kind]));
		for (int i = 0; i < facts.operand_count; i++) {
			struct op op = valid[kind];
			uint64_t *field;

			if (dev_is_none(o[i].base))
				continue;
			field = field_of(&op, o[i].base.value);
			*field = 0;
			if (o[i].optional)
				check_ok(op_check(&op));
			else
				check_fails(op_check(&op), ERR_RANGE, o[i].name);
			required += !o[i].optional;
			*field = o[i].base.value + 1;
			if (o[i].align_bytes > 1)
				check_fails(op_check(&op), ERR_RANGE, "aligned");
		}
		assert_true(required > 0);
	}
}

static void test_sizes(void **state)
{
	int row_count[OP_KIND_COUNT] = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct op op = valid[sizes[i].kind];

		row_count[sizes[i].kind]++;
		*field_of(&op, (uint64_t)sizes[i].value) = (uint64_t)sizes[i].bad;
		check_fails(op_check(&op), ERR_RANGE, sizes[i].name);
		assert_non_null(strstr(err_text(), op_name(op.kind)));
	}
	for (int kind = 0; kind < OP_KIND_COUNT; kind++)
		if (!row_count[kind])
			fail_msg("no size of %s is tested", op_name((enum op_kind)kind));
}

static void test_matmul_rules(void **state)
{
	struct op op = valid[OP_MATMUL];

	(void)state;
	op.matmul.accumulate = 1;
	check_fails(op_check(&op), ERR_RANGE, "bias");
	op.matmul.bias = DEV_NONE;
	check_ok(op_check(&op));
	op.matmul.c_dtype = DTYPE_BF16;
	check_ok(op_check(&op));
	op.matmul.accumulate = 0;
	check_ok(op_check(&op));
	op.matmul.ab_dtype = DTYPE_F32;
	check_fails(op_check(&op), ERR_RANGE, "c_dtype");
	op.matmul.ab_dtype = DTYPE_F16;
	check_fails(op_check(&op), ERR_RANGE, "ab_dtype is F16");
	op.matmul.ab_dtype = (enum dtype)77;
	check_fails(op_check(&op), ERR_RANGE, "ab_dtype is ?");
	op = valid[OP_ACT];
	op.act.act = (enum act_kind)17;
	check_fails(op_check(&op), ERR_RANGE, "act is 17");
}

static void test_experts_rules(void **state)
{
	struct op op = valid[OP_GROUPED];
	struct op_cost cost;

	(void)state;
	op_cost_of(&op, &cost); /* 15 rows, whatever the experts; the matrices of all 14 cross memory */
	assert_true(cost.flops_bf16 == 2 * 15 * 7 * 9);
	assert_true(cost.memory_bytes >= 14 * 7 * 9 * 2);
	op.grouped.accumulate = 1;
	check_fails(op_check(&op), ERR_RANGE, "bias");
	op.grouped.accumulate = 0;
	op.grouped.of = GROUPED_WEIGHTS;
	op.grouped.m = 6;
	check_fails(op_check(&op), ERR_RANGE, "bias");
	op.grouped.bias = DEV_NONE;
	check_ok(op_check(&op));
	op.grouped.of = (enum grouped_kind)2;
	check_fails(op_check(&op), ERR_RANGE, "of is 2");
	op = valid[OP_ROUTE];
	op.route.rule = ROUTE_SOFTMAX;
	check_fails(op_check(&op), ERR_RANGE, "bias is only of ROUTE_SIGMOID");
	op.route.rule = ROUTE_RULE_COUNT;
	check_fails(op_check(&op), ERR_RANGE, "not a rule");
	op = valid[OP_COLUMNS];
	op.columns.range = (struct row_range){AT(12), 1, 1};
	op.columns.spread = 1, op.columns.fold = 2;
	check_fails(op_check(&op), ERR_RANGE, "range of dst does not go with spread 1 or fold 2");
	op = valid[OP_GLU_LIMITED];
	op.glu_limited.limit = NAN;
	check_fails(op_check(&op), ERR_RANGE, "limit");
	op.glu_limited.limit = 7;
	op.glu_limited.order = GLU_ORDER_COUNT;
	check_fails(op_check(&op), ERR_RANGE, "order is 2");
}

static void test_attention_rules(void **state)
{
	struct op op = valid[OP_ATTENTION], grad = valid[OP_ATTENTION_GRAD];
	struct op_cost cost;

	(void)state;
	op.attention.mask = MASK_COUNT;
	check_fails(op_check(&op), ERR_RANGE, "attention: mask is 2");
	op.attention.mask = MASK_BIDIRECTIONAL; /* 5 tokens, window 3: 3 + 4 + 5 + 4 + 3 pairs */
	op.attention.score_cap = 30;
	op.attention.sink = AT(12);
	check_ok(op_check(&op));
	op_cost_of(&op, &cost);
	assert_true(cost.flops_bf16 == 4 * 19 * 4 * 8);
	op.attention.score_cap = -1;
	check_fails(op_check(&op), ERR_RANGE, "score_cap is -1");
	op.attention.score_cap = NAN;
	check_fails(op_check(&op), ERR_RANGE, "score_cap is");
	op.attention.score_cap = 0;
	op.attention.scale = INFINITY;
	check_fails(op_check(&op), ERR_RANGE, "scale is inf");

	grad.attention_grad.sink = AT(12);
	check_fails(op_check(&grad), ERR_RANGE, "sink and dsink go together");
	grad.attention_grad.dsink = AT(13);
	check_ok(op_check(&grad));
	grad.attention_grad.mask = MASK_BIDIRECTIONAL;
	op_cost_of(&grad, &cost);
	assert_true(cost.flops_f32 == 10 * 25 * 4 * 8);
	grad.attention_grad.sink = DEV_NONE;
	check_fails(op_check(&grad), ERR_RANGE, "sink and dsink go together");
}

/* Operands that may overlap, and operands that may not. */
static void test_overlaps(void **state)
{
	struct op op = valid[OP_COPY];

	(void)state;
	op.copy.src.value = op.copy.dst.value + 100;
	check_fails(op_check(&op), ERR_RANGE, "copy: dst, which is written, overlaps src");
	op.copy.src.value++;
	check_ok(op_check(&op));

	op = valid[OP_ADD];
	op.add.dst = op.add.a = op.add.b;
	check_ok(op_check(&op));
	op.add.dst.value += 2;
	check_fails(op_check(&op), ERR_RANGE, "overlaps");

	op = valid[OP_SCALE];
	op.scale.dst = op.scale.src;
	check_ok(op_check(&op));
	op.scale.dst.value += 2;
	check_fails(op_check(&op), ERR_RANGE, "overlaps");

	op = valid[OP_GLU_GRAD];
	op.glu_grad.dgate = op.glu_grad.gate;
	op.glu_grad.dup = op.glu_grad.dout;
	check_ok(op_check(&op));
	op.glu_grad.dup = op.glu_grad.gate;
	check_fails(op_check(&op), ERR_RANGE, "overlaps");
	op.glu_grad.dgate = op.glu_grad.dout;
	op.glu_grad.dup = op.glu_grad.up;
	check_fails(op_check(&op), ERR_RANGE, "dgate, which is written, overlaps dout");

	op = valid[OP_CROSS_ENTROPY];
	op.cross_entropy.dlogits = op.cross_entropy.logits;
	check_ok(op_check(&op));
	op.cross_entropy.dlogits.value += 2;
	check_fails(op_check(&op), ERR_RANGE, "dlogits");

	op = valid[OP_CROSS_ENTROPY];
	op.cross_entropy.weight = op.cross_entropy.dlogits;
	check_fails(op_check(&op), ERR_RANGE, "dlogits, which is written, overlaps weight");
	op = valid[OP_DROPOUT];
	op.dropout.dst_stride = op.dropout.src_stride = op.dropout.cols;
	op.dropout.dst = op.dropout.src;
	check_fails(op_check(&op), ERR_RANGE, "dst");
	op = valid[OP_DROPOUT];
	op.dropout.share = 1;
	check_fails(op_check(&op), ERR_RANGE, "share is 1");
	op = valid[OP_CROSS_ENTROPY];
	op.cross_entropy.smoothing = NAN;
	check_fails(op_check(&op), ERR_RANGE, "smoothing");
	op = valid[OP_PREFERENCE];
	op.preference.weight = op.preference.nll;
	check_fails(op_check(&op), ERR_RANGE, "weight, which is written, overlaps nll");

	op = valid[OP_RMSNORM_GRAD];
	op.norm_grad.x_stride = op.norm_grad.y_stride = op.norm_grad.cols;
	op.norm_grad.dx = op.norm_grad.dy;
	check_fails(op_check(&op), ERR_RANGE, "dx");
	op.norm_grad.accumulate_dx = 0;
	check_ok(op_check(&op));

	op = valid[OP_MATMUL];
	op.matmul.a_stride = op.matmul.k;
	op.matmul.c_stride = op.matmul.n;
	op.matmul.c = op.matmul.a;
	check_fails(op_check(&op), ERR_RANGE, "matmul: c, which is written, overlaps a");
}

/* ---- byte ranges ---- */

static void check_access(const struct op *op, uint64_t base, int64_t bytes, int reads, int writes)
{
	struct op_access list[OP_ACCESS_MAX];
	int count = op_access_list(op, list), found_read = 0, found_write = 0;

	for (int i = 0; i < count; i++) {
		if (list[i].base.value != base)
			continue;
		assert_int_equal(list[i].bytes, bytes);
		found_read += !list[i].writes;
		found_write += list[i].writes;
	}
	assert_int_equal(found_read, reads);
	assert_int_equal(found_write, writes);
}

static void test_access(void **state)
{
	struct op op = valid[OP_MATMUL];

	(void)state;
	check_access(&op, 1 * PLACE, (4 * 19 + 7) * 4, 0, 1);  /* c: 5 rows of 7 */
	check_access(&op, 2 * PLACE, (4 * 13 + 11) * 2, 1, 0); /* a: 5 rows of 11 */
	check_access(&op, 3 * PLACE, (6 * 17 + 11) * 2, 1, 0); /* b, stored [7, 11] */
	check_access(&op, 4 * PLACE, 7 * 2, 1, 0);
	op.matmul.bias = DEV_NONE;
	op.matmul.accumulate = 1;
	op.matmul.a_layout = MATMUL_TRANSPOSED;
	check_access(&op, 1 * PLACE, (4 * 19 + 7) * 4, 1, 1);
	check_access(&op, 2 * PLACE, (10 * 13 + 5) * 2, 1, 0); /* a, stored [11, 5] */
	check_access(&op, 0, 0, 0, 0);

	check_access(&valid[OP_RMSNORM], 2 * PLACE, (4 * 50 + 2 * 10 + 7) * 2, 1, 0);
	check_access(&valid[OP_RMSNORM], 1 * PLACE, 5 * 21 * 2, 0, 1);
	check_access(&valid[OP_RMSNORM], 5 * PLACE, 5 * 3 * 4, 0, 1);
	check_access(&valid[OP_ROPE], 1 * PLACE, (4 * 40 + 2 * 12 + 8) * 2, 1, 1);
	check_access(&valid[OP_ROPE], 2 * PLACE, 9 * 8 * 4, 1, 0);
	check_access(&valid[OP_ATTENTION], 3 * PLACE, (4 * 64 + 3 * 9 + 8) * 2, 1, 0);
	check_access(&valid[OP_ATTENTION], 3 * PLACE + 2 * 32, (4 * 64 + 1 * 10 + 8) * 2, 1, 0);
	check_access(&valid[OP_ATTENTION], 1 * PLACE, (4 * 33 + 32) * 2, 0, 1);
	check_access(&valid[OP_ATTENTION], 2 * PLACE, 5 * 4 * 4, 0, 1);
	check_access(&valid[OP_EMBED_GRAD], 1 * PLACE, 11 * 7 * 4, 1, 1);
	check_access(&valid[OP_EMBED_GRAD], 4 * PLACE, (5 + 11 + 1) * 4, 0, 1);
	check_access(&valid[OP_SUMSQ], 1 * PLACE, 2 * 8, 0, 1);
	check_access(&valid[OP_CAST_SUMSQ], 1 * PLACE, 65537 * 2, 0, 1);
	check_access(&valid[OP_CAST_SUMSQ], 2 * PLACE, 2 * 8, 0, 1);
	check_access(&valid[OP_CAST_SUMSQ], 3 * PLACE, 65537 * 4, 1, 0);
	check_access(&valid[OP_CROSS_ENTROPY], 2 * PLACE, 5 * 11 * 2, 0, 1);
	check_access(&valid[OP_CROSS_ENTROPY], 5 * PLACE, 3 * 5 * 4, 0, 1);
	check_access(&valid[OP_CROSS_ENTROPY], 6 * PLACE, 5 * 4, 1, 0);
	check_access(&valid[OP_PREFERENCE], 1 * PLACE, 13 * 4, 0, 1);
	check_access(&valid[OP_PREFERENCE], 2 * PLACE, 13 * 4, 1, 0);
	check_access(&valid[OP_PREFERENCE], 3 * PLACE, (2 * 5 + 1) * 4, 1, 0);
	check_access(&valid[OP_PREFERENCE], 4 * PLACE, 2 * 5 * 4, 1, 0);
	check_access(&valid[OP_PREFERENCE], 5 * PLACE, 2 * 5 * 8, 1, 0);
	check_access(&valid[OP_LOG_RATIO], 1 * PLACE, 2 * 5 * 4, 0, 1);
	check_access(&valid[OP_LOG_RATIO], 4 * PLACE, 5 * 8, 1, 0);
	check_access(&valid[OP_ADAMW], 2 * PLACE, 101 * 2, 1, 1);
	check_access(&valid[OP_ADAMW], 5 * PLACE, 101 * 2, 1, 0);
	check_access(&valid[OP_JOIN], 1 * PLACE, 101 * 4, 0, 1);
	check_access(&valid[OP_EXPAND], 1 * PLACE, 5 * 7 * 2, 0, 1);
	check_access(&valid[OP_EXPAND], 2 * PLACE, 5 * 7, 1, 0);
	check_access(&valid[OP_EXPAND], 3 * PLACE, 3 * 3 * 4, 1, 0);
	check_access(&valid[OP_ENCODE], 2 * PLACE, 3 * 1 * 4, 0, 1);
	check_access(&valid[OP_CODED_MATMUL], 3 * PLACE, 5 * 1 * 4, 1, 0);
	check_access(&valid[OP_CODED_MATMUL], 4 * PLACE, 7 * 11, 1, 0);
}

/* AdamW's state in 8 bits has scales, in others none. */
static void test_adamw_state(void **state)
{
	struct op op = valid[OP_ADAMW];
	struct op_cost cost;

	(void)state;
	op.adamw.count = 257;
	op.adamw.state = ADAMW_STATE_BF16;
	op.adamw.first = 77;
	check_ok(op_check(&op));
	check_access(&op, 3 * PLACE, 257 * 2, 1, 1);
	op.adamw.state = ADAMW_STATE_8BIT;
	check_fails(op_check(&op), ERR_RANGE, "first is 77");
	op.adamw.first = 512;
	check_fails(op_check(&op), ERR_RANGE, "m_scale has no address");
	op.adamw.m_scale = AT(6);
	op.adamw.v_scale = AT(7);
	check_ok(op_check(&op));
	check_access(&op, 4 * PLACE, 257, 1, 1);
	check_access(&op, 6 * PLACE, 2 * 4, 1, 1);
	check_access(&op, 7 * PLACE, 2 * 4, 1, 1);
	op_cost_of(&op, &cost);
	assert_true(cost.memory_bytes == 257 * (2 * (2 + 2 + 1 + 1) + 2) + 2 * 2 * 2 * 4);
	op.adamw.m_scale = op.adamw.v;
	check_fails(op_check(&op), ERR_RANGE, "overlaps");
	op.adamw.m_scale = AT(6);
	op.adamw.first = -256;
	check_fails(op_check(&op), ERR_RANGE, "first");
	op.adamw.first = 0;
	op.adamw.tensor = -1;
	check_fails(op_check(&op), ERR_RANGE, "tensor");
	op.adamw.tensor = 0;
	op.adamw.state = ADAMW_STATE_COUNT;
	check_fails(op_check(&op), ERR_RANGE, "state");
}

/* Sizes beyond 63 bits must not wrap around into the arena. */
static void test_huge(void **state)
{
	struct op op = valid[OP_MATMUL];
	struct op_access list[OP_ACCESS_MAX];

	(void)state;
	op.matmul.m = 1ll << 40;
	op.matmul.a_stride = op.matmul.c_stride = 1ll << 40;
	check_ok(op_check(&op));
	op_access_list(&op, list);
	assert_true(list[0].bytes == INT64_MAX);
	assert_true(norm_scratch_count(1ll << 40, 1ll << 40, 8) == INT64_MAX);
	assert_true(attention_scratch_count(1ll << 40, 1ll << 20, 1ll << 20) == INT64_MAX);
}

/* ---- costs ---- */

static void test_cost(void **state)
{
	struct op op = valid[OP_MATMUL];
	struct op_cost cost;

	(void)state;
	op_cost_of(&op, &cost);
	assert_true(cost.flops_bf16 == 2 * 5 * 7 * 11 && cost.flops_f32 == 0);
	assert_true(cost.memory_bytes == 4 * 5 * 7 + 2 * (5 * 11 + 7 * 11 + 7)); /* gaps cost nothing */
	op.matmul.bias = DEV_NONE;
	op.matmul.accumulate = 1;
	op.matmul.ab_dtype = DTYPE_F32;
	op_cost_of(&op, &cost);
	assert_true(cost.flops_bf16 == 0 && cost.flops_f32 == 2 * 5 * 7 * 11);
	assert_true(cost.memory_bytes == 2 * 4 * 5 * 7 + 4 * (5 * 11 + 7 * 11));

	op_cost_of(&valid[OP_ATTENTION], &cost); /* 5 tokens, window 3: 1 + 2 + 3 + 3 + 3 pairs */
	assert_true(cost.flops_bf16 == 4 * 12 * 4 * 8);
	op_cost_of(&valid[OP_ATTENTION_GRAD], &cost); /* no window: 15 pairs */
	assert_true(cost.flops_f32 == 10 * 15 * 4 * 8);
	op = valid[OP_ATTENTION];
	op.attention.document_tokens = 4; /* 1 + 2 + 3 + 3 pairs, and 1 of the token that is left */
	op_cost_of(&op, &cost);
	assert_true(cost.flops_bf16 == 4 * 10 * 4 * 8);
	op = valid[OP_ATTENTION_GRAD];
	op.attention_grad.document_tokens = 2; /* 3 + 3 + 1 pairs */
	op_cost_of(&op, &cost);
	assert_true(cost.flops_f32 == 10 * 7 * 4 * 8);
	op.attention_grad.document_tokens = 6; /* longer than the micro-batch: one document */
	op_cost_of(&op, &cost);
	assert_true(cost.flops_f32 == 10 * 15 * 4 * 8);

	op = valid[OP_GATHER];
	op.gather.table_rows = 1000; /* only the 5 rows picked cross */
	op_cost_of(&op, &cost);
	assert_true(cost.memory_bytes == 5 * 7 * 4 + 5 * 7 * 4 + 5 * 4 && cost.flops_f32 == 0);
	op_cost_of(&valid[OP_PREFERENCE], &cost);
	assert_true(cost.memory_bytes == 2 * 13 * 4 + 11 * 4 + 10 * 4 + 10 * 8 && cost.flops_f32 == 0);
	op_cost_of(&valid[OP_ADAMW], &cost);
	assert_true(cost.memory_bytes == 101 * (2 * (2 + 2 + 4 + 4) + 2) && cost.host_bytes == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_valid),
	        cmocka_unit_test(test_addresses),
	        cmocka_unit_test(test_sizes),
	        cmocka_unit_test(test_matmul_rules),
	        cmocka_unit_test(test_attention_rules),
	        cmocka_unit_test(test_experts_rules),
	        cmocka_unit_test(test_overlaps),
	        cmocka_unit_test(test_access),
	        cmocka_unit_test(test_adamw_state),
	        cmocka_unit_test(test_huge),
	        cmocka_unit_test(test_cost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
