/* Normalization forms: finds the stretches that change, and normalizes them with utf8proc. */
#include "data/tokenizer/normal_form.h"

#include <string.h>
#include <utf8proc.h>

#include "base/err.h"
#include "base/mem.h"
#include "data/tokenizer/unicode.h"

static const struct form {
	unsigned active;
	int decompose, compose; /* options of utf8proc */
} forms[] = {
        [NORMAL_FORM_C] = {UNICODE_NFC_ACTIVE, UTF8PROC_DECOMPOSE, UTF8PROC_COMPOSE},
        [NORMAL_FORM_D] = {UNICODE_NFD_ACTIVE, UTF8PROC_DECOMPOSE, 0},
        [NORMAL_FORM_KC] = {UNICODE_NFKC_ACTIVE, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, UTF8PROC_COMPOSE},
        [NORMAL_FORM_KD] = {UNICODE_NFKD_ACTIVE, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, 0},
};

enum { EXPANSION_MAX = 32 }; /* characters from one character; Unicode promises at most 18 */

/* Offset of the first active character at or after `from`. *start is the start of the stretch that it can
 * change: the character before it, unless that came after Unicode 9.0 or lies before `from`. */
static size_t find_active(unsigned active, const char *text, size_t len_bytes, size_t from, size_t *start)
{
	size_t at = from, before = from;
	int joinable = 0; /* the character at `before` may join with what follows */

	while (at < len_bytes) {
		uint32_t c;
		int len;

		if ((unsigned char)text[at] < 0x80) { /* ASCII never changes */
			joinable = 1;
			before = at++;
			continue;
		}
		len = utf8_get(text + at, &c);
		if (unicode_is(c, active)) {
			*start = joinable ? before : at;
			return at;
		}
		joinable = !unicode_is(c, UNICODE_NF_UNKNOWN);
		before = at;
		at += (size_t)len;
	}
	*start = len_bytes;
	return len_bytes;
}

int normal_form_may_change(enum normal_form form, const char *text, size_t len_bytes)
{
	size_t start;

	return find_active(forms[form].active, text, len_bytes, 0, &start) < len_bytes;
}

/* Sorts a run of marks by combining class; stable. */
static int order_marks(int32_t *marks, int64_t count)
{
	int64_t starts[256] = {0}, sum = 0;
	int32_t *copy;

	if (count < 2)
		return 0;
	copy = mem_alloc((size_t)count, sizeof(*copy));
	if (!copy)
		return ERR_NOMEM;
	memcpy(copy, marks, (size_t)count * sizeof(*copy));
	for (int64_t i = 0; i < count; i++)
		starts[utf8proc_get_property(marks[i])->combining_class & 255]++;
	for (int i = 0; i < 256; i++) {
		int64_t here = starts[i];

		starts[i] = sum;
		sum += here;
	}
	for (int64_t i = 0; i < count; i++)
		marks[starts[utf8proc_get_property(copy[i])->combining_class & 255]++] = copy[i];
	mem_free(copy);
	return 0;
}

/* Characters of one stretch; grows. */
struct stretch {
	int32_t *chars;
	int64_t count, cap;
};

static int decompose(struct stretch *s, int options, const char *text, size_t len_bytes)
{
	for (size_t at = 0; at < len_bytes;) {
		uint32_t c;
		utf8proc_ssize_t len;

		if (s->count + EXPANSION_MAX > s->cap) {
			int64_t cap = s->cap * 2 + 8 * EXPANSION_MAX;
			int32_t *grown = mem_resize(s->chars, (size_t)cap, sizeof(*grown));

			if (!grown)
				return ERR_NOMEM;
			s->chars = grown;
			s->cap = cap;
		}
		at += (size_t)utf8_get(text + at, &c);
		len = utf8proc_decompose_char((utf8proc_int32_t)c, s->chars + s->count, EXPANSION_MAX,
		        (utf8proc_option_t)options, NULL);
		if (len < 0 || len > EXPANSION_MAX)
			return err_set(ERR_INTERNAL, "a normalization form of U+%04X failed", c);
		s->count += len;
	}
	return 0;
}

static int order(struct stretch *s)
{
	int64_t first = 0; /* of the marks before i */
	int rc = 0;

	for (int64_t i = 0; rc == 0 && i <= s->count; i++) {
		if (i < s->count && utf8proc_get_property(s->chars[i])->combining_class != 0)
			continue;
		rc = order_marks(s->chars + first, i - first);
		first = i + 1;
	}
	return rc;
}

static int convert(
        struct str *out, const struct form *form, struct stretch *s, const char *text, size_t len_bytes)
{
	int rc;

	s->count = 0;
	rc = decompose(s, form->decompose, text, len_bytes);
	if (rc == 0)
		rc = order(s);
	if (rc == 0 && form->compose)
		s->count = utf8proc_normalize_utf32(
		        s->chars, s->count, (utf8proc_option_t)(UTF8PROC_STABLE | form->compose));
	for (int64_t i = 0; rc == 0 && i < s->count; i++) {
		char bytes[4];

		str_add_bytes(out, bytes, (size_t)utf8_put(bytes, (uint32_t)s->chars[i]));
	}
	return rc;
}

int normal_form_append(struct str *out, enum normal_form form, const char *text, size_t len_bytes)
{
	const struct form *f = &forms[form];
	struct stretch s = {0};
	size_t from = 0;
	int rc = 0;

	while (rc == 0 && from < len_bytes) {
		size_t start, end = find_active(f->active, text, len_bytes, from, &start);
		uint32_t c = 0;

		while (end < len_bytes) {
			int len = utf8_get(text + end, &c);

			if (!unicode_is(c, f->active))
				break;
			end += (size_t)len;
		}
		str_add_bytes(out, text + from, start - from);
		if (start < end)
			rc = convert(out, f, &s, text + start, end - start);
		from = end;
	}
	mem_free(s.chars);
	return rc < 0 ? rc : str_check(out);
}
