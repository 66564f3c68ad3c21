/* The functions that a backend supplies. device/device.c checks every call before it reaches the backend.
 *
 * Backend objects embed the public ones as their first member. Queued work of every kind is one struct work,
 * and the backend copies it. Only backends and device.c include this header.
 */
#ifndef FERRY_DEVICE_BACKEND_H
#define FERRY_DEVICE_BACKEND_H

#include "device/comm_cost.h"
#include "device/device.h"
#include "device/op.h"
#include "device/race.h"

enum work_kind {
	WORK_OP,
	WORK_COPY_IN,
	WORK_COPY_OUT,
	WORK_CALL,
	WORK_DISCARD,
	WORK_STAMP,
	WORK_ALL_GATHER,
	WORK_REDUCE_SCATTER,
	WORK_ALL_REDUCE,
	WORK_BROADCAST,
	WORK_KIND_COUNT
};

/* One piece of queued work. */
struct work {
	enum work_kind kind;
	int64_t touched_bytes; /* end of the furthest bytes that it reads or writes, from the arena's base */
	union {
		struct op op;
		struct {
			dev_addr dst;
			const void *src;
			int64_t bytes;
		} copy_in;
		struct {
			void *dst;
			dev_addr src;
			int64_t bytes;
		} copy_out;
		struct {
			stream_fn *fn;
			void *context;
			struct op_cost cost;
		} call;
		struct {
			dev_addr base;
			int64_t bytes;
		} discard;
		int64_t *at_ns; /* stamp */
		struct {
			struct comm *comm;
			dev_addr buffer;
			int64_t bytes; /* of the whole buffer, all shards */
			enum dtype dtype;
			int root;
		} collective;
	};
};
const char *work_name(const struct work *work); /* for an op, the name of the op; static */

/* The bytes that a collective sends. */
void work_traffic(struct comm_traffic *traffic, const struct work *work);

struct device_slab;

struct backend {
	enum device_kind kind;
	int (*open)(struct device **device, const struct device_options *options);
	void (*close)(struct device *device);
	int (*arena_open)(struct device *device, dev_addr *base, int64_t bytes);
	void (*arena_close)(struct device *device);
	int (*slab_open)(struct device *device, struct device_slab *slab);
	void (*slab_close)(struct device *device, struct device_slab *slab);
	int (*stream_open)(struct stream **stream, struct device *device, enum queue_kind queue);
	void (*stream_close)(struct stream *stream);
	int (*stream_sync)(struct stream *stream);
	int (*event_open)(struct event **event, struct device *device);
	void (*event_close)(struct event *event);
	int (*event_record)(struct event *event, struct stream *stream);
	int (*stream_wait)(struct stream *stream, struct event *event);
	int (*event_sync)(struct event *event);
	int (*queue)(struct stream *stream, const struct work *work);
	int (*repeat)(struct stream *stream, uint64_t name, const dev_addr *bases,
	        int base_count); /* NULL: remembers nothing */
	int (*repeat_end)(struct stream *stream);
	int (*comm_open)(struct comm **comm, struct device *device, const struct comm_group *group);
	void (*comm_close)(struct comm *comm);
	int (*sum_host)(struct comm *comm, double *values, int count);

	int64_t (*free_bytes)(const struct device *device); /* 0: not limited */

	/* Fills copied bytes, flops, times, arena_touched_bytes and reserve_bytes. */
	void (*get_stats)(const struct device *device, struct device_stats *stats);

	int (*get_condition)(
	        struct device *device, struct device_condition *condition); /* NULL: no sensors */
};

/* One slab. device.c fills bytes, kind and runs; the backend fills the rest. */
struct device_slab {
	void *base;
	int64_t bytes;
	enum slab_kind kind;
	int64_t pinned_bytes;
	int is_driver_memory;        /* cuda: cudaHostAlloc allocated it */
	const struct slab_run *runs; /* for slab_open */
	int run_count;
};

/* The backend allocates it zeroed and sets comm_algorithm. device.c keeps the other fields. */
struct device {
	const struct backend *backend;
	dev_addr arena_base;
	int64_t arena_bytes; /* 0: no arena is open */
	struct device_slab *slabs;
	int slab_count, ranks_per_node;
	enum comm_algorithm comm_algorithm; /* set when the backend opens */
	int64_t slab_bytes, slab_pinned_bytes, slab_peak_bytes, slab_pinned_peak_bytes;
	struct stream *streams;
	struct race *race; /* NULL: check_races is off */
};
struct stream {
	struct device *device;
	enum queue_kind queue;
	struct stream *next;     /* of the device's open streams */
	struct stream_work work; /* kept by backends with a virtual clock */
	double times;            /* stream_times; 0: 1 */
	int race_stream;
};
struct event {
	struct device *device;
	struct race_clock race_clock;
};
struct comm {
	struct device *device;
	int rank, world_size;
	struct comm_links links;
};

/* Returns ERR_RANGE with the call's name if the devices differ. */
int device_check_same(const struct device *a, const struct device *b, const char *call);

/* Registers a backend under the name of its kind; called by the program's start-up (cli/, tests), before
 * device_open. "auto" takes the first registered that opens. Registering one twice changes nothing. Not
 * thread-safe. */
void device_register(const struct backend *backend);
extern const struct backend backend_host, backend_meta, backend_cuda;

#endif
