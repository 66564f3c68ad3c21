/* Adapters of a run: which, what they begin with, where they go. */
#ifndef FERRY_TRAIN_ADAPTERS_H
#define FERRY_TRAIN_ADAPTERS_H

#include "checkpoint/file/plane_io.h"
#include "train/session.h"

/* Adds the adapters of lora_adapter or lora_rank to the session's model, once. */
int session_adapt(struct session *s);

/* The pattern of names that train: the adapters, and what the keys trainable and lora_modules_to_save name
 * (mem_free). */
int adapters_pattern(char **pattern, const struct session *s);

/* Reads the weights into these ranges: the model's from its files, the adapters' from lora_adapter or new
 * ones. For ranks_load; context: the session. */
int session_read_weights(
        void *context, const struct plane_sink *sink, const struct plane_range *ranges, int64_t range_count);

/* Whether checkpoints leave the frozen weights to the model's files: with pretrained weights always, unless
 * the run resumed a checkpoint that has them. */
int session_leaves_base(const struct session *s);

/* Marks the tensors that the model's files keep for the run (in_files), which memory may have rounded. Call
 * once it is known what trains, before units are made. */
void adapters_find_base(struct session *s);

/* 1 if the engine has any rounded; a result then needs the files again. */
int session_rounds(const struct session *s);

/* A source of exact weights: those of `planes`, and of the model's files where memory has them rounded.
 * `overlay` is its room. */
struct overlay;
const struct plane_source *adapters_exact(
        struct overlay *overlay, const struct session *s, const struct plane_source *planes);

/* Finds the hash of the model's files, which checkpoints name, or compares it with that of `resumed`, a
 * checkpoint's training state (NULL: a new run). Call with the files open. ERR_INPUT: other weights. */
int adapters_check_base(struct session *s, const json_t *resumed);

/* Sets the adapters' B to zero, or to the values of lora_adapter again: the model without them, and with. */
enum adapters_state { ADAPTERS_OFF, ADAPTERS_ON };
int adapters_switch(struct session *s, enum adapters_state state);

/* ---- magnitudes (DoRA; magnitudes.c) ---- */

/* Puts those of these ranges that are magnitudes: they begin as the norms of the rows of their matrices, as
 * training computes with them. Reads the matrices from the model's files. */
int magnitudes_load(const struct session *s, const struct plane_sink *sink, const struct plane_range *ranges,
        int64_t range_count);

/* Refuses runs of DoRA whose first magnitudes would not be exact, and matrices that train themselves. Call
 * once it is known what trains and how matrices are kept. */
int magnitudes_check(const struct session *s);

/* ---- files that results need ----
 *
 * A result has the names of the files that the model was read from, and what they hold besides the model,
 * byte for byte (checkpoint/hf/hf_layout.h). So rank 0 keeps such files open until the end, checkpoints name
 * them by a hash, and a resumed run opens them again. */
#define SESSION_CARRIED "carried" /* key of the training state in checkpoints: the hash of such files */

/* Whether any result or checkpoint of a run has more than the table's tensors. */
int session_keeps_whole(const struct config *c);

/* How the files hold the model; NULL: as a result without them does, or they are not open. */
const struct hf_layout *session_layout(const struct session *s);

/* 1 if the files must stay open after the weights are loaded. */
int session_needs_files(const struct session *s);

/* Notes the hash of the files, or compares it with that of `resumed`, a checkpoint's training state (NULL: a
 * new run). Call with the files open. ERR_INPUT: other weights. */
int session_find_files(struct session *s, const json_t *resumed);

/* ERR_INPUT if the files are no longer those of session_find_files. */
int session_check_files(const struct session *s);

#endif
