/* Files of text: each is one text, tokenized piece by piece and cut into rows of max_length tokens.
 *
 * The ids are those of the whole text. A file that fits into one window is tokenized at once. A larger file
 * is cut where the tokenizer's ids on one side do not depend on the other side. The best place is a line
 * break, then a blank, then any place between two characters. ferry tests each cut before it takes it:
 *
 * - `context` is the text before the cut, `more` a longer one, and `probe` the text after the cut;
 * - the ids of context + probe must begin with those of context, and likewise for more;
 * - the remaining ids must be the same in both cases.
 *
 * The next piece is tokenized after its context, and the ids of the context are dropped. So anything that a
 * tokenizer puts before a text comes once.
 */
#include "data/rows/dataset_build.h"

#include <inttypes.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "data/source/bytes.h"
#include "data/tokenizer/token_list.h"
#include "data/tokenizer/tokenizer.h"

enum {
	WINDOW_BYTES = 8 << 20,
	WINDOW_BYTES_MAX = 1 << 30,
	CONTEXT_BYTES = 512, /* `more` is four times as long */
	PROBE_BYTES = 1024,
	TRIES = 200
};

struct plain {
	struct dataset_builder *b;
	const char *path;
	struct bytes *bytes;
	struct str text;      /* the context, and from `fresh` on the bytes to tokenize */
	size_t fresh, window; /* window: bytes to read before searching for a cut */
	int64_t begin;        /* offset of text.data in the file */
	int ended, is_first;  /* the file has ended; this is its first piece */
	int64_t rows;
};

static size_t window_bytes(const struct dataset_builder *b)
{
	return b->options->text_window_bytes ? (size_t)b->options->text_window_bytes : WINDOW_BYTES;
}

static int encode(
        struct token_list *ids, const struct plain *p, const char *text, size_t len, enum add_special add)
{
	ids->count = 0;
	return tokenizer_encode(p->b->options->tokenizer, ids, text, len, add);
}

/* ---- where to cut ---- */

static int is_boundary(const struct str *text, size_t at)
{
	return at < text->len_bytes && ((unsigned char)text->data[at] & 0xc0) != 0x80;
}

static int is_space(char c)
{
	return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* Candidates for a cut: kind 0 is best, kind 2 any place between characters. */
static int is_candidate(const struct str *text, size_t at, int kind)
{
	const char *t = text->data;

	if (kind == 0)
		return t[at - 1] == '\n' && !is_space(t[at]);
	if (kind == 1)
		return t[at] == ' ' && !is_space(t[at - 1]) && !is_space(t[at + 1]);
	return is_boundary(text, at);
}

static size_t context_start(const struct plain *p, size_t cut, size_t len)
{
	size_t at = cut > len ? cut - len : 0;

	while (at > 0 && !is_boundary(&p->text, at))
		at--;
	return at;
}

static int begins_with(const struct token_list *ids, const struct token_list *start)
{
	return ids->count >= start->count &&
	       memcmp(ids->ids, start->ids, (size_t)start->count * sizeof(*ids->ids)) == 0;
}

/* 1 if the ids on each side of the cut do not depend on the other side. */
static int try_cut(const struct plain *p, struct token_list lists[4], size_t cut)
{
	const char *t = p->text.data;
	size_t from[2] = {context_start(p, cut, CONTEXT_BYTES), context_start(p, cut, CONTEXT_BYTES * 4)};
	size_t to = cut + PROBE_BYTES < p->text.len_bytes ? cut + PROBE_BYTES : p->text.len_bytes;
	int64_t behind[2];
	int rc = 0;

	while (to > cut && to < p->text.len_bytes && !is_boundary(&p->text, to))
		to--;
	for (int i = 0; i < 2 && !rc; i++) {
		struct token_list *context = &lists[2 * i], *both = &lists[2 * i + 1];

		rc = encode(context, p, t + from[i], cut - from[i], ADD_SPECIAL_NONE);
		if (!rc)
			rc = encode(both, p, t + from[i], to - from[i], ADD_SPECIAL_NONE);
		if (!rc && !begins_with(both, context))
			return 0;
		behind[i] = rc ? 0 : both->count - context->count;
	}
	if (rc)
		return rc;
	return behind[0] == behind[1] && memcmp(lists[1].ids + lists[0].count, lists[3].ids + lists[2].count,
	                                         (size_t)behind[0] * sizeof(*lists[1].ids)) == 0;
}

/* The last good place for a cut in the second half of the text; 0 = none. */
static int find_cut(size_t *cut, const struct plain *p)
{
	struct token_list lists[4] = {{0}};
	size_t least = p->fresh + (p->text.len_bytes - p->fresh) / 2;
	int found = 0;

	*cut = 0;
	for (int kind = 0; kind < 3 && !found; kind++) {
		int tries = 0;

		for (size_t at = p->text.len_bytes - PROBE_BYTES; at > least && tries < TRIES && !found;
		        at--) {
			if (!is_candidate(&p->text, at, kind))
				continue;
			tries++;
			found = try_cut(p, lists, at);
			*cut = found == 1 ? at : 0;
		}
	}
	for (int i = 0; i < 4; i++)
		token_list_free(&lists[i]);
	return found < 0 ? found : 0;
}

/* ---- pieces ---- */

static int fill(struct plain *p)
{
	char buffer[1 << 12];
	int rc = 0;

	while (!rc && !p->ended && p->text.len_bytes - p->fresh < p->window) {
		int64_t got = bytes_read(p->bytes, buffer, sizeof(buffer));

		if (got < 0)
			return (int)got;
		p->ended = got == 0;
		str_add_bytes(&p->text, buffer, (size_t)got);
		rc = str_check(&p->text);
		p->b->read_bytes += got;
	}
	if (!rc && p->is_first && p->text.len_bytes >= 3 && memcmp(p->text.data, "\xef\xbb\xbf", 3) == 0) {
		p->text.len_bytes -= 3; /* a byte order mark */
		memmove(p->text.data, p->text.data + 3, p->text.len_bytes + 1);
	}
	return rc;
}

/* Appends the ids of text[fresh, end) to b->ids, which holds the ids that are in no row yet; so labels. */
static int take_piece(struct plain *p, size_t end)
{
	struct token_list ids = {0}, labels = {0}, context = {0};
	enum add_special add =
	        p->is_first ? p->ended ? ADD_SPECIAL_ALL : ADD_SPECIAL_BEFORE : ADD_SPECIAL_NONE;
	int rc = row_hidden_encode(p->b, &ids, &labels, p->text.data, end, add);

	if (rc && p->begin)
		rc = err_note(rc, "%s: after byte %" PRId64, p->path, p->begin);
	else if (rc)
		rc = err_note(rc, "%s", p->path);
	if (!rc)
		rc = encode(&context, p, p->text.data, p->fresh, ADD_SPECIAL_NONE);
	for (int64_t i = p->fresh ? context.count : 0; i < ids.count && !rc; i++)
		rc = token_list_add(p->b->ids, ids.ids[i]);
	for (int64_t i = p->fresh ? context.count : 0; i < labels.count && !rc; i++)
		rc = token_list_add(p->b->targets, labels.ids[i]);
	token_list_free(&ids);
	token_list_free(&labels);
	token_list_free(&context);
	p->is_first = 0;
	return rc;
}

/* Drops the tokenized text, except the context. */
static void move_on(struct plain *p, size_t cut)
{
	size_t from = context_start(p, cut, CONTEXT_BYTES);

	memmove(p->text.data, p->text.data + from, p->text.len_bytes - from);
	p->text.len_bytes -= from;
	p->text.data[p->text.len_bytes] = 0;
	p->fresh = cut - from;
	p->begin += (int64_t)from;
	p->window = window_bytes(p->b);
}

/* Appends the special tokens after the text, unless the text was one piece (which has them already), and the
 * end-of-text id. */
static int add_end(struct plain *p, int is_whole)
{
	const struct dataset_options *o = p->b->options;
	struct token_list before = {0}, all = {0};
	int rc = 0;

	if (!is_whole) {
		rc = encode(&before, p, "a", 1, ADD_SPECIAL_BEFORE);
		if (!rc)
			rc = encode(&all, p, "a", 1, ADD_SPECIAL_ALL);
		for (int64_t i = before.count; i < all.count && !rc; i++) {
			rc = token_list_add(p->b->ids, all.ids[i]);
			if (!rc && o->has_words)
				rc = token_list_add(p->b->targets, all.ids[i]);
		}
	}
	token_list_free(&before);
	token_list_free(&all);
	return rc ? rc : dataset_builder_end_text(p->b, 0, DATASET_PIECE_ANSWER);
}

/* Adds rows of max_length_tokens. Before the end, up to that many ids stay for later. A last row of
 * one token is dropped: it has no target. */
static int add_rows(struct plain *p, int is_end)
{
	const struct dataset_options *o = p->b->options;
	struct token_list *ids = p->b->ids, *labels = p->b->targets;
	int64_t stretch = o->max_length_tokens ? o->max_length_tokens : INT64_MAX, at = 0;
	int rc = 0;

	while (!rc && (is_end ? at < ids->count : ids->count - at > stretch)) {
		int64_t count = ids->count - at < stretch ? ids->count - at : stretch;

		if ((count == 1 && p->rows > 0) || (o->max_samples && p->rows == o->max_samples))
			break;
		rc = dataset_builder_add(
		        p->b, ids->ids + at, o->has_words ? labels->ids + at : NULL, count, 0);
		p->b->d->counts.records++;
		p->rows++;
		at += count;
	}
	memmove(ids->ids, ids->ids + at, (size_t)(ids->count - at) * sizeof(*ids->ids));
	ids->count -= at;
	if (!o->has_words)
		return rc;
	memmove(labels->ids, labels->ids + at, (size_t)(labels->count - at) * sizeof(*labels->ids));
	labels->count -= at;
	return rc;
}

static int is_enough(const struct plain *p)
{
	int64_t most = p->b->options->max_samples;

	return p->b->is_made || (most && p->rows >= most);
}

static int read_pieces(struct plain *p)
{
	int is_whole = 1, rc = 0;

	while (!rc && !is_enough(p)) {
		size_t cut = 0;

		rc = fill(p);
		if (!rc && p->begin == 0 && p->text.len_bytes == 0)
			return err_set(ERR_INPUT, "%s: the file is empty", p->path);
		if (!rc && p->ended) {
			rc = take_piece(p, p->text.len_bytes);
			if (!rc)
				rc = add_end(p, is_whole);
			return rc ? rc : add_rows(p, 1);
		}
		if (!rc)
			rc = find_cut(&cut, p);
		if (!rc && !cut && p->window >= WINDOW_BYTES_MAX)
			rc = err_set(ERR_UNSUPPORTED,
			        "%s: the 1 GiB of text after byte %" PRId64
			        " has no place to cut it; add line "
			        "breaks, or split the file",
			        p->path, p->begin);
		if (rc || !cut) {
			p->window *= 2;
			continue;
		}
		is_whole = 0;
		rc = take_piece(p, cut);
		move_on(p, cut);
		if (!rc)
			rc = add_rows(p, 0);
	}
	return rc;
}

int dataset_read_plain(struct dataset_builder *b, const char *path)
{
	struct plain p = {.b = b, .path = path, .window = window_bytes(b), .is_first = 1};
	int rc = dataset_builder_check_pairs(b);

	if (!rc)
		rc = dataset_builder_need_tokenizer(b);
	b->ids->count = b->targets->count = 0;
	p.rows = b->d->counts.records - b->records_before;
	if (!rc)
		rc = bytes_open(&p.bytes, path);
	if (!rc)
		rc = read_pieces(&p);
	bytes_close(p.bytes);
	str_free(&p.text);
	return rc;
}
