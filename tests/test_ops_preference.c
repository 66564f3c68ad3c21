/* links: host_cpu */
/* also: tsan cuda */
/* Losses of preference pairs, and the weights of tokens that come from them, against long double. */
#include "tests/ops_check.h"

/* ---- reference: the formulas as papers write them; derivatives by differences ---- */

typedef long double real;

static real sig(real x)
{
	return 1 / (1 + expl(-x));
}

static real log_sig(real x)
{
	return fminl(x, 0) - log1pl(expl(-fabsl(x)));
}

/* Kullback-Leibler divergence of the model's choice from the smoothed label. */
static real choice_divergence(real x, real e)
{
	return sig(x) * (log_sig(x) - logl(1 - e)) + sig(-x) * (log_sig(-x) - logl(e));
}

/* Probabilities are means over tokens. */
static real log_odds(real mean)
{
	return mean - log1pl(-expl(mean));
}

static real loss_apart(const struct preference *p, const struct preference_pair *pair, const real y[2])
{
	const real b = p->beta, e = p->label_smoothing, nc = pair->count[0], nr = pair->count[1];
	const real c = y[0] - pair->reference[0], r = y[1] - pair->reference[1], d = c - r;
	const real normed = b * (c / nc - r / nr), simpo = b * (y[0] / nc - y[1] / nr) - p->gamma;

	switch (p->kind) {
	case PREFERENCE_OFF:
	case PREFERENCE_KTO:
		break;
	case PREFERENCE_SIGMOID:
		return -(1 - e) * log_sig(b * d) - e * log_sig(-b * d);
	case PREFERENCE_HINGE:
		return fmaxl(0, 1 - b * d);
	case PREFERENCE_IPO:
		return powl(c / nc - r / nr - 1 / (2 * b), 2);
	case PREFERENCE_ROBUST:
		return (-(1 - e) * log_sig(b * d) + e * log_sig(-b * d)) / (1 - 2 * e);
	case PREFERENCE_EXO_PAIR:
		return choice_divergence(b * d, e > 0 ? e : 1e-3);
	case PREFERENCE_NCA_PAIR:
		return -log_sig(b * c) - log_sig(-b * c) / 2 - log_sig(-b * r) / 2;
	case PREFERENCE_BCO_PAIR:
		return -log_sig(b * c) - log_sig(-b * r);
	case PREFERENCE_SPPO_HARD:
		return powl(c - 1 / (2 * b), 2) + powl(r + 1 / (2 * b), 2);
	case PREFERENCE_APO_ZERO:
		return 1 - sig(b * c) + sig(b * r);
	case PREFERENCE_APO_DOWN:
		return sig(b * c) + 1 - sig(b * d);
	case PREFERENCE_DISCOPOP:
		return -log_sig(b * d) * (1 - sig(b * d / 0.05)) + expl(-b * d) * sig(b * d / 0.05);
	case PREFERENCE_SIGMOID_NORM:
		return -(1 - e) * log_sig(normed) - e * log_sig(-normed);
	case PREFERENCE_SIMPO:
		return -(1 - e) * log_sig(simpo) - e * log_sig(-simpo);
	case PREFERENCE_CPO:
		return -(1 - e) * log_sig(b * (y[0] - y[1])) - e * log_sig(-b * (y[0] - y[1]));
	case PREFERENCE_ORPO:
		return -b * log_sig(log_odds(y[0] / nc) - log_odds(y[1] / nr));
	}
	return NAN;
}

/* y: log probabilities by the model. */
static real loss_of(const struct preference *p, const struct preference_pair *pair, const real y[2])
{
	real before = (real)pair->own - (real)pair->policy[0]; /* of the prompt */

	return loss_apart(p, pair, y) - (real)p->own * (y[0] + before) / pair->own_count;
}

/* By y[text]. The steps are small against 0.05 / beta, over which discopop changes. */
static real slope_of(
        const struct preference *p, const struct preference_pair *pair, const real y[2], int text)
{
	const real usual = 1e-4L / (1 + p->beta);
	/* odds are infinite at 0 */
	const real step = p->kind == PREFERENCE_ORPO ? fminl(usual, -y[text] / 1000) : usual;
	real at[5];

	for (int i = 0; i < 5; i++) {
		real moved[2] = {y[0], y[1]};

		moved[text] += (i - 2) * step;
		at[i] = loss_of(p, pair, moved);
	}
	return (8 * (at[3] - at[1]) - (at[4] - at[0])) / (12 * step);
}

/* ---- the formulas ---- */

static const enum preference_kind kinds[] = {
#define KIND(id, ...) PREFERENCE_##id,
        PREFERENCE_LOSSES(KIND)
#undef KIND
};
enum { KINDS = sizeof(kinds) / sizeof(*kinds) - 1 }; /* KTO, the last one, is no loss of pairs */

static const char *kind_name(enum preference_kind kind)
{
	static const char *const names[] = {"off",
#define NAME(id, name, ...) name,
	        PREFERENCE_LOSSES(NAME)
#undef NAME
	};

	return names[kind];
}

/* One pair by every loss; the values were computed from the formulas elsewhere. */
static void test_known(void **state)
{
	static const struct {
		struct preference p;
		double value;
	} rows[] = {
	        {{PREFERENCE_SIGMOID, 0.1, 0, 0, 0}, 0.620957048},
	        {{PREFERENCE_HINGE, 0.1, 0, 0, 0}, 0.85},
	        {{PREFERENCE_IPO, 0.1, 0, 0, 0}, 22.359387755},
	        {{PREFERENCE_ROBUST, 0.1, 0.1, 0, 0}, 0.602207048},
	        {{PREFERENCE_EXO_PAIR, 0.1, 0.1, 0, 0}, 0.431388457},
	        {{PREFERENCE_NCA_PAIR, 0.1, 0, 0, 0}, 1.350824814},
	        {{PREFERENCE_BCO_PAIR, 0.1, 0, 0, 0}, 1.312856308},
	        {{PREFERENCE_SPPO_HARD, 0.1, 0, 0, 0}, 36.25},
	        {{PREFERENCE_APO_ZERO, 0.1, 0, 0, 0}, 0.962523416},
	        {{PREFERENCE_APO_DOWN, 0.1, 0, 0, 0}, 0.987549342},
	        {{PREFERENCE_DISCOPOP, 0.1, 0, 0, 0}, 0.849337579},
	        {{PREFERENCE_SIGMOID_NORM, 0.1, 0, 0, 0}, 0.679667841},
	        {{PREFERENCE_SIMPO, 2, 0, 0.5, 0}, 1.365976163},
	        {{PREFERENCE_CPO, 0.1, 0.1, 0, 1}, 2.618138869},
	        {{PREFERENCE_ORPO, 0.1, 0, 0, 1}, 2.087686483},
	};
	const struct preference_pair pair = {{-10, -12}, {-11, -11.5}, {5, 7}, -10, 5};
	const real y[2] = {-10, -12};

	(void)state;
	assert_int_equal(sizeof(rows) / sizeof(*rows), KINDS);
	for (int i = 0; i < KINDS; i++) {
		double grad[2], own, loss = preference_loss(&rows[i].p, &pair, grad, &own);

		assert_int_equal(rows[i].p.kind, kinds[i]);
		if (!(fabs(loss - rows[i].value) < 1e-9) ||
		        !(fabsl(loss_of(&rows[i].p, &pair, y) - rows[i].value) < 1e-9))
			fail_msg("%s is %.12g, the reference has %.12Lg, wanted %.12g", kind_name(kinds[i]),
			        loss, loss_of(&rows[i].p, &pair, y), rows[i].value);
	}
}

/* A model that is still its reference: the loss is log 2, and beta / 2 pulls on either text. */
static void test_start(void **state)
{
	const struct preference p = {PREFERENCE_SIGMOID, 0.3, 0, 0, 0};
	const struct preference_pair pair = {{-10.7, -12.3}, {-10.7, -12.3}, {5, 7}, -10.7, 5};
	double grad[2], own, loss = preference_loss(&p, &pair, grad, &own);

	(void)state;
	assert_true(loss == log1p(1));
	assert_true(grad[0] == -0.15 && grad[1] == 0.15 && own == 0);
}

/* ---- the op ---- */

struct pairs {
	struct ops_case c;
	struct tensor *weight, *nll, *first, *answer, *reference;
	int64_t count, tokens;
	struct preference loss;
};

/* Tensors for pairs whose texts have the lengths of `size`, chosen before rejected. prompt: tokens of each
 * before its completion; NULL: none. */
static void pairs_prompted(struct pairs *s, const char *name, uint64_t seed, int64_t count,
        const int64_t *size, const int64_t *prompt)
{
	s->count = count;
	s->tokens = 0;
	case_begin(&s->c, name, seed);
	s->first = case_tensor(&s->c, 2 * count + 1, DTYPE_I32, 1);
	s->answer = case_tensor(&s->c, 2 * count, DTYPE_I32, 1);
	for (int64_t i = 0; i < 2 * count; i++) {
		int64_t before = prompt ? prompt[i] : 0;

		tensor_set(s->first, i, (double)s->tokens);
		tensor_set(s->answer, i, (double)(s->tokens + before));
		s->tokens += before + size[i];
	}
	tensor_set(s->first, 2 * count, (double)s->tokens);
	s->nll = case_tensor(&s->c, s->tokens, DTYPE_F32, 1);
	s->weight = case_tensor(&s->c, s->tokens, DTYPE_F32, 1);
	s->reference = case_tensor(&s->c, 2 * count, DTYPE_F64, 1);
}

static void pairs_begin(struct pairs *s, const char *name, uint64_t seed, int64_t count, const int64_t *size)
{
	pairs_prompted(s, name, seed, count, size, NULL);
}

static void pairs_run(struct pairs *s)
{
	case_run(&s->c, &(struct op){.kind = OP_PREFERENCE,
	                        .preference = {tensor_addr(s->weight), tensor_addr(s->nll),
	                                tensor_addr(s->first), tensor_addr(s->answer),
	                                tensor_addr(s->reference), s->count, s->tokens, s->loss}});
}

static int64_t text_begin(const struct pairs *s, int64_t text)
{
	return (int64_t)tensor_get(s->first, text);
}

static real log_probability(const struct pairs *s, int64_t begin, int64_t end)
{
	real sum = 0;

	for (int64_t t = begin; t < end; t++)
		sum -= (real)tensor_get(s->nll, t);
	return sum;
}

/* The pair as the op should see it; y: its log probabilities. */
static void pair_read(const struct pairs *s, int64_t p, struct preference_pair *pair, real y[2])
{
	int64_t whole = text_begin(s, 2 * p);

	pair->own_count = text_begin(s, 2 * p + 1) - whole;
	pair->own = (double)log_probability(s, whole, whole + pair->own_count);
	for (int i = 0; i < 2; i++) {
		int64_t begin = (int64_t)tensor_get(s->answer, 2 * p + i), end = text_begin(s, 2 * p + i + 1);

		y[i] = log_probability(s, begin, end);
		pair->policy[i] = (double)y[i];
		pair->reference[i] = tensor_get(s->reference, 2 * p + i);
		pair->count[i] = end - begin;
	}
}

/* Both weights and loss of a pair. Log probabilities are off by a rounding of double for each token; beta and
 * discopop's 1 / 0.05 stretch that. */
static void pair_check(struct pairs *s, int64_t p)
{
	struct preference_pair pair;
	real y[2], want;
	double grad[2], own_grad, loss;

	pair_read(s, p, &pair, y);
	want = loss_of(&s->loss, &pair, y);
	loss = preference_loss(&s->loss, &pair, grad, &own_grad);
	if (!(fabsl(loss - want) <= 1e-11L * (1 + fabsl(want))))
		fail_msg("%s, seed %llu: loss is %.12g, wanted %.12Lg", s->c.name,
		        (unsigned long long)s->c.seed, loss, want);
	for (int i = 0; i < 2; i++) {
		double slope = (double)slope_of(&s->loss, &pair, y, i);
		int64_t begin = (int64_t)tensor_get(s->answer, 2 * p + i);

		for (int64_t t = text_begin(s, 2 * p + i); t < begin; t++)
			case_check(&s->c, s->weight, t, s->loss.own / (double)pair.own_count, 1e-9, "prompt");
		for (int64_t t = begin; t < begin + pair.count[i]; t++) {
			case_check(
			        &s->c, s->weight, t, -slope, 1e-9 * (s->loss.beta + fabs(slope)), "weight");
			assert_int_equal(tensor_bits(s->weight, t), tensor_bits(s->weight, begin));
		}
	}
}

/* Texts of one token among others. References near the model, so that margins have every size. */
static void random_try(uint64_t seed)
{
	static const double betas[] = {0.1, 0.01, 2, 0.5};
	struct pairs s = {.loss.kind = kinds[seed % KINDS]};
	int64_t size[2 * 40], prompt[2 * 40], count;
	struct ops_case draw = {.seed = seed};

	count = case_int(&draw, 0, 4) ? case_int(&draw, 1, 6) : 40;
	for (int64_t i = 0; i < 2 * count; i++) {
		size[i] = case_int(&draw, 0, 3) ? case_size(&draw, count < 40 ? 150 : 40) : 1;
		prompt[i] = i % 2 || case_int(&draw, 0, 2) ? 0 : case_size(&draw, 70);
	}
	s.loss.beta = betas[case_int(&draw, 0, 3)];
	s.loss.label_smoothing = case_int(&draw, 0, 1) ? 0 : 0.49 * rng_uniform(seed, 9, 0);
	s.loss.gamma = case_int(&draw, 0, 1) ? 0.5 : 1.7;
	s.loss.own = case_int(&draw, 0, 2) ? 0 : 1.5;
	pairs_prompted(&s, kind_name(s.loss.kind), seed, count, size, prompt);
	for (int64_t t = 0; t < s.tokens; t++)
		tensor_set(s.nll, t, fabs(2 * case_normal(&s.c)));
	for (int64_t p = 0; p < count; p++) {
		struct preference_pair pair;
		real y[2];

		pair_read(&s, p, &pair, y);
		for (int i = 0; i < 2; i++)
			tensor_set(
			        s.reference, 2 * p + i, (double)y[i] + 3 * case_normal(&s.c) / s.loss.beta);
	}
	pairs_run(&s);
	for (int64_t p = 0; p < count; p++)
		pair_check(&s, p);
	case_end(&s.c);
}

static void test_random(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(20 * KINDS); seed++)
		random_try(seed);
}

/* More pairs than a GPU has multiprocessors, of short texts. */
static void test_many(void **state)
{
	enum { PAIRS = 700 };
	struct pairs s = {.loss = {PREFERENCE_IPO, 0.1, 0, 0, 0}};
	int64_t size[2 * PAIRS];

	(void)state;
	for (int i = 0; i < 2 * PAIRS; i++)
		size[i] = 1 + i % 5;
	pairs_begin(&s, "many", 0, PAIRS, size);
	pairs_run(&s);
	for (int64_t p = 0; p < PAIRS; p++)
		pair_check(&s, p);
	case_end(&s.c);
}

/* Sums go from the first token to the last. So a reference that was added up like this is met exactly, and
 * the margin at the start is 0. A large beta shows other orders. */
static void test_order(void **state)
{
	static const int64_t size[] = {1999, 2047, 1025, 33};
	struct pairs s = {.loss = {PREFERENCE_SIGMOID, 1e6, 0, 0, 0}};

	(void)state;
	pairs_begin(&s, "order", 0, 2, size);
	for (int64_t t = 0; t < s.tokens; t++)
		tensor_set(s.nll, t, exp(4 * case_normal(&s.c)));
	for (int text = 0; text < 4; text++) {
		double sum = 0;

		for (int64_t t = text_begin(&s, text); t < text_begin(&s, text + 1); t++)
			sum += tensor_get(s.nll, t);
		tensor_set(s.reference, text, -sum);
	}
	pairs_run(&s);
	for (int text = 0; text < 4; text++)
		for (int64_t t = text_begin(&s, text); t < text_begin(&s, text + 1); t++)
			assert_true(tensor_get(s.weight, t) == (text % 2 ? -5e5 : 5e5));
	case_forget(s.weight);
	case_end(&s.c);
}

/* Texts of one token that model and reference find certain, or all but impossible. */
static void test_extreme(void **state)
{
	static const double betas[] = {0.05, 1e-6, 1e6};
	static const int64_t size[2 * 16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
	        1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

	(void)state;
	for (int i = 0; i < 3 * KINDS; i++) {
		struct pairs s = {.loss = {kinds[i % KINDS], betas[i / KINDS], 0.1, 0.5}};

		pairs_begin(&s, kind_name(s.loss.kind), (uint64_t)i, 16, size);
		for (int text = 0; text < 32; text++) {
			int p = text / 2, bits = text % 2 ? p / 4 : p % 4;

			tensor_set(s.nll, text, bits & 1 ? 1e5 : 0);
			tensor_set(s.reference, text, bits & 2 ? -1e5 : 0);
		}
		pairs_run(&s);
		for (int64_t p = 0; p < 16; p++) {
			struct preference_pair pair;
			real y[2];
			double grad[2], own;

			if (i < KINDS &&
			        s.loss.kind !=
			                PREFERENCE_ORPO) /* with the others the naive formulas overflow */
				pair_check(&s, p);
			pair_read(&s, p, &pair, y);
			assert_true(isfinite(preference_loss(&s.loss, &pair, grad, &own)));
			if (!isfinite(tensor_get(s.weight, 2 * p)) ||
			        !isfinite(tensor_get(s.weight, 2 * p + 1)))
				fail_msg("%s, beta %g, pair %d: weights %g and %g", s.c.name, s.loss.beta,
				        (int)p, tensor_get(s.weight, 2 * p), tensor_get(s.weight, 2 * p + 1));
		}
		case_forget(s.weight);
		case_end(&s.c);
	}
}

/* NaN of a token becomes NaN for its text, and nothing for other pairs. */
static void test_nan(void **state)
{
	static const int64_t size[] = {3, 40, 33, 70, 5, 1};

	(void)state;
	for (int i = 0; i < 2 * KINDS; i++) {
		struct pairs s = {.loss = {kinds[i / 2], 0.1, 0.1, 0.5}};
		int bad = 2 + i % 2;

		pairs_begin(&s, kind_name(s.loss.kind), (uint64_t)i, 3, size);
		for (int64_t t = 0; t < s.tokens; t++)
			tensor_set(s.nll, t, fabs(tensor_get(s.nll, t)));
		tensor_set(s.nll, text_begin(&s, bad + 1) - 1, NAN);
		pairs_run(&s);
		pair_check(&s, 0);
		pair_check(&s, 2);
		for (int64_t t = text_begin(&s, bad); t < text_begin(&s, bad + 1); t++)
			if (!isnan(tensor_get(s.weight, t)))
				fail_msg("%s, text %d: weight[%lld] is %g", s.c.name, bad, (long long)t,
				        tensor_get(s.weight, t));
		case_forget(s.weight);
		case_end(&s.c);
	}
}

/* Two floats hold a log ratio to twice the digits of one, and one that is met exactly is 0. */
static void test_log_ratio(void **state)
{
	enum { TEXTS = 300 };
	struct pairs s = {.loss = {PREFERENCE_IPO, 0.1, 0, 0, 0}};
	int64_t size[TEXTS];
	struct tensor *ratio;

	(void)state;
	for (int i = 0; i < TEXTS; i++)
		size[i] = 1 + i * 7 % 90;
	pairs_begin(&s, "log_ratio", 0, TEXTS / 2, size);
	ratio = case_tensor(&s.c, 2 * TEXTS, DTYPE_F32, 1);
	for (int text = 0; text < TEXTS; text += 3) {
		double sum = 0;

		for (int64_t t = text_begin(&s, text); t < text_begin(&s, text + 1); t++)
			sum += tensor_get(s.nll, t);
		tensor_set(s.reference, text, -sum);
	}
	case_run(&s.c, &(struct op){.kind = OP_LOG_RATIO,
	                       .log_ratio = {tensor_addr(ratio), tensor_addr(s.nll), tensor_addr(s.first),
	                               tensor_addr(s.reference), TEXTS, s.tokens}});
	for (int text = 0; text < TEXTS; text++) {
		real want = -(real)tensor_get(s.reference, text);
		double got = tensor_get(ratio, 2 * text) + tensor_get(ratio, 2 * text + 1);

		for (int64_t t = text_begin(&s, text); t < text_begin(&s, text + 1); t++)
			want -= (real)tensor_get(s.nll, t);
		if (!(fabsl(got - want) <= 1e-11L * (1 + fabsl(want))))
			fail_msg("text %d: %.15g, wanted %.15Lg", text, got, want);
		assert_true(text % 3 || got == 0);
	}
	case_forget(s.weight);
	case_forget(ratio);
	case_end(&s.c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_known),
	        cmocka_unit_test(test_start),
	        cmocka_unit_test(test_random),
	        cmocka_unit_test(test_many),
	        cmocka_unit_test(test_order),
	        cmocka_unit_test(test_extreme),
	        cmocka_unit_test(test_nan),
	        cmocka_unit_test(test_log_ratio),
	};

	return cmocka_run_group_tests(tests, ops_setup, ops_teardown);
}
