/* The device without bytes: each piece of work adds its cost to its stream's clock. */
#include "base/err.h"
#include "base/mem.h"
#include "base/size.h"
#include "device/backend.h"
#include "device/meta/meta_clock.h"
#include "device/meta/meta_memory.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>

/* The meta backend moves and computes nothing. It gives the cost of work to a clock (meta_clock.h), which
 * advances when the owning thread syncs. */
struct meta_device {
	struct device base;
	struct device_speed speed;
	struct meta_clock clock;
	struct device_stats stats;
	struct meta_tally tally;
	struct meta_memory *memory; /* NULL: remembers nothing */
};

struct meta_event {
	struct event base;
	struct meta_stream *stream; /* NULL: never recorded */
	int64_t count;              /* items of the stream that it stands for */
};

/* Not a valid host address, so that no byte range of the arena looks like one of a slab. */
static const uint64_t ARENA_BASE = 1ull << 60;

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
	d->speed = *s;
	d->speed.matmul_flops_bf16 = given(s->matmul_flops_bf16, device_speed_assumed.matmul_flops_bf16);
	d->speed.matmul_flops_f32 = given(s->matmul_flops_f32, device_speed_assumed.matmul_flops_f32);
	d->speed.memory_bytes = given(s->memory_bytes, device_speed_assumed.memory_bytes);
	d->speed.h2d_bytes = given(s->h2d_bytes, device_speed_assumed.h2d_bytes);
	d->speed.d2h_bytes = given(s->d2h_bytes, device_speed_assumed.d2h_bytes);
	d->speed.host_memory_bytes = given(s->host_memory_bytes, device_speed_assumed.host_memory_bytes);
	d->speed.host_update_bytes = given(s->host_update_bytes, d->speed.host_memory_bytes);
	d->speed.comm_bytes = given(s->comm_bytes, device_speed_assumed.comm_bytes);
	d->base.comm_algorithm = s->host_computes ? COMM_DIRECT : COMM_RING;
	if (options->remembers && meta_memory_open(&d->memory)) {
		mem_free(d);
		return ERR_NOMEM;
	}
	*device = &d->base;
	return 0;
}

static void meta_close(struct device *device)
{
	meta_clock_close(&((struct meta_device *)device)->clock);
	meta_memory_close(((struct meta_device *)device)->memory);
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

static struct meta_clock *clock_of(struct device *device)
{
	return &((struct meta_device *)device)->clock;
}

static int meta_stream_open(struct stream **stream, struct device *device, enum queue_kind queue)
{
	struct meta_stream *s = mem_alloc(1, sizeof(*s));

	(void)queue;
	if (!s)
		return ERR_NOMEM;
	meta_clock_add(clock_of(device), s);
	*stream = &s->base;
	return 0;
}

static void meta_stream_close(struct stream *stream)
{
	meta_clock_remove(clock_of(stream->device), (struct meta_stream *)stream);
}

static int meta_stream_sync(struct stream *stream)
{
	struct meta_stream *s = (struct meta_stream *)stream;

	meta_clock_run(clock_of(stream->device), s, s->queued_count);
	return 0;
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

	e->stream = (struct meta_stream *)stream;
	e->count = e->stream->marked_count = e->stream->queued_count;
	return 0;
}

static int meta_stream_wait(struct stream *stream, struct event *event)
{
	struct meta_event *e = (struct meta_event *)event;

	return e->stream ? meta_clock_wait((struct meta_stream *)stream, e->stream, e->count) : 0;
}

static int meta_event_sync(struct event *event)
{
	struct meta_event *e = (struct meta_event *)event;

	if (e->stream)
		meta_clock_run(clock_of(event->device), e->stream, e->count);
	return 0;
}

/* ---- work ---- */

/* The needs of a piece of work: its time alone, bytes on the host's memory bus, the share of the host's
 * cores, and bytes on the GPU's link. */
struct need {
	double seconds, bus_bytes, cores, copied_bytes;
};

/* A GPU's kernels of recurrent states run on the same instructions as those of attention. They execute about
 * twice the products that an op needs: one side goes in two halves (gpu/delta_chunk.cuh).
 * docs/results/clock.md has the count. */
static const double RECURRENT_SHARE = 0.45;

/* If the host computes, device memory is host memory. */
static struct need op_need(struct meta_device *d, const struct work *work)
{
	const struct device_speed *speed = &d->speed;
	struct op_cost c;
	int is_grad = work->op.kind == OP_ATTENTION_GRAD || work->op.kind == OP_DELTA_GRAD;
	double products_s, attention = is_grad ? given(speed->attention_grad_flops, speed->attention_flops)
	                                       : speed->attention_flops;

	op_cost_of(&work->op, &c);
	d->tally.flops += c.flops_bf16 + c.flops_f32;
	d->tally.bytes += c.memory_bytes;
	d->tally.ops++;
	if (c.attention_flops > 0 && attention > 0)
		products_s = c.attention_flops / attention;
	else if (c.recurrent_flops > 0 && attention > 0 && !speed->host_computes)
		products_s = c.recurrent_flops / (RECURRENT_SHARE * attention);
	else
		products_s = c.flops_bf16 / speed->matmul_flops_bf16 + c.flops_f32 / speed->matmul_flops_f32;
	return (struct need){
	        .seconds = speed->launch_s + fmax(products_s, c.memory_bytes / speed->memory_bytes),
	        .bus_bytes = speed->host_computes ? c.memory_bytes : 0,
	        .cores = speed->host_computes};
}

static struct need copy_need(const struct meta_device *d, int64_t bytes, double rate)
{
	return (struct need){.seconds = (double)bytes / rate,
	        .bus_bytes = (double)bytes * (1 + d->speed.host_computes),
	        .copied_bytes = (double)bytes};
}

/* The ranks of a node send the same amount at the same time, so together they share the node's network. */
static struct need collective_need(struct meta_device *d, const struct work *work)
{
	const struct device_speed *speed = &d->speed;
	const struct comm *c = work->collective.comm;
	struct comm_traffic t;
	double network = 0;

	work_traffic(&t, work);
	d->stats.sent_node_bytes += t.node_bytes;
	d->stats.sent_network_bytes += t.network_bytes;
	if (t.network_bytes)
		network = (double)t.network_bytes * c->links.ranks_per_node /
		          given(speed->network_bytes, speed->comm_bytes * c->links.ranks_per_node);
	return (struct need){.seconds = fmax((double)t.node_bytes / speed->comm_bytes, network) +
	                                t.node_hops * speed->comm_latency_s +
	                                t.network_hops * speed->network_latency_s,
	        .bus_bytes = speed->host_computes * 2 * (double)(t.node_bytes + t.network_bytes)};
}

/* Also adds to the counts of bytes and FLOPs. */
static struct need need_find(struct meta_device *d, const struct work *work)
{
	switch (work->kind) {
	case WORK_OP:
		return op_need(d, work);
	case WORK_COPY_IN:
		d->stats.copied_in_bytes += work->copy_in.bytes;
		return copy_need(d, work->copy_in.bytes, d->speed.h2d_bytes);
	case WORK_COPY_OUT:
		d->stats.copied_out_bytes += work->copy_out.bytes;
		return copy_need(d, work->copy_out.bytes, d->speed.d2h_bytes);
	case WORK_CALL:
		return (struct need){
		        .seconds = d->speed.call_s + work->call.cost.host_bytes / d->speed.host_update_bytes,
		        .bus_bytes = work->call.cost.host_bytes,
		        .cores = d->speed.host_computes};
	case WORK_ALL_GATHER:
	case WORK_REDUCE_SCATTER:
	case WORK_ALL_REDUCE:
	case WORK_BROADCAST:
		return collective_need(d, work);
	default:
		return (struct need){0};
	}
}

/* Limits a piece of work to 2^42 ns (73 minutes), so that the sums of a plan fit 64 bits. */
static int64_t work_ns(double seconds)
{
	return llround(fmin(seconds * 1e9, 0x1p42));
}

static double share_of(double seconds, int64_t ns)
{
	return ns ? fmin(seconds * 1e9 / (double)ns, 1) : 0;
}

/* Adds a piece of work to the stream's clock. */
static int load_add(struct stream *stream, const struct meta_load *once)
{
	struct meta_load load = *once;

	if (stream->times > 0)
		load.alone_ns = llround((double)load.alone_ns * stream->times);
	stream->work.alone_ns += load.alone_ns;
	stream->work.bus_ns += (int64_t)(load.share[META_BUS] * (double)load.alone_ns); /* at most alone_ns */
	return meta_clock_work((struct meta_stream *)stream, &load);
}

/* Work that needs more of a resource than there is takes longer even alone. */
static int meta_queue(struct stream *stream, const struct work *work)
{
	struct meta_device *d = (struct meta_device *)stream->device;
	struct need need = need_find(d, work);
	double bus_s = need.bus_bytes / d->speed.host_memory_bytes;
	double copies_s = d->speed.copies_bytes > 0 ? need.copied_bytes / d->speed.copies_bytes : 0;
	int64_t ns = work_ns(fmax(need.seconds, fmax(bus_s, copies_s)));
	struct meta_load load = {.alone_ns = ns,
	        .share = {[META_BUS] = share_of(bus_s, ns),
	                [META_CORES] = need.cores,
	                [META_COPIES] = share_of(copies_s, ns)},
	        .slows = work->kind == WORK_CALL && work->call.cost.host_bytes > 0,
	        .beside = need.copied_bytes > 0 ? d->speed.copies_beside : 0};

	if (d->stats.arena_touched_bytes < work->touched_bytes)
		d->stats.arena_touched_bytes = work->touched_bytes;
	if (work->kind == WORK_STAMP)
		return meta_clock_stamp((struct meta_stream *)stream, work->at_ns);
	if (d->memory)
		meta_memory_add(d->memory, &load);
	if (d->memory && work->kind == WORK_OP)
		meta_memory_touch(d->memory, &work->op);
	return load_add(stream, &load);
}

static int meta_repeat(struct stream *stream, uint64_t name, const dev_addr *bases, int base_count)
{
	struct meta_device *d = (struct meta_device *)stream->device;
	struct meta_known known;
	int rc = 0;

	if (!d->memory)
		return 0;
	if (!meta_memory_find(d->memory, name, &known) || known.base_count != base_count)
		return meta_memory_begin(d->memory, name, &d->tally, bases, base_count);
	d->tally.flops += known.tally.flops;
	d->tally.bytes += known.tally.bytes;
	d->tally.ops += known.tally.ops;
	for (int i = 0; i < base_count; i++)
		if (known.reach[i])
			d->stats.arena_touched_bytes = max_i64(d->stats.arena_touched_bytes,
			        (int64_t)(bases[i].value - ARENA_BASE) + known.reach[i]);
	for (int64_t i = 0; i < known.count && !rc; i++)
		rc = load_add(stream, &known.loads[i]);
	return rc ? rc : 1;
}

static int meta_repeat_end(struct stream *stream)
{
	struct meta_device *d = (struct meta_device *)stream->device;

	return d->memory ? meta_memory_end(d->memory, &d->tally) : 0;
}

/* ---- ranks: any number, all assumed to be like this one ---- */

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

static int64_t meta_free_bytes(const struct device *device)
{
	(void)device;
	return 0;
}

static void meta_get_stats(const struct device *device, struct device_stats *stats)
{
	const struct meta_device *d = (const struct meta_device *)device;

	stats->arena_touched_bytes = d->stats.arena_touched_bytes;
	stats->copied_in_bytes = d->stats.copied_in_bytes;
	stats->copied_out_bytes = d->stats.copied_out_bytes;
	stats->flops = d->tally.flops;
	stats->op_count = d->tally.ops;
	stats->op_bytes = d->tally.bytes;
	stats->sent_node_bytes = d->stats.sent_node_bytes;
	stats->sent_network_bytes = d->stats.sent_network_bytes;
	stats->host_memory_rate = d->speed.host_memory_bytes;
	memcpy(stats->busy_ns, d->clock.busy_ns, sizeof(stats->busy_ns));
	memcpy(stats->wait_ns, d->clock.wait_ns, sizeof(stats->wait_ns));
	stats->now_ns = d->clock.now_ns;
}

const struct backend backend_meta = {
        .kind = DEVICE_META,
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
        .repeat = meta_repeat,
        .repeat_end = meta_repeat_end,
        .comm_open = meta_comm_open,
        .comm_close = meta_comm_close,
        .sum_host = meta_sum_host,
        .free_bytes = meta_free_bytes,
        .get_stats = meta_get_stats,
};
