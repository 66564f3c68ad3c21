/* The model's files as results need them.
 *
 * A result has the names of the files that the model was read from, and what they hold besides the model, byte for
 * byte (checkpoint/hf_layout.h). So rank 0 keeps such files open until the end, checkpoints name them by a hash,
 * and a resumed run opens them again.
 */
#ifndef FERRY_TRAIN_SESSION_FILES_H
#define FERRY_TRAIN_SESSION_FILES_H

#include "train/session.h"

#define SESSION_CARRIED "carried" /* key of the training state in checkpoints: the hash of such files */

/* Whether any result or checkpoint of a run has more than the table's tensors. */
int session_keeps_whole(const struct config *c);

/* How the files hold the model; NULL: as a result without them does, or they are not open. */
const struct hf_layout *session_layout(const struct session *s);

/* 1 if the files must stay open after the weights are loaded. */
int session_needs_files(const struct session *s);

/* Notes the hash of the files, or compares it with that of `resumed`, a checkpoint's training state (NULL: a new run).
 * Call with the files open. ERR_INPUT: other weights. */
int session_find_files(struct session *s, const json_t *resumed);

/* ERR_INPUT if the files are no longer those of session_find_files. */
int session_check_files(const struct session *s);

#endif
