/* Comments: their width, and tables in them that a formatter tore apart. */
#ifndef FERRY_TESTS_STRUCTURE_COMMENTS_H
#define FERRY_TESTS_STRUCTURE_COMMENTS_H

#include "tests/structure_tree.h"

enum { COMMENT_COLUMNS_MAX = 110, TABS_ARE = 8, RUNS_MAX = 32 };

/* The text of a line of a comment, NULL for other lines. */
static const char *comment_text(const char *line)
{
	line += strspn(line, "\t ");
	if (!strncmp(line, "/*", 2))
		return line + 2;
	return *line == '*' && (line[1] == ' ' || !line[1]) ? line + 1 : NULL;
}

static int columns_of(const char *line)
{
	int columns = 0;

	for (; *line; line++)
		if (*line == '\t')
			columns += TABS_ARE - columns % TABS_ARE;
		else
			columns += (*line & 0xc0) != 0x80; /* bytes that begin a character */
	return columns;
}

/* The places at which words begin behind two blanks or more, within the text. */
static int gaps_find(int *gaps, const char *text)
{
	int count = 0, at = (int)strspn(text, "* ");

	for (; text && text[at] && count < RUNS_MAX; at++)
		if (at >= 3 && text[at] != ' ' && text[at - 1] == ' ' && text[at - 2] == ' ' &&
		        strspn(text, "* ") < (size_t)at)
			gaps[count++] = at;
	return count;
}

static int shares_gap(const int *gaps, int count, const char *other)
{
	int others[RUNS_MAX], other_count = other ? gaps_find(others, other) : 0;

	for (int i = 0; i < count; i++)
		for (int j = 0; j < other_count; j++)
			if (gaps[i] == others[j])
				return 1;
	return 0;
}

/* A line with several gaps is a row of a table: a row beside it has one of them too. */
static void comment_check(const char *path, int line, const char *before, const char *text, const char *after)
{
	const char *comment = comment_text(text);
	int gaps[RUNS_MAX], count = comment ? gaps_find(gaps, comment) : 0;

	if (comment && columns_of(text) > COMMENT_COLUMNS_MAX)
		complain(path, line, "a wider comment than clang-format's column limit", "");
	if (count > 1 && !shares_gap(gaps, count, comment_text(before)) &&
	        !shares_gap(gaps, count, comment_text(after)))
		complain(path, line, "gaps in a comment, and no table: ", text);
}

static void comments_check(const char *path, const char *source)
{
	char lines[3][1024] = {"", "", ""}; /* before, this, after */
	int line = 0, is_c = strstr(path, ".inc") == NULL;

	while (is_c && (*source || *lines[2])) {
		size_t len = strcspn(source, "\n");

		memcpy(lines[0], lines[1], sizeof(lines[0]));
		memcpy(lines[1], lines[2], sizeof(lines[1]));
		snprintf(lines[2], sizeof(lines[2]), "%.*s", (int)len, source);
		source += len + (source[len] == '\n');
		if (line++)
			comment_check(path, line - 1, lines[0], lines[1], lines[2]);
		if (!*source && !len)
			break;
	}
	if (is_c && line)
		comment_check(path, line, lines[1], lines[2], "");
}

#endif
