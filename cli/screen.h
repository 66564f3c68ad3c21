/* Folds lines at the width of a terminal.
 *
 * A file or pipe gets a message as one line. A terminal would break it within a word, so a line that is too
 * wide goes on below the text behind its label:
 *
 *     run      500 steps of 1 row (batch 1 x accumulation 1), bf16 compute, no
 *              offload
 *
 * Lines to be copied, such as commands, are not folded.
 */
#ifndef FERRY_CLI_SCREEN_H
#define FERRY_CLI_SCREEN_H

#include "base/str.h"

#include <stdio.h>

/* Columns of the terminal that `to` is; 0: it is none. */
int screen_columns(FILE *to);

/* Columns that a terminal shows UTF-8 text in: two for each wide character, as of Chinese. */
int screen_width(const char *text);

/* Bytes of the longest start of a text that fits the columns, in whole characters. */
int screen_cut(const char *text, int columns);

/* Zero-initialise before the first text of a line. */
struct screen_fold {
	int column, indent;
};

/* Appends text with line breaks that keep lines within `columns`; 0: as it is. A text may be a part of a
 * line; the next one goes on where it ended. */
void screen_fold(struct str *out, struct screen_fold *f, const char *text, int columns);

#endif
