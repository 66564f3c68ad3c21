#include "base/err.h"
#include "base/mem.h"
#include "gpu/backend.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>

/* The meta backend: work is done, in no time and without bytes, at the moment it is queued; what advances is
 * a clock per stream. A stream's clock says when what was queued on it so far would be done, an event is a
 * copy of one, a wait takes the later of two, and a sync brings the host's clock up, before which nothing
 * that is queued later can begin. Queueing itself takes no time. */
struct meta_device {
	struct device base;
	struct device_speed speed;
	int64_t host_ns;   /* the owning thread's clock */
	int64_t latest_ns; /* of any stream, ever */
	struct device_stats stats;
};

struct meta_stream {
	struct stream base;
	int64_t at_ns;
};

struct meta_event {
	struct event base;
	int is_recorded;
	int64_t at_ns;
	enum queue_kind queue;
};

/* An address that is no host address, so that no byte range of the arena looks like one of a slab. */
static const uint64_t ARENA_BASE = 1ull << 60;

/* About a card of 24 GB on PCIe 4 x16, in a desktop. */
static const struct device_speed built_in = {
        .matmul_flops_bf16 = 100e12,
        .matmul_flops_f32 = 40e12,
        .memory_bytes = 900e9,
        .h2d_bytes = 22e9,
        .d2h_bytes = 22e9,
        .host_memory_bytes = 50e9,
        .comm_bytes = 20e9,
};

static double given(double speed, double otherwise)
{
	return speed > 0 ? speed : otherwise;
}

static int meta_open(struct device **device, const struct device_options *options)
{
	const struct device_speed *s = &options->speed;
	struct meta_device *d = mem_alloc(1, sizeof(*d));

	if (!d)
		return ERR_NOMEM;
	d->speed = (struct device_speed){
	        .matmul_flops_bf16 = given(s->matmul_flops_bf16, built_in.matmul_flops_bf16),
	        .matmul_flops_f32 = given(s->matmul_flops_f32, built_in.matmul_flops_f32),
	        .memory_bytes = given(s->memory_bytes, built_in.memory_bytes),
	        .h2d_bytes = given(s->h2d_bytes, built_in.h2d_bytes),
	        .d2h_bytes = given(s->d2h_bytes, built_in.d2h_bytes),
	        .host_memory_bytes = given(s->host_memory_bytes, built_in.host_memory_bytes),
	        .comm_bytes = given(s->comm_bytes, built_in.comm_bytes),
	};
	*device = &d->base;
	return 0;
}

static void meta_close(struct device *device)
{
	mem_free(device);
}

/* ---- memory ---- */

static int meta_arena_open(struct device *device, dev_addr *base, int64_t bytes)
{
	(void)bytes;
	((struct meta_device *)device)->stats.arena_touched_bytes = 0;
	*base = (dev_addr){ARENA_BASE};
	return 0;
}

static void meta_arena_close(struct device *device)
{
	(void)device;
}

/* Address space only. Every slab that asks to be pinned counts as pinned. */
static int meta_slab_open(struct device *device, struct device_slab *slab)
{
	void *base = mmap(
	        NULL, (size_t)slab->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	(void)device;
	if (base == MAP_FAILED)
		return err_set(ERR_NOMEM, "meta device: address space for a slab of %" PRId64 " bytes: %s",
		        slab->bytes, strerror(errno));
	slab->base = base;
	slab->pinned_bytes = slab->kind == SLAB_PINNED ? slab->bytes : 0;
	return 0;
}

static void meta_slab_close(struct device *device, struct device_slab *slab)
{
	(void)device;
	munmap(slab->base, (size_t)slab->bytes);
}

/* ---- streams and events ---- */

static int meta_stream_open(struct stream **stream, struct device *device, enum queue_kind queue)
{
	struct meta_stream *s = mem_alloc(1, sizeof(*s));

	(void)device;
	(void)queue;
	if (!s)
		return ERR_NOMEM;
	*stream = &s->base;
	return 0;
}

static void meta_stream_close(struct stream *stream)
{
	mem_free(stream);
}

/* The host waits until at_ns. */
static int sync_to(struct device *device, int64_t at_ns)
{
	struct meta_device *d = (struct meta_device *)device;

	if (d->host_ns < at_ns)
		d->host_ns = at_ns;
	return 0;
}

static int meta_stream_sync(struct stream *stream)
{
	return sync_to(stream->device, ((struct meta_stream *)stream)->at_ns);
}

static int meta_event_open(struct event **event, struct device *device)
{
	struct meta_event *e = mem_alloc(1, sizeof(*e));

	(void)device;
	if (!e)
		return ERR_NOMEM;
	*event = &e->base;
	return 0;
}

static void meta_event_close(struct event *event)
{
	mem_free(event);
}

static int meta_event_record(struct event *event, struct stream *stream)
{
	struct meta_event *e = (struct meta_event *)event;

	e->is_recorded = 1;
	e->at_ns = ((struct meta_stream *)stream)->at_ns;
	e->queue = stream->queue;
	return 0;
}

/* The stream cannot begin anything before the host queued it. */
static void start(struct meta_stream *s)
{
	struct meta_device *d = (struct meta_device *)s->base.device;

	if (s->at_ns < d->host_ns)
		s->at_ns = d->host_ns;
}

static void advance_to(struct meta_stream *s, int64_t at_ns)
{
	struct meta_device *d = (struct meta_device *)s->base.device;

	s->at_ns = at_ns;
	if (d->latest_ns < at_ns)
		d->latest_ns = at_ns;
}

static int meta_stream_wait(struct stream *stream, struct event *event)
{
	struct meta_device *d = (struct meta_device *)stream->device;
	struct meta_stream *s = (struct meta_stream *)stream;
	struct meta_event *e = (struct meta_event *)event;

	start(s);
	if (!e->is_recorded || e->at_ns <= s->at_ns)
		return 0;
	if (stream->queue == QUEUE_COMPUTE)
		d->stats.wait_ns[e->queue] += e->at_ns - s->at_ns;
	advance_to(s, e->at_ns);
	return 0;
}

static int meta_event_sync(struct event *event)
{
	struct meta_event *e = (struct meta_event *)event;

	return e->is_recorded ? sync_to(event->device, e->at_ns) : 0;
}

/* ---- work ---- */

static double op_seconds(const struct device_speed *speed, const struct op_cost *c)
{
	double flops = c->flops_bf16 / speed->matmul_flops_bf16 + c->flops_f32 / speed->matmul_flops_f32;

	return fmax(flops, c->memory_bytes / speed->memory_bytes);
}

/* Ring algorithms: each rank sends and receives what the others lack. */
static double collective_seconds(const struct device_speed *speed, const struct work *work)
{
	double ranks = work->collective.comm->world_size;
	double crossing = (double)work->collective.bytes * (ranks - 1) / ranks / speed->comm_bytes;

	if (work->kind == WORK_BROADCAST)
		return ranks > 1 ? (double)work->collective.bytes / speed->comm_bytes : 0;
	return work->kind == WORK_ALL_REDUCE ? 2 * crossing : crossing;
}

/* How long the work takes; counts what it moves and computes. */
static double account(struct meta_device *d, const struct work *work)
{
	struct op_cost cost;

	switch (work->kind) {
	case WORK_OP:
		op_cost_of(&work->op, &cost);
		d->stats.flops += cost.flops_bf16 + cost.flops_f32;
		return op_seconds(&d->speed, &cost);
	case WORK_COPY_IN:
		d->stats.copied_in_bytes += work->copy_in.bytes;
		return (double)work->copy_in.bytes / d->speed.h2d_bytes;
	case WORK_COPY_OUT:
		d->stats.copied_out_bytes += work->copy_out.bytes;
		return (double)work->copy_out.bytes / d->speed.d2h_bytes;
	case WORK_CALL:
		return work->call.cost.host_bytes / d->speed.host_memory_bytes;
	case WORK_ALL_GATHER:
	case WORK_REDUCE_SCATTER:
	case WORK_ALL_REDUCE:
	case WORK_BROADCAST:
		return collective_seconds(&d->speed, work);
	default:
		return 0;
	}
}

static int meta_queue(struct stream *stream, const struct work *work)
{
	struct meta_device *d = (struct meta_device *)stream->device;
	struct meta_stream *s = (struct meta_stream *)stream;
	int64_t took_ns = llround(account(d, work) * 1e9);

	start(s);
	if (d->stats.arena_touched_bytes < work->touched_bytes)
		d->stats.arena_touched_bytes = work->touched_bytes;
	d->stats.busy_ns[stream->queue] += took_ns;
	advance_to(s, s->at_ns + took_ns);
	if (work->kind == WORK_STAMP)
		*work->at_ns = s->at_ns;
	return 0;
}

/* ---- ranks: any number, all taken to be like this one ---- */

static int meta_comm_open(struct comm **comm, struct device *device, const struct comm_group *group)
{
	(void)device;
	(void)group;
	*comm = mem_alloc(1, sizeof(**comm));
	return *comm ? 0 : ERR_NOMEM;
}

static void meta_comm_close(struct comm *comm)
{
	mem_free(comm);
}

static int meta_sum_host(struct comm *comm, double *values, int count)
{
	for (int i = 0; i < count; i++)
		values[i] *= comm->world_size;
	return 0;
}

static void meta_get_stats(const struct device *device, struct device_stats *stats)
{
	const struct meta_device *d = (const struct meta_device *)device;

	stats->arena_touched_bytes = d->stats.arena_touched_bytes;
	stats->copied_in_bytes = d->stats.copied_in_bytes;
	stats->copied_out_bytes = d->stats.copied_out_bytes;
	stats->flops = d->stats.flops;
	stats->host_memory_rate = d->speed.host_memory_bytes;
	memcpy(stats->busy_ns, d->stats.busy_ns, sizeof(stats->busy_ns));
	memcpy(stats->wait_ns, d->stats.wait_ns, sizeof(stats->wait_ns));
	stats->now_ns = d->latest_ns;
}

const struct backend backend_meta = {
        .name = "meta",
        .open = meta_open,
        .close = meta_close,
        .arena_open = meta_arena_open,
        .arena_close = meta_arena_close,
        .slab_open = meta_slab_open,
        .slab_close = meta_slab_close,
        .stream_open = meta_stream_open,
        .stream_close = meta_stream_close,
        .stream_sync = meta_stream_sync,
        .event_open = meta_event_open,
        .event_close = meta_event_close,
        .event_record = meta_event_record,
        .stream_wait = meta_stream_wait,
        .event_sync = meta_event_sync,
        .queue = meta_queue,
        .comm_open = meta_comm_open,
        .comm_close = meta_comm_close,
        .sum_host = meta_sum_host,
        .get_stats = meta_get_stats,
        .has_bytes = 0,
};
