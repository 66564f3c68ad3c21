/* Host functions at their place in a stream, by cudaLaunchHostFunc. */
#include "base/mem.h"
#include "gpu/cuda_bounce.h"
#include "gpu/cuda_device.h"

#include <string.h>

/* Why a callback and not a thread that waits for an event: the stream goes on by itself when the function
 * returns, and one thread less must wake. The plan's calls are on the cpu queue, a stream with nothing else
 * on it. While a function runs, only that stream and the waits for its events should stand still: the
 * streams of copies and of compute have their own channels. cuda_caller.c tries whether that is so, and else
 * runs the functions on a thread of ours. CUDA may run the functions of several streams one after the other
 * on one thread, so they must not wait for each other. No function here may queue or wait.
 *
 * A record of a call outlives its device: after an error of the GPU the driver drops calls, and no
 * documentation says when the last one can come. The record of a call that never came is put aside and not
 * used again, so that a late call finds nothing to do. */
enum call_state { CALL_FREE, CALL_QUEUED, CALL_RUNS, CALL_ABANDONED };

struct cuda_call {
	struct cuda_call *next;
	struct cuda_device *device;
	stream_fn *fn; /* NULL: copies `bytes` from `from` to `to` */
	void *context;
	void *to;
	const void *from;
	int64_t bytes;
	enum queue_kind queue;
	enum call_state state;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects the states of all calls */
static pthread_cond_t returned = PTHREAD_COND_INITIALIZER;
static struct cuda_call *abandoned;

static void CUDART_CB run(void *argument)
{
	struct cuda_call *call = argument;
	int rc = 0;

	pthread_mutex_lock(&lock);
	if (call->state != CALL_QUEUED) {
		pthread_mutex_unlock(&lock);
		return;
	}
	call->state = CALL_RUNS;
	pthread_mutex_unlock(&lock);
	if (!atomic_load(&call->device->failed) && call->fn)
		rc = call->fn(call->context);
	else if (!atomic_load(&call->device->failed))
		memcpy(call->to, call->from, (size_t)call->bytes);
	if (rc < 0)
		cuda_device_fail(call->device, err_note(rc, "%s stream", queue_name(call->queue)));
	pthread_mutex_lock(&lock);
	call->state = CALL_FREE;
	pthread_cond_broadcast(&returned);
	pthread_mutex_unlock(&lock);
}

/* Takes the oldest record if its call is over, or makes a new one. It becomes the newest of the ring. */
static struct cuda_call *take(struct cuda_stream *stream)
{
	struct cuda_call *newest = stream->calls, *call = newest ? newest->next : NULL;
	enum call_state state = CALL_QUEUED;

	if (call) {
		pthread_mutex_lock(&lock);
		state = call->state;
		pthread_mutex_unlock(&lock);
	}
	if (state != CALL_FREE) {
		call = mem_alloc(1, sizeof(*call));
		if (!call)
			return NULL;
		call->next = newest ? newest->next : call;
		if (newest)
			newest->next = call;
	}
	stream->calls = call;
	return call;
}

static int queue(struct cuda_stream *stream, const struct cuda_call *what)
{
	struct cuda_call *call = take(stream);
	int rc;

	if (!call)
		return ERR_NOMEM;
	call->device = (struct cuda_device *)stream->base.device;
	call->fn = what->fn;
	call->context = what->context;
	call->to = what->to;
	call->from = what->from;
	call->bytes = what->bytes;
	call->queue = stream->base.queue;
	call->state = CALL_QUEUED; /* no other thread sees it yet */
	if (call->device->calls_by_thread)
		rc = cuda_caller_queue(stream, run, call);
	else
		rc = cuda_check(cudaLaunchHostFunc(stream->launch.stream, run, call), "cudaLaunchHostFunc");
	if (rc)
		call->state = CALL_FREE;
	return rc;
}

int cuda_call_queue(struct cuda_stream *stream, stream_fn *fn, void *context)
{
	return queue(stream, &(struct cuda_call){.fn = fn, .context = context});
}

int cuda_call_queue_copy(struct cuda_stream *stream, void *to, const void *from, int64_t bytes)
{
	return queue(stream, &(struct cuda_call){.to = to, .from = from, .bytes = bytes});
}

void cuda_call_close(struct cuda_stream *stream)
{
	struct cuda_call *call = stream->calls, *next;

	cuda_caller_close(stream->caller);
	stream->caller = NULL;
	if (!call)
		return;
	next = call->next;
	call->next = NULL;
	pthread_mutex_lock(&lock);
	for (call = next; call; call = next) {
		next = call->next;
		while (call->state == CALL_RUNS)
			pthread_cond_wait(&returned, &lock);
		if (call->state == CALL_FREE) {
			mem_free(call);
			continue;
		}
		call->state = CALL_ABANDONED;
		call->next = abandoned;
		abandoned = call;
	}
	pthread_mutex_unlock(&lock);
	stream->calls = NULL;
}

/* Call under the lock. */
static void drain(const struct cuda_stream *stream)
{
	struct cuda_call *first = stream ? stream->calls : NULL, *call = first;

	for (; call; call = call->next == first ? NULL : call->next)
		while (call->state == CALL_RUNS)
			pthread_cond_wait(&returned, &lock);
}

void cuda_call_drain(struct cuda_device *device)
{
	pthread_mutex_lock(&lock);
	for (const struct stream *s = device->base.streams; s; s = s->next) {
		drain((const struct cuda_stream *)s);
		drain(cuda_bounce_stage(((const struct cuda_stream *)s)->bounce));
	}
	pthread_mutex_unlock(&lock);
}
