/* Saves that fail.
 *
 * As long as the weights in memory are good, a save that fails ends nothing: training goes on and the save is
 * made anew, of the step that has been reached by then; at the next step, then after 1 s, 2 s, 4 s and so on
 * up to 5 minutes, and whenever save_steps asks for one. The user is told once of each kind of failure, and
 * when saving works again.
 */
#ifndef FERRY_TRAIN_SAVE_TROUBLE_H
#define FERRY_TRAIN_SAVE_TROUBLE_H

#include <stdint.h>

enum { SAVE_TROUBLE_KINDS = 8 };

/* Zero-initialised: all is well. The same on all ranks, but for the times. */
struct save_trouble {
	int in_row;
	int64_t retry_ns;                  /* rank 0: not before that */
	uint64_t told[SAVE_TROUBLE_KINDS]; /* kinds, since the last success */
	int told_count;
};

/* The weights cannot be had any more: a device lost its memory, a rank is gone, a bug. */
int save_trouble_is_lasting(int rc);

/* A save of `step` failed with `rc` and this thread's text. 0: it is to be made anew. Or `rc`, which is
 * lasting. */
int save_trouble_take(struct save_trouble *s, int64_t step, int rc);

/* A save succeeded. */
void save_trouble_end(struct save_trouble *s);

/* 1: it is time for another try; 0; or an error. Collective where a save has failed. */
int save_trouble_is_due(const struct save_trouble *s);

/* Before try `number` (from 1 on) of a save that cannot be put off: 1 s, 2 s, 4 s; shorter where a further
 * signal comes. */
void save_trouble_wait(int number, int (*signal)(int64_t steps_left));

#endif
