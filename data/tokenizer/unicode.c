/* Classes of characters and their lower case, and UTF-8. */
#include "data/tokenizer/unicode.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>
#include <utf8proc.h>

enum { PAGES_MAX = 512 }; /* the table fills 337 */

const uint32_t *unicode_pages[UNICODE_END / UNICODE_PAGE];

static uint32_t end_of(int run)
{
	return run + 1 < unicode_run_count ? unicode_runs[run + 1].first : UNICODE_END;
}

/* A page within the run of the page before it is the same page, so that only some hundreds are filled. */
static void fill_pages(void)
{
	static uint32_t pages[PAGES_MAX][UNICODE_PAGE];
	int used = 0, run = 0;

	for (uint32_t first = 0; first < UNICODE_END; first += UNICODE_PAGE) {
		const uint32_t **page = &unicode_pages[first / UNICODE_PAGE];
		int begins_before = first > 0 && unicode_runs[run].first + UNICODE_PAGE <= first;

		if (begins_before && end_of(run) >= first + UNICODE_PAGE) {
			*page = page[-1];
			continue;
		}
		assert(used < PAGES_MAX);
		for (uint32_t c = first; c < first + UNICODE_PAGE; c++) {
			run += c == end_of(run);
			pages[used][c - first] = unicode_runs[run].flags;
		}
		*page = pages[used++];
	}
}

void unicode_init(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, fill_pages);
}

/* Length of the valid character at u, with `left` bytes to the end; 0 if it is invalid. Ranges: table 3-7
 * of the Unicode standard. */
static size_t valid_length(const unsigned char *u, size_t left)
{
	unsigned char lead = u[0], low = 0x80, high = 0xbf;
	size_t len = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;

	if (len == 1)
		return 1;
	if (lead < 0xc2 || lead > 0xf4 || left < len)
		return 0;
	if (lead == 0xe0)
		low = 0xa0;
	else if (lead == 0xed)
		high = 0x9f;
	else if (lead == 0xf0)
		low = 0x90;
	else if (lead == 0xf4)
		high = 0x8f;
	if (u[1] < low || u[1] > high)
		return 0;
	for (size_t i = 2; i < len; i++)
		if ((u[i] & 0xc0) != 0x80)
			return 0;
	return len;
}

size_t utf8_check(const char *text, size_t len_bytes)
{
	const unsigned char *u = (const unsigned char *)text;
	size_t i = 0;

	while (i < len_bytes) {
		uint64_t eight;

		if (i + 8 <= len_bytes) {
			memcpy(&eight, u + i, 8);
			if (!(eight & 0x8080808080808080u)) {
				i += 8;
				continue;
			}
		}
		size_t len = valid_length(u + i, len_bytes - i);

		if (len == 0)
			return i;
		i += len;
	}
	return len_bytes;
}

int unicode_lower(uint32_t out[2], uint32_t c)
{
	/* characters newer than Unicode 15.0, utf8proc's version */
	static const struct {
		uint32_t first, last, lower;
	} newer[] = {{0x1c89, 0x1c89, 0x1c8a}, {0xa7cb, 0xa7cb, 0x264}, {0xa7cc, 0xa7cc, 0xa7cd},
	        {0xa7ce, 0xa7ce, 0xa7cf}, {0xa7d2, 0xa7d2, 0xa7d3}, {0xa7d4, 0xa7d4, 0xa7d5},
	        {0xa7da, 0xa7da, 0xa7db}, {0xa7dc, 0xa7dc, 0x19b}, {0x10d50, 0x10d65, 0x10d70},
	        {0x16ea0, 0x16eb8, 0x16ebb}};

	if (c < 0x80) {
		out[0] = c >= 'A' && c <= 'Z' ? c + 32 : c;
		return 1;
	}
	if (c == 0x130) {
		out[0] = 'i';
		out[1] = 0x307;
		return 2;
	}
	for (size_t i = 0; i < sizeof(newer) / sizeof(newer[0]); i++)
		if (c >= newer[i].first && c <= newer[i].last) {
			out[0] = newer[i].lower + (c - newer[i].first);
			return 1;
		}
	out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
	return 1;
}

int utf8_put(char out[4], uint32_t c)
{
	if (c < 0x80) {
		out[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		out[0] = (char)(0xc0 | c >> 6);
		out[1] = (char)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c < 0x10000) {
		out[0] = (char)(0xe0 | c >> 12);
		out[1] = (char)(0x80 | (c >> 6 & 0x3f));
		out[2] = (char)(0x80 | (c & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | c >> 18);
	out[1] = (char)(0x80 | (c >> 12 & 0x3f));
	out[2] = (char)(0x80 | (c >> 6 & 0x3f));
	out[3] = (char)(0x80 | (c & 0x3f));
	return 4;
}
