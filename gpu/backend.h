/* What a backend supplies to gpu/device.c, which checks every call before it comes here.
 *
 * Backend objects embed the public ones as their first member. Only backends and device.c include this
 * header.
 */
#ifndef FERRY_GPU_BACKEND_H
#define FERRY_GPU_BACKEND_H

#include "gpu/device.h"

struct backend {
	const char *name;
	int (*open)(struct device **device, const struct device_options *options);
	void (*close)(struct device *device);
	int (*arena_open)(struct device *device, dev_addr *base, int64_t bytes);
	void (*arena_close)(struct device *device);
	int (*slab_open)(struct device *device, void **base, int64_t bytes, enum slab_kind kind);
	void (*slab_close)(struct device *device, void *base);
	int (*stream_open)(struct stream **stream, struct device *device, enum queue_kind queue);
	void (*stream_close)(struct stream *stream);
	int (*stream_sync)(struct stream *stream);
	int (*event_open)(struct event **event, struct device *device);
	void (*event_close)(struct event *event);
	int (*event_record)(struct event *event, struct stream *stream);
	int (*stream_wait)(struct stream *stream, struct event *event);
	int (*event_sync)(struct event *event);
	int (*op)(struct stream *stream, const struct op *op);
	int (*copy_in)(struct stream *stream, dev_addr dst, const void *src, int64_t bytes);
	int (*copy_out)(struct stream *stream, void *dst, dev_addr src, int64_t bytes);
	int (*call)(struct stream *stream, stream_fn *fn, void *context, const struct op_cost *cost);
	int (*discard)(struct stream *stream, dev_addr base, int64_t bytes);
	int (*stamp)(struct stream *stream, int64_t *at_ns);
	int (*comm_open)(struct comm **comm, struct device *device, int rank, int world_size);
	void (*comm_close)(struct comm *comm);
	int (*all_gather)(struct comm *comm, struct stream *stream, dev_addr buffer, int64_t shard_count,
	        enum dtype dtype);
	int (*reduce_scatter)(struct comm *comm, struct stream *stream, dev_addr buffer, int64_t shard_count,
	        enum dtype dtype);
	int (*all_reduce)(
	        struct comm *comm, struct stream *stream, dev_addr buffer, int64_t count, enum dtype dtype);
	int (*broadcast)(struct comm *comm, struct stream *stream, dev_addr buffer, int64_t count,
	        enum dtype dtype, int root);
	int (*sum_host)(struct comm *comm, double *values, int count);
	void (*get_stats)(const struct device *device, struct device_stats *stats);
	int has_bytes;
};

struct device {
	const struct backend *backend;
	dev_addr arena_base; /* kept by device.c for bounds checks; DEV_NONE when no arena is open */
	int64_t arena_bytes;
};
struct stream {
	struct device *device;
	enum queue_kind queue;
};
struct event {
	struct device *device;
};
struct comm {
	struct device *device;
	int rank, world_size;
};

/* Registers a backend under its name; called by the program's start-up (cli/, tests), before device_open.
 * "auto" takes the first registered. Not thread-safe. */
void device_register(const struct backend *backend);
extern const struct backend backend_host, backend_meta;

#endif
