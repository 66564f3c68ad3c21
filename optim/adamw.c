/* AdamW: the widest kernels that this CPU runs, and the scalars of a step. */
#include "optim/adamw.h"

#include "optim/adamw_isa.h"

#include "base/cpu.h"
#include "base/err.h"
#include "base/num.h"

#include <math.h>
#include <string.h>

enum { ROUNDING_STREAM = 0x41646d57 }; /* of the run's seed; no other use of it has this number */

struct isa {
	const char *name;
	void (*update)(const struct adamw_span *span, const struct adamw_step *step);
	void (*sumsq)(double *partial, const void *grad, int64_t count, enum dtype dtype);
};

static const struct isa isas[ADAMW_ISA_COUNT] = {
        [ADAMW_ISA_SCALAR] = {"scalar", adamw_update_scalar, sumsq_blocks_scalar},
#ifdef __x86_64__
        [ADAMW_ISA_AVX2] = {"avx2", adamw_update_avx2, sumsq_blocks_avx2},
        [ADAMW_ISA_AVX512] = {"avx512", adamw_update_avx512, sumsq_blocks_avx512},
#else
        [ADAMW_ISA_AVX2] = {"avx2", NULL, NULL},
        [ADAMW_ISA_AVX512] = {"avx512", NULL, NULL},
#endif
#ifdef __aarch64__
        [ADAMW_ISA_NEON] = {"neon", adamw_update_neon, sumsq_blocks_neon},
#else
        [ADAMW_ISA_NEON] = {"neon", NULL, NULL},
#endif
};

/* The compiler's runtime reads CPUID and, for the vector registers, XGETBV: what the system saves counts. */
static int cpu_has(enum adamw_isa isa)
{
#ifdef __x86_64__
	if (isa == ADAMW_ISA_AVX2)
		return cpu_has_avx2();
	if (isa == ADAMW_ISA_AVX512)
		return cpu_has_avx2() && __builtin_cpu_supports("avx512f") &&
		       __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
		       __builtin_cpu_supports("avx512vl");
#endif
#ifdef __aarch64__
	if (isa == ADAMW_ISA_NEON) /* part of the baseline */
		return 1;
#endif
	return isa == ADAMW_ISA_SCALAR;
}

const char *adamw_isa_name(enum adamw_isa isa)
{
	return isas[isa].name;
}

int adamw_isa_find(enum adamw_isa *isa, const char *name)
{
	char here[64] = "";

	for (int i = ADAMW_ISA_COUNT - 1; i >= 0; i--) {
		if (!cpu_has(i))
			continue;
		if (strcmp(name, "auto") == 0 || strcmp(name, isas[i].name) == 0) {
			*isa = i;
			return 0;
		}
		strcat(strcat(here, ", "), isas[i].name);
	}
	return err_set(ERR_INPUT, "isa=%s is not supported by this CPU; supported: auto%s", name, here);
}

void adamw_step_init(struct adamw_step *step, const struct adamw_options *o, double learning_rate,
        int64_t update_count, double clip_scale)
{
	double correction1 = 1 - pow(o->beta1, (double)update_count);
	double correction2 = 1 - pow(o->beta2, (double)update_count);
	double per_step = correction1 / learning_rate, factor = per_step / sqrt(correction2);

	*step = (struct adamw_step){
	        .one_minus_beta1 = (float)(1 - o->beta1),
	        .one_minus_beta2 = (float)(1 - o->beta2),
	        .decay_factor = (float)(1 - learning_rate * o->weight_decay),
	        .root_factor = (float)-fmin(factor, FLT_MAX), /* a root of 0 times it is 0 */
	        .root_offset = learning_rate == 0 ? -INFINITY : (float)(-per_step * o->epsilon),
	        .clip_scale = (float)clip_scale,
	        .least_grad = (float)(1.000001 * sqrt(FLT_MIN / (1 - o->beta2))),
	        .rounding_key = rng_u64(o->seed, ROUNDING_STREAM, (uint64_t)update_count),
	        .offset_m = (uint32_t)update_count * 0x6a09e667u, /* the root of 2 */
	        .offset_r = (uint32_t)update_count * 0x9e3779b9u, /* the golden ratio */
	};
}

void adamw_span_advance(struct adamw_span *span, int64_t count)
{
	int state_bytes = adamw_state_bytes(span->state);

	span->hi += count;
	span->lo += count;
	span->m = (char *)span->m + count * state_bytes;
	span->v = (char *)span->v + count * state_bytes;
	if (adamw_state_has_scales(span->state)) {
		span->m_scale += count / adamw_state_block(span->state);
		span->v_scale += count / adamw_state_block(span->state);
	}
	span->grad = (const char *)span->grad + count * dtype_bytes(span->grad_dtype);
	span->first += count;
	span->count -= count;
}

void adamw_update(const struct adamw_span *span, const struct adamw_step *step, enum adamw_isa isa)
{
	isas[isa].update(span, step);
}

void sumsq_blocks(double *partial, const void *grad, int64_t count, enum dtype dtype, enum adamw_isa isa)
{
	isas[isa].sumsq(partial, grad, count, dtype);
}

double clip_scale_of(double norm, double max_norm)
{
	double scale;

	if (max_norm == 0)
		return 1;
	scale = max_norm / (norm + 1e-6);
	return scale < 1 ? scale : 1;
}
