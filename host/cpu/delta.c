/* A chunk of the gated delta rule: its inputs in fp32, its triangular system, and the state. */
#include "host/cpu/delta.h"

#include "base/err.h"
#include "host/cpu/matmul.h"

#include <math.h>

enum { SOLVE_ROWS = 16 };

_Static_assert((int)SCRATCH_DELTA_CHUNK == (int)DELTA_CHUNK, "scratch of a chunk");

void delta_chunk_place(struct delta_chunk *c, float *base, int64_t key_dim, int64_t value_dim)
{
	int64_t keys = DELTA_CHUNK * round_up(key_dim, 16), values = DELTA_CHUNK * round_up(value_dim, 16);

	c->q = base;
	c->k = c->q + keys;
	c->scaled = c->k + keys;
	c->v = c->scaled + keys;
	c->fresh = c->v + values;
	c->a = c->fresh + values;
	c->p = c->a + DELTA_CHUNK * DELTA_CHUNK;
	c->kk = c->p + DELTA_CHUNK * DELTA_CHUNK;
}

/* ---- one token ---- */

static double softplus(double x)
{
	return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static struct delta_gate scan_gate_of(const struct delta_inputs *in, int64_t token, int64_t head)
{
	float low = cpu_rounded((float)in->low, in->dtype), high = cpu_rounded((float)in->high, in->dtype);
	float x = cpu_rounded(cpu_number(in->a, token * in->gate_stride + head, in->dtype) +
	                              cpu_number(in->dt_bias, head, in->dtype),
	        in->dtype);
	float step = cpu_rounded((float)softplus((double)x), in->dtype);
	double speed = exp((double)cpu_number(in->decay, head, in->dtype));
	struct delta_gate gate = {.beta = step < low ? low : step > high ? high : step};

	if (!(step < low || step > high)) /* a NaN is below and above nothing, and stays */
		gate.step_slope = (float)(1 / (1 + exp(-(double)x)));
	gate.g = (float)(-speed * (double)gate.beta);
	gate.slope = (float)(-speed * (double)gate.step_slope);
	return gate;
}

float delta_skip_of(const struct delta_inputs *in, int64_t head)
{
	return in->skip ? cpu_number(in->skip, head, in->dtype) : 0;
}

static struct delta_gate rule_gate_of(const struct delta_inputs *in, int64_t token, int64_t head)
{
	int64_t at = token * in->gate_stride + head;
	double x =
	        (double)cpu_number(in->a, at, in->dtype) + (double)cpu_number(in->dt_bias, head, in->dtype);
	double speed = exp((double)cpu_number(in->decay, head, in->dtype));
	double b = (double)cpu_number(in->b, at, in->dtype);
	struct delta_gate gate = {.sigmoid = (float)(1 / (1 + exp(-b)))};

	gate.beta = cpu_rounded(gate.sigmoid, in->dtype);
	gate.g = (float)(-speed * softplus(x));
	gate.slope = (float)(-speed / (1 + exp(-x)));
	return gate;
}

struct delta_gate delta_gate_of(const struct delta_inputs *in, int64_t token, int64_t head)
{
	return in->is_scan ? scan_gate_of(in, token, head) : rule_gate_of(in, token, head);
}

float delta_unit(
        float *to, const struct delta_inputs *in, const void *from, int64_t token, int64_t head, float factor)
{
	const struct cpu_kernels *k = cpu_kernels();
	int64_t key = head / (in->value_heads / in->key_heads);
	const float *x =
	        cpu_load(k, to, from, token * in->qkv_stride + key * in->key_dim, in->key_dim, in->dtype);
	float length = in->is_scan ? 1 : (float)(1 / sqrt(k->sumsq_about(x, in->key_dim, 0) + in->epsilon));

	k->scale(to, x, length * factor, in->key_dim);
	return length;
}

void delta_value(float *to, const struct delta_inputs *in, int64_t token, int64_t head)
{
	const struct cpu_kernels *k = cpu_kernels();
	const float *v = cpu_load(
	        k, to, in->v, token * in->qkv_stride + head * in->value_dim, in->value_dim, in->dtype);

	if (v != to)
		k->scale(to, v, 1, in->value_dim);
}

/* ---- the triangular system ---- */

static void solve(const struct delta_chunk *c, float *x, int64_t cols)
{
	for (int64_t top = 0; top < c->count; top += SOLVE_ROWS) {
		int64_t rows = min_i64(SOLVE_ROWS, c->count - top);

		if (top)
			cpu_sgemm(x + top * cols, c->a + top * DELTA_CHUNK, x, rows, cols, top, cols,
			        DELTA_CHUNK, cols, MATMUL_NORMAL, MATMUL_NORMAL, -1, 1);
		for (int64_t i = top + 1; i < top + rows; i++)
			cpu_sgemm(x + i * cols, c->a + i * DELTA_CHUNK + top, x + top * cols, 1, cols,
			        i - top, cols, DELTA_CHUNK, cols, MATMUL_NORMAL, MATMUL_NORMAL, -1, 1);
	}
}

void delta_solve_transposed(const struct delta_chunk *c, float *x, int64_t cols)
{
	int64_t last = (c->count - 1) / SOLVE_ROWS * SOLVE_ROWS;

	for (int64_t top = last; top >= 0; top -= SOLVE_ROWS) {
		int64_t end = min_i64(top + SOLVE_ROWS, c->count);

		if (end < c->count)
			cpu_sgemm(x + top * cols, c->a + end * DELTA_CHUNK + top, x + end * cols, end - top,
			        cols, c->count - end, cols, DELTA_CHUNK, cols, MATMUL_TRANSPOSED,
			        MATMUL_NORMAL, -1, 1);
		for (int64_t i = end - 2; i >= top; i--)
			cpu_sgemm(x + i * cols, c->a + (i + 1) * DELTA_CHUNK + i, x + (i + 1) * cols, 1, cols,
			        end - 1 - i, cols, DELTA_CHUNK, cols, MATMUL_TRANSPOSED, MATMUL_NORMAL, -1,
			        1);
	}
}

/* ---- the chunk ---- */

static void load(struct delta_chunk *c, const struct delta_inputs *in, int64_t head)
{
	float sum = 0;

	for (int64_t i = 0; i < c->count; i++) {
		int64_t token = c->first + i;

		c->q_norm[i] = delta_unit(c->q + i * in->key_dim, in, in->q, token, head, (float)in->scale);
		c->k_norm[i] = delta_unit(c->k + i * in->key_dim, in, in->k, token, head, 1);
		delta_value(c->v + i * in->value_dim, in, token, head);
		c->gate[i] = delta_gate_of(in, token, head);
		c->beta[i] = c->gate[i].beta;
		sum += c->gate[i].g;
		c->b[i] = sum;
		c->e[i] = expf(sum);
	}
	c->total = expf(sum);
	for (int64_t i = 0; i < c->count; i++)
		c->rest[i] = expf(sum - c->b[i]);
}

/* P, and A if the rule has one, from Q K^T and K K^T. */
static void decay_products(struct delta_chunk *c, int is_scan)
{
	for (int64_t i = 0; i < c->count; i++)
		for (int64_t j = 0; j < DELTA_CHUNK; j++) {
			float gamma = j <= i ? expf(c->b[i] - c->b[j]) : 0;
			int64_t at = i * DELTA_CHUNK + j;

			c->a[at] = j < i && !is_scan ? c->beta[i] * c->kk[at] * gamma : 0;
			c->p[at] = j <= i ? c->p[at] * gamma : 0;
		}
}

void delta_chunk_begin(struct delta_chunk *c, const struct delta_inputs *in, int64_t head, int64_t first)
{
	int64_t dk = in->key_dim;

	c->first = first;
	c->count = 1;
	while (c->count < DELTA_CHUNK && first + c->count < in->tokens &&
	        in->doc_start[first + c->count] <= first)
		c->count++;
	load(c, in, head);
	if (!in->is_scan)
		cpu_sgemm(c->kk, c->k, c->k, c->count, c->count, dk, DELTA_CHUNK, dk, dk, MATMUL_NORMAL,
		        MATMUL_TRANSPOSED, 1, 0);
	cpu_sgemm(c->p, c->q, c->k, c->count, c->count, dk, DELTA_CHUNK, dk, dk, MATMUL_NORMAL,
	        MATMUL_TRANSPOSED, 1, 0);
	decay_products(c, in->is_scan);
}

void delta_rows_scale(struct delta_chunk *c, const float *x, const float *factors, int64_t cols)
{
	for (int64_t i = 0; i < c->count; i++)
		cpu_kernels()->scale(c->scaled + i * cols, x + i * cols, factors[i], cols);
}

void delta_chunk_fresh(struct delta_chunk *c, const struct delta_inputs *in, const float *state)
{
	int64_t dk = in->key_dim, dv = in->value_dim;

	if (state && !in->is_scan) {
		delta_rows_scale(c, c->k, c->e, dk);
		cpu_sgemm(c->v, c->scaled, state, c->count, dv, dk, dv, dk, dv, MATMUL_NORMAL, MATMUL_NORMAL,
		        -1, 1);
	}
	for (int64_t i = 0; i < c->count; i++)
		cpu_kernels()->scale(c->fresh + i * dv, c->v + i * dv, c->beta[i], dv);
	if (!in->is_scan)
		solve(c, c->fresh, dv);
}

void delta_chunk_pass(struct delta_chunk *c, const struct delta_inputs *in, float *state, int is_zero)
{
	int64_t dk = in->key_dim, dv = in->value_dim;

	delta_rows_scale(c, c->k, c->rest, dk);
	if (!is_zero)
		cpu_kernels()->scale(state, state, c->total, dk * dv);
	cpu_sgemm(state, c->scaled, c->fresh, dk, dv, c->count, dv, dk, dv, MATMUL_TRANSPOSED, MATMUL_NORMAL,
	        1, is_zero ? 0 : 1);
}

int delta_documents_check(const char *op_name, const int32_t *doc_start, int64_t tokens)
{
	for (int64_t t = 0; t < tokens; t++)
		if (doc_start[t] < 0 || doc_start[t] > t ||
		        (doc_start[t] < t && doc_start[t] != doc_start[t - 1]))
			return err_set(ERR_RANGE, "%s: token %lld of %lld has a document from %d on", op_name,
			        (long long)t, (long long)tokens, (int)doc_start[t]);
	return 0;
}
