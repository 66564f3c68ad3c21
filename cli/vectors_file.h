/* A file of vectors, one a row: .npy, .jsonl or .parquet by its name. It appears whole, or not at all. */
#ifndef FERRY_CLI_VECTORS_FILE_H
#define FERRY_CLI_VECTORS_FILE_H

#include <stdint.h>

/* 1 if the name ends as one of these, in upper or lower case. */
int vectors_file_is_known(const char *path);

struct vectors_file;

/* Of `rows` vectors of `width` fp32 numbers. ERR_NOMEM, ERR_INPUT, ERR_IO, ERR_UNSUPPORTED. */
int vectors_file_open(struct vectors_file **f, const char *path, int64_t rows, int64_t width);
int vectors_file_add(struct vectors_file *f, const float *row);

/* Completes the file and gives it its name. */
int vectors_file_end(struct vectors_file *f);

/* Removes what is not complete, and keeps the error text. NULL is allowed. */
void vectors_file_close(struct vectors_file *f);

#endif
