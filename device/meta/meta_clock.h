/* The meta device's clock: streams of work that share a machine.
 *
 * Mental model. Nothing happens when work is queued. A sync lets time pass until what it waits for is done:
 * from one moment at which a piece of work ends to the next, every stream's first piece goes on at some rate.
 * The rate is 1, and the piece takes what it takes alone, unless those that run at once want more of a shared
 * resource than there is; then they slow down alike until it suffices, and what needs none of that resource
 * goes on as before. So copies in and out and the optimizer of the CPU share the host's memory bus, copies
 * both ways what the GPU's link carries, and where the host computes, products and updates its cores.
 *
 * Times are whole nanoseconds. A piece never takes less than alone, and all that crossed a resource in a span
 * of time is never more than it carries in that span (but for rounding in doubles): a bound made of either
 * holds.
 */
#ifndef FERRY_DEVICE_META_META_CLOCK_H
#define FERRY_DEVICE_META_META_CLOCK_H

#include "device/backend.h"

enum meta_shared { META_BUS, META_CORES, META_COPIES, META_SHARED_COUNT };

/* Work: how long alone, and which part of each resource it wants meanwhile (0 .. 1). */
struct meta_load {
	int64_t alone_ns;
	double share[META_SHARED_COUNT];
};

struct meta_item;
struct meta_stream {
	struct stream base;
	struct meta_stream *next; /* of the clock's, open ones or closed ones */
	struct meta_item *items;
	int64_t first, count, cap;        /* items[first .. count) are still to be done */
	int64_t queued_count, done_count; /* ever */
	int64_t marked_count;             /* queued_count of the last event that was recorded here */
	double rate;                      /* of the first piece, now */
};

/* Zeroed. */
struct meta_clock {
	struct meta_stream *streams, *closed; /* events outlive streams */
	int64_t now_ns;
	int64_t busy_ns[QUEUE_COUNT]; /* time in work, whatever its rate */
	int64_t wait_ns[QUEUE_COUNT]; /* of the compute stream, for work of that queue */
};

void meta_clock_add(struct meta_clock *clock, struct meta_stream *stream);

/* Its work is done first; the memory stays until meta_clock_close, for events that were recorded on it. */
void meta_clock_remove(struct meta_clock *clock, struct meta_stream *stream);
void meta_clock_close(struct meta_clock *clock);

/* ERR_NOMEM. A wait is for the first `count` items of `target`. */
int meta_clock_work(struct meta_stream *stream, const struct meta_load *load);
int meta_clock_wait(struct meta_stream *stream, struct meta_stream *target, int64_t count);
int meta_clock_stamp(struct meta_stream *stream, int64_t *at_ns);

/* Lets time pass until the stream's first `count` items are done. */
void meta_clock_run(struct meta_clock *clock, const struct meta_stream *stream, int64_t count);

#endif
