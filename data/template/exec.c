/* Executes statements, with scopes and macros. */
#include "data/template/render.h"
#include "data/template/template.h"

#include <string.h>

/* ---- scopes ---- */

static void scope_open(struct render *r, struct scope *scope, struct scope *parent)
{
	*scope = (struct scope){.parent = parent};
	r->scope = scope;
}

void scope_set(struct render *r, int id, struct value value)
{
	struct binding *b;

	for (b = r->scope->first; b; b = b->next)
		if (b->id == id) {
			b->value = value;
			return;
		}
	b = sandbox_alloc(r->s, 1, sizeof(*b));
	*b = (struct binding){r->scope->first, id, value};
	r->scope->first = b;
}

int scope_get(const struct render *r, int id, struct value *value)
{
	for (const struct scope *scope = r->scope; scope; scope = scope->parent)
		for (const struct binding *b = scope->first; b; b = b->next)
			if (b->id == id && b->value.kind != VALUE_ABSENT) {
				*value = b->value;
				return 1;
			}
	return 0;
}

static struct scope *scope_new(struct render *r, struct scope *parent)
{
	struct scope *scope = sandbox_alloc(r->s, 1, sizeof(*scope)); /* a macro may keep it */

	scope_open(r, scope, parent);
	return scope;
}

/* An empty scope for the next iteration of a loop: reuses the old scope, unless a macro keeps it. */
static struct scope *scope_again(struct render *r, struct scope *scope, struct scope *parent)
{
	if (!scope || scope->kept)
		return scope_new(r, parent);
	for (struct binding *b = scope->first; b; b = b->next)
		b->value = ABSENT;
	r->scope = scope;
	return scope;
}

static void set_namespace(struct render *r, const struct node *target, struct value value)
{
	struct value space;

	r->s->line = target->line;
	if (!scope_get(r, target->id, &space) || space.kind != VALUE_NAMESPACE)
		sandbox_fail(r->s, "'%.60s' is not a namespace, so its '%.60s' cannot be set",
		        r->ast->names[target->id]->data, target->text->data);
	if (target->text->data[0] == '_')
		sandbox_fail(r->s, "a namespace allows no names that begin with '_'");
	dict_set(r->s, space.u.dict, (struct value){.kind = VALUE_TEXT, .u.text = target->text}, value);
}

static void assign(struct render *r, const struct node *target, struct value value)
{
	const struct node *part;
	struct list *items;
	int64_t i = 0, count = 0;

	if (target->kind == NODE_NAME) {
		scope_set(r, target->id, value);
		return;
	}
	if (target->kind == NODE_NAMESPACE) {
		set_namespace(r, target, value);
		return;
	}
	if (!value_is_iterable(value))
		sandbox_fail(r->s, "a value of kind %s cannot be unpacked", value_kind_name(value));
	items = value_items(r->s, value);
	for (part = target->list; part; part = part->next)
		count++;
	if (items->count != count)
		sandbox_fail(r->s, "expected %d values, found %d", (int)count, (int)items->count);
	for (part = target->list; part; part = part->next)
		assign(r, part, items->items[i++]);
}

/* ---- output ---- */

/* Executes statements, and returns their output as a text. */
static struct value capture(struct render *r, const struct node *body)
{
	struct sink sink = {0}, *out = r->out;

	r->out = &sink;
	exec_all(r, body);
	r->out = out;
	return sink_value(r->s, &sink);
}

static void exec_generation(struct render *r, const struct node *node)
{
	struct scope *outer = r->scope;
	int64_t start = (int64_t)r->out->len_bytes;

	if (r->out != r->main)
		sandbox_fail(
		        r->s, "{%% generation %%} inside a macro, a call or a set block is not supported");
	scope_new(r, outer);
	exec_all(r, node->list);
	r->scope = outer;
	if (r->span_count == r->span_cap) {
		int64_t cap = r->span_cap * 2 + 8;
		struct jinja_span *spans = sandbox_alloc(r->s, (size_t)cap, sizeof(*spans));

		if (r->span_count)
			memcpy(spans, r->spans, (size_t)r->span_count * sizeof(*spans));
		r->spans = spans;
		r->span_cap = cap;
	}
	r->spans[r->span_count++] = (struct jinja_span){(size_t)start, r->out->len_bytes};
}

/* ---- loops ---- */

/* The items that fulfil the loop's condition. */
static struct list *loop_items(struct render *r, const struct node *node, struct value over)
{
	struct scope *outer = r->scope;
	struct scope *inner = NULL;
	struct list *all, *kept;

	if (!value_is_iterable(over))
		sandbox_fail(r->s, "a loop cannot iterate over a value of kind %s", value_kind_name(over));
	all = value_items(r->s, over);
	if (!node->c)
		return all;
	kept = value_list(r->s, LIST_LIST, 0).u.list;
	for (int64_t i = 0; i < all->count; i++) {
		inner = scope_again(r, inner, outer);
		assign(r, node->a, all->items[i]);
		if (value_truth(eval(r, node->c)))
			list_add(r->s, kept, all->items[i]);
	}
	r->scope = outer;
	return kept;
}

static void run_loop(struct render *r, const struct node *node, struct value over, int depth)
{
	struct loop *loop = sandbox_alloc(r->s, 1, sizeof(*loop));
	struct scope *outer = r->scope, *inner = NULL;
	int loop_id = ast_find(r->ast, "loop");
	enum flow flow = FLOW_ON;
	int completed = 0; /* Jinja's else runs if no iteration ends normally */

	*loop = (struct loop){.node = node, .scope = outer, .depth = depth, .changed = ABSENT};
	loop->items = loop_items(r, node, over);
	for (loop->index = 0; loop->index < loop->items->count && flow != FLOW_BREAK; loop->index++) {
		sandbox_step(r->s, 1);
		inner = scope_again(r, inner, outer);
		if (loop_id >= 0)
			scope_set(r, loop_id, (struct value){.kind = VALUE_LOOP, .u.loop = loop});
		assign(r, node->a, loop->items->items[loop->index]);
		flow = exec_all(r, node->list);
		completed |= flow == FLOW_ON;
	}
	r->scope = outer;
	if (!completed && node->other) {
		scope_new(r, outer);
		exec_all(r, node->other);
		r->scope = outer;
	}
}

struct value exec_loop(struct render *r, const struct loop *outer, struct value items)
{
	struct scope *scope = r->scope;
	struct sink sink = {0}, *out = r->out;

	sandbox_enter(r->s);
	r->scope = outer->scope;
	r->out = &sink;
	run_loop(r, outer->node, items, outer->depth + 1);
	r->out = out;
	r->scope = scope;
	sandbox_leave(r->s);
	return sink_value(r->s, &sink);
}

/* ---- macros ---- */

static int find_named(const struct arguments *all, const struct text *name, struct value *value)
{
	for (int64_t i = 0; i < all->named_count; i++)
		if (!strcmp(all->names[i]->data, name->data)) {
			*value = all->named[i];
			return 1;
		}
	return 0;
}

static int is_parameter(const struct node *macro, const struct text *name)
{
	for (const struct node *p = macro->other; p; p = p->next)
		if (!strcmp(p->text->data, name->data))
			return 1;
	return 0;
}

/* Binds other arguments to varargs, kwargs and caller, if the body uses these; else the call is an error. */
static void bind_others(struct render *r, const struct node *macro, const struct arguments *all, int64_t used)
{
	int64_t uses = macro->value.u.i;
	struct value rest = value_list(r->s, LIST_TUPLE, 0), named = value_dict(r->s), caller = UNDEFINED;

	for (int64_t i = used; i < all->count; i++)
		list_add(r->s, rest.u.list, all->positional[i]);
	for (int64_t i = 0; i < all->named_count; i++) {
		if (is_parameter(macro, all->names[i]))
			continue;
		if (!strcmp(all->names[i]->data, "caller") && uses & MACRO_USES_CALLER)
			caller = all->named[i];
		else if (uses & MACRO_USES_KWARGS)
			dict_set(r->s, named.u.dict,
			        (struct value){.kind = VALUE_TEXT, .u.text = all->names[i]}, all->named[i]);
		else
			sandbox_fail(r->s, "macro '%.40s' has no parameter '%.40s'", macro->text->data,
			        all->names[i]->data);
	}
	if (rest.u.list->count && !(uses & MACRO_USES_VARARGS))
		sandbox_fail(r->s, "macro '%.40s' takes %d arguments", macro->text->data, (int)used);
	if (uses & MACRO_USES_VARARGS)
		scope_set(r, ast_find(r->ast, "varargs"), rest);
	if (uses & MACRO_USES_KWARGS)
		scope_set(r, ast_find(r->ast, "kwargs"), named);
	if (uses & MACRO_USES_CALLER)
		scope_set(r, ast_find(r->ast, "caller"), caller);
}

struct value exec_macro(struct render *r, const struct macro *m, const struct arguments *all)
{
	struct scope *outer = r->scope;
	int line = r->s->line;
	int64_t used = 0;
	struct value out, value;

	sandbox_enter(r->s);
	scope_new(r, m->scope);
	for (const struct node *p = m->node->other; p; p = p->next) {
		if (used < all->count) {
			value = all->positional[used++];
			struct value twice;

			if (find_named(all, p->text, &twice))
				sandbox_fail(r->s, "argument '%.40s' is given twice", p->text->data);
		} else if (!find_named(all, p->text, &value)) {
			value = p->a ? eval(r, p->a) : UNDEFINED;
		}
		scope_set(r, p->id, value);
	}
	bind_others(r, m->node, all, used);
	out = capture(r, m->node->list);
	r->scope = outer;
	r->s->line = line;
	sandbox_leave(r->s);
	return out;
}

static struct value macro_value(struct render *r, const struct node *node)
{
	struct macro *m = sandbox_alloc(r->s, 1, sizeof(*m));

	*m = (struct macro){node, r->scope};
	for (struct scope *scope = r->scope; scope; scope = scope->parent)
		scope->kept = 1;
	return (struct value){.kind = VALUE_MACRO, .u.macro = m};
}

/* Evaluates the call with one more argument: caller. */
static void exec_call_block(struct render *r, const struct node *node)
{
	struct node call = *node->a, *argument = sandbox_alloc(r->s, 1, sizeof(*argument)),
	            **end = &call.list;
	struct node *caller = sandbox_alloc(r->s, 1, sizeof(*caller));

	caller->kind = NODE_CONST;
	caller->line = argument->line = node->line;
	caller->value = macro_value(r, node->b);
	argument->kind = NODE_ARGUMENT;
	argument->text = node->b->text;
	argument->a = caller;
	for (const struct node *n = node->a->list; n; n = n->next) {
		*end = sandbox_alloc(r->s, 1, sizeof(**end));
		**end = *n;
		(*end)->next = NULL;
		end = &(*end)->next;
	}
	*end = argument;
	value_write(r->s, r->out, eval(r, &call));
}

/* ---- all of them ---- */

static enum flow exec_with(struct render *r, const struct node *node)
{
	struct scope *outer = r->scope, *inner = scope_new(r, outer);
	enum flow flow;

	for (const struct node *set = node->other; set; set = set->next) {
		struct value value;

		r->scope = outer; /* so no value sees the new variables */
		value = eval(r, set->b);
		r->scope = inner;
		assign(r, set->a, value);
	}
	flow = exec_all(r, node->list);
	r->scope = outer;
	return flow;
}

static void exec_set_block(struct render *r, const struct node *node)
{
	struct scope *outer = r->scope;
	struct value body;

	scope_new(r, outer);
	body = capture(r, node->list);
	r->scope = outer;
	assign(r, node->a, eval_filters(r, node->b, body));
}

static enum flow exec_scoped(struct render *r, const struct node *node)
{
	struct scope *outer = r->scope;
	enum flow flow = FLOW_ON;

	scope_new(r, outer);
	if (node->kind == NODE_FILTER_BLOCK)
		value_write(r->s, r->out, eval_filters(r, node->a, capture(r, node->list)));
	else
		flow = exec_all(r, node->list);
	r->scope = outer;
	return flow;
}

static enum flow exec(struct render *r, const struct node *node)
{
	r->s->line = node->line;
	switch (node->kind) {
	case NODE_TEXT:
		sink_add(r->s, r->out, node->value.u.text->data, node->value.u.text->len_bytes);
		break;
	case NODE_OUTPUT:
		value_write(r->s, r->out, eval(r, node->a));
		break;
	case NODE_IF:
		return exec_all(r, value_truth(eval(r, node->a)) ? node->list : node->other);
	case NODE_FOR:
		run_loop(r, node, eval(r, node->b), 0);
		break;
	case NODE_SET:
		assign(r, node->a, eval(r, node->b));
		break;
	case NODE_SET_BLOCK:
		exec_set_block(r, node);
		break;
	case NODE_MACRO:
		scope_set(r, node->id, macro_value(r, node));
		break;
	case NODE_CALL_BLOCK:
		exec_call_block(r, node);
		break;
	case NODE_WITH:
		return exec_with(r, node);
	case NODE_FILTER_BLOCK:
	case NODE_SCOPE:
		return exec_scoped(r, node);
	case NODE_GENERATION:
		exec_generation(r, node);
		break;
	case NODE_BREAK:
		return FLOW_BREAK;
	case NODE_CONTINUE:
		return FLOW_CONTINUE;
	default:
		sandbox_fail(r->s, "expected a statement, found an expression");
	}
	return FLOW_ON;
}

enum flow exec_all(struct render *r, const struct node *first)
{
	enum flow flow = FLOW_ON;

	sandbox_enter(r->s);
	for (const struct node *n = first; n && flow == FLOW_ON; n = n->next) {
		sandbox_step(r->s, 1);
		flow = exec(r, n);
	}
	sandbox_leave(r->s);
	return flow;
}
