/* Measures the rates of this machine. */
#include "placement/measure.h"

#include "base/err.h"
#include "base/size.h"
#include "device/op.h"
#include "host/pool.h"
#include "host/slab.h"
#include "optim/adamw.h"

#include <math.h>
#include <string.h>

/* Host memory is an array of chunks, one for each task. Each NUMA node has a contiguous part. */
enum { ALIGN_BYTES = 256, ARENA_BYTES_MIN = 16384 };
enum { CHUNK_BYTES = 1 << 20, CHUNKS_MIN = 128, WORKER_CHUNKS = 4, FIRST_BYTES = 1 << 18, REPEATS = 3 };

/* Elements of a chunk: a little less than a task of the optimizer. */
enum { ELEMENTS = SUMSQ_BLOCK - 4096 };

_Static_assert(ELEMENTS * 16 + ELEMENTS / ADAMW_BLOCK * 8 + PLANE_COUNT * SLAB_SKEW_BYTES <= CHUNK_BYTES,
        "the largest planes of a task fit a chunk");

static const double PASS_S = 0.004;
static const int64_t ARENA_BYTES_HOST = INT64_C(128) << 20, ARENA_BYTES = INT64_C(512) << 20,
                     SAMPLE_BYTES_HOST = INT64_C(192) << 20, SAMPLE_BYTES = INT64_C(2) << 30;

/* Every buffer is filled with this byte: as bf16 and as fp32 a small number without subnormal squares. */
enum { FILLING = 0x3c };

struct meter {
	const struct engine_options *o;
	struct stream *streams[QUEUE_COUNT];
	dev_addr arena;
	int64_t arena_bytes;
	char *slab;
	int64_t chunk_count, elements; /* elements: of a chunk */
	int64_t node_first[POOL_NODES_MAX + 1];
	struct adamw_step step;
	double launch_s, call_s; /* overheads to subtract */
};

int measure_begin(struct measure_span *span, struct stream *stream)
{
	span->stream = stream;
	return stream_stamp(stream, &span->begin_ns);
}

/* Waits for the stream even after an error, because the stream still writes the stamps. */
int measure_end(double *seconds, struct measure_span *span, int code)
{
	int rc = code ? code : stream_stamp(span->stream, &span->end_ns), synced = stream_sync(span->stream);

	rc = rc ? rc : synced;
	*seconds = rc ? 0 : fmax(1e-9 * (double)(span->end_ns - span->begin_ns), 1e-9);
	return rc;
}

/* ---- passes: time the work on so many bytes (threads: on all of the host memory); *moved = bytes read and
 * written ---- */

typedef int pass_fn(double *seconds, double *moved, struct meter *m, int64_t bytes);

static int copy_in_pass(double *seconds, double *moved, struct meter *m, int64_t bytes)
{
	struct measure_span span;
	int rc = measure_begin(&span, m->streams[QUEUE_H2D]);

	*moved = (double)bytes;
	return measure_end(
	        seconds, &span, rc ? rc : stream_copy_in(m->streams[QUEUE_H2D], m->arena, m->slab, bytes));
}

static int copy_out_pass(double *seconds, double *moved, struct meter *m, int64_t bytes)
{
	struct measure_span span;
	int rc = measure_begin(&span, m->streams[QUEUE_D2H]);

	*moved = (double)bytes;
	return measure_end(
	        seconds, &span, rc ? rc : stream_copy_out(m->streams[QUEUE_D2H], m->slab, m->arena, bytes));
}

/* Bytes of a plane of `count` elements. */
static int64_t room_bytes(const struct plan_policy *p, enum plane plane, int64_t count)
{
	return plane_numbers(plane, p->state, count) *
	       dtype_bytes(plane_dtype(plane, p->state, p->gradient_dtype));
}

/* Bytes of an element in all planes together, without scales. */
static int64_t element_bytes(const struct plan_policy *p)
{
	int64_t bytes = 0;

	for (int i = 0; i < PLANE_COUNT; i++)
		bytes += plane_is_in((enum plane)i, PLANES_SCALE) ? 0 : room_bytes(p, (enum plane)i, 1);
	return bytes;
}

/* AdamW: most of a step's traffic in device memory if states stay there. */
static struct op update_op(const struct meter *m, int64_t count)
{
	const struct plan_policy *p = &m->o->policy;
	dev_addr plane[PLANE_COUNT], at = m->arena;
	int has_scales = adamw_state_has_scales(p->state);

	for (int i = 0; i < PLANE_COUNT; i++) {
		plane[i] = at;
		at = dev_at(at, round_up(room_bytes(p, (enum plane)i, count), ALIGN_BYTES));
	}
	return (struct op){.kind = OP_ADAMW,
	        .adamw = {.hi = plane[PLANE_HI],
	                .lo = plane[PLANE_LO],
	                .m = plane[PLANE_M],
	                .v = plane[PLANE_V],
	                .grad = plane[PLANE_GRADIENT],
	                .m_scale = has_scales ? plane[PLANE_M_SCALE] : DEV_NONE,
	                .v_scale = has_scales ? plane[PLANE_V_SCALE] : DEV_NONE,
	                .count = count,
	                .decay = 1,
	                .grad_dtype = p->gradient_dtype,
	                .state = p->state,
	                .step = m->step}};
}

/* Subtracts the overhead of queueing, which has its own rate. */
static int less(int code, double *seconds, double queueing_s)
{
	*seconds = fmax(*seconds - queueing_s, 0.1 * *seconds);
	return code;
}

static int device_pass(double *seconds, double *moved, struct meter *m, int64_t bytes)
{
	int64_t count = (bytes - ARENA_BYTES_MIN / 2) / (element_bytes(&m->o->policy) + 1) / ADAMW_BLOCK *
	                ADAMW_BLOCK;
	const struct op op = update_op(m, count > ADAMW_BLOCK ? count : ADAMW_BLOCK);
	struct measure_span span;
	struct op_cost cost;
	int rc = measure_begin(&span, m->streams[QUEUE_COMPUTE]);

	op_cost_of(&op, &cost);
	*moved = cost.memory_bytes;
	return less(measure_end(seconds, &span, rc ? rc : stream_op(m->streams[QUEUE_COMPUTE], &op)), seconds,
	        m->launch_s);
}

struct chunks {
	struct meter *m;
	pool_fn *task;
};

static void fill_task(void *context, int64_t task, int worker)
{
	(void)worker;
	memset(((struct chunks *)context)->m->slab + task * CHUNK_BYTES, FILLING, CHUNK_BYTES);
}

static void copy_task(void *context, int64_t task, int worker)
{
	char *chunk = ((struct chunks *)context)->m->slab + task * CHUNK_BYTES;

	(void)worker;
	memcpy(chunk + CHUNK_BYTES / 2, chunk, CHUNK_BYTES / 2);
}

/* The chunks of a node together hold its part of each plane, one plane after the other, as in the store. */
static void update_task(void *context, int64_t task, int worker)
{
	const struct meter *m = ((struct chunks *)context)->m;
	const struct plan_policy *p = &m->o->policy;
	int64_t n = m->elements, all, index;
	char *plane[PLANE_COUNT], *at;
	int node = 0;

	(void)worker;
	while (task >= m->node_first[node + 1])
		node++;
	index = task - m->node_first[node];
	all = m->node_first[node + 1] - m->node_first[node];
	at = m->slab + m->node_first[node] * CHUNK_BYTES;
	for (int i = 0; i < PLANE_COUNT; i++) {
		int64_t bytes = room_bytes(p, (enum plane)i, n);

		plane[i] = at + index * bytes;
		at += all * bytes + SLAB_SKEW_BYTES;
	}
	adamw_update(&(struct adamw_span){.hi = (uint16_t *)plane[PLANE_HI],
	                     .lo = (int16_t *)plane[PLANE_LO],
	                     .m = plane[PLANE_M],
	                     .v = plane[PLANE_V],
	                     .grad = plane[PLANE_GRADIENT],
	                     .m_scale = (float *)plane[PLANE_M_SCALE],
	                     .v_scale = (float *)plane[PLANE_V_SCALE],
	                     .count = n,
	                     .decay = 1,
	                     .grad_dtype = p->gradient_dtype,
	                     .state = p->state},
	        &m->step, m->o->isa);
}

/* Runs the tasks as a unit's update does. */
static int chunks_run(void *context)
{
	const struct chunks *c = context;

	pool_run_placed(c->m->o->pool, c->m->node_first, c->task, context);
	return 0;
}

static int chunks_pass(double *seconds, double moved, struct meter *m, pool_fn *task)
{
	struct chunks chunks = {m, task};
	const struct op_cost cost = {.host_bytes = moved};
	struct measure_span span;
	int rc = measure_begin(&span, m->streams[QUEUE_CPU]);

	rc = measure_end(
	        seconds, &span, rc ? rc : stream_call(m->streams[QUEUE_CPU], chunks_run, &chunks, &cost));
	return less(rc, seconds, m->call_s);
}

static int host_pass(double *seconds, double *moved, struct meter *m, int64_t bytes)
{
	*moved = (double)bytes;
	return chunks_pass(seconds, *moved, m, copy_task);
}

/* Counts bytes as the meta clock does: all planes but the gradient are read and written. */
static int update_pass(double *seconds, double *moved, struct meter *m, int64_t bytes)
{
	const struct plan_policy *p = &m->o->policy;

	*moved = (double)(bytes / CHUNK_BYTES * m->elements *
	                  (2 * element_bytes(p) - dtype_bytes(p->gradient_dtype)));
	return chunks_pass(seconds, *moved, m, update_task);
}

/* ---- rates ---- */

/* Measures on as many bytes, from `first` to `most`, as take PASS_S. The first pass is a warm-up. */
static int rate_find(double *bytes_per_s, struct meter *m, pass_fn *pass, int64_t first, int64_t most)
{
	int64_t bytes = first < most ? first : most;
	double seconds, moved, best = 0, spent_s = 0;
	int rc = pass(&seconds, &moved, m, bytes);

	if (!rc)
		rc = pass(&seconds, &moved, m, bytes);
	if (!rc && seconds < PASS_S)
		bytes = (int64_t)fmin((double)bytes / seconds * PASS_S, (double)most);
	for (int i = 0; i < REPEATS && !rc && (!i || spent_s < 2 * REPEATS * PASS_S); i++) {
		rc = pass(&seconds, &moved, m, bytes);
		spent_s += seconds;
		if (!rc)
			best = fmax(best, moved / seconds);
	}
	*bytes_per_s = best;
	return rc;
}

/* Host memory is at least as fast as the fastest single user of it. */
static int rates_find(struct device_speed *s, struct meter *m, int64_t unit_bytes)
{
	int64_t host_bytes = m->chunk_count * CHUNK_BYTES;
	int64_t copy_bytes = unit_bytes < host_bytes ? unit_bytes : host_bytes;
	double host = 0, moved = s->host_computes ? 2 : 1;
	int rc;

	copy_bytes = copy_bytes < m->arena_bytes ? copy_bytes : m->arena_bytes;
	rc = rate_find(&s->h2d_bytes, m, copy_in_pass, FIRST_BYTES, copy_bytes);
	if (!rc)
		rc = rate_find(&s->d2h_bytes, m, copy_out_pass, FIRST_BYTES, copy_bytes);
	if (!rc && !s->host_computes)
		rc = measure_copies(s, &(struct measure_place){m->streams[QUEUE_H2D], m->streams[QUEUE_D2H],
		                               m->arena, m->slab, min_i64(m->arena_bytes, host_bytes)});
	if (!rc)
		rc = rate_find(&s->memory_bytes, m, device_pass, FIRST_BYTES, m->arena_bytes);
	if (!rc)
		rc = rate_find(&host, m, host_pass, host_bytes, host_bytes);
	if (!rc)
		rc = rate_find(&s->host_update_bytes, m, update_pass, host_bytes, host_bytes);
	s->host_memory_bytes =
	        fmax(fmax(host, s->host_update_bytes), moved * fmax(s->h2d_bytes, s->d2h_bytes));
	if (s->host_computes)
		s->host_memory_bytes = fmax(s->host_memory_bytes, s->memory_bytes);
	return rc;
}

/* ---- memory ---- */

static int slab_take(struct meter *m)
{
	struct chunks all = {m, fill_task};
	struct slab_run runs[POOL_NODES_MAX];
	const struct pool *pool = m->o->pool;
	int nodes = pool_node_count(pool), rc;
	void *base;

	for (int n = 0; n <= nodes; n++)
		m->node_first[n] = m->chunk_count * n / nodes;
	for (int n = 0; n < nodes; n++)
		runs[n] = (struct slab_run){m->node_first[n] * CHUNK_BYTES,
		        (m->node_first[n + 1] - m->node_first[n]) * CHUNK_BYTES, n,
		        pool_node_os_index(pool, n)};
	rc = nodes > 1 && m->chunk_count >= nodes
	             ? device_slab_open_runs(
	                       m->o->device, &base, m->chunk_count * CHUNK_BYTES, m->o->crossing, runs, nodes)
	             : device_slab_open(m->o->device, &base, m->chunk_count * CHUNK_BYTES, m->o->crossing);
	if (rc)
		return rc;
	m->slab = base;
	return device_has_bytes(m->o->device) ? chunks_run(&all) : 0;
}

static int streams_take(struct meter *m)
{
	const struct op fill = {.kind = OP_FILL, .fill = {m->arena, m->arena_bytes, FILLING}};
	int rc = 0;

	for (int q = 0; q < QUEUE_COUNT && !rc; q++)
		if (q != QUEUE_COMM)
			rc = stream_open(&m->streams[q], m->o->device, (enum queue_kind)q);
	if (!rc)
		rc = stream_op(m->streams[QUEUE_COMPUTE], &fill);
	return rc ? rc : stream_sync(m->streams[QUEUE_COMPUTE]);
}

/* Uses no more memory than a step of the model. */
static int passes_measure(struct device_speed *speed, const struct engine_options *o, int64_t host_bytes)
{
	const struct model *model = o->model;
	struct meter m = {.o = o, .launch_s = speed->launch_s, .call_s = speed->call_s};
	int64_t block_count = 0, arena_bytes = speed->host_computes ? ARENA_BYTES_HOST : ARENA_BYTES;
	int rc;

	for (int t = 0; t < model->tensor_count; t++)
		block_count += model->tensors[t].layer == 0 ? model->tensors[t].count : 0;
	arena_bytes = min_i64(arena_bytes, round_up(14 * model->parameter_count, 512));
	if (o->device_budget_bytes > 0)
		arena_bytes = min_i64(arena_bytes, o->device_budget_bytes);
	if (speed->host_computes && host_bytes)
		arena_bytes = min_i64(arena_bytes, host_bytes);
	m.arena_bytes = arena_bytes;
	m.elements = min_i64(ELEMENTS, round_up(model->parameter_count, ADAMW_BLOCK));
	m.chunk_count = WORKER_CHUNKS * pool_worker_count(o->pool);
	m.chunk_count = min_i64(m.chunk_count > CHUNKS_MIN ? m.chunk_count : CHUNKS_MIN,
	        (model->parameter_count + SUMSQ_BLOCK - 1) / SUMSQ_BLOCK);
	if (host_bytes)
		m.chunk_count = min_i64(m.chunk_count, host_bytes / CHUNK_BYTES);
	if (m.arena_bytes < ARENA_BYTES_MIN || !m.chunk_count)
		return err_set(ERR_FIT, "too little memory to measure");
	adamw_step_init(&m.step, &o->adamw, 1e-5, 1, 1);
	rc = device_arena_open(o->device, &m.arena, m.arena_bytes);
	if (rc)
		return rc;
	rc = slab_take(&m);
	if (!rc)
		rc = streams_take(&m);
	if (!rc)
		rc = rates_find(speed, &m, 2 * block_count);
	for (int q = 0; q < QUEUE_COUNT; q++)
		stream_close(m.streams[q]);
	if (m.slab)
		device_slab_close(o->device, m.slab);
	device_arena_close(o->device);
	return rc;
}

int measure_speed(struct device_speed *speed, const struct engine_options *o, int64_t host_bytes)
{
	int64_t most_bytes = speed->host_computes ? SAMPLE_BYTES_HOST : SAMPLE_BYTES;
	int rc = speed->host_computes ? 0 : measure_overheads(speed, o, host_bytes / 2);

	if (!rc)
		rc = passes_measure(speed, o, host_bytes / 2);
	if (o->device_budget_bytes > 0)
		most_bytes = min_i64(most_bytes, o->device_budget_bytes);
	if (speed->host_computes && host_bytes)
		most_bytes = min_i64(most_bytes, host_bytes / 2);
	if (!rc)
		rc = measure_attention(speed, o, most_bytes);
	return rc ? rc : measure_block(speed, o, most_bytes);
}
