/* links: host_cpu */
/* also: tsan cuda */
/* Ops that move, convert and add: bit for bit, or against fp64. */
#include "tests/ops_check.h"

static enum dtype compute_dtype(struct ops_case *c)
{
	return case_int(c, 0, 1) ? DTYPE_BF16 : DTYPE_F32;
}

static void test_fill_copy(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(100); seed++) {
		struct ops_case c;
		struct tensor *a, *b;
		struct op op = {.kind = OP_FILL};
		int64_t bytes;

		case_begin(&c, "fill, copy", seed);
		bytes = seed % 10 ? case_size(&c, 600) : case_int(&c, 300000, 900000);
		a = case_tensor(&c, bytes, DTYPE_U8, 50);
		b = case_tensor(&c, bytes, DTYPE_U8, 50);
		op.fill = (struct op_fill){tensor_addr(a), bytes, (uint8_t)seed};
		case_run(&c, &op);
		for (int64_t i = 0; i < bytes; i++)
			case_check(&c, a, i, (double)(seed & 255), 0, "fill");
		memset(a->written, 0, (size_t)bytes);
		op = (struct op){.kind = OP_COPY};
		op.copy = (struct op_copy){tensor_addr(a), tensor_addr(b), bytes};
		case_run(&c, &op);
		for (int64_t i = 0; i < bytes; i++)
			case_check(&c, a, i, tensor_get(b, i), 0, "copy");
		case_end(&c);
	}
}

/* Any bits at all: NaN of all sorts, infinities, subnormals; and ties of rounding to bf16. */
static uint32_t odd_bits(struct ops_case *c)
{
	static const uint32_t low[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
	uint32_t bits = (uint32_t)case_int(c, 0, 0xffff) << 16 | low[case_int(c, 0, 5)];

	return case_int(c, 0, 2) ? bits : bits | 0x7f800000;
}

static void test_cast(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(120); seed++) {
		struct ops_case c;
		struct tensor *dst, *src;
		struct op op = {.kind = OP_CAST};
		enum dtype to, from;
		int64_t count;

		case_begin(&c, "cast", seed);
		count = case_size(&c, seed % 10 ? 600 : 50000);
		to = compute_dtype(&c);
		from = compute_dtype(&c);
		src = case_tensor(&c, count, from, 1);
		dst = case_tensor(&c, count, to, 1);
		for (int64_t i = 0; i < count; i += case_int(&c, 1, 4))
			tensor_set_bits(src, i, from == DTYPE_F32 ? odd_bits(&c) : odd_bits(&c) >> 16);
		op.cast = (struct op_cast){tensor_addr(dst), tensor_addr(src), count, to, from};
		case_run(&c, &op);
		for (int64_t i = 0; i < count; i++) {
			uint32_t x = tensor_bits(src, i);

			case_check_bits(&c, dst, i,
			        to == from         ? x
			        : to == DTYPE_BF16 ? bf16_from_f32(f32_from_bits(x))
			                           : x << 16,
			        "dst");
		}
		case_end(&c);
	}
}

static void test_join(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(100); seed++) {
		struct ops_case c;
		struct tensor *dst, *hi, *lo, *want;
		struct op op = {.kind = OP_JOIN};
		int64_t count;

		case_begin(&c, "join", seed);
		count = case_size(&c, seed % 10 ? 600 : 50000);
		hi = case_tensor(&c, count, DTYPE_BF16, 1);
		lo = case_tensor(&c, count, DTYPE_I16, 1);
		dst = case_tensor(&c, count, DTYPE_F32, 1);
		want = case_tensor(&c, count, DTYPE_F32, 1);
		for (int64_t i = 0; i < count; i++) {
			uint32_t bits = tensor_bits(want, i);

			tensor_set_bits(hi, i, plane_hi(bits));
			tensor_set_bits(lo, i, (uint16_t)plane_lo(bits));
			if (case_int(&c, 0, 3))
				continue;
			tensor_set_bits(hi, i, odd_bits(&c) >> 16); /* no float has these planes */
			tensor_set_bits(lo, i, (uint32_t)case_int(&c, 0, 0xffff));
			tensor_set_bits(want, i,
			        plane_join((uint16_t)tensor_bits(hi, i), (int16_t)tensor_bits(lo, i)));
		}
		op.join = (struct op_join){tensor_addr(dst), tensor_addr(hi), tensor_addr(lo), count};
		case_run(&c, &op);
		for (int64_t i = 0; i < count; i++)
			case_check_bits(&c, dst, i, tensor_bits(want, i), "dst");
		case_end(&c);
	}
}

/* Byte `index` of a tensor of words of 4 bytes. */
static uint8_t byte_of(struct tensor *t, int64_t index)
{
	return (uint8_t)(tensor_bits(t, index / 4) >> 8 * (index % 4));
}

/* Every code with every kind of scale; values and scales by base/codes.h, which test_codes checks. */
static void test_expand(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(120); seed++) {
		struct op op = {.kind = OP_EXPAND};
		struct op_expand *o = &op.expand;
		struct tensor *dst, *codes, *scales, *outer;
		struct ops_case c;
		int64_t across, down, row_bytes;

		case_begin(&c, "expand", seed);
		o->code = (enum code)(seed % CODE_COUNT);
		o->scale = (enum code_scale)(seed / CODE_COUNT % CODE_SCALE_COUNT);
		o->rows = case_size(&c, 40);
		o->cols = case_size(&c, seed % 10 ? 70 : 5000);
		if (code_bits(o->code) == 4 && case_int(&c, 0, 1))
			o->rows = 1;
		else if (code_bits(o->code) == 4)
			o->cols += o->cols % 2;
		o->block_rows = case_int(&c, 0, 1) ? 1 : case_size(&c, 16);
		o->block_cols = case_int(&c, 0, 1) ? o->cols : case_size(&c, 64);
		o->dst_dtype = case_int(&c, 0, 1) ? DTYPE_BF16 : DTYPE_F32;
		across = (o->cols - 1) / o->block_cols + 1;
		down = (o->rows - 1) / o->block_rows + 1;
		row_bytes = code_bytes(o->code, o->cols);
		codes = case_tensor(&c, (o->rows * row_bytes + 3) / 4, DTYPE_F32, 1); /* four to a float */
		scales = case_tensor(&c, o->scale == CODE_SCALE_F32 ? down * across : (down * across + 3) / 4,
		        DTYPE_F32, 1);
		outer = case_tensor(&c, nested_outer_count(down * across), DTYPE_F32, 1);
		dst = case_tensor(&c, o->rows * o->cols, o->dst_dtype, 1);
		o->dst = tensor_addr(dst);
		o->codes = tensor_addr(codes);
		o->scales = tensor_addr(scales);
		o->outer = tensor_addr(outer);
		case_run(&c, &op);
		for (int64_t i = 0; i < o->rows * o->cols; i++) {
			int64_t r = i / o->cols, col = i % o->cols,
			        at = r / o->block_rows * across + col / o->block_cols;
			int code = byte_of(codes, r * row_bytes + (code_bits(o->code) == 8 ? col : col / 2));
			float scale = 0, want;

			if (code_bits(o->code) == 4)
				code = col % 2 == code_first_is_high(o->code) ? code & 15 : code >> 4;
			if (o->scale == CODE_SCALE_F32)
				scale = f32_from_bits((uint32_t)tensor_bits(scales, at));
			if (o->scale == CODE_SCALE_E8M0)
				scale = code_e8m0(byte_of(scales, at));
			if (o->scale == CODE_SCALE_NESTED) {
				scale = nested_map()[byte_of(scales, at)] *
				        f32_from_bits((uint32_t)tensor_bits(outer, 1 + at / NESTED_BLOCK));
				scale += f32_from_bits((uint32_t)tensor_bits(outer, 0));
			}
			want = code_values(o->code)[code] * scale;
			if (isnan(want) && isnan(tensor_get(dst, i)))
				case_check_bits(&c, dst, i, tensor_bits(dst, i), "dst"); /* any NaN */
			else
				case_check_bits(&c, dst, i,
				        o->dst_dtype == DTYPE_BF16 ? bf16_from_f32(want) : f32_bits(want),
				        "dst");
		}
		case_end(&c);
	}
}

/* What the host's add makes of these bits: a NaN operand, made quiet, or the processor's NaN. */
static uint32_t add_bits(uint32_t a, uint32_t b, enum dtype dtype)
{
	const int up = dtype == DTYPE_BF16 ? 16 : 0;
	volatile float x = f32_from_bits(a << up), y = f32_from_bits(b << up), sum = x + y;

	return dtype == DTYPE_BF16 ? bf16_from_f32(sum) : f32_bits(sum);
}

/* Some elements are infinite, or one of the two is NaN: of two, a compiler may take either. */
static void add_odd(struct ops_case *c, struct tensor *a, struct tensor *b)
{
	for (int64_t i = case_int(c, 0, 9); i < a->count; i += case_int(c, 1, 20)) {
		tensor_set(a, i, case_int(c, 0, 1) ? INFINITY : -INFINITY);
		tensor_set(b, i, case_int(c, 0, 1) ? INFINITY : -INFINITY);
		if (case_int(c, 0, 1))
			tensor_set_bits(case_int(c, 0, 1) ? a : b, i,
			        a->dtype == DTYPE_F32 ? odd_bits(c) : odd_bits(c) >> 16);
	}
}

static void test_add(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(150); seed++) {
		struct ops_case c;
		struct tensor *dst, *a, *b, was_a, was_b;
		struct op op = {.kind = OP_ADD};
		enum dtype dtype;
		int64_t count, alias;

		case_begin(&c, "add", seed);
		count = case_size(&c, seed % 10 ? 600 : 50000);
		dtype = compute_dtype(&c);
		alias = case_int(&c, 0, 2);
		a = case_tensor(&c, count, dtype, 1);
		b = case_tensor(&c, count, dtype, 1);
		dst = alias == 0 ? a : alias == 1 ? b : case_tensor(&c, count, dtype, 1);
		add_odd(&c, a, b);
		op.add = (struct op_add){tensor_addr(dst), tensor_addr(a), tensor_addr(b), count, dtype};
		case_run(&c, &op);
		was_a = *a, was_a.block = a->first;
		was_b = *b, was_b.block = b->first;
		for (int64_t i = 0; i < count; i++)
			case_check_bits(&c, dst, i,
			        add_bits(tensor_bits(&was_a, i), tensor_bits(&was_b, i), dtype), "dst");
		case_end(&c);
	}
}

/* Rounded once or, with a cap, by what tanh is off. A factor on the device may join the other. */
static void test_scale(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(150); seed++) {
		struct ops_case c;
		struct tensor *dst, *src, *by;
		struct op op = {.kind = OP_SCALE};
		enum dtype dtype;
		double factor, cap, all;
		int64_t count;

		case_begin(&c, "scale", seed);
		count = case_size(&c, seed % 10 ? 600 : 50000);
		dtype = compute_dtype(&c);
		factor = (double)(float)(case_normal(&c) * 3);
		cap = case_int(&c, 0, 1) ? 0 : (double)case_int(&c, 1, 40);
		src = case_tensor(&c, count, dtype, 10);
		dst = case_int(&c, 0, 1) ? src : case_tensor(&c, count, dtype, 1);
		by = case_int(&c, 0, 1) ? case_tensor(&c, 1, dtype, 1) : NULL;
		op.scale = (struct op_scale){tensor_addr(dst), tensor_addr(src),
		        by ? tensor_addr(by) : DEV_NONE, count, factor, cap, dtype};
		case_run(&c, &op);
		all = by ? (double)((float)factor * (float)tensor_get(by, 0)) : factor;
		for (int64_t i = 0; i < count; i++) {
			double y = all * tensor_was(src, i), want = cap > 0 ? cap * tanh(y / cap) : y;

			case_check(&c, dst, i, want, (cap > 0 ? 10 : 1) * EPS_F32 * fabs(want), "dst");
		}
		case_end(&c);
	}
}

/* Exact or, in bf16, rounded once. Bytes between rows stay. */
static void test_columns(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(150); seed++) {
		struct ops_case c;
		struct tensor *dst, *src;
		struct op op = {.kind = OP_COLUMNS};
		enum dtype to, from;
		int64_t rows, cols, to_stride, from_stride, spread, fold, from_rows;
		double factor, all;
		int adds, is_place;

		case_begin(&c, "columns", seed);
		rows = case_size(&c, seed % 10 ? 9 : 200);
		spread = seed % 3 ? 0 : case_int(&c, 1, 5), fold = seed % 3 == 1 ? case_int(&c, 1, 5) : 0;
		rows *= spread ? spread : 1;
		from_rows = spread ? rows / spread : rows * (fold ? fold : 1);
		cols = case_size(&c, seed % 7 ? 20 : 3000);
		to = compute_dtype(&c), from = compute_dtype(&c);
		to_stride = cols + case_int(&c, 0, 5), from_stride = cols + case_int(&c, 0, 5);
		adds = case_int(&c, 0, 1);
		factor = seed % 4 ? (double)(float)case_normal(&c) : 0;
		is_place = seed % 3 == 2 && case_int(&c, 0, 1);
		if (is_place) {
			spread = fold = 0, from_rows = rows, to_stride = from_stride, to = from;
		}
		src = case_tensor(&c, (from_rows - 1) * from_stride + cols, from, 1);
		dst = is_place ? src : case_tensor(&c, (rows - 1) * to_stride + cols, to, 1);
		op.columns = (struct op_columns){tensor_addr(dst), tensor_addr(src), rows, cols, to_stride,
		        from_stride, to, from, adds, spread, .fold = fold, .factor = factor};
		case_run(&c, &op);
		all = factor != 0 ? factor : 1;
		for (int64_t i = 0; i < (rows - 1) * to_stride + cols; i++) {
			int64_t r = i / to_stride, col = i % to_stride;
			double was = tensor_was(dst, i), want = col < cols && !adds ? 0 : was,
			       most = fabs(want);

			for (int64_t f = 0; f < (fold ? fold : 1) && col < cols; f++) {
				int64_t row = spread ? r / spread : r * (fold ? fold : 1) + f;

				double part = all * tensor_was(src, row * from_stride + col);

				want += part, most += fabs(part);
			}
			case_check(&c, dst, i, want,
			        (fold > 1             ? 5
			                : factor != 0 ? 2
			                              : 1) *
			                EPS_F32 * (fold > 1 || factor != 0 ? most : fabs(want)),
			        "dst");
		}
		case_end(&c);
	}
}

static void colsum_try(uint64_t seed, int64_t rows, int64_t cols, int64_t gap)
{
	struct ops_case c;
	struct tensor *sum, *x;
	struct op op = {.kind = OP_COLSUM};
	int64_t stride = cols + gap;
	enum dtype dtype;

	case_begin(&c, "colsum", seed);
	dtype = compute_dtype(&c);
	sum = case_tensor(&c, cols, DTYPE_F32, 1);
	x = case_tensor(&c, (rows - 1) * stride + cols, dtype, 1);
	op.colsum = (struct op_colsum){tensor_addr(sum), tensor_addr(x), rows, cols, stride, dtype};
	case_run(&c, &op);
	for (int64_t i = 0; i < cols; i++) {
		double want = tensor_was(sum, i);

		for (int64_t r = 0; r < rows; r++)
			want += tensor_get(x, r * stride + i);
		case_check(&c, sum, i, want, 1e-12, "sum");
	}
	case_end(&c);
}

static void test_colsum(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(150); seed++) {
		struct ops_case c;
		int64_t rows, cols, gap, multiple;

		case_begin(&c, "colsum", seed);
		rows = case_size(&c, 300);
		cols = case_size(&c, 200);
		gap = case_int(&c, 0, 1) ? 0 : case_int(&c, 0, 9);
		multiple = case_int(&c, 0, 1) ? 8 : 1; /* of 8: rows begin where the first does */
		colsum_try(seed, rows, cols * multiple, gap * multiple);
	}
	colsum_try(1000, 5000, 8, 0); /* tall */
	colsum_try(1001, 4100, 3, 0);
	colsum_try(1002, 2, 8192, 8); /* wide */
	colsum_try(1003, 1, 5001, 0);
	colsum_try(1004, 3, 24, 1 << 20); /* far apart */
}

struct embed {
	int64_t rows, cols, table_rows, used, step; /* indices are 0, step, ... (used - 1) step */
	int accumulate, is_turned;
};

/* The place of column c of a row of the table, or of its gradient. */
static int64_t embed_at(const struct embed *e, int64_t row, int64_t c)
{
	return e->is_turned ? c * e->table_rows + row : row * e->cols + c;
}

/* embed_grad with dy and index; fp32 in the order that is promised: to the bit. */
static void embed_grad_try(struct ops_case *c, const struct embed *e, struct tensor *dy, struct tensor *index)
{
	int64_t rows = e->rows, cols = e->cols,
	        skip = case_int(c, 0, 1) ? -1 : e->step * case_int(c, 0, e->used - 1);
	struct tensor *grad = case_tensor(c, e->table_rows * cols, DTYPE_F32, 1);
	struct tensor *scratch = case_tensor(c, rows + e->table_rows + 1, DTYPE_I32, 1);
	struct op op = {.kind = OP_EMBED_GRAD};
	float *want = mem_alloc((size_t)grad->count, sizeof *want);

	assert_non_null(want);
	op.embed_grad = (struct op_embed_grad){tensor_addr(grad), tensor_addr(dy), tensor_addr(index),
	        tensor_addr(scratch), rows, cols, e->table_rows, skip, dy->dtype, e->is_turned};
	case_run(c, &op);
	for (int64_t i = 0; i < grad->count; i++)
		want[i] = (float)tensor_was(grad, i);
	for (int64_t r = 0; r < rows; r++) {
		int64_t to = (int64_t)tensor_get(index, r);

		for (int64_t i = 0; i < cols && to != skip; i++)
			want[embed_at(e, to, i)] += (float)tensor_get(dy, r * cols + i);
	}
	for (int64_t i = 0; i < grad->count; i++)
		case_check_bits(c, grad, i, f32_bits(want[i]), "grad");
	mem_free(want);
	case_forget(scratch);
}

/* Gather, and embed_grad of what it gave, on one set of indices. */
static void embed_try(uint64_t seed, const struct embed *e)
{
	struct ops_case c;
	struct tensor *table, *out, *index;
	struct op op = {.kind = OP_GATHER};
	enum dtype dtype;

	case_begin(&c, "embed", seed);
	dtype = compute_dtype(&c);
	table = case_tensor(&c, e->table_rows * e->cols, dtype, 1);
	out = case_tensor(&c, e->rows * e->cols, dtype, 1);
	index = case_tensor(&c, e->rows, DTYPE_I32, 1);
	for (int64_t i = 0; i < e->rows; i++)
		tensor_set(index, i, (double)(e->step * case_int(&c, 0, e->used - 1)));
	op.gather = (struct op_gather){tensor_addr(out), tensor_addr(table), tensor_addr(index), e->rows,
	        e->cols, e->table_rows, dtype, e->accumulate, e->is_turned};
	case_run(&c, &op);
	for (int64_t i = 0; i < e->rows * e->cols; i++) {
		int64_t from = embed_at(e, (int64_t)tensor_get(index, i / e->cols), i % e->cols);

		case_check(&c, out, i, tensor_get(table, from) + (e->accumulate ? tensor_was(out, i) : 0), 0,
		        "gather");
	}
	memset(out->written, 0, (size_t)out->count);
	embed_grad_try(&c, e, out, index);
	case_end(&c);
}

static void test_embed(void **state)
{
	static const struct embed shapes[] = {
	        {2100, 8, 300, 1, 1, 0, 0},       /* one index in all rows, more than a sort takes at once */
	        {2200, 8, 3200, 50, 64, 0, 0},    /* all rows in one block of the sort */
	        {3000, 16, 40000, 7, 5000, 1, 0}, /* a table much larger than what occurs of it */
	        {4100, 3, 9000, 9000, 1, 0, 0},   /* hardly any index twice */
	        {3, 9000, 4, 4, 1, 0, 0},         /* long rows */
	        {2, 16392, 3, 3, 1, 1, 0},
	        {130, 1, 70, 2, 1, 1, 0},
	        {1, 1, 1, 1, 1, 0, 0},
	        {2100, 8, 300, 1, 1, 0, 1}, /* turned: adapters of the embedding */
	        {4100, 16, 9000, 9000, 1, 0, 1},
	        {130, 3, 70, 2, 1, 0, 1},
	        {90, 1, 70, 70, 1, 0, 1},
	};

	(void)state;
	for (uint64_t seed = 0; seed < case_count(120); seed++) {
		struct ops_case c;
		struct embed e;

		case_begin(&c, "embed", seed);
		e.rows = case_size(&c, 80);
		e.cols = case_size(&c, seed % 10 ? 150 : 700);
		if (case_int(&c, 0, 1))
			e.cols = (e.cols + 7) / 8 * 8; /* rows begin where the first does */
		e.table_rows = e.used = case_size(&c, 60);
		e.step = 1;
		e.is_turned = (int)case_int(&c, 0, 1);
		e.accumulate = e.is_turned ? 0 : (int)case_int(&c, 0, 1);
		embed_try(seed, &e);
	}
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
		embed_try(1000 + i, &shapes[i]);
	for (int64_t rows = 30; rows < 70;
	        rows += rows % 16 == 2 ? 13 : 1) /* runs beside what is added at once */
		embed_try((uint64_t)(2000 + rows), &(struct embed){rows, rows % 3 ? 8 : 3, 2, 1, 1, 0, 0});
}

static void scatter_try(uint64_t seed, int64_t rows, int64_t cols, int64_t first, int64_t step)
{
	struct ops_case c;
	struct tensor *out, *x, *index;
	struct op op = {.kind = OP_SCATTER};
	int64_t out_rows = first + rows * step;
	enum dtype dtype;

	case_begin(&c, "scatter", seed);
	dtype = compute_dtype(&c);
	out = case_tensor(&c, out_rows * cols, dtype, 1);
	x = case_tensor(&c, rows * cols, dtype, 1);
	index = case_tensor(&c, rows, DTYPE_I32, 1);
	for (int64_t i = 0; i < rows; i++)
		tensor_set(index, i, (double)(first + (rows - 1 - i) * step));
	op.scatter = (struct op_scatter){
	        tensor_addr(out), tensor_addr(x), tensor_addr(index), rows, cols, out_rows, dtype};
	case_run(&c, &op);
	for (int64_t i = 0; i < rows * cols; i++)
		case_check(&c, out, (int64_t)tensor_get(index, i / cols) * cols + i % cols, tensor_get(x, i),
		        0, "out");
	case_end(&c);
}

static void test_scatter(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(100); seed++) {
		struct ops_case c;
		int64_t rows, cols, first, step;

		case_begin(&c, "scatter", seed);
		rows = case_size(&c, 60);
		cols = case_size(&c, 150);
		if (case_int(&c, 0, 1))
			cols = (cols + 7) / 8 * 8;
		step = case_int(&c, 1, 3);
		first = case_int(&c, 0, 5);
		scatter_try(seed, rows, cols, first, step);
	}
	scatter_try(1000, 3, 4096, 1, 2);
	scatter_try(1001, 2, 9001, 0, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_fill_copy),
	        cmocka_unit_test(test_cast),
	        cmocka_unit_test(test_join),
	        cmocka_unit_test(test_expand),
	        cmocka_unit_test(test_add),
	        cmocka_unit_test(test_scale),
	        cmocka_unit_test(test_columns),
	        cmocka_unit_test(test_colsum),
	        cmocka_unit_test(test_embed),
	        cmocka_unit_test(test_scatter),
	};

	return cmocka_run_group_tests(tests, ops_setup, ops_teardown);
}
