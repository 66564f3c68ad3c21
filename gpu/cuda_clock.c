/* The clock of the CUDA device: when work on each stream began and ended. */
#include "base/clock.h"
#include "base/mem.h"
#include "gpu/cuda_device.h"

#include <math.h>

/* A mark is a timing event recorded on a stream: a stamp, or a border between spans. In a span the stream
 * works, waits for another queue, or is idle. Borders lie before and after waits and before syncs, so their
 * number follows the plan's waits and not its ops. A mark is read after the stream reached it, as the time
 * since a base event of known time. CUDA gives that as a float of milliseconds, which has steps of a quarter
 * of a millisecond after an hour. So the base moves on with the work. */
enum {
	MARKS_START = 256,
	READ_EVERY = 1024,           /* marks of a stream without a sync */
	BASE_MOVES_AFTER = 500000000 /* ns: after half a second a float has steps of 30 ns */
};

/* ---- timing events ---- */

static int take_event(struct cuda_clock *clock, cudaEvent_t *event)
{
	if (clock->spare_count) {
		*event = clock->spare[--clock->spare_count];
		return 0;
	}
	return cuda_check(cudaEventCreateWithFlags(event, cudaEventBlockingSync), "cudaEventCreateWithFlags");
}

static void give_event(struct cuda_clock *clock, cudaEvent_t event)
{
	if (clock->spare_count == clock->spare_capacity) {
		int capacity = clock->spare_capacity ? 2 * clock->spare_capacity : MARKS_START;
		cudaEvent_t *spare = mem_resize(clock->spare, (size_t)capacity, sizeof(cudaEvent_t));

		if (!spare) {
			cudaEventDestroy(event);
			return;
		}
		clock->spare = spare;
		clock->spare_capacity = capacity;
	}
	clock->spare[clock->spare_count++] = event;
}

int cuda_clock_open(struct cuda_device *device)
{
	struct cuda_clock *clock = &device->clock;
	int rc = cuda_check(cudaStreamCreateWithFlags(&clock->stream, cudaStreamNonBlocking),
	        "cudaStreamCreateWithFlags");

	if (!rc)
		rc = take_event(clock, &clock->base);
	if (!rc)
		rc = cuda_check(cudaEventRecord(clock->base, clock->stream), "cudaEventRecord");
	if (!rc)
		rc = cuda_check(cudaEventSynchronize(clock->base), "cudaEventSynchronize");
	return rc;
}

void cuda_clock_close(struct cuda_device *device)
{
	struct cuda_clock *clock = &device->clock;

	if (clock->base)
		cudaEventDestroy(clock->base);
	while (clock->spare_count)
		cudaEventDestroy(clock->spare[--clock->spare_count]);
	if (clock->stream)
		cudaStreamDestroy(clock->stream);
	mem_free(clock->spare);
	*clock = (struct cuda_clock){0};
}

/* ---- marks ---- */

static int grow(struct cuda_marks *m)
{
	int64_t capacity = m->capacity ? 2 * m->capacity : MARKS_START;
	struct cuda_mark *ring;

	if (m->end - m->first < m->capacity)
		return 0;
	ring = mem_alloc((size_t)capacity, sizeof(*ring));
	if (!ring)
		return ERR_NOMEM;
	for (int64_t i = m->first; i < m->end; i++)
		ring[i % capacity] = m->ring[i % m->capacity];
	mem_free(m->ring);
	m->ring = ring;
	m->capacity = capacity;
	return 0;
}

static int mark(struct cuda_stream *stream, struct cuda_mark mark)
{
	struct cuda_clock *clock = &((struct cuda_device *)stream->base.device)->clock;
	struct cuda_marks *m = &stream->marks;
	int rc = 0;

	if (m->end - m->first >= READ_EVERY && (m->end - m->first) % READ_EVERY == 0)
		rc = cuda_clock_read_stream(stream);
	if (!rc)
		rc = grow(m);
	if (!rc)
		rc = take_event(clock, &mark.event);
	if (rc)
		return rc;
	rc = cuda_check(cudaEventRecord(mark.event, stream->launch.stream), "cudaEventRecord");
	if (rc)
		give_event(clock, mark.event);
	else
		m->ring[m->end++ % m->capacity] = mark;
	return rc;
}

static int mark_border(struct cuda_stream *stream, enum cuda_span span, enum queue_kind queue)
{
	return mark(stream, (struct cuda_mark){.span = span, .queue = queue});
}

int cuda_clock_before_work(struct cuda_stream *stream)
{
	struct cuda_marks *m = &stream->marks;
	int rc = 0;

	if (!m->in_work && !m->at_border)
		rc = mark_border(stream, CUDA_SPAN_IDLE, stream->base.queue);
	m->in_work = 1;
	m->at_border = 0;
	return rc;
}

int cuda_clock_end_work(struct cuda_stream *stream)
{
	struct cuda_marks *m = &stream->marks;
	int rc = m->in_work ? mark_border(stream, CUDA_SPAN_BUSY, stream->base.queue) : 0;

	m->at_border = m->at_border || m->in_work;
	m->in_work = 0;
	return rc;
}

/* Only the compute stream counts what it waits for; other streams count as idle. */
int cuda_clock_before_wait(struct cuda_stream *stream)
{
	struct cuda_marks *m = &stream->marks;
	int rc = cuda_clock_end_work(stream);

	if (stream->base.queue != QUEUE_COMPUTE) {
		m->at_border = 0;
		return rc;
	}
	if (!rc && !m->at_border)
		rc = mark_border(stream, CUDA_SPAN_IDLE, stream->base.queue);
	m->at_border = 1;
	return rc;
}

int cuda_clock_after_wait(struct cuda_stream *stream, enum queue_kind queue)
{
	return stream->base.queue == QUEUE_COMPUTE ? mark_border(stream, CUDA_SPAN_WAIT, queue) : 0;
}

int cuda_clock_before_sync(struct cuda_device *device)
{
	int rc = 0;

	for (struct stream *s = device->base.streams; s && !rc; s = s->next) {
		rc = cuda_clock_end_work((struct cuda_stream *)s);
		((struct cuda_stream *)s)->marks.at_border = 0;
	}
	return rc;
}

int cuda_clock_stamp(struct cuda_stream *stream, int64_t *at_ns)
{
	*at_ns = 0;
	return mark(stream, (struct cuda_mark){.at_ns = at_ns});
}

/* ---- reading ---- */

/* 0: *at_ns is the time when the event was reached; 1: it was not reached yet. */
static int time_of(const struct cuda_clock *clock, int64_t *at_ns, cudaEvent_t event)
{
	float ms = 0;
	cudaError_t error = cudaEventElapsedTime(&ms, clock->base, event);

	if (error == cudaErrorNotReady)
		return 1;
	*at_ns = clock->base_ns + llround((double)ms * 1e6);
	return cuda_check(error, "cudaEventElapsedTime");
}

static void account(struct cuda_stream *stream, const struct cuda_mark *mark, int64_t at_ns)
{
	struct device_stats *stats = &((struct cuda_device *)stream->base.device)->stats;
	int64_t span_ns = at_ns - stream->marks.border_ns;

	if (mark->at_ns) {
		*mark->at_ns = at_ns;
		return;
	}
	if (mark->span == CUDA_SPAN_BUSY && span_ns > 0)
		stats->busy_ns[mark->queue] += span_ns;
	if (mark->span == CUDA_SPAN_WAIT && span_ns > 0)
		stats->wait_ns[mark->queue] += span_ns;
	stream->marks.border_ns = at_ns;
}

/* Reads the oldest marks, up to the first that was not reached. */
int cuda_clock_read_stream(struct cuda_stream *stream)
{
	struct cuda_clock *clock = &((struct cuda_device *)stream->base.device)->clock;
	struct cuda_marks *m = &stream->marks;

	while (m->first < m->end) {
		struct cuda_mark *mark = &m->ring[m->first % m->capacity];
		int64_t at_ns;
		int rc = time_of(clock, &at_ns, mark->event);

		if (rc)
			return rc > 0 ? 0 : rc;
		account(stream, mark, at_ns);
		give_event(clock, mark->event);
		m->first++;
	}
	return 0;
}

/* Makes the present time the new base. All marks reached before it are read first; the others are later. */
static int move_base(struct cuda_device *device)
{
	struct cuda_clock *clock = &device->clock;
	cudaEvent_t event;
	int64_t at_ns = 0;
	int rc = take_event(clock, &event);

	if (rc)
		return rc;
	rc = cuda_check(cudaEventRecord(event, clock->stream), "cudaEventRecord");
	if (!rc)
		rc = cuda_check(cudaEventSynchronize(event), "cudaEventSynchronize");
	if (!rc)
		rc = time_of(clock, &at_ns, event);
	for (const struct stream *s = device->base.streams; s && !rc; s = s->next)
		rc = cuda_clock_read_stream((struct cuda_stream *)s);
	if (rc) {
		give_event(clock, event);
		return rc;
	}
	give_event(clock, clock->base);
	clock->base = event;
	clock->base_ns = at_ns;
	return 0;
}

int cuda_clock_read(struct cuda_device *device)
{
	int rc = 0;

	for (const struct stream *s = device->base.streams; s && !rc; s = s->next)
		rc = cuda_clock_read_stream((struct cuda_stream *)s);
	if (!rc && clock_now_ns() - device->clock.moved_at_ns > BASE_MOVES_AFTER) {
		rc = move_base(device);
		device->clock.moved_at_ns = clock_now_ns();
	}
	return rc;
}

void cuda_clock_forget(struct cuda_stream *stream)
{
	struct cuda_clock *clock = &((struct cuda_device *)stream->base.device)->clock;
	struct cuda_marks *m = &stream->marks;

	while (m->first < m->end)
		give_event(clock, m->ring[m->first++ % m->capacity].event);
	mem_free(m->ring);
	*m = (struct cuda_marks){0};
}

int64_t cuda_clock_now_ns(struct cuda_device *device)
{
	if (!cuda_device_error(device)) {
		int rc = move_base(device);

		if (!rc)
			return device->clock.base_ns;
		cuda_device_fail(device, rc);
	}
	return clock_now_ns() - device->opened_at_ns;
}
