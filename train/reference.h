/* Preference training: the reference, which is the model before the first step.
 *
 * Its log probability of each row is computed once, before the first step, and kept in
 * output_dir/reference.safetensors: F64 "train" and "eval", a number for each row. A resumed run reads them
 * from there, beside its checkpoint. The file's metadata say how they were computed, and have a checksum of
 * everything; each checkpoint has that checksum too, so neither damage nor another run's file goes unseen.
 */
#ifndef FERRY_TRAIN_REFERENCE_H
#define FERRY_TRAIN_REFERENCE_H

#include "train/run_dir/run_dir.h"
#include "train/session.h"

/* Without a loss of pairs that has a reference, the first three do nothing.
 *
 * reference_compute finds them with the weights as they are; reference_read reads them from `dir` (on rank
 * 0), for a checkpoint with this training state. Both collective. ERR_INPUT: they are missing, damaged, of
 * another run, of other rows or of another preference_reference; the text says what to do. */
int reference_compute(struct session *s);
int reference_read(struct session *s, const json_t *training, const char *dir);

/* Writes the file into `dir`. Rank 0. */
int reference_write(struct session *s, const char *dir);

/* Checks the file in `dir` for a checkpoint with this training state. ERR_INPUT: missing, damaged, another
 * run's. */
int reference_verify(const char *dir, const json_t *training);

#endif
