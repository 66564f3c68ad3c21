/* References between the values of a file, as in OmegaConf: ${key} is replaced by the value of that key,
 * \${key} by the text ${key}. */
#ifndef FERRY_CONFIG_REFERENCE_H
#define FERRY_CONFIG_REFERENCE_H

#include "base/str.h"
#include "base/yaml.h"

/* Appends the item's text with each reference replaced. ERR_INPUT if a reference names no key of the file. */
int reference_expand(struct str *out, const struct yaml_doc *doc, const struct yaml_item *item);

/* Appends a text for a file, escaped so that nothing in it is read as a reference. */
void reference_escape(struct str *out, const char *text);

#endif
