/* links: host_cpu */
/* also: tsan cuda */
/* Attention with a bias by distance, its gradient, and the table that such a bias comes from. */
#include "tests/attention_check.h"

/* Lengths near those of tiles, documents that end inside them, heads that share keys, windows, both masks;
 * plain and tiles. */
static const struct setting settings[] = {
        {.tokens = 1, .heads = 2, .kv_heads = 1, .head_dim = 64},
        {.tokens = 24, .heads = 3, .kv_heads = 3, .head_dim = 8, .lengths = {5, 1, 9}},
        {.tokens = 64, .heads = 1, .kv_heads = 1, .head_dim = 16},
        {.tokens = 65, .heads = 2, .kv_heads = 2, .head_dim = 64, .layout = LAYOUT_INTERLEAVED},
        {.tokens = 129,
                .heads = 2,
                .kv_heads = 1,
                .head_dim = 64,
                .lengths = {63, 2},
                .layout = LAYOUT_FUSED},
        {.tokens = 200, .heads = 4, .kv_heads = 2, .head_dim = 32, .window = 40, .lengths = {130}},
        {.tokens = 193, .heads = 1, .kv_heads = 1, .head_dim = 96, .lengths = {64, 64}},
        {.tokens = 140, .heads = 2, .kv_heads = 1, .head_dim = 128, .lengths = {100}, .misfit = 1},
        {.tokens = 70, .heads = 1, .kv_heads = 1, .head_dim = 256},
        {.tokens = 66, .heads = 1, .kv_heads = 1, .head_dim = 264},
        {.tokens = 300, .heads = 2, .kv_heads = 2, .head_dim = 40, .has_sink = 1, .lengths = {7, 200}},
};

/* What is left out of a setting is another mask or dtype than of the next one. */
static void test_attention(void **state)
{
	(void)state;
	for (int i = 0; i < (int)(sizeof settings / sizeof *settings); i++)
		for (int mask = 0; mask < MASK_COUNT; mask++)
			for (int is_bf16 = 0; is_bf16 < 2; is_bf16++) {
				struct setting s = settings[i];

				if ((i + mask + is_bf16) % sparing(2))
					continue;
				s.has_bias = 1;
				s.mask = (enum attention_mask)mask;
				s.dtype = is_bf16 ? DTYPE_BF16 : DTYPE_F32;
				setting_try(&s, (uint64_t)i);
			}
}

/* The definition in double, as T5 has it. */
static int64_t expected_row(const struct relative_rule *rule, int64_t d)
{
	int64_t rows = rule->both_sides ? rule->rows / 2 : rule->rows,
	        side = rule->both_sides && d > 0 ? rows : 0;
	int64_t n = rule->both_sides ? (d < 0 ? -d : d) : d < 0 ? -d : 0, exact = rows / 2;
	double far;

	if (n < exact)
		return side + n;
	far = log((double)n / (double)exact) / log((double)rule->distance / (double)exact) *
	      (double)(rows - exact);
	far = floor(far + 1e-9); /* a power is exact */
	return side + (exact + (int64_t)far < rows ? exact + (int64_t)far : rows - 1);
}

static void table_try(const struct relative_rule *rule, int64_t tokens, enum dtype dtype, uint64_t seed)
{
	struct ops_case c;
	int64_t heads = 3, extra = 2, rows = rule->rows + extra;
	double *sum = take(rows * heads);
	struct tensor *table, *out, *dout, *dtable;
	struct op op;

	case_begin(&c, "relative", seed);
	table = case_tensor(&c, rows * heads, dtype, 1);
	out = case_tensor(&c, heads * 2 * tokens, dtype, 1);
	dout = case_tensor(&c, heads * 2 * tokens, DTYPE_F32, 1);
	dtable = case_tensor(&c, rows * heads, DTYPE_F32, 1);
	for (int64_t i = 0; i < rows * heads; i++)
		sum[i] = tensor_get(dtable, i);
	op = (struct op){.kind = OP_RELATIVE,
	        .relative = {.out = tensor_addr(out),
	                .table = tensor_addr(table),
	                .tokens = tokens,
	                .heads = heads,
	                .table_rows = rows,
	                .rule = *rule,
	                .dtype = dtype}};
	case_run(&c, &op);
	for (int64_t h = 0; h < heads; h++)
		for (int64_t n = 0; n < 2 * tokens; n++) {
			int64_t at = expected_row(rule, n - tokens) * heads + h;

			case_check(&c, out, h * 2 * tokens + n, n ? tensor_get(table, at) : 0, 0, "out");
			if (n)
				sum[at] += tensor_get(dout, h * 2 * tokens + n);
		}
	op = (struct op){.kind = OP_RELATIVE_GRAD,
	        .relative_grad = {.dtable = tensor_addr(dtable),
	                .dout = tensor_addr(dout),
	                .tokens = tokens,
	                .heads = heads,
	                .table_rows = rows,
	                .rule = *rule}};
	case_run(&c, &op);
	for (int64_t i = 0; i < rows * heads; i++)
		case_check(&c, dtable, i, sum[i], EPS_F32 * (fabs(sum[i]) + 1), "dtable");
	case_end(&c);
	mem_free(sum);
}

static void test_table(void **state)
{
	static const struct relative_rule rules[] = {
	        {32, 128, 1}, {32, 128, 0}, {8, 20, 1}, {4, 3, 1}, {2, 2, 0}, {128, 1000, 0}, {32, 9, 1}};
	static const int64_t tokens[] = {1, 2, 9, 64, 200, 600};

	(void)state;
	for (size_t r = 0; r < sizeof rules / sizeof *rules; r++)
		for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++)
			table_try(&rules[r], tokens[t], (r + t) % 2 ? DTYPE_BF16 : DTYPE_F32, 10 * r + t);
}

/* Rules that no table could follow have a reason. */
static void test_problems(void **state)
{
	static const struct relative_rule rules[] = {{130, 128, 0}, {31, 128, 1}, {2, 128, 1}, {32, 8, 1}};

	(void)state;
	for (size_t r = 0; r < sizeof rules / sizeof *rules; r++)
		assert_non_null(relative_rule_problem(&rules[r]));
	assert_null(relative_rule_problem(&(struct relative_rule){32, 128, 1}));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_problems),
	        cmocka_unit_test(test_table),
	        cmocka_unit_test(test_attention),
	};

	return cmocka_run_group_tests(tests, ops_setup, ops_teardown);
}
