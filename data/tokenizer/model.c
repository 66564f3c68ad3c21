/* The list of model kinds, their common functions, and WordLevel, the smallest kind. */
#include "data/tokenizer/model.h"

#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/tokenizer/json_keys.h"

static const struct model_kind *const kinds[] = {
        &model_bpe, &model_unigram, &model_wordpiece, &model_wordlevel};

/* For files older than "type". */
static const char *type_by_keys(struct model_source *source)
{
	if (source->merges.begin)
		return "BPE";
	if (json_object_get(source->spec, "max_input_chars_per_word"))
		return "WordPiece";
	return source->vocab.begin && json_reader_peek(&source->vocab) == '[' ? "Unigram" : "WordLevel";
}

int model_choose(struct token_model *m, struct model_source *source)
{
	const char *type = type_by_keys(source);
	int rc = json_get_str(source->spec, source->where, "type", &type);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strcmp(kinds[i]->name, type) == 0) {
			m->kind = kinds[i];
			return json_check_keys(source->spec, source->where, m->kind->keys);
		}
	return err_set(ERR_UNSUPPORTED,
	        "%s: a %.80s tokenizer is not supported; supported: BPE, Unigram, WordPiece, WordLevel",
	        source->where, type);
}

void model_free(struct token_model *m)
{
	if (m->kind && m->state)
		m->kind->free(m->state);
	vocab_free(&m->vocab);
	*m = (struct token_model){0};
}

int model_load_words(struct token_model *m, struct model_source *source)
{
	struct json_reader *r = &source->vocab;
	int64_t count = 0, id = 0;
	int rc;

	if (!r->begin)
		return err_set(ERR_INPUT, "%s: model: there is no vocab", source->where);
	rc = json_reader_expect(r, '{');
	while (rc == 0 && (rc = json_reader_more(r, '}', &count)) > 0) {
		const char *word;
		size_t len_bytes;

		rc = json_reader_string(r, &word, &len_bytes);
		if (rc == 0)
			rc = json_reader_expect(r, ':');
		if (rc == 0)
			rc = json_reader_int(r, &id);
		if (rc == 0)
			rc = vocab_add(&m->vocab, word, len_bytes, id, VOCAB_KIND_WORD);
	}
	return rc < 0 ? err_note(rc, "%s: model: vocab", source->where) : 0;
}

int model_load_token(const struct token_model *m, const struct model_source *source, const char *key,
        int32_t *id, const char **name)
{
	const char *content = NULL;
	int rc = json_get_str(source->spec, source->where, key, &content);

	*id = content ? vocab_find_content(&m->vocab, content, strlen(content)) : -1;
	if (name)
		*name = content;
	return rc < 0 ? rc : 0;
}

/* ---- WordLevel: a word is an id, or unk_token */

struct wordlevel {
	int32_t unk_id;
};

static int wordlevel_load(struct token_model *m, struct model_source *source)
{
	struct wordlevel *w = m->state = mem_alloc(1, sizeof(*w));
	int rc = w ? model_load_words(m, source) : ERR_NOMEM;

	return rc < 0 ? rc : model_load_token(m, source, "unk_token", &w->unk_id, NULL);
}

static int wordlevel_encode(const struct token_model *m, void *scratch, struct token_list *ids,
        const char *word, size_t len_bytes)
{
	const struct wordlevel *w = m->state;
	int32_t id = vocab_find(&m->vocab, word, len_bytes);

	(void)scratch;
	if (id < 0)
		id = w->unk_id;
	if (id < 0)
		return err_set(ERR_INPUT,
		        "the vocabulary has neither '%.*s' nor unk_token; add unk_token to the tokenizer",
		        (int)(len_bytes < 80 ? len_bytes : 80), word);
	return token_list_add(ids, id);
}

const struct model_kind model_wordlevel = {.name = "WordLevel",
        .keys = "type vocab unk_token",
        .load = wordlevel_load,
        .free = mem_free,
        .encode = wordlevel_encode};
