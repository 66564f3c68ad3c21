/* The device: one interface to memory, streams, events, copies, collectives and ops on several backends.
 *
 * Mental model. A device owns one arena of device memory and slabs of host memory. The arena is one block;
 * its addresses have the type dev_addr, and the host must not follow them. A slab is host memory that copies
 * can reach. Callers queue work on streams. A stream does its work in order, streams run beside each other,
 * and events order them. Every call that takes a stream returns at once.
 *
 * One thread, the owning thread, queues all work. An error of queued work shows up later: every stream_sync,
 * event_sync or device_sync after it returns the first error with its text. Calls that queue work return it
 * too and then queue nothing. Nothing hangs after an error, and closing works.
 *
 * Backends: `host` (threads; host/cpu), `meta` (a clock, no bytes; device/meta), `cuda` (gpu). All calls are
 * checked once (device/device.c) and then dispatched (device/backend.h). If a check refuses a call, nothing
 * is queued and the device stays usable.
 *
 * Errors: ERR_RANGE (a size or address outside its arena or slab, a shape that is not positive), ERR_NOMEM,
 * ERR_DEVICE (the backend failed), ERR_INPUT (invalid options).
 */
#ifndef FERRY_DEVICE_DEVICE_H
#define FERRY_DEVICE_DEVICE_H

#include "base/dtype.h"
#include "device/addr.h"
#include "device/comm_cost.h"
#include "device/device_attention.h"
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

/* The machine that the meta device simulates. Figures are per second, at full use. */
struct device_speed {
	double matmul_flops_bf16, matmul_flops_f32;
	double attention_flops;      /* 0: as for other products */
	double attention_grad_flops; /* of its backward; 0: attention_flops */
	double memory_bytes;         /* device memory, read + write */
	double h2d_bytes, d2h_bytes;
	/* Bandwidth of the host's memory bus for this rank, read and written. Copies each way and the CPU's
	 * optimizer share it. */
	double host_memory_bytes;
	double host_update_bytes; /* bandwidth that the CPU's optimizer reaches alone; 0: all of it */
	double comm_bytes;        /* per rank, each way, to ranks of its node */
	double network_bytes; /* per node, each way, to other nodes; 0: comm_bytes of all its ranks together
	                       */
	double comm_latency_s, network_latency_s; /* of a message over one link */
	double copies_bytes;  /* total of copies in and out while both run; 0: neither slows the other */
	double copies_beside; /* share of their rate that copies keep while the CPU's optimizer runs; 0: all */
	double launch_s, call_s; /* fixed time of an op, and of a stream_call */
	double pin_bytes;  /* rate of making and pinning host memory at the start; 0: unknown. Clocks do not
	                      use it */
	int host_computes; /* 1: ops run on the cores of the CPU optimizer, in host memory */
};

/* About a card of 24 GB on PCIe 4 x16, in a desktop: where nothing is known. */
extern const struct device_speed device_speed_assumed;

/* Communication between ranks before their devices are connected, and agreement on host values later: MPI,
 * or pipes in a test. All ranks call each function in the same order. It blocks, and returns 0 or a negative
 * ERR_* with its text. */
struct device_bootstrap {
	/* copies `bytes` of `values` from rank `root` to all ranks */
	int (*broadcast)(void *context, void *values, int64_t bytes, int root);
	int (*sum)(void *context, double *values, int count); /* over ranks, in place */
	void *context;
	int64_t timeout_ns; /* how long a rank waits for the others before it ends the run; 0: 30 minutes */
};

struct device_options {
	int threads;       /* host: compute threads, >= 1 (0 = pool_default_threads) */
	struct pool *pool; /* host: the worker pool to share (host/pool.h; stays the caller's), or NULL: opens
	                      its own with `threads`. cuda: touches the pages of slabs if given */
	double host_copy_gbps;      /* host: throttle of copies each way in 1e9 bytes/s; 0 = off */
	uint64_t stream_delay_seed; /* host: random delays before each piece of work; 0 = off */
	int poison; /* host, cuda: stream_discard overwrites, and a fresh arena is filled, with NaN patterns
	             */
	int check_races; /* any backend: refuses work with ERR_DEVICE if it shares bytes with other work, one
	                    of the two writes, and no event orders them. The text names both. For tests; at
	                    most 16 streams. Covers ops, copies (both sides), collectives and discards, but
	                    not the work of a stream_call */
	const struct device_bootstrap *bootstrap; /* cuda with more than one rank; owned by the caller, valid
	                                             until the device is closed */
	int ranks_per_node; /* ranks on one node, numbered one after the other; separates traffic within a
	                       node from traffic between nodes; 0: all ranks */
	enum device_attention attention; /* cuda */
	int index; /* cuda: index among the GPUs that the process sees; an error if there are fewer */
	struct device_speed speed; /* meta; zero fields take those of device_speed_assumed */
	int remembers;             /* meta: stream_repeat knows what was queued before */
};

/* Opens the device with this name ("cuda", "host", "meta"; "auto" takes the first that opens). NULL options
 * are all 0. The text of ERR_INPUT lists the available devices. */
int device_open(struct device **device, const char *name, const struct device_options *options);

/* Frees the arena and all open slabs. Close streams, events and comms before. */
void device_close(struct device *device);
const char *device_name(const struct device *device);
enum device_kind device_kind_of(const struct device *device);

/* ---- memory ---- */

/* Opens the arena: `bytes` of device memory, aligned to 256. A device has at most one at a time. Closing
 * waits for queued work. */
int device_arena_open(struct device *device, dev_addr *base, int64_t bytes);
void device_arena_close(struct device *device);

/* Opens a slab: exactly `bytes` of host memory (never rounded up beyond a page), zero-filled, in huge pages
 * if the system has them. Copies reach SLAB_PINNED memory without staging. If pinning fails, ferry logs a
 * warning and the slab stays usable. On meta the address is reserved but has no memory: do not touch it.
 * Closing waits for queued work. */
enum slab_kind { SLAB_PINNED, SLAB_PAGEABLE };
int device_slab_open(struct device *device, void **base, int64_t bytes, enum slab_kind kind);

/* The same, with runs of the slab placed on NUMA nodes (host/slab.h: slab_run). The call does not keep
 * `runs`. meta ignores them. */
int device_slab_open_runs(struct device *device, void **base, int64_t bytes, enum slab_kind kind,
        const struct slab_run *runs, int run_count);
void device_slab_close(struct device *device, void *base);

/* 1 if slabs have real memory and ops compute; 0 on meta. */
int device_has_bytes(const struct device *device);

/* Device memory that arena and reserves may take together: the memory that is free now plus what this
 * device's arena and reserves hold. 0: not limited by the device. */
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

/* Later work on `stream` starts after the work that the event stands for now. No wait if the event was never
 * recorded. */
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
 * its text). The meta device adds `cost` to its clock and does not call fn. fn must not queue work. */
typedef int stream_fn(void *context);
int stream_call(struct stream *stream, stream_fn *fn, void *context, const struct op_cost *cost);

/* Queues what was queued under this name before, and returns 1: a device that `remembers` then adds its cost
 * without its ops. Else 0: queue the work, and then call stream_repeat_end, also after an error. The name is
 * a hash of all that decides the cost of the work, which is ops only. bases: where the memory begins that the
 * work uses, as many and in the same order under each name; what it uses behind each base is the same. Not
 * checked: addresses, races. */
int stream_repeat(struct stream *stream, uint64_t name, const dev_addr *bases, int base_count);
int stream_repeat_end(struct stream *stream);

/* On the meta device what follows takes so many times as long, until the next call. Elsewhere: nothing. */
void stream_times(struct stream *stream, double times);

/* Marks these bytes as unused from here on in stream order. Costs nothing, but a device with `poison`
 * overwrites them so that a late read shows. */
int stream_discard(struct stream *stream, dev_addr base, int64_t bytes);

/* Work queued on the stream so far, on a virtual clock: its time alone on the machine, and the time of its
 * bytes on the host's memory bus. 0 on other devices. */
struct stream_work {
	int64_t alone_ns, bus_ns;
};
void stream_get_work(const struct stream *stream, struct stream_work *work);

/* Writes the time when this point of the stream is reached, in nanoseconds of the device's clock (virtual
 * time on meta). *at_ns must stay valid. It is written when a sync that waits for this point returns: the
 * host reads a GPU's times, so queued work must not rely on it. It means nothing after an error of the
 * device. */
int stream_stamp(struct stream *stream, int64_t *at_ns);

/* ---- collectives: in place, over the ranks of `comm`, on the stream given ---- */

/* All ranks of the world open their groups at the same time, each rank its own group. cuda: all groups must
 * have the same stride and size. */
int comm_open_group(struct comm **comm, struct device *device, const struct comm_group *group);
int comm_open(struct comm **comm, struct device *device, int rank, int world_size); /* the whole world */

/* Finds how collectives of this group would send on this device. */
void device_get_links(const struct device *device, struct comm_links *links, const struct comm_group *group);
void comm_close(struct comm *comm);
int comm_rank(const struct comm *comm);
int comm_world_size(const struct comm *comm); /* ranks that joined */

/* buffer holds world_size shards of shard_count elements. On entry shard `rank` is filled; afterwards all
 * are. */
int comm_all_gather(
        struct comm *comm, struct stream *stream, dev_addr buffer, int64_t shard_count, enum dtype dtype);
/* On entry all shards are filled; afterwards shard `rank` holds the sum over ranks, and the others are
 * undefined. */
int comm_reduce_scatter(
        struct comm *comm, struct stream *stream, dev_addr buffer, int64_t shard_count, enum dtype dtype);
int comm_all_reduce(
        struct comm *comm, struct stream *stream, dev_addr buffer, int64_t count, enum dtype dtype);
int comm_broadcast(
        struct comm *comm, struct stream *stream, dev_addr buffer, int64_t count, enum dtype dtype, int root);

/* Sums doubles over ranks on the host, blocking; for counts and error codes. meta assumes that every rank
 * has the same values. */
int comm_sum_host(struct comm *comm, double *values, int count);

/* ---- statistics ---- */

struct device_stats {
	int64_t arena_bytes;         /* size of the arena */
	int64_t arena_touched_bytes; /* end of the furthest bytes that work read or wrote, from the arena's
	                                base, since it was opened; discards do not count */
	int64_t reserve_bytes;       /* reserves of device_reserve_list that are allocated */
	int64_t slab_bytes, slab_pinned_bytes;           /* now */
	int64_t slab_peak_bytes, slab_pinned_peak_bytes; /* most so far */
	int64_t copied_in_bytes, copied_out_bytes;       /* since open */
	/* Bytes that this rank's collectives sent within its node and to other nodes, since open. host counts
	 * messages; other devices use the arithmetic of device/comm_cost.h. */
	int64_t sent_node_bytes, sent_network_bytes;
	double flops;            /* of ops, since open */
	int64_t op_count;        /* ops since open, and the bytes of device memory that they read and */
	double op_bytes;         /* wrote at least; on a virtual clock, 0 on other devices */
	double host_memory_rate; /* host memory bandwidth on a virtual clock, bytes/s; 0 on other devices */
	int64_t busy_ns[QUEUE_COUNT]; /* time in work, per queue, since open */
	int64_t wait_ns[QUEUE_COUNT]; /* how long the compute stream waited for events of that queue, since
	                                 open */
	int64_t now_ns;               /* the device's clock (virtual on meta: the latest stream) */
};
/* Exact after device_sync while nothing is queued. */
void device_get_stats(const struct device *device, struct device_stats *stats);

/* What holds a GPU's clocks below their most; names for people. */
#define DEVICE_SLOW_LIST(X)                                                                                  \
	X(POWER, "power limit")                                                                              \
	X(HEAT, "heat")                                                                                      \
	X(HARDWARE, "hardware protection")                                                                   \
	X(BRAKE, "power brake")                                                                              \
	X(SET, "clocks set lower")                                                                           \
	X(SYNC, "sync boost")
enum device_slow {
#define DEVICE_SLOW_ENUM(NAME, text) DEVICE_SLOW_##NAME,
	DEVICE_SLOW_LIST(DEVICE_SLOW_ENUM)
#undef DEVICE_SLOW_ENUM
	        DEVICE_SLOW_COUNT
};
const char *device_slow_name(enum device_slow slow);

/* A GPU's sensors since the last call: means of the clocks and the power, the highest temperature, and a bit
 * for each enum device_slow that was seen. Numbers are 0 if unknown. */
struct device_condition {
	double sm_mhz, memory_mhz, watts, celsius;
	unsigned slowed;
};

/* Returns 1, or 0 where there are no sensors: on host and meta, and without NVIDIA's management library. The
 * first call starts a thread that reads them a few times a second. */
int device_get_condition(struct device *device, struct device_condition *condition);

#endif
