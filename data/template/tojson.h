/* json.dumps as chat templates call it: non-ASCII characters stay, and nothing is escaped for HTML. */
#ifndef FERRY_DATA_TEMPLATE_TOJSON_H
#define FERRY_DATA_TEMPLATE_TOJSON_H

#include "data/template/render.h"

/* arg: ensure_ascii, indent, separators, sort_keys. */
struct value tojson(struct render *r, struct value v, const struct value *arg);

#endif
