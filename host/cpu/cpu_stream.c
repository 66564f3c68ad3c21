/* Streams as FIFO threads, events as numbers of their items, and seeded delays. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/thread.h"
#include "comm/heartbeat.h"
#include "host/cpu/cpu_device.h"

#include <errno.h>
#include <string.h>
#include <time.h>

struct cpu_event {
	struct event base;
	struct cpu_stream *stream; /* NULL: never recorded */
	int64_t ticket;
	enum queue_kind queue;
};

enum {
	RING_START = 256,
	SPINS = 400, /* some microseconds */
};

static inline void cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

void cpu_sleep_until(int64_t at_ns)
{
	struct timespec t = {.tv_sec = at_ns / 1000000000, .tv_nsec = at_ns % 1000000000};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

int64_t cpu_delay_ns(uint64_t seed, enum queue_kind queue, int64_t index)
{
	double u = rng_uniform(seed, (uint64_t)queue, (uint64_t)index), longest_ns = 200000;
	double u2 = u * u, u8 = u2 * u2 * u2 * u2;

	return u8 < 0.1 ? 0 : (int64_t)(longest_ns * u8); /* under 20 us a sleep is all overhead */
}

int cpu_device_error(struct cpu_device *device)
{
	int rc;

	if (!atomic_load(&device->failed))
		return 0;
	pthread_mutex_lock(&device->error_lock);
	rc = err_give(&device->error);
	pthread_mutex_unlock(&device->error_lock);
	return rc;
}

static void fail(struct cpu_device *device, int code)
{
	pthread_mutex_lock(&device->error_lock);
	err_take(&device->error, code);
	pthread_mutex_unlock(&device->error_lock);
	atomic_store(&device->failed, 1);
}

/* ---- the stream's thread ---- */

static void count(_Atomic int64_t *counter, int64_t amount)
{
	int64_t now = atomic_load_explicit(counter, memory_order_relaxed);

	atomic_store_explicit(counter, now + amount, memory_order_relaxed);
}

/* Watches a counter for less time than sleeping and waking would cost. Returns 1 if it reached `value`. */
static int spin_for(_Atomic int64_t *counter, int64_t value)
{
	for (int i = 0; i < SPINS; i++) {
		if (atomic_load_explicit(counter, memory_order_acquire) >= value)
			return 1;
		cpu_relax();
	}
	return 0;
}

/* Sleeps until `stream` has done its first `ticket` items. */
static void wait_for(struct cpu_stream *stream, int64_t ticket)
{
	if (spin_for(&stream->done, ticket))
		return;
	pthread_mutex_lock(&stream->lock);
	stream->waiter_count++;
	while (atomic_load_explicit(&stream->done, memory_order_relaxed) < ticket)
		pthread_cond_wait(&stream->progress, &stream->lock);
	stream->waiter_count--;
	pthread_mutex_unlock(&stream->lock);
}

static void run_item(struct cpu_stream *stream, const struct cpu_item *item, int64_t index)
{
	struct cpu_device *device = (struct cpu_device *)stream->base.device;
	int64_t start_ns = clock_now_ns();
	int rc;

	if (item->wait_stream) {
		wait_for(item->wait_stream, item->wait_ticket);
		if (stream->base.queue == QUEUE_COMPUTE)
			count(&stream->counters.wait_ns[item->wait_queue], clock_now_ns() - start_ns);
		return;
	}
	if (item->delay_ns) {
		start_ns += item->delay_ns;
		cpu_sleep_until(start_ns);
	}
	if (atomic_load(&device->failed) && item->work.kind != WORK_STAMP)
		return;
	rc = cpu_work_run(stream, &item->work);
	if (rc < 0)
		fail(device, err_note(rc, "%s stream, item %lld", queue_name(stream->base.queue),
		                     (long long)index));
	count(&stream->counters.busy_ns[stream->base.queue], clock_now_ns() - start_ns);
}

/* Takes the next item. Returns 0 if the stream is closing and empty. */
static int take(struct cpu_stream *stream, struct cpu_item *item)
{
	if (stream->taken == stream->queued && !stream->is_closing) {
		pthread_mutex_unlock(&stream->lock);
		spin_for(&stream->queued, stream->taken + 1);
		pthread_mutex_lock(&stream->lock);
	}
	while (stream->taken == stream->queued && !stream->is_closing) {
		stream->is_idle = 1;
		pthread_cond_wait(&stream->ready, &stream->lock);
		stream->is_idle = 0;
	}
	if (stream->taken == stream->queued)
		return 0;
	*item = stream->ring[stream->taken++ % stream->capacity];
	return 1;
}

static void *stream_main(void *argument)
{
	struct cpu_stream *stream = argument;
	struct cpu_item item;

	pthread_mutex_lock(&stream->lock);
	while (take(stream, &item)) {
		int64_t index = stream->taken;

		pthread_mutex_unlock(&stream->lock);
		run_item(stream, &item, index);
		pthread_mutex_lock(&stream->lock);
		atomic_store_explicit(&stream->done, index, memory_order_release);
		heartbeat_progress();
		if (stream->waiter_count)
			pthread_cond_broadcast(&stream->progress);
	}
	pthread_mutex_unlock(&stream->lock);
	return NULL;
}

/* ---- queueing ---- */

/* Makes room for one more item; the lock is held. */
static int grow(struct cpu_stream *stream)
{
	int64_t capacity = stream->capacity ? 2 * stream->capacity : RING_START;
	struct cpu_item *ring;

	if (stream->queued - stream->taken < stream->capacity)
		return 0;
	ring = mem_alloc((size_t)capacity, sizeof(*ring));
	if (!ring)
		return ERR_NOMEM;
	for (int64_t i = stream->taken; i < stream->queued; i++)
		ring[i % capacity] = stream->ring[i % stream->capacity];
	mem_free(stream->ring);
	stream->ring = ring;
	stream->capacity = capacity;
	return 0;
}

static int push(struct cpu_stream *stream, const struct cpu_item *item)
{
	int rc;

	pthread_mutex_lock(&stream->lock);
	rc = grow(stream);
	if (!rc) {
		stream->ring[stream->queued++ % stream->capacity] = *item;
		if (stream->is_idle)
			pthread_cond_signal(&stream->ready);
	}
	pthread_mutex_unlock(&stream->lock);
	return rc;
}

int cpu_stream_queue(struct stream *base, const struct work *work)
{
	struct cpu_stream *stream = (struct cpu_stream *)base;
	const struct device_options *o = &((struct cpu_device *)base->device)->options;
	struct cpu_item item = {.work = *work};

	if (work->kind == WORK_DISCARD && !o->poison)
		return 0;
	if (o->stream_delay_seed)
		item.delay_ns = cpu_delay_ns(o->stream_delay_seed, base->queue, stream->work_count);
	stream->work_count++;
	return push(stream, &item);
}

/* ---- streams ---- */

/* Finds a closed stream to use again, or makes a new one. Its counts go on, so events of the closed one stay
 * done. */
static struct cpu_stream *find_or_make(struct cpu_device *device)
{
	struct cpu_stream *s;

	for (s = device->made; s; s = s->next_made)
		if (!s->is_open)
			return s;
	s = mem_alloc(1, sizeof(*s));
	if (!s)
		return NULL;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->ready, NULL);
	pthread_cond_init(&s->progress, NULL);
	s->next_made = device->made;
	device->made = s;
	return s;
}

int cpu_stream_open(struct stream **stream, struct device *device, enum queue_kind queue)
{
	struct cpu_stream *s = find_or_make((struct cpu_device *)device);
	int error;

	if (!s)
		return ERR_NOMEM;
	s->base = (struct stream){.device = device, .queue = queue};
	s->is_closing = s->is_idle = 0;
	s->context = (struct cpu_context){.pool = ((struct cpu_device *)device)->pool};
	s->work_count = 0;
	error = thread_start(&s->thread, stream_main, s);
	if (error)
		return err_set(ERR_DEVICE, "host device: cannot start the thread of the %s stream: %s",
		        queue_name(queue), strerror(error));
	s->is_open = 1;
	*stream = &s->base;
	return 0;
}

void cpu_stream_close(struct stream *stream)
{
	struct cpu_stream *s = (struct cpu_stream *)stream;

	pthread_mutex_lock(&s->lock);
	s->is_closing = 1;
	pthread_cond_signal(&s->ready);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->thread, NULL);
	cpu_context_free(&s->context);
	mem_free(s->ring);
	s->ring = NULL;
	s->capacity = 0;
	s->is_open = 0;
}

void cpu_stream_free_all(struct cpu_device *device)
{
	while (device->made) {
		struct cpu_stream *s = device->made;

		device->made = s->next_made;
		pthread_mutex_destroy(&s->lock);
		pthread_cond_destroy(&s->ready);
		pthread_cond_destroy(&s->progress);
		mem_free(s);
	}
}

int cpu_stream_sync(struct stream *stream)
{
	struct cpu_stream *s = (struct cpu_stream *)stream;

	wait_for(s, s->queued);
	return cpu_device_error((struct cpu_device *)stream->device);
}

/* ---- events ---- */

int cpu_event_open(struct event **event, struct device *device)
{
	struct cpu_event *e = mem_alloc(1, sizeof(*e));

	(void)device;
	if (!e)
		return ERR_NOMEM;
	*event = &e->base;
	return 0;
}

void cpu_event_close(struct event *event)
{
	mem_free(event);
}

int cpu_event_record(struct event *event, struct stream *stream)
{
	struct cpu_event *e = (struct cpu_event *)event;

	e->stream = (struct cpu_stream *)stream;
	e->ticket = e->stream->queued;
	e->queue = stream->queue;
	return 0;
}

int cpu_stream_wait(struct stream *stream, struct event *event)
{
	struct cpu_event *e = (struct cpu_event *)event;
	struct cpu_item item = {.wait_stream = e->stream, .wait_ticket = e->ticket, .wait_queue = e->queue};

	if (!e->stream || e->stream == (struct cpu_stream *)stream ||
	        atomic_load_explicit(&e->stream->done, memory_order_acquire) >= e->ticket)
		return 0;
	return push((struct cpu_stream *)stream, &item);
}

int cpu_event_sync(struct event *event)
{
	struct cpu_event *e = (struct cpu_event *)event;

	if (e->stream)
		wait_for(e->stream, e->ticket);
	return cpu_device_error((struct cpu_device *)event->device);
}
