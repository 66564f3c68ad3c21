/* Reads and writes the moment that chat templates write. */
#include "data/template/moment.h"

#include "base/err.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* The fields of a moment: a calendar without zones is that of UTC. */
static int fields_of(struct tm *tm, int64_t moment)
{
	time_t seconds = (time_t)moment;

	return gmtime_r(&seconds, tm) != NULL;
}

int64_t moment_now(void)
{
	time_t now = time(NULL);
	struct tm tm;

	return localtime_r(&now, &tm) ? (int64_t)timegm(&tm) : (int64_t)now;
}

void moment_text(char text[MOMENT_TEXT_BYTES], int64_t moment)
{
	struct tm tm;

	if (!fields_of(&tm, moment) || !strftime(text, MOMENT_TEXT_BYTES, "%Y-%m-%dT%H:%M:%S", &tm))
		*text = 0;
}

int moment_parse(int64_t *moment, const char *text)
{
	char again[MOMENT_TEXT_BYTES] = "";
	struct tm tm = {0};
	int day_bytes = 0, bytes = 0;
	size_t len = strlen(text);

	if (sscanf(text, "%4d-%2d-%2d%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &day_bytes) == 3 &&
	        (size_t)day_bytes == len)
		bytes = day_bytes;
	else if (sscanf(text, "%4d-%2d-%2d%*1[T ]%2d:%2d:%2d%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
	                 &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &bytes) != 6)
		bytes = 0;
	tm.tm_year -= 1900;
	tm.tm_mon--;
	*moment = (int64_t)timegm(&tm);
	/* timegm takes the 31st of February, and sscanf other forms of numbers: the text must come out again
	 */
	moment_text(again, *moment);
	if (len > 10 && text[10] == ' ')
		again[10] = ' ';
	if (len == 0 || (size_t)bytes != len || strncmp(again, text, len) != 0)
		return err_set(ERR_INPUT, "%.40s is no date", text);
	return 0;
}

size_t moment_format(char *out, size_t out_bytes, const char *format, int64_t moment)
{
	struct tm tm;

	if (!fields_of(&tm, moment))
		return 0;
	tm.tm_isdst = -1; /* %z and %Z write nothing, as of a datetime without a zone */
	tm.tm_zone = "";
	return strftime(out, out_bytes, format, &tm);
}
