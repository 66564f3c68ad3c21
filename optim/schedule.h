/* Learning-rate schedules: the formulas and the step counting of transformers.get_scheduler.
 *
 * The rate is a pure function of the step and the settings.
 */
#ifndef FERRY_OPTIM_SCHEDULE_H
#define FERRY_OPTIM_SCHEDULE_H

#include <stdint.h>

enum schedule_kind {
	SCHEDULE_LINEAR,
	SCHEDULE_COSINE,
	SCHEDULE_CONSTANT,
	SCHEDULE_CONSTANT_WITH_WARMUP,
	SCHEDULE_COSINE_WITH_MIN_LR,
	SCHEDULE_POLYNOMIAL,
};

struct lr_schedule {
	enum schedule_kind kind;
	double learning_rate, min_lr_rate;
	int64_t warmup_steps, total_steps;
	double polynomial_power,
	        polynomial_end; /* 0 = transformers' own: 1 and 1e-7 (a rate, not a factor) */
};

/* Rate of optimizer step `step`, counted from 1 (transformers' counter is step - 1, so the first step of a
 * warm-up has rate 0). Beyond total_steps, as in transformers: linear gives 0, polynomial its end, the
 * cosines continue. SCHEDULE_CONSTANT has no warm-up. */
double lr_schedule_rate(const struct lr_schedule *s, int64_t step);

#endif
