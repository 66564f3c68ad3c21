/* Python's json.dumps for chat templates: keeps non-ASCII characters, and escapes nothing for HTML. */
#ifndef FERRY_DATA_TEMPLATE_TOJSON_H
#define FERRY_DATA_TEMPLATE_TOJSON_H

#include "data/template/render.h"

/* arg: ensure_ascii, indent, separators, sort_keys. */
struct value tojson(struct render *r, struct value v, const struct value *arg);

#endif
