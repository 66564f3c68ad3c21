/* Turns a path as the user writes it into the path that it means: ~/x, a name beside the configuration file,
 * a hub id in the HuggingFace cache. */
#ifndef FERRY_TRAIN_INPUTS_PATHS_H
#define FERRY_TRAIN_INPUTS_PATHS_H

#include "base/str.h"
#include "config/config.h"

/* Resolves the values of path keys (config_key.path) before anything reads them:
 *
 *     ~/x        x in the home directory
 *     x          of input in a configuration file: x beside that file, if the current directory has no x
 *     ORG/NAME   of models and data: the snapshot in the HuggingFace cache, if no such path exists
 *
 * Other values stay unchanged. ERR_INPUT: the cache has several revisions, and none is main's.
 */
int paths_resolve(struct config *c);

/* Writes the configuration as a file with absolute paths, so that it means the same in every directory.
 * Values that are not paths (a built-in chat template, standard input) stay. ERR_NOMEM. */
int paths_write_yaml(struct str *text, const struct config *c);

/* 1 if the path is not one file or folder, but a pattern, a list, or - for standard input. */
int path_is_pattern(const char *path);

#endif
