/* Escapes text for HTML. */
#include "report/html.h"

#include "data/tokenizer/unicode.h"

#include <string.h>

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

/* Appends valid UTF-8. */
static void add_valid(struct str *out, const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c == '&')
			str_add(out, "&amp;");
		else if (c == '<')
			str_add(out, "&lt;");
		else if (c == '>')
			str_add(out, "&gt;");
		else if (c == '"')
			str_add(out, "&quot;");
		else if ((c < ' ' && c != '\n' && c != '\t') || c == 127)
			str_add(out, replacement);
		else if (c == 0xef && (unsigned char)text[i + 1] == 0xbf &&
		         (unsigned char)text[i + 2] > 0xbd) {
			str_add(out, replacement); /* for U+FFFE and U+FFFF */
			i += 2;
		} else {
			str_add_char(out, (char)c);
		}
	}
}

void html_add(struct str *out, const char *text)
{
	size_t left = strlen(text);

	while (left) {
		size_t valid = utf8_check(text, left);

		add_valid(out, text, valid);
		if (valid < left) {
			str_add(out, replacement);
			valid++;
		}
		text += valid;
		left -= valid;
	}
}
