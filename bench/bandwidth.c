/* Measures memory bandwidth: copies, and three arrays in place. */
#include "bench/bandwidth.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "host/pool.h"
#include "host/slab.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

enum { PIECE_BYTES = 1 << 20, MIB = 1 << 20, BUFFER_MIN = 24 * MIB };

typedef float vec __attribute__((vector_size(16)));

struct meter {
	struct bandwidth *b;
	const struct topology *machine;
	struct pool *pool; /* threads of all nodes */
	char *buffer[BANDWIDTH_NODES_MAX];
	int64_t bytes; /* bytes of one buffer: 6 * PIECE_BYTES * n */
	double cell_s; /* time for one figure */
};

/* ---- timed work; a task is one piece of a node's buffer ---- */

struct work {
	const struct meter *m;
	int64_t pieces; /* tasks of one node */
	int node;       /* node of the memory; -1: task / pieces */
};

static char *work_memory(const struct work *w, int64_t *task)
{
	int node = w->node;

	if (node < 0) {
		node = (int)(*task / w->pieces);
		*task %= w->pieces;
	}
	return w->m->buffer[node];
}

/* Copies the first half of a buffer to the second. */
static void copy_task(void *context, int64_t task, int worker)
{
	const struct work *w = context;
	char *base = work_memory(w, &task);

	(void)worker;
	memcpy(base + w->m->bytes / 2 + task * PIECE_BYTES, base + task * PIECE_BYTES, PIECE_BYTES);
}

/* Reads and writes three arrays in the thirds of a buffer, with skewed bases like planes. */
static void rmw3_task(void *context, int64_t task, int worker)
{
	const struct work *w = context;
	int64_t third = w->m->bytes / 3, at;
	char *base = work_memory(w, &task);
	vec *array[3];

	(void)worker;
	for (int k = 0; k < 3; k++)
		array[k] = (vec *)(base + k * (third + SLAB_SKEW_BYTES) + task * PIECE_BYTES);
	for (at = 0; at < PIECE_BYTES / (int64_t)sizeof(vec); at++)
		for (int k = 0; k < 3; k++)
			array[k][at] = array[k][at] * 0.5f + 1.0f;
}

static void fill_task(void *context, int64_t task, int worker)
{
	const struct work *w = context;
	char *base = work_memory(w, &task);

	(void)worker;
	memset(base + task * PIECE_BYTES, 1, PIECE_BYTES); /* not zeros, which could share one page */
}

/* Bytes per second of the best round. w->node -1: each node works on its own memory. */
static double rate_of(struct pool *pool, struct work *w, pool_fn *fn, double bytes, double budget_s)
{
	double end = clock_now_s() + budget_s, best = 0;
	int64_t node_first[POOL_NODES_MAX + 1] = {0};

	for (int n = 1; n <= w->m->b->node_count; n++)
		node_first[n] = n * w->pieces;
	do {
		double start = clock_now_s(), rate;

		if (w->node < 0)
			pool_run_placed(pool, node_first, fn, w);
		else
			pool_run(pool, w->pieces, fn, w);
		rate = bytes / (clock_now_s() - start);
		best = rate > best ? rate : best;
	} while (clock_now_s() < end);
	return best;
}

/* ---- one row of the matrix: only threads of one node ---- */

struct row {
	struct meter *m;
	int node;
	struct topology part; /* the machine with this node's cores only */
	struct err error;
};

static void row_cut(struct row *r)
{
	const struct topology *t = r->m->machine;

	r->part = *t;
	r->part.core_count = 0;
	for (int i = 0; i < t->core_count; i++)
		if (t->node[t->core[i].node].os_index == r->m->b->os_index[r->node])
			r->part.core[r->part.core_count++] = t->core[i];
}

/* Binds the calling thread to the node too, because it also does tasks. */
static void row_bind(const struct row *r)
{
	uint64_t mask[(INT16_MAX + 1) / 64] = {0};

	for (int i = 0; i < r->part.core_count; i++)
		for (int p = 0; p < r->part.core[i].processor_count; p++)
			mask[r->part.core[i].processor[p] / 64] |= UINT64_C(1)
			                                           << r->part.core[i].processor[p] % 64;
	if (!r->part.is_synthetic) /* if refused, the pool's threads are still bound */
		pthread_setaffinity_np(pthread_self(), sizeof(mask), (const cpu_set_t *)mask);
}

static void *row_main(void *argument)
{
	struct row *r = argument;
	struct meter *m = r->m;
	struct pool *pool;
	int rc;

	row_bind(r);
	rc = pool_open_on(&pool, m->b->node_threads[r->node], &r->part);
	for (int j = 0; j < m->b->node_count && !rc; j++) {
		struct work w = {m, m->bytes / 2 / PIECE_BYTES, j};

		m->b->between[r->node][j] = rate_of(pool, &w, copy_task, (double)m->bytes, m->cell_s);
	}
	if (!rc)
		pool_close(pool);
	else
		err_take(&r->error, rc);
	return NULL;
}

static int row_measure(struct meter *m, int node)
{
	struct row *r = mem_alloc(1, sizeof(*r));
	pthread_t thread;
	int rc = 0;

	if (!r)
		return ERR_NOMEM;
	r->m = m;
	r->node = node;
	row_cut(r);
	if (pthread_create(&thread, NULL, row_main, r))
		rc = err_set(ERR_DEVICE, "no thread to measure node %d with", m->b->os_index[node]);
	else
		pthread_join(thread, NULL);
	if (!rc)
		rc = err_give(&r->error);
	mem_free(r);
	return rc;
}

/* ---- the whole measurement ---- */

/* Four times a node's last-level caches, as far as memory and time allow. */
static int64_t buffer_size(const struct topology *t, int node_count)
{
	int64_t bytes = 64 * MIB, most = t->usable_bytes / 16 / node_count;

	for (int i = 0; i < TOPOLOGY_CACHE_LEVELS; i++) {
		int64_t all = 4 * t->cache[i].bytes * t->cache[i].count /
		              (t->machine.node_count ? t->machine.node_count : 1);

		bytes = all > bytes ? all : bytes;
	}
	bytes = bytes > INT64_C(1024) * MIB ? INT64_C(1024) * MIB : bytes;
	bytes = bytes > most ? most : bytes;
	return bytes < BUFFER_MIN ? 0 : bytes / (6 * PIECE_BYTES) * (6 * PIECE_BYTES);
}

static int buffers_open(struct meter *m)
{
	struct bandwidth *b = m->b;
	struct work w = {m, m->bytes / PIECE_BYTES, -1};
	struct numa_found found = {0};
	int rc = 0;

	for (int n = 0; n < b->node_count && !rc; n++) {
		const struct slab_run run = {0, m->bytes, n, b->os_index[n]};
		void *base;

		rc = slab_map_runs(&base, m->bytes, "a buffer to measure memory with", &run, 1);
		m->buffer[n] = rc ? NULL : base;
	}
	if (rc)
		return rc;
	rate_of(m->pool, &w, fill_task, 0, 0);
	for (int n = 0; n < b->node_count; n++) {
		const struct slab_run run = {0, m->bytes, n, b->os_index[n]};
		int64_t huge = slab_huge_bytes(m->buffer[n], m->bytes);

		slab_find(&found, m->buffer[n], &run);
		b->buffer_bytes += m->bytes;
		b->huge_bytes = huge < 0 || b->huge_bytes < 0 ? -1 : b->huge_bytes + huge;
	}
	b->is_bound = found.right_bytes > b->buffer_bytes / 100 * 95;
	return 0;
}

static int meter_run(struct meter *m)
{
	struct bandwidth *b = m->b;
	struct work copy = {m, m->bytes / 2 / PIECE_BYTES, -1},
	            rmw3 = {m, m->bytes / 3 / PIECE_BYTES - 1, -1};
	double all = (double)m->bytes * b->node_count;
	int rc = buffers_open(m);

	if (rc)
		return rc;
	b->copy_bytes_per_s = rate_of(m->pool, &copy, copy_task, all, m->cell_s);
	b->rmw3_bytes_per_s = rate_of(m->pool, &rmw3, rmw3_task,
	        6.0 * PIECE_BYTES * (double)rmw3.pieces * b->node_count, m->cell_s);
	if (b->node_count == 1)
		b->between[0][0] = b->copy_bytes_per_s;
	for (int n = 0; n < b->node_count && b->node_count > 1 && b->is_bound && !rc; n++)
		rc = row_measure(m, n);
	return rc;
}

int bandwidth_measure(struct bandwidth *b, const struct topology *t, int threads, double budget_s)
{
	struct meter m = {.b = b, .machine = t};
	int rc = pool_open_on(&m.pool, threads, t);

	*b = (struct bandwidth){.threads = threads};
	if (rc)
		return rc;
	b->node_count = pool_node_count(m.pool);
	if (b->node_count > BANDWIDTH_NODES_MAX) /* too many nodes for a table, and too slow */
		goto out;
	for (int n = 0; n < b->node_count; n++) {
		b->os_index[n] = pool_node_os_index(m.pool, n);
		b->node_threads[n] = pool_node_worker_count(m.pool, n);
	}
	m.bytes = buffer_size(t, b->node_count);
	m.cell_s = budget_s / (b->node_count > 1 ? 2 + b->node_count * b->node_count : 2);
	if (m.bytes)
		rc = meter_run(&m);
	for (int n = 0; n < b->node_count; n++)
		slab_unmap(m.buffer[n], m.bytes);
out:
	pool_close(m.pool);
	return rc;
}
