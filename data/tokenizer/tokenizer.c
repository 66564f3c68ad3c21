#include "data/tokenizer/tokenizer.h"

#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/tokenizer/inside.h"
#include "data/tokenizer/nfc.h"
#include "data/tokenizer/unicode.h"

enum { FILE_BYTES_MAX = 512 << 20 };

int tokenizer_open_with(struct tokenizer **out, const char *path, enum pattern_engine engine)
{
	struct tokenizer *t = NULL;
	json_t *root = NULL;
	int is_dir = file_kind_of(path) == FILE_DIR;
	char *json_path = is_dir ? file_join(path, "tokenizer.json") : mem_strdup(path);
	int rc = json_path ? 0 : ERR_NOMEM;

	*out = NULL;
	unicode_init();
	if (rc == 0 && is_dir && file_kind_of(json_path) == FILE_NONE)
		rc = err_set(ERR_INPUT,
		        "%s: there is no tokenizer.json, the only kind of tokenizer that is read", path);
	if (rc == 0)
		rc = json_read_file(&root, json_path, FILE_BYTES_MAX);
	if (rc == 0 && !(t = mem_alloc(1, sizeof(*t))))
		rc = ERR_NOMEM;
	if (rc == 0)
		rc = tokenizer_load(t, root, json_path, engine);
	if (rc == 0)
		rc = tokenizer_load_roles(t, is_dir ? path : NULL);
	if (rc == 0) {
		*out = t;
		t = NULL;
	}
	tokenizer_close(t);
	json_decref(root);
	mem_free(json_path);
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
	pretokenizer_free(&t->pretokenizer);
	bpe_free(&t->bpe);
	added_set_free(&t->raw);
	added_set_free(&t->normalized);
	mem_free(t->added);
	piece_list_free(&t->renamed);
	str_free(&t->renamed_bytes);
	token_list_free(&t->before);
	token_list_free(&t->after);
	mem_free(t);
}

/* Working memory of one call. */
struct encoding {
	const struct tokenizer *t;
	struct token_list *ids;
	struct piece_list raw, normalized;
	struct str text; /* a normalized piece */
	struct word_list words;
	struct bpe_scratch scratch;
};

static void encoding_free(struct encoding *e)
{
	piece_list_free(&e->raw);
	piece_list_free(&e->normalized);
	str_free(&e->text);
	word_list_free(&e->words);
	bpe_scratch_free(&e->scratch);
}

/* A piece without added tokens. */
static int encode_words(struct encoding *e, const char *text, size_t len_bytes)
{
	int rc = pretokenizer_run(&e->t->pretokenizer, &e->words, text, len_bytes);

	for (int64_t i = 0; rc == 0 && i < e->words.count; i++) {
		struct span word = e->words.words[i];

		rc = bpe_encode(
		        &e->t->bpe, &e->scratch, e->ids, e->words.text + word.start, word.end - word.start);
	}
	return rc;
}

/* A piece of raw text: normalized, and searched for the tokens that want that. */
static int encode_raw_piece(struct encoding *e, const char *text, size_t len_bytes)
{
	int rc;

	if (e->t->normalize_nfc && nfc_may_change(text, len_bytes)) {
		e->text.len_bytes = 0;
		rc = nfc_append(&e->text, text, len_bytes);
		if (rc < 0)
			return rc;
		text = e->text.data;
		len_bytes = e->text.len_bytes;
	}
	e->normalized.count = 0;
	rc = added_set_split(&e->t->normalized, &e->normalized, text, len_bytes, 0);
	for (int64_t i = 0; rc == 0 && i < e->normalized.count; i++) {
		struct piece p = e->normalized.pieces[i];

		rc = p.id >= 0 ? token_list_add(e->ids, p.id)
		               : encode_words(e, text + p.start, p.end - p.start);
	}
	return rc;
}

static int append_list(struct token_list *ids, const struct token_list *more)
{
	if (token_list_reserve(ids, more->count) < 0)
		return ERR_NOMEM;
	if (more->count > 0)
		memcpy(ids->ids + ids->count, more->ids, (size_t)more->count * sizeof(*ids->ids));
	ids->count += more->count;
	return 0;
}

int tokenizer_encode(const struct tokenizer *t, struct token_list *ids, const char *text, size_t len_bytes,
        enum add_special add)
{
	struct encoding e = {.t = t, .ids = ids};
	size_t valid_bytes = utf8_check(text, len_bytes);
	int64_t before = ids->count;
	int rc = 0;

	if (valid_bytes < len_bytes)
		return err_set(ERR_INPUT, "the text is not valid UTF-8 at byte %zu (0x%02x)", valid_bytes,
		        (unsigned char)text[valid_bytes]);
	if (add != ADD_SPECIAL_NONE)
		rc = append_list(ids, &t->before);
	if (rc == 0)
		rc = added_set_split(&t->raw, &e.raw, text, len_bytes, 0);
	for (int64_t i = 0; rc == 0 && i < e.raw.count; i++) {
		struct piece p = e.raw.pieces[i];

		rc = p.id >= 0 ? token_list_add(ids, p.id)
		               : encode_raw_piece(&e, text + p.start, p.end - p.start);
	}
	if (rc == 0 && add == ADD_SPECIAL_ALL)
		rc = append_list(ids, &t->after);
	if (rc < 0)
		ids->count = before;
	encoding_free(&e);
	return rc;
}

/* Bytes of one maximal part of a broken sequence at u, as Unicode's table 3-7 and Rust's from_utf8_lossy
 * count. */
static size_t broken_length(const unsigned char *u, size_t left)
{
	size_t want = u[0] >= 0xf0 ? 4 : u[0] >= 0xe0 ? 3 : 2, len = 1;
	unsigned char low = 0x80, high = 0xbf;

	if (u[0] < 0xc2 || u[0] > 0xf4)
		return 1;
	if (u[0] == 0xe0)
		low = 0xa0;
	else if (u[0] == 0xed)
		high = 0x9f;
	else if (u[0] == 0xf0)
		low = 0x90;
	else if (u[0] == 0xf4)
		high = 0x8f;
	while (len < want && len < left && u[len] >= low && u[len] <= high) {
		len++;
		low = 0x80;
		high = 0xbf;
	}
	return len;
}

static void append_lossy(struct str *out, const char *bytes, size_t len_bytes)
{
	while (len_bytes > 0) {
		size_t valid_bytes = utf8_check(bytes, len_bytes), broken;

		str_add_bytes(out, bytes, valid_bytes);
		bytes += valid_bytes;
		len_bytes -= valid_bytes;
		if (len_bytes == 0)
			break;
		str_add(out, "\xef\xbf\xbd");
		broken = broken_length((const unsigned char *)bytes, len_bytes);
		bytes += broken;
		len_bytes -= broken;
	}
}

static const char *renamed_bytes(const struct tokenizer *t, int32_t id, size_t *len_bytes)
{
	const struct piece *p = t->renamed.pieces;

	while (p->id != id)
		p++;
	*len_bytes = p->end - p->start;
	return t->renamed_bytes.data + p->start;
}

int tokenizer_decode(const struct tokenizer *t, char **text, size_t *len_bytes, const int32_t *ids,
        int64_t count, enum skip_special skip)
{
	struct str bytes = {0}, out = {0};
	int rc;

	*text = NULL;
	for (int64_t i = 0; i < count; i++) {
		size_t token_bytes;
		const char *token = vocab_bytes(&t->bpe.vocab, ids[i], &token_bytes);

		if (!token)
			continue;
		enum tokenizer_added added = t->added[ids[i]];
		int special = added == TOKENIZER_ADDED_SPECIAL || added == TOKENIZER_ADDED_RENAMED_SPECIAL;

		if (special && skip == SKIP_SPECIAL_ON)
			continue;
		if (added == TOKENIZER_ADDED_RENAMED || added == TOKENIZER_ADDED_RENAMED_SPECIAL)
			token = renamed_bytes(t, ids[i], &token_bytes);
		str_add_bytes(&bytes, token, token_bytes);
	}
	str_add(&out, "");
	append_lossy(&out, bytes.data ? bytes.data : "", bytes.len_bytes);
	rc = str_check(&bytes) < 0 ? ERR_NOMEM : str_check(&out);
	if (rc == 0) {
		if (len_bytes)
			*len_bytes = out.len_bytes;
		*text = str_take(&out);
		rc = *text ? 0 : ERR_NOMEM;
	}
	str_free(&bytes);
	str_free(&out);
	return rc;
}

int64_t tokenizer_vocab_count(const struct tokenizer *t)
{
	return t->bpe.vocab.id_end;
}

int tokenizer_find(const struct tokenizer *t, int32_t *id, const char *content)
{
	*id = vocab_find_content(&t->bpe.vocab, content, strlen(content));
	return *id >= 0;
}

const struct tokenizer_roles *tokenizer_roles(const struct tokenizer *t)
{
	return &t->roles;
}
