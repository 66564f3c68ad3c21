/* A race checker: finds work that uses the same bytes as earlier work, one of them writing, without an order.
 *
 * Mental model. The work of a stream is numbered. A vector clock has one number per stream: all work up to
 * it is known to be done. Each stream has such a clock. It covers the stream's own work, the work behind the
 * events that it waited for, and the work that the owning thread had synced with. For every used byte, a map
 * of intervals keeps the last writer and, per stream, the last reader since. New work conflicts with one of
 * those if the clock of its stream does not cover it.
 *
 * The check runs when work is queued, so its answer depends on the program and never on timing (Lamport
 * 1978; Flanagan and Freund, "FastTrack", 2009, with intervals for variables).
 *
 * For tests: device_options.check_races. Owning thread only.
 */
#ifndef FERRY_DEVICE_RACE_H
#define FERRY_DEVICE_RACE_H

#include <stdint.h>

struct op_access; /* device/op.h */

enum { RACE_STREAMS_MAX = 16 };

struct race_clock {
	uint32_t at[RACE_STREAMS_MAX];
};

/* One side of a conflict. name is a static string; number counts the stream's work from 1. */
struct race_use {
	const char *name;
	int stream;
	uint32_t number;
	int writes;
};

struct race_conflict {
	struct race_use earlier, later;
	uint64_t begin, end; /* addresses that both use */
};

struct race;

/* NULL with the text of ERR_NOMEM if out of memory. */
struct race *race_open(void);
void race_close(struct race *race);

/* Returns a number in [0, RACE_STREAMS_MAX) for a new stream; -1 if there are too many. Close a stream only
 * after the owning thread waited for its work. */
int race_stream_open(struct race *race);
void race_stream_close(struct race *race, int stream);

/* Records in *event the work that an event of `stream` stands for now; race_wait waits for it. A zero clock
 * stands for no work. */
void race_record(const struct race *race, struct race_clock *event, int stream);
void race_wait(struct race *race, int stream, const struct race_clock *event);

/* The owning thread waited for an event, or for all work of a stream. */
void race_sync_event(struct race *race, const struct race_clock *event);
void race_sync_stream(struct race *race, int stream);

/* Call before work with these accesses is queued. Returns 1 and *conflict if it races with earlier work, and
 * then does not record it; else 0, or ERR_NOMEM. */
int race_work(struct race *race, struct race_conflict *conflict, int stream, const char *name,
        const struct op_access *list, int count);

/* The memory was freed: forgets all accesses to these addresses. */
void race_forget(struct race *race, uint64_t begin, int64_t bytes);

/* Number of intervals kept now. Intervals that all streams are ordered after are dropped from time to time.
 */
int race_interval_count(const struct race *race);

#endif
