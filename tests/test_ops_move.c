/* links: host_cpu */
/* also: tsan cuda */
#include "host/cpu/kernels.h"
#include "optim/adamw.h"
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

static void test_cast(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(100); seed++) {
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
		op.cast = (struct op_cast){tensor_addr(dst), tensor_addr(src), count, to, from};
		case_run(&c, &op);
		for (int64_t i = 0; i < count; i++) {
			double x = tensor_get(src, i);

			case_check(&c, dst, i, to == DTYPE_BF16 ? bf16_to_f32(bf16_from_f32((float)x)) : x, 0,
			        "dst");
			assert_true(tensor_get(dst, i) == x || to == DTYPE_BF16);
		}
		case_end(&c);
	}
}

/* Every bf16 and its neighbourhood in fp32, in every table: ties, infinities, NaN. */
static void test_rounding(void **state)
{
	static const char *const names[] = {"scalar", "avx2", "avx512"};
	enum { N = 65536 };
	static float x[N], back[N];
	static uint16_t h[N], all[N];
	static const uint32_t low[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};

	(void)state;
	for (int i = 0; i < N; i++)
		all[i] = (uint16_t)i;
	for (size_t t = 0; t < sizeof names / sizeof *names; t++) {
		const struct cpu_kernels *k = cpu_kernels_find(names[t]);

		for (size_t n = 0; n < sizeof low / sizeof *low && k; n++) {
			for (int i = 0; i < N; i++)
				x[i] = f32_from_bits((uint32_t)i << 16 | low[n]);
			k->narrow(h, x, N);
			k->widen(back, all, N);
			for (int i = 0; i < N; i++) {
				assert_int_equal(h[i], bf16_from_f32(x[i]));
				assert_int_equal(f32_bits(back[i]), (uint32_t)i << 16);
			}
		}
	}
}

static void test_join(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(100); seed++) {
		struct ops_case c;
		struct tensor *dst, *hi, *lo;
		struct op op = {.kind = OP_JOIN};
		int64_t count;

		case_begin(&c, "join", seed);
		count = case_size(&c, seed % 10 ? 600 : 50000);
		hi = case_tensor(&c, count, DTYPE_BF16, 1);
		lo = case_tensor(&c, count, DTYPE_I16, 1);
		dst = case_tensor(&c, count, DTYPE_F32, 1);
		for (int64_t i = 0; i < count; i++) {
			uint32_t bits = f32_bits((float)case_normal(&c));
			uint16_t h = plane_hi(bits);
			int16_t l = plane_lo(bits);

			memcpy(hi->block + hi->offset + 2 * i, &h, 2);
			memcpy(lo->block + lo->offset + 2 * i, &l, 2);
			tensor_set(dst, i, f32_from_bits(bits)); /* what must come out again */
		}
		op.join = (struct op_join){tensor_addr(dst), tensor_addr(hi), tensor_addr(lo), count};
		case_run(&c, &op);
		for (int64_t i = 0; i < count; i++)
			assert_true(tensor_get(dst, i) == tensor_was(dst, i));
		case_end(&c);
	}
}

static void test_add(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(150); seed++) {
		struct ops_case c;
		struct tensor *dst, *a, *b;
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
		op.add = (struct op_add){tensor_addr(dst), tensor_addr(a), tensor_addr(b), count, dtype};
		case_run(&c, &op);
		for (int64_t i = 0; i < count; i++)
			case_check(&c, dst, i, tensor_was(a, i) + tensor_was(b, i), 0, "dst");
		case_end(&c);
	}
}

static void test_colsum(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(150); seed++) {
		struct ops_case c;
		struct tensor *sum, *x;
		struct op op = {.kind = OP_COLSUM};
		int64_t rows, cols, stride;
		enum dtype dtype;

		case_begin(&c, "colsum", seed);
		rows = case_size(&c, 300);
		cols = case_size(&c, 200);
		stride = cols + (case_int(&c, 0, 1) ? 0 : case_int(&c, 0, 9));
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
}

/* Gather, scatter and embed_grad on one set of indices. */
static void embed_try(uint64_t seed)
{
	struct ops_case c;
	struct tensor *table, *out, *index, *grad, *scratch;
	struct op op = {.kind = OP_GATHER};
	int64_t rows, cols, table_rows, skip;
	enum dtype dtype;
	int accumulate;

	case_begin(&c, "embed", seed);
	rows = case_size(&c, 80);
	cols = case_size(&c, seed % 10 ? 150 : 700);
	table_rows = case_size(&c, 60);
	dtype = compute_dtype(&c);
	accumulate = (int)case_int(&c, 0, 1);
	table = case_tensor(&c, table_rows * cols, dtype, 1);
	out = case_tensor(&c, rows * cols, dtype, 1);
	index = case_tensor(&c, rows, DTYPE_I32, 1);
	for (int64_t i = 0; i < rows; i++)
		tensor_set(index, i, (double)case_int(&c, 0, table_rows - 1));
	op.gather = (struct op_gather){tensor_addr(out), tensor_addr(table), tensor_addr(index), rows, cols,
	        table_rows, dtype, accumulate};
	case_run(&c, &op);
	for (int64_t i = 0; i < rows * cols; i++) {
		int64_t from = (int64_t)tensor_get(index, i / cols) * cols + i % cols;

		case_check(&c, out, i, tensor_get(table, from) + (accumulate ? tensor_was(out, i) : 0), 0,
		        "gather");
	}

	/* out is now dy */
	grad = case_tensor(&c, table_rows * cols, DTYPE_F32, 1);
	scratch = case_tensor(&c, rows + table_rows + 1, DTYPE_I32, 1);
	skip = case_int(&c, 0, 1) ? -1 : case_int(&c, 0, table_rows - 1);
	memset(out->written, 0, (size_t)out->count);
	op = (struct op){.kind = OP_EMBED_GRAD};
	op.embed_grad = (struct op_embed_grad){tensor_addr(grad), tensor_addr(out), tensor_addr(index),
	        tensor_addr(scratch), rows, cols, table_rows, skip, dtype};
	case_run(&c, &op);
	for (int64_t i = 0; i < table_rows * cols; i++) {
		float want = (float)tensor_was(grad, i); /* fp32, in the order that is promised: to the bit */

		for (int64_t r = 0; r < rows; r++)
			if ((int64_t)tensor_get(index, r) == i / cols && i / cols != skip)
				want += (float)tensor_get(out, r * cols + i % cols);
		case_check(&c, grad, i, want, 0, "grad");
		assert_true(tensor_get(grad, i) == want);
	}
	case_forget(scratch);
	case_end(&c);
}

static void test_embed(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(120); seed++)
		embed_try(seed);
}

static void test_scatter(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(100); seed++) {
		struct ops_case c;
		struct tensor *out, *x, *index;
		struct op op = {.kind = OP_SCATTER};
		int64_t rows, cols, out_rows, first, step;
		enum dtype dtype;

		case_begin(&c, "scatter", seed);
		rows = case_size(&c, 60);
		cols = case_size(&c, 150);
		step = case_int(&c, 1, 3);
		first = case_int(&c, 0, 5);
		out_rows = first + rows * step;
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
			case_check(&c, out, (int64_t)tensor_get(index, i / cols) * cols + i % cols,
			        tensor_get(x, i), 0, "out");
		case_end(&c);
	}
}

static void test_sumsq(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(100); seed++) {
		struct ops_case c;
		struct tensor *partial, *x;
		struct op op = {.kind = OP_SUMSQ};
		int64_t count, blocks;
		enum dtype dtype;

		case_begin(&c, "sumsq", seed);
		count = seed % 20 ? case_size(&c, 600) : case_int(&c, 65530, 200000);
		blocks = (count + 65535) / 65536;
		dtype = compute_dtype(&c);
		x = case_tensor(&c, count, dtype, 1);
		partial = case_tensor(&c, blocks, DTYPE_F64, 1);
		op.sumsq = (struct op_sumsq){tensor_addr(partial), tensor_addr(x), count, dtype};
		case_run(&c, &op);
		for (int64_t b = 0; b < blocks; b++) {
			double want = 0;

			for (int64_t i = b * 65536; i < count && i < (b + 1) * 65536; i++)
				want += tensor_get(x, i) * tensor_get(x, i);
			case_check(&c, partial, b, want, 1e-12 * want, "partial");
		}
		case_end(&c);
	}
}

/* The op's pieces give the bits of one span; adamw itself is tested with optim. */
static void test_adamw(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(30); seed++) {
		struct ops_case c;
		struct tensor *hi, *lo, *m, *v, *grad;
		struct op op = {.kind = OP_ADAMW};
		struct adamw_options options = {0.9, 0.95, 1e-8, 0.1};
		struct adamw_step step;
		struct adamw_span span;
		enum adamw_isa isa;
		enum dtype dtype;
		int64_t count;

		case_begin(&c, "adamw", seed);
		count = seed % 5 ? case_size(&c, 600) : case_int(&c, 16000, 70000);
		dtype = compute_dtype(&c);
		hi = case_tensor(&c, count, DTYPE_BF16, 1);
		lo = case_tensor(&c, count, DTYPE_I16, 1);
		m = case_tensor(&c, count, DTYPE_F32, 0.1);
		v = case_tensor(&c, count, DTYPE_F32, 0.1);
		grad = case_tensor(&c, count, dtype, 1);
		for (int64_t i = 0; i < count; i++)
			tensor_set(v, i, fabs(tensor_get(v, i)));
		adamw_step_init(&step, &options, 1e-3, 3, 0.5);
		op.adamw = (struct op_adamw){.hi = tensor_addr(hi),
		        .lo = tensor_addr(lo),
		        .m = tensor_addr(m),
		        .v = tensor_addr(v),
		        .grad = tensor_addr(grad),
		        .count = count,
		        .decay = (int)(seed & 1),
		        .grad_dtype = dtype,
		        .beta1 = step.beta1,
		        .one_minus_beta1 = step.one_minus_beta1,
		        .beta2 = step.beta2,
		        .one_minus_beta2 = step.one_minus_beta2,
		        .decay_factor = step.decay_factor,
		        .rsqrt_correction2 = step.rsqrt_correction2,
		        .step_size = step.step_size,
		        .epsilon = step.epsilon,
		        .clip_scale = step.clip_scale};
		case_run(&c, &op);
		span = (struct adamw_span){(uint16_t *)(hi->first + hi->offset),
		        (int16_t *)(lo->first + lo->offset), (float *)(m->first + m->offset),
		        (float *)(v->first + v->offset), grad->first + grad->offset, count, (int)(seed & 1),
		        dtype == DTYPE_F32 ? GRAD_F32 : GRAD_BF16};
		if (count > 100)
			assert_memory_not_equal(hi->first, hi->block, (size_t)hi->bytes);
		check_ok(adamw_isa_find(&isa, "auto"));
		adamw_update(&span, &step, isa);
		case_end(&c); /* now `first` holds what the op must have made of it */
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_fill_copy),
	        cmocka_unit_test(test_cast),
	        cmocka_unit_test(test_rounding),
	        cmocka_unit_test(test_join),
	        cmocka_unit_test(test_add),
	        cmocka_unit_test(test_colsum),
	        cmocka_unit_test(test_embed),
	        cmocka_unit_test(test_scatter),
	        cmocka_unit_test(test_sumsq),
	        cmocka_unit_test(test_adamw),
	};

	return cmocka_run_group_tests(tests, ops_setup, ops_teardown);
}
