/* The formats of rows: one list. A new format is one line here and one file with two functions.
 *
 * A record (a JSON object) becomes ids and labels. Where the format is auto, the first record decides: the
 * first format of the list whose fields it has. Formats whose fields the user gave names to are looked at
 * before others.
 */
#ifndef FERRY_DATA_ROW_FORMATS_H
#define FERRY_DATA_ROW_FORMATS_H

#include <jansson.h>

#include "data/row_fields.h"

struct dataset_builder;

#define ROW_BIT(field) (1u << ROW_FIELD_##field)

/* X(name in the enum, name for users, function's name, fields that a row must have, what else: NULL =
 * nothing) */
#define ROW_FORMATS(X)                                                                                       \
	X(TOKENS, "tokens", row_tokens, ROW_BIT(INPUT_IDS), NULL)                                            \
	X(MESSAGES, "messages", row_messages, ROW_BIT(MESSAGES), row_messages_is_mine)                       \
	X(SHAREGPT, "sharegpt", row_sharegpt, ROW_BIT(MESSAGES), row_sharegpt_is_mine)                       \
	X(ALPACA, "alpaca", row_alpaca, ROW_BIT(INSTRUCTION) | ROW_BIT(OUTPUT), NULL)                        \
	X(PROMPT_COMPLETION, "prompt_completion", row_prompt_completion,                                     \
	        ROW_BIT(PROMPT) | ROW_BIT(COMPLETION), NULL)                                                 \
	X(TEXT, "text", row_text, ROW_BIT(TEXT), NULL)

/* Appends the record's row: 0 or ERR_*. */
#define ROW_FORMAT_DECLARE(id, name, function, fields, is_mine)                                              \
	int function##_read(struct dataset_builder *b, const json_t *record);
ROW_FORMATS(ROW_FORMAT_DECLARE)

/* Whether a record with the fields of the format is one of it. */
int row_messages_is_mine(const struct dataset_builder *b, const json_t *record);
int row_sharegpt_is_mine(const struct dataset_builder *b, const json_t *record);

#endif
