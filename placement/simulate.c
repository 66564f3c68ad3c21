/* Simulates a step of an engine on the meta clock. */
#include "placement/simulate.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/size.h"

int simulate_step(
        struct simulated *s, struct engine *engine, const struct engine_options *o, struct run_span *spans)
{
	int64_t tokens = o->train.max_tokens, longest = o->policy.rope_positions;
	int micro_count = o->policy.micro_batches, rc;
	struct host_batch *micro = mem_alloc((size_t)micro_count, sizeof(*micro));
	struct device_stats before = {0}, after = {0};
	struct engine_result result;

	rc = micro ? 0 : ERR_NOMEM;
	s->tokens = o->world_size * micro_count * o->train.max_tokens;
	for (int m = 0; m < micro_count && !rc; m++)
		micro[m] = (struct host_batch){.tokens = tokens,
		        .targets = o->train.max_targets,
		        .documents = max_i64(o->train.max_documents, (tokens + longest - 1) / longest)};
	if (!rc)
		engine_assume_step(engine);
	device_get_stats(o->device, &before);
	if (!rc)
		rc = engine_step(engine, &result, micro, micro_count, s->tokens, 1e-5, spans);
	device_get_stats(o->device, &after);
	s->step_ms = 1e-6 * (double)(after.now_ns - before.now_ns);
	for (int q = 0; q < QUEUE_COUNT; q++)
		s->queue_ms[q] = 1e-6 * (double)(after.busy_ns[q] - before.busy_ns[q]);
	s->flops = after.flops - before.flops;
	s->op_count = after.op_count - before.op_count;
	s->op_bytes = after.op_bytes - before.op_bytes;
	mem_free(micro);
	return rc;
}

int simulate_bound(
        struct simulated *s, struct plan_time *time, struct engine *engine, const struct engine_options *o)
{
	const struct plan *plan = engine_plan(engine, PLAN_TRAIN);
	struct run_span *spans = mem_alloc((size_t)plan->op_count, sizeof(*spans));
	int rc = spans ? engine_start(engine) : ERR_NOMEM;

	if (!rc)
		rc = simulate_step(s, engine, o, spans);
	if (!rc)
		plan_time_find(time, plan, spans);
	mem_free(spans);
	return rc;
}

void simulate_host_speed(struct device_speed *speed, int threads, double host_copy_gbps)
{
	/* rates of one thread, measured on the machine of examples/machines/laptop-2-cores.yaml; more than
	 * BUS_THREADS threads move no more bytes */
	enum { BUS_THREADS = 16 };
	const double thread_flops = 70e9, thread_bytes = 21e9;
	double bytes = thread_bytes * (threads < BUS_THREADS ? threads : BUS_THREADS), copy = bytes / 2;

	if (host_copy_gbps > 0 && 1e9 * host_copy_gbps < copy)
		copy = 1e9 * host_copy_gbps;
	*speed = (struct device_speed){.matmul_flops_bf16 = thread_flops * threads,
	        .matmul_flops_f32 = thread_flops * threads,
	        .memory_bytes = bytes,
	        .h2d_bytes = copy,
	        .d2h_bytes = copy,
	        .host_memory_bytes = bytes,
	        .comm_bytes = bytes / 2,
	        .host_computes = 1};
}
