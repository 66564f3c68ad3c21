/* Where the words of a text begin among its tokens. */
#include "data/tokenizer/inside.h"

#include "base/err.h"
#include "data/tokenizer/unicode.h"

#include <string.h>

static const char mark[] = "\xe2\x96\x81"; /* U+2581, a space in SentencePiece's vocabularies */

/* Whether tokens have the space before them in their text; *space is what it looks like there. */
static int shows_spaces(const struct tokenizer *t, const char **space)
{
	const struct token_model *m = &t->model;

	*space = m->vocab.in_bytes ? " " : mark;
	return (m->kind == &model_bpe || m->kind == &model_unigram) &&
	       (m->vocab.in_bytes || vocab_find_content(&m->vocab, mark, strlen(mark)) >= 0);
}

static int begins_with(const char *text, size_t len_bytes, const char *start)
{
	return len_bytes >= strlen(start) && memcmp(text, start, strlen(start)) == 0;
}

static int ends_with(const char *text, size_t len_bytes, const char *end)
{
	return len_bytes >= strlen(end) && memcmp(text + len_bytes - strlen(end), end, strlen(end)) == 0;
}

/* The token begins with a later byte of a character. */
static int is_inside(const struct tokenizer *t, const char *text, size_t len_bytes)
{
	return t->model.vocab.in_bytes && len_bytes && ((unsigned char)text[0] & 0xc0) == 0x80;
}

/* Offsets of bytes leave out spaces at both ends of a token. A mark of SentencePiece that is a token of its
 * own has the offsets of the character behind it. So a gap is before a token with a space in front, and
 * behind one with a space at its end, unless that is bytes of spaces alone. Tokens that share a character all
 * have its offsets: none begins where the one before ends. */
static int begins_word(const struct tokenizer *t, int32_t before, int32_t id, const char *space)
{
	size_t before_bytes = 0, len_bytes = 0;
	const char *last = vocab_bytes(&t->model.vocab, before, &before_bytes),
	           *text = vocab_bytes(&t->model.vocab, id, &len_bytes);
	int is_blank = last && t->model.vocab.in_bytes && strspn(last, " ") >= before_bytes;

	return (text && (begins_with(text, len_bytes, space) || is_inside(t, text, len_bytes))) ||
	       (last && !is_blank && ends_with(last, before_bytes, space));
}

/* Where the white space at `at` ends, or with is_space=0 all else. */
static size_t space_end(const char *text, size_t len_bytes, size_t at, int is_space)
{
	while (at < len_bytes) {
		uint32_t c;
		int bytes = utf8_get(text + at, &c);

		if (((unicode_flags(c) & UNICODE_SPACE) != 0) != is_space)
			break;
		at += (size_t)bytes;
	}
	return at;
}

/* Tokens that show no spaces: those of each stretch without white space, which must be those of the text. */
static int stretches_begin(const struct tokenizer *t, struct token_list *begins, const struct token_list *ids,
        int64_t first, const char *text, size_t len_bytes)
{
	struct token_list own = {0};
	int64_t at = first;
	int rc = 0;

	for (size_t from = space_end(text, len_bytes, 0, 1), to; from < len_bytes && !rc && at < ids->count;
	        from = space_end(text, len_bytes, to, 1)) {
		to = space_end(text, len_bytes, from, 0);
		own.count = 0;
		rc = tokenizer_encode(t, &own, text + from, to - from, ADD_SPECIAL_NONE);
		for (int64_t i = 0; i < own.count && !rc && at < ids->count; i++) {
			if (own.ids[i] != ids->ids[at++])
				rc = err_set(ERR_UNSUPPORTED, "the tokenizer has tokens that reach over "
				                              "white space, so that words have "
				                              "no borders; set whole_word_mask=off");
			rc = rc ? rc : token_list_add(begins, i == 0);
		}
	}
	while (!rc && begins->count < ids->count)
		rc = token_list_add(begins, 1);
	token_list_free(&own);
	return rc;
}

int tokenizer_encode_words(const struct tokenizer *t, struct token_list *ids, struct token_list *begins,
        const char *text, size_t len_bytes, enum add_special add)
{
	int64_t first = ids->count;
	const char *space;
	int rc = tokenizer_encode(t, ids, "", 0, add == ADD_SPECIAL_NONE ? add : ADD_SPECIAL_BEFORE);
	int64_t around = ids->count - first;

	ids->count = first;
	rc = rc ? rc : tokenizer_encode(t, ids, text, len_bytes, add);
	for (int64_t i = 0; i < around && !rc; i++)
		rc = token_list_add(begins, 1);
	first += around;
	if (!rc && !shows_spaces(t, &space))
		return stretches_begin(t, begins, ids, first, text, len_bytes);
	for (int64_t i = first; i < ids->count && !rc; i++)
		rc = token_list_add(
		        begins, i == first || begins_word(t, ids->ids[i - 1], ids->ids[i], space));
	return rc;
}
