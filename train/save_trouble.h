/* Retries saves that fail.
 *
 * A failed save does not end the run as long as the weights in memory are good. Training goes on, and ferry
 * saves the then current step: at the next step, then after 1 s, 2 s, 4 s and so on up to 5 minutes, and at
 * every save_steps. It warns of the first failure of each kind, and again whenever the number of failures in
 * a row has doubled; it logs when saving works again.
 */
#ifndef FERRY_TRAIN_SAVE_TROUBLE_H
#define FERRY_TRAIN_SAVE_TROUBLE_H

#include <stdint.h>

enum { SAVE_TROUBLE_KINDS = 8 };

/* Zero-initialised: no failure. The same on all ranks except for the times. */
struct save_trouble {
	int in_row;
	int64_t retry_ns;                  /* rank 0: earliest time of the next try */
	uint64_t told[SAVE_TROUBLE_KINDS]; /* kinds reported since the last success */
	int told_count;
};

/* 1 if the weights are lost: a device lost its memory, a rank is gone, they are not finite, or a bug. */
int save_trouble_is_lasting(int rc);

/* Call if a save of `step` failed with `rc` and this thread's text; saved_step: of the newest checkpoint, -1
 * none. Returns 0 if the caller should retry, or a lasting `rc`. */
int save_trouble_take(struct save_trouble *s, int64_t step, int64_t saved_step, int rc);

/* Call after a successful save. */
void save_trouble_end(struct save_trouble *s);

/* 1 if it is time for another try, else 0, or an error. Collective if a save has failed. */
int save_trouble_is_due(const struct save_trouble *s);

/* Waits before try `number` (from 1) of a save that cannot be postponed: 1 s, 2 s, 4 s; less if another
 * signal comes. */
void save_trouble_wait(int number, int (*signal)(int64_t steps_left));

#endif
