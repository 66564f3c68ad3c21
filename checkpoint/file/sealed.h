/* A JSON object in a file with a checksum of everything above as its last line. Reading detects a cut or
 * damaged file before it uses the contents. */
#ifndef FERRY_CHECKPOINT_FILE_SEALED_H
#define FERRY_CHECKPOINT_FILE_SEALED_H

#include "base/json.h"

/* Writes one line for each key; replaces an existing file. `root` NULL: out of memory. */
int sealed_write(const char *path, json_t *root);

/* ERR_INPUT: damaged, or not an object; ERR_IO, ERR_NOMEM. *root is the caller's. */
int sealed_read(json_t **root, const char *path);

#endif
