/* A save that runs beside the steps: checkpoint/save.h's parts, those that take long on a thread of their
 * own.
 *
 * Mental model. start makes the directory and returns; the thread reads the source (which makes it wait for
 * what is not there yet, and is told what has been read, checkpoint/plane_io.h) and writes. In a world of one
 * the thread goes on alone until the checkpoint stands and older ones are gone. In a larger world the
 * collective parts must be called by all ranks at the same place: whoever owns the ranks asks at each step's
 * border whether this rank is_ready, agrees with the others on that, and where all are, all call advance,
 * which is short. The thread itself calls nothing of the world's.
 *
 * The thread runs at a lower priority: where all cores compute it takes little of them, and what it must not
 * be late for, updates wait for. The files that it writes are bit for bit those of checkpoint_save.
 */
#ifndef FERRY_CHECKPOINT_SAVER_H
#define FERRY_CHECKPOINT_SAVER_H

#include "checkpoint/save.h"

struct checkpoint_saver;

/* Collective. What `save` points to is borrowed until the saver is gone, `save` itself is copied. */
int checkpoint_saver_start(struct checkpoint_saver **saver, const struct checkpoint_save *save);

/* 1 where advance and finish will not have to wait for this rank's thread. */
int checkpoint_saver_is_ready(const struct checkpoint_saver *saver);

/* Collective; waits for the thread. *state DONE: nothing is left, finish returns at once. Errors as
 * checkpoint_save, except that nothing is tried again; after one only finish is of use. */
enum checkpoint_saver_state { CHECKPOINT_SAVER_RUNS, CHECKPOINT_SAVER_DONE };
int checkpoint_saver_advance(struct checkpoint_saver *saver, enum checkpoint_saver_state *state);

/* Collective: advances to the end, gives path (mem_free; NULL allowed) or the error, and frees the saver. The
 * caller sees to it that the source does not wait for ever. */
int checkpoint_saver_finish(struct checkpoint_saver *saver, char **path);

/* Waits for this rank's thread and frees the saver, without the others: no checkpoint comes of it, and what
 * was written is left for the next save to remove. NULL is allowed. */
void checkpoint_saver_abandon(struct checkpoint_saver *saver);

#endif
