/* Names of classes that stand in the data, for a head that is new. */
#ifndef FERRY_TRAIN_INPUTS_LABEL_NAMES_H
#define FERRY_TRAIN_INPUTS_LABEL_NAMES_H

#include "base/json.h"
#include "config/config.h"

/* Reads the labels of all training rows, of texts or of words. *by_id (json_decref) is {"0": first name, ...}
 * in the order of their bytes, as transformers' examples number them; NULL if labels are numbers, if there
 * is only one, or if the data cannot be read twice. ERR_INPUT: the data; too many names. */
int label_names_read(json_t **by_id, const struct config *c);

#endif
