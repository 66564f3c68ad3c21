/* Finds the files of a data set, in the order in which ferry reads them.
 *
 *     rows.jsonl                 the file; - is standard input; a pipe is read like a file
 *     data/                      the data files in the folder and its subfolders, by name
 *     "data/part-*.parquet"      the files that match, by name
 *
 * Folders follow HuggingFace's convention: a file's name or its folder's may contain train, validation
 * (valid, val, dev) or test (eval). Then ferry takes only the files of the wanted split. It ignores hidden
 * files, README.md and files of other kinds.
 */
#ifndef FERRY_DATA_SOURCE_FILES_H
#define FERRY_DATA_SOURCE_FILES_H

#include <stddef.h>

struct files {
	char **paths;
	size_t count, cap_count;
};

/* Appends the files of `spec` to *f. split: "train", "validation" or "test". If no name in a folder
 * contains a split, FILES_SPLIT_DEFAULT takes all files. ERR_INPUT: nothing there, no data file in the
 * folder, or none of that split (the message names the existing splits). */
enum files_split { FILES_SPLIT_DEFAULT, FILES_SPLIT_ASKED };
int files_split_check(const char *split); /* ERR_INPUT: no such split */
int files_find(struct files *f, const char *spec, const char *split, enum files_split want);
void files_free(struct files *f);

/* 1 for a file of text instead of records: .txt or .md, compressed or not. */
int file_is_text(const char *path);

#endif
