/* The meta device's clock: streams of work that share a machine.
 *
 * Mental model. Queuing work takes no time. A sync lets time pass until the work that it waits for is done,
 * from the end of one piece of work to the next. Meanwhile the first piece of every stream progresses at
 * some rate. The rate is 1 unless the running pieces together need more of a shared resource than there is.
 * Then all pieces that use this resource slow down alike; the others go on as before. Copies in and out and
 * the CPU's optimizer share the host's memory bus. Beside the optimizer copies may lose more than that: its
 * cores come first. Copies in both directions share the GPU's link. If the host computes, products and
 * updates share its cores.
 *
 * Times are whole nanoseconds. A piece never takes less time than alone, and a resource never carries more
 * in a span of time than its rate allows (except for rounding in doubles). So bounds computed from times or
 * from rates hold.
 */
#ifndef FERRY_DEVICE_META_META_CLOCK_H
#define FERRY_DEVICE_META_META_CLOCK_H

#include "device/backend.h"

enum meta_shared { META_BUS, META_CORES, META_COPIES, META_SHARED_COUNT };

/* Work: its time alone, and the share of each resource that it uses meanwhile (0 .. 1). */
struct meta_load {
	int64_t alone_ns;
	double share[META_SHARED_COUNT];
	int slows;     /* 1: while it runs, others keep only their share `beside` */
	double beside; /* 0: all */
};

struct meta_item;
struct meta_stream {
	struct stream base;
	struct meta_stream *next; /* next in the clock's list of open or of closed streams */
	struct meta_item *items;
	int64_t first, count, cap;        /* items[first .. count) are pending */
	int64_t queued_count, done_count; /* ever */
	int64_t marked_count;             /* queued_count of the last event that was recorded here */
	double rate, limit;               /* of the first piece, now */
};

/* Start with all fields 0. */
struct meta_clock {
	struct meta_stream *streams, *closed; /* events outlive streams */
	int64_t now_ns;
	int64_t busy_ns[QUEUE_COUNT]; /* time in work, whatever its rate */
	int64_t wait_ns[QUEUE_COUNT]; /* of the compute stream, for work of that queue */
};

void meta_clock_add(struct meta_clock *clock, struct meta_stream *stream);

/* Finishes the stream's work first. The memory stays until meta_clock_close, for events that were recorded
 * on it. */
void meta_clock_remove(struct meta_clock *clock, struct meta_stream *stream);
void meta_clock_close(struct meta_clock *clock);

/* Return 0 or ERR_NOMEM. A wait ends when the first `count` items of `target` are done. */
int meta_clock_work(struct meta_stream *stream, const struct meta_load *load);
int meta_clock_wait(struct meta_stream *stream, struct meta_stream *target, int64_t count);
int meta_clock_stamp(struct meta_stream *stream, int64_t *at_ns);

/* Lets time pass until the stream's first `count` items are done. */
void meta_clock_run(struct meta_clock *clock, const struct meta_stream *stream, int64_t count);

#endif
