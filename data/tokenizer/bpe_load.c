/* Loads a BPE model: vocabulary, merges, and tables derived from them. */
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/tokenizer/bpe_encode.h"
#include "data/tokenizer/json_keys.h"
#include "data/tokenizer/model.h"
#include "data/tokenizer/unicode.h"

enum { AFFIX_BYTES_MAX = 100 };

/* The symbol of the character at text, or -1. */
static int32_t symbol_of(const struct bpe *b, const char *text, size_t len_bytes)
{
	return b->vocab->in_bytes ? b->byte_ids[(unsigned char)*text] : vocab_find(b->vocab, text, len_bytes);
}

/* Notes that a merge may join the last symbol of left and the first of right. */
static void note_join(struct bpe *b, int32_t left, int32_t right)
{
	size_t left_bytes, right_bytes, first = 1, last = 1;
	const char *l = vocab_bytes(b->vocab, left, &left_bytes),
	           *r = vocab_bytes(b->vocab, right, &right_bytes);
	int32_t before, after;
	uint32_t c;

	if (!b->joins || left_bytes == 0 || right_bytes == 0)
		return;
	if (!b->vocab->in_bytes) {
		last = (size_t)utf8_get_before(l + left_bytes, &c);
		first = (size_t)utf8_get(r, &c);
	}
	before = symbol_of(b, l + left_bytes - last, last);
	after = symbol_of(b, r, first);
	if (before >= 0 && after >= 0) {
		uint64_t bit = bpe_hash(before, after) >> (64 - BPE_JOINS_BITS);

		b->joins[bit / 64] |= (uint64_t)1 << bit % 64;
	}
}

/* The id of left and right joined (right without its prefix), or -1. Merges are mostly in the order of their
 * results, so it tries *id and the next id first. */
static int concatenation(const struct bpe *b, struct str *both, int32_t *id, int32_t left, int32_t right)
{
	size_t len_bytes, skip = b->prefix ? strlen(b->prefix) : 0;
	const char *bytes = vocab_bytes(b->vocab, left, &len_bytes);

	both->len_bytes = 0;
	str_add_bytes(both, bytes, len_bytes);
	bytes = vocab_bytes(b->vocab, right, &len_bytes);
	if (skip > len_bytes)
		return err_set(ERR_INPUT, "the right part is shorter than continuing_subword_prefix");
	str_add_bytes(both, bytes + skip, len_bytes - skip);
	if (str_check(both) < 0)
		return ERR_NOMEM;
	for (int i = 0; i < 2; i++, ++*id)
		if (vocab_is(b->vocab, *id, both->data, both->len_bytes))
			return 0;
	*id = vocab_find(b->vocab, both->data, both->len_bytes);
	return 0;
}

/* A repeated pair takes the later rank. *id is the last merge's result on entry, this one's on return. */
static int add_merge(struct bpe *b, struct str *both, int32_t left, int32_t right, int32_t rank, int32_t *id)
{
	uint64_t mask = (uint64_t)b->merge_slots - 1, i = bpe_hash(left, right) & mask;
	int rc;

	if (b->vocab->entries[left].kind || b->vocab->entries[right].kind)
		return 0; /* odd entries have characters that no word has */
	rc = concatenation(b, both, id, left, right);
	if (rc < 0)
		return rc;
	if (*id < 0)
		return err_set(ERR_INPUT, "the vocabulary lacks both parts together");
	while (b->merges[i].left >= 0 && (b->merges[i].left != left || b->merges[i].right != right))
		i = (i + 1) & mask;
	b->merges[i] = (struct bpe_merge){.left = left, .right = right, .rank = rank, .id = *id};
	note_join(b, left, right);
	return 0;
}

/* Sets a query to one side of a merge. A text in the file is looked up later, with others at once. A text
 * in the reader's buffer is looked up now, because the buffer changes. */
static void read_side(const struct vocab *v, const struct json_reader *r, struct vocab_query *q,
        const char *text, size_t len_bytes)
{
	*q = (struct vocab_query){.content = text, .len_bytes = len_bytes};
	if (text < r->begin || text >= r->end) {
		q->id = vocab_find_content(v, text, len_bytes);
		q->content = NULL;
	}
}

/* Reads "left right", separated by the only U+0020 (other spaces may be inside), or ["left", "right"]. */
static int read_merge(const struct vocab *v, struct json_reader *r, struct vocab_query sides[2])
{
	const char *text, *space;
	size_t len_bytes;
	int rc, is_pair = json_reader_peek(r) == '[';

	if (is_pair) {
		r->at++;
		rc = json_reader_string(r, &text, &len_bytes);
		if (rc == 0)
			read_side(v, r, &sides[0], text, len_bytes);
		if (rc == 0)
			rc = json_reader_expect(r, ',');
		if (rc == 0)
			rc = json_reader_string(r, &text, &len_bytes);
		if (rc == 0)
			read_side(v, r, &sides[1], text, len_bytes);
		return rc < 0 ? rc : json_reader_expect(r, ']');
	}
	rc = json_reader_string(r, &text, &len_bytes);
	space = rc == 0 ? memchr(text, ' ', len_bytes) : NULL;
	if (rc == 0 && (!space || memchr(space + 1, ' ', len_bytes - (size_t)(space + 1 - text))))
		rc = json_reader_error(r, "neither \"left right\" nor [\"left\", \"right\"]");
	if (rc < 0)
		return rc;
	read_side(v, r, &sides[0], text, (size_t)(space - text));
	read_side(v, r, &sides[1], space + 1, len_bytes - (size_t)(space + 1 - text));
	return 0;
}

/* Makes an empty table of merges for `count` merges. */
static int begin_merges(struct bpe *b, int64_t count)
{
	for (b->merge_slots = 16; b->merge_slots < count * 3 / 2;)
		b->merge_slots *= 2;
	b->merges = mem_alloc((size_t)b->merge_slots, sizeof(*b->merges));
	if (!b->merges)
		return ERR_NOMEM;
	for (int64_t slot = 0; slot < b->merge_slots; slot++)
		b->merges[slot].left = -1;
	return 0;
}

/* 1 for unk_token and byte tokens: they replace other text, so merges join them with anything, and no cut
 * is safe. */
static int stands_for_other(const struct bpe *b, int32_t id)
{
	size_t len_bytes;
	const char *text = vocab_bytes(b->vocab, id, &len_bytes);

	return id == b->unk_id || (b->byte_fallback && len_bytes == 6 && memcmp(text, "<0x", 3) == 0);
}

/* Merges that were read before their table exists. */
struct read_merges {
	struct token_list sides; /* left, right, left, right.. */
	struct str both;
};

enum { BATCH = 32, AHEAD = 8 };

/* Looks up the ids of `count` merges. Sets *odd if one of them stands for other text. */
static int take_batch(struct bpe *b, struct read_merges *read, struct vocab_query *sides, int count, int *odd)
{
	vocab_find_many(b->vocab, sides, 2 * count);
	for (int i = 0; i < 2 * count; i++) {
		if (sides[i].id < 0) {
			err_set(ERR_INPUT, "the vocabulary lacks the %s part", i % 2 ? "right" : "left");
			return err_note(ERR_INPUT, "merges[%lld]", (long long)read->sides.count / 2);
		}
		if (token_list_add(&read->sides, sides[i].id) < 0)
			return ERR_NOMEM;
		if (b->byte_fallback || b->unk_id >= 0)
			*odd |= stands_for_other(b, sides[i].id);
	}
	return 0;
}

static int read_merges(struct bpe *b, struct json_reader *r, struct read_merges *read)
{
	struct vocab_query sides[2 * BATCH];
	int64_t count = 0;
	int rc = json_reader_expect(r, '['), odd = 0, waiting = 0;

	while (rc == 0 && (rc = json_reader_more(r, ']', &count)) > 0) {
		rc = read_merge(b->vocab, r, sides + 2 * waiting++);
		if (rc < 0)
			return err_note(rc, "merges[%lld]", (long long)count - 1);
		if (waiting == BATCH) {
			rc = take_batch(b, read, sides, waiting, &odd);
			waiting = 0;
		}
	}
	if (rc == 0)
		rc = take_batch(b, read, sides, waiting, &odd);
	if (rc == 0 && odd) {
		mem_free(b->joins);
		b->joins = NULL;
	}
	return rc;
}

/* Prefetches memory that adding merges[AHEAD] will read, and entries of the merge after 2 * AHEAD. */
static void fetch_merge(const struct bpe *b, const int32_t *sides)
{
	int32_t left = sides[2 * AHEAD], right = sides[2 * AHEAD + 1];

	__builtin_prefetch(&b->vocab->entries[sides[4 * AHEAD]]);
	__builtin_prefetch(&b->vocab->entries[sides[4 * AHEAD + 1]]);
	__builtin_prefetch(&b->merges[bpe_hash(left, right) & ((uint64_t)b->merge_slots - 1)]);
	__builtin_prefetch(b->vocab->bytes.data + b->vocab->entries[left].offset);
	__builtin_prefetch(b->vocab->bytes.data + b->vocab->entries[right].offset);
}

static int load_merges(struct bpe *b, struct model_source *source)
{
	struct read_merges read = {0};
	int32_t id = -1;
	int rc;

	if (!source->merges.begin)
		return err_set(ERR_INPUT, "%s: model: there are no merges", source->where);
	rc = read_merges(b, &source->merges, &read);
	if (rc == 0)
		rc = begin_merges(b, read.sides.count / 2);
	for (int64_t i = 0; rc == 0 && i < read.sides.count / 2; i++) {
		const int32_t *sides = read.sides.ids + 2 * i;

		if (2 * (i + 2 * AHEAD) < read.sides.count)
			fetch_merge(b, sides);
		rc = add_merge(b, &read.both, sides[0], sides[1], (int32_t)i, &id);
		if (rc < 0)
			err_note(rc, "merges[%lld]", (long long)i);
	}
	token_list_free(&read.sides);
	str_free(&read.both);
	return rc < 0 ? err_note(rc, "%s: model", source->where) : 0;
}

static int load_affix(const json_t *spec, const char *where, const char *key, char **affix)
{
	const char *text = "";
	int rc = json_get_str(spec, where, key, &text);

	if (rc >= 0 && strlen(text) > AFFIX_BYTES_MAX)
		rc = err_set(ERR_INPUT, "%s: model: %s has %zu bytes; the limit is %d", where, key,
		        strlen(text), AFFIX_BYTES_MAX);
	if (rc < 0 || !*text)
		return rc < 0 ? rc : 0;
	*affix = mem_strdup(text);
	return *affix ? 0 : ERR_NOMEM;
}

static int load_flags(struct bpe *b, const json_t *spec, const char *where)
{
	double dropout = 0;
	int rc = json_get_num(spec, where, "dropout", &dropout);

	if (rc >= 0 && dropout != 0)
		return err_set(ERR_UNSUPPORTED,
		        "%s: model: dropout %g makes ids random and is not supported; set it to null", where,
		        dropout);
	if (rc >= 0)
		rc = load_affix(spec, where, "continuing_subword_prefix", &b->prefix);
	if (rc == 0)
		rc = load_affix(spec, where, "end_of_word_suffix", &b->suffix);
	if (rc == 0)
		rc = json_flag(spec, where, "fuse_unk", 0, &b->fuse_unk);
	if (rc == 0)
		rc = json_flag(spec, where, "ignore_merges", 0, &b->ignore_merges);
	if (rc == 0)
		rc = json_flag(spec, where, "byte_fallback", 0, &b->byte_fallback);
	if (rc == 0 && b->byte_fallback && (b->prefix || b->suffix))
		rc = err_set(ERR_UNSUPPORTED,
		        "%s: model: byte_fallback with continuing_subword_prefix or end_of_word_suffix is "
		        "not "
		        "supported",
		        where);
	return rc < 0 ? rc : 0;
}

static void fill_symbol_ids(struct bpe *b)
{
	for (int byte = 0; byte < 256; byte++) {
		char text[1] = {(char)byte};
		int32_t id = vocab_find(b->vocab, text, 1);

		if (b->vocab->in_bytes)
			b->byte_ids[byte] = id;
		if (byte < 128)
			b->ascii_ids[byte] = id;
	}
	if (!b->vocab->in_bytes)
		vocab_byte_tokens(b->vocab, b->byte_ids);
}

static int load(struct token_model *m, struct model_source *source)
{
	struct bpe *b = m->state = mem_alloc(1, sizeof(*b));
	const char *unk;
	int rc = b ? load_flags(b, source->spec, source->where) : ERR_NOMEM;

	if (rc == 0)
		rc = model_load_words(m, source);
	if (rc < 0)
		return rc;
	b->vocab = &m->vocab;
	rc = model_load_token(m, source, "unk_token", &b->unk_id, &unk);
	if (rc == 0 && unk && b->unk_id < 0)
		rc = err_set(
		        ERR_INPUT, "%s: model: unk_token '%.80s' is not in the vocab", source->where, unk);
	if (rc < 0)
		return rc;
	fill_symbol_ids(b);
	b->whole_end = m->vocab.id_end;
	b->whole = mem_alloc((size_t)b->whole_end, 1);
	if (!b->whole)
		return ERR_NOMEM;
	if (!b->prefix && !b->suffix &&
	        !(b->joins = mem_alloc((1u << BPE_JOINS_BITS) / 64, sizeof(uint64_t))))
		return ERR_NOMEM;
	return load_merges(b, source);
}

static void release(void *state)
{
	struct bpe *b = state;

	mem_free(b->merges);
	mem_free(b->joins);
	mem_free(b->prefix);
	mem_free(b->suffix);
	mem_free(b->whole);
	mem_free(b);
}

/* 1 if words may come as bytes: then no option depends on characters of the byte alphabet. */
static int takes_bytes(const json_t *spec)
{
	const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};

	for (int i = 0; i < 2; i++)
		if (json_string_length(json_object_get(spec, affixes[i])) > 0)
			return 0;
	return !json_is_true(json_object_get(spec, "byte_fallback"));
}

static int encode(const struct token_model *m, void *scratch, struct token_list *ids, const char *word,
        size_t len_bytes)
{
	return bpe_encode(m->state, scratch, ids, word, len_bytes);
}

static void scratch_free(void *scratch)
{
	bpe_scratch_free(scratch);
}

const struct model_kind model_bpe = {.name = "BPE",
        .keys = "type dropout unk_token continuing_subword_prefix end_of_word_suffix fuse_unk byte_fallback "
                "ignore_merges "
                "vocab merges",
        .load = load,
        .takes_bytes = takes_bytes,
        .free = release,
        .encode = encode,
        .scratch_bytes = sizeof(struct bpe_scratch),
        .scratch_free = scratch_free};
