#include "data/tokenizer/pretokenizer.h"

#include "base/err.h"
#include "base/mem.h"
#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/unicode.h"

static int add_span(struct span_buffer *b, size_t start, size_t end)
{
	if (b->count == b->cap) {
		int64_t cap = b->cap * 2 + 64;
		struct span *grown = mem_resize(b->spans, (size_t)cap, sizeof(*grown));

		if (!grown)
			return ERR_NOMEM;
		b->spans = grown;
		b->cap = cap;
	}
	b->spans[b->count++] = (struct span){.start = start, .end = end};
	return 0;
}

/* Builds the words of one split from the stretches between and at the matches, as they come. */
struct splitting {
	struct span_buffer *out;
	enum split_behavior behavior;
	int64_t first;      /* words before this one belong to other splits */
	int previous_match; /* whether the stretch before was a match */
};

/* One stretch. Offsets are final. The folds are those of SplitDelimiterBehavior; MERGED_WITH_NEXT is
 * folded from behind there, which from the front means: of a run of matches, only the last joins what
 * follows. */
static int add_stretch(struct splitting *s, size_t start, size_t end, int is_match)
{
	struct span *last = s->out->count > s->first ? &s->out->spans[s->out->count - 1] : NULL;
	int join = 0;

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
	if (join && last) {
		last->end = end;
		return 0;
	}
	return add_span(s->out, start, end);
}

/* Empty stretches take part in the folds above and are no words. */
static void drop_empty(struct splitting *s)
{
	int64_t kept = s->first;

	for (int64_t i = s->first; i < s->out->count; i++)
		if (s->out->spans[i].start < s->out->spans[i].end)
			s->out->spans[kept++] = s->out->spans[i];
	s->out->count = kept;
}

static int split_by_pattern(
        const struct pretokenizer_step *step, struct word_list *list, struct splitting *s, struct span word)
{
	struct pattern_search *search = &list->search;
	size_t done = word.start, start, end;
	int rc;

	search->text = list->text + word.start;
	search->len_bytes = word.end - word.start;
	search->at = search->last_end = 0;
	search->any = 0;
	while ((rc = pattern_next(step->pattern, search, &start, &end)) > 0) {
		start += word.start;
		end += word.start;
		if (done != start) {
			rc = add_stretch(s, done, start, step->invert);
			if (rc < 0)
				return rc;
		}
		rc = add_stretch(s, start, end, !step->invert);
		if (rc < 0)
			return rc;
		done = end;
	}
	if (rc == 0 && done != word.end)
		rc = add_stretch(s, done, word.end, step->invert);
	return rc;
}

static int split_by_class(
        const struct pretokenizer_step *step, struct word_list *list, struct splitting *s, struct span word)
{
	size_t done = word.start, next;
	int rc = 0;

	for (size_t at = word.start; rc == 0 && at < word.end; at = next) {
		uint32_t c;

		next = at + (size_t)utf8_get(list->text + at, &c);
		if (!unicode_is(c, step->classes))
			continue;
		if (done < at)
			rc = add_stretch(s, done, at, 0);
		if (rc == 0)
			rc = add_stretch(s, at, next, 1);
		done = next;
	}
	if (rc == 0 && done < word.end)
		rc = add_stretch(s, done, word.end, 0);
	return rc;
}

static int run_split(const struct pretokenizer_step *step, struct word_list *list)
{
	for (int64_t i = 0; i < list->now.count; i++) {
		struct splitting s = {
		        .out = &list->next, .behavior = step->behavior, .first = list->next.count};
		int rc = step->kind == PRETOKENIZER_KIND_CLASS
		                 ? split_by_class(step, list, &s, list->now.spans[i])
		                 : split_by_pattern(step, list, &s, list->now.spans[i]);

		if (rc < 0)
			return rc;
		drop_empty(&s);
	}
	return 0;
}

/* The buffer that list->text does not point into, emptied. */
static struct str *other_buffer(struct word_list *list)
{
	struct str *b = &list->buffers[list->text == list->buffers[0].data];

	b->len_bytes = 0;
	return b;
}

static int run_prefix_space(struct word_list *list)
{
	struct str *b = other_buffer(list);

	for (int64_t i = 0; i < list->now.count; i++) {
		struct span word = list->now.spans[i];
		size_t start = b->len_bytes;

		if (list->text[word.start] != ' ')
			str_add_char(b, ' ');
		str_add_bytes(b, list->text + word.start, word.end - word.start);
		if (add_span(&list->next, start, b->len_bytes) < 0)
			return ERR_NOMEM;
	}
	if (str_check(b) < 0)
		return ERR_NOMEM;
	list->text = b->data;
	return 0;
}

static int run_bytes(struct word_list *list)
{
	struct str *b = other_buffer(list);

	for (int64_t i = 0; i < list->now.count; i++) {
		size_t start = b->len_bytes;

		for (size_t at = list->now.spans[i].start; at < list->now.spans[i].end; at++) {
			char encoded[4];
			int len = utf8_put(encoded, byte_level_char((unsigned char)list->text[at]));

			str_add_bytes(b, encoded, (size_t)len);
		}
		if (add_span(&list->next, start, b->len_bytes) < 0)
			return ERR_NOMEM;
	}
	if (str_check(b) < 0)
		return ERR_NOMEM;
	list->text = b->data;
	return 0;
}

/* Back from the byte alphabet. */
static int undo_bytes(struct word_list *list)
{
	struct str *b = other_buffer(list);

	for (int64_t i = 0; i < list->now.count; i++) {
		struct span word = list->now.spans[i];
		size_t start = b->len_bytes;

		for (size_t at = word.start; at < word.end;) {
			uint32_t c;

			at += (size_t)utf8_get(list->text + at, &c);
			str_add_char(b, (char)byte_level_byte(c));
		}
		if (add_span(&list->next, start, b->len_bytes) < 0)
			return ERR_NOMEM;
	}
	if (str_check(b) < 0)
		return ERR_NOMEM;
	list->text = b->data;
	return 0;
}

static void swap_buffers(struct word_list *list)
{
	struct span_buffer old = list->now;

	list->now = list->next;
	list->next = old;
	list->next.count = 0;
}

int pretokenizer_run(const struct pretokenizer *p, struct word_list *list, const char *text, size_t len_bytes)
{
	int in_bytes = 0, rc = 0;

	list->text = text;
	list->count = list->now.count = list->next.count = 0;
	if (len_bytes == 0)
		return 0;
	if (add_span(&list->now, 0, len_bytes) < 0)
		return ERR_NOMEM;
	for (int i = 0; i < p->step_count; i++) {
		switch (p->steps[i].kind) {
		case PRETOKENIZER_KIND_SPLIT:
		case PRETOKENIZER_KIND_CLASS:
			rc = run_split(&p->steps[i], list);
			break;
		case PRETOKENIZER_KIND_PREFIX_SPACE:
			rc = run_prefix_space(list);
			break;
		case PRETOKENIZER_KIND_BYTES:
			in_bytes = 1;
			rc = run_bytes(list);
			break;
		}
		if (rc < 0)
			return rc;
		swap_buffers(list);
	}
	if (in_bytes) {
		rc = undo_bytes(list);
		if (rc < 0)
			return rc;
		swap_buffers(list);
	}
	list->words = list->now.spans;
	list->count = list->now.count;
	return 0;
}

void word_list_free(struct word_list *list)
{
	pattern_search_end(&list->search);
	mem_free(list->now.spans);
	mem_free(list->next.spans);
	str_free(&list->buffers[0]);
	str_free(&list->buffers[1]);
	*list = (struct word_list){0};
}
