/* For the tests of devices: an open device with an arena, a pinned slab, a stream per queue and two events.
 */
#ifndef FERRY_TESTS_DEVICE_CHECK_H
#define FERRY_TESTS_DEVICE_CHECK_H

#include "check.h"

#include "base/err.h"
#include "device/backend.h"

struct world {
	struct device *device;
	struct stream *stream[QUEUE_COUNT];
	struct event *event[2];
	dev_addr arena;
	unsigned char *slab;
};

enum { ARENA_BYTES = 10 << 20, SLAB_BYTES = 8 << 20 };

static inline void world_close(struct world *w)
{
	for (int i = 0; i < 2; i++)
		event_close(w->event[i]);
	for (int q = 0; q < QUEUE_COUNT; q++)
		stream_close(w->stream[q]);
	device_close(w->device);
	*w = (struct world){0};
}

/* 0, or the first error. world_close works in any case. */
static inline int world_open_sized(
        struct world *w, const char *name, const struct device_options *options, int64_t arena_bytes)
{
	void *slab = NULL;
	int rc;

	*w = (struct world){0};
	rc = device_open(&w->device, name, options);
	if (!rc)
		rc = device_arena_open(w->device, &w->arena, arena_bytes);
	if (!rc)
		rc = device_slab_open(w->device, &slab, SLAB_BYTES, SLAB_PINNED);
	w->slab = slab;
	for (int q = 0; q < QUEUE_COUNT && !rc; q++)
		rc = stream_open(&w->stream[q], w->device, (enum queue_kind)q);
	for (int i = 0; i < 2 && !rc; i++)
		rc = event_open(&w->event[i], w->device);
	return rc;
}

static inline int world_open(struct world *w, const char *name, const struct device_options *options)
{
	return world_open_sized(w, name, options, ARENA_BYTES);
}

static inline struct device_stats stats_of(struct world *w)
{
	struct device_stats s;

	device_get_stats(w->device, &s);
	return s;
}

static inline struct op fill_op(dev_addr dst, int64_t bytes, uint8_t value)
{
	return (struct op){.kind = OP_FILL, .fill = {dst, bytes, value}};
}

static inline struct op copy_op(dev_addr dst, dev_addr src, int64_t bytes)
{
	return (struct op){.kind = OP_COPY, .copy = {dst, src, bytes}};
}

static inline int world_register(void **state)
{
	(void)state;
	device_register(&backend_host);
	device_register(&backend_meta);
	return 0;
}

#endif
