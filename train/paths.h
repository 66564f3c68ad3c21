/* What a user writes for a path, made into the path that it stands for: ~/x, a name beside the configuration
 * file, a hub id that lies in the HuggingFace cache. */
#ifndef FERRY_TRAIN_PATHS_H
#define FERRY_TRAIN_PATHS_H

#include "base/str.h"
#include "config/config.h"

/* Resolves the values of path keys (config_key.path), before anything reads them:
 *
 * ~/x            x in the home directory x              in a configuration file, of what is read: x beside
 * that file, where the current directory
 *                  has none
 * ORG/NAME       of models and data: the snapshot in the HuggingFace cache, where no such path exists
 *
 * Other values stay unchanged. ERR_INPUT: the cache has several revisions, and none is main's.
 */
int paths_resolve(struct config *c);

/* Writes the configuration as a file with absolute paths, so that it means the same in every directory.
 * Values that are not paths (a built-in chat template, standard input) stay. ERR_NOMEM. */
int paths_write_yaml(struct str *text, const struct config *c);

/* 1 if `data` is not one file or folder, but a pattern, a list, or - for standard input. */
int path_is_pattern(const char *path);

#endif
