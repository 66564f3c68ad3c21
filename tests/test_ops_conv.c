/* links: host_cpu */
/* also: tsan cuda */
/* The short convolution and the norm with a gate, against fp64 and finite differences. */
#include "tests/ops_check.h"

enum { TOKENS_MAX = 300, COLS_MAX = 600 };

static double sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

static double silu(double x)
{
	return x * sigmoid(x);
}

static double silu_slope(double x)
{
	return sigmoid(x) * (1 + x * sigmoid(-x));
}

static void test_slope(void **state)
{
	(void)state;
	for (double x = -5; x < 5; x += 0.37)
		assert_true(fabs((silu(x + 1e-6) - silu(x - 1e-6)) / 2e-6 - silu_slope(x)) < 1e-8);
}

/* ---- convolution ---- */

struct conv_case {
	int64_t tokens, cols, taps, x_stride, y_stride;
	enum conv_act act;
	enum dtype dtype;
	int32_t doc_start[TOKENS_MAX];
	struct tensor *x, *weight, *bias, *starts;
};

static void conv_draw(struct ops_case *c, struct conv_case *v, int64_t least_taps)
{
	int64_t end = 0;

	v->tokens = case_size(c, TOKENS_MAX);
	v->cols = case_size(c, COLS_MAX);
	v->taps = case_int(c, least_taps, CONV_TAPS_MAX);
	v->x_stride = v->cols + case_int(c, 0, 3);
	v->y_stride = v->cols + case_int(c, 0, 3);
	v->act = case_int(c, 0, 1) ? CONV_SILU : CONV_PLAIN;
	v->dtype = case_int(c, 0, 1) ? DTYPE_BF16 : DTYPE_F32;
	v->x = case_tensor(c, v->tokens * v->x_stride, v->dtype, 1);
	v->weight = case_tensor(c, v->cols * v->taps, v->dtype, 1);
	v->bias = case_int(c, 0, 1) ? case_tensor(c, v->cols, v->dtype, 1) : NULL;
	v->starts = case_tensor(c, v->tokens, DTYPE_I32, 1);
	for (int64_t t = 0, start = 0; t < v->tokens; t++) {
		if (t == end) {
			start = t;
			end = t + case_int(c, 1, case_int(c, 0, 1) ? 150 : 4);
		}
		v->doc_start[t] = (int32_t)start;
		tensor_set(v->starts, t, (double)start);
	}
}

/* The sum before the activation, and the sum of magnitudes. */
static double conv_sum(const struct conv_case *v, int64_t t, int64_t col, double *size)
{
	double sum = v->bias ? tensor_get(v->bias, col) : 0;

	*size = fabs(sum);
	for (int64_t j = 0; j < v->taps; j++) {
		int64_t from = t - (v->taps - 1) + j;
		double term;

		if (from < v->doc_start[t])
			continue;
		term = tensor_get(v->weight, col * v->taps + j) * tensor_get(v->x, from * v->x_stride + col);
		sum += term;
		*size += fabs(term);
	}
	return sum;
}

static double conv_value(const struct conv_case *v, int64_t t, int64_t col, double *bound)
{
	double size, sum = conv_sum(v, t, col, &size);

	*bound = 24 * EPS_F32 * size;
	return v->act == CONV_SILU ? silu(sum) : sum;
}

#define CONV_ARGUMENTS(v)                                                                                    \
	.x = tensor_addr((v).x), .weight = tensor_addr((v).weight), .bias = tensor_addr((v).bias),           \
	.doc_start = tensor_addr((v).starts), .tokens = (v).tokens, .cols = (v).cols, .taps = (v).taps,      \
	.x_stride = (v).x_stride, .y_stride = (v).y_stride, .act = (v).act, .dtype = (v).dtype

static void test_conv(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(100); seed++) {
		struct ops_case c;
		struct conv_case v;
		struct tensor *y;
		struct op op = {.kind = OP_CONV};

		case_begin(&c, "conv", seed);
		conv_draw(&c, &v, 1);
		y = case_tensor(&c, v.tokens * v.y_stride, v.dtype, 1);
		op.conv = (struct op_conv){.y = tensor_addr(y), CONV_ARGUMENTS(v)};
		case_run(&c, &op);
		for (int64_t t = 0; t < v.tokens; t++)
			for (int64_t col = 0; col < v.cols; col++) {
				double bound, want = conv_value(&v, t, col, &bound);

				case_check(&c, y, t * v.y_stride + col, want, bound, "y");
			}
		case_end(&c);
	}
}

static void conv_grad_check(struct ops_case *c, const struct conv_case *v, const struct tensor *dy,
        struct tensor *dx, struct tensor *dweight, struct tensor *dbias)
{
	for (int64_t col = 0; col < v->cols; col++) {
		double dw[CONV_TAPS_MAX + 1] = {0}, dw_size[CONV_TAPS_MAX + 1] = {0};
		double slopes[TOKENS_MAX], slope_sizes[TOKENS_MAX];

		for (int64_t t = 0; t < v->tokens; t++) {
			double size, sum = conv_sum(v, t, col, &size),
			             d = tensor_get(dy, t * v->y_stride + col);

			slopes[t] = v->act == CONV_SILU ? d * silu_slope(sum) : d;
			slope_sizes[t] = fabs(d) * (1 + size) * EPS_F32 * 24;
			dw[v->taps] += slopes[t];
			dw_size[v->taps] += fabs(slopes[t]) + slope_sizes[t] / EPS_F32;
			for (int64_t j = 0; j < v->taps; j++) {
				int64_t from = t - (v->taps - 1) + j;
				double x = from < v->doc_start[t]
				                   ? 0
				                   : tensor_get(v->x, from * v->x_stride + col);

				dw[j] += slopes[t] * x;
				dw_size[j] += fabs(x) * (fabs(slopes[t]) + slope_sizes[t] / EPS_F32);
			}
		}
		for (int64_t t = 0; t < v->tokens; t++) {
			double sum = 0, bound = 0;

			for (int64_t later = t; later < t + v->taps && later < v->tokens; later++) {
				double w = tensor_get(v->weight, col * v->taps + v->taps - 1 - (later - t));

				if (v->doc_start[later] > t)
					break;
				sum += w * slopes[later];
				bound += fabs(w) * (slope_sizes[later] + 10 * EPS_F32 * fabs(slopes[later]));
			}
			case_check(c, dx, t * v->x_stride + col, sum, bound, "dx");
		}
		for (int64_t j = 0; j < v->taps; j++)
			case_check(c, dweight, col * v->taps + j,
			        tensor_was(dweight, col * v->taps + j) + dw[j], 70 * EPS_F32 * dw_size[j],
			        "dweight");
		if (dbias)
			case_check(c, dbias, col, tensor_was(dbias, col) + dw[v->taps],
			        70 * EPS_F32 * dw_size[v->taps], "dbias");
	}
}

static void test_conv_grad(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(100); seed++) {
		struct ops_case c;
		struct conv_case v;
		struct tensor *dy, *dx, *dweight, *dbias, *scratch;
		struct op op = {.kind = OP_CONV_GRAD};

		case_begin(&c, "conv_grad", seed);
		conv_draw(&c, &v, 1);
		dy = case_tensor(&c, v.tokens * v.y_stride, v.dtype, 1);
		dx = case_tensor(&c, v.tokens * v.x_stride, v.dtype, 1);
		dweight = case_tensor(&c, v.cols * v.taps, DTYPE_F32, 1);
		dbias = v.bias ? case_tensor(&c, v.cols, DTYPE_F32, 1) : NULL;
		scratch = case_tensor(&c, conv_scratch_count(v.tokens, v.cols, v.taps), DTYPE_F32, 1);
		op.conv_grad = (struct op_conv_grad){.dx = tensor_addr(dx),
		        .dweight = tensor_addr(dweight),
		        .dbias = tensor_addr(dbias),
		        .dy = tensor_addr(dy),
		        .scratch = tensor_addr(scratch),
		        CONV_ARGUMENTS(v)};
		case_run(&c, &op);
		case_forget(scratch);
		conv_grad_check(&c, &v, dy, dx, dweight, dbias);
		case_end(&c);
	}
}

/* Each document is a text. The window starts with other numbers, which its first token must not see. */
static void test_conv_cached(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(60); seed++) {
		struct ops_case c;
		struct conv_case v;
		struct tensor *y, *ends, *window;
		struct op op = {.kind = OP_CONV_CACHED};
		int64_t texts = 0, kept, text_rows = 400;

		case_begin(&c, "conv_cached", seed);
		conv_draw(&c, &v, 2);
		kept = v.taps - 1;
		for (int64_t t = 0; t < v.tokens; t++)
			texts += v.doc_start[t] == t;
		y = case_tensor(&c, v.tokens * v.y_stride, v.dtype, 1);
		ends = case_tensor(&c, v.tokens, DTYPE_I32, 1);
		window = case_tensor(&c, texts * kept * v.cols, v.dtype, 1);
		for (int64_t t = 0, text = -1; t < v.tokens; t++) {
			text += v.doc_start[t] == t;
			tensor_set(v.starts, t, (double)(text * text_rows));
			tensor_set(ends, t, (double)(text * text_rows + t - v.doc_start[t] + 1));
		}
		op.conv_cached = (struct op_conv_cached){.y = tensor_addr(y),
		        .window = tensor_addr(window),
		        .doc_end = tensor_addr(ends),
		        .texts = texts,
		        .text_rows = text_rows,
		        CONV_ARGUMENTS(v)};
		case_run(&c, &op);
		for (int64_t t = 0, text = -1; t < v.tokens; t++) {
			int is_last = t + 1 == v.tokens || v.doc_start[t + 1] == t + 1;

			text += v.doc_start[t] == t;
			for (int64_t col = 0; col < v.cols; col++) {
				double bound, want = conv_value(&v, t, col, &bound);

				case_check(&c, y, t * v.y_stride + col, want, bound, "y");
				for (int64_t j = 0; is_last && j < kept; j++) {
					int64_t from = t - kept + 1 + j;

					case_check(&c, window, (text * kept + j) * v.cols + col,
					        from < v.doc_start[t]
					                ? 0
					                : tensor_get(v.x, from * v.x_stride + col),
					        0, "window");
				}
			}
		}
		case_end(&c);
	}
}

/* ---- the norm with a gate: one row in double ---- */

struct gated {
	int64_t cols;
	enum gate_order order;
	double epsilon, *x, *gate, *weight, *y, *dy, *dx, *dgate, *dweight, rstd;
};

static void gated_alloc(struct gated *g)
{
	double **all[] = {&g->x, &g->gate, &g->weight, &g->y, &g->dy, &g->dx, &g->dgate, &g->dweight};

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		*all[i] = mem_alloc((size_t)g->cols, sizeof(double));
		assert_non_null(*all[i]);
	}
}

static void gated_free(struct gated *g)
{
	double *all[] = {g->x, g->gate, g->weight, g->y, g->dy, g->dx, g->dgate, g->dweight};

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		mem_free(all[i]);
}

static double normed_of(const struct gated *g, int64_t c)
{
	return g->order == GATE_BEFORE_NORM ? g->x[c] * silu(g->gate[c]) : g->x[c];
}

static double gated_forward(void *context)
{
	struct gated *g = context;
	double square = 0, sum = 0;

	for (int64_t c = 0; c < g->cols; c++)
		square += normed_of(g, c) * normed_of(g, c) / (double)g->cols;
	g->rstd = 1 / sqrt(square + g->epsilon);
	for (int64_t c = 0; c < g->cols; c++) {
		g->y[c] = normed_of(g, c) * g->rstd * g->weight[c] *
		          (g->order == GATE_AFTER_NORM ? silu(g->gate[c]) : 1);
		sum += g->y[c] * g->dy[c];
	}
	return sum;
}

/* After gated_forward. */
static void gated_backward(struct gated *g)
{
	double along = 0;

	for (int64_t c = 0; c < g->cols; c++) {
		double d = g->dy[c] * (g->order == GATE_AFTER_NORM ? silu(g->gate[c]) : 1);

		g->dweight[c] = d * normed_of(g, c) * g->rstd;
		along += d * g->weight[c] * normed_of(g, c) * g->rstd / (double)g->cols;
	}
	for (int64_t c = 0; c < g->cols; c++) {
		double d = g->dy[c] * g->weight[c] * (g->order == GATE_AFTER_NORM ? silu(g->gate[c]) : 1);
		double dn = g->rstd * (d - normed_of(g, c) * g->rstd * along);

		if (g->order == GATE_AFTER_NORM) {
			g->dx[c] = dn;
			g->dgate[c] = g->dy[c] * g->weight[c] * g->x[c] * g->rstd * silu_slope(g->gate[c]);
		} else {
			g->dx[c] = dn * silu(g->gate[c]);
			g->dgate[c] = dn * g->x[c] * silu_slope(g->gate[c]);
		}
	}
}

static void test_gated_reference(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(40); seed++) {
		struct ops_case c;
		struct gated g = {.order = seed & 1 ? GATE_BEFORE_NORM : GATE_AFTER_NORM, .epsilon = 0.01};

		case_begin(&c, "gated reference", seed);
		g.cols = case_int(&c, 1, 9);
		gated_alloc(&g);
		for (int64_t i = 0; i < g.cols; i++) {
			g.x[i] = case_normal(&c);
			g.gate[i] = case_normal(&c);
			g.weight[i] = case_normal(&c);
			g.dy[i] = case_normal(&c);
		}
		gated_forward(&g);
		gated_backward(&g);
		for (int64_t i = 0; i < g.cols; i++) {
			case_derivative(gated_forward, &g, &g.x[i], g.dx[i], 1);
			case_derivative(gated_forward, &g, &g.gate[i], g.dgate[i], 1);
			case_derivative(gated_forward, &g, &g.weight[i], g.dweight[i], 1);
		}
		gated_free(&g);
	}
}

struct gated_case {
	int64_t rows, groups, cols, weight_groups, x_stride, gate_stride, y_stride;
	enum gate_order order;
	enum dtype dtype;
	struct tensor *x, *gate, *weight, *rstd;
};

static void gated_draw(struct ops_case *c, struct gated_case *g)
{
	g->rows = case_size(c, 90);
	g->groups = case_int(c, 1, 5);
	g->cols = case_size(c, 300);
	g->weight_groups = case_int(c, 0, 1) ? 1 : g->groups;
	g->x_stride = g->groups * g->cols + case_int(c, 0, 2);
	g->gate_stride = g->groups * g->cols + case_int(c, 0, 2);
	g->y_stride = case_int(c, 0, 1) ? g->x_stride : g->groups * g->cols + case_int(c, 0, 2);
	g->order = case_int(c, 0, 1) ? GATE_BEFORE_NORM : GATE_AFTER_NORM;
	g->dtype = case_int(c, 0, 1) ? DTYPE_BF16 : DTYPE_F32;
	g->x = case_tensor(c, g->rows * g->x_stride, g->dtype, 1);
	g->gate = case_tensor(c, g->rows * g->gate_stride, g->dtype, 1);
	g->weight = case_tensor(c, g->weight_groups * g->cols, g->dtype, 1);
	g->rstd = case_tensor(c, g->rows * g->groups, DTYPE_F32, 1);
}

/* Row and group as the op had them. */
static void gated_load(
        struct gated *r, const struct gated_case *g, const struct tensor *dy, int64_t row, int64_t group)
{
	for (int64_t i = 0; i < g->cols; i++) {
		r->x[i] = tensor_was(g->x, row * g->x_stride + group * g->cols + i);
		r->gate[i] = tensor_was(g->gate, row * g->gate_stride + group * g->cols + i);
		r->weight[i] = tensor_get(g->weight, (g->weight_groups > 1 ? group * g->cols : 0) + i);
		r->dy[i] = dy ? tensor_was(dy, row * g->y_stride + group * g->cols + i) : 0;
	}
	gated_forward(r);
}

static double largest(const double *x, int64_t count)
{
	double most = 0;

	for (int64_t i = 0; i < count; i++)
		most = fmax(most, fabs(x[i]));
	return most;
}

#define GATED_ARGUMENTS(g)                                                                                   \
	.x = tensor_addr((g).x), .gate = tensor_addr((g).gate), .weight = tensor_addr((g).weight),           \
	.rstd = tensor_addr((g).rstd), .rows = (g).rows, .groups = (g).groups, .cols = (g).cols,             \
	.weight_groups = (g).weight_groups, .x_stride = (g).x_stride, .gate_stride = (g).gate_stride,        \
	.y_stride = (g).y_stride, .order = (g).order, .dtype = (g).dtype

static void test_gated(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(100); seed++) {
		struct ops_case c;
		struct gated_case g;
		struct gated r;
		struct tensor *y;
		struct op op = {.kind = OP_GATED_NORM};

		case_begin(&c, "gated_norm", seed);
		gated_draw(&c, &g);
		y = case_tensor(&c, g.rows * g.y_stride, g.dtype, 1);
		op.gated_norm =
		        (struct op_gated_norm){.y = tensor_addr(y), .epsilon = 1e-6, GATED_ARGUMENTS(g)};
		case_run(&c, &op);
		r = (struct gated){.cols = g.cols, .order = g.order, .epsilon = 1e-6};
		gated_alloc(&r);
		for (int64_t i = 0; i < g.rows * g.groups; i++) {
			gated_load(&r, &g, NULL, i / g.groups, i % g.groups);
			case_check(&c, g.rstd, i, r.rstd, 24 * EPS_F32 * r.rstd, "rstd");
			for (int64_t col = 0; col < g.cols; col++)
				case_check(&c, y, i / g.groups * g.y_stride + i % g.groups * g.cols + col,
				        r.y[col], 24 * EPS_F32 * fabs(r.y[col]), "y");
		}
		gated_free(&r);
		case_end(&c);
	}
}

static void gated_grad_check(struct ops_case *c, const struct gated_case *g, struct tensor *dy,
        struct tensor *dx, struct tensor *dgate, struct tensor *dweight)
{
	int64_t count = g->weight_groups * g->cols;
	double *sum = mem_alloc((size_t)count, sizeof(double)),
	       *size = mem_alloc((size_t)count, sizeof(double));
	struct gated r = {.cols = g->cols, .order = g->order, .epsilon = 1e-6};

	assert_true(sum && size);
	gated_alloc(&r);
	for (int64_t i = 0; i < g->rows * g->groups; i++) {
		int64_t row = i / g->groups, group = i % g->groups;
		double x_bound, gate_bound;

		gated_load(&r, g, dy, row, group);
		r.rstd = tensor_get(g->rstd, i);
		gated_backward(&r);
		x_bound = 60 * EPS_F32 *
		          (largest(r.dx, g->cols) +
		                  r.rstd * largest(r.dy, g->cols) * largest(r.weight, g->cols));
		gate_bound = 60 * EPS_F32 *
		             (largest(r.dgate, g->cols) + r.rstd * largest(r.dy, g->cols) *
		                                                  largest(r.weight, g->cols) *
		                                                  largest(r.x, g->cols));
		for (int64_t col = 0; col < g->cols; col++) {
			int64_t w = (g->weight_groups > 1 ? group * g->cols : 0) + col;

			case_check(
			        c, dx, row * g->x_stride + group * g->cols + col, r.dx[col], x_bound, "dx");
			case_check(c, dgate, row * g->gate_stride + group * g->cols + col, r.dgate[col],
			        gate_bound, "dgate");
			sum[w] += r.dweight[col];
			size[w] += fabs(r.dweight[col]);
		}
	}
	for (int64_t w = 0; w < count; w++)
		case_check(c, dweight, w, tensor_was(dweight, w) + sum[w], 70 * EPS_F32 * size[w], "dweight");
	gated_free(&r);
	mem_free(sum);
	mem_free(size);
}

static void test_gated_grad(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(100); seed++) {
		struct ops_case c;
		struct gated_case g;
		struct tensor *dy, *dx, *dgate, *dweight, *scratch;
		struct op op = {.kind = OP_GATED_NORM_GRAD};
		struct gated r = {.epsilon = 1e-6};
		int place;

		case_begin(&c, "gated_norm_grad", seed);
		gated_draw(&c, &g);
		place = (int)case_int(&c, 0, 2);
		dy = case_tensor(&c, g.rows * g.y_stride, g.dtype, 1);
		dx = place == 0 ? g.x
		     : place == 1 && g.x_stride == g.y_stride
		             ? dy
		             : case_tensor(&c, g.rows * g.x_stride, g.dtype, 1);
		dgate = case_int(&c, 0, 1) ? g.gate : case_tensor(&c, g.rows * g.gate_stride, g.dtype, 1);
		dweight = case_tensor(&c, g.weight_groups * g.cols, DTYPE_F32, 1);
		scratch = case_tensor(&c, gated_norm_scratch_count(g.rows, g.groups, g.cols), DTYPE_F32, 1);
		op.gated_norm_grad = (struct op_gated_norm_grad){.dx = tensor_addr(dx),
		        .dgate = tensor_addr(dgate),
		        .dweight = tensor_addr(dweight),
		        .dy = tensor_addr(dy),
		        .scratch = tensor_addr(scratch),
		        GATED_ARGUMENTS(g)};
		r.cols = g.cols;
		r.order = g.order;
		gated_alloc(&r);
		for (int64_t i = 0; i < g.rows * g.groups; i++) { /* as the forward would have left them */
			for (int64_t col = 0; col < g.cols; col++) {
				r.x[col] = tensor_get(
				        g.x, i / g.groups * g.x_stride + i % g.groups * g.cols + col);
				r.gate[col] = tensor_get(
				        g.gate, i / g.groups * g.gate_stride + i % g.groups * g.cols + col);
			}
			gated_forward(&r);
			tensor_set(g.rstd, i, r.rstd);
		}
		gated_free(&r);
		case_run(&c, &op);
		case_forget(scratch);
		gated_grad_check(&c, &g, dy, dx, dgate, dweight);
		case_end(&c);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {cmocka_unit_test(test_slope), cmocka_unit_test(test_conv),
	        cmocka_unit_test(test_conv_grad), cmocka_unit_test(test_conv_cached),
	        cmocka_unit_test(test_gated_reference), cmocka_unit_test(test_gated),
	        cmocka_unit_test(test_gated_grad)};

	return cmocka_run_group_tests(tests, ops_setup, ops_teardown);
}
