/* The tokens of a template, without the white space that Jinja removes.
 *
 * It removes comments, one newline after a block (trim_blocks), and blanks before a block at the start of a
 * line (lstrip_blocks).
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
