/* Finds added tokens in texts. */
#include "data/tokenizer/added_tokens.h"

#include "base/err.h"
#include "base/mem.h"
#include "data/tokenizer/unicode.h"

int piece_list_add(struct piece_list *list, size_t start, size_t end, int32_t id)
{
	if (list->count == list->cap) {
		int64_t cap = list->cap * 2 + 16;
		struct piece *grown = mem_resize(list->pieces, (size_t)cap, sizeof(*grown));

		if (!grown)
			return ERR_NOMEM;
		list->pieces = grown;
		list->cap = cap;
	}
	list->pieces[list->count++] = (struct piece){.start = start, .end = end, .id = id};
	return 0;
}

void piece_list_free(struct piece_list *list)
{
	mem_free(list->pieces);
	*list = (struct piece_list){0};
}

static int new_node(struct added_set *set, unsigned char byte, int32_t *node)
{
	if (set->count == set->cap) {
		int64_t cap = set->cap * 2 + 64;
		struct added_node *grown = mem_resize(set->nodes, (size_t)cap, sizeof(*grown));

		if (!grown)
			return ERR_NOMEM;
		set->nodes = grown;
		set->cap = cap;
	}
	*node = (int32_t)set->count++;
	set->nodes[*node] = (struct added_node){.child = -1, .sibling = -1, .id = -1, .byte = byte};
	return 0;
}

static int32_t find_child(const struct added_set *set, int32_t node, unsigned char byte)
{
	int32_t child = set->nodes[node].child;

	while (child >= 0 && set->nodes[child].byte != byte)
		child = set->nodes[child].sibling;
	return child;
}

int added_set_add(struct added_set *set, const char *content, size_t len_bytes, int32_t id, unsigned flags)
{
	int32_t node = 0, child;

	if (set->count == 0 && new_node(set, 0, &node) < 0)
		return ERR_NOMEM;
	if ((uint64_t)set->count + len_bytes > INT32_MAX)
		return err_set(ERR_INPUT, "the contents of the added tokens are too long");
	for (size_t i = 0; i < len_bytes; i++) {
		unsigned char byte = (unsigned char)content[i];

		child = find_child(set, node, byte);
		if (child < 0) {
			if (new_node(set, byte, &child) < 0)
				return ERR_NOMEM;
			set->nodes[child].sibling = set->nodes[node].child;
			set->nodes[node].child = child;
			if (node == 0)
				set->root_child[byte] = child;
		}
		node = child;
	}
	if (node > 0 && set->nodes[node].id < 0) {
		set->nodes[node].id = id;
		set->nodes[node].flags = flags;
	}
	return 0;
}

void added_set_free(struct added_set *set)
{
	mem_free(set->nodes);
	*set = (struct added_set){0};
}

/* The longest content that begins at `text`, or NULL. */
static const struct added_node *longest_match(
        const struct added_set *set, const char *text, size_t len_bytes, size_t *match_bytes)
{
	int32_t node = set->root_child[(unsigned char)text[0]];
	const struct added_node *found = NULL;

	for (size_t i = 1; node > 0; i++) {
		if (set->nodes[node].id >= 0) {
			found = &set->nodes[node];
			*match_bytes = i;
		}
		node = i < len_bytes ? find_child(set, node, (unsigned char)text[i]) : -1;
	}
	return found;
}

static int stands_alone(const char *text, size_t len_bytes, size_t start, size_t end)
{
	uint32_t c;

	if (start > 0) {
		utf8_get_before(text + start, &c);
		if (unicode_is(c, UNICODE_ADDED_WORD))
			return 0;
	}
	if (end < len_bytes) {
		utf8_get(text + end, &c);
		if (unicode_is(c, UNICODE_ADDED_WORD))
			return 0;
	}
	return 1;
}

static size_t skip_space_back(const char *text, size_t at)
{
	uint32_t c;

	while (at > 0) {
		size_t len = (size_t)utf8_get_before(text + at, &c);

		if (!unicode_is(c, UNICODE_SPACE))
			break;
		at -= len;
	}
	return at;
}

static size_t skip_space(const char *text, size_t len_bytes, size_t at)
{
	uint32_t c;

	while (at < len_bytes) {
		size_t len = (size_t)utf8_get(text + at, &c);

		if (!unicode_is(c, UNICODE_SPACE))
			break;
		at += len;
	}
	return at;
}

void added_begin(struct added_matches *m, const struct added_set *set, const char *text, size_t len_bytes)
{
	*m = (struct added_matches){.set = set, .text = text, .len_bytes = len_bytes};
}

/* Finds the next valid match, extended over white space; 0 if there is none. */
static int find_match(struct added_matches *m, struct piece *match)
{
	while (m->set->count > 0 && m->at < m->len_bytes) {
		size_t start = m->at, match_bytes = 0;
		const struct added_node *found =
		        longest_match(m->set, m->text + start, m->len_bytes - start, &match_bytes);

		if (!found) {
			m->at++;
			continue;
		}
		size_t end = start + match_bytes;

		m->at = end;
		if (found->flags & ADDED_SKIPPED)
			continue;
		if ((found->flags & ADDED_SINGLE_WORD) && !stands_alone(m->text, m->len_bytes, start, end))
			continue;
		if (found->flags & ADDED_LSTRIP) {
			start = skip_space_back(m->text, start);
			if (start < m->done)
				start = m->done;
		}
		if (found->flags & ADDED_RSTRIP)
			end = skip_space(m->text, m->len_bytes, end);
		*match = (struct piece){.start = start, .end = end, .id = found->id};
		return 1;
	}
	return 0;
}

int added_next(struct added_matches *m, struct piece *p)
{
	struct piece match = m->match;
	size_t done = m->done;

	for (;;) {
		if (match.start < match.end) { /* found earlier; the text before it is returned already */
			*p = match;
			m->match = (struct piece){0};
			return 1;
		}
		if (!find_match(m, &match))
			break;
		m->done = match.end;
		if (done < match.start) {
			*p = (struct piece){.start = done, .end = match.start, .id = -1};
			m->match = match;
			return 1;
		}
		done = match.end; /* the previous match covers this one: ignore it */
	}
	*p = (struct piece){.start = done, .end = m->len_bytes, .id = -1};
	m->done = m->len_bytes;
	return done < m->len_bytes;
}
