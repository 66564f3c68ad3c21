/* Parses expressions of a template to nodes. */
#include "data/template/ast.h"
#include "data/template/lexer.h"

#include <string.h>

struct node *node_new(struct parser *p, enum node_kind kind)
{
	struct node *node = sandbox_alloc(p->s, 1, sizeof(*node));

	node->kind = kind;
	node->line = p->at->line;
	return node;
}

static int token_is(const struct token *t, enum token_kind kind, const char *text)
{
	return t->kind == kind && t->value.u.text->len_bytes == strlen(text) &&
	       !memcmp(t->value.u.text->data, text, strlen(text));
}

int parser_is_operator(const struct parser *p, const char *text)
{
	return token_is(p->at, TOKEN_OPERATOR, text);
}

int parser_is_name(const struct parser *p, const char *text)
{
	return token_is(p->at, TOKEN_NAME, text);
}

int parser_skip_operator(struct parser *p, const char *text)
{
	int is = parser_is_operator(p, text);

	p->at += is;
	return is;
}

int parser_skip_name(struct parser *p, const char *text)
{
	int is = parser_is_name(p, text);

	p->at += is;
	return is;
}

void parser_unexpected(struct parser *p, const char *wanted)
{
	static const char *const kinds[] = {[TOKEN_TEXT] = "text",
	        [TOKEN_OUTPUT_BEGIN] = "{{",
	        [TOKEN_OUTPUT_END] = "}}",
	        [TOKEN_BLOCK_BEGIN] = "{%",
	        [TOKEN_BLOCK_END] = "%}",
	        [TOKEN_STRING] = "a string",
	        [TOKEN_NUMBER] = "a number",
	        [TOKEN_END] = "the end of the template"};
	const struct token *t = p->at;

	p->s->line = t->line;
	if (t->kind == TOKEN_NAME || t->kind == TOKEN_OPERATOR)
		sandbox_fail(p->s, "expected %s, found '%.40s'", wanted, t->value.u.text->data);
	sandbox_fail(p->s, "expected %s, found %s", wanted, kinds[t->kind]);
}

void parser_expect_operator(struct parser *p, const char *text)
{
	char wanted[8] = {'\'', text[0], text[1] ? text[1] : '\'', text[1] ? '\'' : 0};

	if (!parser_skip_operator(p, text))
		parser_unexpected(p, wanted);
}

struct text *parser_expect_name(struct parser *p)
{
	if (p->at->kind != TOKEN_NAME)
		parser_unexpected(p, "a name");
	return (p->at++)->value.u.text;
}

int ast_find(const struct ast *ast, const char *name)
{
	for (int i = 0; i < ast->name_count; i++)
		if (!strcmp(ast->names[i]->data, name))
			return i;
	return -1;
}

int ast_name(struct sandbox *s, struct ast *ast, const struct text *name)
{
	int id = ast_find(ast, name->data);

	sandbox_step(s, ast->name_count / 8);
	if (id >= 0)
		return id;
	if (ast->name_count == ast->name_cap) {
		int cap = ast->name_cap * 2 + 32;
		struct text **names = sandbox_alloc(s, (size_t)cap, sizeof(struct text *));

		if (ast->name_count)
			memcpy(names, ast->names, (size_t)ast->name_count * sizeof(struct text *));
		ast->names = names;
		ast->name_cap = cap;
	}
	ast->names[ast->name_count] = value_text(s, name->data, name->len_bytes).u.text;
	return ast->name_count++;
}

static struct node *binary(struct parser *p, enum node_kind kind, struct node *a, struct node *b)
{
	struct node *node = node_new(p, kind);

	node->line = a->line;
	node->a = a;
	node->b = b;
	return node;
}

/* ---- arguments ---- */

static struct node *parse_argument(struct parser *p)
{
	struct node *argument = node_new(p, NODE_ARGUMENT);

	if (parser_skip_operator(p, "**")) {
		argument->id = ARGUMENT_STAR_STAR;
	} else if (parser_skip_operator(p, "*")) {
		argument->id = ARGUMENT_STAR;
	} else if (p->at->kind == TOKEN_NAME && token_is(p->at + 1, TOKEN_OPERATOR, "=")) {
		argument->text = p->at->value.u.text;
		p->at += 2;
	}
	argument->a = parse_expression(p);
	return argument;
}

static struct node *parse_arguments(struct parser *p)
{
	struct node *first = NULL, **end = &first;
	int plain_ends = 0;

	parser_expect_operator(p, "(");
	while (!parser_is_operator(p, ")")) {
		if (first) {
			parser_expect_operator(p, ",");
			if (parser_is_operator(p, ")"))
				break;
		}
		*end = parse_argument(p);
		if ((*end)->id == ARGUMENT_PLAIN && !(*end)->text && plain_ends)
			sandbox_fail(p->s, "a positional argument follows a named one");
		plain_ends |= (*end)->id != ARGUMENT_PLAIN || (*end)->text;
		end = &(*end)->next;
	}
	parser_expect_operator(p, ")");
	return first;
}

/* ---- from the tightest binding to the loosest ---- */

static struct node *parse_constant_or_name(struct parser *p)
{
	struct node *node = node_new(p, NODE_CONST);
	const struct text *name = p->at->value.u.text;

	if (parser_skip_name(p, "true") || parser_skip_name(p, "True")) {
		node->value = value_bool(1);
	} else if (parser_skip_name(p, "false") || parser_skip_name(p, "False")) {
		node->value = value_bool(0);
	} else if (parser_skip_name(p, "none") || parser_skip_name(p, "None")) {
		node->value = NONE;
	} else {
		node->kind = NODE_NAME;
		p->uses |= parser_is_name(p, "caller")    ? MACRO_USES_CALLER
		           : parser_is_name(p, "varargs") ? MACRO_USES_VARARGS
		           : parser_is_name(p, "kwargs")  ? MACRO_USES_KWARGS
		                                          : 0;
		node->id = ast_name(p->s, p->ast, name);
		p->at++;
	}
	return node;
}

static struct node *parse_strings(struct parser *p)
{
	struct node *node = node_new(p, NODE_CONST);
	struct sink sink = {0};

	for (; p->at->kind == TOKEN_STRING; p->at++)
		sink_add(p->s, &sink, p->at->value.u.text->data, p->at->value.u.text->len_bytes);
	node->value = sink_value(p->s, &sink);
	return node;
}

/* Parses elements up to a closing bracket. For a dict, these are keys and values in turn. */
static struct node *parse_elements(struct parser *p, enum node_kind kind, const char *close)
{
	struct node *node = node_new(p, kind), **end = &node->list;

	p->at++;
	while (!parser_is_operator(p, close)) {
		if (node->list) {
			parser_expect_operator(p, ",");
			if (parser_is_operator(p, close))
				break;
		}
		*end = parse_expression(p);
		end = &(*end)->next;
		if (kind == NODE_DICT) {
			parser_expect_operator(p, ":");
			*end = parse_expression(p);
			end = &(*end)->next;
		}
	}
	parser_expect_operator(p, close);
	return node;
}

struct node *parse_primary(struct parser *p)
{
	struct node *node;

	if (p->at->kind == TOKEN_NAME)
		return parse_constant_or_name(p);
	if (p->at->kind == TOKEN_STRING)
		return parse_strings(p);
	if (p->at->kind == TOKEN_NUMBER) {
		node = node_new(p, NODE_CONST);
		node->value = (p->at++)->value;
		return node;
	}
	if (parser_is_operator(p, "["))
		return parse_elements(p, NODE_LIST, "]");
	if (parser_is_operator(p, "{"))
		return parse_elements(p, NODE_DICT, "}");
	if (!parser_skip_operator(p, "("))
		parser_unexpected(p, "an expression");
	if (parser_is_operator(p, ")"))
		node = node_new(p, NODE_TUPLE);
	else
		node = parse_tuple(p, WITH_CONDITION, NULL);
	parser_expect_operator(p, ")");
	return node;
}

static struct node *parse_subscribed(struct parser *p)
{
	struct node *first = NULL, *slice;

	if (!parser_is_operator(p, ":")) {
		first = parse_expression(p);
		if (!parser_is_operator(p, ":"))
			return first;
	}
	slice = node_new(p, NODE_SLICE);
	slice->a = first;
	parser_expect_operator(p, ":");
	if (!parser_is_operator(p, ":") && !parser_is_operator(p, "]") && !parser_is_operator(p, ","))
		slice->b = parse_expression(p);
	if (parser_skip_operator(p, ":") && !parser_is_operator(p, "]") && !parser_is_operator(p, ","))
		slice->c = parse_expression(p);
	return slice;
}

static struct node *parse_subscript(struct parser *p, struct node *of)
{
	struct node *node = node_new(p, NODE_ITEM);

	node->a = of;
	if (parser_skip_operator(p, ".")) {
		if (p->at->kind == TOKEN_NUMBER && p->at->value.kind == VALUE_INT) {
			node->b = parse_primary(p);
			return node;
		}
		node->kind = NODE_ATTRIBUTE;
		node->text = parser_expect_name(p);
		return node;
	}
	parser_expect_operator(p, "[");
	node->b = parse_subscribed(p);
	if (parser_is_operator(p, ",")) {
		struct node *tuple = node_new(p, NODE_TUPLE), **end = &node->b->next;

		tuple->list = node->b;
		while (parser_skip_operator(p, ",") && !parser_is_operator(p, "]")) {
			*end = parse_subscribed(p);
			end = &(*end)->next;
		}
		node->b = tuple;
	}
	parser_expect_operator(p, "]");
	return node;
}

static struct node *parse_postfix(struct parser *p, struct node *node)
{
	for (;;) {
		if (parser_is_operator(p, ".") || parser_is_operator(p, "[")) {
			node = parse_subscript(p, node);
		} else if (parser_is_operator(p, "(")) {
			struct node *call = node_new(p, NODE_CALL);

			call->a = node;
			call->list = parse_arguments(p);
			node = call;
		} else {
			return node;
		}
		sandbox_step(p->s, 1);
	}
}

static struct text *parse_dotted(struct parser *p)
{
	struct text *name = parser_expect_name(p);

	while (parser_skip_operator(p, ".")) {
		struct sink sink = {0};

		sink_add(p->s, &sink, name->data, name->len_bytes);
		sink_text(p->s, &sink, ".");
		sink_text(p->s, &sink, parser_expect_name(p)->data);
		name = sink_value(p->s, &sink).u.text;
	}
	return name;
}

struct node *parse_filters(struct parser *p, struct node *node, int first_inline)
{
	while (first_inline || parser_skip_operator(p, "|")) {
		struct node *filter = node_new(p, NODE_FILTER);

		first_inline = 0;
		filter->a = node;
		filter->text = parse_dotted(p);
		if (parser_is_operator(p, "("))
			filter->list = parse_arguments(p);
		node = filter;
	}
	return node;
}

static struct node *parse_test(struct parser *p, struct node *of)
{
	int negated = parser_skip_name(p, "not");
	struct node *test = node_new(p, NODE_TEST), *argument;
	const struct token *t;

	test->a = of;
	test->text = parse_dotted(p);
	t = p->at;
	if (parser_is_operator(p, "(")) {
		test->list = parse_arguments(p);
	} else if (t->kind == TOKEN_STRING || t->kind == TOKEN_NUMBER || parser_is_operator(p, "[") ||
	           parser_is_operator(p, "{") ||
	           (t->kind == TOKEN_NAME && !parser_is_name(p, "else") && !parser_is_name(p, "or") &&
	                   !parser_is_name(p, "and"))) {
		if (parser_is_name(p, "is"))
			sandbox_fail(p->s, "tests with 'is' cannot be chained");
		argument = node_new(p, NODE_ARGUMENT);
		argument->a = parse_postfix(p, parse_primary(p));
		test->list = argument;
	}
	if (!negated)
		return test;
	argument = node_new(p, NODE_NOT);
	argument->a = test;
	return argument;
}

static struct node *parse_signed(struct parser *p)
{
	struct node *node;

	sandbox_enter(p->s);
	if (parser_is_operator(p, "-") || parser_is_operator(p, "+")) {
		node = node_new(p, parser_is_operator(p, "-") ? NODE_NEGATIVE : NODE_POSITIVE);
		p->at++;
		node->a = parse_signed(p);
	} else {
		node = parse_primary(p);
	}
	sandbox_leave(p->s);
	return parse_postfix(p, node);
}

struct node *parse_unary(struct parser *p)
{
	struct node *node = parse_signed(p);

	for (;;) {
		if (parser_is_operator(p, "|"))
			node = parse_filters(p, node, 0);
		else if (parser_skip_name(p, "is"))
			node = parse_test(p, node);
		else if (parser_is_operator(p, "("))
			node = parse_postfix(p, node);
		else
			return node;
	}
}

/* Operators of one precedence, all left-associative. */
struct operator_level {
	struct {
		const char *text;
		enum node_kind kind;
	} operators[4];
};

static struct node *parse_level(struct parser *p, int level);

static struct node *parse_concat(struct parser *p)
{
	struct node *node = parse_level(p, 1), *concat, **end;

	if (!parser_is_operator(p, "~"))
		return node;
	concat = node_new(p, NODE_CONCAT);
	concat->list = node;
	end = &node->next;
	while (parser_skip_operator(p, "~")) {
		*end = parse_level(p, 1);
		end = &(*end)->next;
	}
	return concat;
}

static struct node *parse_level(struct parser *p, int level)
{
	static const struct operator_level levels[] = {
	        {{{"+", NODE_ADD}, {"-", NODE_SUBTRACT}}},
	        {{{"*", NODE_MULTIPLY}, {"/", NODE_DIVIDE}, {"//", NODE_FLOOR_DIVIDE}, {"%", NODE_MODULO}}},
	        {{{"**", NODE_POWER}}},
	};
	struct node *node = level == 0 ? parse_concat(p) : level == 1 ? parse_level(p, 2) : parse_unary(p);

	for (int i = 0; i < 4 && levels[level].operators[i].text; i++) {
		if (!parser_skip_operator(p, levels[level].operators[i].text))
			continue;
		node = binary(p, levels[level].operators[i].kind, node,
		        level == 0   ? parse_concat(p)
		        : level == 1 ? parse_level(p, 2)
		                     : parse_unary(p));
		i = -1; /* start again with the first */
	}
	return node;
}

static int parse_comparison(struct parser *p, enum compare *which)
{
	static const struct {
		const char *text;
		enum compare compare;
	} all[] = {{"==", COMPARE_EQ}, {"!=", COMPARE_NE}, {"<", COMPARE_LT}, {"<=", COMPARE_LE},
	        {">", COMPARE_GT}, {">=", COMPARE_GE}};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (parser_skip_operator(p, all[i].text)) {
			*which = all[i].compare;
			return 1;
		}
	if (parser_skip_name(p, "in")) {
		*which = COMPARE_IN;
		return 1;
	}
	if (parser_is_name(p, "not") && token_is(p->at + 1, TOKEN_NAME, "in")) {
		p->at += 2;
		*which = COMPARE_NOT_IN;
		return 1;
	}
	return 0;
}

static struct node *parse_compare(struct parser *p)
{
	struct node *first = parse_level(p, 0), *compare, **end;
	enum compare which;

	if (!parse_comparison(p, &which))
		return first;
	compare = node_new(p, NODE_COMPARE);
	compare->a = first;
	end = &compare->list;
	do {
		*end = node_new(p, NODE_OPERAND);
		(*end)->id = which;
		(*end)->a = parse_level(p, 0);
		end = &(*end)->next;
	} while (parse_comparison(p, &which));
	return compare;
}

static struct node *parse_not(struct parser *p)
{
	struct node *node;

	if (!parser_is_name(p, "not"))
		return parse_compare(p);
	node = node_new(p, NODE_NOT);
	p->at++;
	sandbox_enter(p->s);
	node->a = parse_not(p);
	sandbox_leave(p->s);
	return node;
}

static struct node *parse_and(struct parser *p)
{
	struct node *node = parse_not(p);

	while (parser_skip_name(p, "and"))
		node = binary(p, NODE_AND, node, parse_not(p));
	return node;
}

static struct node *parse_or(struct parser *p)
{
	struct node *node = parse_and(p);

	while (parser_skip_name(p, "or"))
		node = binary(p, NODE_OR, node, parse_and(p));
	return node;
}

struct node *parse_expression(struct parser *p)
{
	struct node *node, *condition;

	sandbox_enter(p->s);
	node = parse_or(p);
	while (parser_skip_name(p, "if")) {
		condition = node_new(p, NODE_CONDITION);
		condition->a = node;
		condition->b = parse_or(p);
		if (parser_skip_name(p, "else"))
			condition->c = parse_expression(p);
		node = condition;
	}
	sandbox_leave(p->s);
	return node;
}

struct node *parse_tuple(struct parser *p, enum with_condition with, const char *end_name)
{
	struct node *tuple = node_new(p, NODE_TUPLE), **end = &tuple->list;
	int commas = 0;

	sandbox_enter(p->s);
	do {
		if (commas &&
		        (p->at->kind == TOKEN_BLOCK_END || p->at->kind == TOKEN_OUTPUT_END ||
		                parser_is_operator(p, ")") || (end_name && parser_is_name(p, end_name))))
			break;
		*end = with == WITH_CONDITION ? parse_expression(p) : parse_or(p);
		end = &(*end)->next;
	} while (parser_skip_operator(p, ",") && ++commas);
	sandbox_leave(p->s);
	return commas ? tuple : tuple->list;
}
