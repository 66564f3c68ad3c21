#include "data/tokenizer/nfc.h"

#include <stdlib.h>
#include <utf8proc.h>

#include "base/err.h"
#include "data/tokenizer/unicode.h"

/* Offset of the first active character at or after `at`; *start is where the stretch that it can change
 * begins: the character before it, unless that is unknown or was already dealt with (before `from`). */
static size_t find_active(const char *text, size_t len_bytes, size_t from, size_t *start)
{
	size_t at = from, before = from;
	int joinable = 0; /* the character at `before` may join with what follows */

	while (at < len_bytes) {
		uint32_t c;
		int len = utf8_get(text + at, &c);

		if (unicode_is(c, UNICODE_NFC_ACTIVE)) {
			*start = joinable ? before : at;
			return at;
		}
		joinable = !unicode_is(c, UNICODE_NFC_UNKNOWN);
		before = at;
		at += (size_t)len;
	}
	*start = len_bytes;
	return len_bytes;
}

int nfc_may_change(const char *text, size_t len_bytes)
{
	size_t start;

	return find_active(text, len_bytes, 0, &start) < len_bytes;
}

static int compose(struct str *out, const char *text, size_t len_bytes)
{
	utf8proc_uint8_t *composed = NULL;
	utf8proc_ssize_t len = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)len_bytes,
	        &composed, UTF8PROC_STABLE | UTF8PROC_COMPOSE);

	if (len < 0)
		return err_set(len == UTF8PROC_ERROR_NOMEM ? ERR_NOMEM : ERR_INTERNAL, "NFC: %s",
		        utf8proc_errmsg(len));
	str_add_bytes(out, composed, (size_t)len);
	free(composed);
	return 0;
}

int nfc_append(struct str *out, const char *text, size_t len_bytes)
{
	size_t from = 0;
	int rc = 0;

	while (rc == 0 && from < len_bytes) {
		size_t start, end = find_active(text, len_bytes, from, &start);
		uint32_t c = 0;

		while (end < len_bytes) {
			int len = utf8_get(text + end, &c);

			if (!unicode_is(c, UNICODE_NFC_ACTIVE))
				break;
			end += (size_t)len;
		}
		str_add_bytes(out, text + from, start - from);
		if (start < end)
			rc = compose(out, text + start, end - start);
		from = end;
	}
	return rc < 0 ? rc : str_check(out);
}
