#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "gpu/backend.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

enum { BACKEND_MAX = 8 };
static const struct backend *backends[BACKEND_MAX];
static int backend_count;

static const char *const queue_names[QUEUE_COUNT] = {
        [QUEUE_COMPUTE] = "compute",
        [QUEUE_H2D] = "h2d",
        [QUEUE_D2H] = "d2h",
        [QUEUE_COMM] = "comm",
        [QUEUE_CPU] = "cpu",
};

static const char *const work_names[WORK_KIND_COUNT] = {
        [WORK_OP] = "op",
        [WORK_COPY_IN] = "copy_in",
        [WORK_COPY_OUT] = "copy_out",
        [WORK_CALL] = "call",
        [WORK_DISCARD] = "discard",
        [WORK_STAMP] = "stamp",
        [WORK_ALL_GATHER] = "all_gather",
        [WORK_REDUCE_SCATTER] = "reduce_scatter",
        [WORK_ALL_REDUCE] = "all_reduce",
        [WORK_BROADCAST] = "broadcast",
};

const char *queue_name(enum queue_kind queue)
{
	return (unsigned)queue < QUEUE_COUNT ? queue_names[queue] : "?";
}

const char *work_name(const struct work *work)
{
	return work->kind == WORK_OP ? op_name(work->op.kind) : work_names[work->kind];
}

void device_register(const struct backend *backend)
{
	for (int i = 0; i < backend_count; i++)
		if (backends[i] == backend)
			return;
	assert(backend_count < BACKEND_MAX);
	backends[backend_count++] = backend;
}

/* ---- open and close ---- */

static int no_such_backend(const char *name)
{
	struct str list = {0};
	int rc;

	for (int i = 0; i < backend_count; i++)
		str_printf(&list, "%s, ", backends[i]->name);
	str_add(&list, "auto");
	rc = str_check(&list);
	if (!rc)
		rc = err_set(ERR_INPUT, "there is no device \"%s\"; there are: %s", name, list.data);
	str_free(&list);
	return rc;
}

static int check_options(const struct device_options *o)
{
	const double speeds[] = {o->speed.matmul_flops_bf16, o->speed.matmul_flops_f32, o->speed.memory_bytes,
	        o->speed.h2d_bytes, o->speed.d2h_bytes, o->speed.host_memory_bytes, o->speed.comm_bytes};

	if (o->threads < 0)
		return err_set(ERR_INPUT, "device: threads is %d, must not be negative", o->threads);
	if (!(o->host_copy_gbps >= 0) || o->host_copy_gbps > 1e9)
		return err_set(ERR_INPUT, "device: host_copy_gbps is %g, must be 0 (off) or a positive rate",
		        o->host_copy_gbps);
	for (size_t i = 0; i < sizeof(speeds) / sizeof(speeds[0]); i++)
		if (!(speeds[i] >= 0) || speeds[i] > 1e30)
			return err_set(ERR_INPUT,
			        "device: a speed is %g per second, must be 0 (built-in) or positive",
			        speeds[i]);
	return 0;
}

static int backend_open(
        struct device **device, const struct backend *backend, const struct device_options *options)
{
	int rc = backend->open(device, options);

	if (rc)
		return rc;
	(*device)->backend = backend;
	return 0;
}

int device_open(struct device **device, const char *name, const struct device_options *options)
{
	const struct device_options none = {0};
	int is_auto = !strcmp(name, "auto"), rc;

	*device = NULL;
	if (!options)
		options = &none;
	rc = check_options(options);
	if (rc)
		return rc;
	rc = 1;
	for (int i = 0; i < backend_count && rc; i++)
		if (is_auto || !strcmp(name, backends[i]->name))
			rc = backend_open(device, backends[i], options);
	return rc > 0 ? no_such_backend(name) : rc;
}

void device_close(struct device *device)
{
	if (!device)
		return;
	assert(!device->streams);
	device_arena_close(device);
	while (device->slab_count)
		device_slab_close(device, device->slabs[device->slab_count - 1].base);
	mem_free(device->slabs);
	device->backend->close(device);
}

const char *device_name(const struct device *device)
{
	return device->backend->name;
}

int device_has_bytes(const struct device *device)
{
	return device->backend->has_bytes;
}

/* ---- memory ---- */

int device_arena_open(struct device *device, dev_addr *base, int64_t bytes)
{
	int rc;

	*base = DEV_NONE;
	if (bytes <= 0)
		return err_set(ERR_RANGE, "arena: %" PRId64 " bytes, must be positive", bytes);
	if (device->arena_bytes)
		return err_set(ERR_RANGE, "arena: the device has one already, of %" PRId64 " bytes",
		        device->arena_bytes);
	rc = device->backend->arena_open(device, base, bytes);
	if (rc)
		return rc;
	device->arena_base = *base;
	device->arena_bytes = bytes;
	return 0;
}

void device_arena_close(struct device *device)
{
	if (!device || !device->arena_bytes)
		return;
	device_sync(device); /* an error stays with the device */
	device->backend->arena_close(device);
	device->arena_base = DEV_NONE;
	device->arena_bytes = 0;
}

static void count_slab(struct device *device, const struct device_slab *slab, int64_t sign)
{
	device->slab_bytes += sign * slab->bytes;
	device->slab_pinned_bytes += slab->is_pinned ? sign * slab->bytes : 0;
	if (device->slab_peak_bytes < device->slab_bytes)
		device->slab_peak_bytes = device->slab_bytes;
	if (device->slab_pinned_peak_bytes < device->slab_pinned_bytes)
		device->slab_pinned_peak_bytes = device->slab_pinned_bytes;
}

int device_slab_open(struct device *device, void **base, int64_t bytes, enum slab_kind kind)
{
	struct device_slab slab = {.bytes = bytes, .kind = kind}, *slabs;
	int rc;

	*base = NULL;
	if (bytes <= 0)
		return err_set(ERR_RANGE, "slab: %" PRId64 " bytes, must be positive", bytes);
	slabs = mem_resize(device->slabs, (size_t)device->slab_count + 1, sizeof(*slabs));
	if (!slabs)
		return ERR_NOMEM;
	device->slabs = slabs;
	rc = device->backend->slab_open(device, &slab);
	if (rc)
		return rc;
	slabs[device->slab_count++] = slab;
	count_slab(device, &slab, 1);
	*base = slab.base;
	return 0;
}

void device_slab_close(struct device *device, void *base)
{
	if (!device || !base)
		return;
	for (int i = 0; i < device->slab_count; i++) {
		struct device_slab slab = device->slabs[i];

		if (slab.base != base)
			continue;
		device_sync(device);
		device->slabs[i] = device->slabs[--device->slab_count];
		count_slab(device, &slab, -1);
		device->backend->slab_close(device, &slab);
		return;
	}
	assert(!"device_slab_close of what is no slab");
}

/* ---- streams and events ---- */

int stream_open(struct stream **stream, struct device *device, enum queue_kind queue)
{
	int rc;

	*stream = NULL;
	if ((unsigned)queue >= QUEUE_COUNT)
		return err_set(ERR_RANGE, "stream: queue %d does not exist", (int)queue);
	rc = device->backend->stream_open(stream, device, queue);
	if (rc)
		return rc;
	(*stream)->device = device;
	(*stream)->queue = queue;
	(*stream)->next = device->streams;
	device->streams = *stream;
	return 0;
}

void stream_close(struct stream *stream)
{
	struct stream **at;

	if (!stream)
		return;
	for (at = &stream->device->streams; *at != stream; at = &(*at)->next)
		assert(*at);
	*at = stream->next;
	stream->device->backend->stream_close(stream);
}

int stream_sync(struct stream *stream)
{
	return stream->device->backend->stream_sync(stream);
}

int device_sync(struct device *device)
{
	int rc = 0, one;

	for (struct stream *s = device->streams; s; s = s->next) {
		one = stream_sync(s);
		rc = rc ? rc : one;
	}
	return rc;
}

int event_open(struct event **event, struct device *device)
{
	int rc;

	*event = NULL;
	rc = device->backend->event_open(event, device);
	if (!rc)
		(*event)->device = device;
	return rc;
}

void event_close(struct event *event)
{
	if (event)
		event->device->backend->event_close(event);
}

static int check_same_device(const struct device *a, const struct device *b, const char *what)
{
	return a == b ? 0 : err_set(ERR_RANGE, "%s: the two belong to different devices", what);
}

int event_record(struct event *event, struct stream *stream)
{
	int rc = check_same_device(event->device, stream->device, "event_record");

	return rc ? rc : stream->device->backend->event_record(event, stream);
}

int stream_wait(struct stream *stream, struct event *event)
{
	int rc = check_same_device(event->device, stream->device, "stream_wait");

	return rc ? rc : stream->device->backend->stream_wait(stream, event);
}

int event_sync(struct event *event)
{
	return event->device->backend->event_sync(event);
}

/* ---- queued work ---- */

/* [base, base + bytes) lies in the arena; *end_bytes becomes the offset of its end. */
static int check_range(const struct device *device, int64_t *end_bytes, dev_addr base, int64_t bytes)
{
	uint64_t offset = base.value - device->arena_base.value;

	if (bytes <= 0)
		return err_set(ERR_RANGE, "%" PRId64 " bytes, must be positive", bytes);
	if (!device->arena_bytes)
		return err_set(ERR_RANGE, "the device has no arena");
	if (base.value < device->arena_base.value || offset > (uint64_t)device->arena_bytes ||
	        (uint64_t)bytes > (uint64_t)device->arena_bytes - offset)
		return err_set(ERR_RANGE,
		        "%" PRId64 " bytes at arena offset %" PRId64 " do not lie in the arena of %" PRId64
		        " bytes",
		        bytes, (int64_t)offset, device->arena_bytes);
	*end_bytes = (int64_t)offset + bytes;
	return 0;
}

/* A host range that begins in a slab ends in it; other host memory is the caller's affair. */
static int check_host_range(const struct device *device, const void *host, int64_t bytes)
{
	if (!host)
		return err_set(ERR_RANGE, "no host address");
	for (int i = 0; i < device->slab_count; i++) {
		const struct device_slab *s = &device->slabs[i];
		uint64_t offset = (uint64_t)(uintptr_t)host - (uint64_t)(uintptr_t)s->base;

		if (offset < (uint64_t)s->bytes && (uint64_t)bytes > (uint64_t)s->bytes - offset)
			return err_set(ERR_RANGE,
			        "%" PRId64 " bytes at offset %" PRId64
			        " run over the end of a slab of %" PRId64 " bytes",
			        bytes, (int64_t)offset, s->bytes);
	}
	return 0;
}

/* Names the call in front of a check's text. */
static int named(const struct work *work, int rc)
{
	return rc ? err_note(rc, "%s", work_name(work)) : 0;
}

int stream_op(struct stream *stream, const struct op *op)
{
	struct work work = {.kind = WORK_OP, .op = *op};
	struct op_access list[OP_ACCESS_MAX];
	int rc = op_check(op), count;

	if (rc)
		return rc;
	count = op_access_list(op, list);
	for (int i = 0; i < count; i++) {
		int64_t end_bytes;

		rc = check_range(stream->device, &end_bytes, list[i].base, list[i].bytes);
		if (rc)
			return named(&work, rc);
		if (work.touched_bytes < end_bytes)
			work.touched_bytes = end_bytes;
	}
	return stream->device->backend->queue(stream, &work);
}

int stream_copy_in(struct stream *stream, dev_addr dst, const void *src, int64_t bytes)
{
	struct work work = {.kind = WORK_COPY_IN, .copy_in = {dst, src, bytes}};
	int rc = check_range(stream->device, &work.touched_bytes, dst, bytes);

	if (!rc)
		rc = check_host_range(stream->device, src, bytes);
	return rc ? named(&work, rc) : stream->device->backend->queue(stream, &work);
}

int stream_copy_out(struct stream *stream, void *dst, dev_addr src, int64_t bytes)
{
	struct work work = {.kind = WORK_COPY_OUT, .copy_out = {dst, src, bytes}};
	int rc = check_range(stream->device, &work.touched_bytes, src, bytes);

	if (!rc)
		rc = check_host_range(stream->device, dst, bytes);
	return rc ? named(&work, rc) : stream->device->backend->queue(stream, &work);
}

int stream_call(struct stream *stream, stream_fn *fn, void *context, const struct op_cost *cost)
{
	struct work work = {.kind = WORK_CALL, .call = {.fn = fn, .context = context}};

	if (!fn)
		return err_set(ERR_RANGE, "call: no function");
	if (cost)
		work.call.cost = *cost;
	return stream->device->backend->queue(stream, &work);
}

int stream_discard(struct stream *stream, dev_addr base, int64_t bytes)
{
	struct work work = {.kind = WORK_DISCARD, .discard = {base, bytes}};
	int64_t end_bytes; /* what holds nothing of value is not touched */
	int rc = check_range(stream->device, &end_bytes, base, bytes);

	return rc ? named(&work, rc) : stream->device->backend->queue(stream, &work);
}

int stream_stamp(struct stream *stream, int64_t *at_ns)
{
	struct work work = {.kind = WORK_STAMP, .at_ns = at_ns};

	if (!at_ns)
		return err_set(ERR_RANGE, "stamp: no place to write the time");
	return stream->device->backend->queue(stream, &work);
}

/* ---- collectives ---- */

int comm_open(struct comm **comm, struct device *device, int rank, int world_size)
{
	int rc;

	*comm = NULL;
	if (world_size < 1 || rank < 0 || rank >= world_size)
		return err_set(ERR_RANGE, "comm: rank %d of %d ranks does not exist", rank, world_size);
	rc = device->backend->comm_open(comm, device, rank, world_size);
	if (rc)
		return rc;
	(*comm)->device = device;
	(*comm)->rank = rank;
	(*comm)->world_size = world_size;
	return 0;
}

void comm_close(struct comm *comm)
{
	if (!comm)
		return;
	device_sync(comm->device);
	comm->device->backend->comm_close(comm);
}

int comm_rank(const struct comm *comm)
{
	return comm->rank;
}

int comm_world_size(const struct comm *comm)
{
	return comm->world_size;
}

/* shards pieces of shard_count elements, all of them touched. */
static int queue_collective(struct stream *stream, struct work *work, int shards, int64_t shard_count)
{
	struct device *device = stream->device;
	enum dtype dtype = work->collective.dtype;
	int64_t bytes = -1;
	int rc = check_same_device(work->collective.comm->device, device, work_name(work));

	if (rc)
		return rc;
	if ((unsigned)dtype >= DTYPE_COUNT)
		return named(work, err_set(ERR_RANGE, "dtype %d does not exist", (int)dtype));
	if (shard_count <= 0 || __builtin_mul_overflow(shard_count, shards * dtype_bytes(dtype), &bytes))
		return named(work,
		        err_set(ERR_RANGE,
		                "%" PRId64 " elements in each of %d pieces: must be positive and fit memory",
		                shard_count, shards));
	work->collective.bytes = bytes;
	rc = check_range(device, &work->touched_bytes, work->collective.buffer, bytes);
	return rc ? named(work, rc) : device->backend->queue(stream, work);
}

int comm_all_gather(
        struct comm *comm, struct stream *stream, dev_addr buffer, int64_t shard_count, enum dtype dtype)
{
	struct work work = {.kind = WORK_ALL_GATHER, .collective = {comm, buffer, 0, dtype, 0}};

	return queue_collective(stream, &work, comm->world_size, shard_count);
}

/* Sums exist of the compute dtypes only. */
static int check_sum_dtype(const struct work *work)
{
	enum dtype dtype = work->collective.dtype;

	if (dtype == DTYPE_F32 || dtype == DTYPE_BF16)
		return 0;
	return named(work,
	        err_set(ERR_RANGE, "sums of %s are not defined, only of F32 and BF16", dtype_name(dtype)));
}

int comm_reduce_scatter(
        struct comm *comm, struct stream *stream, dev_addr buffer, int64_t shard_count, enum dtype dtype)
{
	struct work work = {.kind = WORK_REDUCE_SCATTER, .collective = {comm, buffer, 0, dtype, 0}};
	int rc = check_sum_dtype(&work);

	return rc ? rc : queue_collective(stream, &work, comm->world_size, shard_count);
}

int comm_all_reduce(
        struct comm *comm, struct stream *stream, dev_addr buffer, int64_t count, enum dtype dtype)
{
	struct work work = {.kind = WORK_ALL_REDUCE, .collective = {comm, buffer, 0, dtype, 0}};
	int rc = check_sum_dtype(&work);

	return rc ? rc : queue_collective(stream, &work, 1, count);
}

int comm_broadcast(
        struct comm *comm, struct stream *stream, dev_addr buffer, int64_t count, enum dtype dtype, int root)
{
	struct work work = {.kind = WORK_BROADCAST, .collective = {comm, buffer, 0, dtype, root}};

	if (root < 0 || root >= comm->world_size)
		return err_set(
		        ERR_RANGE, "broadcast: rank %d of %d ranks does not exist", root, comm->world_size);
	return queue_collective(stream, &work, 1, count);
}

int comm_sum_host(struct comm *comm, double *values, int count)
{
	if (count < 0)
		return err_set(ERR_RANGE, "sum_host: %d values", count);
	return comm->device->backend->sum_host(comm, values, count);
}

/* ---- statistics ---- */

void device_get_stats(const struct device *device, struct device_stats *stats)
{
	*stats = (struct device_stats){
	        .arena_bytes = device->arena_bytes,
	        .slab_bytes = device->slab_bytes,
	        .slab_pinned_bytes = device->slab_pinned_bytes,
	        .slab_peak_bytes = device->slab_peak_bytes,
	        .slab_pinned_peak_bytes = device->slab_pinned_peak_bytes,
	};
	device->backend->get_stats(device, stats);
}
