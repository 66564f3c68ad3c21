/* The scanner of a safetensors header: JSON text to tensors and metadata, one byte looked at after another.
 *
 * It knows the grammar and the fields, not the layout: that the ranges tile the file is checked by
 * safetensors_parse. Strings are decoded in place and end with NUL, so the text is used up.
 */
#ifndef FERRY_CHECKPOINT_SAFETENSORS_HEADER_H
#define FERRY_CHECKPOINT_SAFETENSORS_HEADER_H

#include "checkpoint/safetensors.h"

/* Fills tensors (in the order of the text, begin_bytes counted from the first data byte) and metadata of
 * `file`, whose path, header and header_bytes are set. */
int safetensors_header_scan(struct safetensors *file);

/* ERR_INPUT "PATH: byte OFFSET: ..." for a place in the header (a pointer into it). */
int safetensors_header_fail(const struct safetensors *file, const char *place, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

#endif
