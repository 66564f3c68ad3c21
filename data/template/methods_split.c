/* Methods that split a text: at white space, at a separator, into lines, into three parts. */
#include "data/template/method.h"

static int64_t space_run(const struct text *t, size_t from, size_t *end)
{
	const char *at = t->data + from, *stop = t->data + t->len_bytes;
	int32_t c;

	while (at < stop) {
		int len = char_at(at, stop, &c);

		if (!char_is_space(c))
			break;
		at += len;
	}
	*end = (size_t)(at - t->data);
	return (int64_t)(*end - from);
}

static size_t word_end(const struct text *t, size_t from)
{
	const char *at = t->data + from, *stop = t->data + t->len_bytes;
	int32_t c;

	while (at < stop) {
		int len = char_at(at, stop, &c);

		if (char_is_space(c))
			break;
		at += len;
	}
	return (size_t)(at - t->data);
}

/* Splits at white space, at most `most` times from the left. The rest keeps white space at its end. */
static struct value split_space(struct render *r, const struct text *t, int64_t most)
{
	struct value out = value_list(r->s, LIST_LIST, 0), rest;
	size_t at = 0, end;

	for (space_run(t, 0, &at); at < t->len_bytes; space_run(t, end, &at)) {
		end = word_end(t, at);
		if (most >= 0 && out.u.list->count == most) {
			rest = piece(r, t, at, t->len_bytes);
			list_add(r->s, out.u.list, text_strip(r->s, rest.u.text, NULL, 0));
			return out;
		}
		list_add(r->s, out.u.list, piece(r, t, at, end));
	}
	return out;
}

static struct value split_at(struct render *r, const struct text *t, const struct text *mark, int64_t most)
{
	struct value out = value_list(r->s, LIST_LIST, 0);
	size_t from = 0;
	int64_t found;

	while ((most < 0 || out.u.list->count < most) && (found = text_find(t, mark, from)) >= 0) {
		list_add(r->s, out.u.list, piece(r, t, from, (size_t)found));
		from = (size_t)found + mark->len_bytes;
	}
	list_add(r->s, out.u.list, piece(r, t, from, t->len_bytes));
	return out;
}

static struct value reversed(struct render *r, struct value list)
{
	struct value out = value_list(r->s, LIST_LIST, list.u.list->count);

	for (int64_t i = list.u.list->count; i > 0; i--)
		list_add(r->s, out.u.list, list.u.list->items[i - 1]);
	return out;
}

static struct value rsplit_at(struct render *r, const struct text *t, const struct text *mark, int64_t most)
{
	struct value out = value_list(r->s, LIST_LIST, 0);
	struct text left = *t;
	int64_t found;

	while ((most < 0 || out.u.list->count < most) &&
	        (found = text_find_last(&left, mark, left.len_bytes)) >= 0) {
		sandbox_step(r->s, (int64_t)(left.len_bytes - (size_t)found) / 16);
		list_add(r->s, out.u.list, piece(r, t, (size_t)found + mark->len_bytes, left.len_bytes));
		left.len_bytes = (size_t)found;
	}
	list_add(r->s, out.u.list, piece(r, t, 0, left.len_bytes));
	return reversed(r, out);
}

static struct value rsplit_space(struct render *r, const struct text *t, int64_t most)
{
	struct value words = split_space(r, t, -1), out;
	int64_t joined = most < 0 ? 0 : words.u.list->count - most;
	size_t at = 0, end = 0;

	if (joined <= 0)
		return words;
	out = value_list(r->s, LIST_LIST, 0);
	for (int64_t i = 0; i < joined; i++) {
		space_run(t, end, &at);
		end = word_end(t, at);
	}
	list_add(r->s, out.u.list, piece(r, t, 0, end));
	for (int64_t i = joined; i < words.u.list->count; i++)
		list_add(r->s, out.u.list, words.u.list->items[i]);
	return out;
}

static const struct text *split_mark(struct render *r, struct value v)
{
	const struct text *mark = argument_text(r, v, "the separator");

	if (!mark->len_bytes)
		sandbox_fail(r->s, "a text cannot be split at nothing");
	return mark;
}

METHOD(method_split)
{
	int64_t most = argument_int(r, arg[1], -1);

	UNUSED;
	return given(arg[0]) ? split_at(r, self.u.text, split_mark(r, arg[0]), most)
	                     : split_space(r, self.u.text, most);
}

METHOD(method_rsplit)
{
	int64_t most = argument_int(r, arg[1], -1);

	UNUSED;
	return given(arg[0]) ? rsplit_at(r, self.u.text, split_mark(r, arg[0]), most)
	                     : rsplit_space(r, self.u.text, most);
}

METHOD(method_splitlines)
{
	const struct text *t = self.u.text;
	struct value out = value_list(r->s, LIST_LIST, 0);
	int keep = argument_flag(arg[0], 0);
	size_t from = 0, at = 0;
	int32_t c;

	UNUSED;
	while (at < t->len_bytes) {
		size_t end = at + (size_t)char_at(t->data + at, t->data + t->len_bytes, &c);

		if ((c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
		        c == 0x2029) {
			if (c == '\r' && end < t->len_bytes && t->data[end] == '\n')
				end++;
			list_add(r->s, out.u.list, piece(r, t, from, keep ? end : at));
			from = end;
		}
		at = end;
	}
	if (from < t->len_bytes)
		list_add(r->s, out.u.list, piece(r, t, from, t->len_bytes));
	return out;
}

static struct value partition(
        struct render *r, struct value self, const struct text *mark, int64_t found, int from_right)
{
	const struct text *t = self.u.text;
	struct value out = value_list(r->s, LIST_TUPLE, 3), empty = value_text(r->s, "", 0);

	list_add(r->s, out.u.list, found >= 0 ? piece(r, t, 0, (size_t)found) : from_right ? empty : self);
	list_add(r->s, out.u.list,
	        found >= 0 ? piece(r, t, (size_t)found, (size_t)found + mark->len_bytes) : empty);
	list_add(r->s, out.u.list,
	        found >= 0   ? piece(r, t, (size_t)found + mark->len_bytes, t->len_bytes)
	        : from_right ? self
	                     : empty);
	return out;
}

METHOD(method_partition)
{
	const struct text *mark = split_mark(r, arg[0]);

	UNUSED;
	return partition(r, self, mark, text_find(self.u.text, mark, 0), 0);
}

METHOD(method_rpartition)
{
	const struct text *mark = split_mark(r, arg[0]);

	UNUSED;
	return partition(r, self, mark, text_find_last(self.u.text, mark, self.u.text->len_bytes), 1);
}
