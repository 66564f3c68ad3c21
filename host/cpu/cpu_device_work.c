/* Runs one piece of work on a stream's thread. */
#include "base/clock.h"
#include "host/cpu/cpu_device.h"

#include <string.h>

/* A throttled copy keeps others off the link for PIECE_NS at most. It sleeps after a piece only if the sleep
 * is long enough, because a thread that wakes takes a core from those that compute. */
enum { PIECE_NS = 20000000, SHORTEST_SLEEP_NS = 50000 };

void cpu_poison(void *base, int64_t bytes)
{
	static const unsigned char pair[2] = {0xf9, 0x7f};
	unsigned char *p = base;
	int64_t i = 0;

	for (; i < bytes && ((uintptr_t)(p + i) & 7); i++)
		p[i] = pair[(uintptr_t)(p + i) & 1];
	for (; i + 8 <= bytes; i += 8)
		*(uint64_t *)(void *)(p + i) = 0x7ff97ff97ff97ff9;
	for (; i < bytes; i++)
		p[i] = pair[(uintptr_t)(p + i) & 1];
}

/* The time when these bytes have crossed the link, after those that others sent. It counts from the start of
 * the copy, not from now, which makes up for earlier sleeps that took too long. */
static int64_t cross(struct cpu_lane *lane, int64_t copy_start_ns, int64_t bytes, double gbps)
{
	int64_t at_ns;

	pthread_mutex_lock(&lane->lock);
	if (lane->free_at_ns < copy_start_ns)
		lane->free_at_ns = copy_start_ns;
	lane->free_at_ns += (int64_t)((double)bytes / gbps);
	at_ns = lane->free_at_ns;
	pthread_mutex_unlock(&lane->lock);
	return at_ns;
}

static void copy(
        struct cpu_device *device, enum cpu_direction direction, void *dst, const void *src, int64_t bytes)
{
	double gbps = device->options.host_copy_gbps;
	int64_t start_ns, at_ns = 0, most_bytes = (int64_t)(gbps * PIECE_NS) + 1;

	if (!(gbps > 0)) {
		memcpy(dst, src, (size_t)bytes);
		return;
	}
	start_ns = clock_now_ns();
	for (int64_t done = 0; done < bytes;) {
		int64_t piece = bytes - done < most_bytes ? bytes - done : most_bytes;

		memcpy((char *)dst + done, (const char *)src + done, (size_t)piece);
		done += piece;
		at_ns = cross(&device->lanes[direction], start_ns, piece, gbps);
		if (done == bytes || at_ns - clock_now_ns() > SHORTEST_SLEEP_NS)
			cpu_sleep_until(at_ns);
	}
}

static void add(_Atomic int64_t *counter, int64_t amount)
{
	atomic_store_explicit(
	        counter, atomic_load_explicit(counter, memory_order_relaxed) + amount, memory_order_relaxed);
}

static void touch(struct cpu_counters *c, const struct work *work)
{
	if (work->touched_bytes > atomic_load_explicit(&c->touched_bytes, memory_order_relaxed))
		atomic_store_explicit(&c->touched_bytes, work->touched_bytes, memory_order_relaxed);
}

static int run_op(struct cpu_stream *stream, const struct op *op)
{
	struct cpu_counters *c = &stream->counters;
	struct op_cost cost;
	double flops = atomic_load_explicit(&c->flops, memory_order_relaxed);

	op_cost_of(op, &cost);
	atomic_store_explicit(&c->flops, flops + cost.flops_bf16 + cost.flops_f32, memory_order_relaxed);
	return cpu_op(&stream->context, op);
}

int cpu_work_run(struct cpu_stream *stream, const struct work *work)
{
	struct cpu_device *device = (struct cpu_device *)stream->base.device;
	struct cpu_counters *c = &stream->counters;

	touch(c, work);
	switch (work->kind) {
	case WORK_OP:
		return run_op(stream, &work->op);
	case WORK_COPY_IN:
		copy(device, CPU_COPY_IN, cpu_ptr(work->copy_in.dst), work->copy_in.src, work->copy_in.bytes);
		add(&c->copied_in_bytes, work->copy_in.bytes);
		return 0;
	case WORK_COPY_OUT:
		copy(device, CPU_COPY_OUT, work->copy_out.dst, cpu_ptr(work->copy_out.src),
		        work->copy_out.bytes);
		add(&c->copied_out_bytes, work->copy_out.bytes);
		return 0;
	case WORK_CALL:
		return work->call.fn(work->call.context);
	case WORK_DISCARD:
		cpu_poison(cpu_ptr(work->discard.base), work->discard.bytes);
		return 0;
	case WORK_STAMP:
		*work->at_ns = clock_now_ns() - device->opened_at_ns;
		return 0;
	case WORK_ALL_GATHER:
	case WORK_REDUCE_SCATTER:
	case WORK_ALL_REDUCE:
	case WORK_BROADCAST:
		return cpu_comm_run(work);
	case WORK_KIND_COUNT:
		break;
	}
	return err_set(ERR_INTERNAL, "work kind %d does not exist", (int)work->kind);
}
