/* Raises the process's limits on open files and stacks. */
#include "host/limits.h"

#include "base/err.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/resource.h>

/* Buffers of 256 KiB, and the recursion of parsers: about 400 KiB. A file for each shard of a model; some
 * libraries walk through all numbers up to the limit. */
enum { STACK_BYTES = 8 << 20, STACK_LEAST_BYTES = 1 << 20, FILES = 65536 };

/* Whether the soft limit is `wanted` now, or was higher. */
static int raise_limit(int resource, rlim_t wanted, struct rlimit *limit)
{
	if (getrlimit(resource, limit) || limit->rlim_cur >= wanted)
		return 1;
	limit->rlim_cur = wanted;
	if (limit->rlim_max < wanted)
		limit->rlim_max = wanted; /* needs the right to do so */
	if (!setrlimit(resource, limit))
		return 1;
	if (!getrlimit(resource, limit) && limit->rlim_cur < limit->rlim_max) {
		limit->rlim_cur = limit->rlim_max;
		(void)!setrlimit(resource, limit);
	}
	return 0;
}

/* New threads have the size that the limit had when the program started. */
static void thread_stacks_raise(void)
{
	pthread_attr_t attr;
	size_t bytes;

	if (pthread_getattr_default_np(&attr))
		return;
	if (!pthread_attr_getstacksize(&attr, &bytes) && bytes < STACK_LEAST_BYTES &&
	        !pthread_attr_setstacksize(&attr, STACK_BYTES))
		pthread_setattr_default_np(&attr);
	pthread_attr_destroy(&attr);
}

int limits_raise(void)
{
	struct rlimit limit = {0};

	raise_limit(RLIMIT_NOFILE, FILES, &limit);
	if (!raise_limit(RLIMIT_STACK, STACK_LEAST_BYTES, &limit) && limit.rlim_cur < STACK_LEAST_BYTES)
		return err_set(ERR_FIT, "the stack is limited to %lld KiB; run `ulimit -s %d` first",
		        (long long)limit.rlim_cur >> 10, STACK_BYTES >> 10);
	thread_stacks_raise();
	return 0;
}
