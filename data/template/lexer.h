/* The tokens of a template, with white space already treated as chat templates want it (trim_blocks and
 * lstrip_blocks): comments are gone, and a newline behind a block and blanks before one are, too.
 */
#ifndef FERRY_DATA_TEMPLATE_LEXER_H
#define FERRY_DATA_TEMPLATE_LEXER_H

#include "data/template/value.h"

enum token_kind {
	TOKEN_TEXT,         /* between tags */
	TOKEN_OUTPUT_BEGIN, /* {{ */
	TOKEN_OUTPUT_END,
	TOKEN_BLOCK_BEGIN, /* {% */
	TOKEN_BLOCK_END,
	TOKEN_NAME,
	TOKEN_STRING,
	TOKEN_NUMBER,
	TOKEN_OPERATOR,
	TOKEN_END,
};

struct token {
	enum token_kind kind;
	int line;
	struct value value; /* TEXT, NAME, STRING, OPERATOR: a text; NUMBER */
};

/* All tokens, TOKEN_END last. The source is valid UTF-8. */
struct token *lexer_run(struct sandbox *s, const char *source, size_t len_bytes);

#endif
