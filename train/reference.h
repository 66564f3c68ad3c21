/* Preference training: the reference, which is the model before the first step.
 *
 * Its log probability of each row is computed once, before the first step, and kept in
 * output_dir/reference.safetensors: F64 "train" and "eval", a number for each row. A resumed run reads them
 * from there, beside its checkpoint.
 */
#ifndef FERRY_TRAIN_REFERENCE_H
#define FERRY_TRAIN_REFERENCE_H

#include "train/session.h"

#define REFERENCE_NAME "reference.safetensors"

/* Computes them with the weights as they are or, for a resumed run, reads them from `dir` (on rank 0).
 * Without a loss of pairs both do nothing. Collective. ERR_INPUT: they are missing, or of other rows. */
int reference_find(struct session *s, int is_resumed, const char *dir);
int reference_write(struct session *s, const char *output_dir);

#endif
