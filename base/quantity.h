/* Appends quantities to a text in a form for people: "12.5 ms" (two digits below one), "1.5 GiB", "1:02:03",
 * "12.3k". Output for programs has the plain number instead. */
#ifndef FERRY_BASE_QUANTITY_H
#define FERRY_BASE_QUANTITY_H

#include "base/str.h"

#include <stdint.h>

void quantity_ms(struct str *out, double ms);
void quantity_bytes(struct str *out, int64_t bytes);
void quantity_seconds(struct str *out, double seconds);
void quantity_count(struct str *out, double count);

/* The plural ending of a noun after a count: "%d row%s", n, plural_s(n). */
static inline const char *plural_s(int64_t count)
{
	return count == 1 ? "" : "s";
}

#endif
