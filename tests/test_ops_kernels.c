/* links: host_cpu */
/* also: usual */
/* Kernels of every instruction set against the scalar kernels. */
#include "host/cpu/kernels.h"
#include "tests/ops_check.h"

/* Every kernel of every table this CPU runs against the scalar one: the same bits, and nothing beyond n. */
enum { N_MAX = 700, ARRAYS = 6 };

struct arrays {
	float x[ARRAYS][N_MAX + 8];
	double acc[N_MAX + 8], result[4];
	uint16_t h[N_MAX + 8];
};

static void arrays_fill(struct arrays *a, struct ops_case *c)
{
	memset(a, 0, sizeof *a);
	for (int i = 0; i < N_MAX + 8; i++) {
		for (int n = 0; n < ARRAYS; n++)
			a->x[n][i] = (float)(case_normal(c) * (case_int(c, 0, 9) ? 2 : 40));
		if (case_int(c, 0, 50) == 0)
			a->x[case_int(c, 0, ARRAYS - 1)][i] = case_int(c, 0, 1) ? INFINITY : NAN;
		a->acc[i] = case_normal(c);
		a->h[i] = (uint16_t)case_int(c, 0, 65535);
	}
}

static void run_elementwise(
        const struct cpu_kernels *k, struct arrays *a, int64_t n, int which, enum act_kind act)
{
	float **x = (float *[]){a->x[0], a->x[1], a->x[2], a->x[3], a->x[4], a->x[5]};

	switch (which) {
	case 0:
		k->widen(x[0], a->h, n);
		break;
	case 1:
		k->narrow(a->h, x[0], n);
		break;
	case 2:
		k->join(x[0], a->h, (const int16_t *)a->h + 1, n);
		break;
	case 3:
		k->add(x[0], x[0], x[1], n);
		break;
	case 4:
		k->scale(x[0], x[1], 0.7f, n);
		break;
	case 5:
		k->act(x[0], x[1], n, act);
		break;
	case 6:
		k->act_grad(x[0], x[0], x[1], n, act);
		break;
	case 7:
		k->glu(x[0], x[1], x[2], n, act);
		break;
	case 8:
		k->glu_grad(x[1], x[2], x[0], x[1], x[2], n, act);
		break;
	case 9:
		k->norm(x[0], x[1], x[2], x[3], n, 0.1f, 1.3f);
		break;
	case 10:
		k->norm_dx(x[0], x[0], x[1], x[2], n, 0.1f, 1.3f, 0.2f, 0.3f);
		break;
	case 11:
		k->norm_dw(x[0], x[1], x[2], x[3], n, 0.1f, 1.3f);
		break;
	case 12:
		k->rotate(x[0], x[1], x[2], x[3], n);
		break;
	case 13:
		k->exp_scaled(x[0], x[1], 0.3f, 1.7f, n);
		break;
	case 14:
		k->softmax_grad(x[0], x[1], x[2], 0.4f, 0.6f, n);
		break;
	case 15:
		k->soft_cap(x[0], x[1], 1.5f, n);
		break;
	case 16:
		k->soft_cap_grad(x[0], x[1], 30.0f, n);
		break;
	case 17:
		k->glu_limited(x[0], x[1], x[2], n, 1.702f, 1.5f);
		break;
	case 18:
		k->glu_limited_grad(x[1], x[2], x[0], x[1], x[2], n, 1.702f, 1.5f);
		break;
	case 19:
		k->turns_split(x[0], x[1], x[2], n / 2);
		break;
	case 20:
		k->turns_join(x[0], x[1], x[2], n / 2);
		break;
	case 21:
		k->keep_largest(x[0], (int32_t *)x[1], x[2], 7, n);
		break;
	default:
		fail_msg("no kernel %d", which);
	}
}

static void run_sum(const struct cpu_kernels *k, struct arrays *a, int64_t n, int which)
{
	switch (which) {
	case 22:
		a->result[0] = k->sum(a->x[0], n);
		break;
	case 23:
		a->result[0] = k->sumsq_about(a->x[0], n, 0.3);
		break;
	case 24:
		a->result[0] = k->dot(a->x[0], a->x[1], n);
		break;
	case 25:
		k->accumulate(a->acc, a->x[0], n);
		break;
	case 26:
		k->norm_sums(a->result, a->x[0], a->x[1], a->x[2], n, 0.1f, 1.3f);
		break;
	case 27:
		a->result[0] = (double)k->max(a->x[0], n);
		break;
	case 28:
		a->result[0] = k->softmax_part(a->x[0], a->x[1], 0.5f, n);
		break;
	case 29:
		a->result[0] = k->narrow_sumsq((uint16_t *)a->x[1], a->x[0], n);
		break;
	case 30:
		a->result[0] = k->exp_sum(a->x[0], 0.5f, n);
		break;
	case 31:
		a->result[0] = (double)k->dot_bf16(a->h, a->h + 1, n);
		break;
	default:
		fail_msg("no kernel %d", which);
	}
}

enum { FIRST_SUM = 22, KERNELS = 32 };

/* NaN may carry another sign or payload: all of them become one. */
static void canonical(struct arrays *a)
{
	for (int n = 0; n < ARRAYS; n++)
		for (int i = 0; i < N_MAX + 8; i++)
			a->x[n][i] = isnan(a->x[n][i]) ? NAN : a->x[n][i];
	for (int i = 0; i < N_MAX + 8; i++)
		a->acc[i] = isnan(a->acc[i]) ? NAN : a->acc[i];
	for (int i = 0; i < 4; i++)
		a->result[i] = isnan(a->result[i]) ? NAN : a->result[i];
}

static void test_same_bits(void **state)
{
	static const char *const names[] = {"avx2", "avx512"};
	static struct arrays start, scalar, wide;
	struct ops_case c;

	(void)state;
	case_begin(&c, "kernels", 11);
	for (size_t t = 0; t < sizeof names / sizeof *names; t++) {
		const struct cpu_kernels *k = cpu_kernels_find(names[t]);

		if (!k) {
			print_message("SKIPPED %s kernels: this CPU lacks them\n", names[t]);
			continue;
		}
		for (int i = 0; i < 40 * KERNELS; i++) {
			int64_t n = case_int(&c, 0, 1) ? case_int(&c, 0, 40) : case_int(&c, 0, N_MAX);
			enum act_kind act = (enum act_kind)case_int(&c, 0, ACT_KIND_COUNT - 1);
			int which = i % KERNELS;

			arrays_fill(&start, &c);
			scalar = wide = start;
			if (which < FIRST_SUM) {
				run_elementwise(cpu_kernels_find("scalar"), &scalar, n, which, act);
				run_elementwise(k, &wide, n, which, act);
			} else {
				run_sum(cpu_kernels_find("scalar"), &scalar, n, which);
				run_sum(k, &wide, n, which);
			}
			canonical(&scalar);
			canonical(&wide);
			if (memcmp(&scalar, &wide, sizeof wide))
				fail_msg("%s: kernel %d, n %lld, act %d: other bits than scalar", names[t],
				        which, (long long)n, (int)act);
			for (int j = 0; j < ARRAYS; j++)
				for (int64_t e = n; e < N_MAX + 8; e++)
					assert_true(wide.x[j][e] == start.x[j][e] || isnan(start.x[j][e]));
		}
	}
}

/* Sums against long double: lanes of double, so the error does not grow with n in any way that fp32 sees. */
static void test_sums(void **state)
{
	static struct arrays a;
	struct ops_case c;

	(void)state;
	case_begin(&c, "sums", 12);
	for (int64_t n = 0; n < N_MAX; n += case_int(&c, 1, 9)) {
		long double sum = 0, square = 0, dot = 0;

		for (int64_t i = 0; i < n; i++) {
			a.x[0][i] = (float)case_normal(&c);
			a.x[1][i] = (float)case_normal(&c);
			sum += a.x[0][i];
			square += ((long double)a.x[0][i] - 0.25) * ((long double)a.x[0][i] - 0.25);
			dot += (long double)a.x[0][i] * a.x[1][i];
		}
		assert_true(fabsl(cpu_kernels()->sum(a.x[0], n) - sum) <= 1e-12);
		assert_true(fabsl(cpu_kernels()->sumsq_about(a.x[0], n, 0.25) - square) <= 1e-12);
		assert_true(fabsl(cpu_kernels()->dot(a.x[0], a.x[1], n) - dot) <= 1e-12);
	}
}

/* Products of bf16 against double: an error of n additions in fp32 at most. Odd addresses, and what follows
 * the n elements is NaN. */
static void test_dot_bf16(void **state)
{
	static uint16_t x[N_MAX + 2], y[N_MAX + 2];
	struct ops_case c;

	(void)state;
	case_begin(&c, "dot_bf16", 13);
	for (int64_t n = 0; n < N_MAX; n += case_int(&c, 1, 9)) {
		double sum = 0, size = 0, got;

		for (int64_t i = 0; i < n; i++) {
			x[i + 1] = bf16_from_f32((float)case_normal(&c));
			y[i] = bf16_from_f32((float)case_normal(&c));
			sum += (double)bf16_to_f32(x[i + 1]) * bf16_to_f32(y[i]);
			size += fabs((double)bf16_to_f32(x[i + 1]) * bf16_to_f32(y[i]));
		}
		x[n + 1] = y[n] = 0x7fc0;
		got = (double)cpu_kernels()->dot_bf16(x + 1, y, n);
		assert_true(fabs(got - sum) <= (double)n / 2 * EPS_F32 * size);
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

/* exp over its whole range, in every table: 1.5 units in the last place, 0 below the normal floats and
 * infinity above. */
static void test_exp(void **state)
{
	static const char *const names[] = {"scalar", "avx2", "avx512"};
	enum { N = 5000 };
	static float x[N], y[N];
	float odd[] = {-INFINITY, -1e30f, -90, 88.8f, 1e30f, INFINITY, NAN, 0, -0.0f}, out[9];

	(void)state;
	for (int i = 0; i < N; i++)
		x[i] = -103.0f + (float)i * (191.7f / N);
	for (size_t t = 0; t < sizeof names / sizeof *names; t++) {
		const struct cpu_kernels *k = cpu_kernels_find(names[t]);

		if (!k)
			continue;
		k->exp_scaled(y, x, 0, 1, N);
		for (int i = 0; i < N; i++)
			if (!(fabs(y[i] - exp(x[i])) <=
			            3.2 * EPS_F32 * exp(x[i]) + (x[i] < -87.3 ? 1.2e-38 : 0)))
				fail_msg("%s: exp(%.9g) = %.9g", names[t], x[i], y[i]);
		k->exp_scaled(out, odd, 0, 1, 9);
		assert_true(out[0] == 0 && out[1] == 0 && out[2] == 0);
		assert_true(isinf(out[3]) && isinf(out[4]) && isinf(out[5]) && isnan(out[6]));
		assert_true(out[7] == 1 && out[8] == 1);
	}
}

static void test_find(void **state)
{
	(void)state;
	assert_string_equal(cpu_kernels_find("scalar")->name, "scalar");
	assert_null(cpu_kernels_find("avx1024"));
	assert_true(cpu_kernels() == cpu_kernels_find(cpu_kernels()->name));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_same_bits),
	        cmocka_unit_test(test_sums),
	        cmocka_unit_test(test_dot_bf16),
	        cmocka_unit_test(test_rounding),
	        cmocka_unit_test(test_exp),
	        cmocka_unit_test(test_find),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
