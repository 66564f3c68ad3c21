/* The text part of a model that also reads images or sound.
 *
 * Such a config.json has an object text_config, and the files have the language model's tensors behind a
 * prefix ("language_model."). Without images and sound the whole model computes what its text part computes.
 * ferry opens that part alone: the result is a text model, which transformers loads as one.
 */
#ifndef FERRY_MODEL_FAMILIES_TEXT_PART_H
#define FERRY_MODEL_FAMILIES_TEXT_PART_H

#include "base/json.h"
#include "model/model.h"

/* Makes the config.json of the language model. *text (json_decref, also after an error) is a new object
 * without the other parts or, for a text model, `config` itself. *whole is the model_type of the whole (a
 * static string); NULL: a text model. `where` names the file in messages. ERR_INPUT: a value of the wrong
 * type, or no text_config; ERR_NOMEM. */
int text_part_config(json_t **text, const char **whole, const json_t *config, const char *where);

/* The ids of tokens that stand for images, videos and sounds, where a whole model of this type reads another
 * text even without an image: Gemma 4 embeds the pad token in their place. -1: none. ERR_INPUT: a value of
 * the wrong type. */
int text_part_replaced(
        int64_t ids[TEXT_PART_REPLACED], const char *whole, const json_t *config, const char *where);

/* What transformers puts before the names of the text part's modules in a whole model of this type, in place
 * of "model.": "model.language_model.". */
const char *text_part_modules(const char *whole);

#endif
