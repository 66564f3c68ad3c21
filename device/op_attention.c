/* Descriptions of attention: requirements, operands and arithmetic. */
#include "device/op_attention.h"

#include "device/op_facts.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>

OP_ATTENTION_LIST(OP_DESCRIBED)

/* Per token and head: sum of dout * out, and an fp32 row of dq. */
int64_t attention_scratch_count(int64_t tokens, int64_t heads, int64_t head_dim)
{
	return size_times(size_times(tokens, heads), size_plus(head_dim, 1));
}

int64_t attention_bias_scratch_count(int64_t tokens, int64_t heads)
{
	int64_t tiles = (tokens - 1) / ATTENTION_BIAS_SIDE + 1;

	return size_times(size_times(2 * tiles - 1, 2 * ATTENTION_BIAS_SIDE * ATTENTION_BIAS_PARTS), heads);
}

/* ---- distances ---- */

/* Rows of one side, and those of them that have one distance each. */
static int64_t side_rows(const struct relative_rule *rule)
{
	return rule->both_sides ? rule->rows / 2 : rule->rows;
}

const char *relative_rule_problem(const struct relative_rule *rule)
{
	int64_t rows = side_rows(rule);

	if (rule->rows > RELATIVE_ROWS_MAX)
		return "has more than 128 rows";
	if (rows < 2 || (rule->both_sides && rule->rows % 2))
		return "has too few rows, or an odd number for two sides";
	if (rule->distance <= rows / 2 || rule->distance > 1 << 20)
		return "has a largest distance that is not above half the rows of a side, or beyond 2^20";
	return NULL;
}

/* As transformers computes it: in float. */
static int64_t row_of(const struct relative_rule *rule, int64_t distance)
{
	int64_t rows = side_rows(rule), exact = rows / 2, row;

	if (distance < exact)
		return distance;
	row = exact + (int64_t)(logf((float)distance / (float)exact) /
	                        (float)log((double)rule->distance / (double)exact) * (float)(rows - exact));
	return row < rows ? row : rows - 1;
}

struct relative_side relative_side_of(const struct relative_rule *rule)
{
	struct relative_side side = {.rows = (int)side_rows(rule), .both_sides = rule->both_sides};
	int row = 0;

	for (int64_t d = 0; d <= rule->distance && row < side.rows; d++)
		while (row < side.rows && row_of(rule, d) >= row)
			side.first[row++] = (int32_t)d;
	return side;
}

/* ---- pairs of tokens that see each other ---- */

/* Pairs within one document. */
static double document_pairs(enum attention_mask mask, int64_t tokens, int64_t window)
{
	double t = (double)tokens, w = (double)window, causal;

	if (window <= 0 || window >= tokens)
		causal = t * (t + 1) / 2;
	else
		causal = w * (w + 1) / 2 + (t - w) * w;
	return mask == MASK_BIDIRECTIONAL ? 2 * causal - t : causal;
}

/* Pairs if all documents have the maximum length, except a last one with the remaining tokens. */
static double pairs_of(enum attention_mask mask, int64_t tokens, int64_t document_tokens, int64_t window)
{
	int64_t longest = document_tokens > 0 ? document_tokens : tokens;

	return (double)(tokens / longest) * document_pairs(mask, longest, window) +
	       document_pairs(mask, tokens % longest, window);
}

/* ---- shared by forward and backward ---- */

/* These fields have the same name and meaning in all structs. */
#define CHECK_SHAPE                                                                                          \
	(SIZE(tokens, 1) || SIZE(heads, 1) || SIZE(kv_heads, 1) || SIZE(head_dim, 1) || SIZE(window, 0) ||   \
	        check_heads(f, p->heads, p->kv_heads) ||                                                     \
	        SIZE(q_head_stride, p->heads > 1 ? p->head_dim : 0) ||                                       \
	        SIZE(kv_head_stride, p->kv_heads > 1 ? p->head_dim : 0) ||                                   \
	        SIZE(out_stride, size_times(p->heads, p->head_dim)) ||                                       \
	        SIZE(qkv_stride, size_of_row(p->heads, p->q_head_stride, p->head_dim)) ||                    \
	        SIZE(qkv_stride, size_of_row(p->kv_heads, p->kv_head_stride, p->head_dim)) ||                \
	        COMPUTE_DTYPE(dtype) || check_scores(f, p->scale, p->score_cap))
#define CHECK_DOCUMENTS (SIZE(documents, 0) || SIZE(document_tokens, 0) || check_mask(f, p->mask))

#define CHECK_BIAS check_bias(f, p->score_cap, p->bias)

#define LIKE_Q                                                                                               \
	.dtype = p->dtype, .rows = p->tokens, .stride = p->qkv_stride, .groups = p->heads,                   \
	.group_stride = p->q_head_stride, .cols = p->head_dim
#define LIKE_KV                                                                                              \
	.dtype = p->dtype, .rows = p->tokens, .stride = p->qkv_stride, .groups = p->kv_heads,                \
	.group_stride = p->kv_head_stride, .cols = p->head_dim
#define LIKE_OUT                                                                                             \
	.dtype = p->dtype, .rows = p->tokens, .stride = p->out_stride,                                       \
	.cols = size_times(p->heads, p->head_dim)
#define LIKE_BIAS .rows = p->heads, .cols = size_times(2, p->tokens), .optional = 1
#define STAT .dtype = DTYPE_F32, .rows = p->tokens, .cols = p->heads

static int check_heads(const struct op_facts *f, int64_t heads, int64_t kv_heads)
{
	if (heads % kv_heads == 0)
		return 0;
	return op_refuse(f, "heads is %" PRId64 ", must be a multiple of kv_heads, which is %" PRId64, heads,
	        kv_heads);
}

static int check_mask(const struct op_facts *f, enum attention_mask mask)
{
	if ((unsigned)mask >= MASK_COUNT)
		return op_refuse(f, "mask is %d, not a mask", (int)mask);
	return 0;
}

static int check_scores(const struct op_facts *f, double scale, double score_cap)
{
	if (!isfinite(scale))
		return op_refuse(f, "scale is %g", scale);
	if (!(score_cap >= 0) || !isfinite(score_cap))
		return op_refuse(f, "score_cap is %g, must be 0 (none) or above", score_cap);
	return 0;
}

static int check_bias(const struct op_facts *f, double score_cap, dev_addr bias)
{
	return score_cap > 0 && !dev_is_none(bias) ? op_refuse(f, "score_cap and bias exclude each other")
	                                           : 0;
}

/* `count` products of tokens x tokens x head_dim for each head. */
static void products(struct op_facts *f, int count, const struct op_attention *p)
{
	f->is_attention = 1;
	f->flops_dtype = p->dtype;
	f->flops = 2.0 * count * pairs_of(p->mask, p->tokens, p->document_tokens, p->window) *
	           (double)(p->heads * p->head_dim);
}

int op_describe_attention(struct op_facts *f, const struct op_attention *p)
{
	if (CHECK_SHAPE || CHECK_DOCUMENTS || CHECK_BIAS)
		return ERR_RANGE;
	READ(q, LIKE_Q);
	READ(k, LIKE_KV);
	READ(v, LIKE_KV);
	READ(doc_start, .dtype = DTYPE_I32, .cols = p->tokens);
	READ(doc_end, .dtype = DTYPE_I32, .cols = p->tokens);
	READ(sink, .dtype = p->dtype, .cols = p->heads, .optional = 1);
	READ(bias, .dtype = p->dtype, LIKE_BIAS);
	WRITE(out, LIKE_OUT);
	WRITE(lse, STAT);
	products(f, 2, p); /* scores, and their product with v */
	return 0;
}

int op_describe_attention_grad(struct op_facts *f, const struct op_attention_grad *p)
{
	if (CHECK_SHAPE || CHECK_DOCUMENTS || CHECK_BIAS)
		return ERR_RANGE;
	if (dev_is_none(p->sink) != dev_is_none(p->dsink))
		return op_refuse(f, "sink and dsink go together");
	if (dev_is_none(p->bias) && !dev_is_none(p->dbias))
		return op_refuse(f, "dbias without bias");
	READ(dout, LIKE_OUT);
	READ(out, LIKE_OUT);
	READ(lse, STAT);
	READ(q, LIKE_Q);
	READ(k, LIKE_KV);
	READ(v, LIKE_KV);
	READ(doc_start, .dtype = DTYPE_I32, .cols = p->tokens);
	READ(doc_end, .dtype = DTYPE_I32, .cols = p->tokens);
	READ(sink, .dtype = p->dtype, .cols = p->heads, .optional = 1);
	READ(bias, .dtype = p->dtype, LIKE_BIAS);
	WRITE(dq, LIKE_Q);
	WRITE(dk, LIKE_KV);
	WRITE(dv, LIKE_KV);
	UPDATE(dsink, .dtype = DTYPE_F32, .cols = p->heads, .optional = 1);
	UPDATE(dbias, .dtype = DTYPE_F32, LIKE_BIAS);
	WRITE(scratch, .dtype = DTYPE_F32,
	        .cols = size_plus(attention_scratch_count(p->tokens, p->heads, p->head_dim),
	                dev_is_none(p->dbias) ? 0 : attention_bias_scratch_count(p->tokens, p->heads)));
	products(f, 5,
	        &(struct op_attention){.tokens = p->tokens,
	                .document_tokens = p->document_tokens,
	                .heads = p->heads,
	                .head_dim = p->head_dim,
	                .window = p->window,
	                .mask = p->mask,
	                .dtype = p->dtype}); /* scores again, dp, dq, dk, dv */
	return 0;
}

/* Only the device knows how long the texts are, so each token counts as seeing the whole cache or its window.
 */
int op_describe_attention_cached(struct op_facts *f, const struct op_attention_cached *p)
{
	int64_t rows;

	if (CHECK_SHAPE || SIZE(cache_rows, 1) || SIZE(kept_rows, 0) || SIZE(text_rows, p->kept_rows))
		return ERR_RANGE;
	if (p->kept_rows && p->window > p->kept_rows)
		return op_refuse(f, "kept_rows is less than window");
	rows = p->window > 0 && p->window < p->cache_rows ? p->window : p->cache_rows;
	READ(q, LIKE_Q);
	READ(k, LIKE_KV);
	READ(v, LIKE_KV);
	READ(doc_start, .dtype = DTYPE_I32, .cols = p->tokens);
	READ(doc_end, .dtype = DTYPE_I32, .cols = p->tokens);
	READ(sink, .dtype = p->dtype, .cols = p->heads, .optional = 1);
	UPDATE(cache, .dtype = p->dtype, .rows = p->cache_rows,
	        .cols = size_times(2, size_times(p->kv_heads, p->head_dim)), .used_rows = rows);
	WRITE(out, LIKE_OUT);
	f->is_attention = 1;
	f->flops_dtype = p->dtype;
	f->flops = 4.0 * (double)p->tokens * (double)rows * (double)(p->heads * p->head_dim);
	return 0;
}

#define CHECK_RELATIVE                                                                                       \
	(SIZE(tokens, 1) || SIZE(heads, 1) || SIZE(table_rows, p->rule.rows) || check_rule(f, &p->rule))

static int check_rule(const struct op_facts *f, const struct relative_rule *rule)
{
	const char *problem = relative_rule_problem(rule);

	return problem ? op_refuse(f, "the rule of distances %s", problem) : 0;
}

int op_describe_relative(struct op_facts *f, const struct op_relative *p)
{
	if (CHECK_RELATIVE || COMPUTE_DTYPE(dtype))
		return ERR_RANGE;
	READ(table, .dtype = p->dtype, .rows = p->table_rows, .cols = p->heads);
	WRITE(out, .dtype = p->dtype, .rows = p->heads, .cols = size_times(2, p->tokens));
	return 0;
}

int op_describe_relative_grad(struct op_facts *f, const struct op_relative_grad *p)
{
	if (CHECK_RELATIVE)
		return ERR_RANGE;
	READ(dout, .dtype = DTYPE_F32, .rows = p->heads, .cols = size_times(2, p->tokens));
	UPDATE(dtable, .dtype = DTYPE_F32, .rows = p->table_rows, .cols = p->heads);
	return 0;
}
