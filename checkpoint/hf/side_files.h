/* The files of a model's directory besides its weights: config.json, the tokenizer's files, chat templates,
 * the settings of image processors.
 *
 * ferry reads them once, before a run's first step, and keeps their bytes. So checkpoints and exports do not
 * depend on the original directory, and errors in these files show before training. side_file_is is the one
 * list of their names.
 *
 *     side_files_read(&side, model, tokenizer);
 *     hf_chat_apply(&chat, &side);             (checkpoint/hf/hf_chat.h)
 *     side_files_write(&side, DIR);            for each checkpoint and export
 */
#ifndef FERRY_CHECKPOINT_HF_SIDE_FILES_H
#define FERRY_CHECKPOINT_HF_SIDE_FILES_H

#include "base/json.h"

#include <stddef.h>
#include <stdint.h>

/* A file of a folder, such as 1_Pooling/config.json of sentence-transformers, is called
 * 1_Pooling@config.json. Only results have the folders. */
#define SIDE_FILE_FOLDER "@"

struct side_file {
	char *name, *data;
	size_t len_bytes;
};

/* Zero-initialised: none. */
struct side_files {
	struct side_file *files;
	int count;
};

/* Their memory in bytes. */
int64_t side_files_bytes(const struct side_files *side);

/* 1 if this is the name of such a file. */
int side_file_is(const char *name);

/* 1 if it says how a model that also reads images or sound takes them. */
int side_file_is_of_processor(const char *name);

/* model: a directory, or a config.json of any name with the model's other files beside it. tokenizer: the
 * same for a tokenizer.json or tokenizer.model; NULL: the model's. Skips hidden files and files with other
 * names; also, with a warning, names that are not UTF-8. ERR_INPUT: a broken link, a link out of its
 * directory, or an unreadable file; ERR_IO, ERR_NOMEM. *side is empty after an error. */
int side_files_read(struct side_files *side, const char *model, const char *tokenizer);

/* Writes each file but `without` (NULL: all) into the existing directory `to` and fsyncs it, but not the
 * directory. side NULL: no files. */
int side_files_write(const struct side_files *side, const char *to, const char *without);

/* The same into a result, with folders. */
int side_files_write_result(const struct side_files *side, const char *to, const char *without);

/* 1 if this is the name of a folder that side_files_write_result makes. */
int side_folder_is(const char *name);

/* NULL: no file with this name. Valid until side_files_put or free. */
const struct side_file *side_files_find(const struct side_files *side, const char *name);

/* Replaces or adds a file; takes `data` (mem_free), also after an error. */
int side_files_put(struct side_files *side, const char *name, char *data, size_t len_bytes);

/* Reads the JSON object in a file. Returns 0 with *object NULL if there is no such file. ERR_INPUT: not an
 * object. */
int side_files_object(json_t **object, const struct side_files *side, const char *name);
int side_files_put_object(struct side_files *side, const char *name, const json_t *object);

void side_files_free(struct side_files *side);

#endif
