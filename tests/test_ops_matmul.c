/* links: host_cpu */
/* also: tsan cuda */
/* Matrix products against fp64: layouts, strides, bias, accumulation. */
#include "tests/product_case.h"

#ifndef FERRY_TEST_CUDA
#include "base/num.h"
#include "base/size.h"
#include "host/cpu/kernels.h"
#include "host/cpu/matmul.h"
#include "host/cpu/matmul_amx.h"
#include "host/cpu/matmul_avx2.h"
#include "host/cpu/matmul_avx512bf16.h"
#include "host/cpu/matmul_bfmmla.h"

#include <float.h>
#include <unistd.h>
#endif

static void product_random(struct product *p, uint64_t seed, int64_t high)
{
	struct ops_case c;

	case_begin(&c, "matmul", seed + 1000000);
	*p = (struct product){.m = case_size(&c, high), .n = case_size(&c, high), .k = case_size(&c, high)};
	p->a_layout = case_int(&c, 0, 1) ? MATMUL_TRANSPOSED : MATMUL_NORMAL;
	p->b_layout = case_int(&c, 0, 1) ? MATMUL_TRANSPOSED : MATMUL_NORMAL;
	p->ab_dtype = case_int(&c, 0, 1) ? DTYPE_BF16 : DTYPE_F32;
	p->c_dtype = p->ab_dtype == DTYPE_BF16 && case_int(&c, 0, 1) ? DTYPE_BF16 : DTYPE_F32;
	p->accumulate = (int)case_int(&c, 0, 1);
	p->bias = !p->accumulate && case_int(&c, 0, 1);
	p->gaps = (int)case_int(&c, 0, 1);
}

static void test_random_shapes(void **state)
{
	struct product p;

	(void)state;
	for (uint64_t seed = 0; seed < case_count(160); seed++) {
		product_random(&p, seed, seed % 8 ? 40 : 200);
		product_try(&p, seed);
	}
}

/* Shapes that are cut: by rows, by columns, along k, with borders in the middle of a tile. */
static void test_cut_shapes(void **state)
{
	static const int64_t shapes[][3] = {{300, 700, 30}, {513, 97, 65}, {40, 1100, 520}, {33, 65, 4500},
	        {96, 48, 9001}, {2000, 1, 300}, {1, 1, 5000}, {69, 24, 63}, {129, 1, 63}};
	struct product p;

	(void)state;
	for (uint64_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
		for (uint64_t variant = 0; variant < 4; variant += (uint64_t)sparing(4)) {
			product_random(&p, 5000 + 4 * i + variant, 8);
			p.m = shapes[i][0];
			p.n = shapes[i][1];
			p.k = shapes[i][2];
			p.ab_dtype = p.c_dtype == DTYPE_BF16 || variant & 1 ? DTYPE_BF16 : DTYPE_F32;
			product_try(&p, i);
		}
}

/* A token over a cache: few rows, with every layout and ends within a vector. */
static void test_few_rows(void **state)
{
	static const int64_t columns[][2] = {{700, 64}, {65, 1031}, {1, 33}, {300, 4101}, {2100, 31}};
	struct product p;

	(void)state;
	for (uint64_t i = 0; i < sizeof columns / sizeof *columns; i++)
		for (uint64_t variant = 0; variant < 32; variant += (uint64_t)sparing(3)) {
			product_random(&p, 6000 + 32 * i + variant, 8);
			p.m = 1 + (int64_t)variant % 4, p.n = columns[i][0], p.k = columns[i][1];
			p.a_layout = variant / 16 ? MATMUL_TRANSPOSED : MATMUL_NORMAL;
			p.b_layout = variant / 8 % 2 ? MATMUL_NORMAL : MATMUL_TRANSPOSED;
			p.ab_dtype = p.c_dtype == DTYPE_BF16 || variant / 4 % 2 ? DTYPE_BF16 : DTYPE_F32;
			product_try(&p, i);
		}
}

#ifndef FERRY_TEST_CUDA
/* ---- who multiplies ---- */

static const char *choice_name(const struct matmul_choice *choice)
{
	static char name[64];

	snprintf(name, sizeof name, "%s %s%s", choice->library, choice->kernels,
	        choice->widens ? " widened" : "");
	return name;
}

/* Of CPUs and libraries that are not here. */
static void test_choice(void **state)
{
#define BASE MATMUL_SIMD_BASE
#define AVX2 MATMUL_SIMD_AVX2
#define AVX512 MATMUL_SIMD_AVX512
#define NEON MATMUL_SIMD_NEON
	static const struct {
		struct matmul_facts facts;
		const char *f32, *bf16, *warning;
	} rows[] = {
	        {{AVX512, AVX512, "Prescott", 1, 1, 0, NULL, "Prescott"}, "oneDNN AVX-512",
	                "oneDNN AVX-512 widened",
	                "OPENBLAS_CORETYPE=Prescott makes OpenBLAS use its Prescott kernels, which leave out "
	                "this CPU's AVX-512; unset it"},
	        {{AVX512, AVX2, "Haswell", 0, 0, 0, NULL, "Haswell"}, "ferry AVX2", "ferry AVX2 widened",
	                "OPENBLAS_CORETYPE=Haswell makes"},
	        {{AVX512, AVX512, "Prescott", 1, 1, 0, NULL, NULL}, "oneDNN AVX-512",
	                "oneDNN AVX-512 widened", "OpenBLAS is older than this CPU"},
	        {{AVX512, AVX512, "SkylakeX", 0, 0, 0, NULL, NULL}, "oneDNN AVX-512",
	                "oneDNN AVX-512 widened", ""},
	        {{AVX512, AVX2, "SkylakeX", 1, 0, 0, NULL, NULL}, "OpenBLAS SkylakeX", "ferry AVX512-BF16",
	                ""},
	        {{AVX512, AVX512, "Zen", 1, 0, 0, NULL, NULL}, "oneDNN AVX-512", "ferry AVX512-BF16",
	                "OpenBLAS is older"},
	        {{AVX512, AVX2, "Haswell", 0, 0, 0, NULL, NULL}, "ferry AVX2", "ferry AVX2 widened",
	                "do not use this CPU's AVX-512; install newer"},
	        {{AVX512, AVX2, "Haswell", 1, 0, 0, NULL, NULL}, "ferry AVX2", "ferry AVX512-BF16",
	                "install newer"},
	        {{AVX512, AVX2, "Haswell", 1, 1, 0, NULL, NULL}, "ferry AVX2", "ferry AVX2 widened",
	                "install newer"},
	        {{AVX2, AVX2, "ZEN", 0, 0, 0, NULL, NULL}, "ferry AVX2", "ferry AVX2 widened", ""},
	        {{AVX2, AVX2, "Prescott", 0, 0, 0, NULL, NULL}, "ferry AVX2", "ferry AVX2 widened", ""},
	        {{BASE, BASE, "Prescott", 0, 0, 0, "avx2", NULL}, "OpenBLAS Prescott",
	                "OpenBLAS Prescott widened", ""},
	        {{AVX2, AVX2, "Zen", 0, 0, 0, "openblas", NULL}, "OpenBLAS Zen", "OpenBLAS Zen widened", ""},
	        {{NEON, BASE, "neoversen1", 0, 0, 0, NULL, NULL}, "OpenBLAS neoversen1",
	                "OpenBLAS neoversen1 widened", ""},
	        {{NEON, BASE, "armv8", 0, 0, MATMUL_MATRIX_BFMMLA, NULL, NULL}, "OpenBLAS armv8",
	                "ferry BFMMLA", ""},
	        {{NEON, BASE, "neoversev1", 0, 0, MATMUL_MATRIX_BFMMLA, "openblas", NULL},
	                "OpenBLAS neoversev1", "OpenBLAS neoversev1 widened", ""},
	        {{NEON, BASE, "neoversen1", 0, 0, 0, "avx2", NULL}, "OpenBLAS neoversen1",
	                "OpenBLAS neoversen1 widened", ""},
	        {{AVX512, AVX512, "Cooperlake", 1, 0, 0, "openblas", NULL}, "OpenBLAS Cooperlake",
	                "OpenBLAS Cooperlake widened", ""},
	        {{AVX512, AVX512, "Prescott", 1, 1, MATMUL_MATRIX_AMX, NULL, NULL}, "oneDNN AVX-512",
	                "ferry AMX", "OpenBLAS is older than this CPU"},
	        {{AVX512, AVX2, "SkylakeX", 1, 1, MATMUL_MATRIX_AMX, NULL, NULL}, "OpenBLAS SkylakeX",
	                "ferry AMX", ""},
	        {{AVX512, AVX512, "Cooperlake", 1, 1, MATMUL_MATRIX_AMX, "onednn", NULL}, "oneDNN AVX-512",
	                "oneDNN AVX-512 widened", ""},
	        {{AVX512, AVX512, "Cooperlake", 1, 0, 0, "onednn", NULL}, "oneDNN AVX-512",
	                "oneDNN AVX-512 widened", ""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct matmul_choice choice;

		matmul_choose(&choice, &rows[i].facts, DTYPE_F32);
		assert_string_equal(choice_name(&choice), rows[i].f32);
		assert_non_null(strstr(choice.warning, rows[i].warning));
		assert_int_equal(!choice.warning[0], !rows[i].warning[0]);
		matmul_choose(&choice, &rows[i].facts, DTYPE_BF16);
		assert_string_equal(choice_name(&choice), rows[i].bf16);
	}
#undef BASE
#undef AVX2
#undef AVX512
#undef NEON
}

/* This process was told what to expect by the one that started it. */
static void test_expected(void **state)
{
	(void)state;
	assert_string_equal(choice_name(matmul_choice(DTYPE_F32)), getenv("TEST_EXPECTS"));
}

/* Every product again with other cores of OpenBLAS and fewer instructions of oneDNN, in processes of their
 * own: both libraries look at the environment once. */
static void test_forced(void **state)
{
	static const struct {
		const char *environment, *expects;
		int needs_avx512;
	} rows[] = {
	        {"OPENBLAS_CORETYPE=Prescott", "oneDNN AVX-512", 1},
	        {"OPENBLAS_CORETYPE=SkylakeX ONEDNN_MAX_CPU_ISA=AVX2", "OpenBLAS SkylakeX", 1},
	        {"OPENBLAS_CORETYPE=Haswell ONEDNN_MAX_CPU_ISA=AVX2", "ferry AVX2", 0},
	        {"FERRY_MATMUL=avx2", "ferry AVX2", 0},
	        {"OPENBLAS_CORETYPE=Haswell FERRY_MATMUL=openblas", "OpenBLAS Haswell", 0},
	        {"ONEDNN_MAX_CPU_ISA=AVX2 FERRY_MATMUL=onednn", "oneDNN AVX2", 0},
	        {"ONEDNN_MAX_CPU_ISA=AVX512_CORE FERRY_MATMUL=onednn", "oneDNN AVX-512", 1},
	};
	int avx512 = cpu_kernels_find("avx512") != NULL, avx2 = cpu_kernels_find("avx2") != NULL;
	char self[4096] = {0}, command[8192];

	(void)state;
	assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		if (!avx2 || (rows[i].needs_avx512 && !avx512)) {
			print_message("SKIPPED %s: this CPU lacks it\n", rows[i].environment);
			continue;
		}
		if (SANITIZED && i != 3) /* starts itself once: each takes as long as all of the tests */
			continue;
		snprintf(command, sizeof command,
		        "env -u FERRY_MATMUL %s FERRY_TEST_SPARING=%d TEST_EXPECTS='%s' '%s' >&2",
		        rows[i].environment, SANITIZED ? 4 : 1, rows[i].expects, self);
		print_message("%s\n", command);
		assert_int_equal(system(command), 0);
	}
}

#if defined(__x86_64__) || defined(__aarch64__)
enum { OWN_SIDE = 280, OWN_DEPTH = 800, OWN_COUNT = OWN_SIDE * OWN_DEPTH };

static float operand_at(
        const void *x, int64_t row, int64_t col, int64_t stride, enum matmul_layout layout, enum dtype dtype)
{
	int64_t at = layout == MATMUL_NORMAL ? row * stride + col : col * stride + row;

	return dtype == DTYPE_F32 ? ((const float *)x)[at] : bf16_to_f32(((const uint16_t *)x)[at]);
}

/* A product of random size and layout; want: what c must become. */
struct own_case {
	float out[OWN_SIDE * OWN_SIDE], want[OWN_SIDE * OWN_SIDE];
	const void *a, *b;
	enum matmul_layout a_layout, b_layout;
	int64_t m, n, k, a_stride, b_stride, c_stride;
	int accumulate;
};

static void own_case_draw(struct own_case *p, struct ops_case *c, const void *a, const void *b)
{
	p->a = a;
	p->b = b;
	p->a_layout = (enum matmul_layout)case_int(c, 0, 1);
	p->b_layout = (enum matmul_layout)case_int(c, 0, 1);
	p->m = case_int(c, 1, OWN_SIDE);
	p->n = case_int(c, 1, 140);
	p->k = case_int(c, 1, OWN_DEPTH);
	p->a_stride = p->a_layout == MATMUL_NORMAL ? p->k : p->m;
	p->b_stride = p->b_layout == MATMUL_NORMAL ? p->n : p->k;
	p->c_stride = case_int(c, (int)p->n, OWN_SIDE);
	p->accumulate = (int)case_int(c, 0, 1);
	for (int i = 0; i < OWN_SIDE * OWN_SIDE; i++)
		p->out[i] = p->want[i] = p->accumulate ? (float)case_normal(c) : NAN;
}

static float factor_a(const struct own_case *p, int64_t i, int64_t l, enum dtype dtype)
{
	return operand_at(p->a, i, l, p->a_stride, p->a_layout, dtype);
}

static float factor_b(const struct own_case *p, int64_t l, int64_t j, enum dtype dtype)
{
	return operand_at(p->b, l, j, p->b_stride, p->b_layout, dtype);
}

typedef float part_sum(const struct own_case *p, int64_t i, int64_t j, int64_t at, int64_t end);

/* A product of bf16 to the bit: sums over parts of k of `depth`, each as sum_of has it; then the same rounded
 * to bf16. Nothing beside c is written, and c is not read where nothing is added. */
static void bf16_check(
        struct ops_case *c, const uint16_t *h, matmul_bf16 *product, int64_t depth, part_sum *sum_of)
{
	static struct own_case p;
	static uint16_t rounded[OWN_SIDE * OWN_SIDE];
	struct matmul_product arguments;

	own_case_draw(&p, c, h, h + OWN_COUNT);
	for (int64_t i = 0; i < p.m; i++)
		for (int64_t j = 0; j < p.n; j++)
			for (int64_t at = 0; at < p.k; at += depth) {
				float sum = sum_of(&p, i, j, at, min_i64(p.k, at + depth)),
				      *to = p.want + i * p.c_stride + j;

				*to = at || p.accumulate ? *to + sum : sum;
			}
	arguments = (struct matmul_product){.c = p.out,
	        .a = p.a,
	        .b = p.b,
	        .m = p.m,
	        .n = p.n,
	        .k = p.k,
	        .c_stride = p.c_stride,
	        .rounded_stride = p.c_stride,
	        .a_stride = p.a_stride,
	        .b_stride = p.b_stride,
	        .a_layout = p.a_layout,
	        .b_layout = p.b_layout,
	        .accumulate = p.accumulate};
	product(&arguments);
	assert_memory_equal(p.out, p.want, sizeof p.out);
	if (p.accumulate)
		return;
	memset(rounded, 0xa5, sizeof rounded);
	arguments.rounded = rounded;
	product(&arguments);
	for (int64_t i = 0; i < OWN_SIDE; i++)
		for (int64_t j = 0; j < OWN_SIDE; j++) {
			int64_t at = i * p.c_stride + j;
			int is_in_c = i < p.m && j < p.n;

			if (is_in_c || (j < p.c_stride && at < OWN_SIDE * OWN_SIDE))
				assert_int_equal(rounded[at], is_in_c ? bf16_from_f32(p.want[at]) : 0xa5a5);
		}
}

#if defined(__x86_64__)
static int has_avx512bf16(void)
{
	__builtin_cpu_init();
	return cpu_kernels_find("avx512") && __builtin_cpu_supports("avx512bf16");
}

static const char *own_lacks(void)
{
	return !cpu_kernels_find("avx2") ? "AVX2, AVX512-BF16 and AMX"
	       : !has_avx512bf16()       ? "AVX512-BF16 and AMX"
	       : !matmul_amx_is_here()   ? "AMX"
	                                 : NULL;
}

/* The sums of matmul_avx2.h to the bit, nothing beside c, and c that is not read where nothing is added. */
static void avx2_check(struct ops_case *c, const void *a, const void *b, enum dtype dtype)
{
	static struct own_case p;
	float alpha;

	own_case_draw(&p, c, a, b);
	alpha = case_int(c, 0, 1) ? 1 : 0.3f;
	for (int64_t i = 0; i < p.m; i++)
		for (int64_t j = 0; j < p.n; j++)
			for (int64_t at = 0; at < p.k; at += MATMUL_AVX2_DEPTH) {
				float sum = 0, *to = p.want + i * p.c_stride + j;

				for (int64_t l = at; l < min_i64(p.k, at + MATMUL_AVX2_DEPTH); l++)
					sum = fmaf(factor_a(&p, i, l, dtype), factor_b(&p, l, j, dtype), sum);
				*to = at || p.accumulate ? fmaf(alpha, sum, *to) : alpha * sum;
			}
	matmul_avx2(p.out, a, b, p.m, p.n, p.k, p.c_stride, p.a_stride, p.b_stride, p.a_layout, p.b_layout,
	        dtype, alpha, p.accumulate);
	assert_memory_equal(p.out, p.want, sizeof p.out);
}

/* The sum over a part of k as matmul_amx.h has it. */
static float amx_sum(const struct own_case *p, int64_t i, int64_t j, int64_t at, int64_t end)
{
	float sum = 0;

	for (int64_t step = at; step < end; step += 32) {
		float half[2] = {0};

		for (int64_t l = step; l < min_i64(end, step + 32); l++)
			half[l % 2] = fmaf(
			        factor_a(p, i, l, DTYPE_BF16), factor_b(p, l, j, DTYPE_BF16), half[l % 2]);
		sum += half[0] + half[1];
	}
	return sum;
}

/* The sum over a part of k as matmul_avx512bf16.h has it. */
static float avx512bf16_sum(const struct own_case *p, int64_t i, int64_t j, int64_t at, int64_t end)
{
	float sum = 0;

	for (int64_t l = at; l < end; l += 2)
		for (int64_t odd = min_i64(l + 1, end - 1); odd >= l; odd--)
			sum = fmaf(factor_a(p, i, odd, DTYPE_BF16), factor_b(p, odd, j, DTYPE_BF16), sum);
	return sum;
}

static void own_check(struct ops_case *c, const float *x, const uint16_t *h)
{
	if (cpu_kernels_find("avx2")) {
		avx2_check(c, x, x + OWN_COUNT, DTYPE_F32);
		avx2_check(c, h, h + OWN_COUNT, DTYPE_BF16);
	}
	if (has_avx512bf16())
		bf16_check(c, h, matmul_avx512bf16, MATMUL_AVX512BF16_DEPTH, avx512bf16_sum);
	if (matmul_amx_is_here())
		bf16_check(c, h, matmul_amx, MATMUL_AMX_DEPTH, amx_sum);
}
#else
static const char *own_lacks(void)
{
	return !matmul_bfmmla_is_here() ? "BFMMLA" : NULL;
}

static float without_subnormal(float x)
{
	return fabsf(x) < FLT_MIN ? copysignf(0, x) : x;
}

/* Rounded to odd; rest is what the sum in double lost. */
static float odd_sum(float x, float y)
{
	double sum = (double)x + y, part = sum - x, rest = (x - (sum - part)) + (y - part);
	float cut = (float)sum;
	int inexact = cut != sum || rest != 0;

	if (fabs((double)cut) > fabs(sum) || (cut == sum && rest * sum < 0))
		cut = nextafterf(cut, 0);
	return without_subnormal(inexact ? f32_from_bits(f32_bits(cut) | 1) : cut);
}

/* The sum over a part of k as matmul_bfmmla.h has it. */
static float bfmmla_sum(const struct own_case *p, int64_t i, int64_t j, int64_t at, int64_t end)
{
	float sum = 0;

	for (int64_t step = at; step < end; step += 2) {
		float term[2] = {0};

		for (int64_t l = step; l < min_i64(end, step + 2); l++)
			term[l - step] = without_subnormal(without_subnormal(factor_a(p, i, l, DTYPE_BF16)) *
			                                   without_subnormal(factor_b(p, l, j, DTYPE_BF16)));
		sum = odd_sum(sum, odd_sum(term[0], term[1]));
	}
	return sum;
}

static void own_check(struct ops_case *c, const float *x, const uint16_t *h)
{
	(void)x;
	if (matmul_bfmmla_is_here())
		bf16_check(c, h, matmul_bfmmla, MATMUL_BFMMLA_DEPTH, bfmmla_sum);
}
#endif

static void test_own_bits(void **state)
{
	float *x = mem_alloc(2 * OWN_COUNT, sizeof *x);
	uint16_t *h = mem_alloc(2 * OWN_COUNT, sizeof *h);
	struct ops_case c;

	(void)state;
	assert_non_null(x);
	assert_non_null(h);
	case_begin(&c, "avx2", 5);
	for (int i = 0; i < 2 * OWN_COUNT; i++) {
		x[i] = (float)case_normal(&c);
		if (matmul_bfmmla_is_here() && i % 37 == 0) /* too small, alone or as a product */
			x[i] *= i % 2 ? 0x1p-130f : 0x1p-70f;
		h[i] = bf16_from_f32(x[i]);
	}
	if (own_lacks())
		print_message("SKIPPED products by %s: this CPU lacks it\n", own_lacks());
	for (uint64_t round = 0; round < case_count(24); round++)
		own_check(&c, x, h);
	mem_free(x);
	mem_free(h);
}
#endif
#endif

/* NaN and infinity in an operand reach c. */
static void test_nonfinite(void **state)
{
	for (int bf16 = 0; bf16 < 2; bf16++) {
		enum dtype dtype = bf16 ? DTYPE_BF16 : DTYPE_F32;
		struct ops_case c;
		struct tensor *a, *b, *out;
		struct op op = {.kind = OP_MATMUL};

		(void)state;
		case_begin(&c, "nonfinite", 3);
		a = case_tensor(&c, 64, dtype, 1);
		b = case_tensor(&c, 64, dtype, 1);
		out = case_tensor(&c, 64, DTYPE_F32, 1);
		tensor_set(a, 8 * 2 + 3, NAN);
		tensor_set(a, 8 * 5 + 1, INFINITY);
		op.matmul = (struct op_matmul){.c = tensor_addr(out),
		        .a = tensor_addr(a),
		        .b = tensor_addr(b),
		        .m = 8,
		        .n = 8,
		        .k = 8,
		        .a_stride = 8,
		        .b_stride = 8,
		        .c_stride = 8,
		        .ab_dtype = dtype};
		case_run(&c, &op);
		for (int64_t j = 0; j < 8; j++) {
			assert_true(isnan(tensor_get(out, 8 * 2 + j)));
			assert_false(isfinite(tensor_get(out, 8 * 5 + j)));
			assert_true(isfinite(tensor_get(out, 8 * 4 + j)));
		}
		case_forget(out);
		case_end(&c);
	}
}

int main(void)
{
#ifndef FERRY_TEST_CUDA
	int is_started = getenv("TEST_EXPECTS") != NULL;
#endif
	/* clang-format off */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_shapes),
		cmocka_unit_test(test_cut_shapes),
		cmocka_unit_test(test_few_rows),
		cmocka_unit_test(test_nonfinite),
#ifndef FERRY_TEST_CUDA
		cmocka_unit_test(test_choice),
#if defined(__x86_64__) || defined(__aarch64__)
		cmocka_unit_test(test_own_bits),
#endif
		{"test_forced or test_expected", is_started ? test_expected : test_forced, NULL, NULL, NULL},
#endif
	};
	/* clang-format on */

	return cmocka_run_group_tests(tests, ops_setup, ops_teardown);
}
