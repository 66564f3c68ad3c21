/* The CPU device as a backend: open and close, arena, slabs, statistics. */
#include "host/cpu/cpu_device.h"

#include "base/clock.h"
#include "base/mem.h"
#include "host/slab.h"

static void host_close(struct device *base)
{
	struct cpu_device *d = (struct cpu_device *)base;

	cpu_stream_free_all(d);
	pool_close(d->own_pool);
	for (int i = 0; i < CPU_DIRECTION_COUNT; i++)
		pthread_mutex_destroy(&d->lanes[i].lock);
	pthread_mutex_destroy(&d->error_lock);
	mem_free(d);
}

static int host_open(struct device **device, const struct device_options *options)
{
	struct cpu_device *d = mem_alloc(1, sizeof(*d));
	int rc = 0;

	if (!d)
		return ERR_NOMEM;
	d->options = *options;
	d->base.comm_algorithm = COMM_DIRECT;
	d->opened_at_ns = clock_now_ns();
	pthread_mutex_init(&d->error_lock, NULL);
	for (int i = 0; i < CPU_DIRECTION_COUNT; i++)
		pthread_mutex_init(&d->lanes[i].lock, NULL);
	d->pool = options->pool;
	if (!options->pool) {
		rc = pool_open(&d->own_pool, options->threads ? options->threads : pool_default_threads());
		d->pool = d->own_pool;
	}
	if (rc) {
		host_close(&d->base);
		return rc;
	}
	*device = &d->base;
	return 0;
}

static int host_arena_open(struct device *device, dev_addr *base, int64_t bytes)
{
	void *arena;
	int rc = slab_map(&arena, bytes, "host device: an arena");

	if (rc)
		return rc;
	if (((struct cpu_device *)device)->options.poison)
		cpu_poison(arena, bytes);
	for (struct cpu_stream *s = ((struct cpu_device *)device)->made; s; s = s->next_made)
		atomic_store_explicit(&s->counters.touched_bytes, 0, memory_order_relaxed);
	*base = (dev_addr){(uint64_t)(uintptr_t)arena};
	return 0;
}

static void host_arena_close(struct device *device)
{
	slab_unmap(cpu_ptr(device->arena_base), device->arena_bytes);
}

/* Does not lock memory: the CPU's copies reach any memory without staging, and few users have the right to
 * lock memory. */
static int host_slab_open(struct device *device, struct device_slab *slab)
{
	(void)device;
	slab->pinned_bytes = slab->kind == SLAB_PINNED ? slab->bytes : 0;
	return slab_map_runs(&slab->base, slab->bytes, "host device: a slab", slab->runs, slab->run_count);
}

static void host_slab_close(struct device *device, struct device_slab *slab)
{
	(void)device;
	slab_unmap(slab->base, slab->bytes);
}

/* The arena is host memory; placement/host_memory.h counts it. */
static int64_t host_free_bytes(const struct device *device)
{
	(void)device;
	return 0;
}

static void host_get_stats(const struct device *device, struct device_stats *stats)
{
	const struct cpu_device *d = (const struct cpu_device *)device;

	stats->now_ns = clock_now_ns() - d->opened_at_ns;
	stats->sent_node_bytes = atomic_load_explicit(&d->sent_node_bytes, memory_order_relaxed);
	stats->sent_network_bytes = atomic_load_explicit(&d->sent_network_bytes, memory_order_relaxed);
	for (const struct cpu_stream *s = d->made; s; s = s->next_made) {
		const struct cpu_counters *c = &s->counters;
		int64_t touched = atomic_load_explicit(&c->touched_bytes, memory_order_relaxed);

		if (stats->arena_touched_bytes < touched)
			stats->arena_touched_bytes = touched;
		stats->copied_in_bytes += atomic_load_explicit(&c->copied_in_bytes, memory_order_relaxed);
		stats->copied_out_bytes += atomic_load_explicit(&c->copied_out_bytes, memory_order_relaxed);
		stats->flops += atomic_load_explicit(&c->flops, memory_order_relaxed);
		for (int q = 0; q < QUEUE_COUNT; q++) {
			stats->busy_ns[q] += atomic_load_explicit(&c->busy_ns[q], memory_order_relaxed);
			stats->wait_ns[q] += atomic_load_explicit(&c->wait_ns[q], memory_order_relaxed);
		}
	}
}

const struct backend backend_host = {
        .kind = DEVICE_HOST,
        .open = host_open,
        .close = host_close,
        .arena_open = host_arena_open,
        .arena_close = host_arena_close,
        .slab_open = host_slab_open,
        .slab_close = host_slab_close,
        .stream_open = cpu_stream_open,
        .stream_close = cpu_stream_close,
        .stream_sync = cpu_stream_sync,
        .event_open = cpu_event_open,
        .event_close = cpu_event_close,
        .event_record = cpu_event_record,
        .stream_wait = cpu_stream_wait,
        .event_sync = cpu_event_sync,
        .queue = cpu_stream_queue,
        .comm_open = cpu_comm_open,
        .comm_close = cpu_comm_close,
        .sum_host = cpu_comm_sum_host,
        .free_bytes = host_free_bytes,
        .get_stats = host_get_stats,
};
