/* How many bytes a rank sends in a collective, within its node and beyond. */
#include "device/comm_cost.h"

#include <string.h>

int comm_node(const struct comm_group *g, int rank, int ranks_per_node)
{
	return (g->first + rank * g->stride) / ranks_per_node;
}

void comm_links_find(
        struct comm_links *l, const struct comm_group *g, int ranks_per_node, enum comm_algorithm algorithm)
{
	*l = (struct comm_links){.algorithm = algorithm,
	        .rank = g->rank,
	        .size = g->size,
	        .ranks_per_node = ranks_per_node > 0 ? ranks_per_node : g->world_size};
	for (int i = 0; i < g->size; i++) {
		int node = comm_node(g, i, l->ranks_per_node);

		l->local += node == comm_node(g, g->rank, l->ranks_per_node);
		l->crossings += node != comm_node(g, (i + 1) % g->size, l->ranks_per_node);
	}
}

/* How often the buffer goes around. */
static int rounds_of(enum comm_kind kind)
{
	return kind == COMM_ALL_REDUCE ? 2 : 1;
}

/* A broadcast sends the whole buffer along the ring. The last rank sends nothing; this is ignored. */
static void ring_traffic(
        struct comm_traffic *t, enum comm_kind kind, int64_t bytes, const struct comm_links *l)
{
	double part = kind == COMM_BROADCAST ? 1 : (double)(l->size - 1) / l->size;
	double sent = (double)bytes * part * rounds_of(kind);
	int hops = (l->size - 1) * rounds_of(kind), crossings = l->crossings;

	t->network_bytes = (int64_t)(sent * crossings / l->size);
	t->node_bytes = (int64_t)sent - t->network_bytes;
	t->network_hops = crossings ? (crossings - 1) * rounds_of(kind) : 0;
	t->node_hops = hops - t->network_hops;
}

/* Elements of a part of the buffer. All parts are equal, but the last ones may be shorter or empty. */
static int64_t part_length(int64_t count, int part, int parts)
{
	int64_t each = (count + parts - 1) / parts, first = part * each, left = count - first;

	return left < 0 ? 0 : left < each ? left : each;
}

/* To every other rank its part, and to every other rank one's own. */
static void direct_traffic(struct comm_traffic *t, enum comm_kind kind, int64_t bytes, int64_t element_bytes,
        const struct comm_links *l)
{
	int64_t own = part_length(bytes / element_bytes, l->rank, l->size) * element_bytes;
	int away = l->size - l->local, rounds = rounds_of(kind);

	/* a rank sends parts of other ranks too; they count as long as its own */
	t->node_bytes = rounds * (l->local - 1) * own;
	t->network_bytes = rounds * away * own;
	t->node_hops = l->local > 1 ? rounds : 0;
	t->network_hops = away ? rounds : 0;
}

void comm_traffic_find(struct comm_traffic *t, enum comm_kind kind, int64_t bytes, int64_t element_bytes,
        const struct comm_links *l)
{
	memset(t, 0, sizeof(*t));
	if (l->size == 1)
		return;
	if (l->algorithm == COMM_RING)
		ring_traffic(t, kind, bytes, l);
	else
		direct_traffic(t, kind, bytes, element_bytes, l);
}
