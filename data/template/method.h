/* Helpers for methods of texts, and the methods that split texts (methods_split.c). methods.c lists all
 * methods. */
#ifndef FERRY_DATA_TEMPLATE_METHOD_H
#define FERRY_DATA_TEMPLATE_METHOD_H

#include "data/template/render.h"

/* Declares or defines a method of a text. */
#define METHOD(name)                                                                                         \
	struct value name(                                                                                   \
	        struct render *r, struct value self, const struct value *arg, const struct arguments *all)
/* The first line of a method that does not use all its arguments. */
#define UNUSED (void)r, (void)self, (void)arg, (void)all

static inline int given(struct value v)
{
	return v.kind != VALUE_ABSENT && v.kind != VALUE_NONE;
}

static inline struct value piece(struct render *r, const struct text *t, size_t from, size_t to)
{
	return value_text(r->s, t->data + from, to - from);
}

METHOD(method_split);
METHOD(method_rsplit);
METHOD(method_splitlines);
METHOD(method_partition);
METHOD(method_rpartition);

#endif
