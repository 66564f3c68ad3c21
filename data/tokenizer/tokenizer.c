/* Opens tokenizers, and encodes and decodes texts. */
#include "data/tokenizer/tokenizer.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/tokenizer/inside.h"
#include "data/tokenizer/sentencepiece.h"
#include "data/tokenizer/unicode.h"

enum { FILE_BYTES_MAX = 512 << 20, CONTEXT_TOKENS = 4 /* bytes of a character */ };
enum { ENOUGH = INT_MIN }; /* no error: ids->limit is reached */

/* Replaces the bytes of a tokenizer.model by the text of its tokenizer.json. */
static int convert_model(char **text, size_t *len_bytes, const char *path, const struct beside *beside)
{
	struct str json = {0};
	int rc = sentencepiece_to_json(&json, *text, *len_bytes, beside->config.tree, path);

	mem_free(*text);
	*len_bytes = json.len_bytes;
	*text = rc == 0 ? str_take(&json) : NULL;
	str_free(&json);
	return rc == 0 && !*text ? ERR_NOMEM : rc;
}

/* Finds a directory's tokenizer file, or NULL. */
static int find_file(char **path, const char *dir)
{
	static const char *const names[] = {"tokenizer.json", "tokenizer.model"};

	for (int i = 0; i < 2; i++) {
		*path = file_join(dir, names[i]);
		if (!*path)
			return ERR_NOMEM;
		if (file_kind_of(*path) != FILE_NONE)
			return 0;
		mem_free(*path);
	}
	*path = NULL;
	return 0;
}

int tokenizer_exists(const char *dir)
{
	char *path;
	int rc = find_file(&path, dir), found = rc == 0 && path;

	mem_free(path);
	return rc < 0 ? rc : found;
}

int tokenizer_open_with(struct tokenizer **out, const char *path, enum pattern_engine engine)
{
	const char *dir = file_kind_of(path) == FILE_DIR ? path : NULL;
	struct tokenizer *t = NULL;
	struct beside beside = {0};
	size_t len_bytes = 0;
	char *file = NULL, *text = NULL;
	int rc = 0, is_model = 0;

	*out = NULL;
	unicode_init();
	if (dir)
		rc = find_file(&file, dir);
	if (rc == 0 && dir && !file)
		return err_set(ERR_INPUT,
		        "%s: there is no tokenizer.json, and no tokenizer.model; set tokenizer=DIR, or write "
		        "one with "
		        "transformers: "
		        "AutoTokenizer.from_pretrained(MODEL).save_pretrained(DIR)",
		        dir);
	if (rc == 0 && !dir && !(file = mem_strdup(path)))
		rc = ERR_NOMEM;
	if (rc == 0)
		rc = file_read_all(file, FILE_BYTES_MAX, &text, &len_bytes);
	if (rc == 0 && len_bytes == 0)
		rc = err_set(ERR_INPUT, "%s: the file is empty", file);
	if (rc == 0)
		rc = beside_read(&beside, dir);
	if (rc == 0 && str_ends_with(file, ".model")) {
		is_model = 1;
		rc = convert_model(&text, &len_bytes, file, &beside);
	}
	if (rc == 0 && !(t = mem_alloc(1, sizeof(*t))))
		rc = ERR_NOMEM;
	if (rc == 0)
		rc = tokenizer_load(t, text, len_bytes, file, &beside, is_model, engine);
	if (rc == 0)
		rc = tokenizer_load_roles(t, &beside, dir);
	if (rc == 0) {
		*out = t;
		t = NULL;
	}
	tokenizer_close(t);
	beside_free(&beside);
	mem_free(text);
	mem_free(file);
	return rc;
}

int tokenizer_open(struct tokenizer **t, const char *path)
{
	return tokenizer_open_with(t, path, PATTERN_ENGINE_BEST);
}

void tokenizer_close(struct tokenizer *t)
{
	if (!t)
		return;
	normalizer_free(&t->normalizer);
	pretokenizer_free(&t->pretokenizer);
	model_free(&t->model);
	added_set_free(&t->raw);
	added_set_free(&t->normalized);
	added_set_free(&t->contents);
	mem_free(t->added);
	piece_list_free(&t->renamed);
	str_free(&t->renamed_bytes);
	decoder_free(&t->decoder);
	template_free(&t->template);
	mem_free(t);
}

/* Working memory of one call. */
struct encoding {
	const struct tokenizer *t;
	struct token_list *ids;
	struct added_matches raw, normalized;
	struct normal_text text; /* a normalized piece */
	struct pretokenizer_scratch words;
	void *model;
};

static void encoding_free(struct encoding *e)
{
	const struct model_kind *kind = e->t->model.kind;

	normal_text_free(&e->text);
	pretokenizer_scratch_free(&e->words);
	if (e->model && kind->scratch_free)
		kind->scratch_free(e->model);
	mem_free(e->model);
}

static int encode_word(void *user, const char *text, size_t len_bytes)
{
	struct encoding *e = user;

	int rc = e->t->model.kind->encode(&e->t->model, e->model, e->ids, text, len_bytes);

	return rc == 0 && token_list_is_enough(e->ids) ? ENOUGH : rc;
}

static int encode_part(void *user, const char *text, size_t len_bytes)
{
	struct encoding *e = user;

	int rc = e->t->model.kind->encode_part(&e->t->model, e->model, e->ids, text, len_bytes);

	return rc == 0 && token_list_is_enough(e->ids) ? ENOUGH : rc;
}

/* Encodes a piece of raw text: normalizes it, searches it for added tokens, and splits the rest into words.
 * in_front: the piece is the start of the user's text; goes_on: which follows another one. */
static int encode_piece(struct encoding *e, const char *text, size_t len_bytes, int in_front, int goes_on)
{
	enum normal_front front = !goes_on         ? NORMAL_FRONT_START
	                          : text[0] == ' ' ? NORMAL_FRONT_SPACE
	                                           : NORMAL_FRONT_JOINED;
	struct piece p;
	int rc = normalizer_run(&e->t->normalizer, &e->text, text, len_bytes, front);

	if (rc < 0)
		return rc;
	e->words.is_joined = front == NORMAL_FRONT_JOINED;
	added_begin(&e->normalized, &e->t->normalized, e->text.text, e->text.len_bytes);
	while (rc == 0 && !token_list_is_enough(e->ids) && added_next(&e->normalized, &p)) {
		size_t head = in_front && e->text.head_bytes > p.start ? e->text.head_bytes - p.start : 0;

		rc = p.id >= 0 ? token_list_add(e->ids, p.id)
		               : pretokenizer_run(&e->t->pretokenizer, &e->words, e->text.text + p.start,
		                         p.end - p.start, head, encode_word, e);
	}
	return rc;
}

/* Encodes one text, without the special tokens around it. goes_on: it follows another one. */
static int encode_text(
        const struct tokenizer *t, struct token_list *ids, const char *text, size_t len_bytes, int goes_on)
{
	struct encoding e = {.t = t, .ids = ids, .model = mem_alloc(1, t->model.kind->scratch_bytes)};
	size_t valid_bytes = utf8_check(text, len_bytes);
	struct piece p;
	int rc = e.model ? 0 : ERR_NOMEM;

	if (valid_bytes < len_bytes)
		rc = err_set(ERR_INPUT, "the text is not valid UTF-8 at byte %zu (0x%02x)", valid_bytes,
		        (unsigned char)text[valid_bytes]);
	e.words.part = t->model.kind->encode_part ? encode_part : NULL;
	added_begin(&e.raw, &t->raw, text, len_bytes);
	while (rc == 0 && !token_list_is_enough(ids) && added_next(&e.raw, &p))
		rc = p.id >= 0 ? token_list_add(ids, p.id)
		               : encode_piece(&e, text + p.start, p.end - p.start, p.start == 0,
		                         goes_on && p.start == 0);
	encoding_free(&e);
	return rc == ENOUGH ? 0 : rc;
}

struct text {
	const char *text;
	size_t len_bytes;
};

static int encode_texts(const struct tokenizer *t, struct token_list *ids, const struct text *texts,
        int count, enum add_special add)
{
	const struct template_list *list = &t->template.lists[count - 1];
	int64_t before = ids->count;
	int rc = 0, seen_text = 0;

	for (int i = 0; rc == 0 && i < list->count; i++) {
		const struct template_part *part = &list->parts[i];
		struct token_list special = {.count = part->count};

		if (part->text >= 0) {
			rc = encode_text(t, ids, texts[part->text].text, texts[part->text].len_bytes, 0);
		} else if (special.count > 0 &&
		           (add == ADD_SPECIAL_ALL || (add == ADD_SPECIAL_BEFORE && !seen_text))) {
			special.ids = t->template.ids.ids + part->first;
			rc = token_list_append(ids, &special);
		}
		seen_text |= part->text >= 0;
	}
	if (rc < 0)
		ids->count = before;
	return rc;
}

int tokenizer_encode(const struct tokenizer *t, struct token_list *ids, const char *text, size_t len_bytes,
        enum add_special add)
{
	return encode_texts(t, ids, &(struct text){text, len_bytes}, 1, add);
}

int tokenizer_encode_more(
        const struct tokenizer *t, struct token_list *ids, const char *text, size_t len_bytes)
{
	int64_t before = ids->count;
	int rc = encode_text(t, ids, text, len_bytes, 1);

	if (rc < 0)
		ids->count = before;
	return rc;
}

int tokenizer_encode_pair(const struct tokenizer *t, struct token_list *ids, const char *first,
        size_t first_bytes, const char *second, size_t second_bytes, enum add_special add)
{
	const struct text texts[] = {{first, first_bytes}, {second, second_bytes}};

	return encode_texts(t, ids, texts, 2, add);
}

size_t tokenizer_border(const struct tokenizer *t, const char *text, size_t len_bytes, size_t at)
{
	struct added_matches m;
	struct piece p;

	added_begin(&m, &t->contents, text, len_bytes);
	while (added_next(&m, &p) && p.start < at)
		if (p.id >= 0 && at < p.end)
			return p.start;
	return at;
}

/* Appends the text of a token for the decoder. */
static void add_token_text(const struct tokenizer *t, struct str *out, int32_t id)
{
	const struct piece *p = t->renamed.pieces;

	if (!(t->added[id] & TOKENIZER_ADDED_RENAMED)) {
		vocab_content(&t->model.vocab, out, id);
		return;
	}
	while (p->id != id)
		p++;
	str_add_bytes(out, t->renamed_bytes.data + p->start, p->end - p->start);
}

int tokenizer_decode(const struct tokenizer *t, char **text, size_t *len_bytes, const int32_t *ids,
        int64_t count, enum skip_special skip)
{
	struct texts texts = {0};
	struct str out = {0};
	size_t token_bytes;
	int rc = 0;

	*text = NULL;
	for (int64_t i = 0; rc == 0 && i < count; i++) {
		if (!vocab_bytes(&t->model.vocab, ids[i], &token_bytes))
			continue;
		if (skip == SKIP_SPECIAL_ON && (t->added[ids[i]] & TOKENIZER_ADDED_SPECIAL))
			continue;
		add_token_text(t, &texts.bytes, ids[i]);
		rc = texts_end(&texts);
	}
	str_add(&out, "");
	if (rc == 0)
		rc = decoder_run(&t->decoder, &out, &texts);
	if (rc == 0) {
		if (len_bytes)
			*len_bytes = out.len_bytes;
		*text = str_take(&out);
		rc = *text ? 0 : ERR_NOMEM;
	}
	texts_free(&texts);
	str_free(&out);
	return rc;
}

int tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
	return id >= 0 && id < tokenizer_vocab_count(t) && (t->added[id] & TOKENIZER_ADDED_SPECIAL);
}

static int has_text(const struct tokenizer *t, int32_t id)
{
	size_t len_bytes;

	return vocab_bytes(&t->model.vocab, id, &len_bytes) && len_bytes > 0 &&
	       !(t->added[id] & TOKENIZER_ADDED_SPECIAL);
}

int64_t tokenizer_context(const struct tokenizer *t, const int32_t *ids, int64_t begin)
{
	int64_t at = begin, texts = 0;

	while (at > 0 && texts < CONTEXT_TOKENS)
		texts += has_text(t, ids[--at]);
	return texts ? at : begin;
}

int tokenizer_decode_more(const struct tokenizer *t, char **text, size_t *len_bytes, const int32_t *ids,
        int64_t begin, int64_t count, enum skip_special skip)
{
	int64_t from = tokenizer_context(t, ids, begin);
	char *before = NULL, *all = NULL;
	size_t before_bytes = 0, all_bytes = 0;
	int rc = from < begin ? tokenizer_decode(t, &before, &before_bytes, ids + from, begin - from, skip)
	                      : 0;

	*text = NULL;
	if (rc == 0)
		rc = tokenizer_decode(t, &all, &all_bytes, ids + from, count - from, skip);
	if (rc == 0 && (before_bytes > all_bytes || memcmp(all, before ? before : "", before_bytes) != 0)) {
		rc = tokenizer_decode(t, text, len_bytes, ids + begin, count - begin, skip);
	} else if (rc == 0) {
		memmove(all, all + before_bytes, all_bytes - before_bytes + 1);
		if (len_bytes)
			*len_bytes = all_bytes - before_bytes;
		*text = all;
		all = NULL;
	}
	mem_free(before);
	mem_free(all);
	return rc;
}

int tokenizer_refuse_id(const struct tokenizer *t, int32_t id, int64_t vocab_count)
{
	char *text = NULL;

	if (!t || tokenizer_decode(t, &text, NULL, &id, 1, SKIP_SPECIAL_OFF))
		text = NULL;
	err_set(ERR_INPUT,
	        "the token '%.60s' has id %d, but the model has ids 0 to %" PRId64
	        "; resize the model's embedding with transformers, or use the model's own tokenizer",
	        text ? text : "", id, vocab_count - 1);
	mem_free(text);
	return ERR_INPUT;
}

int64_t tokenizer_vocab_count(const struct tokenizer *t)
{
	return t->model.vocab.id_end;
}

int tokenizer_find(const struct tokenizer *t, int32_t *id, const char *content)
{
	*id = vocab_find_content(&t->model.vocab, content, strlen(content));
	return *id >= 0;
}

int tokenizer_set_eos(struct tokenizer *t, const char *content)
{
	int32_t id;

	if (!tokenizer_find(t, &id, content))
		return err_set(ERR_INPUT, "'%.80s' is not in the tokenizer's vocabulary", content);
	t->roles.eos = id;
	return 0;
}

const struct tokenizer_roles *tokenizer_roles(const struct tokenizer *t)
{
	return &t->roles;
}
