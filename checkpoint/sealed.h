/* A JSON object in a file whose last line is a checksum of everything above it: a file that was cut or
 * damaged is told from a whole one before anything in it is believed.
 */
#ifndef FERRY_CHECKPOINT_SEALED_H
#define FERRY_CHECKPOINT_SEALED_H

#include "base/json.h"

/* One line for each key; takes the place of a file that is there. `root` NULL: out of memory. */
int sealed_write(const char *path, json_t *root);

/* ERR_INPUT: damaged, or no object; ERR_IO, ERR_NOMEM. *root is the caller's. */
int sealed_read(json_t **root, const char *path);

#endif
