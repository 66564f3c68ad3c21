/* The device: memory, streams, events, copies, collectives and ops, in one interface with several worlds.
 *
 * Mental model. A device owns one arena of device memory, whose addresses are of type dev_addr and mean
 * nothing to the host, and slabs of host memory that its copies can reach. Work is queued on streams; a
 * stream does its work in order, streams run beside each other, events order them. Every call that takes a
 * stream returns at once. Whoever queues is one thread (the owning thread); the work runs elsewhere, so an
 * error of queued work shows up later: at every stream_sync, event_sync or device_sync after it, with the
 * text of the first, and from any call that queues, which then queues nothing; the device does nothing more,
 * but nothing hangs either, and closing works.
 *
 * Backends: `host` (threads; host/cpu), `meta` (a clock, no bytes; device/meta), `cuda` (gpu). All calls
 * are checked here once (device/device.c) and then dispatched (device/backend.h). A call that a check refuses
 * queues nothing and leaves the device in order.
 *
 * Errors: ERR_RANGE (a size or address outside its arena or slab, a shape that is not positive), ERR_NOMEM,
 * ERR_DEVICE (the backend's own failure), ERR_INPUT (options that make no sense).
 */
#ifndef FERRY_DEVICE_DEVICE_H
#define FERRY_DEVICE_DEVICE_H

#include "base/dtype.h"
#include "device/addr.h"
#include "device/comm_cost.h"
#include "device/device_kind.h"

#include <stddef.h>
#include <stdint.h>

struct device;
struct stream;
struct event;
struct comm;
struct op;      /* device/op.h */
struct op_cost; /* device/op_cost.h */
struct pool;
struct slab_run; /* host/slab.h */

/* The ordered queues of a plan. One stream each. */
enum queue_kind { QUEUE_COMPUTE, QUEUE_H2D, QUEUE_D2H, QUEUE_COMM, QUEUE_CPU, QUEUE_COUNT };
const char *queue_name(enum queue_kind queue);

/* What the meta device takes for granted about a machine; figures are per second, at full use. */
struct device_speed {
	double matmul_flops_bf16, matmul_flops_f32;
	double attention_flops; /* 0: as of other products */
	double memory_bytes;    /* device memory, read + write */
	double h2d_bytes, d2h_bytes;
	/* What the host's memory bus carries of this rank: copies each way and the optimizer of the CPU share
	 * it, read and written. */
	double host_memory_bytes;
	double host_update_bytes; /* of it, what the optimizer of the CPU gets alone; 0: all */
	double comm_bytes;        /* per rank, each way, to ranks of its node */
	double network_bytes;     /* per node, each way, to others; 0: as much as its ranks have within */
	double comm_latency_s, network_latency_s; /* of a message, one link further */
	double copies_bytes; /* what copies in and out carry together while both run; 0: neither hinders the
	                        other */
	double launch_s, call_s; /* of an op, and of a function of the host between others' work, beside what
	                            they do */
	double pin_bytes;  /* of host memory made and pinned at the start; 0: not known. No clock minds */
	int host_computes; /* 1: ops run on the cores of the CPU optimizer, in host memory */
};

/* How the ranks of a world hear of each other before their devices are connected, and agree on host values
 * after: what MPI does, or pipes in a test. Each function is called by all ranks in the same order, blocks,
 * and returns 0 or a negative ERR_* with its text. */
struct device_bootstrap {
	/* `bytes` of rank `root` reach all ranks' `values` */
	int (*broadcast)(void *context, void *values, int64_t bytes, int root);
	int (*sum)(void *context, double *values, int count); /* over ranks, in place */
	void *context;
	int64_t timeout_ns; /* how long a rank waits for the others before it gives the run up; 0: 30 minutes
	                     */
};

struct device_options {
	int threads;       /* host: compute threads, >= 1 (0 = what pool_default_threads says) */
	struct pool *pool; /* host: the worker pool to share (host/pool.h; stays the caller's), or NULL: opens
	                      its own with `threads`. cuda: touches the pages of slabs, where given */
	double host_copy_gbps;      /* host: throttle of copies each way in 1e9 bytes/s; 0 = off */
	uint64_t stream_delay_seed; /* host: random delays before each piece of work; 0 = off */
	int poison; /* host, cuda: stream_discard overwrites, and a fresh arena is filled, with NaN patterns
	             */
	int check_races; /* any: work that uses the bytes of other work without being ordered after it, one of
	                    them writing, is refused with ERR_DEVICE when it is queued, naming both; for
	                    tests, at most 16 streams. Covers ops, copies (both sides), collectives and
	                    discards, not what a stream_call does */
	const struct device_bootstrap *bootstrap; /* cuda: of worlds of more than one rank; stays the
	                                             caller's until the device is closed */
	int ranks_per_node; /* ranks of the world on one node, numbered one after the other: to tell what
	                   collectives send within a node and between nodes; 0: all */
	int index; /* cuda: which GPU of those that the process sees; refused where there are fewer */
	struct device_speed speed; /* meta; zero fields take built-in values (a mid-range machine) */
};

/* Opens the device of that name ("host", "meta"; "auto" takes the first that works). NULL options are all 0.
 * ERR_INPUT names what there is. */
int device_open(struct device **device, const char *name, const struct device_options *options);

/* Frees the arena and the slabs that are still open. Streams, events and comms must have been closed. */
void device_close(struct device *device);
const char *device_name(const struct device *device);
enum device_kind device_kind_of(const struct device *device);

/* ---- memory ---- */

/* Takes the one arena: `bytes` of device memory, aligned to 256. A device has at most one at a time. Closing
 * waits for queued work. */
int device_arena_open(struct device *device, dev_addr *base, int64_t bytes);
void device_arena_close(struct device *device);

/* Host memory for planes: exactly `bytes` (never rounded up beyond a page), zero-filled, in huge pages where
 * the system gives them. SLAB_PINNED asks for memory that copies reach without staging: refused pinning is
 * reported by log_warn and the slab stays usable. On meta the address is reserved, never backed: do not touch
 * it. Closing waits for queued work. */
enum slab_kind { SLAB_PINNED, SLAB_PAGEABLE };
int device_slab_open(struct device *device, void **base, int64_t bytes, enum slab_kind kind);

/* The same, where runs of it belong to NUMA nodes of the host (host/slab.h: slab_run); they are read in this
 * call only. meta has no use for them. */
int device_slab_open_runs(struct device *device, void **base, int64_t bytes, enum slab_kind kind,
        const struct slab_run *runs, int run_count);
void device_slab_close(struct device *device, void *base);

/* 1 where host memory behind slabs is real and ops compute; 0 on meta. */
int device_has_bytes(const struct device *device);

/* Device memory that arena and reserves may take together: what is free now, and what this device's reserves
 * hold already. 0: not limited by the device. */
int64_t device_free_bytes(const struct device *device);

/* ---- streams and events ---- */

/* Closing waits for the stream's work; an error stays with the device. An event outlives the stream it was
 * recorded on. */
int stream_open(struct stream **stream, struct device *device, enum queue_kind queue);
void stream_close(struct stream *stream);

/* Waits until all work queued so far is done; returns the device's first error. */
int stream_sync(struct stream *stream);
int device_sync(struct device *device);

int event_open(struct event **event, struct device *device);
void event_close(struct event *event);

/* The event now stands for all work queued on `stream` so far; a later record moves it. */
int event_record(struct event *event, struct stream *stream);

/* Later work on `stream` starts after what the event stands for at this call. Never recorded: no wait. */
int stream_wait(struct stream *stream, struct event *event);
int event_sync(struct event *event);

/* ---- queued work ---- */

/* One op (device/op.h). The struct is copied; addresses must lie in the arena. */
int stream_op(struct stream *stream, const struct op *op);

/* Copies between a slab (or any host memory; slabs are faster) and the arena. The host side must stay valid
 * and untouched by others until the work is done. */
int stream_copy_in(struct stream *stream, dev_addr dst, const void *src, int64_t bytes);
int stream_copy_out(struct stream *stream, void *dst, dev_addr src, int64_t bytes);

/* Runs fn(context) on a host thread in stream order; a negative return becomes the device's error (fn sets
 * its text). `cost` feeds the meta clock, where fn is not called. fn must not queue work. */
typedef int stream_fn(void *context);
int stream_call(struct stream *stream, stream_fn *fn, void *context, const struct op_cost *cost);

/* These bytes hold nothing of value from here on in stream order. Costs nothing, except that a poisoning
 * device overwrites them so that a late reader shows. */
int stream_discard(struct stream *stream, dev_addr base, int64_t bytes);

/* What was queued on the stream so far, on a virtual clock: how long it takes with the machine for itself,
 * and how long the bytes that it moves over the host's memory bus take there. 0 on other devices. */
struct stream_work {
	int64_t alone_ns, bus_ns;
};
void stream_get_work(const struct stream *stream, struct stream_work *work);

/* Nanoseconds on the device's clock at which this point of the stream is reached. *at_ns must stay valid, and
 * is written by the time a sync returns that waited for this point (a GPU's times are read by the host:
 * queued work must not rely on it); it means nothing once the device has an error. Virtual time on meta. */
int stream_stamp(struct stream *stream, int64_t *at_ns);

/* ---- collectives: in place, over the ranks of `comm`, on the stream given ---- */

/* All ranks of the world open their groups at once, each one of its own; cuda: groups that cut the world
 * alike, with one first, stride and size for each. */
int comm_open_group(struct comm **comm, struct device *device, const struct comm_group *group);
int comm_open(struct comm **comm, struct device *device, int rank, int world_size); /* the whole world */

/* How collectives of such a group would send on this device. */
void device_get_links(const struct device *device, struct comm_links *links, const struct comm_group *group);
void comm_close(struct comm *comm);
int comm_rank(const struct comm *comm);
int comm_world_size(const struct comm *comm); /* ranks that joined */

/* buffer holds world_size shards of shard_count elements; on entry shard `rank` is filled, after it all are.
 */
int comm_all_gather(
        struct comm *comm, struct stream *stream, dev_addr buffer, int64_t shard_count, enum dtype dtype);
/* on entry all shards are filled; after it shard `rank` holds the sum over ranks, the others nothing of
 * value. */
int comm_reduce_scatter(
        struct comm *comm, struct stream *stream, dev_addr buffer, int64_t shard_count, enum dtype dtype);
int comm_all_reduce(
        struct comm *comm, struct stream *stream, dev_addr buffer, int64_t count, enum dtype dtype);
int comm_broadcast(
        struct comm *comm, struct stream *stream, dev_addr buffer, int64_t count, enum dtype dtype, int root);

/* Host-side agreement over ranks, blocking: sums of doubles, e.g. counts and error codes. meta takes every
 * rank to have the same values. */
int comm_sum_host(struct comm *comm, double *values, int count);

/* ---- what happened ---- */

struct device_stats {
	int64_t arena_bytes;         /* size of the arena */
	int64_t arena_touched_bytes; /* highest end of any byte range that work read or wrote, from the
	                                arena's base, since it was opened; kept by the backend from the work
	                                that it did (discards are no work) */
	int64_t reserve_bytes;       /* allocated beside the arena, of device_reserve_list */
	int64_t slab_bytes, slab_pinned_bytes;           /* now */
	int64_t slab_peak_bytes, slab_pinned_peak_bytes; /* most so far */
	int64_t copied_in_bytes, copied_out_bytes;       /* since open */
	/* What this rank's collectives sent to ranks of its node, and to others, since open: counted where
	 * they are made of messages (host), by the arithmetic of device/comm_cost.h elsewhere. */
	int64_t sent_node_bytes, sent_network_bytes;
	double flops;                 /* of ops, since open */
	double host_memory_rate;      /* bytes a second that a virtual clock gives host memory; 0 on others */
	int64_t busy_ns[QUEUE_COUNT]; /* time in work, per queue, since open */
	int64_t wait_ns[QUEUE_COUNT]; /* how long the compute stream stood still for an event of that queue,
	                                 since open */
	int64_t now_ns;               /* the device's clock (virtual on meta: the latest stream) */
};
/* Exact after a device_sync with nothing queued since. */
void device_get_stats(const struct device *device, struct device_stats *stats);

#endif
