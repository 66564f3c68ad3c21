/* Learning rates by step. */
#include "optim/schedule.h"

#include <math.h>

/* transformers/optimization.py: each expression in its order of operations, so that rates agree to the bit
 * where the C library's cos does. */

static double at_least_1(int64_t steps)
{
	return steps > 1 ? (double)steps : 1.0;
}

static double polynomial(const struct lr_schedule *s, int64_t done)
{
	double end = s->polynomial_end != 0 ? s->polynomial_end : 1e-7;
	double power = s->polynomial_power != 0 ? s->polynomial_power : 1;
	double remaining;

	if (s->learning_rate == 0)
		return 0;
	if (done > s->total_steps)
		return end / s->learning_rate;
	remaining = 1 - (double)(done - s->warmup_steps) / at_least_1(s->total_steps - s->warmup_steps);
	return ((s->learning_rate - end) * pow(remaining, power) + end) / s->learning_rate;
}

static double factor(const struct lr_schedule *s, int64_t done)
{
	double span = at_least_1(s->total_steps - s->warmup_steps);
	double progress = (double)(done - s->warmup_steps) / span;
	double cosine = 0.5 * (1 + cos(M_PI * progress));

	if (s->kind == SCHEDULE_CONSTANT)
		return 1;
	if (done < s->warmup_steps)
		return (double)done / at_least_1(s->warmup_steps);
	switch (s->kind) {
	case SCHEDULE_LINEAR:
		return fmax(0, (double)(s->total_steps - done) / span);
	case SCHEDULE_COSINE:
		return fmax(0, cosine);
	case SCHEDULE_COSINE_WITH_MIN_LR:
		return fmax(0, cosine * (1 - s->min_lr_rate) + s->min_lr_rate);
	case SCHEDULE_POLYNOMIAL:
		return polynomial(s, done);
	case SCHEDULE_CONSTANT:
	case SCHEDULE_CONSTANT_WITH_WARMUP:
		break;
	}
	return 1;
}

double lr_schedule_rate(const struct lr_schedule *s, int64_t step)
{
	return s->learning_rate * factor(s, step - 1);
}
