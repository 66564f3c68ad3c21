/* Lists the updates: from a unit's gradient to its new planes. */
#include "offload/plan_parts.h"

/* AdamW runs where the optimizer state lives. Planes that it needs from the other side come through a ring of
 * two: the transfers of a unit are listed before the arithmetic of the unit before it. So their buffers live
 * at the same time and their work overlaps. */
enum dtype plan_gradient_home_dtype(const struct plan_policy *policy)
{
	return policy->order == ORDER_MICRO_BATCH_MAJOR && policy->micro_batches > 1 ? DTYPE_F32
	                                                                             : policy->gradient_dtype;
}

static void traffic_add(struct plan *p, enum queue_kind queue, int64_t bytes)
{
	if (queue == QUEUE_H2D)
		p->h2d_bytes += bytes;
	else
		p->d2h_bytes += bytes;
}

static void copy_add(struct plan *p, enum plan_op_kind kind, enum queue_kind queue, int unit, int dst,
        int src, int updates)
{
	int op = plan_add_op(p, kind, queue, unit, -1, -1);

	plan_add_arg(p, ARG_SRC, src, ACCESS_READ);
	plan_add_arg(p, ARG_DST, dst, ACCESS_WRITE);
	if (op >= 0 && src >= 0) {
		p->ops[op].updates = updates;
		traffic_add(p, queue, p->buffers[src].bytes);
	}
}

static int update_host(struct plan *p, const struct plan_state *s, int u, int gradient, int updates)
{
	int op = plan_add_op(p, PLAN_OP_UPDATE, QUEUE_CPU, u, -1, -1);

	plan_add_arg(p, ARG_SRC, gradient, ACCESS_READ);
	for (int plane = 0; plane < PLANE_SAVED_COUNT; plane++)
		plan_add_arg(p, plan_plane_role((enum plane)plane), plan_host_buffer(s, u, (enum plane)plane),
		        ACCESS_BOTH);
	for (int plane = PLANE_CODES; plane <= PLANE_CODE_SCALE; plane++)
		plan_add_arg(p, plan_plane_role((enum plane)plane), plan_host_buffer(s, u, (enum plane)plane),
		        ACCESS_WRITE);
	if (op >= 0)
		p->ops[op].updates = updates;
	return op;
}

int plan_updates_on_host(const struct plan_state *s, int u)
{
	return plan_host_buffer(s, u, PLANE_M) >= 0;
}

void plan_add_refresh(struct plan *p, const struct plan_state *s, int u, int updates)
{
	if (!plan_updates_on_host(s, u))
		return;
	for (int plane = 0; plane < PLANE_COUNT; plane++)
		if (plane_is_in((enum plane)plane, PLANES_WEIGHT | PLANES_CODED) &&
		        plan_device_buffer(s, u, (enum plane)plane) >= 0)
			copy_add(p, PLAN_OP_FETCH, QUEUE_H2D, u, plan_device_buffer(s, u, (enum plane)plane),
			        plan_host_buffer(s, u, (enum plane)plane), updates);
}

static void update_device(
        struct plan *p, const struct plan_state *s, int u, int hi, int gradient, int updates)
{
	int op = plan_add_op(p, PLAN_OP_UPDATE_DEVICE, QUEUE_COMPUTE, u, -1, -1);

	plan_add_arg(p, ARG_SRC, gradient, ACCESS_READ);
	for (int plane = 0; plane < PLANE_SAVED_COUNT; plane++)
		plan_add_arg(p, plan_plane_role((enum plane)plane),
		        plane == PLANE_HI ? hi : plan_device_buffer(s, u, (enum plane)plane), ACCESS_BOTH);
	if (op >= 0)
		p->ops[op].updates = updates;
}

/* A buffer in another space for a shard like that in buffer `like`. */
static int shard_temp(struct plan *p, enum buffer_kind kind, enum plan_space space, int like)
{
	int b = like < 0 ? -1 : plan_add_buffer(p, kind, space, LAYOUT_WEIGHT, p->buffers[like].bytes);

	if (b >= 0) {
		p->buffers[b].unit = p->buffers[like].unit;
		p->buffers[b].dtype = p->buffers[like].dtype;
	}
	return b;
}

/* Fetches hi from host memory for an update on the device. */
static int fetch_hi(struct plan *p, const struct plan_state *s, int u, int updates)
{
	int hi = shard_temp(p, BUFFER_UPDATE_HI, SPACE_DEVICE, plan_host_buffer(s, u, PLANE_HI));

	copy_add(p, PLAN_OP_FETCH, QUEUE_H2D, u, hi, plan_host_buffer(s, u, PLANE_HI), updates);
	return hi;
}

/* Brings the unit's gradient to the optimizer's side, through a ring if it is on the other side. */
static int gradient_bring(struct plan *p, const struct plan_state *s, int u, int gradient, int updates)
{
	int on_device = gradient >= 0 && p->buffers[gradient].space == SPACE_DEVICE, ring;

	if (gradient < 0 || on_device != plan_updates_on_host(s, u))
		return gradient;
	if (on_device) {
		ring = shard_temp(p, BUFFER_GRADIENT_RING, SPACE_STAGING, gradient);
		copy_add(p, PLAN_OP_RETURN, QUEUE_D2H, u, ring, gradient, updates);
	} else {
		ring = shard_temp(p, BUFFER_UPDATE_GRADIENT, SPACE_DEVICE, gradient);
		copy_add(p, PLAN_OP_FETCH, QUEUE_H2D, u, ring, gradient, updates);
	}
	return ring;
}

static void update_from(struct plan *p, const struct plan_state *s, int u, int gradient, int updates)
{
	if (plan_updates_on_host(s, u)) {
		update_host(p, s, u, gradient, updates);
		return;
	}
	int home = plan_device_buffer(s, u, PLANE_HI);
	int hi = home >= 0 ? home : fetch_hi(p, s, u, updates);

	update_device(p, s, u, hi, gradient, updates);
	if (home < 0)
		copy_add(p, PLAN_OP_RETURN, QUEUE_D2H, u, plan_host_buffer(s, u, PLANE_HI), hi, updates);
}

void plan_add_update(struct plan *p, const struct plan_state *s, int u, int gradient)
{
	update_from(p, s, u, gradient_bring(p, s, u, gradient, 0), 0);
}

/* The buffer with the gradient of the step before. */
static int gradient_home(const struct plan_state *s, int u)
{
	return plan_host_buffer(s, u, PLANE_GRADIENT) >= 0 ? plan_host_buffer(s, u, PLANE_GRADIENT)
	                                                   : plan_device_buffer(s, u, PLANE_GRADIENT);
}

/* Whether the update of unit u belongs to those on the host, or to those on the device. */
static int is_listed(const struct plan *p, const struct plan_state *s, int u, int on_host)
{
	return p->map->units[u].trainable && plan_updates_on_host(s, u) == on_host && !s->units[u].is_parted;
}

static int listed_next(const struct plan *p, const struct plan_state *s, int u, int on_host)
{
	do
		u++;
	while (u < p->map->unit_count && !is_listed(p, s, u, on_host));
	return u;
}

/* The gradient of unit u where AdamW wants it; -1 if there is no such unit. */
static int gradient_of(struct plan *p, const struct plan_state *s, int u)
{
	return u < p->map->unit_count ? gradient_bring(p, s, u, gradient_home(s, u), 1) : -1;
}

static void updates_open(struct plan *p, const struct plan_state *s, struct update_list *list, int on_host)
{
	*list = (struct update_list){.is_open = 1, .on_host = on_host};
	list->unit = listed_next(p, s, -1, on_host);
	list->gradient = gradient_of(p, s, list->unit);
}

static void updates_reach(struct plan *p, const struct plan_state *s, struct update_list *list, int last)
{
	while (list->unit <= last && list->unit < p->map->unit_count && !plan_parts_check(p)) {
		int u = list->unit, gradient = list->gradient;

		list->unit = listed_next(p, s, u, list->on_host);
		list->gradient = gradient_of(p, s, list->unit);
		update_from(p, s, u, gradient, 1);
		if (p->kind == PLAN_UPDATE)
			plan_add_refresh(p, s, u, 1);
	}
}

static void part_add(struct plan *p, const struct plan_state *s, int u, int part)
{
	int op = update_host(p, s, u, gradient_home(s, u), 1);

	if (op >= 0)
		p->ops[op].part = part;
}

void plan_add_first_part(struct plan *p, const struct plan_state *s, int u)
{
	part_add(p, s, u, 1);
}

void plan_add_updates(struct plan *p, struct plan_state *s, int last)
{
	if (!s->updates.is_open) {
		updates_open(p, s, &s->updates, 0);
		updates_reach(p, s, &s->updates, p->map->unit_count);
		updates_open(p, s, &s->updates, 1);
	}
	updates_reach(p, s, &s->updates, last);
	for (; last >= p->map->unit_count && s->updates.rest < p->map->unit_count; s->updates.rest++)
		if (s->units[s->updates.rest].is_parted)
			part_add(p, s, s->updates.rest, 2);
}
