/* Data sets by name: LLaMA-Factory's dataset_info.json, a table of files with their columns and roles.
 *
 *     {"support": {"file_name": "support.json", "formatting": "sharegpt",
 *                  "columns": {"messages": "chat"}, "tags": {"role_tag": "who", "user_tag": "guest"}}}
 */
#ifndef FERRY_TRAIN_DATASET_INFO_H
#define FERRY_TRAIN_DATASET_INFO_H

#include "config/config.h"

/* Where dataset_info is set: puts the files of the table's data sets in the place of their names in data and
 * eval_data, and sets the field_ and role_ keys that nobody set. Several sets share these keys: each then has
 * the names of all. ERR_INPUT: no table, a name that is neither in it nor a file; ERR_UNSUPPORTED: a set that
 * is not for fine-tuning on text, by what it has. */
int dataset_info_apply(struct config *c);

#endif
