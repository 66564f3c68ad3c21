/* A parsed template: a tree of nodes.
 *
 * Every node has up to three children (a, b, c) and up to two lists of children, linked by `next`. The
 * comment of each kind says which fields it uses. Names are numbered: a scope finds a variable by `id`.
 */
#ifndef FERRY_DATA_TEMPLATE_AST_H
#define FERRY_DATA_TEMPLATE_AST_H

#include "data/template/value.h"

enum node_kind {
	/* expressions */
	NODE_CONST,    /* value */
	NODE_NAME,     /* id */
	NODE_LIST,     /* list */
	NODE_TUPLE,    /* list */
	NODE_DICT,     /* list: key, value, key, value ... */
	NODE_NOT,      /* a */
	NODE_NEGATIVE, /* a */
	NODE_POSITIVE, /* a */
	NODE_AND,      /* a, b */
	NODE_OR,       /* a, b */
	NODE_ADD,      /* a, b; like the next six */
	NODE_SUBTRACT,
	NODE_MULTIPLY,
	NODE_DIVIDE,
	NODE_FLOOR_DIVIDE,
	NODE_MODULO,
	NODE_POWER,
	NODE_CONCAT,    /* list */
	NODE_COMPARE,   /* a; list of NODE_OPERAND */
	NODE_OPERAND,   /* id: enum compare; a */
	NODE_CONDITION, /* a if b else c (may be NULL) */
	NODE_ATTRIBUTE, /* a.text */
	NODE_ITEM,      /* a[b] */
	NODE_SLICE,     /* a, b, c: each may be NULL */
	NODE_CALL,      /* a(list) */
	NODE_FILTER,    /* a (NULL: the body of a block) | text(list) */
	NODE_TEST,      /* a is text(list) */
	NODE_ARGUMENT,  /* a; text: the keyword or NULL; id: enum argument */
	/* statements */
	NODE_TEXT,         /* value */
	NODE_OUTPUT,       /* a */
	NODE_IF,           /* a; list: then; other: else */
	NODE_FOR,          /* a in b if c; list: body; other: else; id: recursive */
	NODE_SET,          /* a = b */
	NODE_SET_BLOCK,    /* a; b: filters or NULL; list */
	NODE_MACRO,        /* id, text; value: enum macro_use bits; other: parameters; list */
	NODE_PARAMETER,    /* id, text; a: default or NULL */
	NODE_CALL_BLOCK,   /* a: the call; b: a NODE_MACRO, the caller */
	NODE_FILTER_BLOCK, /* a: filters; list */
	NODE_WITH,         /* other: NODE_SET; list */
	NODE_SCOPE,        /* list */
	NODE_GENERATION,   /* list */
	NODE_NAMESPACE,    /* id.text, to be set */
	NODE_BREAK,
	NODE_CONTINUE,
};

enum compare {
	COMPARE_EQ,
	COMPARE_NE,
	COMPARE_LT,
	COMPARE_LE,
	COMPARE_GT,
	COMPARE_GE,
	COMPARE_IN,
	COMPARE_NOT_IN
};
enum argument { ARGUMENT_PLAIN, ARGUMENT_STAR, ARGUMENT_STAR_STAR };

struct node {
	enum node_kind kind;
	int line;
	int id;
	struct text *text;
	struct value value;
	struct node *a, *b, *c;
	struct node *list, *other;
	struct node *next;
};

/* The implicit variables that a macro's body uses. */
enum macro_use { MACRO_USES_CALLER = 1, MACRO_USES_VARARGS = 2, MACRO_USES_KWARGS = 4 };

struct ast {
	struct node *body; /* statements, linked by next */
	struct text **names;
	int name_count, name_cap;
	int has_generation;
};

/* The number of a name; a new name gets one. */
int ast_name(struct sandbox *s, struct ast *ast, const struct text *name);
/* The number of a name in the template, or -1. */
int ast_find(const struct ast *ast, const char *name);

/* Fills *ast; calls sandbox_fail if the template is invalid. */
void parser_run(struct sandbox *s, struct ast *ast, const char *source, size_t len_bytes);

/* ---- private to the parser ---- */

struct parser {
	struct sandbox *s;
	struct ast *ast;
	struct token *at;
	int uses;       /* enum macro_use bits of the current macro */
	int loop_depth; /* for break and continue */
};

enum with_condition { WITH_CONDITION, WITHOUT_CONDITION };

struct node *node_new(struct parser *p, enum node_kind kind);
int parser_is_operator(const struct parser *p, const char *text);
int parser_is_name(const struct parser *p, const char *text);
int parser_skip_operator(struct parser *p, const char *text);
int parser_skip_name(struct parser *p, const char *text);
void parser_expect_operator(struct parser *p, const char *text);
struct text *parser_expect_name(struct parser *p);
_Noreturn void parser_unexpected(struct parser *p, const char *wanted);

struct node *parse_expression(struct parser *p);
struct node *parse_tuple(struct parser *p, enum with_condition with, const char *end_name);
struct node *parse_primary(struct parser *p);
struct node *parse_unary(struct parser *p);
/* Filters over `node` (NULL: the body of a block): `| a | b`, or with first_inline `a | b`. */
struct node *parse_filters(struct parser *p, struct node *node, int first_inline);

#endif
