/* The shares of experts in a router's probabilities, and the gradient of a loss of even use. */
#include "base/num.h"
#include "device/op_experts.h"
#include "host/cpu/cpu_inner.h"

#include <math.h>

OP_EXPERTS_LIST(CPU_DECLARE)

enum { BALANCE_TOKENS = 16 };

/* ---- softmax of a token ---- */

struct softmax {
	double most, sum;
};

static struct softmax softmax_of(const float *logits, int64_t experts)
{
	struct softmax s = {logits[0], 0};

	for (int64_t e = 1; e < experts; e++)
		s.most = logits[e] > s.most ? logits[e] : s.most;
	for (int64_t e = 0; e < experts; e++)
		s.sum += exp(logits[e] - s.most);
	return s;
}

static void shares_piece(void *context, int64_t piece, int worker)
{
	const struct op_router_shares *o = context;
	int64_t end = min_i64((piece + 1) * BALANCE_TOKENS, o->tokens);

	(void)worker;
	for (int64_t t = piece * BALANCE_TOKENS; t < end; t++) {
		const float *logits = (const float *)cpu_ptr(o->logits) + t * o->experts;
		float *shares = (float *)cpu_ptr(o->shares) + t * o->experts;
		struct softmax s = softmax_of(logits, o->experts);

		for (int64_t e = 0; e < o->experts; e++)
			shares[e] = (float)(exp(logits[e] - s.most) / s.sum);
	}
}

int cpu_router_shares(struct cpu_context *cx, const struct op_router_shares *op)
{
	struct op_router_shares o = *op;

	cpu_run(cx, cpu_pieces(o.tokens, BALANCE_TOKENS), shares_piece, &o);
	return 0;
}

/* ---- the gradient ---- */

/* The rows of each expert in all layers, by one thread. */
static void counts_piece(void *context, int64_t piece, int worker)
{
	const struct op_balance_grad *o = context;
	float *counts = cpu_ptr(o->counts);

	(void)piece;
	(void)worker;
	for (int64_t e = 0; e < o->experts; e++) {
		int64_t rows = 0;

		for (int64_t l = 0; l < o->layers; l++) {
			const int32_t *first = (const int32_t *)cpu_ptr(o->first) + l * o->stride;

			rows += first[e + 1] - first[e];
		}
		counts[e] = (float)rows;
	}
}

static void grad_piece(void *context, int64_t piece, int worker)
{
	const struct op_balance_grad *o = context;
	const float *counts = cpu_ptr(o->counts);
	int64_t end = min_i64((piece + 1) * BALANCE_TOKENS, o->tokens);

	(void)worker;
	for (int64_t t = piece * BALANCE_TOKENS; t < end; t++) {
		const float *logits = (const float *)cpu_ptr(o->logits) + t * o->experts;
		float *dlogits = (float *)cpu_ptr(o->dlogits) + t * o->experts;
		struct softmax s = softmax_of(logits, o->experts);
		double mean = 0;

		for (int64_t e = 0; e < o->experts; e++)
			mean += counts[e] * (exp(logits[e] - s.most) / s.sum);
		for (int64_t e = 0; e < o->experts; e++)
			dlogits[e] +=
			        (float)(o->factor * (exp(logits[e] - s.most) / s.sum) * (counts[e] - mean));
	}
}

int cpu_balance_grad(struct cpu_context *cx, const struct op_balance_grad *op)
{
	struct op_balance_grad o = *op;

	cpu_run(cx, 1, counts_piece, &o);
	cpu_run(cx, cpu_pieces(o.tokens, BALANCE_TOKENS), grad_piece, &o);
	return 0;
}
