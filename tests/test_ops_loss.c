/* links: host_cpu */
/* also: tsan cuda */
/* Cross-entropy and its gradient against fp64. */
#include "tests/ops_check.h"

/* Reference: one row in double. */
struct row {
	double *logits, *slopes;
	int64_t vocab, label;
	double cap, smoothing;
};

static double row_capped(const struct row *r, int64_t i)
{
	return r->cap > 0 ? r->cap * tanh(r->logits[i] / r->cap) : r->logits[i];
}

/* Of the logit, where its cap is reached slowly. */
static double row_cap_slope(const struct row *r, int64_t i)
{
	double part = r->cap > 0 ? row_capped(r, i) / r->cap : 0;

	return 1 - part * part;
}

static double row_loss(void *context)
{
	struct row *r = context;
	double max = -INFINITY, sum = 0, wanted = 0;

	for (int64_t i = 0; i < r->vocab; i++)
		max = fmax(max, row_capped(r, i));
	for (int64_t i = 0; i < r->vocab; i++)
		sum += exp(row_capped(r, i) - max);
	for (int64_t i = 0; i < r->vocab; i++) {
		double part = r->smoothing / (double)r->vocab + (i == r->label ? 1 - r->smoothing : 0);

		r->slopes[i] = exp(row_capped(r, i) - max) / sum - part;
		wanted += part * row_capped(r, i);
	}
	return max + log(sum) - wanted;
}

static void row_alloc(struct row *r)
{
	r->logits = mem_alloc((size_t)r->vocab, sizeof(double));
	r->slopes = mem_alloc((size_t)r->vocab, sizeof(double));
	assert_true(r->logits && r->slopes);
}

static void row_free(struct row *r)
{
	mem_free(r->logits);
	mem_free(r->slopes);
}

static void test_reference(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(30); seed++) {
		struct ops_case c;
		struct row r = {.vocab = 1};
		double slope;

		case_begin(&c, "reference", seed);
		r.vocab = case_int(&c, 1, 12);
		r.label = case_int(&c, 0, r.vocab - 1);
		r.cap = case_int(&c, 0, 1) ? 0 : 3;
		r.smoothing = case_int(&c, 0, 1) ? 0 : 0.3;
		row_alloc(&r);
		for (int64_t i = 0; i < r.vocab; i++)
			r.logits[i] = 2 * case_normal(&c);
		for (int64_t i = 0; i < r.vocab; i++) {
			row_loss(&r);
			slope = r.slopes[i] * row_cap_slope(&r, i);
			case_derivative(row_loss, &r, &r.logits[i], slope, 1);
		}
		row_free(&r);
	}
}

enum place { PLACE_NONE, PLACE_APART, PLACE_SAME, PLACE_ANY };

/* Of either sign, some of them 0. */
static struct tensor *weights_tensor(struct ops_case *c, int64_t rows)
{
	struct tensor *weight = case_tensor(c, rows, DTYPE_F32, 3);

	for (int64_t i = 0; i < rows; i++)
		if (!case_int(c, 0, 3))
			tensor_set(weight, i, case_int(c, 0, 1) ? 0.0 : -0.0);
	return weight;
}

/* The loss: an exp is off by 3 eps of itself. Sums are in double, so log(sum) is off by 3 eps, and the
 * result is rounded once. x - max in fp32 adds eps |x - max| if p is not small. A gradient adds 5 eps of
 * p. */
static void loss_try(uint64_t seed, int64_t rows, int64_t vocab_high, enum place place)
{
	struct ops_case c;
	struct row r = {0};
	struct tensor *loss, *dlogits = NULL, *logits, *label, *scratch, *weight = NULL;
	struct op op = {.kind = OP_CROSS_ENTROPY};
	enum dtype dtype;
	double scale;
	float grad_scale;

	case_begin(&c, "cross_entropy", seed);
	rows = rows ? rows : case_size(&c, 40);
	r.vocab = place == PLACE_ANY ? case_size(&c, vocab_high) : vocab_high;
	dtype = place != PLACE_ANY || case_int(&c, 0, 1) ? DTYPE_BF16 : DTYPE_F32;
	if (place == PLACE_ANY)
		place = (enum place)case_int(&c, PLACE_NONE, PLACE_SAME);
	scale = case_int(&c, 0, 3) ? 3 : 30;
	grad_scale = (float)(case_int(&c, 0, 1) ? 1 : 1.0 / 77);
	r.cap = case_int(&c, 0, 2) ? 0 : (double)case_int(&c, 1, 50);
	r.smoothing = seed % 3 ? 0 : (double)case_int(&c, 1, 4) / 4;
	logits = case_tensor(&c, rows * r.vocab, DTYPE_F32, scale);
	label = case_tensor(&c, rows, DTYPE_I32, 1);
	loss = case_tensor(&c, rows, DTYPE_F32, 1);
	scratch = case_tensor(&c, cross_entropy_scratch_count(rows), DTYPE_F32, 1);
	for (int64_t i = 0; i < rows; i++)
		tensor_set(label, i, (double)case_int(&c, 0, r.vocab - 1));
	if (place == PLACE_APART)
		dlogits = case_tensor(&c, rows * r.vocab, dtype, 1);
	if (case_int(&c, 0, 1))
		weight = weights_tensor(&c, rows);
	op.cross_entropy = (struct op_cross_entropy){.loss = tensor_addr(loss),
	        .dlogits = place == PLACE_SAME ? tensor_addr(logits) : tensor_addr(dlogits),
	        .logits = tensor_addr(logits),
	        .label = tensor_addr(label),
	        .scratch = tensor_addr(scratch),
	        .rows = rows,
	        .vocab = r.vocab,
	        .grad_scale = grad_scale,
	        .dlogits_dtype = dtype,
	        .cap = r.cap,
	        .weight = tensor_addr(weight),
	        .smoothing = r.smoothing};
	case_run(&c, &op);
	row_alloc(&r);
	for (int64_t i = 0; i < rows; i++) {
		struct tensor packed =
		        *logits; /* where the gradient stands: over the logits it may be bf16 */
		double want, factor = grad_scale * (weight ? tensor_get(weight, i) : 1);

		packed.dtype = dtype;
		r.label = (int64_t)tensor_get(label, i);
		for (int64_t j = 0; j < r.vocab; j++)
			r.logits[j] = tensor_was(logits, i * r.vocab + j);
		want = row_loss(&r);
		case_check(&c, loss, i, want, (8 + 2 * scale + 12 * r.cap) * EPS_F32, "loss");
		for (int64_t j = 0; j < r.vocab && place != PLACE_NONE; j++) {
			double part = r.smoothing / (double)r.vocab + (j == r.label ? 1 - r.smoothing : 0);
			double p = r.slopes[j] + part, slope = row_cap_slope(&r, j);
			double each = (12 + 12 * scale + 12 * r.cap) * EPS_F32, bound = each * p * slope;

			if (j == r.label &&
			        r.smoothing == 0) /* 1 - p is as precise as the sum of the others */
				bound = each * (1 - p) * slope + 1e-15;
			else if (r.smoothing > 0) /* a difference of two numbers */
				bound += (each + 4 * EPS_F32) * part * slope;
			if (r.cap > 0) /* a slope near 0 is a difference of 1 and what tanh gives */
				bound += 16 * EPS_F32 * fabs(r.slopes[j]);
			case_check(&c, place == PLACE_SAME ? &packed : dlogits, i * r.vocab + j,
			        r.slopes[j] * slope * factor, bound * fabs(factor) + 1e-37, "dlogits");
		}
	}
	if (place == PLACE_SAME &&
	        dtype == DTYPE_BF16) /* the second half of the bytes holds old or packed rows */
		case_forget(logits);
	case_forget(scratch);
	row_free(&r);
	case_end(&c);
}

static void test_random(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(200); seed++)
		loss_try(seed, 0, seed % 10 ? 70 : 3000, PLACE_ANY);
}

/* Packed bf16 over its own logits, rows so long that threads would meet if they went out of order. */
static void test_packed(void **state)
{
	(void)state;
	for (uint64_t seed = 1000; seed < 1000 + case_count(6); seed++)
		loss_try(seed, 41, 8192, PLACE_SAME);
}

/* Logits that grow along the row, so that each part of it has a larger maximum than all before, or that fall;
 * over 80 units, or by less than a rounding error at a time. */
static void test_slopes(void **state)
{
	(void)state;
	for (int i = 0; i < 8; i++) {
		enum { VOCAB = 12292 };
		static const double slopes[] = {80, -80, 1e-3, -1e-3};
		struct ops_case c;
		struct row r = {.vocab = VOCAB, .label = i < 4 ? 7 : VOCAB - 9};
		struct tensor *loss, *logits, *label, *scratch;
		struct op op = {.kind = OP_CROSS_ENTROPY};
		double want;

		case_begin(&c, "slopes", (uint64_t)i);
		logits = case_tensor(&c, VOCAB, DTYPE_F32, 1);
		label = case_tensor(&c, 1, DTYPE_I32, 1);
		loss = case_tensor(&c, 1, DTYPE_F32, 1);
		scratch = case_tensor(&c, cross_entropy_scratch_count(1), DTYPE_F32, 1);
		row_alloc(&r);
		for (int64_t j = 0; j < VOCAB; j++) {
			tensor_set(logits, j, 3 + slopes[i % 4] * (double)j / VOCAB);
			r.logits[j] = tensor_get(logits, j);
		}
		tensor_set(label, 0, (double)r.label);
		op.cross_entropy = (struct op_cross_entropy){.loss = tensor_addr(loss),
		        .dlogits = tensor_addr(logits),
		        .logits = tensor_addr(logits),
		        .label = tensor_addr(label),
		        .scratch = tensor_addr(scratch),
		        .rows = 1,
		        .vocab = VOCAB,
		        .grad_scale = 1};
		case_run(&c, &op);
		want = row_loss(&r);
		case_check(&c, loss, 0, want, 8 * EPS_F32, "loss");
		for (int64_t j = 0; j < VOCAB; j++)
			case_check(&c, logits, j, r.slopes[j],
			        (12 + 80) * EPS_F32 * (r.slopes[j] + (j == r.label)) + 1e-15, "dlogits");
		case_forget(scratch);
		row_free(&r);
		case_end(&c);
	}
}

/* Logits at the ends of the range: infinities appear in the loss only where they must. */
static void test_range(void **state)
{
	static const float rows[][3] = {{-3e38f, 3e38f, 0}, {3e38f, -3e38f, 0}, {-INFINITY, 1, -INFINITY},
	        {0, NAN, 0}, {INFINITY, 0, 0}, {1000, 1000, 1000}};
	struct ops_case c;
	struct tensor *loss, *logits, *label, *scratch;
	struct op op = {.kind = OP_CROSS_ENTROPY};

	(void)state;
	case_begin(&c, "range", 0);
	logits = case_tensor(&c, 18, DTYPE_F32, 1);
	label = case_tensor(&c, 6, DTYPE_I32, 1);
	loss = case_tensor(&c, 6, DTYPE_F32, 1);
	scratch = case_tensor(&c, cross_entropy_scratch_count(6), DTYPE_F32, 1);
	for (int64_t i = 0; i < 18; i++)
		tensor_set(logits, i, rows[i / 3][i % 3]);
	for (int64_t i = 0; i < 6; i++)
		tensor_set(label, i, 1);
	op.cross_entropy = (struct op_cross_entropy){.loss = tensor_addr(loss),
	        .dlogits = tensor_addr(logits),
	        .logits = tensor_addr(logits),
	        .label = tensor_addr(label),
	        .scratch = tensor_addr(scratch),
	        .rows = 6,
	        .vocab = 3,
	        .grad_scale = 1};
	case_run(&c, &op);
	case_check(&c, loss, 0, 0, 0, "loss");
	assert_true(isinf(tensor_get(loss, 1)) && tensor_get(loss, 1) > 0);
	case_check(&c, loss, 2, 0, 0, "loss");
	assert_true(isnan(tensor_get(loss, 3)) && isnan(tensor_get(loss, 4)));
	case_check(&c, loss, 5, log(3), 0, "loss");
	assert_true(isnan(tensor_get(logits, 9)) && isnan(tensor_get(logits, 10)));
	case_check(&c, logits, 15, 1.0 / 3, 1e-7, "dlogits");
	case_check(&c, logits, 16, -2.0 / 3, 1e-7, "dlogits");
	case_check(&c, logits, 1, 0, 0, "dlogits");
	case_check(&c, logits, 4, -1, 0, "dlogits");
	case_check(&c, logits, 3, 1, 0, "dlogits");
	case_forget(loss);
	case_forget(logits);
	case_forget(scratch);
	case_end(&c);
}

/* A weight of NaN or infinity, for its own row's gradient alone. */
static void test_weight_range(void **state)
{
	static const double weights[] = {1, NAN, -2, INFINITY, 0};
	struct ops_case c;
	struct tensor *loss, *logits, *label, *scratch, *weight;
	struct op op = {.kind = OP_CROSS_ENTROPY};

	(void)state;
	case_begin(&c, "weight_range", 0);
	logits = case_tensor(&c, 20, DTYPE_F32, 0);
	label = case_tensor(&c, 5, DTYPE_I32, 1);
	loss = case_tensor(&c, 5, DTYPE_F32, 1);
	scratch = case_tensor(&c, cross_entropy_scratch_count(5), DTYPE_F32, 1);
	weight = case_tensor(&c, 5, DTYPE_F32, 1);
	for (int64_t i = 0; i < 5; i++)
		tensor_set(weight, i, weights[i]);
	op.cross_entropy = (struct op_cross_entropy){.loss = tensor_addr(loss),
	        .dlogits = tensor_addr(logits),
	        .logits = tensor_addr(logits),
	        .label = tensor_addr(label),
	        .scratch = tensor_addr(scratch),
	        .rows = 5,
	        .vocab = 4,
	        .grad_scale = 2,
	        .weight = tensor_addr(weight)};
	case_run(&c, &op);
	for (int64_t i = 0; i < 20; i++) {
		double factor = 2 * weights[i / 4], want = factor * (i % 4 ? 0.25 : -0.75);

		case_check(&c, loss, i / 4, log(4), 1e-6, "loss");
		if (isfinite(factor))
			case_check(&c, logits, i, want, 1e-6, "dlogits");
		else
			assert_true(
			        isnan(want) ? isnan(tensor_get(logits, i)) : tensor_get(logits, i) == want);
	}
	case_forget(logits);
	case_forget(scratch);
	case_end(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_reference),
	        cmocka_unit_test(test_random),
	        cmocka_unit_test(test_packed),
	        cmocka_unit_test(test_slopes),
	        cmocka_unit_test(test_range),
	        cmocka_unit_test(test_weight_range),
	};

	return cmocka_run_group_tests(tests, ops_setup, ops_teardown);
}
