/* Backends, devices, arenas, slabs, streams, events and groups of ranks, and the checks of their calls. */
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "device/backend.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

enum { BACKEND_MAX = 8 };
static const struct backend *backends[BACKEND_MAX];
static int backend_count;

static const char *backend_name(const struct backend *backend)
{
	return device_facts_of(backend->kind)->name;
}

static const char *const queue_names[QUEUE_COUNT] = {
        [QUEUE_COMPUTE] = "compute",
        [QUEUE_H2D] = "h2d",
        [QUEUE_D2H] = "d2h",
        [QUEUE_COMM] = "comm",
        [QUEUE_CPU] = "cpu",
};

const char *queue_name(enum queue_kind queue)
{
	return (unsigned)queue < QUEUE_COUNT ? queue_names[queue] : "?";
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
		str_printf(&list, "%s, ", backend_name(backends[i]));
	str_add(&list, "auto");
	rc = str_check(&list);
	if (!rc)
		rc = err_set(ERR_INPUT, "unknown device \"%s\"; available: %s", name, list.data);
	str_free(&list);
	return rc;
}

static int check_options(const struct device_options *o)
{
	const double speeds[] = {o->speed.matmul_flops_bf16, o->speed.matmul_flops_f32,
	        o->speed.attention_flops, o->speed.attention_grad_flops, o->speed.copies_beside,
	        o->speed.memory_bytes, o->speed.h2d_bytes, o->speed.d2h_bytes, o->speed.host_memory_bytes,
	        o->speed.host_update_bytes, o->speed.comm_bytes, o->speed.network_bytes,
	        o->speed.comm_latency_s, o->speed.network_latency_s, o->speed.copies_bytes, o->speed.launch_s,
	        o->speed.call_s, o->speed.pin_bytes};

	if (o->threads < 0 || o->ranks_per_node < 0)
		return err_set(ERR_INPUT, "device: %s is %d, must not be negative",
		        o->threads < 0 ? "threads" : "ranks_per_node",
		        o->threads < 0 ? o->threads : o->ranks_per_node);
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
	(*device)->ranks_per_node = options->ranks_per_node;
	if (!options->check_races)
		return 0;
	(*device)->race = race_open();
	if ((*device)->race)
		return 0;
	device_close(*device);
	*device = NULL;
	return ERR_NOMEM;
}

/* A missing device is normal. A device that fails to open deserves a warning. */
static void say_passed_over(int rc, const char *next)
{
	if (rc == ERR_UNSUPPORTED)
		log_debug("device=auto: %s; trying %s", err_text(), next);
	else
		log_warn("device=auto: %s; trying %s", err_text(), next);
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
	for (int i = 0; i < backend_count && rc; i++) {
		if (!is_auto && strcmp(name, backend_name(backends[i])))
			continue;
		rc = backend_open(device, backends[i], options);
		if (rc && is_auto && i + 1 < backend_count)
			say_passed_over(rc, backend_name(backends[i + 1]));
	}
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
	race_close(device->race);
	device->backend->close(device);
}

const char *device_name(const struct device *device)
{
	return backend_name(device->backend);
}

const struct device_speed device_speed_assumed = {
        .matmul_flops_bf16 = 100e12,
        .matmul_flops_f32 = 40e12,
        .memory_bytes = 900e9,
        .h2d_bytes = 22e9,
        .d2h_bytes = 22e9,
        .host_memory_bytes = 50e9,
        .comm_bytes = 20e9,
};

enum device_kind device_kind_of(const struct device *device)
{
	return device->backend->kind;
}

int device_has_bytes(const struct device *device)
{
	return device_facts_of(device->backend->kind)->has_bytes;
}

/* ---- memory ---- */

int64_t device_free_bytes(const struct device *device)
{
	return device->backend->free_bytes(device);
}

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
	if (device->race)
		race_forget(device->race, device->arena_base.value, device->arena_bytes);
	device->backend->arena_close(device);
	device->arena_base = DEV_NONE;
	device->arena_bytes = 0;
}

static void count_slab(struct device *device, const struct device_slab *slab, int64_t sign)
{
	device->slab_bytes += sign * slab->bytes;
	device->slab_pinned_bytes += sign * slab->pinned_bytes;
	if (device->slab_peak_bytes < device->slab_bytes)
		device->slab_peak_bytes = device->slab_bytes;
	if (device->slab_pinned_peak_bytes < device->slab_pinned_bytes)
		device->slab_pinned_peak_bytes = device->slab_pinned_bytes;
}

int device_slab_open(struct device *device, void **base, int64_t bytes, enum slab_kind kind)
{
	return device_slab_open_runs(device, base, bytes, kind, NULL, 0);
}

int device_slab_open_runs(struct device *device, void **base, int64_t bytes, enum slab_kind kind,
        const struct slab_run *runs, int run_count)
{
	struct device_slab slab = {.bytes = bytes, .kind = kind, .runs = runs, .run_count = run_count},
	                   *slabs;
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
	slab.runs = NULL;
	slab.run_count = 0;
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
		if (device->race)
			race_forget(device->race, (uint64_t)(uintptr_t)base, slab.bytes);
		device->slabs[i] = device->slabs[--device->slab_count];
		count_slab(device, &slab, -1);
		device->backend->slab_close(device, &slab);
		return;
	}
	assert(!"device_slab_close: no slab has this base");
}

/* ---- streams and events ---- */

int stream_open(struct stream **stream, struct device *device, enum queue_kind queue)
{
	int race_stream = device->race ? race_stream_open(device->race) : 0, rc;

	*stream = NULL;
	if ((unsigned)queue >= QUEUE_COUNT)
		rc = err_set(ERR_RANGE, "stream: queue %d does not exist", (int)queue);
	else if (race_stream < 0)
		rc = err_set(ERR_UNSUPPORTED, "stream: races are checked between at most %d streams",
		        RACE_STREAMS_MAX);
	else
		rc = device->backend->stream_open(stream, device, queue);
	if (rc) {
		if (device->race && race_stream >= 0)
			race_stream_close(device->race, race_stream);
		return rc;
	}
	(*stream)->race_stream = race_stream;
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
	if (stream->device->race)
		race_stream_close(stream->device->race, stream->race_stream);
	stream->device->backend->stream_close(stream);
}

int stream_sync(struct stream *stream)
{
	if (stream->device->race)
		race_sync_stream(stream->device->race, stream->race_stream);
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

void stream_get_work(const struct stream *stream, struct stream_work *work)
{
	*work = stream->work;
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

int device_check_same(const struct device *a, const struct device *b, const char *call)
{
	return a == b ? 0 : err_set(ERR_RANGE, "%s: the two belong to different devices", call);
}

int event_record(struct event *event, struct stream *stream)
{
	int rc = device_check_same(event->device, stream->device, "event_record");

	if (!rc && stream->device->race)
		race_record(stream->device->race, &event->race_clock, stream->race_stream);
	return rc ? rc : stream->device->backend->event_record(event, stream);
}

int stream_wait(struct stream *stream, struct event *event)
{
	int rc = device_check_same(event->device, stream->device, "stream_wait");

	if (!rc && stream->device->race)
		race_wait(stream->device->race, stream->race_stream, &event->race_clock);
	return rc ? rc : stream->device->backend->stream_wait(stream, event);
}

int event_sync(struct event *event)
{
	if (event->device->race)
		race_sync_event(event->device->race, &event->race_clock);
	return event->device->backend->event_sync(event);
}

/* ---- collectives ---- */

void device_get_links(const struct device *device, struct comm_links *links, const struct comm_group *group)
{
	comm_links_find(links, group, device->ranks_per_node, device->comm_algorithm);
}

int comm_open_group(struct comm **comm, struct device *device, const struct comm_group *group)
{
	int rc;

	*comm = NULL;
	if (group->size < 1 || group->rank < 0 || group->rank >= group->size)
		return err_set(
		        ERR_RANGE, "comm: rank %d of %d ranks does not exist", group->rank, group->size);
	if (group->first < 0 || group->stride < 1 ||
	        group->first + (int64_t)(group->size - 1) * group->stride >= group->world_size)
		return err_set(ERR_RANGE, "comm: ranks %d, %d, ... (%d of them) of %d ranks", group->first,
		        group->first + group->stride, group->size, group->world_size);
	rc = device->backend->comm_open(comm, device, group);
	if (rc)
		return rc;
	(*comm)->device = device;
	(*comm)->rank = group->rank;
	(*comm)->world_size = group->size;
	device_get_links(device, &(*comm)->links, group);
	return 0;
}

int comm_open(struct comm **comm, struct device *device, int rank, int world_size)
{
	return comm_open_group(comm, device,
	        &(struct comm_group){
	                .rank = rank, .size = world_size, .stride = 1, .world_size = world_size});
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

int device_get_condition(struct device *device, struct device_condition *condition)
{
	*condition = (struct device_condition){0};
	return device->backend->get_condition ? device->backend->get_condition(device, condition) : 0;
}

const char *device_slow_name(enum device_slow slow)
{
	static const char *const names[] = {
#define DEVICE_SLOW_NAME(NAME, text) text,
	        DEVICE_SLOW_LIST(DEVICE_SLOW_NAME)
#undef DEVICE_SLOW_NAME
	};

	return names[slow];
}
