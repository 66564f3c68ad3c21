/* Distance between two names. */
#include "base/name.h"

#include <ctype.h>
#include <string.h>

int name_fold(int c)
{
	return c == '-' ? '_' : tolower(c);
}

/* Optimal string alignment. */
int name_distance(const char *a, const char *b)
{
	enum { LEN = 63 };
	int a_len = (int)strnlen(a, LEN), b_len = (int)strnlen(b, LEN), rows[3][LEN + 1];
	int *before = rows[0], *last = rows[1], *now = rows[2];

	for (int j = 0; j <= b_len; j++)
		last[j] = j;
	for (int i = 1; i <= a_len; i++) {
		int *spare = before;

		now[0] = i;
		for (int j = 1; j <= b_len; j++) {
			int change = name_fold((unsigned char)a[i - 1]) != name_fold((unsigned char)b[j - 1]);
			int best = last[j - 1] + change;

			if (last[j] + 1 < best)
				best = last[j] + 1;
			if (now[j - 1] + 1 < best)
				best = now[j - 1] + 1;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
			        before[j - 2] + 1 < best)
				best = before[j - 2] + 1;
			now[j] = best;
		}
		before = last;
		last = now;
		now = spare;
	}
	return last[b_len];
}

int name_near(const char *name)
{
	return strlen(name) < 6 ? 1 : 2;
}
