/* Divides the cores of a host among its ranks. */
#include "host/topology.h"

#include "comm/launch.h"
#include "comm/world.h"
#include "host/topology_inner.h"

#include <string.h>

void topology_ranks_find(struct topology_ranks *ranks)
{
	const struct world *world = world_self();
	struct launch_local local;
	struct launch launch;

	if (world->size > 1) {
		launch_read(&launch);
		*ranks = (struct topology_ranks){world->local_rank, world->local_size, launch.program};
		return;
	}
	launch_read_local(&local);
	*ranks = (struct topology_ranks){local.rank, local.size, local.said};
}

static struct {
	int count, os_index[TOPOLOGY_RANKS_MAX];
} gpu_nodes;

void topology_set_rank_nodes(const int *os_index, int count)
{
	gpu_nodes.count = count <= TOPOLOGY_RANKS_MAX ? count : 0;
	for (int r = 0; r < gpu_nodes.count; r++)
		gpu_nodes.os_index[r] = os_index[r];
}

/* The end of the rank's cores, if ranks take runs of cores in order and runs differ by at most one core. */
static int run_end(int count, int size, int rank)
{
	return (int)((int64_t)count * (rank + 1) / size);
}

/* Finds the index of each rank's node. Returns 0 if one is unknown. */
static int rank_nodes(const struct topology *t, int *node)
{
	int known = 0;

	for (int r = 0; r < gpu_nodes.count; r++)
		for (int n = 0; n < t->machine.node_count && n < TOPOLOGY_NODES_MAX; n++)
			if (t->node[n].os_index == gpu_nodes.os_index[r]) {
				node[r] = n;
				known++;
			}
	return known && known == t->ranks.size && gpu_nodes.count == t->ranks.size;
}

/* Divides a node's cores evenly among the ranks with GPUs on the node. No rank gets more than left[rank]. */
static void near_take(const struct topology *t, const int *node, int n, int *left, int16_t *owner)
{
	int core_count = 0, rank_count = 0, taken = 0, at = 0;

	for (int i = 0; i < t->core_count; i++)
		core_count += t->core[i].node == n;
	for (int r = 0; r < t->ranks.size; r++)
		rank_count += node[r] == n;
	while (at < t->core_count && t->core[at].node != n)
		at++; /* cores are in order of nodes */
	for (int r = 0; r < t->ranks.size; r++) {
		int even;

		if (node[r] != n)
			continue;
		even = run_end(core_count, rank_count, taken) - run_end(core_count, rank_count, taken - 1);
		for (taken++; even > 0 && left[r] > 0; even--, left[r]--)
			owner[at++] = (int16_t)r;
	}
}

/* Gives each rank as many cores as without GPUs, but next to its GPU where possible. The other cores go to
 * ranks that lack some. All ranks compute the same result. Returns 0 if a GPU's node is unknown. */
static int share_near(struct topology *t)
{
	int node[TOPOLOGY_RANKS_MAX], left[TOPOLOGY_RANKS_MAX], size = t->ranks.size, kept = 0;
	int16_t owner[TOPOLOGY_CORES_MAX];

	if (!rank_nodes(t, node))
		return 0;
	for (int r = 0; r < size; r++)
		left[r] = run_end(t->core_count, size, r) - run_end(t->core_count, size, r - 1);
	memset(owner, 0xff, sizeof(owner));
	for (int n = 0; n < TOPOLOGY_NODES_MAX; n++)
		near_take(t, node, n, left, owner);
	for (int i = 0, r = 0; i < t->core_count; i++) {
		while (r < size && !left[r])
			r++;
		if (owner[i] < 0) {
			owner[i] = (int16_t)r;
			left[r]--;
		}
	}
	for (int i = 0; i < t->core_count; i++)
		if (owner[i] == t->ranks.rank)
			t->core[kept++] = t->core[i];
	t->core_count = t->thread_count = kept;
	t->share = TOPOLOGY_SHARE_NEAR;
	return 1;
}

void topology_share_cores(struct topology *t, int available_core_count)
{
	int count = t->core_count, size = t->ranks.size, rank = t->ranks.rank, first, end;

	t->share = TOPOLOGY_SHARE_ALL;
	if (size == 1)
		return;
	if (t->mask_is_narrow) {
		/* ranks per mask, if ranks are spread evenly over masks of this size */
		int together =
		        (int)(((int64_t)size * count + available_core_count / 2) / available_core_count);

		t->share = together > 1 ? TOPOLOGY_SHARE_TOGETHER : TOPOLOGY_SHARE_BOUND;
		t->thread_count = together > 1 ? count / together : count;
	} else if (count < size) {
		t->share = TOPOLOGY_SHARE_TOGETHER;
		t->thread_count = 1;
	} else if (!share_near(t)) {
		t->share = TOPOLOGY_SHARE_CUT;
		first = run_end(count, size, rank - 1);
		end = run_end(count, size, rank);
		t->core_count = t->thread_count = end - first;
		for (int i = first; i < end; i++)
			t->core[i - first] = t->core[i];
	}
	if (t->thread_count < 1)
		t->thread_count = 1;
}
