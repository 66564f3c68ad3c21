/* Where each case is slow, tests take some of their usual cases: under a sanitizer, and as many times fewer
 * as FERRY_TEST_SPARING=n says (on the emulator, under compute-sanitizer).
 */
#ifndef FERRY_TESTS_SPARING_H
#define FERRY_TESTS_SPARING_H

#include <stdlib.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* Every so manieth of the usual cases; `sanitized`: the same under a sanitizer. */
static inline int sparing(int sanitized)
{
	const char *text = getenv("FERRY_TEST_SPARING");
	int more = text ? atoi(text) : 1;

	return (SANITIZED ? sanitized : 1) * (more > 1 ? more : 1);
}

#endif
