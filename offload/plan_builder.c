/* What all files that list operations share: visits, buffers of units, units of stages. */
#include "model/blocks/blocks.h"
#include "offload/plan_parts.h"

/* A pass is one walk forward and backward over the model's groups: mostly visits to embed, block 0 .. L-1,
 * head, block L-1 .. 0, embed. In layer-major order one pass has all micro-batches, and each visit loops over
 * them. In micro-batch- major order each micro-batch has its own pass. A unit's weights are on the device for
 * intervals of visits (plan_weights.c). */
int visit_group(const struct builder *b, int v)
{
	return v < b->group_count ? v : 2 * (b->group_count - 1) - v;
}

int group_first(const struct builder *b, int g)
{
	return b->model->groups[g].first_stage;
}

int group_end(const struct builder *b, int g)
{
	return b->model->groups[g].first_stage + b->model->groups[g].count;
}

/* Of the group's activations, those of a level other than ACTS_ALL. */
static int64_t level_bytes(const struct builder *b, int g, enum acts_level level)
{
	const struct plan_policy *o = &b->p->policy;
	const struct model_group *group = &b->model->groups[g];

	return group->first == group->last
	               ? model_kept_bytes(b->model, g, level, o->compute_dtype, o->max_tokens)
	               : 0;
}

static int group_keeps(const struct builder *b, int g)
{
	const struct plan_policy *o = &b->p->policy;
	int first = b->model->groups[g].first, place = b->model->groups[g].place,
	    head = b->model->groups[b->group_count - 1].place;

	return b->p->kind == PLAN_TRAIN && first >= b->train_group &&
	       (o->activations == ACTIVATION_KEEP || place >= head - o->kept_blocks);
}

/* Blocks that backward reaches and that do not keep their activations have places from 0 on. Those that host
 * them are spread evenly, so that copies of one run beside the work of several. */
static int group_hosts(const struct builder *b, int g)
{
	const struct model_group *group = &b->model->groups[g];
	int64_t hosted = b->p->policy.hosted_blocks, place, all;
	int first = 0, end = b->group_count - 1;

	if (!hosted || b->p->kind != PLAN_TRAIN || group->layer < 0 || group->first != group->last ||
	        group->first < b->train_group || group_keeps(b, g))
		return 0;
	while (first < b->train_group || b->model->groups[first].layer < 0)
		first++;
	while (b->model->groups[end - 1].layer < 0 || group_keeps(b, end - 1))
		end--;
	place = group->place - b->model->groups[first].place;
	all = b->model->groups[end - 1].place - b->model->groups[first].place + 1;
	return hosted >= all || place * hosted % all < hosted;
}

void group_acts_find(struct builder *b)
{
	const struct plan_policy *o = &b->p->policy;

	for (int g = 0; g < b->group_count; g++) {
		struct group_acts *a = &b->group_acts[g];

		a->is_kept = group_keeps(b, g);
		a->is_hosted = group_hosts(b, g);
		a->level = a->is_hosted ? o->hosted_level : a->is_kept ? o->kept_level : ACTS_ALL;
		a->bytes = model_acts_bytes(b->model, g, o->compute_dtype, o->max_tokens);
		a->held_bytes = a->kept_bytes = a->level ? level_bytes(b, g, a->level) : 0;
		if (a->level && !a->kept_bytes) /* it has nothing that the level keeps */
			a->is_kept = a->is_hosted = a->level = 0;
		else if (!a->level && (a->is_kept || a->is_hosted))
			a->held_bytes = a->bytes;
	}
}

/* Whether the visit's backward begins with forward of some stages again. These belong to the first of the
 * groups that share activations, because the others leave none. */
int group_recomputes(const struct builder *b, int v, int *first, int *end)
{
	int g = visit_group(b, v), from = b->model->groups[g].first;

	*first = group_first(b, from);
	*end = group_end(b, from);
	return visit_is_backward(b, v) && g == b->model->groups[g].last &&
	       ((!b->group_acts[g].is_kept && !b->group_acts[g].is_hosted) || b->group_acts[g].level);
}

int visit_is_backward(const struct builder *b, int v)
{
	return v >= b->group_count;
}

int device_buffer(
        struct builder *b, enum buffer_kind kind, enum layout_class layout, int64_t bytes, int micro)
{
	int n = plan_add_buffer(b->p, kind, SPACE_DEVICE, layout, bytes);

	if (n >= 0)
		b->p->buffers[n].micro = micro;
	return n;
}

/* A buffer for a whole unit or for one rank's shard of it. */
int unit_buffer(struct builder *b, enum buffer_kind kind, enum plan_space space, enum layout_class layout,
        int u, int64_t count, enum dtype dtype)
{
	int n = plan_add_buffer(b->p, kind, space, layout, count * dtype_bytes(dtype));

	if (n >= 0) {
		b->p->buffers[n].unit = u;
		b->p->buffers[n].dtype = dtype;
	}
	return n;
}

int whole_buffer(struct builder *b, enum buffer_kind kind, enum layout_class layout, int u, enum dtype dtype)
{
	return unit_buffer(b, kind, SPACE_DEVICE, layout, u, b->p->map->units[u].count, dtype);
}

/* POST returns 0 too: it lists transfers after the compute of the visit before. */
int visit_distance(const struct builder *b, int v)
{
	const struct plan_policy *o = &b->p->policy;

	if (!visit_is_backward(b, v))
		return o->forward_prefetch ? o->prefetch_units : 0;
	return o->backward_prefetch == BACKWARD_PREFETCH_PRE ? o->prefetch_units : 0;
}

int stage_units(const struct builder *b, int s, enum stage_tensors which, int *units)
{
	const struct model_stage *stage = &b->model->stages[s];
	int count = 0;

	for (int i = 0; i < stage->tensor_count; i++) {
		int u = unit_map_stage_piece(b->p->map, s, stage->tensor[i])->unit;
		int seen = which == STAGE_TRAINED && !b->p->map->units[u].trainable;

		for (int j = 0; j < count; j++)
			seen |= units[j] == u;
		if (!seen)
			units[count++] = u;
	}
	return count;
}
