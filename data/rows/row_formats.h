/* The formats of rows: one list. A new format is one line here and one file with row_NAME_read.
 *
 * A record (a JSON object) becomes ids and labels. With format auto, the first record decides: it is the
 * first format of the list with all its fields in the record. Formats with fields that the user named come
 * first. Pairs come before all of them, unless enum dataset_pairs says that none are wanted.
 */
#ifndef FERRY_DATA_ROWS_ROW_FORMATS_H
#define FERRY_DATA_ROWS_ROW_FORMATS_H

#include <jansson.h>

#include "data/chat/row_fields.h"

struct dataset_builder;

#define ROW_BIT(field) (1u << ROW_FIELD_##field)

/* X(name in the enum, name for users, other names, function's name, fields that a row must have, what else:
 * NULL = nothing) */
#define ROW_FORMATS(X)                                                                                       \
	X(TOKENS, "tokens", "tokenized pretokenized input_ids", row_tokens, ROW_BIT(INPUT_IDS), NULL)        \
	X(MESSAGES, "messages", "chat chat_template openai", row_messages, ROW_BIT(MESSAGES),                \
	        row_messages_is_mine)                                                                        \
	X(SHAREGPT, "sharegpt", NULL, row_sharegpt, ROW_BIT(MESSAGES), row_sharegpt_is_mine)                 \
	X(ALPACA, "alpaca", NULL, row_alpaca, ROW_BIT(INSTRUCTION) | ROW_BIT(OUTPUT), NULL)                  \
	X(PROMPT_COMPLETION, "prompt_completion", NULL, row_prompt_completion,                               \
	        ROW_BIT(PROMPT) | ROW_BIT(COMPLETION), NULL)                                                 \
	X(TEXT, "text", "completion pretrain pretraining", row_text, ROW_BIT(TEXT), NULL)                    \
	X(PREFERENCE, "preference", "ranking dpo pairs", row_preference,                                     \
	        ROW_BIT(CHOSEN) | ROW_BIT(REJECTED), NULL)                                                   \
	X(TEXTS, "texts", "sentence_pairs embedding", row_texts, ROW_BIT(ANCHOR) | ROW_BIT(POSITIVE),        \
	        row_texts_is_mine)                                                                           \
	X(LABELS, "labels", "classification", row_labels, ROW_BIT(TEXT) | ROW_BIT(LABEL), row_labels_is_mine)

enum dataset_format {
	DATASET_FORMAT_AUTO, /* by the keys of the first record, or the name's end .txt or .md */
#define ROW_FORMAT_ENUM(id, name, aliases, function, fields, is_mine) DATASET_FORMAT_##id,
	ROW_FORMATS(ROW_FORMAT_ENUM)
};

/* Appends the record's row, or the two rows of a pair: 0 or ERR_*. */
#define ROW_FORMAT_DECLARE(id, name, aliases, function, fields, is_mine)                                     \
	int function##_read(struct dataset_builder *b, const json_t *record);
ROW_FORMATS(ROW_FORMAT_DECLARE)

/* 1 if this format reads a record that has all its fields: messages and sharegpt share their fields. */
int row_messages_is_mine(const struct dataset_builder *b, const json_t *record);
int row_sharegpt_is_mine(const struct dataset_builder *b, const json_t *record);
/* Never: only an objective over texts wants them. */
int row_texts_is_mine(const struct dataset_builder *b, const json_t *record);
int row_labels_is_mine(const struct dataset_builder *b, const json_t *record);

#endif
