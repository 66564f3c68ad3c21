/* Slow tests run only some of their cases: under a sanitizer, and with FERRY_TEST_SPARING=n (on the emulator,
 * under compute-sanitizer).
 */
#ifndef FERRY_TESTS_SPARING_H
#define FERRY_TESTS_SPARING_H

#include <stdlib.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* 1: leave out cases with one thread, because ThreadSanitizer finds nothing in them. */
#ifdef __SANITIZE_THREAD__
#define THREADS_ONLY 1
#else
#define THREADS_ONLY 0
#endif

/* Returns n: run every n-th case. `sanitized` is the n for AddressSanitizer, and half of the n for
 * ThreadSanitizer, which is slower and looks at how threads meet, not at results. */
static inline int sparing(int sanitized)
{
	const char *text = getenv("FERRY_TEST_SPARING");
	int more = text ? atoi(text) : 1;

	return (SANITIZED ? sanitized * (1 + THREADS_ONLY) : 1) * (more > 1 ? more : 1);
}

#endif
