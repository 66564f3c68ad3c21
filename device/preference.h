/* Losses of preference pairs: DPO, ORPO and their relatives, with their derivatives.
 *
 * A pair is a chosen and a rejected completion of one prompt. The log probability of a completion is the sum
 * over its tokens, by the model (policy) and by a reference, the model before the training. Host and devices
 * compute these formulas in double.
 *
 * Any of them may add the chosen text's own loss, a mean over the tokens of its completion, or of prompt and
 * completion, with a weight.
 *
 * KTO judges single answers, not pairs: its loss is in objective/judged.c, and only its name is here.
 *
 * Source: the losses of DPOConfig.loss_type in https://github.com/huggingface/trl (dpo_trainer.py), SimPO
 * (Meng et al. 2024), CPO (Xu et al. 2024) and ORPO (Hong et al. 2024). DPO: Rafailov et al. 2023.
 */
#ifndef FERRY_DEVICE_PREFERENCE_H
#define FERRY_DEVICE_PREFERENCE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define PREFERENCE_INLINE static inline __host__ __device__
#else
#define PREFERENCE_INLINE static inline
#endif

/* MEANS: rewards are of the mean log probability of a token. OWN: the chosen completion's own loss belongs to
 * it, with a weight of 1 unless another is set. */
enum {
	PREFERENCE_REFERENCE = 1,
	PREFERENCE_SMOOTHING = 2,
	PREFERENCE_GAMMA = 4,
	PREFERENCE_MEANS = 8,
	PREFERENCE_OWN = 16,
	PREFERENCE_JUDGED = 32, /* rows are single answers with a label */
};

/* Identifier, name, other names, what counts besides beta. */
#define PREFERENCE_LOSSES(ROW)                                                                               \
	ROW(SIGMOID, "sigmoid", "dpo", PREFERENCE_REFERENCE | PREFERENCE_SMOOTHING)                          \
	ROW(HINGE, "hinge", NULL, PREFERENCE_REFERENCE)                                                      \
	ROW(IPO, "ipo", NULL, PREFERENCE_REFERENCE)                                                          \
	ROW(ROBUST, "robust", NULL, PREFERENCE_REFERENCE | PREFERENCE_SMOOTHING)                             \
	ROW(EXO_PAIR, "exo_pair", NULL, PREFERENCE_REFERENCE | PREFERENCE_SMOOTHING)                         \
	ROW(NCA_PAIR, "nca_pair", NULL, PREFERENCE_REFERENCE)                                                \
	ROW(BCO_PAIR, "bco_pair", NULL, PREFERENCE_REFERENCE)                                                \
	ROW(SPPO_HARD, "sppo_hard", NULL, PREFERENCE_REFERENCE)                                              \
	ROW(APO_ZERO, "apo_zero", NULL, PREFERENCE_REFERENCE)                                                \
	ROW(APO_DOWN, "apo_down", NULL, PREFERENCE_REFERENCE)                                                \
	ROW(DISCOPOP, "discopop", NULL, PREFERENCE_REFERENCE)                                                \
	ROW(SIGMOID_NORM, "sigmoid_norm", NULL, PREFERENCE_REFERENCE | PREFERENCE_SMOOTHING)                 \
	ROW(SIMPO, "simpo", NULL, PREFERENCE_SMOOTHING | PREFERENCE_GAMMA | PREFERENCE_MEANS)                \
	ROW(CPO, "cpo", NULL, PREFERENCE_SMOOTHING | PREFERENCE_OWN)                                         \
	ROW(ORPO, "orpo", NULL, PREFERENCE_MEANS | PREFERENCE_OWN)                                           \
	ROW(KTO, "kto", NULL, PREFERENCE_REFERENCE | PREFERENCE_JUDGED)

enum preference_kind {
	PREFERENCE_OFF, /* no pairs: the loss of tokens */
#define PREFERENCE_ENUM(id, ...) PREFERENCE_##id,
	PREFERENCE_LOSSES(PREFERENCE_ENUM)
#undef PREFERENCE_ENUM
};

struct preference {
	enum preference_kind kind;
	double beta;            /* above 0 */
	double label_smoothing; /* in [0, 0.5): the share of pairs that are labelled the wrong way round */
	double gamma;           /* SIMPO: the margin */
	double own;             /* weight of the chosen text's own loss, at least 0 */
};

/* Log probabilities of one pair; index 0: chosen, 1: rejected. own: of the chosen text, as far as its own
 * loss goes, by the policy. */
struct preference_pair {
	double policy[2], reference[2];
	int64_t count[2]; /* tokens, above 0 */
	double own;
	int64_t own_count;
};

/* Whether the loss reads this, PREFERENCE_REFERENCE or another. */
static inline int preference_reads(enum preference_kind kind, int what)
{
	switch (kind) {
#define PREFERENCE_READS(id, name, other, reads)                                                             \
	case PREFERENCE_##id:                                                                                \
		return (what & (reads)) != 0;
		PREFERENCE_LOSSES(PREFERENCE_READS)
#undef PREFERENCE_READS
	case PREFERENCE_OFF:
		break;
	}
	return 0;
}

PREFERENCE_INLINE double preference_sigmoid(double x)
{
	return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}

PREFERENCE_INLINE double preference_log_sigmoid(double x)
{
	return x >= 0 ? -log1p(exp(-x)) : x - log1p(exp(x));
}

/* The derivative of the sigmoid. */
PREFERENCE_INLINE double preference_slope(double x)
{
	return preference_sigmoid(x) * preference_sigmoid(-x);
}

/* -(1 - e) log sig(x) - e log sig(-x), and its derivative. */
PREFERENCE_INLINE double preference_smooth(double x, double e, double *slope)
{
	*slope = e * preference_sigmoid(x) - (1 - e) * preference_sigmoid(-x);
	return -(1 - e) * preference_log_sigmoid(x) - e * preference_log_sigmoid(-x);
}

/* log(1 - e^x), x at most 0. */
PREFERENCE_INLINE double preference_log1mexp(double x)
{
	return x > -0.69 ? log(-expm1(x)) : log1p(-exp(x));
}

/* -log sigmoid of the log of the odds' ratio, and its derivatives by the two mean log probabilities. A text
 * that is certain has infinite odds: it counts as all but certain. */
PREFERENCE_INLINE double preference_odds(double c, double r, double grad[2])
{
	const double certain = -0x1p-40, c0 = c > certain ? certain : c, r0 = r > certain ? certain : r;
	const double most = c0 > r0 ? c0 : r0, not_c = -expm1(c0), not_r = -expm1(r0);
	const double a = exp(c0 - most) * not_r, b = exp(r0 - most) * not_c;

	grad[0] = -exp(r0 - most) / (a + b);
	grad[1] = b / ((a + b) * not_r);
	return -preference_log_sigmoid(c0 - r0 - (preference_log1mexp(c0) - preference_log1mexp(r0)));
}

/* Losses of means over tokens. grad: by those means. */
PREFERENCE_INLINE double preference_by_means(
        const struct preference *p, const struct preference_pair *pair, double grad[2])
{
	const double b = p->beta, nc = (double)pair->count[0], nr = (double)pair->count[1];
	const double c = pair->policy[0] / nc, r = pair->policy[1] / nr;
	/* of policy minus reference */
	const double d =
	        (pair->policy[0] - pair->reference[0]) / nc - (pair->policy[1] - pair->reference[1]) / nr;
	double loss, slope;

	if (p->kind == PREFERENCE_ORPO) {
		loss = b * preference_odds(c, r, grad);
		grad[0] *= b;
		grad[1] *= b;
		return loss;
	}
	if (p->kind == PREFERENCE_IPO) {
		const double u = d - 1 / (2 * b);

		grad[0] = 2 * u;
		grad[1] = -2 * u;
		return u * u;
	}
	loss = preference_smooth(
	        p->kind == PREFERENCE_SIMPO ? b * (c - r) - p->gamma : b * d, p->label_smoothing, &slope);
	grad[0] = b * slope;
	grad[1] = -b * slope;
	return loss;
}

/* The loss of a pair without the chosen completion's own. */
PREFERENCE_INLINE double preference_apart(
        const struct preference *p, const struct preference_pair *pair, double grad[2])
{
	const double b = p->beta, e = p->label_smoothing;
	const double c = pair->policy[0] - pair->reference[0], r = pair->policy[1] - pair->reference[1];
	const double x = b * (c - r);
	double loss = 0, slope = 0; /* slope: by x, where the loss depends on x alone */

	grad[0] = grad[1] = 0;
	switch (p->kind) {
	case PREFERENCE_OFF:
	case PREFERENCE_KTO:
		return 0;
	case PREFERENCE_SIGMOID:
		loss = preference_smooth(x, e, &slope);
		break;
	case PREFERENCE_HINGE:
		loss = x >= 1 ? 0 : 1 - x; /* NaN stays NaN */
		slope = x >= 1 ? 0 : x < 1 ? -1 : x;
		break;
	case PREFERENCE_ROBUST:
		loss = (e * preference_log_sigmoid(-x) - (1 - e) * preference_log_sigmoid(x)) / (1 - 2 * e);
		slope = (-(1 - e) * preference_sigmoid(-x) - e * preference_sigmoid(x)) / (1 - 2 * e);
		break;
	case PREFERENCE_EXO_PAIR: {
		const double q = e > 0 ? e : 1e-3, pw = log(1 - q), pl = log(q);

		loss = preference_sigmoid(x) * (preference_log_sigmoid(x) - pw) +
		       preference_sigmoid(-x) * (preference_log_sigmoid(-x) - pl);
		slope = preference_slope(x) * (x - pw + pl);
		break;
	}
	case PREFERENCE_DISCOPOP: {
		/* e^-x comes with its share, sig(x / tau): alone it overflows where the share is 0 */
		const double tau = 0.05, rest = preference_sigmoid(-x / tau);
		const double logistic = -preference_log_sigmoid(x);
		const double exponential = exp(preference_log_sigmoid(x / tau) - x);

		loss = logistic * rest + exponential;
		slope = -preference_sigmoid(-x) * rest - logistic * preference_slope(x / tau) / tau +
		        exponential * (rest / tau - 1);
		break;
	}
	case PREFERENCE_NCA_PAIR:
		grad[0] = b * (0.5 * preference_sigmoid(b * c) - preference_sigmoid(-b * c));
		grad[1] = 0.5 * b * preference_sigmoid(b * r);
		return -preference_log_sigmoid(b * c) - 0.5 * preference_log_sigmoid(-b * c) -
		       0.5 * preference_log_sigmoid(-b * r);
	case PREFERENCE_BCO_PAIR:
		grad[0] = -b * preference_sigmoid(-b * c);
		grad[1] = b * preference_sigmoid(b * r);
		return -preference_log_sigmoid(b * c) - preference_log_sigmoid(-b * r);
	case PREFERENCE_SPPO_HARD: {
		const double u = c - 1 / (2 * b), v = r + 1 / (2 * b);

		grad[0] = 2 * u;
		grad[1] = 2 * v;
		return u * u + v * v;
	}
	case PREFERENCE_APO_ZERO:
		grad[0] = -b * preference_slope(b * c);
		grad[1] = b * preference_slope(b * r);
		return 1 - preference_sigmoid(b * c) + preference_sigmoid(b * r);
	case PREFERENCE_APO_DOWN:
		grad[0] = b * (preference_slope(b * c) - preference_slope(x));
		grad[1] = b * preference_slope(x);
		return preference_sigmoid(b * c) + 1 - preference_sigmoid(x);
	case PREFERENCE_CPO:
		loss = preference_smooth(b * (pair->policy[0] - pair->policy[1]), e, &slope);
		break;
	case PREFERENCE_IPO:
	case PREFERENCE_SIGMOID_NORM:
	case PREFERENCE_SIMPO:
	case PREFERENCE_ORPO:
		loss = preference_by_means(p, pair, grad);
		grad[0] /= (double)pair->count[0];
		grad[1] /= (double)pair->count[1];
		return loss;
	}
	grad[0] = b * slope;
	grad[1] = -b * slope;
	return loss;
}

/* The loss of a pair. grad: its derivatives by policy[0] and policy[1]; own_grad: by `own`. */
PREFERENCE_INLINE double preference_loss(
        const struct preference *p, const struct preference_pair *pair, double grad[2], double *own_grad)
{
	const double loss = preference_apart(p, pair, grad), count = (double)pair->own_count;

	*own_grad = p->own > 0 ? -(p->own / count) : 0;
	return p->own > 0 ? loss - p->own * pair->own / count : loss;
}

#endif
