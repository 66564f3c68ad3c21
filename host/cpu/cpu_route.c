/* The choice of a router, and the order of rows by experts. */
#include "device/op_experts.h"
#include "host/cpu/cpu_inner.h"

#include <math.h>
#include <string.h>

OP_EXPERTS_LIST(CPU_DECLARE)

enum { ROUTE_TOKENS = 16 };

/* ---- scores ---- */

static double sigmoid(double x)
{
	return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

/* The largest of all logits, and the sum of exp(logit - that). */
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

/* The scores of the chosen ones. */
static void scores_of(double *score, const float *logits, const int32_t *ids, int64_t experts, int64_t chosen,
        enum route_rule rule)
{
	struct softmax s = {0};

	if (rule == ROUTE_SOFTMAX)
		s = softmax_of(logits, experts);
	if (rule == ROUTE_CHOSEN) {
		s.most = logits[ids[0]];
		for (int64_t j = 0; j < chosen; j++)
			s.sum += exp(logits[ids[j]] - s.most);
	}
	for (int64_t j = 0; j < chosen; j++)
		score[j] = rule == ROUTE_SIGMOID ? sigmoid(logits[ids[j]])
		                                 : exp(logits[ids[j]] - s.most) / s.sum;
}

/* ---- the choice ---- */

/* NaN is above all numbers. */
static int is_above(double x, double y)
{
	return x > y || (isnan(x) && !isnan(y));
}

/* The first of the largest that are not taken; there is one. */
static int64_t largest(const double *value, const uint8_t *is_taken, int64_t count)
{
	int64_t found = -1;

	for (int64_t i = 0; i < count; i++)
		if (!is_taken[i] && (found < 0 || is_above(value[i], value[found])))
			found = i;
	return found;
}

/* What a group counts. */
static double group_value(const double *value, int64_t count, enum route_rule rule)
{
	uint8_t is_taken[ROUTE_EXPERTS_MAX];
	int64_t best;

	memset(is_taken, 0, (size_t)count);
	best = largest(value, is_taken, count);
	if (rule != ROUTE_SIGMOID || count == 1)
		return value[best];
	is_taken[best] = 1;
	return value[best] + value[largest(value, is_taken, count)];
}

/* Marks the experts of groups that do not take part as taken. */
static void drop_groups(const struct op_route *o, const double *value, uint8_t *is_taken)
{
	double group[ROUTE_GROUPS_MAX];
	uint8_t takes_part[ROUTE_GROUPS_MAX] = {0};
	int64_t each = o->experts / o->groups;

	for (int64_t g = 0; g < o->groups; g++)
		group[g] = group_value(value + g * each, each, o->rule);
	for (int64_t i = 0; i < o->groups_chosen; i++)
		takes_part[largest(group, takes_part, o->groups)] = 1;
	for (int64_t e = 0; e < o->experts; e++)
		is_taken[e] = !takes_part[e / each];
}

static void choose(const struct op_route *o, int32_t *ids, const float *logits)
{
	const struct cpu_kernels *k = cpu_kernels();
	double value[ROUTE_EXPERTS_MAX];
	uint8_t is_taken[ROUTE_EXPERTS_MAX];
	float buffer[CPU_CHUNK];

	memset(is_taken, 0, (size_t)o->experts);
	for (int64_t e = 0; e < o->experts; e++)
		value[e] = o->rule == ROUTE_SIGMOID ? sigmoid(logits[e]) : logits[e];
	for (int64_t at = 0; at < o->experts && !dev_is_none(o->bias); at += CPU_CHUNK) {
		int64_t n = min_i64(CPU_CHUNK, o->experts - at);
		const float *bias = cpu_load(k, buffer, cpu_ptr(o->bias), at, n, o->bias_dtype);

		for (int64_t e = 0; e < n; e++)
			value[at + e] += bias[e];
	}
	if (o->groups > 1)
		drop_groups(o, value, is_taken);
	for (int64_t j = 0; j < o->chosen; j++) {
		ids[j] = (int32_t)largest(value, is_taken, o->experts);
		is_taken[ids[j]] = 1;
	}
}

static void route_piece(void *context, int64_t piece, int worker)
{
	const struct op_route *o = context;
	int64_t end = min_i64((piece + 1) * ROUTE_TOKENS, o->tokens);

	(void)worker;
	for (int64_t t = piece * ROUTE_TOKENS; t < end; t++) {
		const float *logits = (const float *)cpu_ptr(o->logits) + t * o->experts;
		int32_t *ids = (int32_t *)cpu_ptr(o->ids) + t * o->chosen;
		float *weights = (float *)cpu_ptr(o->weights) + t * o->chosen;
		double score[ROUTE_CHOSEN_MAX], sum = o->norm_epsilon;

		choose(o, ids, logits);
		scores_of(score, logits, ids, o->experts, o->chosen, o->rule);
		for (int64_t j = 0; j < o->chosen; j++)
			sum += score[j];
		for (int64_t j = 0; j < o->chosen; j++)
			weights[j] = (float)(o->scale * score[j] / (o->is_normed ? sum : 1));
	}
}

int cpu_route(struct cpu_context *cx, const struct op_route *op)
{
	struct op_route o = *op;

	cpu_run(cx, cpu_pieces(o.tokens, ROUTE_TOKENS), route_piece, &o);
	return 0;
}

/* ---- its gradient ---- */

/* From the gradients of the chosen ones' weights, in place, those of their scores. */
static void scores_grad(const struct op_route_grad *o, double *grad, const double *score)
{
	double sum = o->norm_epsilon, mean = 0;

	for (int64_t j = 0; j < o->chosen; j++)
		grad[j] *= o->scale;
	if (!o->is_normed)
		return;
	for (int64_t j = 0; j < o->chosen; j++)
		sum += score[j];
	for (int64_t j = 0; j < o->chosen; j++)
		mean += grad[j] * score[j] / sum;
	for (int64_t j = 0; j < o->chosen; j++)
		grad[j] = (grad[j] - mean) / sum;
}

static void route_grad_token(const struct op_route_grad *o, int64_t t)
{
	const float *logits = (const float *)cpu_ptr(o->logits) + t * o->experts;
	const float *dweights = (const float *)cpu_ptr(o->dweights) + t * o->chosen;
	const int32_t *ids = (const int32_t *)cpu_ptr(o->ids) + t * o->chosen;
	float *dlogits = (float *)cpu_ptr(o->dlogits) + t * o->experts;
	double score[ROUTE_CHOSEN_MAX], grad[ROUTE_CHOSEN_MAX], mean = 0;

	scores_of(score, logits, ids, o->experts, o->chosen, o->rule);
	for (int64_t j = 0; j < o->chosen; j++)
		grad[j] = dweights[j];
	scores_grad(o, grad, score);
	memset(dlogits, 0, (size_t)o->experts * sizeof(*dlogits));
	for (int64_t j = 0; j < o->chosen && o->rule != ROUTE_SIGMOID; j++)
		mean += grad[j] * score[j];
	if (o->rule == ROUTE_SOFTMAX) {
		struct softmax s = softmax_of(logits, o->experts);

		for (int64_t e = 0; e < o->experts; e++)
			dlogits[e] = (float)(-mean * exp(logits[e] - s.most) / s.sum);
	}
	for (int64_t j = 0; j < o->chosen; j++)
		dlogits[ids[j]] = (float)(o->rule == ROUTE_SIGMOID ? grad[j] * score[j] * (1 - score[j])
		                                                   : score[j] * (grad[j] - mean));
}

static void route_grad_piece(void *context, int64_t piece, int worker)
{
	const struct op_route_grad *o = context;
	int64_t end = min_i64((piece + 1) * ROUTE_TOKENS, o->tokens);

	(void)worker;
	for (int64_t t = piece * ROUTE_TOKENS; t < end; t++)
		route_grad_token(o, t);
}

int cpu_route_grad(struct cpu_context *cx, const struct op_route_grad *op)
{
	struct op_route_grad o = *op;

	cpu_run(cx, cpu_pieces(o.tokens, ROUTE_TOKENS), route_grad_piece, &o);
	return 0;
}

/* ---- the order of rows ---- */

/* Counts, then places: a stable sort by expert, by one thread. */
static void order_piece(void *context, int64_t piece, int worker)
{
	const struct op_order *o = context;
	const int32_t *ids = cpu_ptr(o->ids);
	int32_t *first = cpu_ptr(o->first), *slot = cpu_ptr(o->slot), *row = cpu_ptr(o->row);
	int32_t next[ROUTE_EXPERTS_MAX];
	int64_t slots = o->tokens * o->chosen;

	(void)piece;
	(void)worker;
	memset(first, 0, (size_t)(o->experts + 1) * sizeof(*first));
	for (int64_t s = 0; s < slots; s++)
		first[ids[s] + 1]++;
	for (int64_t e = 0; e < o->experts; e++) {
		first[e + 1] += first[e];
		next[e] = first[e];
	}
	for (int64_t s = 0; s < slots; s++) {
		row[s] = next[ids[s]]++;
		slot[row[s]] = (int32_t)s;
	}
}

int cpu_order(struct cpu_context *cx, const struct op_order *op)
{
	struct op_order o = *op;
	int err = cpu_check_index("order", cpu_ptr(o.ids), o.tokens * o.chosen, o.experts);

	if (!err)
		cpu_run(cx, 1, order_piece, &o);
	return err;
}
