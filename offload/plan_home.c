/* Decides the home of each plane of each unit: one table. */
#include "base/err.h"
#include "offload/plan_parts.h"

/* Whose home a plane shares. WEIGHTS: the host's if weights or optimizer state live there, so that an update
 * need not fetch them; resident weights are then a copy. */
enum with { WITH_NONE, WITH_PARAMS, WITH_WEIGHTS, WITH_OPTIMIZER, WITH_GRADIENT };

/* Kinds of units, and of planes: weights that stages read, the rest of fp32, optimizer state, gradient. */
enum unit_kind { UNIT_INFERENCE, UNIT_FROZEN, UNIT_TRAINED, UNIT_KINDS };
enum plane_kind { PLANE_READ, PLANE_REST, PLANE_STATE, PLANE_SUM, PLANE_KINDS };

static const enum with rules[UNIT_KINDS][PLANE_KINDS] = {
        [UNIT_INFERENCE] = {[PLANE_READ] = WITH_PARAMS},
        [UNIT_FROZEN] = {[PLANE_READ] = WITH_PARAMS, [PLANE_REST] = WITH_WEIGHTS},
        [UNIT_TRAINED] = {[PLANE_READ] = WITH_WEIGHTS,
                [PLANE_REST] = WITH_OPTIMIZER,
                [PLANE_STATE] = WITH_OPTIMIZER,
                [PLANE_SUM] = WITH_GRADIENT},
};

static enum plane_kind kind_of(const struct plan_policy *o, enum unit_kind unit, enum plane plane)
{
	if (plane == PLANE_GRADIENT)
		return PLANE_SUM;
	if (!plane_is_in(plane, PLANES_WEIGHT | PLANES_CODED))
		return PLANE_STATE;
	/* an update writes LO where it runs, even if stages read it */
	return plane == PLANE_LO && (unit == UNIT_TRAINED || !plan_reads_lo(o)) ? PLANE_REST : PLANE_READ;
}

/* Whether a unit has the plane at all. Gradients of rows are spread over a gradient of the whole table. */
static int has_plane(
        const struct plan_policy *o, const struct unit *unit, const struct unit_home *h, enum plane plane)
{
	int sums = o->order == ORDER_MICRO_BATCH_MAJOR && o->micro_batches > 1;
	int spreads = unit->row_count && h->gradient == HOME_HOST && h->optimizer == HOME_HOST;

	if (plane == PLANE_GRADIENT)
		return !o->update_in_backward || sums || spreads;
	return plane_is_in(plane, unit_planes(unit, o->state));
}

static enum home home_of(const struct unit_home *h, const struct plan_policy *o, enum with with)
{
	switch (with) {
	case WITH_NONE:
		break;
	case WITH_PARAMS:
		return h->params;
	case WITH_WEIGHTS:
		return h->params == HOME_DEVICE && !o->inference ? h->optimizer : h->params;
	case WITH_OPTIMIZER:
		return h->optimizer;
	case WITH_GRADIENT:
		return h->gradient;
	}
	return HOME_NONE;
}

static enum plan_space space_of(enum home home)
{
	return home == HOME_DEVICE ? SPACE_DEVICE : SPACE_STORE;
}

static int plane_buffer(struct builder *b, enum plane plane, int u, enum plan_space space)
{
	const struct plan_policy *o = &b->p->policy;
	const struct unit *unit = &b->p->map->units[u];
	int64_t count = plane_is_in(plane, PLANES_CODED) ? unit_coded_shard_bytes(unit, plane)
	                                                 : plane_numbers(plane, o->state, unit->shard_count);

	return unit_buffer(
	        b, (enum buffer_kind)plane, space, LAYOUT_PERSISTENT, u, count, plan_plane_dtype(o, plane));
}

int plan_codes_cross(const struct builder *b, int u)
{
	const struct unit *unit = &b->p->map->units[u];

	return unit->trainable && unit->multiplied && !b->p->policy.inference &&
	       b->p->map->shard_ranks == 1 && b->units[u].home.optimizer != HOME_DEVICE;
}

static void home_add(struct builder *b, enum plane plane, int u)
{
	const struct plan_policy *o = &b->p->policy;
	const struct unit *unit = &b->p->map->units[u];
	const struct unit_home *h = &b->units[u].home;
	enum unit_kind kind = o->inference ? UNIT_INFERENCE : unit->trainable ? UNIT_TRAINED : UNIT_FROZEN;
	struct plane_state *s = &b->state.units[u].plane[plane];
	int is_weight = plane_is_in(plane, PLANES_WEIGHT | PLANES_CODED) &&
	                (plane != PLANE_LO || plan_reads_lo(o)) &&
	                (plane != PLANE_HI || !plan_codes_cross(b, u));

	*s = (struct plane_state){HOME_NONE, -1, -1};
	if (plane_is_in(plane, PLANES_CODED) && plan_codes_cross(b, u))
		s->home = h->optimizer;
	else if (has_plane(o, unit, h, plane))
		s->home = home_of(h, o, rules[kind][kind_of(o, kind, plane)]);
	if (s->home == HOME_NONE)
		return;
	s->buffer = plane_buffer(b, plane, u, space_of(s->home));
	if (is_weight && s->home != HOME_DEVICE && h->params == HOME_DEVICE)
		s->copy = plane_buffer(b, plane, u, SPACE_DEVICE);
}

void homes_add(struct builder *b)
{
	for (int plane = 0; plane < PLANE_COUNT; plane++)
		for (int u = 0; u < b->p->map->unit_count; u++)
			home_add(b, (enum plane)plane, u);
}

int homes_check(const struct plan_policy *o)
{
	const enum home homes[] = {o->offload_params, o->offload_gradients, o->offload_optimizer};
	static const char *const names[] = {"weights", "gradients", "optimizer state"};

	for (int i = 0; i < 3; i++) {
		if (homes[i] == HOME_DISK)
			return err_set(ERR_UNSUPPORTED,
			        "plan: %s on a disk are not supported yet; supported: device, host",
			        names[i]);
		if (homes[i] != HOME_DEVICE && homes[i] != HOME_HOST)
			return err_set(ERR_RANGE, "plan: home %d of %s", (int)homes[i], names[i]);
	}
	return 0;
}

int plan_host_buffer(const struct plan_state *s, int u, enum plane plane)
{
	const struct plane_state *p = &s->units[u].plane[plane];

	return p->home == HOME_DEVICE ? -1 : p->buffer;
}

int plan_device_buffer(const struct plan_state *s, int u, enum plane plane)
{
	const struct plane_state *p = &s->units[u].plane[plane];

	return p->home == HOME_DEVICE ? p->buffer : p->copy;
}
