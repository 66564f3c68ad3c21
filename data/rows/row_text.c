/* Rows of one text each, and functions for all text formats: pieces of a row, tokenized separately. */
#include "data/rows/row_formats.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "data/rows/dataset_build.h"
#include "data/tokenizer/token_list.h"
#include "data/tokenizer/tokenizer.h"

enum { LONG_TEXT_BYTES = 4 << 20 };

int dataset_builder_need_tokenizer(const struct dataset_builder *b)
{
	if (b->options->tokenizer)
		return 0;
	if (b->options->no_tokenizer && b->options->no_tokenizer->code)
		return err_give(b->options->no_tokenizer);
	return err_set(ERR_INPUT, "%s: the %s format needs a tokenizer; set tokenizer=DIR", b->where,
	        dataset_format_name(b->d->format));
}

int dataset_builder_text(struct dataset_builder *b, const json_t *record, enum row_field field,
        const char **text, size_t *len_bytes)
{
	const char *key = NULL;
	const json_t *value = row_field(b->names, record, field, &key);

	if (json_is_null(value))
		return err_set(
		        ERR_INPUT, "%s: \"%s\" is null; give it a text, or remove the row", b->where, key);
	if (!dataset_builder_get(b, record, field))
		return dataset_builder_missing(b, record, field);
	if (!json_is_string(value))
		return err_set(ERR_INPUT, "%s: \"%s\" is %s; expected a string", b->where, key,
		        json_kind_name(value));
	*text = json_string_value(value);
	*len_bytes = json_string_length(value);
	return 0;
}

/* Of pairs only answers are trained. */
static int is_trained(const struct dataset_builder *b, enum dataset_piece piece)
{
	return piece == DATASET_PIECE_ANSWER ||
	       (b->options->inputs & DATASET_INPUTS_PROMPTS && b->d->format != DATASET_FORMAT_PREFERENCE);
}

/* Lets the tokenizer stop where max_length cuts a long text. Shorter texts are tokenized whole, because the
 * length of the longest row is shown. */
static void limit_tokens(struct dataset_builder *b, size_t len_bytes)
{
	const struct dataset_options *o = b->options;
	int is_split = o->long_rows == DATASET_LONG_ROWS_SPLIT && b->d->format == DATASET_FORMAT_TEXT;

	b->ids->limit = o->max_length_tokens && !is_split && len_bytes > LONG_TEXT_BYTES
	                        ? o->max_length_tokens + 1
	                        : 0;
}

static void note_limit(struct dataset_builder *b)
{
	b->d->counts.is_longest_cut |= token_list_is_enough(b->ids);
	b->ids->limit = 0;
}

int dataset_builder_say(
        struct dataset_builder *b, const char *text, size_t len_bytes, enum dataset_piece piece)
{
	enum add_special add =
	        b->ids->count || piece == DATASET_PIECE_ANSWER ? ADD_SPECIAL_NONE : ADD_SPECIAL_BEFORE;
	int trained = is_trained(b, piece), rc;

	b->said_bytes = b->ids->count ? b->said_bytes : 0;
	limit_tokens(b, len_bytes);
	rc = b->said_bytes ? tokenizer_encode_more(b->options->tokenizer, b->ids, text, len_bytes)
	                   : tokenizer_encode(b->options->tokenizer, b->ids, text, len_bytes, add);
	b->said_bytes += len_bytes;
	note_limit(b);
	if (rc < 0)
		return err_note(rc, "%s", b->where);
	while (rc == 0 && b->targets->count < b->ids->count)
		rc = token_list_add(b->targets, trained ? b->ids->ids[b->targets->count] : DATASET_IGNORE);
	return rc;
}

int dataset_builder_end_text(struct dataset_builder *b, int64_t from, enum dataset_piece piece)
{
	int32_t eos = tokenizer_roles(b->options->tokenizer)->eos;
	int rc;

	if (eos < 0)
		return b->d->format == DATASET_FORMAT_TEXT
		               ? 0
		               : err_set(ERR_INPUT,
		                         "%s: the tokenizer has no eos_token, so answers would have no end; "
		                         "set it with eos_token=",
		                         b->where);
	if (b->ids->count > from && b->ids->ids[b->ids->count - 1] == eos)
		return 0;
	rc = token_list_add(b->ids, eos);
	return rc ? rc : token_list_add(b->targets, is_trained(b, piece) ? eos : DATASET_IGNORE);
}

void dataset_builder_note_answer(struct dataset_builder *b, const char *answer, size_t len_bytes)
{
	for (size_t i = 0; i < len_bytes; i++)
		if (!strchr(" \t\r\n", answer[i]))
			return;
	if (b->d->counts.empty_answers++ == 0)
		snprintf(b->d->counts.empty_answers_first, sizeof(b->d->counts.empty_answers_first), "%s",
		        b->where);
}

int dataset_builder_add_answer(struct dataset_builder *b, const char *prompt, size_t prompt_bytes,
        const char *answer, size_t answer_bytes, enum dataset_piece piece)
{
	int64_t from;
	int rc = dataset_builder_say(b, prompt, prompt_bytes, DATASET_PIECE_PROMPT);

	from = b->ids->count;
	if (piece == DATASET_PIECE_ANSWER)
		dataset_builder_note_answer(b, answer, answer_bytes);
	if (rc == 0)
		rc = dataset_builder_say(b, answer, answer_bytes, piece);
	return rc < 0 ? rc : dataset_builder_end_text(b, from, piece);
}

int dataset_builder_add_said(struct dataset_builder *b)
{
	return dataset_builder_add(b, b->ids->ids, b->targets->ids, b->ids->count, 0);
}

/* Sets b->ids to the ids of one text, with special tokens and the end-of-text id. */
static int encode_text(struct dataset_builder *b, const char *text, size_t len_bytes)
{
	int rc;

	limit_tokens(b, len_bytes);
	rc = row_hidden_encode(b, b->ids, b->targets, text, len_bytes, ADD_SPECIAL_ALL);
	note_limit(b);
	if (rc < 0)
		return err_note(rc, "%s", b->where);
	return dataset_builder_end_text(b, 0, DATASET_PIECE_ANSWER);
}

int row_text_read(struct dataset_builder *b, const json_t *record)
{
	const char *text = "";
	size_t len_bytes = 0;
	int rc = dataset_builder_need_tokenizer(b);

	if (rc == 0)
		rc = dataset_builder_text(b, record, ROW_FIELD_TEXT, &text, &len_bytes);
	if (rc == 0)
		rc = encode_text(b, text, len_bytes);
	return rc < 0 ? rc
	              : dataset_builder_add(b, b->ids->ids, b->options->has_words ? b->targets->ids : NULL,
	                        b->ids->count, 0);
}
