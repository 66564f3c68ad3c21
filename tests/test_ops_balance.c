/* links: host_cpu */
/* also: tsan cuda */
/* The probabilities of a router and the gradient of the loss of even use, against fp64 and differences. */
#include "tests/ops_check.h"

enum { EXPERTS_MAX = 300, LAYERS_MAX = 5 };

/* A token's softmax, and the sum of n * softmax. */
static double token_loss(const double *logits, const double *n, double *share, int64_t experts)
{
	double most = logits[0], sum = 0, loss = 0;

	for (int64_t e = 1; e < experts; e++)
		most = fmax(most, logits[e]);
	for (int64_t e = 0; e < experts; e++)
		sum += exp(logits[e] - most);
	for (int64_t e = 0; e < experts; e++) {
		share[e] = exp(logits[e] - most) / sum;
		loss += n ? n[e] * share[e] : 0;
	}
	return loss;
}

struct balance_case {
	int64_t tokens, experts, layers, stride;
	struct tensor *logits, *first;
	double n[EXPERTS_MAX];
};

static void balance_draw(struct ops_case *c, struct balance_case *b)
{
	*b = (struct balance_case){.tokens = case_int(c, 1, 40),
	        .experts = case_int(c, 1, case_int(c, 0, 3) ? 20 : EXPERTS_MAX),
	        .layers = case_int(c, 1, LAYERS_MAX)};
	b->stride = b->experts + case_int(c, 1, 9);
	b->logits = case_tensor(c, b->tokens * b->experts, DTYPE_F32, 4);
	b->first = case_tensor(c, b->layers * b->stride, DTYPE_I32, 0);
	for (int64_t l = 0; l < b->layers; l++)
		for (int64_t e = 0, at = 0; e <= b->experts; e++) {
			int64_t rows = e < b->experts ? case_int(c, 0, 5) : 0;

			tensor_set(b->first, l * b->stride + e, (double)at);
			at += rows;
			if (e < b->experts)
				b->n[e] += (double)rows;
		}
}

static void logits_of(const struct balance_case *b, double *logits, int64_t t)
{
	for (int64_t e = 0; e < b->experts; e++)
		logits[e] = tensor_get(b->logits, t * b->experts + e);
}

static void test_router_shares(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(100); seed++) {
		double logits[EXPERTS_MAX], share[EXPERTS_MAX];
		struct ops_case c;
		struct balance_case b;
		struct tensor *shares;
		struct op op = {.kind = OP_ROUTER_SHARES};

		case_begin(&c, "router_shares", seed);
		balance_draw(&c, &b);
		shares = case_tensor(&c, b.tokens * b.experts, DTYPE_F32, 1);
		op.router_shares = (struct op_router_shares){
		        tensor_addr(shares), tensor_addr(b.logits), b.tokens, b.experts};
		case_run(&c, &op);
		for (int64_t t = 0; t < b.tokens; t++) {
			logits_of(&b, logits, t);
			token_loss(logits, NULL, share, b.experts);
			for (int64_t e = 0; e < b.experts; e++)
				case_check(&c, shares, t * b.experts + e, share[e], 40 * EPS_F32 * share[e],
				        "shares");
		}
		case_end(&c);
	}
}

static void test_balance_grad(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(100); seed++) {
		double logits[EXPERTS_MAX], share[EXPERTS_MAX], most = 1;
		struct ops_case c;
		struct balance_case b;
		struct tensor *dlogits, *counts;
		double before[EXPERTS_MAX], factor = 0.25;
		struct op op = {.kind = OP_BALANCE_GRAD};
		int64_t t;

		case_begin(&c, "balance_grad", seed);
		balance_draw(&c, &b);
		dlogits = case_tensor(&c, b.tokens * b.experts, DTYPE_F32, 1);
		counts = case_tensor(&c, b.experts, DTYPE_F32, 1);
		t = case_int(&c, 0, b.tokens - 1); /* the one that is checked */
		logits_of(&b, logits, t);
		for (int64_t e = 0; e < b.experts; e++) {
			before[e] = tensor_get(dlogits, t * b.experts + e);
			most = fmax(most, b.n[e]);
		}
		op.balance_grad = (struct op_balance_grad){tensor_addr(dlogits), tensor_addr(b.logits),
		        tensor_addr(counts), tensor_addr(b.first), b.tokens, b.experts, b.layers, b.stride,
		        factor};
		case_run(&c, &op);
		case_forget(dlogits); /* other tokens */
		for (int64_t e = 0; e < b.experts; e++) {
			const double h = 1e-5, at = logits[e];
			double up, down;

			case_check(&c, counts, e, b.n[e], 0, "counts");
			logits[e] = at + h;
			up = token_loss(logits, b.n, share, b.experts);
			logits[e] = at - h;
			down = token_loss(logits, b.n, share, b.experts);
			logits[e] = at;
			case_check(&c, dlogits, t * b.experts + e, before[e] + factor * (up - down) / (2 * h),
			        60 * EPS_F32 * most, "dlogits");
		}
		case_end(&c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_router_shares),
	        cmocka_unit_test(test_balance_grad),
	};

	return cmocka_run_group_tests(tests, ops_setup, ops_teardown);
}
