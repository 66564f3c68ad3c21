/* A rendering in progress: scopes, output, and the functions that templates can call. Private to
 * template/.
 *
 * A scope holds the variables set in it; a lookup continues in the outer scopes. Loops, macros, `with`,
 * blocks and `generation` open a scope, `if` does not. The outer scope of a macro is the one that defines
 * it.
 */
#ifndef FERRY_DATA_TEMPLATE_RENDER_H
#define FERRY_DATA_TEMPLATE_RENDER_H

#include "data/template/ast.h"

#include <time.h>

struct binding {
	struct binding *next;
	int id;
	struct value value; /* VALUE_ABSENT: not set any more */
};

struct scope {
	struct scope *parent;
	struct binding *first;
	int kept; /* it, or a scope inside it, defines a macro */
};

struct macro {
	const struct node *node;
	struct scope *scope; /* the scope that defines it */
};

struct loop {
	struct list *items;
	int64_t index; /* from 0 */
	int depth;     /* from 0 */
	const struct node *node;
	struct scope *scope; /* around the loop */
	struct value changed;
};

struct arguments {
	struct value *positional;
	int64_t count;
	struct text **names; /* of the keywords */
	struct value *named;
	int64_t named_count;
};

struct render {
	struct sandbox *s;
	const struct ast *ast;
	struct scope *scope;
	struct sink *out, *main;
	struct jinja_span *spans; /* output of {% generation %}, in bytes of `main` */
	int64_t span_count, span_cap;
	int64_t moment; /* of strftime_now: data/template/moment.h */
};

/* A filter, a test, a method or a function: templates call it by name. */
struct builtin {
	const char *name;
	/* Names of its parameters, separated by spaces; "!" follows required ones. NULL: `call` reads `all`
	 * itself. */
	const char *parameters;
	/* arg: one value per parameter, VALUE_ABSENT if not given */
	struct value (*call)(
	        struct render *r, struct value self, const struct value *arg, const struct arguments *all);
};

struct function {
	const struct builtin *builtin;
	struct value self;
};

extern const struct builtin filters_of_texts[], filters_of_numbers[], filters_of_lists[], tests[], globals[];
extern const struct builtin methods_of_texts[], methods_of_lists[], methods_of_dicts[], methods_of_loops[],
        methods_of_floats[];

/* Methods of a function's result, such as a cycler; NULL = none. */
const struct builtin *methods_of_function(const struct function *f);

const struct builtin *builtin_find(const struct builtin *table, const char *name);
struct value builtin_call(
        struct render *r, const struct builtin *b, struct value self, const struct arguments *all);
struct value builtin_bound(struct render *r, const struct builtin *b, struct value self);

struct value filter_call(struct render *r, const char *name, struct value self, const struct arguments *all);
struct value test_call(struct render *r, const char *name, struct value self, const struct arguments *all);
int filter_exists(const char *name);

/* Expressions. */
struct value eval(struct render *r, const struct node *node);
struct value eval_call(struct render *r, struct value callee, const struct arguments *all);
struct value eval_attribute(struct render *r, struct value of, const struct text *name);
struct value eval_item(struct render *r, struct value of, struct value key);
/* Applies the filters of a block to its text. */
struct value eval_filters(struct render *r, const struct node *filters, struct value body);
int value_contains(struct render *r, struct value in, struct value what);
struct value value_add(struct render *r, struct value a, struct value b);
struct value arithmetic(struct render *r, enum node_kind kind, struct value a, struct value b);
_Noreturn void undefined_fail(struct render *r, struct value v);

/* Statements. */
enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };
enum flow exec_all(struct render *r, const struct node *first);
struct value exec_macro(struct render *r, const struct macro *m, const struct arguments *all);
struct value exec_loop(struct render *r, const struct loop *outer, struct value items);
void scope_set(struct render *r, int id, struct value value);
int scope_get(const struct render *r, int id, struct value *value);

/* "%s" % and "{}".format. */
struct value format_percent(struct render *r, const struct text *format, const struct arguments *all);
struct value format_braces(struct render *r, const struct text *format, const struct arguments *all);

/* Arguments of builtins. */
struct text *argument_text(struct render *r, struct value v, const char *what);
int64_t argument_int(struct render *r, struct value v, int64_t absent);
int argument_flag(struct value v, int absent);

#endif
