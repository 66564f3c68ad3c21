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

/* The bytes of the directive that begins at the % in `at`: flags, a width, a modifier, a letter. */
static size_t directive_bytes(const char *at)
{
	size_t n = 1;

	n += strspn(at + n, "-_0^#+");
	n += strspn(at + n, "0123456789");
	n += strspn(at + n, "EO:");
	return n + (at[n] != 0);
}

static int no_room(size_t out_bytes)
{
	return err_set(ERR_INPUT, "the format gives more than %zu bytes", out_bytes - 1);
}

/* Appends a directive. The C library copies one that it does not know. Python's times have microseconds,
 * which a moment has not, and a zone only if one was given. */
static int add_directive(char *out, size_t *len, size_t out_bytes, const char *directive, const struct tm *tm)
{
	size_t room = out_bytes - *len, more, n = strlen(directive);
	int is_zone = strchr("zZ", directive[n - 1]) != NULL;

	if (!strcmp(directive, "%f"))
		more = (size_t)snprintf(out + *len, room, "000000");
	else
		more = is_zone ? 0 : strftime(out + *len, room, directive, tm);
	if (more >= room || (!more && !is_zone))
		return no_room(out_bytes);
	if (more == n && !memcmp(out + *len, directive, n))
		return err_set(ERR_INPUT, "%s is no directive of strftime", directive);
	*len += more;
	return 0;
}

int moment_format(size_t *len_bytes, char *out, size_t out_bytes, const char *format, int64_t moment)
{
	char directive[24];
	size_t len = 0, n;
	struct tm tm;
	int rc = fields_of(&tm, moment) ? 0 : err_set(ERR_INPUT, "no date of the calendar");

	tm.tm_isdst = -1; /* %s then takes this machine's zone, as Python does */
	for (; *format && !rc; format += n) {
		n = *format == '%' ? directive_bytes(format) : 1;
		if (n >= sizeof(directive) || len + 1 >= out_bytes) {
			rc = no_room(out_bytes);
		} else if (*format == '%') {
			snprintf(directive, sizeof(directive), "%.*s", (int)n, format);
			rc = add_directive(out, &len, out_bytes, directive, &tm);
		} else
			out[len++] = *format;
	}
	out[rc ? 0 : len] = 0;
	*len_bytes = rc ? 0 : len;
	return rc;
}
