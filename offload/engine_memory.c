/* What an engine's plans take: memory, and traffic between ranks. */
#include "offload/engine.h"

#include "offload/engine_parts.h"

/* Bytes of this rank's planes in a checkpoint, without scales. */
static int64_t saved_bytes(const struct engine *e)
{
	enum adamw_state state = e->options.policy.state;
	int64_t bytes = 0;

	for (int u = 0; u < e->map->unit_count; u++)
		for (int p = 0; p < PLANE_SAVED_COUNT; p++)
			if (unit_planes(&e->map->units[u], state) & ~(unsigned)PLANES_SCALE & 1u << p)
				bytes += plane_bytes((enum plane)p, state, e->map->units[u].shard_count);
	return bytes;
}

void engine_get_memory(const struct engine *e, struct engine_memory *m)
{
	const struct plan *train = e->plans[PLAN_TRAIN];
	const struct plan *p = engine_any_plan(e);
	int64_t slab_bytes[2];

	*m = (struct engine_memory){
	        .device_bytes = e->space_bytes[SPACE_DEVICE],
	        .staging_bytes = e->space_bytes[SPACE_STAGING],
	        .rows_bytes = e->options.rows_bytes,
	        .side_bytes = e->options.side_bytes,
	        .scratch_bytes = e->options.scratch_bytes,
	        .h2d_bytes = train ? train->h2d_bytes : p->h2d_bytes,
	        .d2h_bytes = train ? train->d2h_bytes : p->d2h_bytes,
	};
	if (e->streamed_bytes)
		m->spared_bytes = e->streamed_bytes - m->h2d_bytes - m->d2h_bytes;
	plan_residency_get(p, &m->resident_weights, &m->resident_states);
	m->kept_blocks = e->options.policy.kept_blocks;
	m->hosted_blocks = plan_hosted_blocks(p);
	m->kept_level = e->options.policy.kept_level;
	m->hosted_level = e->options.policy.hosted_level;
	if (train)
		m->state_bytes = saved_bytes(e);
	store_bytes_of(slab_bytes, p, e->options.crossing);
	m->store_bytes = slab_bytes[SLAB_PAGEABLE] + slab_bytes[SLAB_PINNED];
	m->pinned_bytes = e->options.crossing == SLAB_PINNED ? m->staging_bytes + slab_bytes[SLAB_PINNED] : 0;
}

void engine_get_traffic(const struct engine *e, struct plan_traffic *traffic)
{
	struct comm_group shards, same;
	struct comm_links of_shards, of_same;

	plan_groups_find(&shards, &same, e->options.rank, e->options.world_size, e->map->shard_ranks);
	device_get_links(e->options.device, &of_shards, &shards);
	device_get_links(e->options.device, &of_same, &same);
	plan_traffic_find(traffic, e->plans[PLAN_TRAIN], &of_shards, &of_same);
}
