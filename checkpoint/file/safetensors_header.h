/* The scanner of a safetensors header: JSON text to tensors and metadata, byte by byte.
 *
 * It checks the grammar and the fields. safetensors_parse checks that the ranges tile the file. Strings are
 * decoded in place and end with NUL, which overwrites the text.
 */
#ifndef FERRY_CHECKPOINT_FILE_SAFETENSORS_HEADER_H
#define FERRY_CHECKPOINT_FILE_SAFETENSORS_HEADER_H

#include "checkpoint/file/safetensors.h"

/* Fills tensors and metadata of `file`; path, header and header_bytes must be set. Tensors are in the order
 * of the text, and begin_bytes counts from the first data byte. */
int safetensors_header_scan(struct safetensors *file);

/* ERR_INPUT "PATH: byte OFFSET: ..." for a place in the header (a pointer into it). */
int safetensors_header_fail(const struct safetensors *file, const char *place, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

#endif
