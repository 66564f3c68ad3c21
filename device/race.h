/* Are any two pieces of work that use the same bytes, one of them writing, ordered?
 *
 * Mental model. Work of a stream is numbered; a vector clock says, per stream, up to which number all work is
 * known to be done. Each stream has one, for what comes before the work that it is given next: its own work,
 * what the events it waited for stood for, and what the owning thread had synced with. For every byte that
 * was used, a map of intervals keeps the last writer and, per stream, the last reader since. New work whose
 * stream's clock does not cover one of those conflicts. All of it is decided when work is queued, so the
 * answer depends on the program and never on timing (Lamport 1978; Flanagan and Freund, "FastTrack", 2009,
 * with intervals for variables).
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

/* One of the two that conflict. name is a static string; number counts the stream's work from 1. */
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

/* NULL and ERR_NOMEM's text when out of memory. */
struct race *race_open(void);
void race_close(struct race *race);

/* Gives a stream a number in [0, RACE_STREAMS_MAX); -1 when there are too many. Closing means that the owning
 * thread waited for its work. */
int race_stream_open(struct race *race);
void race_stream_close(struct race *race, int stream);

/* What an event that is recorded now stands for, and a wait for it. A zero clock stands for nothing. */
void race_record(const struct race *race, struct race_clock *event, int stream);
void race_wait(struct race *race, int stream, const struct race_clock *event);

/* The owning thread waited for an event, or for all work of a stream. */
void race_sync_event(struct race *race, const struct race_clock *event);
void race_sync_stream(struct race *race, int stream);

/* Work with these accesses is about to be queued. 1 and *conflict when it races with earlier work (it is then
 * not taken note of), 0, or ERR_NOMEM. */
int race_work(struct race *race, struct race_conflict *conflict, int stream, const char *name,
        const struct op_access *list, int count);

/* The memory is given back; whoever gets the same addresses next has no history. */
void race_forget(struct race *race, uint64_t begin, int64_t bytes);

/* Intervals now kept; those that all streams are ordered after go from time to time. */
int race_interval_count(const struct race *race);

#endif
