/* Rows of plain texts, and what all text formats share: pieces of a row, each tokenized apart. */
#include "data/row_formats.h"

#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/str.h"
#include "data/dataset_build.h"
#include "data/source/bytes.h"
#include "data/tokenizer/token_list.h"
#include "data/tokenizer/tokenizer.h"

enum { TEXT_BYTES_MAX = 1 << 30 };

int dataset_builder_need_tokenizer(const struct dataset_builder *b)
{
	if (b->options->tokenizer)
		return 0;
	if (b->options->no_tokenizer && b->options->no_tokenizer->code)
		return err_give(b->options->no_tokenizer);
	return err_set(ERR_INPUT, "%s: the %s format needs a tokenizer; set tokenizer=DIR", b->where,
	        dataset_format_name(b->d->format));
}

int dataset_builder_text(const struct dataset_builder *b, const json_t *record, const char *key,
        const char **text, size_t *len_bytes)
{
	int rc = json_get_str(record, b->where, key, text);

	if (rc == 0)
		return err_set(ERR_INPUT, "%s: \"%s\" is missing", b->where, key);
	*len_bytes = json_string_length(json_object_get(record, key));
	return rc < 0 ? rc : 0;
}

int dataset_builder_say(
        struct dataset_builder *b, const char *text, size_t len_bytes, enum dataset_piece piece)
{
	enum add_special add =
	        b->ids->count || piece == DATASET_PIECE_ANSWER ? ADD_SPECIAL_NONE : ADD_SPECIAL_BEFORE;
	int trained = piece == DATASET_PIECE_ANSWER || b->options->inputs == DATASET_INPUTS_TRAIN;
	int rc = tokenizer_encode(b->options->tokenizer, b->ids, text, len_bytes, add);

	if (rc < 0)
		return err_note(rc, "%s", b->where);
	while (rc == 0 && b->targets->count < b->ids->count)
		rc = token_list_add(b->targets, trained ? b->ids->ids[b->targets->count] : DATASET_IGNORE);
	return rc;
}

int dataset_builder_end_text(struct dataset_builder *b, int64_t from, enum dataset_piece piece)
{
	int32_t eos = tokenizer_roles(b->options->tokenizer)->eos;
	int rc, trained;

	if (eos < 0)
		return b->d->format == DATASET_FORMAT_TEXT
		               ? 0
		               : err_set(ERR_INPUT,
		                         "%s: the tokenizer has no eos_token, so answers would have no end; "
		                         "set it in tokenizer_config.json",
		                         b->where);
	if (b->ids->count > from && b->ids->ids[b->ids->count - 1] == eos)
		return 0;
	trained = piece == DATASET_PIECE_ANSWER || b->options->inputs == DATASET_INPUTS_TRAIN;
	rc = token_list_add(b->ids, eos);
	return rc ? rc : token_list_add(b->targets, trained ? eos : DATASET_IGNORE);
}

int dataset_builder_add_answer(struct dataset_builder *b, const char *prompt, size_t prompt_bytes,
        const char *answer, size_t answer_bytes, enum dataset_piece piece)
{
	int64_t from;
	int rc = dataset_builder_say(b, prompt, prompt_bytes, DATASET_PIECE_PROMPT);

	from = b->ids->count;
	if (rc == 0)
		rc = dataset_builder_say(b, answer, answer_bytes, piece);
	return rc < 0 ? rc : dataset_builder_end_text(b, from, piece);
}

int dataset_builder_add_said(struct dataset_builder *b)
{
	return dataset_builder_add(b, b->ids->ids, b->targets->ids, b->ids->count, 0);
}

/* The ids of one text with the template's and the end-of-text id, into b->ids. */
static int encode_text(struct dataset_builder *b, const char *text, size_t len_bytes)
{
	int rc = tokenizer_encode(b->options->tokenizer, b->ids, text, len_bytes, ADD_SPECIAL_ALL);

	if (rc < 0)
		return err_note(rc, "%s", b->where);
	return dataset_builder_end_text(b, 0, DATASET_PIECE_ANSWER);
}

int row_text_is_mine(const struct dataset_builder *b, const json_t *record)
{
	return json_object_get(record, b->text_field) != NULL;
}

int row_text_read(struct dataset_builder *b, const json_t *record)
{
	const char *text = "";
	size_t len_bytes = 0;
	int rc = dataset_builder_need_tokenizer(b);

	if (rc == 0)
		rc = dataset_builder_text(b, record, b->text_field, &text, &len_bytes);
	if (rc == 0)
		rc = encode_text(b, text, len_bytes);
	return rc < 0 ? rc : dataset_builder_add(b, b->ids->ids, NULL, b->ids->count, 0);
}

/* The ids of the whole file in rows of max_length_tokens; a last row of one token would teach nothing. */
static int add_stretches(struct dataset_builder *b, const struct token_list *ids)
{
	int64_t stretch = b->options->max_length_tokens ? b->options->max_length_tokens : ids->count;
	int rc = 0;

	for (int64_t at = 0; rc == 0 && at < ids->count; at += stretch) {
		int64_t count = ids->count - at < stretch ? ids->count - at : stretch;

		if ((count == 1 && at > 0) ||
		        (b->options->max_samples && b->d->counts.records == b->options->max_samples))
			break;
		rc = dataset_builder_add(b, ids->ids + at, NULL, count, 0);
		b->d->counts.records++;
	}
	return rc;
}

/* All of a file, unpacked, without a byte order mark. */
static int read_text(struct str *text, const char *path)
{
	struct bytes *bytes = NULL;
	char buffer[1 << 14];
	int64_t got = 1;
	int rc = bytes_open(&bytes, path);

	while (rc == 0 && (got = bytes_read(bytes, buffer, sizeof(buffer))) > 0) {
		str_add_bytes(text, buffer, (size_t)got);
		rc = str_check(text);
		if (rc == 0 && text->len_bytes > TEXT_BYTES_MAX)
			rc = err_set(ERR_UNSUPPORTED,
			        "%s: more than 1 GiB of text in one file; cut it into several", path);
	}
	bytes_close(bytes);
	if (rc < 0 || got < 0)
		return rc < 0 ? rc : (int)got;
	if (text->len_bytes >= 3 && memcmp(text->data, "\xef\xbb\xbf", 3) == 0) {
		text->len_bytes -= 3;
		memmove(text->data, text->data + 3, text->len_bytes + 1);
	}
	return text->len_bytes ? 0 : err_set(ERR_INPUT, "%s: the file is empty", path);
}

int dataset_read_plain(struct dataset_builder *b, const char *path)
{
	struct str text = {0};
	int rc = dataset_builder_need_tokenizer(b);

	b->ids->count = b->targets->count = 0;
	if (rc == 0)
		rc = read_text(&text, path);
	if (rc == 0)
		rc = encode_text(b, text.data, text.len_bytes);
	if (rc == 0)
		rc = add_stretches(b, b->ids);
	str_free(&text);
	return rc;
}
