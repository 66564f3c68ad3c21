/* The files of a model's directory besides its weights: config.json, the tokenizer's files, chat templates.
 *
 * They are read once, before a run's first step, and kept as bytes. What checkpoints and exports need of them
 * is then in memory, whatever becomes of the directory they came from, and what is wrong with one of them is
 * known before anything was trained. side_file_is is the one list of their names.
 *
 *     side_files_read(&side, model, tokenizer);
 *     hf_chat_apply(&chat, &side);             (checkpoint/hf_chat.h)
 *     side_files_write(&side, DIR);            for each checkpoint and export
 */
#ifndef FERRY_CHECKPOINT_SIDE_FILES_H
#define FERRY_CHECKPOINT_SIDE_FILES_H

#include "base/json.h"

#include <stddef.h>
#include <stdint.h>

struct side_file {
	char *name, *data;
	size_t len_bytes;
};

/* Zero-initialised: none. */
struct side_files {
	struct side_file *files;
	int count;
};

/* What they take of memory. */
int64_t side_files_bytes(const struct side_files *side);

/* Is this the name of such a file? */
int side_file_is(const char *name);

/* model: a directory, or a config.json of any name, beside which the model's other files lie. tokenizer: the
 * same of a tokenizer.json or tokenizer.model, NULL: the model's. Files without one of these names are passed
 * over, and hidden ones; one whose name is not UTF-8 too, with a warning. ERR_INPUT: a link that leads out of
 * its directory or nowhere, a file that cannot be read; ERR_IO, ERR_NOMEM. After an error there are none. */
int side_files_read(struct side_files *side, const char *model, const char *tokenizer);

/* Each into the existing directory `to`, fsynced; the directory is not. NULL: none. */
int side_files_write(const struct side_files *side, const char *to);

/* NULL: there is none of that name. Valid until side_files_put or free. */
const struct side_file *side_files_find(const struct side_files *side, const char *name);

/* Replaces or adds a file; takes `data` (mem_free), also after an error. */
int side_files_put(struct side_files *side, const char *name, char *data, size_t len_bytes);

/* The object in such a file; *object is NULL, with 0, where there is no such file. ERR_INPUT: no object. */
int side_files_object(json_t **object, const struct side_files *side, const char *name);
int side_files_put_object(struct side_files *side, const char *name, const json_t *object);

/* The model has a head of its own, whatever config.json says so far: it says so from here on. */
int side_files_untie(struct side_files *side);

void side_files_free(struct side_files *side);

#endif
