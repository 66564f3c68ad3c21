/* Saves a checkpoint beside training steps: the slow parts of checkpoint/save.h run on their own thread.
 *
 * Mental model. start makes the directory and returns. The thread reads the source and writes the files. The
 * source makes it wait for missing data, and learns which tensors were read (file/plane_io.h). With one rank
 * the thread continues alone until the checkpoint is complete and older ones are removed.
 *
 * With several ranks, all ranks must call the collective parts at the same place. After each step each rank
 * calls is_ready, and the ranks agree on the result. If all are ready, all call advance, which is short. The
 * thread itself calls no collective function.
 *
 * The thread runs at a lower priority, so it takes little time from busy cores. An update waits for it only
 * if it would change planes that are not saved yet. Its files are bit for bit those of checkpoint_save.
 */
#ifndef FERRY_CHECKPOINT_SAVER_H
#define FERRY_CHECKPOINT_SAVER_H

#include "checkpoint/save.h"

struct checkpoint_saver;

/* Collective. Copies `save`; the objects that it points to are borrowed until the saver is freed. */
int checkpoint_saver_start(struct checkpoint_saver **saver, const struct checkpoint_save *save);

/* 1 if advance and finish will not wait for this rank's thread. */
int checkpoint_saver_is_ready(const struct checkpoint_saver *saver);

/* Collective; waits for the thread. *state DONE: the save is complete, and finish returns at once. Errors as
 * checkpoint_save, but nothing is repeated; after an error only finish works. */
enum checkpoint_saver_state { CHECKPOINT_SAVER_RUNS, CHECKPOINT_SAVER_DONE };
int checkpoint_saver_advance(struct checkpoint_saver *saver, enum checkpoint_saver_state *state);

/* Collective: advances to the end, gives path (mem_free; NULL allowed) or the error, and frees the saver.
 * The caller must ensure that the source does not wait forever. */
int checkpoint_saver_finish(struct checkpoint_saver *saver, char **path);

/* Waits for this rank's thread and frees the saver, without the other ranks. No checkpoint appears, and the
 * next save removes the files. NULL is allowed. */
void checkpoint_saver_abandon(struct checkpoint_saver *saver);

#endif
