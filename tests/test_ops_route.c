/* links: host_cpu */
/* also: tsan cuda */
/* The choice of a router and its gradient, against fp64 and finite differences. */
#include "base/size.h"
#include "tests/ops_check.h"

enum { EXPERTS_MAX = 300, CHOSEN_MAX = 40 };

/* ---- routing in double, for a token ---- */

struct routing {
	int64_t experts, chosen, groups, groups_chosen;
	enum route_rule rule;
	int is_normed;
	double scale, norm_epsilon;
	double logits[EXPERTS_MAX], bias[EXPERTS_MAX];
	int ids[CHOSEN_MAX];
	double score[CHOSEN_MAX], weights[CHOSEN_MAX], dweights[CHOSEN_MAX], dlogits[EXPERTS_MAX];
};

static double sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

static double value_of(const struct routing *r, int64_t e)
{
	return r->rule == ROUTE_SIGMOID ? sigmoid(r->logits[e]) + r->bias[e] : r->logits[e];
}

static int64_t best_of(const double *value, const int *is_taken, int64_t count)
{
	int64_t best = -1;

	for (int64_t i = 0; i < count; i++)
		if (!is_taken[i] && (best < 0 || value[i] > value[best]))
			best = i;
	return best;
}

static void groups_choose(const struct routing *r, int *is_taken)
{
	double group[EXPERTS_MAX], value[EXPERTS_MAX];
	int takes_part[EXPERTS_MAX] = {0};
	int64_t each = r->experts / r->groups;

	for (int64_t g = 0; g < r->groups; g++) {
		int own[EXPERTS_MAX] = {0};
		int64_t best;

		for (int64_t i = 0; i < each; i++)
			value[i] = value_of(r, g * each + i);
		best = best_of(value, own, each);
		own[best] = 1;
		group[g] = value[best];
		if (r->rule == ROUTE_SIGMOID && each > 1)
			group[g] += value[best_of(value, own, each)];
	}
	for (int64_t i = 0; i < r->groups_chosen; i++)
		takes_part[best_of(group, takes_part, r->groups)] = 1;
	for (int64_t e = 0; e < r->experts; e++)
		is_taken[e] = !takes_part[e / each];
}

/* A sigmoid in fp32 may order two experts the other way round if they are within `near`. Then the given ids
 * count. */
static void routing_choose(const struct ops_case *c, struct routing *r, const struct tensor *given, int64_t t)
{
	double value[EXPERTS_MAX];
	int is_taken[EXPERTS_MAX] = {0};
	const double near = 4e-7;

	if (r->groups > 1)
		groups_choose(r, is_taken);
	for (int64_t e = 0; e < r->experts; e++)
		value[e] = value_of(r, e);
	for (int64_t j = 0; j < r->chosen; j++) {
		int64_t best = best_of(value, is_taken, r->experts),
		        got = (int64_t)tensor_get(given, t * r->chosen + j);

		assert_true(got >= 0 && got < r->experts);
		if (got != best && (is_taken[got] || r->rule != ROUTE_SIGMOID || value[got] == value[best] ||
		                           !(fabs(value[got] - value[best]) < near)))
			fail_msg("%s, seed %llu: token %lld chose %lld, wanted %lld", c->name,
			        (unsigned long long)c->seed, (long long)t, (long long)got, (long long)best);
		r->ids[j] = (int)got;
		is_taken[got] = 1;
	}
}

/* The sum of weights * dweights. */
static double routing_forward(void *context)
{
	struct routing *r = context;
	double all = 0, few = 0, sum = r->norm_epsilon, value = 0, most = -INFINITY;

	for (int64_t e = 0; e < r->experts; e++)
		most = fmax(most, r->logits[e]);
	for (int64_t e = 0; e < r->experts; e++)
		all += exp(r->logits[e] - most);
	for (int64_t j = 0; j < r->chosen; j++)
		few += exp(r->logits[r->ids[j]] - most);
	for (int64_t j = 0; j < r->chosen; j++) {
		double x = r->logits[r->ids[j]];

		r->score[j] = r->rule == ROUTE_SIGMOID
		                      ? sigmoid(x)
		                      : exp(x - most) / (r->rule == ROUTE_CHOSEN ? few : all);
		sum += r->score[j];
	}
	for (int64_t j = 0; j < r->chosen; j++) {
		r->weights[j] = r->scale * r->score[j] / (r->is_normed ? sum : 1);
		value += r->weights[j] * r->dweights[j];
	}
	return value;
}

/* After routing_forward. */
static void routing_backward(struct routing *r)
{
	double sum = r->norm_epsilon, along = 0, mean = 0, most = -INFINITY, all = 0, d[CHOSEN_MAX];

	for (int64_t j = 0; j < r->chosen; j++)
		sum += r->score[j];
	for (int64_t j = 0; j < r->chosen; j++)
		along += r->scale * r->dweights[j] * r->score[j] / sum;
	for (int64_t j = 0; j < r->chosen; j++) {
		d[j] = r->scale * r->dweights[j];
		d[j] = r->is_normed ? (d[j] - along) / sum : d[j];
		mean += d[j] * r->score[j];
	}
	for (int64_t e = 0; e < r->experts; e++)
		most = fmax(most, r->logits[e]);
	for (int64_t e = 0; e < r->experts; e++)
		all += exp(r->logits[e] - most);
	for (int64_t e = 0; e < r->experts; e++)
		r->dlogits[e] = r->rule == ROUTE_SOFTMAX ? -mean * exp(r->logits[e] - most) / all : 0;
	for (int64_t j = 0; j < r->chosen; j++) {
		if (r->rule == ROUTE_CHOSEN)
			r->dlogits[r->ids[j]] -= mean * r->score[j];
		r->dlogits[r->ids[j]] +=
		        d[j] * r->score[j] * (r->rule == ROUTE_SIGMOID ? 1 - r->score[j] : 1);
	}
}

static void routing_draw(struct ops_case *c, struct routing *r)
{
	int64_t each;

	memset(r, 0, sizeof *r);
	r->rule = (enum route_rule)case_int(c, 0, ROUTE_RULE_COUNT - 1);
	r->groups = case_int(c, 0, 1) ? 1 : case_int(c, 1, 8);
	each = case_size(c, EXPERTS_MAX / r->groups);
	r->experts = r->groups * each;
	r->groups_chosen = case_int(c, 1, r->groups);
	r->chosen = case_int(c, 1, min_i64(CHOSEN_MAX, r->groups_chosen * each));
	if (case_int(c, 0, 5) == 0)
		r->chosen = min_i64(CHOSEN_MAX, r->groups_chosen * each);
	r->is_normed = (int)case_int(c, 0, 1);
	r->scale = case_int(c, 0, 1) ? 1 : 2.5;
	r->norm_epsilon = case_int(c, 0, 1) ? 0 : 1e-20;
}

static void test_routing_reference(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(60); seed++) {
		struct ops_case c;
		struct routing r;

		case_begin(&c, "routing reference", seed);
		routing_draw(&c, &r);
		r.experts = r.experts > 12 ? 12 : r.experts;
		r.chosen = min_i64(r.chosen, r.experts);
		for (int64_t e = 0; e < r.experts; e++)
			r.logits[e] = case_normal(&c);
		for (int64_t j = 0; j < r.chosen; j++) {
			r.ids[j] = (int)(r.experts - 1 - j);
			r.dweights[j] = case_normal(&c);
		}
		routing_forward(&r);
		routing_backward(&r);
		for (int64_t e = 0; e < r.experts; e++)
			case_derivative(routing_forward, &r, &r.logits[e], r.dlogits[e], 1);
	}
}

struct route_case {
	int64_t tokens;
	struct tensor *logits, *bias, *ids, *weights;
};

/* In some cases logits are on a grid, so that many are equal. */
static void route_draw(struct ops_case *c, struct route_case *v, struct routing *r)
{
	double grid = case_int(c, 0, 1) ? 0 : 0.5;

	routing_draw(c, r);
	v->tokens = case_size(c, 40);
	v->logits = case_tensor(c, v->tokens * r->experts, DTYPE_F32, 2);
	v->ids = case_tensor(c, v->tokens * r->chosen, DTYPE_I32, 1);
	v->weights = case_tensor(c, v->tokens * r->chosen, DTYPE_F32, 1);
	v->bias = r->rule == ROUTE_SIGMOID && case_int(c, 0, 3)
	                  ? case_tensor(c, r->experts, case_int(c, 0, 1) ? DTYPE_F32 : DTYPE_BF16, 0.3)
	                  : NULL;
	for (int64_t i = 0; grid > 0 && i < v->tokens * r->experts; i++)
		tensor_set(v->logits, i, grid * floor(tensor_get(v->logits, i) / grid));
	for (int64_t e = 0; grid > 0 && v->bias && e < r->experts; e++)
		tensor_set(v->bias, e, 0);
}

static void route_run(struct ops_case *c, const struct route_case *v, const struct routing *r)
{
	struct op op = {.kind = OP_ROUTE,
	        .route = {.ids = tensor_addr(v->ids),
	                .weights = tensor_addr(v->weights),
	                .logits = tensor_addr(v->logits),
	                .bias = tensor_addr(v->bias),
	                .tokens = v->tokens,
	                .experts = r->experts,
	                .chosen = r->chosen,
	                .groups = r->groups,
	                .groups_chosen = r->groups_chosen,
	                .rule = r->rule,
	                .bias_dtype = v->bias ? v->bias->dtype : DTYPE_F32,
	                .is_normed = r->is_normed,
	                .scale = r->scale,
	                .norm_epsilon = r->norm_epsilon}};

	case_run(c, &op);
}

static void token_load(struct routing *r, const struct route_case *v, int64_t t)
{
	for (int64_t e = 0; e < r->experts; e++) {
		r->logits[e] = tensor_get(v->logits, t * r->experts + e);
		r->bias[e] = v->bias ? tensor_get(v->bias, e) : 0;
	}
}

static void test_route(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(300); seed++) {
		struct ops_case c;
		struct route_case v;
		struct routing r;

		case_begin(&c, "route", seed);
		route_draw(&c, &v, &r);
		route_run(&c, &v, &r);
		for (int64_t t = 0; t < v.tokens; t++) {
			token_load(&r, &v, t);
			routing_choose(&c, &r, v.ids, t);
			routing_forward(&r);
			for (int64_t j = 0; j < r.chosen; j++) {
				case_check(&c, v.ids, t * r.chosen + j, r.ids[j], 0, "ids");
				case_check(&c, v.weights, t * r.chosen + j, r.weights[j],
				        40 * EPS_F32 * r.weights[j], "weights");
			}
		}
		case_end(&c);
	}
}

/* NaN reaches the weights wherever it is, and nothing makes a token choose an expert twice. */
static void test_route_odd_values(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(120); seed++) {
		struct ops_case c;
		struct route_case v;
		struct routing r;
		int64_t at = 0;
		int what = (int)(seed % 3);

		case_begin(&c, "route", seed);
		route_draw(&c, &v, &r);
		for (int64_t t = 0; t < v.tokens; t++) {
			at = case_int(&c, 0, r.experts - 1);
			for (int64_t e = 0; e < r.experts; e++)
				if (what == 0 ? e == at : what == 1 || e % 2)
					tensor_set(v.logits, t * r.experts + e, what == 0 ? NAN : -INFINITY);
		}
		route_run(&c, &v, &r);
		case_forget(v.ids);
		case_forget(v.weights);
		for (int64_t t = 0; t < v.tokens; t++) {
			int is_taken[EXPERTS_MAX] = {0}, has_nan = 0;

			for (int64_t j = 0; j < r.chosen; j++) {
				int id = (int)tensor_get(v.ids, t * r.chosen + j);

				assert_true(id >= 0 && id < r.experts && !is_taken[id]);
				is_taken[id] = 1;
				has_nan |= isnan(tensor_get(v.weights, t * r.chosen + j));
			}
			assert_true(what || has_nan);
		}
		case_end(&c);
	}
}

static void test_route_grad(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(200); seed++) {
		struct ops_case c;
		struct route_case v;
		struct routing r;
		struct tensor *dlogits;
		struct op op = {.kind = OP_ROUTE_GRAD};

		case_begin(&c, "route_grad", seed);
		route_draw(&c, &v, &r);
		dlogits = case_tensor(&c, v.tokens * r.experts, DTYPE_F32, 1);
		for (int64_t t = 0; t < v.tokens; t++) /* any that differ */
			for (int64_t j = 0, at = case_int(&c, 0, r.experts - 1); j < r.chosen; j++)
				tensor_set(v.ids, t * r.chosen + j, (double)((at + j) % r.experts));
		op.route_grad = (struct op_route_grad){.dlogits = tensor_addr(dlogits),
		        .dweights = tensor_addr(v.weights),
		        .ids = tensor_addr(v.ids),
		        .logits = tensor_addr(v.logits),
		        .tokens = v.tokens,
		        .experts = r.experts,
		        .chosen = r.chosen,
		        .rule = r.rule,
		        .is_normed = r.is_normed,
		        .scale = r.scale,
		        .norm_epsilon = r.norm_epsilon};
		case_run(&c, &op);
		for (int64_t t = 0; t < v.tokens; t++) {
			double most = 0, sum = 0;

			token_load(&r, &v, t);
			for (int64_t j = 0; j < r.chosen; j++) {
				r.ids[j] = (int)tensor_get(v.ids, t * r.chosen + j);
				r.dweights[j] = tensor_get(v.weights, t * r.chosen + j);
				most = fmax(most, fabs(r.dweights[j]));
			}
			routing_forward(&r);
			routing_backward(&r);
			for (int64_t j = 0; j < r.chosen; j++)
				sum += r.score[j];
			most *= r.is_normed ? r.scale : r.scale * fmin(1, sum);
			for (int64_t e = 0; e < r.experts; e++)
				case_check(&c, dlogits, t * r.experts + e, r.dlogits[e], 100 * EPS_F32 * most,
				        "dlogits");
		}
		case_end(&c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_routing_reference),
	        cmocka_unit_test(test_route),
	        cmocka_unit_test(test_route_odd_values),
	        cmocka_unit_test(test_route_grad),
	};

	return cmocka_run_group_tests(tests, ops_setup, ops_teardown);
}
