/* Streams and events, and the queueing of each kind of work. */
#include "base/clock.h"
#include "base/mem.h"
#include "gpu/cuda_bounce.h"
#include "gpu/cuda_device.h"
#include "gpu/cuda_dnn_attention.h"

_Static_assert((int)RESERVE_MATMUL_BYTES == (int)CUDA_BLAS_WORKSPACE_BYTES,
        "plans reserve what the device allocates");

struct cuda_event {
	struct event base;
	cudaEvent_t event;
	int is_recorded;
	enum queue_kind queue; /* of the stream it was recorded on */
};

static struct cuda_device *device_of(const struct stream *stream)
{
	return (struct cuda_device *)stream->device;
}

/* ---- streams ---- */

/* Kernels of the comm queue are short (casts, sums of squares, collectives), and the link waits for them. So
 * their blocks go before those of a matrix product, which fills the GPU for milliseconds. */
static int open_on_gpu(struct cuda_stream *s)
{
	int lowest = 0, highest = 0;
	int rc = cuda_check(
	        cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");

	return rc ? rc
	          : cuda_check(cudaStreamCreateWithPriority(&s->launch.stream, cudaStreamNonBlocking,
	                               s->base.queue == QUEUE_COMM ? highest : lowest),
	                    "cudaStreamCreateWithPriority");
}

/* The first compute stream has the workspace. Other streams use algorithms that need none. They open cuBLASLt
 * at their first product, because a plan has products on compute only. */
static int open_matmul(struct cuda_stream *s)
{
	struct cuda_device *d = device_of(&s->base);
	int rc;

	if (s->is_matmul_ready)
		return 0;
	s->has_workspace = s->base.queue == QUEUE_COMPUTE && !d->workspace_in_use;
	rc = cuda_blas_open(&s->launch.blas, s->has_workspace ? d->workspace : NULL,
	        s->has_workspace ? d->workspace_bytes : 0);
	if (rc) {
		s->has_workspace = 0;
		return rc;
	}
	d->workspace_in_use |= s->has_workspace;
	s->is_matmul_ready = 1;
	return 0;
}

/* Shares the workspace with products: the work of a stream runs in order. */
static int open_attention(struct cuda_stream *s)
{
	struct cuda_device *d = device_of(&s->base);

	return cuda_dnn_open(&s->dnn, d->options.attention, s->has_workspace ? d->workspace : NULL,
	        s->has_workspace ? d->workspace_bytes : 0);
}

static void free_stream(struct cuda_stream *s)
{
	struct cuda_device *d = device_of(&s->base);

	cuda_call_close(s);
	cuda_bounce_close(s->bounce);
	cuda_clock_forget(s);
	if (s->is_matmul_ready)
		cuda_blas_close(s->launch.blas);
	cuda_dnn_close(s->dnn);
	if (s->has_workspace)
		d->workspace_in_use = 0;
	if (s->launch.stream)
		cudaStreamDestroy(s->launch.stream);
	mem_free(s);
}

int cuda_stream_open(struct stream **stream, struct device *device, enum queue_kind queue)
{
	struct cuda_device *d = (struct cuda_device *)device;
	struct cuda_stream *s;
	int rc = cuda_device_error(d);

	if (rc)
		return rc;
	s = mem_alloc(1, sizeof(*s));
	if (!s)
		return ERR_NOMEM;
	s->base = (struct stream){.device = device, .queue = queue};
	s->launch = d->launch;
	rc = open_on_gpu(s);
	if (rc)
		rc = cuda_device_fail(d, rc);
	if (!rc && queue == QUEUE_COMPUTE) /* reports a missing library before anything is queued */
		rc = open_matmul(s);
	if (!rc && queue == QUEUE_COMPUTE)
		rc = open_attention(s);
	if (rc) {
		free_stream(s);
		return rc;
	}
	*stream = &s->base;
	return 0;
}

static void begin_sync(struct cuda_device *d)
{
	int rc = cuda_device_error(d) ? 0 : cuda_clock_before_sync(d);

	if (rc)
		cuda_device_fail(d, rc);
}

/* Waits for all work queued on the stream; errors of work show here. */
static int wait_for(struct cuda_stream *s)
{
	struct cuda_device *d = device_of(&s->base);
	int rc;

	atomic_store(&d->waiting_since_ns, clock_now_ns());
	rc = cuda_check(cudaStreamSynchronize(s->launch.stream), "cudaStreamSynchronize");
	atomic_store(&d->waiting_since_ns, 0);
	if (rc)
		cuda_device_fail(d, err_note(rc, "%s stream, at or before its last work (%s)",
		                            queue_name(s->base.queue), s->last_work ? s->last_work : "none"));
	return cuda_device_error(d);
}

/* Reads the marks that were reached. After an error waits for host functions that still run. */
static int finish(struct cuda_device *d)
{
	int rc = cuda_device_error(d);

	if (!rc) {
		rc = cuda_clock_read(d);
		return rc ? cuda_device_fail(d, rc) : 0;
	}
	cuda_call_drain(d);
	return cuda_device_error(d);
}

void cuda_stream_close(struct stream *stream)
{
	struct cuda_stream *s = (struct cuda_stream *)stream;
	struct cuda_device *d = device_of(stream);
	int rc = cuda_device_error(d) ? 0 : cuda_clock_end_work(s); /* no longer the device's */

	if (rc)
		cuda_device_fail(d, rc);
	if (!wait_for(s)) {
		rc = cuda_clock_read_stream(s);
		if (rc)
			cuda_device_fail(d, rc);
	}
	free_stream(s);
}

int cuda_stream_sync(struct stream *stream)
{
	begin_sync(device_of(stream));
	wait_for((struct cuda_stream *)stream);
	return finish(device_of(stream));
}

/* ---- events ---- */

int cuda_event_open(struct event **event, struct device *device)
{
	struct cuda_device *d = (struct cuda_device *)device;
	struct cuda_event *e;
	int rc = cuda_device_error(d);

	if (rc)
		return rc;
	e = mem_alloc(1, sizeof(*e));
	if (!e)
		return ERR_NOMEM;
	rc = cuda_check(cudaEventCreateWithFlags(&e->event, cudaEventDisableTiming | cudaEventBlockingSync),
	        "cudaEventCreateWithFlags");
	if (rc) {
		mem_free(e);
		return cuda_device_fail(d, rc);
	}
	*event = &e->base;
	return 0;
}

void cuda_event_close(struct event *event)
{
	struct cuda_event *e = (struct cuda_event *)event;

	cudaEventDestroy(e->event);
	mem_free(e);
}

int cuda_event_record(struct event *event, struct stream *stream)
{
	struct cuda_event *e = (struct cuda_event *)event;
	struct cuda_device *d = device_of(stream);
	int rc = cuda_device_error(d);

	if (rc)
		return rc;
	rc = cuda_check(
	        cudaEventRecord(e->event, ((struct cuda_stream *)stream)->launch.stream), "cudaEventRecord");
	if (rc)
		return cuda_device_fail(d, err_note(rc, "%s stream", queue_name(stream->queue)));
	e->is_recorded = 1;
	e->queue = stream->queue;
	return 0;
}

int cuda_stream_wait(struct stream *stream, struct event *event)
{
	struct cuda_event *e = (struct cuda_event *)event;
	struct cuda_stream *s = (struct cuda_stream *)stream;
	struct cuda_device *d = device_of(stream);
	int rc = cuda_device_error(d);

	if (rc || !e->is_recorded)
		return rc;
	rc = cuda_clock_before_wait(s);
	if (!rc)
		rc = cuda_check(cudaStreamWaitEvent(s->launch.stream, e->event, 0), "cudaStreamWaitEvent");
	if (!rc)
		rc = cuda_clock_after_wait(s, e->queue);
	return rc ? cuda_device_fail(d, err_note(rc, "%s stream", queue_name(stream->queue))) : 0;
}

int cuda_event_sync(struct event *event)
{
	struct cuda_event *e = (struct cuda_event *)event;
	struct cuda_device *d = (struct cuda_device *)event->device;
	int rc;

	begin_sync(d);
	atomic_store(&d->waiting_since_ns, clock_now_ns());
	rc = e->is_recorded ? cuda_check(cudaEventSynchronize(e->event), "cudaEventSynchronize") : 0;
	atomic_store(&d->waiting_since_ns, 0);
	if (rc)
		cuda_device_fail(d, err_note(rc, "%s stream, before an event", queue_name(e->queue)));
	return finish(d);
}

/* ---- work ---- */

/* Without a share of the pinned buffer, the driver stages memory that is not pinned. It may read before the
 * waits of the stream are over ("API synchronization behavior" in CUDA's documentation), or block the caller
 * until a copy out is done. So this waits for all earlier work, where waiting_since_ns shows the wait. */
static int copy_pageable(struct cuda_stream *s, char *dst, const char *src, int64_t bytes, int is_in)
{
	int rc = cuda_bounce_open(s);

	if (rc > 0)
		return is_in ? cuda_bounce_in(s, dst, src, bytes) : cuda_bounce_out(s, dst, src, bytes);
	if (!rc)
		rc = wait_for(s);
	return rc ? rc
	          : cuda_check(cudaMemcpyAsync(dst, src, (size_t)bytes,
	                               is_in ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost,
	                               s->launch.stream),
	                    "cudaMemcpyAsync");
}

static int copy(struct cuda_stream *s, const struct work *work)
{
	struct cuda_device *d = device_of(&s->base);
	int is_in = work->kind == WORK_COPY_IN, rc = 0;
	const char *src = is_in ? work->copy_in.src : (const char *)(uintptr_t)work->copy_out.src.value;
	char *dst = is_in ? (char *)(uintptr_t)work->copy_in.dst.value : work->copy_out.dst;
	int64_t bytes = is_in ? work->copy_in.bytes : work->copy_out.bytes;

	for (int64_t done = 0, piece; done < bytes && !rc; done += piece) {
		int is_pinned;

		piece = cuda_slab_reach(&is_pinned, d, (is_in ? src : dst) + done, bytes - done);
		if (!is_pinned)
			rc = copy_pageable(s, dst + done, src + done, piece, is_in);
		else
			rc = cuda_check(cudaMemcpyAsync(dst + done, src + done, (size_t)piece,
			                        is_in ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost,
			                        s->launch.stream),
			        "cudaMemcpyAsync");
	}
	return rc;
}

static int run_op(struct cuda_stream *s, const struct op *op)
{
	struct op_cost cost;
	int rc = op->kind == OP_MATMUL ? open_matmul(s) : 0, is_queued = 0;

	if (op->kind == OP_ATTENTION || op->kind == OP_ATTENTION_GRAD) {
		rc = cuda_dnn_attention(s->dnn, &s->launch, op);
		is_queued = rc == 0;
		rc = rc > 0 ? 0 : rc;
	}
	if (!rc && !is_queued)
		rc = cuda_op(&s->launch, op);
	if (rc)
		return rc;
	op_cost_of(op, &cost);
	device_of(&s->base)->stats.flops += cost.flops_bf16 + cost.flops_f32;
	return 0;
}

static void count_sent(struct device_stats *stats, const struct work *work)
{
	struct comm_traffic t;

	work_traffic(&t, work);
	stats->sent_node_bytes += t.node_bytes;
	stats->sent_network_bytes += t.network_bytes;
}

static int run_work(struct cuda_stream *s, const struct work *work)
{
	struct device_stats *stats = &device_of(&s->base)->stats;
	int rc = ERR_INTERNAL;

	switch (work->kind) {
	case WORK_OP:
		rc = run_op(s, &work->op);
		break;
	case WORK_COPY_IN:
		rc = copy(s, work);
		stats->copied_in_bytes += rc ? 0 : work->copy_in.bytes;
		break;
	case WORK_COPY_OUT:
		rc = copy(s, work);
		stats->copied_out_bytes += rc ? 0 : work->copy_out.bytes;
		break;
	case WORK_CALL:
		rc = cuda_call_queue(s, work->call.fn, work->call.context);
		break;
	case WORK_DISCARD:
		rc = cuda_check(cudaMemsetAsync((void *)(uintptr_t)work->discard.base.value, CUDA_POISON,
		                        (size_t)work->discard.bytes, s->launch.stream),
		        "cudaMemsetAsync");
		break;
	case WORK_ALL_GATHER:
	case WORK_REDUCE_SCATTER:
	case WORK_ALL_REDUCE:
	case WORK_BROADCAST:
		rc = cuda_comm_queue(&s->launch, work);
		if (!rc)
			count_sent(stats, work);
		break;
	case WORK_STAMP:
	case WORK_KIND_COUNT:
		break;
	}
	if (!rc && stats->arena_touched_bytes < work->touched_bytes)
		stats->arena_touched_bytes = work->touched_bytes;
	return rc;
}

int cuda_stream_queue(struct stream *stream, const struct work *work)
{
	struct cuda_stream *s = (struct cuda_stream *)stream;
	struct cuda_device *d = device_of(stream);
	int rc = cuda_device_error(d);

	if (rc || (work->kind == WORK_DISCARD && !d->options.poison))
		return rc;
	if (work->kind == WORK_STAMP) {
		rc = cuda_clock_stamp(s, work->at_ns);
	} else {
		rc = cuda_clock_before_work(s);
		if (!rc)
			rc = run_work(s, work);
		s->last_work = work_name(work);
	}
	return rc ? cuda_device_fail(
	                    d, err_note(rc, "%s stream, %s", queue_name(stream->queue), work_name(work)))
	          : 0;
}
