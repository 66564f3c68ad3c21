/* Lists the operations on a unit's gradient within a pass, up to the place where its UPDATE finds it. */
#include "base/err.h"
#include "base/mem.h"
#include "offload/plan_parts.h"

/* The running gradient is a unit's fp32 gradient during a pass. Each stage's first micro-batch writes it, the
 * others add to it. Once whole it is closed: reduced over ranks, rounded to gradient_dtype, its squares
 * summed, and brought to the UPDATE.
 *
 * gradients_open runs before the first use in a pass. Products of the first micro-batch overwrite their
 * tensors; the rest is zeroed here. */
void gradients_open(struct builder *b, int s)
{
	struct plan *p = b->p;
	int units[STAGE_TENSORS_MAX];
	int count = stage_units(b, s, STAGE_TRAINED, units);

	for (int i = 0; i < count; i++) {
		int u = units[i], home = plan_device_buffer(&b->state, u, PLANE_GRADIENT);
		int in_place = home >= 0 && p->map->shard_ranks == 1 &&
		               plan_gradient_home_dtype(&p->policy) == DTYPE_F32 &&
		               (p->policy.order == ORDER_LAYER_MAJOR || p->policy.micro_batches == 1);

		if (b->units[u].gradient >= 0 || row_gradients_cross(b, u))
			continue;
		b->units[u].gradient =
		        in_place ? home : whole_buffer(b, BUFFER_GRADIENTS, LAYOUT_WEIGHT, u, DTYPE_F32);
		plan_add_op(p, PLAN_OP_ZERO, QUEUE_COMPUTE, u, -1, -1);
		plan_add_arg(p, ARG_DST, b->units[u].gradient, ACCESS_WRITE);
	}
}

void gradients_arg(struct builder *b, int s)
{
	int units[STAGE_TENSORS_MAX];
	int count = stage_units(b, s, STAGE_TRAINED, units);
	struct plan_op *op = &b->p->ops[b->p->op_count - 1];

	op->first = op->micro == b->first_micro;
	for (int i = 0; i < count; i++)
		if (row_gradients_cross(b, units[i]))
			row_gradient_add(b, units[i]);
		else
			plan_add_arg(b->p, ARG_GRADIENT, b->units[units[i]].gradient, ACCESS_BOTH);
}

int gradient_last_find(struct builder *b)
{
	mem_free(b->closes);
	b->closes = mem_alloc((size_t)b->visit_count + 1, sizeof(*b->closes));
	if (!b->closes)
		return ERR_NOMEM;
	for (int v = b->group_count - 1; v < b->visit_count; v++) {
		int g = visit_group(b, v), units[STAGE_TENSORS_MAX];

		for (int s = group_first(b, g); s < group_end(b, g); s++) {
			int count = stage_units(b, s, STAGE_TRAINED, units);

			for (int i = 0; i < count; i++)
				b->units[units[i]].gradient_last = v;
		}
	}
	for (int v = 0; v < b->visit_count; v++)
		b->closes[v] = -1;
	for (int u = 0; u < b->p->map->unit_count; u++) {
		int v = b->units[u].gradient_last;

		if (v < 0)
			continue;
		b->units[u].closes_next = b->closes[v];
		b->closes[v] = u;
	}
	return 0;
}

/* The highest unit whose gradient is whole after the visit; -1: none. */
static int closes_first(const struct builder *b, int v)
{
	return v >= 0 && v < b->visit_count ? b->closes[v] : -1;
}

static int add_gradient_op(
        struct builder *b, enum plan_op_kind kind, enum queue_kind queue, int u, int src, int dst)
{
	int op = plan_add_op(b->p, kind, queue, u, -1, -1);

	plan_add_arg(b->p, ARG_SRC, src, ACCESS_READ);
	plan_add_arg(b->p, ARG_DST, dst, ACCESS_WRITE);
	return op;
}

static void add_sumsq(struct builder *b, int u, int gradient)
{
	plan_add_op(b->p, PLAN_OP_SUMSQ, QUEUE_COMM, u, -1, -1);
	plan_add_arg(b->p, ARG_SRC, gradient, ACCESS_READ);
	plan_add_arg(b->p, ARG_NORM, b->state.norm, ACCESS_BOTH);
}

static void add_round(struct builder *b, int u, int gradient, int rounded)
{
	add_gradient_op(b, PLAN_OP_ROUND, QUEUE_COMM, u, gradient, rounded);
	plan_add_arg(b->p, ARG_NORM, b->state.norm, ACCESS_BOTH);
}

static int shard_buffer(
        struct builder *b, enum buffer_kind kind, enum layout_class layout, int u, enum dtype dtype)
{
	return unit_buffer(b, kind, SPACE_DEVICE, layout, u, b->p->map->units[u].shard_count, dtype);
}

/* Sums the running gradient over ranks: this rank's shard over the ranks that share the unit, then over the
 * replicas. */
static void gradient_reduce(struct builder *b, int u)
{
	struct plan *p = b->p;
	int many = p->map->shard_ranks > 1 || p->policy.replicas > 1;

	if (many && p->policy.reduce_dtype != DTYPE_F32) {
		int narrow =
		        whole_buffer(b, BUFFER_REDUCED_GRADIENTS, LAYOUT_STREAM, u, p->policy.reduce_dtype);

		add_gradient_op(b, PLAN_OP_NARROW, QUEUE_COMM, u, b->units[u].gradient, narrow);
		b->units[u].gradient = narrow;
	}
	plan_add_op(p, PLAN_OP_SCATTER, QUEUE_COMM, u, -1, -1);
	plan_add_arg(p, ARG_DST, b->units[u].gradient, ACCESS_BOTH);
	if (p->policy.replicas <= 1)
		return;
	plan_add_op(p, PLAN_OP_REDUCE, QUEUE_COMM, u, -1, -1);
	plan_add_arg(p, ARG_DST, b->units[u].gradient, ACCESS_BOTH);
}

/* Converts this rank's shard to the dtype and moves it to its home, if it has one. Returns its buffer. */
static int gradient_settle(struct builder *b, int u, enum dtype dtype, int home)
{
	int gradient = b->units[u].gradient, settled = home;
	int is_cast = gradient >= 0 && b->p->buffers[gradient].dtype != dtype;

	if (home == gradient || (home < 0 && !is_cast))
		return gradient;
	if (home < 0)
		settled = shard_buffer(b, BUFFER_ROUNDED_GRADIENTS, LAYOUT_STREAM, u, dtype);
	add_gradient_op(b, is_cast ? PLAN_OP_CAST : PLAN_OP_COPY, QUEUE_COMM, u, gradient, settled);
	return settled;
}

/* Rounds the gradient to gradient_dtype and sums the squares of the rounded values. Returns its buffer. */
static int gradient_round(struct builder *b, int u, int home)
{
	enum dtype dtype = b->p->policy.gradient_dtype;
	int gradient = b->units[u].gradient, rounded;

	if (dtype != DTYPE_F32 && gradient >= 0 && b->p->buffers[gradient].dtype == DTYPE_F32) {
		rounded =
		        home >= 0 ? home : shard_buffer(b, BUFFER_ROUNDED_GRADIENTS, LAYOUT_STREAM, u, dtype);
		add_round(b, u, gradient, rounded);
		return rounded;
	}
	rounded = gradient_settle(b, u, dtype, home);
	add_sumsq(b, u, rounded);
	return rounded;
}

/* Returns a gradient to the host. A ring has two places: a returned gradient keeps its bytes until the next
 * is listed. So a copy need not wait for the CPU's work on the one before, and the device need not wait for
 * the copy. */
static int gradient_return(struct builder *b, int u, int src, int dst)
{
	struct plan *p = b->p;
	int is_ring = dst < 0;

	if (is_ring)
		dst = unit_buffer(b, BUFFER_GRADIENT_RING, SPACE_STAGING, LAYOUT_WEIGHT, u,
		        p->map->units[u].shard_count, p->buffers[src].dtype);
	add_gradient_op(b, PLAN_OP_RETURN, QUEUE_D2H, u, src, dst);
	p->d2h_bytes += p->buffers[dst].bytes;
	if (is_ring) {
		plan_hold_buffer(p, b->ring_last);
		b->ring_last = dst;
	}
	return dst;
}

static void add_finish(struct builder *b, int u, int home)
{
	plan_add_op(b->p, PLAN_OP_FINISH, QUEUE_CPU, u, -1, -1);
	plan_add_arg(b->p, ARG_DST, home, ACCESS_BOTH);
	plan_add_arg(b->p, ARG_NORM, b->state.norm_sums, ACCESS_BOTH);
}

/* Adds the gradient of one of several passes to an fp32 plane, on the side where gradients live. Rounds the
 * sum after the last pass. */
static int gradient_close_part(struct builder *b, int u, int m)
{
	struct plan *p = b->p;
	const struct plan_policy *o = &p->policy;
	int host = plan_host_buffer(&b->state, u, PLANE_GRADIENT),
	    device = plan_device_buffer(&b->state, u, PLANE_GRADIENT);
	int on_host = host >= 0, home = on_host ? host : device;
	int sum = gradient_settle(b, u, DTYPE_F32, -1), part = on_host ? gradient_return(b, u, sum, -1) : sum;
	int op = plan_add_op(p, PLAN_OP_ACCUMULATE, on_host ? QUEUE_CPU : QUEUE_COMM, u, -1, m);

	plan_add_arg(p, ARG_SRC, part, ACCESS_READ);
	plan_add_arg(p, ARG_DST, home, m ? ACCESS_BOTH : ACCESS_WRITE);
	if (op >= 0)
		p->ops[op].first = m == 0;
	if (m + 1 < o->micro_batches)
		return -1;
	if (on_host) {
		add_finish(b, u, home);
	} else if (o->gradient_dtype != plan_gradient_home_dtype(o)) {
		int rounded = shard_buffer(b, BUFFER_ROUNDED_GRADIENTS, LAYOUT_STREAM, u, o->gradient_dtype);

		add_round(b, u, home, rounded);
		add_gradient_op(b, PLAN_OP_CAST, QUEUE_COMM, u, rounded, home);
	} else {
		add_sumsq(b, u, home);
	}
	return home;
}

static void gradient_ready(struct builder *b, int u, int gradient)
{
	if (!b->p->policy.update_in_backward)
		return;
	b->units[u].ready = gradient;
	b->units[u].ready_since = b->now;
}

/* The second half of a close. Keeps the running gradient's bytes up to here. */
static void gradient_leave(struct builder *b, int u)
{
	int host = plan_host_buffer(&b->state, u, PLANE_GRADIENT),
	    device = plan_device_buffer(&b->state, u, PLANE_GRADIENT);
	int rounded = b->units[u].rounded;

	plan_hold_buffer(b->p, b->units[u].running);
	if (host >= 0 || (device < 0 && plan_updates_on_host(&b->state, u)))
		rounded = gradient_return(b, u, rounded, host);
	gradient_ready(b, u, rounded);
	b->units[u].rounded = -1;
}

/* The first half of a close, if the pass has all micro-batches, so that the gradient is whole. */
static void gradient_close_whole(struct builder *b, int u)
{
	b->units[u].running = b->units[u].gradient;
	b->units[u].rounded = gradient_round(b, u, plan_device_buffer(&b->state, u, PLANE_GRADIENT));
}

/* Gradients of rows are sums on the host, which wait for their copies alone. */
static void rows_close(struct builder *b, int u, int m0, int m1)
{
	int home = plan_host_buffer(&b->state, u, PLANE_GRADIENT), micros = b->p->policy.micro_batches;

	row_gradients_spread(b, u, m0, m1);
	if (m1 == micros && m1 - m0 < micros)
		add_finish(b, u, home);
	gradient_ready(b, u, m1 == micros ? home : -1);
}

static void gradient_close(struct builder *b, int u, int m, int whole, int late)
{
	gradient_reduce(b, u);
	if (whole)
		gradient_close_whole(b, u);
	else
		gradient_ready(b, u, gradient_close_part(b, u, m));
	b->units[u].gradient = -1;
	if (whole && !late)
		gradient_leave(b, u);
}

/* Units of a visit are closed from the last one on. */
void gradients_close(struct builder *b, int m0, int m1)
{
	struct plan *p = b->p;
	int late = p->policy.backward_prefetch != BACKWARD_PREFETCH_NONE;
	int whole = m1 - m0 == p->policy.micro_batches;
	int v = b->now - (late && !whole);

	for (int u = late ? closes_first(b, v - 1) : -1; u >= 0; u = b->units[u].closes_next)
		if (b->units[u].rounded >= 0)
			gradient_leave(b, u);
	for (int now = closes_first(b, b->now), at = closes_first(b, v); now >= 0 || at >= 0;) {
		int u = now > at ? now : at;

		if (u == now && row_gradients_cross(b, u))
			rows_close(b, u, m0, m1);
		if (u == at && b->units[u].gradient >= 0)
			gradient_close(b, u, m0, whole, late);
		now = u == now ? b->units[u].closes_next : now;
		at = u == at ? b->units[u].closes_next : at;
	}
}

/* Lists UPDATEs inside backward one visit after their gradients were returned, so that the ring has two
 * places in use. Refreshes resident weights one visit later still, so that fetches that need not wait for the
 * UPDATE come before the copy. */
void updates_emit(struct builder *b)
{
	for (int u = b->p->policy.update_in_backward ? b->p->map->unit_count - 1 : -1; u >= 0; u--) {
		if (b->units[u].stale_since >= 0 && b->units[u].stale_since < b->now) {
			plan_add_refresh(b->p, &b->state, u, 0);
			b->units[u].stale_since = -1;
		}
		if (b->units[u].ready >= 0 && b->units[u].ready_since < b->now) {
			plan_add_update(b->p, &b->state, u, b->units[u].ready);
			b->units[u].ready = -1;
			b->units[u].stale_since = b->now;
		}
	}
}
