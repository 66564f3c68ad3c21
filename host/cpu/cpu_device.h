/* Internals of the host backend: a stream is a thread with a ring of work, an event is a number in a stream.
 *
 * Mental model. Work on a stream is numbered from 1. A stream counts the work that is done. An event is a
 * stream and a number, so recording queues nothing, and a wait waits for a count. A count never decreases,
 * and stream objects live as long as their device, so an event may outlive the stream that it was recorded
 * on. Only the owning thread queues. Each stream's thread takes from its own ring.
 *
 * The device keeps the first error of any stream. After it, streams drop their work, but waits and counts go
 * on, so nothing hangs.
 */
#ifndef FERRY_HOST_CPU_CPU_DEVICE_H
#define FERRY_HOST_CPU_CPU_DEVICE_H

#include "base/err.h"
#include "device/backend.h"
#include "host/cpu/cpu.h"

#include <pthread.h>
#include <stdatomic.h>

/* One direction of the link between slabs and arena. Throttled copies take turns on it. */
struct cpu_lane {
	pthread_mutex_t lock;
	int64_t free_at_ns; /* when the bytes accepted so far have crossed */
};

enum cpu_direction { CPU_COPY_IN, CPU_COPY_OUT, CPU_DIRECTION_COUNT };

struct cpu_stream;

struct cpu_device {
	struct device base;
	struct device_options options;
	struct pool *pool, *own_pool; /* own_pool: NULL if the caller owns the pool */
	struct cpu_stream *made;      /* all streams, also closed ones; freed with the device */
	struct cpu_lane lanes[CPU_DIRECTION_COUNT];
	int64_t opened_at_ns;
	_Atomic int64_t sent_node_bytes, sent_network_bytes; /* by collectives */
	atomic_int failed;
	pthread_mutex_t error_lock;
	struct err error; /* the first */
};

struct cpu_item {
	struct cpu_stream *wait_stream; /* wait for work wait_ticket of this stream; NULL: `work` */
	int64_t wait_ticket;
	enum queue_kind wait_queue;
	int64_t delay_ns;
	struct work work;
};

/* Only the stream's thread writes these; any thread may read them. */
struct cpu_counters {
	_Atomic int64_t touched_bytes, copied_in_bytes, copied_out_bytes;
	_Atomic int64_t busy_ns[QUEUE_COUNT];
	_Atomic int64_t wait_ns[QUEUE_COUNT]; /* of a compute stream, for events of that queue */
	_Atomic double flops;
};

struct cpu_stream {
	struct stream base;
	struct cpu_stream *next_made;
	int is_open;
	pthread_t thread;
	int64_t work_count; /* pieces of work queued, without waits; for the owning thread */

	pthread_mutex_t lock; /* for all fields below; done and queued may be read without it */
	pthread_cond_t ready; /* the ring is no longer empty, or closing */
	pthread_cond_t progress;
	struct cpu_item *ring; /* item i is at i % capacity */
	int64_t capacity, taken;
	_Atomic int64_t queued;
	_Atomic int64_t done;
	int is_idle, is_closing, waiter_count;
	struct cpu_context context; /* for the stream's thread */
	struct cpu_counters counters;
};

int cpu_stream_open(struct stream **stream, struct device *device, enum queue_kind queue);
void cpu_stream_close(struct stream *stream);
int cpu_stream_sync(struct stream *stream);
int cpu_event_open(struct event **event, struct device *device);
void cpu_event_close(struct event *event);
int cpu_event_record(struct event *event, struct stream *stream);
int cpu_stream_wait(struct stream *stream, struct event *event);
int cpu_event_sync(struct event *event);
int cpu_stream_queue(struct stream *stream, const struct work *work);

/* Frees all streams; their threads must have ended. */
void cpu_stream_free_all(struct cpu_device *device);

/* Executes one piece of work on the stream's thread. */
int cpu_work_run(struct cpu_stream *stream, const struct work *work);

/* The device's first error, or 0. */
int cpu_device_error(struct cpu_device *device);

/* The delay before piece `index` of work on a queue, a pure function of its arguments: 0 to 200 us, mostly 0.
 */
int64_t cpu_delay_ns(uint64_t seed, enum queue_kind queue, int64_t index);

/* Writes 0x7ff9 to every aligned pair of bytes: NaN as F16, BF16, F32 and F64, and far out of range as an
 * index.
 */
void cpu_poison(void *base, int64_t bytes);

void cpu_sleep_until(int64_t at_ns);

int cpu_comm_open(struct comm **comm, struct device *device, const struct comm_group *group);
void cpu_comm_close(struct comm *comm);
int cpu_comm_sum_host(struct comm *comm, double *values, int count);
int cpu_comm_run(const struct work *work);

#endif
