/* WordPiece: the longest entry that begins a word, then the longest that continues it, and so on.
 *
 * Continuing entries have a prefix. If no entry fits anywhere, or the word is too long, it is unk_token. */
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/tokenizer/model.h"
#include "data/tokenizer/unicode.h"

struct wordpiece {
	int32_t unk_id;
	int64_t max_chars;
	char *prefix;
	size_t prefix_bytes;
};

static int load(struct token_model *m, struct model_source *source)
{
	const json_t *spec = source->spec;
	const char *where = source->where;
	struct wordpiece *w = m->state = mem_alloc(1, sizeof(*w));
	const char *prefix = "##";
	int rc = w ? model_load_words(m, source) : ERR_NOMEM;

	if (rc == 0)
		rc = model_load_token(m, source, "unk_token", &w->unk_id, NULL);
	if (rc < 0)
		return rc;
	w->max_chars = 100;
	rc = json_get_int(spec, where, "max_input_chars_per_word", &w->max_chars);
	if (rc >= 0)
		rc = json_get_str(spec, where, "continuing_subword_prefix", &prefix);
	if (rc < 0)
		return rc;
	w->prefix_bytes = strlen(prefix);
	w->prefix = mem_strdup(prefix);
	return w->prefix ? 0 : ERR_NOMEM;
}

static void release(void *state)
{
	struct wordpiece *w = state;

	mem_free(w->prefix);
	mem_free(w);
}

static int64_t count_chars(const char *text, size_t len_bytes)
{
	int64_t count = 0;

	for (size_t i = 0; i < len_bytes; i++)
		count += ((unsigned char)text[i] & 0xc0) != 0x80;
	return count;
}

/* The longest entry at the start of text (the rest of a word, with its prefix); *end is its end in text. */
static int32_t longest(
        const struct vocab *v, const char *text, size_t len_bytes, size_t prefix_bytes, size_t *end)
{
	*end = len_bytes < v->longest_bytes ? len_bytes : v->longest_bytes;
	while (*end > 0 && *end < len_bytes && ((unsigned char)text[*end] & 0xc0) == 0x80)
		--*end;
	while (*end > prefix_bytes) {
		uint32_t c;
		int32_t id = vocab_find(v, text, *end);

		if (id >= 0)
			return id;
		*end -= (size_t)utf8_get_before(text + *end, &c);
	}
	return -1;
}

static int encode(const struct token_model *m, void *scratch, struct token_list *ids, const char *word,
        size_t len_bytes)
{
	const struct wordpiece *w = m->state;
	struct str *rest = scratch;
	int64_t before = ids->count;
	size_t start = 0, end;
	int rc = 0;

	if (len_bytes > (size_t)w->max_chars && count_chars(word, len_bytes) > w->max_chars)
		goto unknown;
	while (start < len_bytes) {
		const char *text = word + start;
		size_t prefix_bytes = start > 0 ? w->prefix_bytes : 0;
		int32_t id;

		if (prefix_bytes > 0) {
			rest->len_bytes = 0;
			str_add_bytes(rest, w->prefix, prefix_bytes);
			str_add_bytes(rest, text, len_bytes - start);
			if (str_check(rest) < 0)
				return ERR_NOMEM;
			text = rest->data;
		}
		id = longest(&m->vocab, text, len_bytes - start + prefix_bytes, prefix_bytes, &end);
		if (id < 0)
			goto unknown;
		rc = token_list_add(ids, id);
		if (rc < 0)
			return rc;
		start += end - prefix_bytes;
	}
	return 0;
unknown:
	ids->count = before;
	if (w->unk_id < 0)
		return err_set(ERR_INPUT, "a word has no ids and the vocabulary lacks unk_token; add "
		                          "unk_token to the tokenizer");
	return token_list_add(ids, w->unk_id);
}

static void scratch_free(void *scratch)
{
	str_free(scratch);
}

const struct model_kind model_wordpiece = {.name = "WordPiece",
        .keys = "type vocab unk_token continuing_subword_prefix max_input_chars_per_word",
        .load = load,
        .free = release,
        .encode = encode,
        .scratch_bytes = sizeof(struct str),
        .scratch_free = scratch_free};
