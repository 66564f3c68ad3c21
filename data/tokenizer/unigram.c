/* Unigram: splits a word into the pieces with the highest sum of scores (Viterbi), as sentencepiece does.
 *
 * A *way* is a sequence of pieces from the start of a word to a position in it. The pieces are in a trie. For
 * each position, memory keeps the length of the last piece of the best way: one or two bytes. Scores are kept
 * for the last few positions only. A long word comes in parts: the pieces that all remaining ways share are
 * final, and leave the memory. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/tokenizer/json_keys.h"
#include "data/tokenizer/model.h"
#include "data/tokenizer/unicode.h"

#define UNK_PENALTY 10.0

/* The children of a node are neighbours, sorted by label. */
struct node {
	uint32_t first_child;
	int32_t id; /* of the piece that ends here, or -1 */
	uint16_t child_count;
	uint8_t label;
};

struct unigram {
	double *scores; /* [vocab.id_end] */
	struct node *nodes;
	int64_t node_count, node_cap;
	int32_t root_child[256]; /* node by first byte, 0 = none */
	double unk_score;
	int32_t unk_id;
	int32_t byte_ids[256]; /* of <0xNN>; -1 = none */
	int byte_fallback;
	size_t ring; /* a power of two above the longest piece and the longest character */
};

/* Ways through a text: a whole word, or the part of a long word that is not final. */
struct scratch {
	double *ring;
	uint8_t *ring_set; /* 1 if a way ends there */
	struct str lengths;
	size_t from, at;    /* bytes of the word before the text; next position of forward() */
	struct str text;    /* parts that are not final */
	size_t try_bytes;   /* length of text that is worth trying to decide */
	struct str unknown; /* final unknown pieces right before the text */
};

enum { PART_BYTES = 1 << 20 };

/* ---- the trie */

struct piece_ref {
	const char *bytes;
	uint32_t len_bytes;
	int32_t id;
};

static int compare_pieces(const void *a, const void *b)
{
	const struct piece_ref *x = a, *y = b;
	uint32_t shorter = x->len_bytes < y->len_bytes ? x->len_bytes : y->len_bytes;
	int order = memcmp(x->bytes, y->bytes, shorter);

	if (order != 0)
		return order;
	if (x->len_bytes != y->len_bytes)
		return x->len_bytes < y->len_bytes ? -1 : 1;
	return x->id < y->id ? -1 : 1;
}

static int new_node(struct unigram *u, uint8_t label, int64_t *at)
{
	if (u->node_count == u->node_cap) {
		int64_t cap = u->node_cap * 2 + 1024;
		struct node *grown =
		        cap < INT32_MAX ? mem_resize(u->nodes, (size_t)cap, sizeof(*grown)) : NULL;

		if (!grown)
			return ERR_NOMEM;
		u->nodes = grown;
		u->node_cap = cap;
	}
	*at = u->node_count++;
	u->nodes[*at] = (struct node){.id = -1, .label = label};
	return 0;
}

/* A node to build: it has the pieces first to end (sorted, with the same first `depth` bytes). */
struct job {
	int64_t first, end;
	uint32_t depth;
};

/* Makes the children of node `at`. Appends their jobs, so that children of one node are neighbours. */
static int make_children(struct unigram *u, const struct piece_ref *pieces, struct job *jobs, int64_t at)
{
	struct job job = jobs[at];
	int64_t child;

	while (job.first < job.end && pieces[job.first].len_bytes == job.depth)
		u->nodes[at].id = pieces[job.first++].id; /* of equal pieces, the last */
	u->nodes[at].first_child = (uint32_t)u->node_count;
	while (job.first < job.end) {
		uint8_t label = (uint8_t)pieces[job.first].bytes[job.depth];
		int64_t end = job.first;

		while (end < job.end && (uint8_t)pieces[end].bytes[job.depth] == label)
			end++;
		if (new_node(u, label, &child) < 0)
			return ERR_NOMEM;
		jobs[child] = (struct job){.first = job.first, .end = end, .depth = job.depth + 1};
		u->nodes[at].child_count++;
		job.first = end;
	}
	return 0;
}

static int build_trie(struct unigram *u, const struct vocab *v)
{
	struct piece_ref *pieces = mem_alloc((size_t)v->id_end, sizeof(*pieces));
	struct job *jobs = NULL;
	int64_t count = 0, total = 1, root;
	int rc = pieces ? 0 : ERR_NOMEM;

	for (int64_t id = 0; rc == 0 && id < v->id_end; id++) {
		size_t len_bytes;
		const char *bytes = vocab_bytes(v, id, &len_bytes);

		if (len_bytes == 0)
			continue;
		pieces[count++] = (struct piece_ref){bytes, (uint32_t)len_bytes, (int32_t)id};
		total += (int64_t)len_bytes; /* the maximum number of nodes */
	}
	if (rc == 0 && !(jobs = mem_alloc((size_t)total, sizeof(*jobs))))
		rc = ERR_NOMEM;
	if (rc == 0) {
		qsort(pieces, (size_t)count, sizeof(*pieces), compare_pieces);
		rc = new_node(u, 0, &root);
		jobs[0] = (struct job){.end = count};
	}
	for (int64_t at = 0; rc == 0 && at < u->node_count; at++)
		rc = make_children(u, pieces, jobs, at);
	for (uint32_t i = 0; rc == 0 && i < u->nodes[0].child_count; i++)
		u->root_child[u->nodes[u->nodes[0].first_child + i].label] =
		        (int32_t)(u->nodes[0].first_child + i);
	mem_free(pieces);
	mem_free(jobs);
	return rc;
}

static const struct node *find_child(const struct unigram *u, const struct node *node, uint8_t label)
{
	const struct node *children = u->nodes + node->first_child;
	uint32_t low = 0, high = node->child_count;

	while (high - low > 4) {
		uint32_t middle = (low + high) / 2;

		if (children[middle].label <= label)
			low = middle;
		else
			high = middle;
	}
	for (; low < high; low++)
		if (children[low].label == label)
			return &children[low];
	return NULL;
}

/* ---- loading */

/* ["piece", score] */
static int load_piece(struct token_model *m, struct json_reader *r, int64_t id, double *score)
{
	const char *text;
	size_t len_bytes;
	int rc = json_reader_expect(r, '[');

	if (rc == 0)
		rc = json_reader_string(r, &text, &len_bytes);
	if (rc == 0)
		rc = json_reader_expect(r, ',');
	if (rc == 0)
		rc = vocab_add(&m->vocab, text, len_bytes, id, VOCAB_KIND_WORD);
	if (rc == 0)
		rc = json_reader_number(r, score);
	return rc < 0 ? rc : json_reader_expect(r, ']');
}

static int add_score(struct unigram *u, int64_t *cap, int64_t id, double score)
{
	if (id >= *cap) {
		double *grown = mem_resize(u->scores, (size_t)(*cap = id * 2 + 1024), sizeof(*grown));

		if (!grown)
			return ERR_NOMEM;
		u->scores = grown;
	}
	u->scores[id] = score;
	return 0;
}

static int load_pieces(struct token_model *m, struct json_reader *r)
{
	struct unigram *u = m->state;
	double lowest = INFINITY, score = 0;
	int64_t count = 0, cap = 0;
	int rc = json_reader_expect(r, '[');

	m->vocab.later_wins = 1;
	while (rc == 0 && (rc = json_reader_more(r, ']', &count)) > 0) {
		rc = load_piece(m, r, count - 1, &score);
		if (rc == 0)
			rc = add_score(u, &cap, count - 1, score);
		if (score < lowest)
			lowest = score;
	}
	u->unk_score = lowest - UNK_PENALTY;
	return rc < 0 ? rc : build_trie(u, &m->vocab);
}

static int load(struct token_model *m, struct model_source *source)
{
	struct unigram *u = m->state = mem_alloc(1, sizeof(*u));
	int64_t unk_id = -1;
	int rc = u ? 0 : ERR_NOMEM;

	if (rc == 0 && !source->vocab.begin)
		rc = err_set(ERR_INPUT, "%s: model: there is no vocab", source->where);
	if (rc == 0)
		rc = json_get_int(source->spec, source->where, "unk_id", &unk_id);
	if (rc >= 0)
		rc = json_flag(source->spec, source->where, "byte_fallback", 0, &u->byte_fallback);
	if (rc == 0)
		rc = load_pieces(m, &source->vocab);
	if (rc < 0)
		return err_note(rc, "%s: model: vocab", source->where);
	if (unk_id >= m->vocab.id_end || unk_id < -1)
		return err_set(ERR_INPUT, "%s: model: unk_id %lld is not in the vocab", source->where,
		        (long long)unk_id);
	u->unk_id = (int32_t)unk_id;
	for (u->ring = 8; u->ring <= m->vocab.longest_bytes;)
		u->ring *= 2;
	vocab_byte_tokens(&m->vocab, u->byte_ids);
	return 0;
}

static void release(void *state)
{
	struct unigram *u = state;

	mem_free(u->scores);
	mem_free(u->nodes);
	mem_free(u);
}

/* ---- encoding */

/* The length of the last piece of the best way to a position, one or two bytes wide. */
static size_t length_at(const struct scratch *s, int wide, size_t at)
{
	const unsigned char *p = (const unsigned char *)s->lengths.data;

	return wide ? (size_t)p[2 * at] | (size_t)p[2 * at + 1] << 8 : p[at];
}

static void set_length(struct scratch *s, int wide, size_t at, size_t len)
{
	unsigned char *p = (unsigned char *)s->lengths.data;

	if (wide) {
		p[2 * at] = (unsigned char)len;
		p[2 * at + 1] = (unsigned char)(len >> 8);
	} else {
		p[at] = (unsigned char)len;
	}
}

/* Extends a way by a piece of `len` bytes at `start`; `score` is the sum with this piece. */
static void offer(
        const struct unigram *u, struct scratch *s, int wide, size_t start, size_t len, double score)
{
	size_t end = start + len, slot = (s->from + end) & (u->ring - 1);

	if (s->ring_set[slot] && !(score > s->ring[slot]))
		return;
	s->ring[slot] = score;
	s->ring_set[slot] = 1;
	set_length(s, wide, end, len);
}

/* Extends all ways from the positions before `end`. */
static int forward(
        const struct unigram *u, struct scratch *s, int wide, const char *text, size_t len_bytes, size_t end)
{
	size_t char_bytes;

	for (; s->at < end; s->at += char_bytes) {
		size_t at = s->at, slot = (s->from + at) & (u->ring - 1);
		double here = s->from + at ? s->ring[slot] : 0;
		int32_t first = u->root_child[(unsigned char)text[at]];
		const struct node *node = first ? &u->nodes[first] : NULL;
		int single = 0;
		uint32_t c;

		char_bytes = (size_t)utf8_get(text + at, &c);
		for (size_t i = 0; i < char_bytes; i++) /* no way ends here any more */
			s->ring_set[(slot + i) & (u->ring - 1)] = 0;
		for (size_t len = 1; node; len++) {
			if (node->id >= 0) {
				offer(u, s, wide, at, len, u->scores[node->id] + here);
				single |= len == char_bytes;
			}
			node = at + len < len_bytes ? find_child(u, node, (uint8_t)text[at + len]) : NULL;
		}
		if (!single && u->unk_id < 0)
			return err_set(ERR_INPUT, "the vocabulary lacks U+%04X, and there is no unk_id", c);
		if (!single)
			offer(u, s, wide, at, char_bytes, u->unk_score + here);
	}
	return 0;
}

/* The last position that the best ways to a and to b share. */
static size_t shared_of(const struct scratch *s, int wide, size_t a, size_t b)
{
	while (a != b)
		if (a > b)
			a -= length_at(s, wide, a);
		else
			b -= length_at(s, wide, b);
	return a;
}

/* The last position that all ways share which may still become the best; 0 = none. */
static size_t shared_by_all(const struct unigram *u, const struct scratch *s, int wide)
{
	size_t shared = s->at;

	for (size_t i = 1; shared > 0 && i < u->ring; i++)
		if (s->ring_set[(s->from + s->at + i) & (u->ring - 1)])
			shared = shared_of(s, wide, shared, s->at + i);
	return shared;
}

/* Appends the id of a piece, or of its byte tokens, or unk_id. */
static int add_piece(const struct token_model *m, struct token_list *ids, const char *text, size_t len_bytes)
{
	const struct unigram *u = m->state;
	int32_t id = vocab_find(&m->vocab, text, len_bytes);
	int all = u->byte_fallback;

	if (id >= 0)
		return token_list_add(ids, id);
	for (size_t i = 0; all && i < len_bytes; i++)
		all = u->byte_ids[(unsigned char)text[i]] >= 0;
	if (!all)
		return token_list_add(ids, u->unk_id);
	if (token_list_reserve(ids, (int64_t)len_bytes) < 0)
		return ERR_NOMEM;
	for (size_t i = 0; i < len_bytes; i++)
		ids->ids[ids->count++] = u->byte_ids[(unsigned char)text[i]];
	return 0;
}

/* Reverses the lengths along the best way: afterwards, each is at the start of its piece, not at the end. */
static void turn_round(struct scratch *s, int wide, size_t len_bytes)
{
	size_t len = length_at(s, wide, len_bytes);

	for (size_t end = len_bytes; end > 0;) {
		size_t start = end - len, before = length_at(s, wide, start);

		set_length(s, wide, start, len);
		end = start;
		len = before;
	}
}

/* Appends the id of a run of unknown pieces that ends here. */
static int end_unknown(const struct token_model *m, struct token_list *ids, struct scratch *s,
        const char *text, size_t len_bytes)
{
	int rc;

	if (s->unknown.len_bytes == 0)
		return len_bytes ? add_piece(m, ids, text, len_bytes) : 0;
	str_add_bytes(&s->unknown, text, len_bytes);
	rc = str_check(&s->unknown);
	if (rc == 0)
		rc = add_piece(m, ids, s->unknown.data, s->unknown.len_bytes);
	str_free(&s->unknown);
	return rc;
}

/* Appends the ids of the best way; neighbouring unknown pieces are one piece. */
static int collect(const struct token_model *m, struct token_list *ids, struct scratch *s, int wide,
        const char *text, size_t len_bytes, int more)
{
	const struct unigram *u = m->state;
	size_t unknown_from = 0; /* start of the current run of unknown pieces */
	int rc = 0;

	turn_round(s, wide, len_bytes);
	for (size_t at = 0; rc == 0 && at < len_bytes;) {
		size_t len = length_at(s, wide, at);
		int32_t id = vocab_find(&m->vocab, text + at, len);

		if (id >= 0 && id != u->unk_id) {
			rc = end_unknown(m, ids, s, text + unknown_from, at - unknown_from);
			if (rc == 0)
				rc = token_list_add(ids, id);
			unknown_from = at + len;
		}
		at += len;
	}
	if (rc == 0 && !more)
		return end_unknown(m, ids, s, text + unknown_from, len_bytes - unknown_from);
	str_add_bytes(&s->unknown, text + unknown_from, len_bytes - unknown_from);
	return rc ? rc : str_check(&s->unknown);
}

static int begin(const struct unigram *u, struct scratch *s)
{
	if (!s->ring) {
		s->ring = mem_alloc(u->ring, sizeof(*s->ring));
		s->ring_set = mem_alloc(u->ring, 1);
		if (!s->ring || !s->ring_set)
			return ERR_NOMEM;
	}
	memset(s->ring_set, 0, u->ring);
	s->from = s->at = 0;
	s->try_bytes = 2 * PART_BYTES + u->ring;
	return 0;
}

static int reserve(struct scratch *s, size_t lengths_bytes)
{
	char *grown;

	if (s->lengths.cap_bytes >= lengths_bytes)
		return 0;
	grown = mem_resize(s->lengths.data, lengths_bytes, 1);
	if (!grown)
		return ERR_NOMEM;
	s->lengths.data = grown;
	s->lengths.cap_bytes = lengths_bytes;
	return 0;
}

/* Decides the first *decided bytes of a text: all of it, or with `more` those that all ways share. */
static int decide(const struct token_model *m, struct token_list *ids, struct scratch *s, const char *text,
        size_t len_bytes, int more, size_t *decided)
{
	const struct unigram *u = m->state;
	int wide = m->vocab.longest_bytes > UINT8_MAX;
	int rc = reserve(s, (len_bytes + 1) << wide);

	*decided = len_bytes;
	if (rc == 0)
		rc = forward(u, s, wide, text, len_bytes, more ? len_bytes - u->ring : len_bytes);
	if (rc == 0 && more)
		*decided = shared_by_all(u, s, wide);
	return rc == 0 && *decided ? collect(m, ids, s, wide, text, *decided, more) : rc;
}

/* If the ways share nothing, the text is tried again at twice the length: that keeps the time linear. */
static int encode_part(const struct token_model *m, void *scratch, struct token_list *ids, const char *part,
        size_t len_bytes)
{
	struct scratch *s = scratch;
	int wide = m->vocab.longest_bytes > UINT8_MAX, rc = s->text.len_bytes ? 0 : begin(m->state, s);
	size_t done = 0, rest;

	if (rc == 0) {
		str_add_bytes(&s->text, part, len_bytes);
		rc = str_check(&s->text);
	}
	if (rc < 0 || s->text.len_bytes < s->try_bytes)
		return rc;
	rc = decide(m, ids, s, s->text.data, s->text.len_bytes, 1, &done);
	if (rc < 0)
		return rc;
	rest = s->text.len_bytes - done;
	memmove(s->text.data, s->text.data + done, rest);
	s->text.len_bytes = rest;
	memmove(s->lengths.data, s->lengths.data + (done << wide), (rest + 1) << wide);
	s->from += done;
	s->at -= done;
	s->try_bytes = 2 * (rest > PART_BYTES ? rest : PART_BYTES);
	return 0;
}

static size_t part_end(const char *word, size_t len_bytes, size_t start)
{
	size_t end = len_bytes - start > PART_BYTES ? start + PART_BYTES : len_bytes;

	while (end < len_bytes && ((unsigned char)word[end] & 0xc0) == 0x80)
		end++;
	return end;
}

static int encode(const struct token_model *m, void *scratch, struct token_list *ids, const char *word,
        size_t len_bytes)
{
	struct scratch *s = scratch;
	size_t decided;
	int rc = 0;

	if (s->text.len_bytes == 0 && len_bytes <= PART_BYTES) {
		rc = begin(m->state, s);
		return rc < 0 ? rc : decide(m, ids, s, word, len_bytes, 0, &decided);
	}
	for (size_t start = 0, end; rc == 0 && start < len_bytes; start = end) {
		end = part_end(word, len_bytes, start);
		rc = encode_part(m, s, ids, word + start, end - start);
	}
	if (rc == 0)
		rc = decide(m, ids, s, s->text.data, s->text.len_bytes, 0, &decided);
	str_free(&s->text);
	return rc;
}

static void scratch_free(void *scratch)
{
	struct scratch *s = scratch;

	mem_free(s->ring);
	mem_free(s->ring_set);
	str_free(&s->lengths);
	str_free(&s->text);
	str_free(&s->unknown);
}

const struct model_kind model_unigram = {.name = "Unigram",
        .keys = "type vocab unk_id byte_fallback",
        .load = load,
        .free = release,
        .encode = encode,
        .encode_part = encode_part,
        .scratch_bytes = sizeof(struct scratch),
        .scratch_free = scratch_free};
