#define KERNEL(name) name##_avx512
#include "optim/adamw_isa.h"
void adamw_update_avx512(const struct adamw_span *span, const struct adamw_step *step)
{
	adamw_update_scalar(span, step);
}
#include "optim/sumsq_kernel.inc"
