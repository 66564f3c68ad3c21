/* What a user writes for a path, made into the path that it stands for: ~/x, a name beside the configuration
 * file, a hub id that lies in the HuggingFace cache. */
#ifndef FERRY_TRAIN_PATHS_H
#define FERRY_TRAIN_PATHS_H

#include "base/str.h"
#include "config/config.h"

/* Replaces the values of the keys that name paths (config_key.path), before anything looks at them:
 *
 *   ~/x            x in the home directory
 *   x              in a configuration file, of what is read: x beside that file, where the current directory
 *                  has none
 *   ORG/NAME       of models and data: the snapshot in the HuggingFace cache, where no such path exists
 *
 * What is none of these stays as it is. ERR_INPUT: the cache holds several revisions, and none is main's. */
int paths_resolve(struct config *c);

/* The configuration as a file that means the same wherever it is read: its paths are absolute. What names no
 * path (a built-in chat template, standard input) stays. ERR_NOMEM. */
int paths_write_yaml(struct str *text, const struct config *c);

/* data names something else than one file or folder: a pattern, a list, or - for standard input. */
int path_is_pattern(const char *path);

#endif
