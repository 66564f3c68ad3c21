/* Copies of host memory that is not pinned, through pinned slots; the owning thread does not wait. */
#include "gpu/cuda_bounce.h"

#include "base/mem.h"
#include "base/size.h"

#include <stdint.h>

enum {
	SLOTS = 2, /* one fills while the other empties */
	SHARE_BYTES = CUDA_BOUNCE_BYTES / CUDA_BOUNCE_STREAMS,
	SLOT_BYTES = SHARE_BYTES / SLOTS,
};

struct cuda_bounce {
	struct cuda_stream stage; /* for host functions; uses only its queue, stream and calls */
	cudaEvent_t begun, filled[SLOTS], emptied[SLOTS];
	char *slot[SLOTS];
	int64_t used; /* slots filled so far */
	int share;
};

int cuda_bounce_pin(struct cuda_device *d)
{
	if (!d->bounce_memory &&
	        cudaHostAlloc(&d->bounce_memory, CUDA_BOUNCE_BYTES, cudaHostAllocDefault) != cudaSuccess)
		d->bounce_memory = NULL;
	return d->bounce_memory != NULL;
}

void cuda_bounce_unpin(struct cuda_device *d)
{
	if (d->bounce_memory)
		cudaFreeHost(d->bounce_memory);
	d->bounce_memory = NULL;
}

/* ---- of a stream ---- */

static int share_take(struct cuda_device *d)
{
	for (int i = 0; i < CUDA_BOUNCE_STREAMS; i++)
		if (!(d->bounce_taken >> i & 1)) {
			d->bounce_taken |= 1u << i;
			return i;
		}
	return -1;
}

static int events_open(struct cuda_bounce *b)
{
	cudaEvent_t *const events[] = {
	        &b->begun, &b->filled[0], &b->filled[1], &b->emptied[0], &b->emptied[1]};
	int rc = 0;

	for (size_t i = 0; i < sizeof(events) / sizeof(*events) && !rc; i++)
		rc = cuda_check(cudaEventCreateWithFlags(events[i], cudaEventDisableTiming),
		        "cudaEventCreateWithFlags");
	return rc;
}

void cuda_bounce_close(struct cuda_bounce *b)
{
	cudaEvent_t events[] = {b ? b->begun : NULL, b ? b->filled[0] : NULL, b ? b->filled[1] : NULL,
	        b ? b->emptied[0] : NULL, b ? b->emptied[1] : NULL};

	if (!b)
		return;
	cuda_call_close(&b->stage);
	for (size_t i = 0; i < sizeof(events) / sizeof(*events); i++)
		if (events[i])
			cudaEventDestroy(events[i]);
	if (b->stage.launch.stream)
		cudaStreamDestroy(b->stage.launch.stream);
	((struct cuda_device *)b->stage.base.device)->bounce_taken &= ~(1u << b->share);
	mem_free(b);
}

int cuda_bounce_open(struct cuda_stream *s)
{
	struct cuda_device *d = (struct cuda_device *)s->base.device;
	int share = s->bounce || !d->bounce_memory ? -1 : share_take(d), rc;
	struct cuda_bounce *b;

	if (share < 0)
		return s->bounce != NULL;
	b = mem_alloc(1, sizeof(*b));
	if (!b) {
		d->bounce_taken &= ~(1u << share);
		return ERR_NOMEM;
	}
	b->stage.base = s->base;
	b->share = share;
	for (int i = 0; i < SLOTS; i++)
		b->slot[i] = (char *)d->bounce_memory + (int64_t)share * SHARE_BYTES + i * SLOT_BYTES;
	rc = cuda_check(cudaStreamCreateWithFlags(&b->stage.launch.stream, cudaStreamNonBlocking),
	        "cudaStreamCreateWithFlags");
	if (!rc)
		rc = events_open(b);
	if (rc) {
		cuda_bounce_close(b);
		return rc;
	}
	s->bounce = b;
	return 1;
}

const struct cuda_stream *cuda_bounce_stage(const struct cuda_bounce *b)
{
	return b ? &b->stage : NULL;
}

/* ---- copies ---- */

static int hand_over(cudaEvent_t event, cudaStream_t from, cudaStream_t to)
{
	int rc = cuda_check(cudaEventRecord(event, from), "cudaEventRecord");

	return rc ? rc : cuda_check(cudaStreamWaitEvent(to, event, 0), "cudaStreamWaitEvent");
}

/* Takes the next slot. `stream` waits until its former content has left it. */
static int slot_next(struct cuda_bounce *b, cudaStream_t stream, int *slot)
{
	*slot = (int)(b->used++ % SLOTS);
	return b->used > SLOTS
	               ? cuda_check(cudaStreamWaitEvent(stream, b->emptied[*slot], 0), "cudaStreamWaitEvent")
	               : 0;
}

static int queue_copy(
        void *to, const void *from, int64_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
	return cuda_check(cudaMemcpyAsync(to, from, (size_t)bytes, kind, stream), "cudaMemcpyAsync");
}

/* The host functions begin after all that the stream waits for, because that may write `src`. */
int cuda_bounce_in(struct cuda_stream *s, char *dst, const char *src, int64_t bytes)
{
	cudaStream_t main = s->launch.stream, stage = s->bounce->stage.launch.stream;
	struct cuda_bounce *b = s->bounce;
	int rc = hand_over(b->begun, main, stage), slot;

	for (int64_t done = 0, piece; done < bytes && !rc; done += piece) {
		piece = min_i64(SLOT_BYTES, bytes - done);
		rc = slot_next(b, stage, &slot);
		if (!rc)
			rc = cuda_call_queue_copy(&b->stage, b->slot[slot], src + done, piece);
		if (!rc)
			rc = hand_over(b->filled[slot], stage, main);
		if (!rc)
			rc = queue_copy(dst + done, b->slot[slot], piece, cudaMemcpyHostToDevice, main);
		if (!rc)
			rc = cuda_check(cudaEventRecord(b->emptied[slot], main), "cudaEventRecord");
	}
	return rc;
}

/* The stream waits until the last byte is in host memory. */
int cuda_bounce_out(struct cuda_stream *s, char *dst, const char *src, int64_t bytes)
{
	cudaStream_t main = s->launch.stream, stage = s->bounce->stage.launch.stream;
	struct cuda_bounce *b = s->bounce;
	int rc = 0, slot = 0;

	for (int64_t done = 0, piece; done < bytes && !rc; done += piece) {
		piece = min_i64(SLOT_BYTES, bytes - done);
		rc = slot_next(b, main, &slot);
		if (!rc)
			rc = queue_copy(b->slot[slot], src + done, piece, cudaMemcpyDeviceToHost, main);
		if (!rc)
			rc = hand_over(b->filled[slot], main, stage);
		if (!rc)
			rc = cuda_call_queue_copy(&b->stage, dst + done, b->slot[slot], piece);
		if (!rc)
			rc = cuda_check(cudaEventRecord(b->emptied[slot], stage), "cudaEventRecord");
	}
	return rc ? rc : cuda_check(cudaStreamWaitEvent(main, b->emptied[slot], 0), "cudaStreamWaitEvent");
}
