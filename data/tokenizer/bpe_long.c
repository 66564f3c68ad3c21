/* Merges long pieces in windows.
 *
 * Why that is exact: let a text be A followed by B. Let t be the last token of A merged alone, u the first
 * token of B merged alone. Until a merge crosses the border, A is merged in the same order as alone, and
 * so is B. Whether and when a merge crosses depends only on the symbols next to the border, which lie in t
 * and u. So the border stays if and only if it stays when t and u are merged together. Then the tokens of
 * the text are those of A and those of B. (This needs no property of the ranks.)
 *
 * The algorithm merges a window, and takes the end of one of its tokens as the border. The next window begins
 * there. If the check of the two tokens fails, it tries an earlier end; if all fail, it doubles the window.
 */
#include "data/tokenizer/bpe_long.h"

#include <string.h>

#include "base/err.h"

enum { TRIES = 8, SLIDE_SYMBOLS = 1 << 16 };

struct longer {
	struct bpe_symbols *s;
	struct bpe_scratch *scratch;
	const struct bpe *b;
	struct token_list *symbols; /* all symbols read and not dropped */
	int64_t at;                 /* start of the window */
	int64_t window;             /* its maximum number of symbols */
	int ended;                  /* all of the piece is read */
};

/* Reads until `count` symbols are there, or the piece ends. */
static int fill(struct longer *l, int64_t count)
{
	while (!l->ended && l->symbols->count < count) {
		int32_t last = l->symbols->ids[l->symbols->count - 1];

		if (l->s->id == BPE_END || !bpe_may_join(l->b, last, l->s->id)) {
			l->ended = 1;
			break;
		}
		if (token_list_add(l->symbols, l->s->id) < 0)
			return ERR_NOMEM;
		bpe_symbols_next(l->s);
	}
	return 0;
}

/* The number of symbols in a window that begins at `from`. */
static int64_t window_count(const struct longer *l, int64_t from)
{
	int64_t left = l->symbols->count - from;

	return left < l->window ? left : l->window;
}

static int merge_at(struct longer *l, struct token_list out[2], int64_t from)
{
	int rc = fill(l, from + l->window);

	return rc < 0 ? rc
	              : bpe_merge_window(
	                        l->b, l->scratch, out, l->symbols->ids + from, window_count(l, from));
}

/* Merges the window at `to`. In runs of one character it is often equal to the window at l->at: copies
 * that. */
static int merge_next(struct longer *l, int64_t to, int64_t now_count)
{
	struct token_list *now = l->scratch->now, *next = l->scratch->next;
	int64_t count;
	int rc = fill(l, to + l->window);

	if (rc < 0)
		return rc;
	count = window_count(l, to);
	if (count != now_count ||
	        memcmp(l->symbols->ids + to, l->symbols->ids + l->at, (size_t)count * sizeof(int32_t)) != 0)
		return merge_at(l, next, to);
	for (int i = 0; i < 2; i++) {
		next[i].count = 0;
		if (token_list_append(&next[i], &now[i]) < 0)
			return ERR_NOMEM;
	}
	return 0;
}

/* Checks the border at `at` between tokens of `left` and `right` symbols: 1 if it stays, 0, or an error. */
static int border_stays(struct longer *l, int64_t at, int32_t left, int32_t right)
{
	struct token_list pair[2] = {{0}, {0}};
	int rc = bpe_merge_window(l->b, l->scratch, pair, l->symbols->ids + at - left, left + right);

	if (rc == 0)
		rc = pair[0].count == 2 && pair[1].ids[0] == left;
	token_list_free(&pair[0]);
	token_list_free(&pair[1]);
	return rc;
}

/* Tries the end of token k - 1 as the border. On success, scratch->next is the next window. */
static int try_border(struct longer *l, int64_t k, int64_t *to)
{
	const struct token_list *now = l->scratch->now, *next = l->scratch->next;
	int64_t now_count = window_count(l, l->at);
	int rc;

	*to = l->at;
	for (int64_t i = 0; i < k; i++)
		*to += now[1].ids[i];
	rc = merge_next(l, *to, now_count);
	if (rc < 0)
		return rc;
	/* the first token of the next window must be final: it needs a token after it, or the end of the
	 * piece */
	if (next[0].count == 0 || (next[0].count == 1 && !(l->ended && *to + l->window >= l->symbols->count)))
		return 0;
	return border_stays(l, *to, now[1].ids[k - 1], next[1].ids[0]);
}

static void swap_windows(struct bpe_scratch *scratch)
{
	for (int i = 0; i < 2; i++) {
		struct token_list old = scratch->now[i];

		scratch->now[i] = scratch->next[i];
		scratch->next[i] = old;
	}
}

/* Appends the tokens before a border, and makes the next window the current one. */
static int advance(struct longer *l, struct token_list *ids, int64_t k, int64_t to)
{
	struct token_list done = {.ids = l->scratch->now[0].ids, .count = k};

	if (token_list_append(ids, &done) < 0)
		return ERR_NOMEM;
	swap_windows(l->scratch);
	l->at = to;
	if (l->at > SLIDE_SYMBOLS) {
		l->symbols->count -= l->at;
		memmove(l->symbols->ids, l->symbols->ids + l->at,
		        (size_t)l->symbols->count * sizeof(int32_t));
		l->at = 0;
	}
	return 0;
}

int bpe_encode_long(struct bpe_symbols *s, struct bpe_scratch *scratch, struct token_list *ids)
{
	struct longer l = {.s = s,
	        .scratch = scratch,
	        .b = s->b,
	        .symbols = &scratch->segment,
	        .window = bpe_window(scratch)};
	int rc = merge_at(&l, scratch->now, 0);

	while (rc == 0 && !token_list_is_enough(ids) && !(l.ended && l.at + l.window >= l.symbols->count)) {
		int64_t to = 0, k = scratch->now[0].count * 7 / 8;
		int stays = 0;

		if (k == 0)
			k = scratch->now[0].count;
		for (int i = 0; i < TRIES && k > 0 && !stays; i++, k--) {
			stays = try_border(&l, k, &to);
			if (stays < 0)
				return stays;
			if (stays)
				rc = advance(&l, ids, k, to);
		}
		if (!stays) {
			l.window *= 2;
			rc = merge_at(&l, scratch->now, l.at);
		}
	}
	return rc < 0 ? rc : token_list_append(ids, &scratch->now[0]);
}
