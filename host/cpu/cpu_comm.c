/* Collectives of the host device, made of exchanges between ranks. */
#include "base/mem.h"
#include "base/num.h"
#include "comm/link.h"
#include "host/cpu/cpu_device.h"

#include <assert.h>
#include <string.h>

enum {
	WINDOW = 8,             /* other ranks in one exchange of a gather */
	PIECES_COUNT = 1 << 20, /* elements of all ranks that are summed at once */
	PIECE_COUNT_MIN = 4096, /* elements of one rank, at least */
};

struct cpu_comm {
	struct comm base;
	struct link *link,
	        *host_link; /* for the stream's thread, for the owning thread; NULL: a single rank */
	struct comm_group group;
	int64_t piece_count;
	float *sum;              /* [piece_count] */
	void *pieces;            /* [size][piece_count] */
	struct link_part *parts; /* [2 * size] */
};

void cpu_comm_close(struct comm *comm)
{
	struct cpu_comm *c = (struct cpu_comm *)comm;

	link_close(c->link);
	link_close(c->host_link);
	mem_free(c->sum);
	mem_free(c->pieces);
	mem_free(c->parts);
	mem_free(c);
}

static int links_open(struct cpu_comm *c, const struct comm_group *group)
{
	int rc = link_open(&c->link, group->first, group->stride, group->size);

	if (!rc)
		rc = link_open(&c->host_link, group->first, group->stride, group->size);
	if (rc)
		return rc;
	link_name(c->host_link, "the sums of a step");
	c->piece_count = PIECES_COUNT / c->group.size;
	if (c->piece_count < PIECE_COUNT_MIN)
		c->piece_count = PIECE_COUNT_MIN;
	c->sum = mem_alloc((size_t)c->piece_count, sizeof(*c->sum));
	c->pieces = mem_alloc((size_t)c->piece_count * (size_t)c->group.size, sizeof(float));
	c->parts = mem_alloc((size_t)c->group.size, 2 * sizeof(*c->parts));
	return c->sum && c->pieces && c->parts ? 0 : ERR_NOMEM;
}

int cpu_comm_open(struct comm **comm, struct device *device, const struct comm_group *group)
{
	struct cpu_comm *c = mem_alloc(1, sizeof(*c));
	int rc;

	(void)device;
	if (!c)
		return ERR_NOMEM;
	c->group = *group;
	rc = group->size > 1 ? links_open(c, group) : 0;
	if (rc) {
		cpu_comm_close(&c->base);
		return err_note(rc, "host device");
	}
	*comm = &c->base;
	return 0;
}

int cpu_comm_sum_host(struct comm *comm, double *values, int count)
{
	struct cpu_comm *c = (struct cpu_comm *)comm;

	return c->host_link ? link_sum(c->host_link, values, count) : 0;
}

/* ---- parts of a buffer ---- */

/* A buffer in one part for each rank: its shards, or parts of one length; then the last ones may be shorter.
 */
struct layout {
	char *bytes;
	int64_t count, part_count; /* elements; part_count: of all parts but the last ones */
	int64_t element_bytes;
	enum dtype dtype;
};

static int64_t part_first(const struct layout *l, int rank)
{
	int64_t first = rank * l->part_count;

	return first < l->count ? first : l->count;
}

static int64_t part_length(const struct layout *l, int rank)
{
	return part_first(l, rank + 1) - part_first(l, rank);
}

static void part_add(struct cpu_comm *c, int *count, enum link_way way, int peer, void *values, int64_t bytes)
{
	c->parts[(*count)++] = (struct link_part){way, peer, values, bytes};
}

/* Exchanges parts, and counts the bytes sent within the node and to other nodes. */
static int parts_exchange(struct cpu_comm *c, int count)
{
	struct cpu_device *d = (struct cpu_device *)c->base.device;
	int ranks_per_node = c->base.links.ranks_per_node,
	    own = comm_node(&c->group, c->group.rank, ranks_per_node);
	int rc = link_exchange(c->link, c->parts, count);

	for (int i = 0; i < count && !rc; i++)
		if (c->parts[i].way == LINK_SEND)
			atomic_fetch_add_explicit(
			        comm_node(&c->group, c->parts[i].peer, ranks_per_node) == own
			                ? &d->sent_node_bytes
			                : &d->sent_network_bytes,
			        c->parts[i].bytes, memory_order_relaxed);
	return rc;
}

static void part_whole(
        struct cpu_comm *c, int *count, const struct layout *l, enum link_way way, int peer, int of)
{
	part_add(c, count, way, peer, l->bytes + part_first(l, of) * l->element_bytes,
	        part_length(l, of) * l->element_bytes);
}

/* Sends each rank's part to all ranks. Rank `except` (-1: none) has all parts already. */
static int gather(struct cpu_comm *c, const struct layout *l, int except)
{
	int rc = 0, count = 0;

	for (int step = 1; step < c->group.size && !rc; step++) {
		int to = (c->group.rank + step) % c->group.size,
		    from = (c->group.rank + c->group.size - step) % c->group.size;

		if (to != except)
			part_whole(c, &count, l, LINK_SEND, to, c->group.rank);
		if (c->group.rank != except)
			part_whole(c, &count, l, LINK_RECEIVE, from, from);
		if (step % WINDOW == 0 || step + 1 == c->group.size) {
			rc = parts_exchange(c, count);
			count = 0;
		}
	}
	return rc;
}

/* ---- sums ---- */

static void sum_add(float *sum, const void *values, int64_t count, enum dtype dtype)
{
	const float *f32 = values;
	const uint16_t *bf16 = values;

	if (dtype == DTYPE_F32)
		for (int64_t i = 0; i < count; i++)
			sum[i] += f32[i];
	else
		for (int64_t i = 0; i < count; i++)
			sum[i] += bf16_to_f32(bf16[i]);
}

static void sum_begin(float *sum, const void *values, int64_t count, enum dtype dtype)
{
	const uint16_t *bf16 = values;

	if (dtype == DTYPE_F32)
		memcpy(sum, values, (size_t)count * sizeof(*sum));
	else
		for (int64_t i = 0; i < count; i++)
			sum[i] = bf16_to_f32(bf16[i]);
}

static void sum_store(void *values, const float *sum, int64_t count, enum dtype dtype)
{
	uint16_t *bf16 = values;

	if (dtype == DTYPE_F32)
		memcpy(values, sum, (size_t)count * sizeof(*sum));
	else
		for (int64_t i = 0; i < count; i++)
			bf16[i] = bf16_from_f32(sum[i]);
}

/* Exchanges elements [at, at + piece_count) of every part: receives this rank's part from all ranks and sends
 * the other parts to theirs. */
static int piece_exchange(struct cpu_comm *c, const struct layout *l, int64_t at)
{
	int count = 0;

	for (int step = 1; step < c->group.size; step++)
		for (int way = LINK_SEND; way <= LINK_RECEIVE; way++) {
			int peer = (way == LINK_SEND ? c->group.rank + step
			                             : c->group.rank + c->group.size - step) %
			           c->group.size;
			int of = way == LINK_SEND ? peer : c->group.rank;
			int64_t left = part_length(l, of) - at, bytes;

			bytes = (left < c->piece_count ? left : c->piece_count) * l->element_bytes;
			if (left > 0)
				part_add(c, &count, (enum link_way)way, peer,
				        way == LINK_SEND
				                ? l->bytes + (part_first(l, of) + at) * l->element_bytes
				                : (char *)c->pieces +
				                          peer * c->piece_count * l->element_bytes,
				        bytes);
		}
	return parts_exchange(c, count);
}

static void piece_sum(struct cpu_comm *c, const struct layout *l, int64_t at)
{
	int64_t left = part_length(l, c->group.rank) - at,
	        count = left < c->piece_count ? left : c->piece_count;
	char *own = l->bytes + (part_first(l, c->group.rank) + at) * l->element_bytes;

	if (count <= 0)
		return;
	for (int r = 0; r < c->group.size; r++) {
		const void *values =
		        r == c->group.rank ? own : (char *)c->pieces + r * c->piece_count * l->element_bytes;

		(r ? sum_add : sum_begin)(c->sum, values, count, l->dtype);
	}
	sum_store(own, c->sum, count, l->dtype);
}

/* Afterwards part `rank` is the sum over ranks; the others are unchanged. One rank sums each part, in fp32
 * and in the order of ranks, so all ranks get the same bits every time. */
static int reduce(struct cpu_comm *c, const struct layout *l)
{
	int rc = 0;

	for (int64_t at = 0; at < l->part_count && !rc; at += c->piece_count) {
		rc = piece_exchange(c, l, at);
		if (!rc)
			piece_sum(c, l, at);
	}
	return rc;
}

/* ---- collectives ---- */

/* The root sends each rank its part; each rank sends its part to all. So every link carries the buffer twice.
 * If the root sent the whole buffer to each rank, its link would carry it `size` times. */
static int broadcast(struct cpu_comm *c, const struct layout *l, int root)
{
	int count = 0, rc;

	if (c->group.rank == root)
		for (int r = 0; r < c->group.size; r++) {
			if (r != root)
				part_whole(c, &count, l, LINK_SEND, r, r);
		}
	else
		part_whole(c, &count, l, LINK_RECEIVE, root, c->group.rank);
	rc = parts_exchange(c, count);
	return rc ? rc : gather(c, l, root);
}

int cpu_comm_run(const struct work *work)
{
	struct cpu_comm *c = (struct cpu_comm *)work->collective.comm;
	struct layout l = {.bytes = cpu_ptr(work->collective.buffer),
	        .element_bytes = dtype_bytes(work->collective.dtype),
	        .dtype = work->collective.dtype};
	int rc = 0;

	if (!c->link)
		return 0;
	link_name(c->link, work_name(work));
	l.count = work->collective.bytes / l.element_bytes;
	l.part_count = (l.count + c->group.size - 1) / c->group.size; /* exact if the buffer holds shards */
	switch (work->kind) {
	case WORK_ALL_GATHER:
		rc = gather(c, &l, -1);
		break;
	case WORK_REDUCE_SCATTER:
		rc = reduce(c, &l);
		break;
	case WORK_ALL_REDUCE:
		rc = reduce(c, &l);
		rc = rc ? rc : gather(c, &l, -1);
		break;
	default:
		assert(work->kind == WORK_BROADCAST);
		rc = broadcast(c, &l, work->collective.root);
	}
	return rc;
}
