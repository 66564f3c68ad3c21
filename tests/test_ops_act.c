/* links: host_cpu */
/* also: tsan cuda */
/* Activation functions, plain and gated, against fp64 and finite differences. */
#include "tests/ops_check.h"

enum { ACTS = ACT_KIND_COUNT };

static double sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

static double act_value(enum act_kind act, double x)
{
	switch (act) {
	case ACT_SILU:
		return x * sigmoid(x);
	case ACT_GELU:
		return x * 0.5 * erfc(-x * M_SQRT1_2);
	case ACT_GELU_TANH: /* 0.5 x (1 + tanh(u)) without the cancellation for x < 0 */
		return x * sigmoid(2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
	case ACT_GELU_QUICK:
		return x * sigmoid(1.702 * x);
	case ACT_RELU:
		return x > 0 ? x : 0;
	case ACT_RELU2:
		return x > 0 ? x * x : 0;
	case ACT_SIGMOID:
		return sigmoid(x);
	case ACT_TANH:
		return tanh(x);
	case ACT_LINEAR:
		return x;
	}
	return NAN;
}

static double act_slope(enum act_kind act, double x)
{
	double s, u = 2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);

	switch (act) {
	case ACT_SILU:
		return sigmoid(x) + x * sigmoid(x) * sigmoid(-x);
	case ACT_GELU:
		return 0.5 * erfc(-x * M_SQRT1_2) + x * exp(-0.5 * x * x) / sqrt(2 * M_PI);
	case ACT_GELU_TANH:
		s = sigmoid(u);
		return s + x * s * sigmoid(-u) * 2 * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
	case ACT_GELU_QUICK:
		return sigmoid(1.702 * x) + 1.702 * x * sigmoid(1.702 * x) * sigmoid(-1.702 * x);
	case ACT_RELU:
		return x > 0 ? 1 : 0;
	case ACT_RELU2:
		return x > 0 ? 2 * x : 0;
	case ACT_SIGMOID:
		return sigmoid(x) * sigmoid(-x);
	case ACT_TANH:
		return 4 * sigmoid(2 * x) * sigmoid(-2 * x);
	case ACT_LINEAR:
		return 1;
	}
	return NAN;
}

struct point {
	enum act_kind act;
	double x;
};

static double point_value(void *context)
{
	struct point *p = context;

	return act_value(p->act, p->x);
}

static void test_reference(void **state)
{
	(void)state;
	for (int a = 0; a < ACTS; a++)
		for (double x = -6.013; x < 6; x += 0.1) {
			struct point p = {(enum act_kind)a, x};

			case_derivative(point_value, &p, &p.x, act_slope((enum act_kind)a, x), 1);
			assert_true(
			        fabs(act_value(ACT_GELU_TANH, x) -
			                0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)))) <
			        1e-12);
		}
}

/* Relative error of a value, in eps: exponents amplify the rounding of their argument, which for the tanh
 * form and the quick form grows with |x|; exponentials below the normal floats are 0. */
static double value_bound(enum act_kind act, double x, double value)
{
	double eps = 12;

	if (act == ACT_GELU_TANH)
		eps += 8 * fabs(x) + fabs(x * x * x) * 0.5;
	if (act == ACT_GELU_QUICK)
		eps += 4 * fabs(x);
	return eps * EPS_F32 * fabs(value) + 1e-35;
}

/* The slope is a sum of two terms of opposite sign near its zero: the error is relative to their size. */
static double slope_bound(enum act_kind act, double x)
{
	double size = act == ACT_RELU2 ? fabs(x) : act_value(act, x) / x;

	if (act == ACT_SIGMOID || act == ACT_TANH)
		size = act_slope(act, x);
	else if (act == ACT_GELU)
		size += fabs(x) * exp(-0.5 * x * x);
	else if (act != ACT_RELU && act != ACT_RELU2)
		size *= 1 + 2 * fabs(x) + (act == ACT_GELU_TANH ? 0.3 * fabs(x * x * x) : 0);
	if (x == 0)
		size = 1;
	return value_bound(act, x, size);
}

/* Act and its gradient for dout = 1 over a grid of all magnitudes and both signs. */
static void precision_try(enum act_kind act, enum dtype dtype)
{
	enum { N = 4000 };
	struct ops_case c;
	struct tensor *x, *one, *y, *slope;
	struct op op = {.kind = OP_ACT};

	case_begin(&c, "precision", act);
	x = case_tensor(&c, N, dtype, 1);
	one = case_tensor(&c, N, dtype, 1);
	y = case_tensor(&c, N, dtype, 1);
	slope = case_tensor(&c, N, dtype, 1);
	for (int i = 0; i < N; i++) {
		uint32_t bits =
		        (uint32_t)(((uint64_t)i * 0x43000000u) / (N / 2)); /* 0 .. 128 by exponent, twice */

		bits = i < N / 2 ? bits : (bits - 0x43000000u) | 0x80000000u;
		tensor_set_bits(x, i, dtype == DTYPE_F32 ? bits : bits >> 16);
		tensor_set(one, i, 1);
	}
	op.act = (struct op_act){tensor_addr(y), tensor_addr(x), N, act, dtype};
	case_run(&c, &op);
	for (int i = 0; i < N; i++) {
		double at = tensor_get(x, i), want = act_value(act, at);

		case_check(&c, y, i, want, value_bound(act, at, want), "f");
	}
	op = (struct op){.kind = OP_ACT_GRAD};
	op.act_grad =
	        (struct op_act_grad){tensor_addr(slope), tensor_addr(one), tensor_addr(x), N, act, dtype};
	case_run(&c, &op);
	for (int i = 0; i < N; i++) {
		double at = tensor_get(x, i);

		case_check(&c, slope, i, act_slope(act, at), slope_bound(act, at), "f'");
	}
	case_end(&c);
}

static void test_precision(void **state)
{
	(void)state;
	for (int a = 0; a < ACTS; a++)
		for (int dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++)
			precision_try((enum act_kind)a, (enum dtype)dtype);
}

/* act and act_grad; in place where seed says so. */
static void act_try(uint64_t seed)
{
	struct ops_case c;
	struct tensor *x, *out, *dout, *dx;
	struct op op = {.kind = OP_ACT};
	int64_t count;
	enum dtype dtype;
	enum act_kind act;

	case_begin(&c, "act", seed);
	count = case_size(&c, seed % 10 ? 600 : 40000);
	dtype = case_int(&c, 0, 1) ? DTYPE_BF16 : DTYPE_F32;
	act = (enum act_kind)case_int(&c, 0, ACTS - 1);
	x = case_tensor(&c, count, dtype, 3);
	out = case_int(&c, 0, 1) ? x : case_tensor(&c, count, dtype, 1);
	op.act = (struct op_act){tensor_addr(out), tensor_addr(x), count, act, dtype};
	case_run(&c, &op);
	for (int64_t i = 0; i < count; i++) {
		double at = tensor_was(x, i), want = act_value(act, at);

		case_check(&c, out, i, want, value_bound(act, at, want), "out");
	}
	case_end(&c);

	x = case_tensor(&c, count, dtype, 3);
	dout = case_tensor(&c, count, dtype, 1);
	dx = case_int(&c, 0, 2) == 0 ? x : case_int(&c, 0, 1) ? dout : case_tensor(&c, count, dtype, 1);
	op = (struct op){.kind = OP_ACT_GRAD};
	op.act_grad =
	        (struct op_act_grad){tensor_addr(dx), tensor_addr(dout), tensor_addr(x), count, act, dtype};
	case_run(&c, &op);
	for (int64_t i = 0; i < count; i++) {
		double at = tensor_was(x, i), d = tensor_was(dout, i);

		case_check(&c, dx, i, d * act_slope(act, at), fabs(d) * slope_bound(act, at), "dx");
	}
	case_end(&c);
}

/* Where gate and up have element i: one after the other in rows of both, or each in an array of its own. */
struct halves {
	struct tensor *gate, *up;
	int64_t cols, stride, up_first;
};

static struct halves halves_make(
        struct ops_case *c, int64_t rows, int64_t cols, enum dtype dtype, int64_t gap)
{
	struct halves h = {.cols = gap < 0 ? 0 : cols};

	if (!h.cols) {
		h.gate = case_tensor(c, rows * cols, dtype, 3);
		h.up = case_tensor(c, rows * cols, dtype, 1);
		return h;
	}
	h.stride = 2 * cols + gap;
	h.gate = h.up = case_tensor(c, rows * h.stride, dtype, 2);
	h.up_first = cols;
	return h;
}

static int64_t half_at(const struct halves *h, int64_t i)
{
	return h->cols ? i / h->cols * h->stride + i % h->cols : i;
}

static dev_addr up_addr(const struct halves *h, const struct tensor *t)
{
	return dev_at(tensor_addr(t), h->up_first * dtype_bytes(t->dtype));
}

/* Gradients in the places of gate and up or elsewhere; forward's result again in that of dout or elsewhere,
 * or not. */
static void glu_grad_try(struct ops_case *c, struct op_glu_grad o, int64_t rows, int64_t cols, int64_t gap)
{
	struct halves in = halves_make(c, rows, cols, o.dtype, gap), to = in;
	struct tensor *dout = case_tensor(c, o.count, o.dtype, 1), *out = NULL;
	int64_t alias = case_int(c, 0, 2), again = case_int(c, 0, 2);
	struct op op = {.kind = OP_GLU_GRAD};

	if (alias && in.cols) {
		to = halves_make(c, rows, cols, o.dtype, gap);
	} else if (alias) {
		to.gate = case_int(c, 0, 1) ? in.gate : case_tensor(c, o.count, o.dtype, 1);
		to.up = alias == 1 && !again ? dout : case_tensor(c, o.count, o.dtype, 1);
	}
	if (again)
		out = again == 1 ? dout : case_tensor(c, o.count, o.dtype, 1);
	o.dgate = tensor_addr(to.gate);
	o.dup = up_addr(&to, to.up);
	o.dout = tensor_addr(dout);
	o.gate = tensor_addr(in.gate);
	o.up = up_addr(&in, in.up);
	o.cols = in.cols;
	o.stride = in.stride;
	o.out = out ? tensor_addr(out) : DEV_NONE;
	op.glu_grad = o;
	case_run(c, &op);
	for (int64_t i = 0; i < o.count; i++) {
		int64_t at = half_at(&in, i), up_at = at + in.up_first;
		double g = tensor_was(in.gate, at), u = tensor_was(in.up, up_at), d = tensor_was(dout, i);
		double value = act_value(o.act, g);

		case_check(c, to.gate, at, d * u * act_slope(o.act, g), fabs(d * u) * slope_bound(o.act, g),
		        "dgate");
		case_check(c, to.up, up_at, d * value, fabs(d) * value_bound(o.act, g, value), "dup");
		if (out)
			case_check(c, out, i, value * u, fabs(u) * value_bound(o.act, g, value), "out");
	}
}

static void glu_try(uint64_t seed)
{
	struct ops_case c;
	struct halves in;
	struct tensor *out;
	struct op op = {.kind = OP_GLU};
	int64_t rows, cols, gap;
	enum dtype dtype;
	enum act_kind act;

	case_begin(&c, "glu", seed);
	rows = case_size(&c, seed % 10 ? 12 : 40);
	cols = case_size(&c, seed % 10 ? 50 : 1000) * (case_int(&c, 0, 1) ? 8 : 1);
	gap = case_int(&c, -1, 1) * 8 * case_int(&c, 1, 3);
	dtype = case_int(&c, 0, 1) ? DTYPE_BF16 : DTYPE_F32;
	act = (enum act_kind)case_int(&c, 0, ACTS - 1);
	in = halves_make(&c, rows, cols, dtype, gap);
	out = case_tensor(&c, rows * cols, dtype, 1);
	op.glu = (struct op_glu){tensor_addr(out), tensor_addr(in.gate), up_addr(&in, in.up), rows * cols,
	        act, dtype, in.cols, in.stride};
	case_run(&c, &op);
	for (int64_t i = 0; i < rows * cols; i++) {
		double at = tensor_get(in.gate, half_at(&in, i)), value = act_value(act, at),
		       u = tensor_get(in.up, half_at(&in, i) + in.up_first);

		case_check(&c, out, i, value * u, fabs(u) * value_bound(act, at, value), "out");
	}
	case_end(&c);
	glu_grad_try(
	        &c, (struct op_glu_grad){.count = rows * cols, .act = act, .dtype = dtype}, rows, cols, gap);
	case_end(&c);
}

/* Where an array with gaps has its elements, and the array. */
struct gaps {
	struct tensor *t;
	int64_t stride, group_stride;
};

static int64_t gaps_at(const struct gaps *g, int64_t row, int64_t group, int64_t col)
{
	return row * g->stride + group * g->group_stride + col;
}

static struct gaps gaps_make(struct ops_case *c, const struct gaps *like, int64_t rows, enum dtype dtype)
{
	return (struct gaps){case_tensor(c, rows * like->stride, dtype, 3), like->stride, like->group_stride};
}

/* Arrays with gaps between rows and, for the gate, between groups; in place where seed says so. */
static void gate_try(uint64_t seed)
{
	struct ops_case c;
	struct gaps x, y, gate, dx, dy, dgate;
	struct op op = {.kind = OP_GATE};
	int64_t rows, groups, cols, even, alias;
	enum dtype dtype;
	enum act_kind act;

	case_begin(&c, "gate", seed);
	even = case_int(&c, 0, 1) ? 8 : 1; /* wide accesses */
	rows = case_size(&c, 20);
	groups = case_size(&c, 5);
	cols = even * case_size(&c, seed % 10 ? 40 : 700);
	dtype = case_int(&c, 0, 1) ? DTYPE_BF16 : DTYPE_F32;
	act = (enum act_kind)case_int(&c, 0, ACTS - 1);
	x = (struct gaps){NULL, groups * cols + even * case_int(&c, 0, 9), cols};
	y = case_int(&c, 0, 1) ? x : (struct gaps){NULL, groups * cols + even * case_int(&c, 0, 9), cols};
	gate = (struct gaps){NULL, 0, cols + even * case_int(&c, 0, 3) * cols};
	gate.stride = groups * gate.group_stride + even * case_int(&c, 0, 5);
	x = gaps_make(&c, &x, rows, dtype);
	y = gaps_make(&c, &y, rows, dtype);
	gate = gaps_make(&c, &gate, rows, dtype);
	op.gate = (struct op_gate){tensor_addr(y.t), tensor_addr(x.t), tensor_addr(gate.t), rows, groups,
	        cols, x.stride, y.stride, gate.stride, gate.group_stride, act, .dtype = dtype};
	case_run(&c, &op);
	for (int64_t i = 0; i < rows * groups * cols; i++) {
		int64_t r = i / cols / groups, g = i / cols % groups, k = i % cols;
		double at = tensor_get(gate.t, gaps_at(&gate, r, g, k)), value = act_value(act, at),
		       u = tensor_get(x.t, gaps_at(&x, r, g, k));

		case_check(
		        &c, y.t, gaps_at(&y, r, g, k), value * u, fabs(u) * value_bound(act, at, value), "y");
	}
	case_end(&c);

	alias = case_int(&c, 0, 2);
	x = gaps_make(&c, &x, rows, dtype);
	dy = gaps_make(&c, &y, rows, dtype);
	gate = gaps_make(&c, &gate, rows, dtype);
	dgate = case_int(&c, 0, 1) ? gate : gaps_make(&c, &gate, rows, dtype);
	dx = alias == 0 ? x : alias == 1 && x.stride == dy.stride ? dy : gaps_make(&c, &x, rows, dtype);
	op = (struct op){.kind = OP_GATE_GRAD};
	op.gate_grad = (struct op_gate_grad){tensor_addr(dx.t), tensor_addr(dgate.t), tensor_addr(dy.t),
	        tensor_addr(x.t), tensor_addr(gate.t), rows, groups, cols, x.stride, dy.stride, gate.stride,
	        gate.group_stride, act, .dtype = dtype};
	case_run(&c, &op);
	for (int64_t i = 0; i < rows * groups * cols; i++) {
		int64_t r = i / cols / groups, g = i / cols % groups, k = i % cols;
		double at = tensor_was(gate.t, gaps_at(&gate, r, g, k)),
		       u = tensor_was(x.t, gaps_at(&x, r, g, k)), d = tensor_was(dy.t, gaps_at(&dy, r, g, k)),
		       value = act_value(act, at);

		case_check(&c, dgate.t, gaps_at(&dgate, r, g, k), d * u * act_slope(act, at),
		        fabs(d * u) * slope_bound(act, at), "dgate");
		case_check(&c, dx.t, gaps_at(&dx, r, g, k), d * value, fabs(d) * value_bound(act, at, value),
		        "dx");
	}
	case_end(&c);
}

static void test_gate(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(150); seed++)
		gate_try(seed);
}

static void test_act(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(150); seed++)
		act_try(seed);
}

static void test_glu(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(150); seed++)
		glu_try(seed);
}

/* NaN goes through every activation and its gradient, and no further than its element. */
static void nan_try(uint64_t seed)
{
	enum { N = 37 };
	struct ops_case c;
	struct tensor *x, *y, *dout, *dx;
	struct op op = {.kind = OP_ACT};
	enum act_kind act = (enum act_kind)(seed % ACTS);
	enum dtype dtype = seed % 2 ? DTYPE_BF16 : DTYPE_F32;

	case_begin(&c, "nan", seed);
	x = case_tensor(&c, N, dtype, 1);
	y = case_tensor(&c, N, dtype, 1);
	dout = case_tensor(&c, N, dtype, 1);
	dx = case_tensor(&c, N, dtype, 1);
	for (int i = 0; i < N; i++)
		tensor_set(x, i, i % 3 == 1 ? NAN : 1);
	op.act = (struct op_act){tensor_addr(y), tensor_addr(x), N, act, dtype};
	case_run(&c, &op);
	for (int i = 0; i < N; i++)
		assert_true(!isnan(tensor_get(y, i)) == (i % 3 != 1));
	for (int i = 0; i < N; i++) {
		tensor_set(x, i, 1);
		tensor_set(dout, i, i % 3 == 1 ? NAN : 1);
	}
	op = (struct op){.kind = OP_ACT_GRAD};
	op.act_grad = (struct op_act_grad){tensor_addr(dx), tensor_addr(dout), tensor_addr(x), N, act, dtype};
	case_run(&c, &op);
	for (int i = 0; i < N; i++)
		assert_true(!isnan(tensor_get(dx, i)) == (i % 3 != 1));
	case_forget(y);
	case_forget(dx);
	case_end(&c);
}

static void test_nan(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < (uint64_t)4 * ACTS; seed++)
		nan_try(seed / 2 + seed % 2 * ACTS); /* each kind in both dtypes */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_reference),
	        cmocka_unit_test(test_precision),
	        cmocka_unit_test(test_act),
	        cmocka_unit_test(test_glu),
	        cmocka_unit_test(test_gate),
	        cmocka_unit_test(test_nan),
	};

	return cmocka_run_group_tests(tests, ops_setup, ops_teardown);
}
