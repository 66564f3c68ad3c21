/* Large blocks of host memory: mapping, placement on nodes, first touch. */
#include "host/slab.h"

#include "host/pool.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/size.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { HUGE_BYTES = 2 << 20, LONG_RUN_BYTES = 32 << 20, TOUCH_BYTES = 64 << 20 };

static int64_t page_size(void)
{
	return sysconf(_SC_PAGESIZE);
}

static int64_t whole_pages(int64_t bytes)
{
	return (bytes + page_size() - 1) / page_size() * page_size();
}

/* Maps memory with its base at the start of a huge page if it is large enough for one. */
static void *map_aligned(int64_t bytes)
{
	size_t slack = bytes < HUGE_BYTES ? 0 : HUGE_BYTES, len = (size_t)whole_pages(bytes), head;
	char *at = mmap(NULL, len + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED || !slack)
		return at;
	head = (size_t)(-(uintptr_t)at % HUGE_BYTES);
	if (head)
		munmap(at, head);
	if (slack - head)
		munmap(at + head + len, slack - head);
	return at + head;
}

/* Moves the border at `at` bytes, between runs of these lengths, to the nearest page border. */
static int64_t border_at(const char *base, int64_t at, int64_t left_bytes, int64_t right_bytes)
{
	int64_t grain = min_i64(left_bytes, right_bytes) >= LONG_RUN_BYTES ? HUGE_BYTES : page_size();
	int64_t off = (int64_t)((uintptr_t)(base + at) % (uintptr_t)grain);

	return off < grain - off ? at - off : at + grain - off;
}

/* Binds runs to their nodes; neighbouring runs of one node together. */
static void place_runs(char *base, const struct slab_run *runs, int run_count)
{
	int64_t begin = -1, length = 0;

	for (int i = 0; i < run_count; i++) {
		const struct slab_run *r = &runs[i], *next = i + 1 < run_count ? &runs[i + 1] : NULL;
		int64_t end = r->first_bytes + r->bytes;
		int touches = next && next->first_bytes - end < page_size();

		if (begin < 0)
			begin = r->first_bytes / page_size() * page_size();
		length += r->bytes;
		if (touches && next->os_index == r->os_index)
			continue;
		end = touches ? border_at(base, next->first_bytes, length, next->bytes) : whole_pages(end);
		if (end > begin && numa_prefer(base + begin, end - begin, r->os_index))
			return; /* the system would refuse the others too */
		begin = !touches ? -1 : end > begin ? end : begin;
		length = 0;
	}
}

int slab_map_runs(void **base, int64_t bytes, const char *what, const struct slab_run *runs, int run_count)
{
	void *at = map_aligned(bytes);

	*base = NULL;
	if (at == MAP_FAILED)
		return err_set(ERR_NOMEM, "%s of %" PRId64 " bytes: %s", what, bytes, strerror(errno));
	madvise(at, (size_t)bytes, MADV_HUGEPAGE); /* if refused, pages are small */
	if (!numa_spread(at, bytes)) /* if refused, the first thread to touch a page places it */
		place_runs(at, runs, run_count);
	*base = at;
	return 0;
}

int slab_map(void **base, int64_t bytes, const char *what)
{
	return slab_map_runs(base, bytes, what, NULL, 0);
}

void slab_unmap(void *base, int64_t bytes)
{
	if (!base)
		return;
	numa_forget(base, whole_pages(bytes));
	munmap(base, (size_t)bytes);
}

/* ---- touching ---- */

/* Part of a slab, one task. */
struct stretch {
	char *at;
	int64_t bytes;
};

static void touch(void *context, int64_t task, int worker)
{
	const struct stretch *s = (const struct stretch *)context + task;
	uintptr_t head = (uintptr_t)s->at % (uintptr_t)page_size();

	(void)worker;
	madvise(s->at - head, (size_t)s->bytes + head, MADV_POPULATE_WRITE);
}

/* Appends bytes [first, end) as tasks and returns their number. With `stretches` NULL it only counts. */
static int64_t stretches_add(struct stretch *stretches, char *base, int64_t first, int64_t end)
{
	int64_t count = 0;

	for (int64_t at = first; at < end; at += TOUCH_BYTES, count++)
		if (stretches)
			stretches[count] = (struct stretch){base + at, min_i64(TOUCH_BYTES, end - at)};
	return count;
}

/* The tasks for the runs of one node, or for all bytes if there are no runs. */
static int64_t node_stretches(struct stretch *stretches, char *base, int64_t first, int64_t end,
        const struct slab_run *runs, int run_count, int node)
{
	int64_t count = run_count ? 0 : stretches_add(stretches, base, first, end);

	for (int i = 0; i < run_count; i++) {
		int64_t from = runs[i].first_bytes, to = from + runs[i].bytes;

		if (runs[i].node == node)
			count += stretches_add(stretches ? stretches + count : NULL, base,
			        from > first ? from : first, min_i64(to, end));
	}
	return count;
}

int slab_touch(struct pool *pool, void *base, int64_t first_bytes, int64_t bytes, const struct slab_run *runs,
        int run_count)
{
	int64_t node_first[POOL_NODES_MAX + 1] = {0}, end = first_bytes + bytes;
	int nodes = run_count ? pool_node_count(pool) : 1;
	struct stretch *stretches;

	for (int n = 0; n < nodes; n++)
		node_first[n + 1] =
		        node_first[n] + node_stretches(NULL, base, first_bytes, end, runs, run_count, n);
	stretches = mem_alloc((size_t)node_first[nodes] + 1, sizeof(*stretches));
	if (!stretches)
		return ERR_NOMEM;
	for (int n = 0; n < nodes; n++)
		node_stretches(stretches + node_first[n], base, first_bytes, end, runs, run_count, n);
	if (run_count)
		pool_run_near(pool, node_first, touch, stretches);
	else
		pool_run(pool, node_first[1], touch, stretches);
	mem_free(stretches);
	return run_count ? slab_touch(pool, base, first_bytes, bytes, NULL, 0) : 0;
}

/* ---- results ---- */

void slab_find(struct numa_found *found, const void *base, const struct slab_run *run)
{
	numa_find(found, (const char *)base + run->first_bytes, run->bytes, run->os_index);
}

/* A mapping that reaches beyond the slab counts by the share of it that lies inside. */
int64_t slab_huge_bytes(const void *base, int64_t bytes)
{
	uintptr_t begin = (uintptr_t)base, end = begin + (uintptr_t)bytes;
	unsigned long from, to;
	double huge = 0, share = 0;
	char line[512];
	long long kib;
	FILE *f = fopen("/proc/self/smaps", "re");

	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2) {
			uintptr_t a = from > begin ? from : begin, b = to < end ? to : end;

			if (from >= end) /* mappings come by address */
				break;
			share = b > a ? (double)(b - a) / (double)(to - from) : 0;
		} else if (share > 0 && sscanf(line, "AnonHugePages: %lld", &kib) == 1) {
			huge += share * (double)kib * 1024;
		}
	}
	fclose(f);
	return (int64_t)huge;
}
