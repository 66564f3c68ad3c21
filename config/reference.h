/* References between the values of a file, as OmegaConf has them: ${key} is the value of that key, \${key}
 * the text itself. */
#ifndef FERRY_CONFIG_REFERENCE_H
#define FERRY_CONFIG_REFERENCE_H

#include "base/str.h"
#include "base/yaml.h"

/* Appends the item's text with each reference replaced. ERR_INPUT: one names no key of the file. */
int reference_expand(struct str *out, const struct yaml_doc *doc, const struct yaml_item *item);

/* Appends a text as a file must have it, so that nothing in it is a reference. */
void reference_escape(struct str *out, const char *text);

#endif
