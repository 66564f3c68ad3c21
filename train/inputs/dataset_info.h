/* Data sets by name: LLaMA-Factory's dataset_info.json, a table of files with their columns and roles.
 *
 *     {"support": {"file_name": "support.json", "formatting": "sharegpt",
 *                  "columns": {"messages": "chat"}, "tags": {"role_tag": "who", "user_tag": "guest"}}}
 */
#ifndef FERRY_TRAIN_INPUTS_DATASET_INFO_H
#define FERRY_TRAIN_INPUTS_DATASET_INFO_H

#include "config/config.h"

/* If dataset_info is set: replaces names of data sets in data and eval_data by their files, and sets the
 * field_ and role_ keys that are unset. Several sets share these keys, so each set gets the names of all.
 * ERR_INPUT: no table, or a name that is neither in it nor a file. ERR_UNSUPPORTED: a set that is not for
 * fine-tuning on text. */
int dataset_info_apply(struct config *c);

#endif
