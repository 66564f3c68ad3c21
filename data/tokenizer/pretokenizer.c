/* Runs the steps of a pre-tokenizer. */
#include "data/tokenizer/pretokenizer.h"

#include <string.h>

#include "base/err.h"
#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/pretokenizer_inside.h"
#include "data/tokenizer/unicode.h"

enum { PART_BYTES = 1 << 20 };

struct walk {
	const struct pretokenizer *p;
	struct pretokenizer_scratch *scratch;
	pretokenizer_word word;
	void *user;
};

/* Passes a part of a word to the steps from `index` on. */
static int hand_on(struct walk *walk, int index, const struct word *whole, size_t start, size_t end)
{
	struct word part = {.text = whole->text + start,
	        .len_bytes = end - start,
	        .head_bytes = whole->head_bytes > start ? whole->head_bytes - start : 0};

	if (start == end)
		return 0;
	if (index == walk->p->step_count)
		return walk->word(walk->user, part.text, part.len_bytes);
	return walk->p->steps[index].action->run(walk, index, part);
}

/* ---- splits: matches and the text between them, joined according to the behavior ---- */

struct splitting {
	struct walk *walk;
	int next; /* the step after this one */
	const struct word *word;
	enum split_behavior behavior;
	int any, previous_match; /* a stretch is pending; the last one was a match */
	size_t start, end;       /* the pending stretch */
};

static int flush(struct splitting *s)
{
	int rc = s->any ? hand_on(s->walk, s->next, s->word, s->start, s->end) : 0;

	s->any = 0;
	return rc;
}

/* Adds one stretch (a match, or the text between two) by the rules of SplitDelimiterBehavior. There,
 * MERGED_WITH_NEXT works from the end. Seen from the start: of a run of matches, only the last joins the text
 * after it. An empty stretch takes part in these rules, but is not a word. */
static int add_stretch(struct splitting *s, size_t start, size_t end, int is_match)
{
	int join = 0, rc;

	switch (s->behavior) {
	case SPLIT_BEHAVIOR_REMOVED:
		if (is_match)
			return 0;
		break;
	case SPLIT_BEHAVIOR_ISOLATED:
		break;
	case SPLIT_BEHAVIOR_CONTIGUOUS:
		join = is_match == s->previous_match;
		break;
	case SPLIT_BEHAVIOR_MERGED_WITH_PREVIOUS:
		join = is_match && !s->previous_match;
		break;
	case SPLIT_BEHAVIOR_MERGED_WITH_NEXT:
		join = !is_match && s->previous_match;
		break;
	}
	s->previous_match = is_match;
	if (join && s->any) {
		s->end = end;
		return 0;
	}
	rc = flush(s);
	s->any = 1;
	s->start = start;
	s->end = end;
	return rc;
}

static int run_split(struct walk *walk, int index, struct word word)
{
	const struct pretokenizer_step *step = &walk->p->steps[index];
	struct pattern_search *search = &walk->scratch->searches[index];
	struct splitting s = {.walk = walk, .next = index + 1, .word = &word, .behavior = step->behavior};
	size_t done = 0, start, end;
	int rc;

	search->text = word.text;
	search->len_bytes = word.len_bytes;
	search->at = search->last_end = 0;
	search->any = 0;
	while ((rc = pattern_next(step->pattern, search, &start, &end)) > 0) {
		rc = done < start ? add_stretch(&s, done, start, step->invert) : 0;
		if (rc == 0)
			rc = add_stretch(&s, start, end, !step->invert);
		if (rc < 0)
			return rc;
		done = end;
	}
	if (rc == 0 && done < word.len_bytes)
		rc = add_stretch(&s, done, word.len_bytes, step->invert);
	return rc < 0 ? rc : flush(&s);
}

/* Splits at each character of the step's classes, or at the step's character. */
static int run_chars(struct walk *walk, int index, struct word word)
{
	const struct pretokenizer_step *step = &walk->p->steps[index];
	struct splitting s = {.walk = walk, .next = index + 1, .word = &word, .behavior = step->behavior};
	size_t done = 0, next;
	int rc = 0;

	for (size_t at = 0; rc == 0 && at < word.len_bytes; at = next) {
		uint32_t c;

		next = at + (size_t)utf8_get(word.text + at, &c);
		if (!unicode_is(c, step->classes) && c != step->character)
			continue;
		if (done < at)
			rc = add_stretch(&s, done, at, 0);
		if (rc == 0)
			rc = add_stretch(&s, at, next, 1);
		done = next;
	}
	if (rc == 0 && done < word.len_bytes)
		rc = add_stretch(&s, done, word.len_bytes, 0);
	return rc < 0 ? rc : flush(&s);
}

/* \w+|[^\w\s]+ without the text between: 0 = between, else which of the two. */
static int word_kind(uint32_t c)
{
	if (unicode_is(c, UNICODE_ADDED_WORD))
		return 1;
	return unicode_is(c, UNICODE_SPACE) ? 0 : 2;
}

static int run_words(struct walk *walk, int index, struct word word)
{
	size_t start = 0, next;
	int kind = 0, rc = 0;

	for (size_t at = 0; rc == 0 && at < word.len_bytes; at = next) {
		uint32_t c;
		int here;

		next = at + (size_t)utf8_get(word.text + at, &c);
		here = word_kind(c);
		if (here == kind)
			continue;
		if (kind)
			rc = hand_on(walk, index + 1, &word, start, at);
		start = at;
		kind = here;
	}
	return rc == 0 && kind ? hand_on(walk, index + 1, &word, start, word.len_bytes) : rc;
}

/* Splits after every `length` characters. */
static int run_length(struct walk *walk, int index, struct word word)
{
	size_t start = 0, next;
	int64_t count = 0;
	int rc = 0;

	for (size_t at = 0; rc == 0 && at < word.len_bytes; at = next) {
		uint32_t c;

		next = at + (size_t)utf8_get(word.text + at, &c);
		if (++count < walk->p->steps[index].length && next < word.len_bytes)
			continue;
		rc = hand_on(walk, index + 1, &word, start, next);
		start = next;
		count = 0;
	}
	return rc;
}

/* ---- steps that rewrite */

static int hand_on_buffer(struct walk *walk, int index, const struct str *b, size_t head_bytes)
{
	struct word word = {.text = b->data, .len_bytes = b->len_bytes, .head_bytes = head_bytes};

	if (str_check(b) < 0)
		return ERR_NOMEM;
	return hand_on(walk, index + 1, &word, 0, word.len_bytes);
}

static int run_prefix_space(struct walk *walk, int index, struct word word)
{
	struct str *b = &walk->scratch->buffers[index];

	if (word.text[0] == ' ' || (walk->scratch->is_joined && word.head_bytes))
		return hand_on(walk, index + 1, &word, 0, word.len_bytes);
	b->len_bytes = 0;
	str_add_char(b, ' ');
	str_add_bytes(b, word.text, word.len_bytes);
	return hand_on_buffer(walk, index, b, word.head_bytes ? word.head_bytes + 1 : 0);
}

static int run_bytes(struct walk *walk, int index, struct word word)
{
	struct str *b = &walk->scratch->buffers[index];
	size_t head = 0;

	b->len_bytes = 0;
	for (size_t at = 0; at < word.len_bytes; at++) {
		char encoded[4];

		if (at == word.head_bytes)
			head = b->len_bytes;
		str_add_bytes(
		        b, encoded, (size_t)utf8_put(encoded, byte_level_char((unsigned char)word.text[at])));
	}
	return hand_on_buffer(walk, index, b, word.head_bytes < word.len_bytes ? head : b->len_bytes);
}

static int begins_with(const char *text, size_t len_bytes, const struct pretokenizer_step *step)
{
	return len_bytes >= step->mark_bytes && memcmp(text, step->mark, step->mark_bytes) == 0;
}

static int is_boundary(const struct word *word, size_t at)
{
	return at == word->len_bytes || ((unsigned char)word->text[at] & 0xc0) != 0x80;
}

/* Metaspace: replaces spaces by marks, puts a mark in front, and begins a word at each mark if the step
 * splits (behavior MERGED_WITH_NEXT). Works word by word, because marks need three times the memory of
 * spaces. Passes long words in parts if the model takes parts. */
static int run_metaspace(struct walk *walk, int index, struct word word)
{
	const struct pretokenizer_step *step = &walk->p->steps[index];
	int splits = step->behavior == SPLIT_BEHAVIOR_MERGED_WITH_NEXT;
	pretokenizer_word part = index + 1 == walk->p->step_count ? walk->scratch->part : NULL;
	struct str *b = &walk->scratch->buffers[index];
	int in_front =
	        word.text[0] != ' ' && !(walk->scratch->is_joined && word.head_bytes) &&
	        !begins_with(word.text, word.len_bytes, step) &&
	        (step->prepend == METASPACE_ALWAYS || (step->prepend == METASPACE_FIRST && word.head_bytes));
	size_t head = word.head_bytes, at = 0;

	b->len_bytes = 0;
	if (in_front) {
		str_add_bytes(b, step->mark, step->mark_bytes);
		head += head ? step->mark_bytes : 0;
	}
	while (at < word.len_bytes) {
		int is_mark = begins_with(word.text + at, word.len_bytes - at, step);
		int begins_word = splits && at > 0 && (is_mark || word.text[at] == ' ');
		size_t start = at;
		int rc = 0;

		if (begins_word && b->len_bytes > 0) {
			rc = hand_on_buffer(walk, index, b, head);
			head = word.head_bytes > at ? word.head_bytes - at : 0;
			b->len_bytes = 0;
		} else if (part && b->len_bytes >= PART_BYTES) {
			rc = str_check(b) < 0 ? ERR_NOMEM : part(walk->user, b->data, b->len_bytes);
			b->len_bytes = 0;
		}
		if (rc < 0)
			return rc;
		if (word.text[at] == ' ') {
			str_add_bytes(b, step->mark, step->mark_bytes);
			at++;
			continue;
		}
		at += is_mark ? step->mark_bytes : 1;
		while (at < word.len_bytes && word.text[at] != ' ' && word.text[at] != step->mark[0] &&
		        (at - start < PART_BYTES || !is_boundary(&word, at)))
			at++;
		str_add_bytes(b, word.text + start, at - start);
	}
	return hand_on_buffer(walk, index, b, head);
}

const struct pretokenizer_action action_split = {run_split}, action_class = {run_chars},
                                 action_char = {run_chars}, action_words = {run_words},
                                 action_prefix_space = {run_prefix_space}, action_bytes = {run_bytes},
                                 action_metaspace = {run_metaspace}, action_length = {run_length};

int pretokenizer_run(const struct pretokenizer *p, struct pretokenizer_scratch *scratch, const char *text,
        size_t len_bytes, size_t head_bytes, pretokenizer_word word, void *user)
{
	struct walk walk = {.p = p, .scratch = scratch, .word = word, .user = user};
	struct word whole = {.text = text, .len_bytes = len_bytes, .head_bytes = head_bytes};

	return hand_on(&walk, 0, &whole, 0, len_bytes);
}

void pretokenizer_scratch_free(struct pretokenizer_scratch *scratch)
{
	for (int i = 0; i < PRETOKENIZER_STEPS_MAX; i++) {
		pattern_search_end(&scratch->searches[i]);
		str_free(&scratch->buffers[i]);
	}
}
