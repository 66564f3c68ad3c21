/* Folds lines at the width of a terminal. */
#include "cli/screen.h"

#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utf8proc.h>

enum { COLUMNS_DEFAULT = 80, COLUMNS_LEAST = 20, LABEL_MAX = 24, INDENT = 2 };

int screen_columns(FILE *to)
{
	struct winsize size;

	if (!isatty(fileno(to)))
		return 0;
	if (ioctl(fileno(to), TIOCGWINSZ, &size) || size.ws_col < COLUMNS_LEAST)
		return COLUMNS_DEFAULT;
	return size.ws_col;
}

/* Bytes of the first character, and its columns. */
static size_t character_of(const char *text, size_t len_bytes, int *width)
{
	utf8proc_int32_t character;
	utf8proc_ssize_t len =
	        utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)len_bytes, &character);

	*width = len > 0 ? utf8proc_charwidth(character) : 1; /* no UTF-8: a sign for each byte */
	return len > 0 ? (size_t)len : 1;
}

static int width_of(const char *text, size_t len_bytes)
{
	int width = 0, one;

	for (size_t i = 0; i < len_bytes; width += one)
		i += character_of(text + i, len_bytes - i, &one);
	return width;
}

int screen_cut(const char *text, int columns)
{
	size_t len_bytes = text ? strlen(text) : 0, end = 0;
	int width = 0;

	while (end < len_bytes) {
		int one;
		size_t len = character_of(text + end, len_bytes - end, &one);

		if (width + one > columns)
			break;
		width += one;
		end += len;
	}
	return (int)end;
}

int screen_width(const char *text)
{
	return text ? width_of(text, strlen(text)) : 0;
}

/* The column of the text behind a label at the start of a line; a screen has room for twice that. */
static int indent_of(const char *line, int columns)
{
	size_t word = strcspn(line, " \n"), gap = strspn(line + word, " ");
	int column = width_of(line, word) + (int)gap;

	return word && gap > 1 && column <= LABEL_MAX && column <= columns / 2 ? column : INDENT;
}

void screen_fold(struct str *out, struct screen_fold *f, const char *text, int columns)
{
	if (!columns) {
		str_add(out, text);
		return;
	}
	while (*text) {
		size_t gap = strspn(text, " "), word = strcspn(text + gap, " \n");
		int width = width_of(text + gap, word);

		if (!f->column)
			f->indent = indent_of(text, columns);
		if (word && f->column > f->indent && f->column + (int)gap + width > columns) {
			str_printf(out, "\n%*s", f->indent, "");
			f->column = f->indent + width;
		} else {
			str_add_bytes(out, text, gap);
			f->column += (int)gap + width;
		}
		str_add_bytes(out, text + gap, word);
		text += gap + word;
		if (*text == '\n') {
			str_add_char(out, *text++);
			*f = (struct screen_fold){0};
		}
	}
}
