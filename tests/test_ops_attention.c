/* links: host_cpu */
/* also: tsan cuda */
/* Attention, forward and backward, against fp64 and finite differences. */
#include "tests/attention_check.h"

static void attention_try(uint64_t seed, int64_t high)
{
	struct ops_case c;
	struct attention a;
	struct operands o;
	int has_sink;

	case_begin(&c, "attention", seed);
	attention_random(&c, &a, &has_sink, high);
	operands_alloc(&o, &c, &a, case_int(&c, 0, 1) ? DTYPE_BF16 : DTYPE_F32, LAYOUT_APART, has_sink, 0);
	attention_check(&c, &a, &o, 1);
}

static void test_small(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(120); seed += seed_step())
		attention_try(seed, 24);
}

/* Several blocks of queries and keys, borders inside them. */
static void test_blocks(void **state)
{
	(void)state;
	for (uint64_t seed = 1000; seed < 1000 + case_count(24); seed += seed_step())
		attention_try(seed, seed_step() > 1 ? 140 : 330);
}

/* Edge cases of tiles: lengths near multiples of tiles, borders of documents inside tiles and at their
 * borders, smaller and larger windows. Also every width of tile, full or not, every ratio of heads to kv
 * heads, operands in fused rows, and operands without alignment. */
static const struct setting settings[] = {
        {.tokens = 1, .heads = 2, .kv_heads = 1, .head_dim = 64},
        {.tokens = 63, .heads = 1, .kv_heads = 1, .head_dim = 8},
        {.tokens = 65, .heads = 2, .kv_heads = 2, .head_dim = 16, .lengths = {1, 63}},
        {.tokens = 34, .heads = 4, .kv_heads = 1, .head_dim = 40, .layout = LAYOUT_FUSED},
        {.tokens = 128, .heads = 1, .kv_heads = 1, .head_dim = 64, .lengths = {64}},
        {.tokens = 17, .heads = 7, .kv_heads = 1, .head_dim = 64, .window = 5, .gap = 8},
        {.tokens = 194, .heads = 1, .kv_heads = 1, .head_dim = 32, .window = 70},
        {.tokens = 193, .heads = 1, .kv_heads = 1, .head_dim = 24, .lengths = {1, 1, 126, 3, 37}},
        {.tokens = 66, .heads = 2, .kv_heads = 1, .head_dim = 80, .layout = LAYOUT_FUSED},
        {.tokens = 129, .heads = 1, .kv_heads = 1, .head_dim = 96, .window = 64, .lengths = {70}},
        {.tokens = 131, .heads = 1, .kv_heads = 1, .head_dim = 128, .lengths = {31, 33, 65}},
        {.tokens = 63, .heads = 2, .kv_heads = 2, .head_dim = 64, .layout = LAYOUT_INTERLEAVED},
        {.tokens = 97, .heads = 1, .kv_heads = 1, .head_dim = 128, .window = 33, .misfit = 1},
        {.tokens = 4, .heads = 8, .kv_heads = 1, .head_dim = 128, .lengths = {3}},
        {.tokens = 130, .heads = 1, .kv_heads = 1, .head_dim = 12, .gap = 4, .lengths = {129}},
        {.tokens = 33, .heads = 1, .kv_heads = 1, .head_dim = 192, .lengths = {20}},
        {.tokens = 67, .heads = 1, .kv_heads = 1, .head_dim = 256, .window = 40},
        {.tokens = 66, .heads = 1, .kv_heads = 1, .head_dim = 264},
        {.tokens = 140, .heads = 1, .kv_heads = 1, .head_dim = 64, .magnitude = 12},
        {.tokens = 75, .heads = 1, .kv_heads = 1, .head_dim = 128, .magnitude = 40},
        {.tokens = 192, .heads = 2, .kv_heads = 1, .head_dim = 64, .lengths = {96}, .layout = LAYOUT_FUSED},
        {.tokens = 210, .heads = 2, .kv_heads = 2, .head_dim = 128, .window = 20, .lengths = {70, 70}},
        {.tokens = 75, .heads = 2, .kv_heads = 1, .head_dim = 64, .mask = MASK_BIDIRECTIONAL},
        {.tokens = 100,
                .heads = 1,
                .kv_heads = 1,
                .head_dim = 40,
                .mask = MASK_BIDIRECTIONAL,
                .lengths = {64, 1},
                .window = 30},
        {.tokens = 70, .heads = 2, .kv_heads = 2, .head_dim = 80, .score_cap = 2, .lengths = {60}},
        {.tokens = 70, .heads = 4, .kv_heads = 2, .head_dim = 32, .has_sink = 1, .window = 50},
        {.tokens = 70,
                .heads = 2,
                .kv_heads = 1,
                .head_dim = 72,
                .mask = MASK_BIDIRECTIONAL,
                .score_cap = 0.7,
                .has_sink = 1},
        {.tokens = 66, .heads = 2, .kv_heads = 1, .head_dim = 24, .has_sink = 1, .magnitude = 12},
        {.tokens = 66, .heads = 2, .kv_heads = 1, .head_dim = 512, .lengths = {50}},
        {.tokens = 201,
                .heads = 2,
                .kv_heads = 1,
                .head_dim = 128,
                .mask = MASK_BIDIRECTIONAL,
                .lengths = {65, 1, 100}},
        {.tokens = 150,
                .heads = 2,
                .kv_heads = 2,
                .head_dim = 256,
                .mask = MASK_BIDIRECTIONAL,
                .window = 21,
                .lengths = {100}},
        {.tokens = 140,
                .heads = 2,
                .kv_heads = 1,
                .head_dim = 256,
                .score_cap = 3,
                .window = 64,
                .misfit = 3},
        {.tokens = 200,
                .heads = 3,
                .kv_heads = 1,
                .head_dim = 128,
                .score_cap = 1.5,
                .has_sink = 1,
                .lengths = {130}},
        {.tokens = 131,
                .heads = 1,
                .kv_heads = 1,
                .head_dim = 96,
                .score_cap = 20,
                .magnitude = 6,
                .mask = MASK_BIDIRECTIONAL,
                .has_sink = 1,
                .window = 90},
        {.tokens = 140, .heads = 8, .kv_heads = 1, .head_dim = 64, .window = 128, .has_sink = 1},
        {.tokens = 97,
                .heads = 2,
                .kv_heads = 1,
                .head_dim = 512,
                .window = 33,
                .lengths = {40},
                .misfit = 1},
        {.tokens = 81, .heads = 2, .kv_heads = 2, .head_dim = 512, .score_cap = 2, .has_sink = 1},
        {.tokens = 50,
                .heads = 4,
                .kv_heads = 1,
                .head_dim = 320,
                .mask = MASK_BIDIRECTIONAL,
                .lengths = {33, 1},
                .layout = LAYOUT_FUSED},
        {.tokens = 70, .heads = 1, .kv_heads = 1, .head_dim = 512, .magnitude = 12, .gap = 8},
};

static void test_tiles(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof settings / sizeof *settings; i += SANITIZED ? 3 : 1) {
		struct setting s = settings[i];

		if (s.head_dim <= 96 && getenv("FERRY_SIMT_CAPABILITY")) /* its tiles fit any GPU */
			continue;
		s.dtype = DTYPE_BF16;
		setting_try(&s, i);
		if (i % 4 == 3 || s.mask || s.score_cap > 0 || s.has_sink) {
			s.dtype = DTYPE_F32;
			setting_try(&s, i);
		}
	}
}

static double attention_value(void *context)
{
	struct attention *a = context;
	double sum = 0;

	reference_forward(a);
	for (int64_t t = 0; t < a->tokens; t++)
		for (int64_t i = 0; i < a->heads * a->head_dim; i++)
			sum += a->out[t * a->out_stride + i] * a->dout[t * a->out_stride + i];
	return sum;
}

static void test_reference(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(20); seed++) {
		struct ops_case c;
		struct attention a;
		double *inputs[3], *slopes[3];
		int has_sink;

		case_begin(&c, "reference", seed);
		attention_random(&c, &a, &has_sink, 8);
		attention_alloc(&a, has_sink, 0);
		for (int64_t h = 0; has_sink && h < a.heads; h++)
			a.sink[h] = case_normal(&c);
		for (int64_t i = 0; i < a.tokens * a.qkv_stride; i++)
			a.q[i] = case_normal(&c), a.k[i] = case_normal(&c), a.v[i] = case_normal(&c);
		for (int64_t i = 0; i < a.tokens * a.out_stride; i++)
			a.dout[i] = case_normal(&c);
		reference_forward(&a);
		reference_backward(&a);
		inputs[0] = a.q, inputs[1] = a.k, inputs[2] = a.v;
		slopes[0] = a.dq, slopes[1] = a.dk, slopes[2] = a.dv;
		for (int n = 0; n < 3; n++)
			for (int i = 0; i < 8; i++) {
				int64_t at = case_int(&c, 0, a.tokens * a.qkv_stride - 1);

				case_derivative(attention_value, &a, &inputs[n][at], slopes[n][at], 1);
			}
		for (int64_t h = 0; has_sink && h < a.heads; h++)
			case_derivative(attention_value, &a, &a.sink[h], a.dsink[h], 1);
		for (int n = 0; n < c.tensor_count; n++)
			memcpy(c.tensors[n].first, c.tensors[n].block, (size_t)c.tensors[n].bytes);
		case_end(&c);
		attention_free(&a);
	}
}

/* Scores so large that exp would overflow, and so small that a row keeps one key. */
static void test_range(void **state)
{
	(void)state;
	for (int n = 0; n < 2; n++) {
		struct ops_case c;
		struct tensor *start, *end, *x, *v, *out, *lse;
		struct op op = {.kind = OP_ATTENTION};

		case_begin(&c, "range", (uint64_t)n);
		start = case_tensor(&c, 200, DTYPE_I32, 1);
		end = case_tensor(&c, 200, DTYPE_I32, 1);
		x = case_tensor(&c, 200, DTYPE_F32, 1);
		v = case_tensor(&c, 200, DTYPE_F32, 1);
		out = case_tensor(&c, 200, DTYPE_F32, 1);
		lse = case_tensor(&c, 200, DTYPE_F32, 1);
		for (int64_t i = 0; i < 200; i++) {
			tensor_set(end, i, 200);
			/* q = k = i + 1 in front of a large scale: each token sees itself alone, or the first
			 */
			tensor_set(x, i, (double)(n ? 200 - i : i + 1));
		}
		op.attention = (struct op_attention){.out = tensor_addr(out),
		        .lse = tensor_addr(lse),
		        .q = tensor_addr(x),
		        .k = tensor_addr(x),
		        .v = tensor_addr(v),
		        .doc_start = tensor_addr(start),
		        .doc_end = tensor_addr(end),
		        .tokens = 200,
		        .heads = 1,
		        .kv_heads = 1,
		        .head_dim = 1,
		        .qkv_stride = 1,
		        .q_head_stride = 1,
		        .kv_head_stride = 1,
		        .out_stride = 1,
		        .scale = 1000,
		        .dtype = DTYPE_F32};
		case_run(&c, &op);
		for (int64_t i = 0; i < 200; i++) {
			double score = 1000.0 * tensor_get(x, i) * (n ? 200 : tensor_get(x, i));

			case_check(&c, out, i, tensor_get(v, n ? 0 : i), 0, "out");
			case_check(&c, lse, i, score, score * EPS_F32, "lse");
		}
		case_end(&c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_reference),
	        cmocka_unit_test(test_small),
	        cmocka_unit_test(test_blocks),
	        cmocka_unit_test(test_tiles),
	        cmocka_unit_test(test_range),
	};

	return cmocka_run_group_tests(tests, ops_setup, ops_teardown);
}
