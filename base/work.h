/* The long piece of work that this process does now, for whoever shows it: loading, or a step.
 *
 *     work_begin("loading weights", job_count);
 *     ... work_add(1);              from any thread
 *     work_end();
 *
 * One piece at a time; a second one takes the first one's place. Adding costs one atomic addition, and
 * nothing waits for a reader.
 */
#ifndef FERRY_BASE_WORK_H
#define FERRY_BASE_WORK_H

#include <stdint.h>

struct work_state {
	const char *what;
	int64_t done, total; /* 0 <= done <= total; total 0: unknown */
	/* of a step: passes over the layers; 0: no step */
	int layer, layer_count, micro, micro_count;
	int is_backward;
	double seconds; /* since it began */
};

/* `what` is a literal; work_step for a step. */
extern const char work_step[];
void work_begin(const char *what, int64_t total);
void work_add(int64_t done);
void work_end(void);

/* Where a step is: layer and micro-batch, from 1. */
void work_at(int layer, int layer_count, int micro, int micro_count, int is_backward);

/* 1, and the state, if there is work. */
int work_now(struct work_state *state);

#endif
