/* Opens a pool on the machine that topology_read finds, and counts its default threads. */
#include "host/pool.h"

#include "base/mem.h"
#include "host/topology.h"

#include <sched.h>

int pool_open_here(struct pool **pool, struct topology *t, int threads, int ranks)
{
	int rc = topology_read(t);

	if (!threads)
		threads = t->thread_count > ranks ? t->thread_count / ranks : 1;
	return rc ? rc : pool_open_on(pool, threads, t);
}

int pool_default_threads(void)
{
	struct topology *t = mem_alloc(1, sizeof(*t));
	int count = t && topology_read(t) == 0 ? t->thread_count : 0;
	cpu_set_t set;

	mem_free(t);
	if (count)
		return count;
	if (sched_getaffinity(0, sizeof(set), &set))
		return 1;
	return CPU_COUNT(&set) < 1 ? 1 : CPU_COUNT(&set);
}
