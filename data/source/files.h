/* From what a user names as data to the files it stands for, in the order in which they are read.
 *
 *     rows.jsonl                 the file; - is standard input; a pipe is read like a file
 *     data/                      the data files in the folder and the folders in it, by name
 *     "data/part-*.parquet"      the files that match, by name
 *
 * Folders follow HuggingFace's convention: where a file's name or its folder's says train, validation (valid,
 * val, dev) or test (eval), only the files of the wanted split are taken. Hidden files, README.md and files
 * of other kinds are left out.
 */
#ifndef FERRY_DATA_SOURCE_FILES_H
#define FERRY_DATA_SOURCE_FILES_H

#include <stddef.h>

struct files {
	char **paths;
	size_t count, cap_count;
};

/* Appends the files of `spec` to *f. split: "train", "validation" or "test". Of a folder where no name says a
 * split, FILES_SPLIT_DEFAULT takes all files. ERR_INPUT: nothing there, no data file in the folder, or none
 * of that split (the message names the splits that there are). */
enum files_split { FILES_SPLIT_DEFAULT, FILES_SPLIT_ASKED };
int files_find(struct files *f, const char *spec, const char *split, enum files_split want);
void files_free(struct files *f);

/* A file of text, not of records: .txt or .md, packed or not. */
int file_is_text(const char *path);

#endif
