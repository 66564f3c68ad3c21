/* Parses statements of a template to nodes. */
#include "data/template/ast.h"
#include "data/template/lexer.h"

#include <string.h>

static struct node *parse_body(struct parser *p, const char *const *ends);

/* ---- targets of assignments ---- */

static struct node *parse_target_name(struct parser *p)
{
	struct node *node = node_new(p, NODE_NAME);
	struct text *name = parser_expect_name(p);

	node->id = ast_name(p->s, p->ast, name);
	if (parser_skip_operator(p, ".")) {
		node->kind = NODE_NAMESPACE;
		node->text = parser_expect_name(p);
	}
	return node;
}

/* Parses one name or several, with or without brackets around them. */
static struct node *parse_target(struct parser *p)
{
	struct node *tuple = node_new(p, NODE_TUPLE), **end = &tuple->list;
	int commas = 0;

	sandbox_enter(p->s);
	do {
		if (commas && p->at->kind != TOKEN_NAME && !parser_is_operator(p, "("))
			break;
		if (parser_skip_operator(p, "(")) {
			*end = parse_target(p);
			parser_expect_operator(p, ")");
		} else {
			if (commas && parser_is_name(p, "in"))
				break;
			*end = parse_target_name(p);
		}
		end = &(*end)->next;
	} while (parser_skip_operator(p, ",") && ++commas);
	sandbox_leave(p->s);
	return commas ? tuple : tuple->list;
}

/* ---- statements, after their name ---- */

static void end_of_block(struct parser *p)
{
	if (p->at->kind != TOKEN_BLOCK_END)
		parser_unexpected(p, "the end of the block");
	p->at++;
}

/* Parses statements up to {% NAME for one of the names, and skips the name. */
static struct node *parse_until(struct parser *p, const char *const *ends)
{
	struct node *body;

	end_of_block(p);
	body = parse_body(p, ends);
	return body;
}

static void skip_end(struct parser *p, const char *name)
{
	if (!parser_skip_name(p, name))
		parser_unexpected(p, name);
}

static struct node *parse_if(struct parser *p)
{
	static const char *const ends[] = {"elif", "else", "endif", NULL};
	static const char *const end[] = {"endif", NULL};
	struct node *node = node_new(p, NODE_IF);

	node->a = parse_tuple(p, WITHOUT_CONDITION, NULL);
	node->list = parse_until(p, ends);
	if (parser_skip_name(p, "elif")) {
		sandbox_enter(p->s);
		node->other = parse_if(p);
		sandbox_leave(p->s);
		return node;
	}
	if (parser_skip_name(p, "else"))
		node->other = parse_until(p, end);
	skip_end(p, "endif");
	return node;
}

static struct node *parse_for(struct parser *p)
{
	static const char *const ends[] = {"else", "endfor", NULL};
	static const char *const end[] = {"endfor", NULL};
	struct node *node = node_new(p, NODE_FOR);

	node->a = parse_target(p);
	skip_end(p, "in");
	node->b = parse_tuple(p, WITHOUT_CONDITION, "recursive");
	if (parser_skip_name(p, "if"))
		node->c = parse_expression(p);
	node->id = parser_skip_name(p, "recursive");
	p->loop_depth++;
	node->list = parse_until(p, ends);
	p->loop_depth--;
	if (parser_skip_name(p, "else"))
		node->other = parse_until(p, end);
	skip_end(p, "endfor");
	return node;
}

static struct node *parse_set(struct parser *p)
{
	static const char *const end[] = {"endset", NULL};
	struct node *node = node_new(p, NODE_SET);

	node->a = parse_target(p);
	if (parser_skip_operator(p, "=")) {
		node->b = parse_tuple(p, WITH_CONDITION, NULL);
		return node;
	}
	node->kind = NODE_SET_BLOCK;
	node->b = parse_filters(p, NULL, 0);
	node->list = parse_until(p, end);
	skip_end(p, "endset");
	return node;
}

/* Parses (a, b=1). */
static void parse_parameters(struct parser *p, struct node *macro)
{
	struct node **end = &macro->other;

	if (!parser_skip_operator(p, "("))
		return;
	while (!parser_is_operator(p, ")")) {
		if (macro->other)
			parser_expect_operator(p, ",");
		*end = node_new(p, NODE_PARAMETER);
		(*end)->text = parser_expect_name(p);
		(*end)->id = ast_name(p->s, p->ast, (*end)->text);
		if (parser_skip_operator(p, "="))
			(*end)->a = parse_expression(p);
		end = &(*end)->next;
	}
	p->at++;
}

static void parse_macro_body(struct parser *p, struct node *macro, const char *const *ends)
{
	int uses = p->uses, loop_depth = p->loop_depth;

	p->uses = p->loop_depth = 0;
	macro->list = parse_until(p, ends);
	macro->value = value_int(p->uses);
	p->uses = uses;
	p->loop_depth = loop_depth;
	skip_end(p, ends[0]);
}

static struct node *parse_macro(struct parser *p)
{
	static const char *const end[] = {"endmacro", NULL};
	struct node *node = node_new(p, NODE_MACRO);

	node->text = parser_expect_name(p);
	node->id = ast_name(p->s, p->ast, node->text);
	if (!parser_is_operator(p, "("))
		parser_unexpected(p, "'('");
	parse_parameters(p, node);
	parse_macro_body(p, node, end);
	return node;
}

static struct node *parse_call_block(struct parser *p)
{
	static const char *const end[] = {"endcall", NULL};
	struct node *node = node_new(p, NODE_CALL_BLOCK);

	node->b = node_new(p, NODE_MACRO);
	node->b->text = value_text_of(p->s, "caller", 6).u.text;
	parse_parameters(p, node->b);
	node->a = parse_expression(p);
	if (node->a->kind != NODE_CALL)
		parser_unexpected(p, "a call");
	parse_macro_body(p, node->b, end);
	p->uses |= (int)node->b->value.u.i & MACRO_USES_CALLER; /* the caller of the outer macro */
	return node;
}

static struct node *parse_filter_block(struct parser *p)
{
	static const char *const end[] = {"endfilter", NULL};
	struct node *node = node_new(p, NODE_FILTER_BLOCK);

	node->a = parse_filters(p, NULL, 1);
	node->list = parse_until(p, end);
	skip_end(p, "endfilter");
	return node;
}

static struct node *parse_with(struct parser *p)
{
	static const char *const ends[] = {"endwith", NULL};
	struct node *node = node_new(p, NODE_WITH), **end = &node->other;

	while (p->at->kind != TOKEN_BLOCK_END) {
		if (node->other)
			parser_expect_operator(p, ",");
		*end = node_new(p, NODE_SET);
		(*end)->a = parse_target_name(p);
		parser_expect_operator(p, "=");
		(*end)->b = parse_expression(p);
		end = &(*end)->next;
	}
	node->list = parse_until(p, ends);
	skip_end(p, "endwith");
	return node;
}

static struct node *parse_generation(struct parser *p)
{
	static const char *const end[] = {"endgeneration", NULL};
	struct node *node = node_new(p, NODE_GENERATION);
	int loop_depth = p->loop_depth;

	p->ast->has_generation = 1;
	p->loop_depth = 0;
	node->list = parse_until(p, end);
	p->loop_depth = loop_depth;
	skip_end(p, "endgeneration");
	return node;
}

/* Parses a block that child templates could replace in Jinja. Here it is only a scope. */
static struct node *parse_block(struct parser *p)
{
	static const char *const end[] = {"endblock", NULL};
	struct node *node = node_new(p, NODE_SCOPE);

	parser_expect_name(p);
	node->list = parse_until(p, end);
	skip_end(p, "endblock");
	if (p->at->kind == TOKEN_NAME)
		p->at++;
	return node;
}

static struct node *parse_jump(struct parser *p, enum node_kind kind)
{
	if (!p->loop_depth)
		sandbox_fail(p->s, "%s is outside a loop", kind == NODE_BREAK ? "break" : "continue");
	return node_new(p, kind);
}

static struct node *parse_break(struct parser *p)
{
	return parse_jump(p, NODE_BREAK);
}

static struct node *parse_continue(struct parser *p)
{
	return parse_jump(p, NODE_CONTINUE);
}

static struct node *parse_statement(struct parser *p)
{
	static const struct {
		const char *name;
		struct node *(*parse)(struct parser *p);
	} statements[] = {
	        {"if", parse_if},
	        {"for", parse_for},
	        {"set", parse_set},
	        {"macro", parse_macro},
	        {"call", parse_call_block},
	        {"filter", parse_filter_block},
	        {"with", parse_with},
	        {"generation", parse_generation},
	        {"block", parse_block},
	        {"break", parse_break},
	        {"continue", parse_continue},
	};
	struct node *node;

	p->s->line = p->at->line;
	for (size_t i = 0; i < sizeof(statements) / sizeof(statements[0]); i++) {
		if (!parser_skip_name(p, statements[i].name))
			continue;
		sandbox_enter(p->s);
		node = statements[i].parse(p);
		sandbox_leave(p->s);
		end_of_block(p);
		return node;
	}
	if (p->at->kind == TOKEN_NAME)
		sandbox_fail(p->s, "{%% %.40s %%} is not supported, or ends a block that is not open",
		        p->at->value.u.text->data);
	parser_unexpected(p, "the name of a statement");
}

/* Parses statements until the end of the template, or until {% NAME; then p->at is at NAME. */
static struct node *parse_body(struct parser *p, const char *const *ends)
{
	struct node *first = NULL, **end = &first;

	for (;;) {
		sandbox_step(p->s, 1);
		p->s->line = p->at->line;
		if (p->at->kind == TOKEN_END) {
			if (ends)
				parser_unexpected(p, ends[1] ? ends[1] : ends[0]);
			return first;
		}
		if (p->at->kind == TOKEN_TEXT) {
			*end = node_new(p, NODE_TEXT);
			(*end)->value = (p->at++)->value;
		} else if (p->at->kind == TOKEN_OUTPUT_BEGIN) {
			p->at++;
			*end = node_new(p, NODE_OUTPUT);
			(*end)->a = parse_tuple(p, WITH_CONDITION, NULL);
			if (p->at->kind != TOKEN_OUTPUT_END)
				parser_unexpected(p, "'}}'");
			p->at++;
		} else { /* a block: the lexer gives no other token here */
			p->at++;
			for (int i = 0; ends && ends[i]; i++)
				if (parser_is_name(p, ends[i]))
					return first;
			*end = parse_statement(p);
		}
		end = &(*end)->next;
	}
}

void parser_run(struct sandbox *s, struct ast *ast, const char *source, size_t len_bytes)
{
	struct parser p = {.s = s, .ast = ast};

	p.at = lexer_run(s, source, len_bytes);
	ast->body = parse_body(&p, NULL);
}
