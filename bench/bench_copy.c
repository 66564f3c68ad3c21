/* Measures copies between host and device by direction, memory and size. */
#include "bench/rig.h"

#include "base/err.h"
#include "host/pool.h"

#include <string.h>

/* Measures each way alone and both at once, with pinned and pageable memory, by size. Both at once start
 * after one event and end when the later one ends. */

enum { ROUNDS_MAX = 32, SIZES_MAX = 8, COPIES_MAX = 64 };
enum direction { DIRECTION_IN, DIRECTION_OUT, DIRECTION_BOTH, DIRECTION_COUNT };

static const char *const direction_names[] = {"h2d", "d2h", "both"};

struct copies {
	struct device *device;
	struct stream *in, *out, *start;
	struct event *event;
	dev_addr arena;
	char *slab; /* one half for each direction, like the arena */
	int64_t half_bytes;
	int rounds;
};

static int copies_open(
        struct copies *c, const struct bench_args *args, struct pool *pool, int64_t most_bytes, int rounds)
{
	int rc = bench_device_open(&c->device, args, pool);

	c->half_bytes = most_bytes;
	c->rounds = rounds;
	if (!rc)
		rc = device_arena_open(c->device, &c->arena, 2 * most_bytes);
	if (!rc)
		rc = stream_open(&c->in, c->device, QUEUE_H2D);
	if (!rc)
		rc = stream_open(&c->out, c->device, QUEUE_D2H);
	if (!rc)
		rc = stream_open(&c->start, c->device, QUEUE_COMPUTE);
	return rc ? rc : event_open(&c->event, c->device);
}

static void copies_close(struct copies *c)
{
	event_close(c->event);
	stream_close(c->in);
	stream_close(c->out);
	stream_close(c->start);
	device_close(c->device);
}

static int slab_fill(struct copies *c, enum slab_kind kind)
{
	uint64_t random = 1;
	void *base = NULL;
	int rc = device_slab_open(c->device, &base, 2 * c->half_bytes, kind);

	c->slab = base;
	if (rc || !device_has_bytes(c->device))
		return rc;
	for (int64_t i = 0; i < 2 * c->half_bytes / 8; i++) {
		random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		memcpy(c->slab + 8 * i, &random, 8);
	}
	rc = stream_copy_in(c->in, c->arena, c->slab, 2 * c->half_bytes);
	return rc ? rc : stream_sync(c->in);
}

/* Queues `count` copies through their half of slab and arena, again from its begin after its end. */
static int one_way(struct copies *c, enum direction d, int64_t bytes, int count)
{
	int64_t first = d == DIRECTION_IN ? 0 : c->half_bytes, places = c->half_bytes / bytes;
	int rc = 0;

	for (int i = 0; i < count && !rc; i++) {
		int64_t at = first + i % places * bytes;

		rc = d == DIRECTION_IN ? stream_copy_in(c->in, dev_at(c->arena, at), c->slab + at, bytes)
		                       : stream_copy_out(c->out, c->slab + at, dev_at(c->arena, at), bytes);
	}
	return rc;
}

/* Seconds from the common start to the end of the later direction. */
static int copies_time(struct copies *c, double *seconds, enum direction d, int64_t bytes, int count)
{
	struct stream *streams[] = {c->in, c->out};
	int64_t begin_ns = 0, end_ns[2] = {0, 0};
	int rc = stream_stamp(c->start, &begin_ns);

	if (!rc)
		rc = event_record(c->event, c->start);
	for (int i = 0; i < 2 && !rc; i++)
		rc = stream_wait(streams[i], c->event);
	for (int i = 0; i < 2 && !rc; i++) {
		if (d != DIRECTION_BOTH && d != (enum direction)i)
			continue;
		rc = one_way(c, (enum direction)i, bytes, count);
		if (!rc)
			rc = stream_stamp(streams[i], &end_ns[i]);
	}
	if (rc) {
		device_sync(c->device); /* the stream still writes the stamps */
		return rc;
	}
	rc = device_sync(c->device);
	*seconds = (double)((end_ns[0] > end_ns[1] ? end_ns[0] : end_ns[1]) - begin_ns) * 1e-9;
	return rc;
}

static int row_measure(json_t *rows, struct copies *c, enum slab_kind kind, enum direction d, int64_t bytes)
{
	double seconds[ROUNDS_MAX];
	int64_t moved = bytes * (d == DIRECTION_BOTH ? 2 : 1);
	int count = (int)(c->half_bytes / bytes), rc = 0;

	if (count > COPIES_MAX)
		count = COPIES_MAX;
	for (int i = -1; i < c->rounds && !rc; i++) { /* the first is a warm-up */
		rc = copies_time(c, &seconds[i < 0 ? 0 : i], d, bytes, count);
		if (!rc && !(seconds[i < 0 ? 0 : i] > 0))
			rc = err_set(ERR_INTERNAL, "copies of %lld bytes took no time", (long long)bytes);
	}
	if (!rc && json_array_append_new(
	                   rows, json_pack("{s:s, s:s, s:I, s:f, s:f}", "memory",
	                                 kind == SLAB_PINNED ? "pinned" : "pageable", "direction",
	                                 direction_names[d], "bytes", (json_int_t)bytes, "gbps",
	                                 (double)moved * count / bench_median(seconds, c->rounds) * 1e-9,
	                                 "us", bench_median(seconds, c->rounds) / count * 1e6)))
		rc = err_set(ERR_NOMEM, "out of memory for a benchmark's result");
	return rc;
}

static int kind_measure(json_t *rows, struct copies *c, enum slab_kind kind, int64_t *pinned_bytes)
{
	struct device_stats stats;
	int rc = slab_fill(c, kind);

	device_get_stats(c->device, &stats);
	if (kind == SLAB_PINNED)
		*pinned_bytes = stats.slab_pinned_bytes;
	for (int64_t bytes = c->half_bytes, n = 0; bytes >= 4096 && n < SIZES_MAX && !rc; bytes /= 16, n++)
		for (int d = 0; d < DIRECTION_COUNT && !rc; d++)
			rc = row_measure(rows, c, kind, (enum direction)d, bytes);
	device_slab_close(c->device, c->slab);
	return rc;
}

int bench_copy(json_t **result, const struct bench_args *args)
{
	int64_t most_bytes = args->count, pinned_bytes = 0;
	json_t *rows = json_array();
	struct pool *pool = NULL;
	struct copies c = {0};
	enum device_kind device = DEVICE_HOST;
	int rc = pool_open(&pool, args->threads), is_host;

	if (!rc)
		rc = bench_device_find(&device, args, pool);
	is_host = !rc && device_facts_of(device)->is_host;
	if (!most_bytes)
		most_bytes = INT64_C(1) << (is_host ? 26 : 28);
	if (!rc && (most_bytes < 4096 || most_bytes > INT64_C(1) << 33))
		rc = err_set(ERR_INPUT,
		        "copies of %lld bytes are not supported; set count to 4096 bytes to 8 GiB",
		        (long long)most_bytes);
	most_bytes = most_bytes / 4096 * 4096;
	if (!rc)
		rc = copies_open(&c, args, pool, most_bytes, is_host ? 5 : 9);
	for (int kind = SLAB_PINNED; kind <= SLAB_PAGEABLE && !rc; kind++)
		rc = kind_measure(rows, &c, (enum slab_kind)kind, &pinned_bytes);
	if (!rc)
		*result = json_pack("{s:s, s:I, s:i, s:O}", "device", device_name(c.device), "pinned_bytes",
		        (json_int_t)pinned_bytes, "rounds", c.rounds, "copies", rows);
	if (!rc && !*result)
		rc = err_set(ERR_NOMEM, "out of memory for a benchmark's result");
	copies_close(&c);
	pool_close(pool);
	json_decref(rows);
	return rc;
}
