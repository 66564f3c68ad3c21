/* The formats of rows: one list. A new format is one line here and one file with two functions.
 *
 * A record (a JSON object) becomes ids and labels. The order of the list is the order in which the formats
 * look at the first record where the format is auto; keys is for the message when none of them knows it.
 */
#ifndef FERRY_DATA_ROW_FORMATS_H
#define FERRY_DATA_ROW_FORMATS_H

#include <jansson.h>

struct dataset_builder;

/* X(name in the enum, name for users, function's name, keys) */
#define ROW_FORMATS(X)                                                                                       \
	X(TOKENS, "tokens", row_tokens, "input_ids")                                                         \
	X(MESSAGES, "messages", row_messages, "messages")                                                    \
	X(SHAREGPT, "sharegpt", row_sharegpt, "conversations")                                               \
	X(ALPACA, "alpaca", row_alpaca, "instruction and output")                                            \
	X(PROMPT_COMPLETION, "prompt_completion", row_prompt_completion, "prompt and completion")            \
	X(TEXT, "text", row_text, "the key of text_field")

/* NAME_is_mine: the record's keys are those of the format. NAME_read: appends its row (0 or ERR_*). */
#define ROW_FORMAT_DECLARE(id, name, function, keys)                                                         \
	int function##_is_mine(const struct dataset_builder *b, const json_t *record);                       \
	int function##_read(struct dataset_builder *b, const json_t *record);
ROW_FORMATS(ROW_FORMAT_DECLARE)

#endif
