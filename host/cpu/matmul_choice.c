/* The choice of kernels for matrix products, and products of fp32 blocks by the chosen ones. */
#include "host/cpu/matmul.h"
#include "host/cpu/matmul_amx.h"
#include "host/cpu/matmul_avx2.h"
#include "host/cpu/matmul_bfmmla.h" /* IWYU pragma: keep */
#include "host/cpu/matmul_onednn.h"

#include <cblas.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* Replaces OpenBLAS's function, which reads OPENBLAS_NUM_THREADS and would start threads before main. ferry
 * does not use them. They map 128 MiB each, and under a limit on addresses (ulimit -v) they try for ever.
 */
__attribute__((visibility("default"), weak)) int openblas_num_threads_env(void);
int openblas_num_threads_env(void)
{
	return 1;
}

static const char *const simd_names[] = {
        [MATMUL_SIMD_BASE] = "baseline",
        [MATMUL_SIMD_NEON] = "NEON",
        [MATMUL_SIMD_AVX2] = "AVX2",
        [MATMUL_SIMD_AVX512] = "AVX-512",
};

/* OpenBLAS names the CPU whose kernels it uses. A CPU that it does not know gets the kernels of an old one.
 */
static enum matmul_simd openblas_simd(const char *core)
{
	static const struct {
		const char *core;
		enum matmul_simd simd;
	} cores[] = {
	        {"SkylakeX", MATMUL_SIMD_AVX512},
	        {"Cooperlake", MATMUL_SIMD_AVX512},
	        {"SapphireRapids", MATMUL_SIMD_AVX512},
	        {"Haswell", MATMUL_SIMD_AVX2},
	        {"Zen", MATMUL_SIMD_AVX2},
	};

	for (size_t i = 0; i < sizeof cores / sizeof *cores; i++)
		if (!strcasecmp(core, cores[i].core))
			return cores[i].simd;
	return MATMUL_SIMD_BASE;
}

/* OpenBLAS has other kernels than those that it was told to use. */
static int warn_coretype(struct matmul_choice *choice, const struct matmul_facts *f)
{
	if (!f->coretype || !*f->coretype)
		return 0;
	snprintf(choice->warning, sizeof choice->warning,
	        "OPENBLAS_CORETYPE=%.40s makes OpenBLAS use its %s kernels, which leave out this CPU's %s; "
	        "unset it",
	        f->coretype, f->openblas_core, simd_names[f->cpu]);
	return 1;
}

static void choose_f32(struct matmul_choice *choice, const struct matmul_facts *f)
{
	enum matmul_simd openblas = openblas_simd(f->openblas_core);

	if (f->cpu == MATMUL_SIMD_NEON) {
		choice->way = MATMUL_OPENBLAS;
		snprintf(choice->why, sizeof choice->why, "OpenBLAS has NEON kernels, oneDNN has none");
		return;
	}
	if (f->cpu >= MATMUL_SIMD_AVX2 && openblas <= MATMUL_SIMD_AVX2 && f->onednn <= MATMUL_SIMD_AVX2) {
		choice->way = MATMUL_AVX2;
		snprintf(choice->why, sizeof choice->why, "faster in AVX2 than OpenBLAS and oneDNN");
		if (f->cpu > MATMUL_SIMD_AVX2 && !warn_coretype(choice, f))
			snprintf(choice->warning, sizeof choice->warning,
			        "OpenBLAS (%s) and oneDNN (%s) do not use this CPU's %s; install newer ones",
			        f->openblas_core, simd_names[f->onednn], simd_names[f->cpu]);
		return;
	}
	/* if both use AVX-512, oneDNN is faster */
	choice->way = f->onednn > openblas || (f->onednn == openblas && f->onednn == MATMUL_SIMD_AVX512)
	                      ? MATMUL_ONEDNN
	                      : MATMUL_OPENBLAS;
	snprintf(choice->why, sizeof choice->why, "oneDNN has %s kernels here, OpenBLAS its %s kernels",
	        simd_names[f->onednn], f->openblas_core);
	if (openblas < f->cpu && !warn_coretype(choice, f))
		snprintf(choice->warning, sizeof choice->warning,
		        "OpenBLAS is older than this CPU: it would use its %s kernels", f->openblas_core);
}

static void choose_bf16(struct matmul_choice *choice, const struct matmul_facts *f)
{
	enum matmul_way f32 = choice->way;

	if (f->matrix) {
		choice->way = f->matrix == MATMUL_MATRIX_AMX ? MATMUL_AMX : MATMUL_BFMMLA;
		snprintf(choice->why, sizeof choice->why, "the CPU multiplies %s",
		        f->matrix == MATMUL_MATRIX_AMX ? "bf16 in a matrix unit" : "matrices of bf16");
		return;
	}
	choice->way = f->has_bf16_dot && !f->has_slow_bf16_dot ? MATMUL_AVX512BF16
	              : f32 == MATMUL_AVX2                     ? MATMUL_AVX2
	                                                       : MATMUL_WIDENED;
	snprintf(choice->why, sizeof choice->why, "%s",
	        choice->way == MATMUL_AVX512BF16 ? "the CPU multiplies bf16 in vectors"
	        : f->has_bf16_dot                ? "this CPU's vectors multiply fp32 twice as fast as bf16"
	                                         : "the CPU has no products of bf16");
}

/* Names a choice's library and kernels; for MATMUL_WIDENED those of fp32. */
static void name_way(struct matmul_choice *choice, const struct matmul_facts *f, enum matmul_way way)
{
	choice->library = way == MATMUL_OPENBLAS ? "OpenBLAS" : way == MATMUL_ONEDNN ? "oneDNN" : "ferry";
	choice->kernels = way == MATMUL_AVX2         ? simd_names[MATMUL_SIMD_AVX2]
	                  : way == MATMUL_AVX512BF16 ? "AVX512-BF16"
	                  : way == MATMUL_AMX        ? "AMX"
	                  : way == MATMUL_BFMMLA     ? "BFMMLA"
	                  : way == MATMUL_ONEDNN     ? simd_names[f->onednn]
	                                             : f->openblas_core;
}

void matmul_choose(struct matmul_choice *choice, const struct matmul_facts *facts, enum dtype dtype)
{
	static const struct {
		const char *wish;
		enum matmul_way f32, bf16;
		enum matmul_simd needs;
	} wishes[] = {
	        {"openblas", MATMUL_OPENBLAS, MATMUL_WIDENED, MATMUL_SIMD_BASE},
	        {"onednn", MATMUL_ONEDNN, MATMUL_WIDENED, MATMUL_SIMD_BASE},
	        {"avx2", MATMUL_AVX2, MATMUL_AVX2, MATMUL_SIMD_AVX2},
	};
	enum matmul_way f32;

	memset(choice, 0, sizeof *choice);
	choose_f32(choice, facts);
	f32 = choice->way;
	if (dtype == DTYPE_BF16) {
		choose_bf16(choice, facts);
		choice->warning[0] = 0; /* it is about fp32 */
	}
	for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++)
		if (facts->wish && !strcmp(facts->wish, wishes[i].wish) && facts->cpu >= wishes[i].needs) {
			f32 = wishes[i].f32;
			choice->way = dtype == DTYPE_BF16 ? wishes[i].bf16 : f32;
			snprintf(choice->why, sizeof choice->why, "set by FERRY_MATMUL");
		}
	choice->widens = dtype == DTYPE_BF16 && (choice->way == MATMUL_WIDENED || choice->way == MATMUL_AVX2);
	name_way(choice, facts, choice->way == MATMUL_WIDENED ? f32 : choice->way);
}

#if defined(__x86_64__)
static int has_fp16_vectors(void)
{
	unsigned a, b, c, d;

	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 23 & 1);
}
#endif

static void read_facts(struct matmul_facts *f)
{
	*f = (struct matmul_facts){.onednn = onednn_simd(),
	        .openblas_core = openblas_get_corename(),
	        .wish = getenv("FERRY_MATMUL"),
	        .coretype = getenv("OPENBLAS_CORETYPE")};
#if defined(__x86_64__)
	__builtin_cpu_init();
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
		f->cpu = MATMUL_SIMD_AVX512;
	else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		f->cpu = MATMUL_SIMD_AVX2;
	f->matrix = matmul_amx_is_here() ? MATMUL_MATRIX_AMX : MATMUL_MATRIX_NONE;
	f->has_bf16_dot = f->cpu == MATMUL_SIMD_AVX512 && __builtin_cpu_supports("avx512bf16");
	/* Intel CPUs since Sapphire Rapids, known by AVX512-FP16: a core does 84 GFLOP/s in bf16, 174 in fp32
	 */
	f->has_slow_bf16_dot = __builtin_cpu_is("intel") && has_fp16_vectors();
#elif defined(__aarch64__)
	f->cpu = MATMUL_SIMD_NEON;
	f->matrix = matmul_bfmmla_is_here() ? MATMUL_MATRIX_BFMMLA : MATMUL_MATRIX_NONE;
#endif
}

static struct matmul_choice choices[2]; /* for fp32, for bf16 */

static void choices_make(void)
{
	struct matmul_facts facts;

	openblas_set_num_threads(1);
	read_facts(&facts);
	matmul_choose(&choices[0], &facts, DTYPE_F32);
	matmul_choose(&choices[1], &facts, DTYPE_BF16);
}

const struct matmul_choice *matmul_choice(enum dtype dtype)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, choices_make);
	return &choices[dtype == DTYPE_BF16];
}

void cpu_sgemm(float *c, const float *a, const float *b, int64_t m, int64_t n, int64_t k, int64_t c_stride,
        int64_t a_stride, int64_t b_stride, enum matmul_layout a_layout, enum matmul_layout b_layout,
        float alpha, float beta)
{
	enum matmul_way way = matmul_choice(DTYPE_F32)->way;

	if (way == MATMUL_AVX2)
		matmul_avx2(c, a, b, m, n, k, c_stride, a_stride, b_stride, a_layout, b_layout, DTYPE_F32,
		        alpha, beta != 0);
	else if (way == MATMUL_ONEDNN)
		onednn_sgemm(c, a, b, m, n, k, c_stride, a_stride, b_stride, a_layout, b_layout, alpha, beta);
	else
		cblas_sgemm(CblasRowMajor, a_layout == MATMUL_NORMAL ? CblasNoTrans : CblasTrans,
		        b_layout == MATMUL_NORMAL ? CblasNoTrans : CblasTrans, (int)m, (int)n, (int)k, alpha,
		        a, (int)a_stride, b, (int)b_stride, beta, c, (int)c_stride);
}
