/* Internals of the CUDA backend: one GPU, a cudaStream per stream, a cudaEvent per event.
 *
 * Mental model. The owning thread passes queued work to CUDA at once and keeps none of it. CUDA runs a stream
 * in order, and events order streams. Three things need more:
 *
 *   calls   host functions run on a thread of the driver, or of ours, at their place in the stream
 *           (cuda_call.c, cuda_caller.c)
 *   clock   timing events lie between pieces of work; their times are read after a sync has shown
 *           that they were reached (cuda_clock.c)
 *   errors  the device keeps the first error of a call, or of work that a later call reports;
 *           nothing is queued after it, and closing frees all that it can
 *
 * All calls come from the owning thread, except that host functions set the device's error.
 */
#ifndef FERRY_GPU_CUDA_DEVICE_H
#define FERRY_GPU_CUDA_DEVICE_H

#include "base/err.h"
#include "device/backend.h"
#include "gpu/cuda.h"
#include "gpu/cuda_matmul.h"

#include <pthread.h>
#include <stdatomic.h>

/* How the stream spent the time from the mark before to this mark. */
enum cuda_span { CUDA_SPAN_IDLE, CUDA_SPAN_BUSY, CUDA_SPAN_WAIT };

/* A timing event that was recorded and not yet read. */
struct cuda_mark {
	cudaEvent_t event;
	int64_t *at_ns; /* a stamp's place; NULL: a border between spans */
	enum cuda_span span;
	enum queue_kind queue; /* CUDA_SPAN_WAIT: of the event waited for */
};

/* The marks of a stream that were not read yet, oldest first: mark i is at i % capacity. */
struct cuda_marks {
	struct cuda_mark *ring;
	int64_t capacity, first, end;
	int64_t border_ns; /* of the last border that was read */
	int in_work;       /* work was queued since the last border */
	int at_border; /* nothing was queued since the last border, and the stream was not idle before it */
};

struct cuda_clock {
	cudaStream_t stream; /* its own, for reading the time */
	cudaEvent_t base;    /* an event; its time is base_ns */
	int64_t base_ns;
	int64_t moved_at_ns; /* of the host's clock: when the base was recorded */
	cudaEvent_t *spare;
	int spare_count, spare_capacity;
};

/* With `poison`, the value of every unused byte: NaN in every floating type, -1 as an index. */
enum { CUDA_POISON = 0xff };

struct cuda_call;
struct cuda_sensors;
struct cuda_caller;
struct cuda_bounce;

struct cuda_stream {
	struct stream base;
	struct cuda_launch launch;
	struct cuda_marks marks;
	struct cuda_call *calls;    /* the newest of a ring through ->next; NULL: none was made */
	struct cuda_caller *caller; /* NULL: the driver runs the calls, or none was made */
	const char *last_work;      /* name of the last queued work; static */
	int has_workspace;
	int is_matmul_ready;
	struct cuda_dnn *dnn;       /* NULL: attention runs on ferry's own kernels */
	struct cuda_bounce *bounce; /* NULL: no copy needed it so far */
};

struct cuda_device {
	struct device base;
	struct device_options options;
	struct cuda_launch launch; /* copied to each new stream */
	void *workspace;           /* of matrix products; one stream has it */
	int64_t workspace_bytes;
	int workspace_in_use;
	int calls_by_thread;            /* 1: cuda_caller.c runs host functions; 0: the driver */
	void *bounce_memory;            /* cuda_bounce.h; NULL: no pinning was refused, or this was too */
	unsigned bounce_taken;          /* bit i: a stream has share i */
	int said_refused, said_instead; /* 1: the warning about refused pinning was given, the note about its
	                                   replacement */
	struct cuda_clock clock;
	char name[128], pci_bus_id[32];
	struct cuda_sensors *sensors; /* NULL: nobody asked for them yet, or there are none */
	int looked_for_sensors;
	int64_t opened_at_ns;      /* of the host's clock */
	struct device_stats stats; /* the backend's part */
	pthread_mutex_t error_lock;
	atomic_int failed;
	struct err error; /* the first */
	atomic_llong
	        waiting_since_ns; /* of clock_now_ns, while the owning thread waits for the GPU; else 0 */
};

/* ---- errors ---- */

/* The device's first error, or 0. Any thread. */
int cuda_device_error(struct cuda_device *device);

/* rc < 0, with this thread's text, becomes the device's error unless it has one. Returns the device's. Any
 * thread. */
int cuda_device_fail(struct cuda_device *device, int rc);

/* ---- cuda_stream.c ---- */

int cuda_stream_open(struct stream **stream, struct device *device, enum queue_kind queue);
void cuda_stream_close(struct stream *stream);
int cuda_stream_sync(struct stream *stream);
int cuda_stream_queue(struct stream *stream, const struct work *work);
int cuda_event_open(struct event **event, struct device *device);
void cuda_event_close(struct event *event);
int cuda_event_record(struct event *event, struct stream *stream);
int cuda_stream_wait(struct stream *stream, struct event *event);
int cuda_event_sync(struct event *event);

/* ---- cuda_slab.c ---- */

/* Host memory is registered in pieces of this size from a slab's base, because one call for all would hold
 * the driver's lock for minutes and pin all or nothing. A copy must not cross from one piece to another: CUDA
 * looks up the first byte only and refuses ranges longer than its registration. If a machine registers
 * nothing (some virtual ones), cudaHostAlloc allocates the slab. If that fails too, copies go through a
 * pinned buffer (cuda_bounce.h). */
enum { CUDA_PIN_BYTES = 1 << 30 };

int cuda_slab_open(struct device *device, struct device_slab *slab);
void cuda_slab_close(struct device *device, struct device_slab *slab);

/* Returns how many of `bytes` at `host` one copy may take: up to the end of a registered piece. Sets
 * *is_pinned to 1 if they lie in one. */
int64_t cuda_slab_reach(int *is_pinned, const struct cuda_device *device, const void *host, int64_t bytes);

/* ---- cuda_call.c ---- */

/* Queues fn(context); its error becomes the device's. */
int cuda_call_queue(struct cuda_stream *stream, stream_fn *fn, void *context);

/* Queues a copy of `bytes` by the host. */
int cuda_call_queue_copy(struct cuda_stream *stream, void *to, const void *from, int64_t bytes);

/* After this none of the stream's calls runs or will run. Synchronise the stream first, with an error or
 * without. */
void cuda_call_close(struct cuda_stream *stream);

/* Waits for calls of this device that run now. After an error of CUDA a sync returns at once, while a host
 * function may still use memory that its caller is about to free. */
void cuda_call_drain(struct cuda_device *device);

/* ---- cuda_caller.c: host functions without cudaLaunchHostFunc ---- */

/* For drivers under which a running host function holds up other streams. Each stream with calls has a thread
 * and two words of pinned memory. The stream writes a number to the first when it comes to a call, and waits
 * until the second has it too. The thread polls the first word, runs the function and writes the second. It
 * makes no call of CUDA. */

/* Decides how the device calls, once, before it has streams: FERRY_CALLS=driver or thread, else by a trial of
 * some milliseconds. Returns 0, ERR_DEVICE, ERR_INPUT, ERR_UNSUPPORTED. */
int cuda_caller_choose(struct cuda_device *device);

/* Queues fn(context) at this place of the stream. Returns 0, ERR_DEVICE, ERR_NOMEM or ERR_UNSUPPORTED. */
int cuda_caller_queue(struct cuda_stream *stream, cudaHostFn_t fn, void *context);

/* Ends the thread; a call that was not reached never runs. NULL is allowed. */
void cuda_caller_close(struct cuda_caller *caller);

/* ---- cuda_clock.c ---- */

int cuda_clock_open(struct cuda_device *device);
void cuda_clock_close(struct cuda_device *device);

/* Record borders before work, before and after a wait, and on all streams before a sync of any stream. A
 * border recorded only after the wait for other streams would count their time as work of this one. Return 0,
 * ERR_DEVICE or ERR_NOMEM. */
int cuda_clock_before_work(struct cuda_stream *stream);
int cuda_clock_before_wait(struct cuda_stream *stream);
int cuda_clock_after_wait(struct cuda_stream *stream, enum queue_kind queue);
int cuda_clock_end_work(struct cuda_stream *stream); /* of one stream */
int cuda_clock_before_sync(struct cuda_device *device);
int cuda_clock_stamp(struct cuda_stream *stream, int64_t *at_ns);

/* Reads the marks of all open streams that were reached, and moves the base forward. */
int cuda_clock_read(struct cuda_device *device);
int cuda_clock_read_stream(struct cuda_stream *stream); /* of a stream that left the device */

/* Drops the marks of a stream that closes. */
void cuda_clock_forget(struct cuda_stream *stream);
int64_t cuda_clock_now_ns(struct cuda_device *device);

/* ---- cuda_comm.c ---- */

int cuda_comm_open(struct comm **comm, struct device *device, const struct comm_group *group);
void cuda_comm_close(struct comm *comm);
int cuda_comm_sum_host(struct comm *comm, double *values, int count);

/* Queues a collective (WORK_ALL_GATHER ... WORK_BROADCAST) on at->stream. */
int cuda_comm_queue(const struct cuda_launch *at, const struct work *work);

#endif
