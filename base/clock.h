/* The monotonic clock, for durations. It never goes back, and its zero is arbitrary. Any thread. */
#ifndef FERRY_BASE_CLOCK_H
#define FERRY_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t clock_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline double clock_now_s(void)
{
	return 1e-9 * (double)clock_now_ns();
}

#endif
