/* The date and time that chat templates write with strftime_now.
 *
 * A moment is what a clock on the wall shows, without a time zone: seconds since 1970 of that clock. A
 * template that is rendered with the same moment writes the same date, on any day and in any zone.
 */
#ifndef FERRY_DATA_TEMPLATE_MOMENT_H
#define FERRY_DATA_TEMPLATE_MOMENT_H

#include <stddef.h>
#include <stdint.h>

enum { MOMENT_TEXT_BYTES = 32 };

/* This machine's clock in its zone. */
int64_t moment_now(void);

/* "2026-11-27" or "2026-11-27T22:19:32", with a blank instead of the T too. ERR_INPUT: another text, or no
 * date of the calendar. */
int moment_parse(int64_t *moment, const char *text);

/* Writes "2026-11-27T22:19:32". */
void moment_text(char text[MOMENT_TEXT_BYTES], int64_t moment);

/* strftime, as of a datetime without a zone in Python: what the C library knows, and %f, which is 000000.
 * *len_bytes: of the text, a NUL behind it. ERR_INPUT: a directive that is none, or no room. */
int moment_format(size_t *len_bytes, char *out, size_t out_bytes, const char *format, int64_t moment);

#endif
