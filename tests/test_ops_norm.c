/* links: host_cpu */
/* also: tsan cuda */
/* RMSNorm and LayerNorm, forward and backward, against fp64 and finite differences. */
#include "tests/ops_check.h"

/* Reference in double of both norms; kind 0 is rmsnorm, 1 layernorm. Row by row. */
struct norm {
	int kind;
	int64_t cols;
	double epsilon, offset, *x, *weight, *bias, *y, *dy, *dx, *dweight, *dbias, mean, rstd;
	double *dweight_size, *dbias_size; /* sums of the magnitudes of what was added */
};

static void reference_forward(struct norm *n)
{
	double mean = 0, square = 0;

	for (int64_t c = 0; c < n->cols && n->kind; c++)
		mean += n->x[c] / (double)n->cols;
	for (int64_t c = 0; c < n->cols; c++)
		square += (n->x[c] - mean) * (n->x[c] - mean) / (double)n->cols;
	n->mean = mean;
	n->rstd = 1 / sqrt(square + n->epsilon);
	for (int64_t c = 0; c < n->cols; c++)
		n->y[c] = (n->x[c] - mean) * n->rstd * n->weight[c] + (n->bias ? n->bias[c] : 0);
}

/* Adds to dweight and dbias, writes dx; after reference_forward. */
static void reference_backward(struct norm *n)
{
	double g = 0, gx = 0;

	for (int64_t c = 0; c < n->cols; c++) {
		double xhat = (n->x[c] - n->mean) * n->rstd;

		g += n->dy[c] * n->weight[c] / (double)n->cols;
		gx += n->dy[c] * n->weight[c] * xhat / (double)n->cols;
		n->dweight[c] += n->dy[c] * xhat;
		n->dbias[c] += n->dy[c];
		n->dweight_size[c] += fabs(n->dy[c] * xhat);
		n->dbias_size[c] += fabs(n->dy[c]);
	}
	for (int64_t c = 0; c < n->cols; c++)
		n->dx[c] = n->rstd *
		           (n->dy[c] * n->weight[c] - (n->kind ? g : 0) - (n->x[c] - n->mean) * n->rstd * gx);
}

static void norm_alloc(struct norm *n)
{
	double **all[] = {&n->x, &n->weight, &n->bias, &n->y, &n->dy, &n->dx, &n->dweight, &n->dbias,
	        &n->dweight_size, &n->dbias_size};

	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		*all[i] = mem_alloc((size_t)n->cols, sizeof(double));
		assert_non_null(*all[i]);
	}
}

static void norm_free(struct norm *n)
{
	double *all[] = {n->x, n->weight, n->bias, n->y, n->dy, n->dx, n->dweight, n->dbias, n->dweight_size,
	        n->dbias_size};

	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		mem_free(all[i]);
}

static double norm_value(void *context)
{
	struct norm *n = context;
	double sum = 0;

	reference_forward(n);
	for (int64_t c = 0; c < n->cols; c++)
		sum += n->y[c] * n->dy[c];
	return sum;
}

static void test_reference(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(60); seed++) {
		struct ops_case c;
		struct norm n;

		case_begin(&c, "reference", seed);
		n = (struct norm){.kind = (int)(seed & 1), .cols = case_int(&c, 2, 12), .epsilon = 1e-2};
		norm_alloc(&n);
		for (int64_t i = 0; i < n.cols; i++) {
			n.x[i] = case_normal(&c) + 1;
			n.weight[i] = case_normal(&c);
			n.bias[i] = case_normal(&c);
			n.dy[i] = case_normal(&c);
		}
		reference_forward(&n);
		reference_backward(&n);
		for (int64_t i = 0; i < n.cols; i++) {
			case_derivative(norm_value, &n, &n.x[i], n.dx[i], 1);
			case_derivative(norm_value, &n, &n.weight[i], n.dweight[i], 1);
			case_derivative(norm_value, &n, &n.bias[i], n.dbias[i], 1);
		}
		norm_free(&n);
	}
}

struct shape {
	int64_t rows, groups, cols, x_stride, y_stride, x_group_stride, y_group_stride;
};

static int64_t element_at(int64_t row, int64_t groups, int64_t stride, int64_t group_stride)
{
	return row / groups * stride + row % groups * group_stride;
}

static void shape_random(struct ops_case *c, struct shape *s, int64_t rows, int64_t cols)
{
	s->rows = case_size(c, rows);
	s->groups = case_int(c, 0, 1) ? 1 : case_int(c, 1, 5);
	s->cols = case_size(c, cols);
	s->x_group_stride = s->cols + (case_int(c, 0, 1) ? 0 : case_int(c, 0, 5));
	s->y_group_stride = case_int(c, 0, 1) ? s->x_group_stride : s->cols;
	s->x_stride = s->groups * s->x_group_stride + case_int(c, 0, 5);
	s->y_stride = case_int(c, 0, 1) ? s->x_stride : s->groups * s->y_group_stride;
	if (s->y_stride < s->groups * s->y_group_stride)
		s->y_stride = s->groups * s->y_group_stride;
}

static struct tensor *rows_tensor(
        struct ops_case *c, const struct shape *s, int64_t stride, int64_t group_stride, enum dtype dtype)
{
	return case_tensor(c, (s->rows - 1) * stride + (s->groups - 1) * group_stride + s->cols, dtype, 1);
}

/* Reads row r of x (and dy) into the reference. */
static void row_load(
        struct norm *n, const struct shape *s, const struct tensor *x, const struct tensor *dy, int64_t r)
{
	for (int64_t i = 0; i < n->cols; i++) {
		n->x[i] = tensor_get(x, element_at(r, s->groups, s->x_stride, s->x_group_stride) + i);
		if (dy)
			n->dy[i] =
			        tensor_was(dy, element_at(r, s->groups, s->y_stride, s->y_group_stride) + i);
	}
}

/* Statistics are sums in double, rounded once, so y is off by a few roundings; in layernorm the rounded mean
 * shifts x by eps |mean|. */
static double y_bound(const struct norm *n, int64_t i)
{
	return EPS_F32 *
	       ((4 + (n->offset != 0)) * fabs((n->x[i] - n->mean) * n->rstd * n->weight[i]) +
	               2 * fabs(n->mean * n->rstd * n->weight[i]) + 2 * fabs(n->bias ? n->bias[i] : 0));
}

/* Of a random shape up to rows x cols, or of the one given; then bits 0 and 1 of the seed are kind and dtype.
 */
static void forward_try(uint64_t seed, int64_t rows, int64_t cols, const struct shape *given)
{
	struct ops_case c;
	struct shape s;
	struct norm n;
	struct tensor *x, *y, *weight, *bias = NULL, *rstd, *mean = NULL;
	struct op op = {.kind = seed & 1 ? OP_LAYERNORM : OP_RMSNORM};
	double *bias_kept;
	enum dtype dtype;

	case_begin(&c, op_name(op.kind), seed);
	shape_random(&c, &s, rows, cols);
	if (given) {
		s = *given;
		c.phase = 0;
	}
	dtype = (given ? (int64_t)(seed >> 1 & 1) : case_int(&c, 0, 1)) ? DTYPE_BF16 : DTYPE_F32;
	n = (struct norm){
	        .kind = (int)(seed & 1), .cols = s.cols, .epsilon = case_int(&c, 0, 1) ? 1e-5 : 1e-6};
	n.offset = case_int(&c, 0, 2) ? 0 : 1;
	norm_alloc(&n);
	x = rows_tensor(&c, &s, s.x_stride, s.x_group_stride, dtype);
	y = rows_tensor(&c, &s, s.y_stride, s.y_group_stride, dtype);
	weight = case_tensor(&c, s.cols, dtype, 1);
	rstd = case_tensor(&c, s.rows * s.groups, DTYPE_F32, 1);
	if (n.kind)
		mean = case_tensor(&c, s.rows * s.groups, DTYPE_F32, 1);
	if (n.kind && case_int(&c, 0, 1))
		bias = case_tensor(&c, s.cols, dtype, 1);
	op.norm = (struct op_norm){.y = tensor_addr(y),
	        .x = tensor_addr(x),
	        .weight = tensor_addr(weight),
	        .bias = tensor_addr(bias),
	        .rstd = tensor_addr(rstd),
	        .mean = tensor_addr(mean),
	        .rows = s.rows,
	        .groups = s.groups,
	        .cols = s.cols,
	        .x_stride = s.x_stride,
	        .y_stride = s.y_stride,
	        .x_group_stride = s.x_group_stride,
	        .y_group_stride = s.y_group_stride,
	        .epsilon = n.epsilon,
	        .weight_offset = n.offset,
	        .dtype = dtype};
	case_run(&c, &op);

	bias_kept = n.bias;
	if (!bias)
		n.bias = NULL;
	for (int64_t i = 0; i < s.cols; i++) {
		n.weight[i] = n.offset + tensor_get(weight, i);
		if (bias)
			n.bias[i] = tensor_get(bias, i);
	}
	for (int64_t r = 0; r < s.rows * s.groups; r++) {
		row_load(&n, &s, x, NULL, r);
		reference_forward(&n);
		case_check(&c, rstd, r, n.rstd, 0, "rstd");
		if (mean)
			case_check(&c, mean, r, n.mean, 1e-15, "mean");
		for (int64_t i = 0; i < s.cols; i++)
			case_check(&c, y, element_at(r, s.groups, s.y_stride, s.y_group_stride) + i, n.y[i],
			        y_bound(&n, i), "y");
	}
	n.bias = bias_kept;
	norm_free(&n);
	case_end(&c);
}

struct grad_case {
	struct tensor *x, *dy, *dx, *weight, *dweight, *dbias, *rstd, *mean, *scratch;
	enum dtype dtype;
	int accumulate;
};

/* Statistics as the forward would have left them, so that the reference uses the same ones. */
static void grad_tensors(struct ops_case *c, struct grad_case *g, const struct shape *s, struct norm *n)
{
	g->accumulate = (int)case_int(c, 0, 1);
	g->x = rows_tensor(c, s, s->x_stride, s->x_group_stride, g->dtype);
	g->dy = rows_tensor(c, s, s->y_stride, s->y_group_stride, g->dtype);
	g->dx = g->dy;
	if (g->accumulate || s->x_stride != s->y_stride || s->x_group_stride != s->y_group_stride ||
	        case_int(c, 0, 1))
		g->dx = rows_tensor(c, s, s->x_stride, s->x_group_stride, g->dtype);
	g->weight = case_tensor(c, s->cols, g->dtype, 1);
	g->dweight = case_tensor(c, s->cols, DTYPE_F32, 1);
	g->dbias = n->kind && case_int(c, 0, 1) ? case_tensor(c, s->cols, DTYPE_F32, 1) : NULL;
	g->rstd = case_tensor(c, s->rows * s->groups, DTYPE_F32, 1);
	g->mean = n->kind ? case_tensor(c, s->rows * s->groups, DTYPE_F32, 1) : NULL;
	g->scratch = case_tensor(c, norm_scratch_count(s->rows, s->groups, s->cols), DTYPE_F32, 1);
	for (int64_t r = 0; r < s->rows * s->groups; r++) {
		row_load(n, s, g->x, NULL, r);
		reference_forward(n);
		tensor_set(g->rstd, r, n->rstd);
		if (g->mean)
			tensor_set(g->mean, r, n->mean);
	}
}

/* dx of one row. The sums are in double; each of the three terms is rounded a few times. */
static void dx_check(
        struct ops_case *c, const struct grad_case *g, const struct shape *s, const struct norm *n, int64_t r)
{
	double size = 0;

	for (int64_t i = 0; i < s->cols; i++)
		size = fmax(size, fabs(n->dy[i] * n->weight[i]));
	for (int64_t i = 0; i < s->cols; i++) {
		int64_t at = element_at(r, s->groups, s->x_stride, s->x_group_stride) + i;
		double xhat = fabs((n->x[i] - n->mean) * n->rstd) + fabs(n->mean * n->rstd);
		double before = g->accumulate ? tensor_was(g->dx, at) : 0;

		case_check(c, g->dx, at, n->dx[i] + before,
		        8 * EPS_F32 * (n->rstd * size * (2 + 2 * xhat) + fabs(before)), "dx");
	}
}

static void backward_try(uint64_t seed, int64_t rows, int64_t cols, const struct shape *given)
{
	struct ops_case c;
	struct shape s;
	struct norm n;
	struct grad_case g;
	struct op op = {.kind = seed & 1 ? OP_LAYERNORM_GRAD : OP_RMSNORM_GRAD};
	int64_t stat_count;

	case_begin(&c, op_name(op.kind), seed);
	shape_random(&c, &s, rows, cols);
	if (given) {
		s = *given;
		c.phase = 0;
	}
	stat_count = s.rows * s.groups;
	n = (struct norm){.kind = (int)(seed & 1), .cols = s.cols, .epsilon = 1e-5};
	n.offset = case_int(&c, 0, 2) ? 0 : 1;
	norm_alloc(&n);
	g.dtype = (given ? (int64_t)(seed >> 1 & 1) : case_int(&c, 0, 1)) ? DTYPE_BF16 : DTYPE_F32;
	grad_tensors(&c, &g, &s, &n);
	op.norm_grad = (struct op_norm_grad){.dx = tensor_addr(g.dx),
	        .dweight = tensor_addr(g.dweight),
	        .dbias = tensor_addr(g.dbias),
	        .dy = tensor_addr(g.dy),
	        .x = tensor_addr(g.x),
	        .weight = tensor_addr(g.weight),
	        .rstd = tensor_addr(g.rstd),
	        .mean = tensor_addr(g.mean),
	        .scratch = tensor_addr(g.scratch),
	        .rows = s.rows,
	        .groups = s.groups,
	        .cols = s.cols,
	        .x_stride = s.x_stride,
	        .y_stride = s.y_stride,
	        .x_group_stride = s.x_group_stride,
	        .y_group_stride = s.y_group_stride,
	        .weight_offset = n.offset,
	        .dtype = g.dtype,
	        .accumulate_dx = g.accumulate};
	case_run(&c, &op);

	for (int64_t i = 0; i < s.cols; i++) {
		n.weight[i] = n.offset + tensor_get(g.weight, i);
		n.dweight[i] = tensor_was(g.dweight, i);
		n.dbias[i] = g.dbias ? tensor_was(g.dbias, i) : 0;
	}
	for (int64_t r = 0; r < stat_count; r++) {
		row_load(&n, &s, g.x, g.dy, r);
		n.rstd = tensor_get(g.rstd, r);
		n.mean = g.mean ? tensor_get(g.mean, r) : 0;
		reference_backward(&n);
		dx_check(&c, &g, &s, &n, r);
	}
	/* a block adds at most 64 rows in fp32 here. Their terms have a few roundings each, and in
	 * layernorm a mean near 0 */
	for (int64_t i = 0; i < s.cols; i++) {
		double eps = (64 + 8) * EPS_F32;

		case_check(&c, g.dweight, i, n.dweight[i], eps * n.dweight_size[i], "dweight");
		if (g.dbias)
			case_check(&c, g.dbias, i, n.dbias[i], eps * n.dbias_size[i], "dbias");
	}
	case_forget(g.scratch);
	case_end(&c);
	norm_free(&n);
}

static void test_forward(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(200); seed++)
		forward_try(seed, 40, seed % 4 ? 70 : 700, NULL);
}

static void test_backward(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(200); seed++)
		backward_try(seed, seed % 4 ? 40 : 300, seed % 4 ? 70 : 200, NULL);
}

/* Rows without gaps on aligned addresses, as models have them; of heads, and of every length for which a GPU
 * has a way of its own; more rows than blocks of 32; and columns that no vector divides. */
static void test_shapes(void **state)
{
	static const int64_t shapes[][3] = {{40, 3, 8}, {70, 4, 64}, {33, 2, 128}, {9, 5, 256}, {37, 1, 512},
	        {35, 1, 1024}, {5, 1, 2056}, {5, 1, 4096}, {3, 1, 4120}, {3, 1, 8192}, {2, 1, 9224},
	        {2, 1, 16384}, {2, 1, 16392}, {1, 1, 33000}, {3, 1, 515}, {2, 2, 1029}, {3, 1, 2051},
	        {4500, 1, 8}};

	(void)state;
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
		for (uint64_t seed = 4 * i; seed < 4 * i + 4; seed += (uint64_t)sparing(3)) {
			int64_t groups = shapes[i][1], cols = shapes[i][2];
			const struct shape s = {
			        shapes[i][0], groups, cols, groups * cols, groups * cols, cols, cols};

			forward_try(seed, 1, 1, &s);
			backward_try(seed, 1, 1, &s);
		}
}

/* Where a unit puts its weights changes no bit: what is summed, and in which order, is a matter of shapes. */
static void test_place_of_weight(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 4; seed++) {
		enum { ROWS = 70, COLS = 512 };
		struct ops_case c;
		struct tensor *x, *dy, *rstd, *mean, *scratch, *weight[2], *dx[2], *dweight[2];
		enum dtype dtype = seed & 2 ? DTYPE_BF16 : DTYPE_F32;

		case_begin(&c, "place of weight", seed);
		c.phase = 0;
		x = case_tensor(&c, ROWS * COLS, dtype, 1);
		dy = case_tensor(&c, ROWS * COLS, dtype, 1);
		rstd = case_tensor(&c, ROWS, DTYPE_F32, 1);
		mean = case_tensor(&c, ROWS, DTYPE_F32, 1);
		scratch = case_tensor(&c, norm_scratch_count(ROWS, 1, COLS), DTYPE_F32, 1);
		for (int i = 0; i < 2; i++) {
			dx[i] = case_tensor(&c, ROWS * COLS, dtype, 1);
			dweight[i] = case_tensor(&c, COLS, DTYPE_F32, 0);
			c.phase = 1;
			weight[i] = case_tensor(&c, COLS, dtype, 1);
			c.phase = 0;
		}
		weight[0]->offset -= dtype_bytes(dtype); /* of the very alignment that weight[1] lacks */
		for (int64_t i = 0; i < COLS; i++)
			tensor_set(weight[0], i, tensor_get(weight[1], i));
		for (int i = 0; i < 2; i++) {
			struct op op = {.kind = seed & 1 ? OP_LAYERNORM_GRAD : OP_RMSNORM_GRAD};

			op.norm_grad = (struct op_norm_grad){.dx = tensor_addr(dx[i]),
			        .dweight = tensor_addr(dweight[i]),
			        .dy = tensor_addr(dy),
			        .x = tensor_addr(x),
			        .weight = tensor_addr(weight[i]),
			        .rstd = tensor_addr(rstd),
			        .mean = tensor_addr(mean),
			        .scratch = tensor_addr(scratch),
			        .rows = ROWS,
			        .groups = 1,
			        .cols = COLS,
			        .x_stride = COLS,
			        .y_stride = COLS,
			        .x_group_stride = COLS,
			        .y_group_stride = COLS,
			        .dtype = dtype};
			case_run(&c, &op);
			case_forget(dx[i]);
			case_forget(dweight[i]);
		}
		assert_memory_equal(dx[0]->block, dx[1]->block, (size_t)dx[0]->bytes);
		assert_memory_equal(dweight[0]->block, dweight[1]->block, (size_t)dweight[0]->bytes);
		case_forget(scratch);
		case_end(&c);
	}
}

/* A mean far from zero, and a row of one value: the variance must not be a difference of large squares. */
static void test_offset(void **state)
{
	struct ops_case c;
	struct tensor *x, *y, *weight, *rstd, *mean;
	struct op op = {.kind = OP_LAYERNORM};

	(void)state;
	case_begin(&c, "offset", 5);
	x = case_tensor(&c, 256, DTYPE_F32, 1);
	y = case_tensor(&c, 256, DTYPE_F32, 1);
	weight = case_tensor(&c, 128, DTYPE_F32, 1);
	rstd = case_tensor(&c, 2, DTYPE_F32, 1);
	mean = case_tensor(&c, 2, DTYPE_F32, 1);
	for (int64_t i = 0; i < 128; i++) {
		tensor_set(x, i, 4096 + (double)(i % 2)); /* variance 1/4 */
		tensor_set(x, 128 + i, 3);
		tensor_set(weight, i, 1);
	}
	op.norm = (struct op_norm){.y = tensor_addr(y),
	        .x = tensor_addr(x),
	        .weight = tensor_addr(weight),
	        .rstd = tensor_addr(rstd),
	        .mean = tensor_addr(mean),
	        .rows = 2,
	        .groups = 1,
	        .cols = 128,
	        .x_stride = 128,
	        .y_stride = 128,
	        .x_group_stride = 128,
	        .y_group_stride = 128,
	        .epsilon = 1e-12,
	        .dtype = DTYPE_F32};
	case_run(&c, &op);
	case_check(&c, mean, 0, 4096.5, 0, "mean");
	case_check(&c, mean, 1, 3, 0, "mean");
	case_check(&c, rstd, 0, 2, 1e-11, "rstd");
	case_check(&c, rstd, 1, 1e6, 1, "rstd");
	for (int64_t i = 0; i < 256; i++)
		case_check(&c, y, i, i < 128 ? (double)(i % 2 * 2 - 1) : 0, 1e-6, "y");
	case_end(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_reference),
	        cmocka_unit_test(test_forward),
	        cmocka_unit_test(test_backward),
	        cmocka_unit_test(test_shapes),
	        cmocka_unit_test(test_place_of_weight),
	        cmocka_unit_test(test_offset),
	};

	return cmocka_run_group_tests(tests, ops_setup, ops_teardown);
}
