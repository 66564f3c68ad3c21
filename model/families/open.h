/* Opens a model from a config.json: finds the family, reads the file as transformers does, builds the
 * tables. */
#ifndef FERRY_MODEL_FAMILIES_OPEN_H
#define FERRY_MODEL_FAMILIES_OPEN_H

#include "base/json.h"
#include "model/model.h"

/* Opens a model from a parsed config.json; `where` names it in messages. Absent keys and double spellings
 * have the meaning of transformers 5. Keys that transformers ignores for a family are ignored here too, with
 * a warning if they would change the numbers. ERR_INPUT names a key with an invalid value, ERR_UNSUPPORTED a
 * model_type or setting that ferry does not support. */
int model_open(struct model **model, const json_t *config, const char *where);

/* Opens a model from DIR/config.json, or from the file itself. DIR/generation_config.json, if it has an
 * eos_token_id, replaces the ids that end a text, as in transformers. */
int model_open_path(struct model **model, const char *path);

/* Whether a causal model of any family gives its output matrix this name. */
int families_have_head(const char *name);

#endif
