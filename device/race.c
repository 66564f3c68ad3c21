/* Vector clocks of streams, and a map from bytes to their latest uses. */
#include "device/race.h"

#include "base/err.h"
#include "base/mem.h"
#include "device/op.h"

#include <string.h>

/* Bytes with one history. Intervals do not overlap. Bytes outside all intervals were never used, or sweep has
 * dropped their history. */
struct interval {
	uint64_t begin, end;
	uint32_t write_number; /* 0: no writer */
	int write_stream;
	uint32_t readers; /* bit s: stream s has read since the last write */
	const char *write_name;
	uint32_t read_number[RACE_STREAMS_MAX];
	const char *read_name[RACE_STREAMS_MAX];
	struct interval *next_free;
};

enum { SWEEP_START = 1024 };

struct race {
	struct race_clock stream[RACE_STREAMS_MAX], host;
	uint32_t open_streams;  /* bits */
	struct interval **list; /* by address */
	int count, capacity, sweep_at;
	struct interval *free_list;
};

static void join(struct race_clock *into, const struct race_clock *other)
{
	for (int s = 0; s < RACE_STREAMS_MAX; s++)
		if (into->at[s] < other->at[s])
			into->at[s] = other->at[s];
}

struct race *race_open(void)
{
	struct race *race = mem_alloc(1, sizeof(*race));

	if (race)
		race->sweep_at = SWEEP_START;
	return race;
}

void race_close(struct race *race)
{
	if (!race)
		return;
	for (int i = 0; i < race->count; i++)
		mem_free(race->list[i]);
	while (race->free_list) {
		struct interval *v = race->free_list;

		race->free_list = v->next_free;
		mem_free(v);
	}
	mem_free(race->list);
	mem_free(race);
}

int race_stream_open(struct race *race)
{
	for (int s = 0; s < RACE_STREAMS_MAX; s++) {
		if (race->open_streams >> s & 1)
			continue;
		race->open_streams |= 1u << s;
		join(&race->stream[s], &race->host);
		return s;
	}
	return -1;
}

void race_stream_close(struct race *race, int stream)
{
	join(&race->host, &race->stream[stream]);
	race->open_streams &= ~(1u << stream);
}

void race_record(const struct race *race, struct race_clock *event, int stream)
{
	*event = race->stream[stream];
}

void race_wait(struct race *race, int stream, const struct race_clock *event)
{
	join(&race->stream[stream], event);
}

void race_sync_event(struct race *race, const struct race_clock *event)
{
	join(&race->host, event);
}

void race_sync_stream(struct race *race, int stream)
{
	join(&race->host, &race->stream[stream]);
}

/* ---- the map ---- */

/* Index of the first interval that ends after `address`. */
static int find(const struct race *race, uint64_t address)
{
	int low = 0, high = race->count;

	while (low < high) {
		int middle = (low + high) / 2;

		if (race->list[middle]->end > address)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static void drop(struct race *race, int first, int count)
{
	if (!count)
		return; /* there may be no list yet */
	for (int i = first; i < first + count; i++) {
		race->list[i]->next_free = race->free_list;
		race->free_list = race->list[i];
	}
	race->count -= count;
	memmove(race->list + first, race->list + first + count,
	        (size_t)(race->count - first) * sizeof(*race->list));
}

/* A new interval at index `at`, with the history of `like` if given; NULL if out of memory. */
static struct interval *insert(
        struct race *race, int at, uint64_t begin, uint64_t end, const struct interval *like)
{
	struct interval *v = race->free_list;

	if (race->count == race->capacity) {
		int capacity = race->capacity ? 2 * race->capacity : 256;
		void *list = mem_resize(race->list, (size_t)capacity, sizeof(*race->list));

		if (!list)
			return NULL;
		race->list = list;
		race->capacity = capacity;
	}
	if (v)
		race->free_list = v->next_free;
	else
		v = mem_alloc(1, sizeof(*v));
	if (!v)
		return NULL;
	if (like)
		*v = *like;
	else
		memset(v, 0, sizeof(*v));
	v->begin = begin;
	v->end = end;
	memmove(race->list + at + 1, race->list + at, (size_t)(race->count - at) * sizeof(*race->list));
	race->list[at] = v;
	race->count++;
	return v;
}

/* Splits the interval that covers `address`, if any. Returns the index of the first interval that begins at
 * or after it, or -1 if out of memory. */
static int cut(struct race *race, uint64_t address)
{
	int i = find(race, address);

	if (i == race->count || race->list[i]->begin >= address)
		return i;
	if (!insert(race, i + 1, address, race->list[i]->end, race->list[i]))
		return -1;
	race->list[i]->end = address;
	return i + 1;
}

/* Drops intervals that every open stream and every later stream is ordered after. */
static void sweep(struct race *race)
{
	struct race_clock all;
	int kept = 0;

	memset(&all, 0xff, sizeof(all));
	if (!race->open_streams)
		all = race->host;
	for (int t = 0; t < RACE_STREAMS_MAX; t++)
		for (int s = 0; s < RACE_STREAMS_MAX; s++) {
			uint32_t at = race->stream[t].at[s];

			at = at < race->host.at[s] ? race->host.at[s] : at;
			if (race->open_streams >> t & 1 && all.at[s] > at)
				all.at[s] = at;
		}
	for (int i = 0; i < race->count; i++) {
		struct interval *v = race->list[i];
		int is_old = v->write_number <= all.at[v->write_stream];

		for (int s = 0; s < RACE_STREAMS_MAX && is_old; s++)
			is_old = !(v->readers >> s & 1) || v->read_number[s] <= all.at[s];
		if (is_old) {
			v->next_free = race->free_list;
			race->free_list = v;
		} else {
			race->list[kept++] = v;
		}
	}
	race->count = kept;
	race->sweep_at = 2 * kept < SWEEP_START ? SWEEP_START : 2 * kept;
}

void race_forget(struct race *race, uint64_t begin, int64_t bytes)
{
	int first = find(race, begin), last = first;

	while (last < race->count && race->list[last]->begin < begin + (uint64_t)bytes)
		last++;
	drop(race, first, last - first);
}

int race_interval_count(const struct race *race)
{
	return race->count;
}

/* ---- checking ---- */

/* Finds a use of v that conflicts with `later` and is not ordered before it. */
static int conflicts(struct race_use *earlier, const struct interval *v, const struct race_clock *clock,
        const struct race_use *later)
{
	if (v->write_number > clock->at[v->write_stream]) {
		*earlier = (struct race_use){v->write_name, v->write_stream, v->write_number, 1};
		return 1;
	}
	for (int s = 0; s < RACE_STREAMS_MAX && later->writes; s++) {
		if (!(v->readers >> s & 1) || v->read_number[s] <= clock->at[s])
			continue;
		*earlier = (struct race_use){v->read_name[s], s, v->read_number[s], 0};
		return 1;
	}
	return 0;
}

static int check(const struct race *race, struct race_conflict *conflict, const struct race_use *later,
        uint64_t begin, uint64_t end)
{
	for (int i = find(race, begin); i < race->count && race->list[i]->begin < end; i++) {
		const struct interval *v = race->list[i];

		if (!conflicts(&conflict->earlier, v, &race->stream[later->stream], later))
			continue;
		conflict->later = *later;
		conflict->begin = v->begin < begin ? begin : v->begin;
		conflict->end = v->end > end ? end : v->end;
		return 1;
	}
	return 0;
}

static int note_write(struct race *race, const struct race_use *use, uint64_t begin, uint64_t end)
{
	int first = cut(race, begin), last = first < 0 ? -1 : cut(race, end);
	struct interval *v;

	if (last < 0)
		return ERR_NOMEM;
	if (last > first)
		drop(race, first + 1, last - first - 1);
	else if (!insert(race, first, begin, end, NULL))
		return ERR_NOMEM;
	v = race->list[first];
	v->begin = begin;
	v->end = end;
	v->readers = 0;
	v->write_name = use->name;
	v->write_stream = use->stream;
	v->write_number = use->number;
	return 0;
}

static int note_read(struct race *race, const struct race_use *use, uint64_t begin, uint64_t end)
{
	int i = cut(race, begin);

	if (i < 0 || cut(race, end) < 0)
		return ERR_NOMEM;
	for (uint64_t at = begin; at < end; i++) {
		int is_gap = i == race->count || race->list[i]->begin > at;
		uint64_t gap_end =
		        i == race->count || race->list[i]->begin > end ? end : race->list[i]->begin;
		struct interval *v = is_gap ? insert(race, i, at, gap_end, NULL) : race->list[i];

		if (!v)
			return ERR_NOMEM;
		v->readers |= 1u << use->stream;
		v->read_number[use->stream] = use->number;
		v->read_name[use->stream] = use->name;
		at = v->end;
	}
	return 0;
}

int race_work(struct race *race, struct race_conflict *conflict, int stream, const char *name,
        const struct op_access *list, int count)
{
	struct race_clock *clock = &race->stream[stream];
	struct race_use use = {name, stream, clock->at[stream] + 1, 0};
	int rc = 0;

	join(clock, &race->host);
	if (race->count > race->sweep_at)
		sweep(race);
	for (int i = 0; i < count; i++) {
		uint64_t begin = list[i].base.value, end = begin + (uint64_t)list[i].bytes;

		use.writes = list[i].writes;
		if (check(race, conflict, &use, begin, end))
			return 1;
	}
	clock->at[stream] = use.number;
	for (int i = 0; i < count && !rc; i++) {
		uint64_t begin = list[i].base.value, end = begin + (uint64_t)list[i].bytes;

		rc = list[i].writes ? note_write(race, &use, begin, end) : note_read(race, &use, begin, end);
	}
	return rc;
}
