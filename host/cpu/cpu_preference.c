/* Weights of token losses, from the losses of preference pairs, and log probabilities of texts. */
#include "device/op_preference.h"

#include "host/cpu/cpu_inner.h"

OP_PREFERENCE_LIST(CPU_DECLARE)

static double sum_of(const float *values, int64_t count)
{
	double sum = 0;

	for (int64_t i = 0; i < count; i++)
		sum += values[i];
	return sum;
}

static void preference_piece(void *context, int64_t p, int worker)
{
	const struct op_preference *o = context;
	const int32_t *first = (const int32_t *)cpu_ptr(o->first) + 2 * p;
	const int32_t *answer = (const int32_t *)cpu_ptr(o->answer) + 2 * p;
	const double *reference = (const double *)cpu_ptr(o->reference) + 2 * p;
	const float *nll = cpu_ptr(o->nll);
	float *weight = cpu_ptr(o->weight);
	struct preference_pair pair;
	double grad[2], own;

	(void)worker;
	for (int i = 0; i < 2; i++) {
		pair.count[i] = first[i + 1] - answer[i];
		pair.policy[i] = -sum_of(nll + answer[i], pair.count[i]);
		pair.reference[i] = reference[i];
	}
	pair.own_count = first[1] - first[0];
	pair.own = answer[0] == first[0] ? pair.policy[0] : -sum_of(nll + first[0], pair.own_count);
	preference_loss(&o->loss, &pair, grad, &own);
	for (int64_t t = first[0]; t < answer[0]; t++)
		weight[t] = (float)-own;
	grad[0] += own;
	for (int i = 0; i < 2; i++)
		for (int64_t t = answer[i]; t < first[i + 1]; t++)
			weight[t] = (float)-grad[i];
}

int cpu_preference(struct cpu_context *cx, const struct op_preference *op)
{
	struct op_preference o = *op;

	cpu_run(cx, o.pairs, preference_piece, &o);
	return 0;
}

static void log_ratio_piece(void *context, int64_t text, int worker)
{
	const struct op_log_ratio *o = context;
	const int32_t *first = (const int32_t *)cpu_ptr(o->first) + text;
	const float *nll = cpu_ptr(o->nll);
	float *ratio = (float *)cpu_ptr(o->ratio) + 2 * text;
	double value =
	        -sum_of(nll + first[0], first[1] - first[0]) - ((const double *)cpu_ptr(o->reference))[text];

	(void)worker;
	ratio[0] = (float)value;
	ratio[1] = (float)(value - (double)ratio[0]);
}

int cpu_log_ratio(struct cpu_context *cx, const struct op_log_ratio *op)
{
	struct op_log_ratio o = *op;

	cpu_run(cx, o.texts, log_ratio_piece, &o);
	return 0;
}
