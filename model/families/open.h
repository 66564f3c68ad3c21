/* From a config.json to a model: finds the family, reads the file as transformers does, builds the tables. */
#ifndef FERRY_MODEL_FAMILIES_OPEN_H
#define FERRY_MODEL_FAMILIES_OPEN_H

#include "base/json.h"
#include "model/model.h"

/* From a config.json already parsed; `where` names it in messages. What an absent key means, and which
 * spelling wins where there are two, is as in transformers 5. Keys that it ignores for a family are ignored
 * here, with a warning where they would change the numbers. ERR_INPUT: a value that makes no sense, with its
 * key; ERR_UNSUPPORTED: a model_type or a setting that is understood and not done, by name. */
int model_open(struct model **model, const json_t *config, const char *where);

/* From DIR/config.json, or the file itself. What ends a text is what DIR/generation_config.json says, where
 * it names any id, as in transformers. */
int model_open_path(struct model **model, const char *path);

/* Whether `name` is that of the output matrix of a causal model of any family. */
int families_have_head(const char *name);

#endif
