/* Groups of ranks: NCCL between GPUs, nothing to do in a world of one. */
#include "base/mem.h"
#include "gpu/cuda_device.h"
#include "gpu/cuda_nccl.h"

#include <stdlib.h>
#include <string.h>

/* In a group of one rank a collective leaves its buffer as it is. FERRY_NCCL=1 uses NCCL even then. */
struct cuda_comm {
	struct comm base;
	struct cuda_nccl *nccl; /* NULL: a group of one */
	struct comm_group group;
};

static const struct device_bootstrap *bootstrap_of(const struct device *device)
{
	return ((const struct cuda_device *)device)->options.bootstrap;
}

int cuda_comm_open(struct comm **comm, struct device *device, const struct comm_group *group)
{
	const char *wish = getenv("FERRY_NCCL");
	struct cuda_comm *c;
	int rc = 0;

	if (group->size > 1 && !bootstrap_of(device))
		return err_set(ERR_UNSUPPORTED,
		        "cuda device: %d ranks need a way to find each other, and none was given; run one "
		        "rank",
		        group->size);
	if (group->world_size % (group->size * group->stride))
		return err_set(ERR_UNSUPPORTED,
		        "cuda device: groups of %d ranks, one in %d, do not divide %d ranks evenly",
		        group->size, group->stride, group->world_size);
	c = mem_alloc(1, sizeof(*c));
	if (!c)
		return ERR_NOMEM;
	c->group = *group;
	if (group->size > 1 || (wish && !strcmp(wish, "1")))
		rc = cuda_nccl_open(&c->nccl, (struct cuda_device *)device, bootstrap_of(device), group);
	if (rc) {
		mem_free(c);
		return rc;
	}
	*comm = &c->base;
	return 0;
}

void cuda_comm_close(struct comm *comm)
{
	struct cuda_comm *c = (struct cuda_comm *)comm;

	cuda_nccl_close(c->nccl);
	mem_free(c);
}

int cuda_comm_queue(const struct cuda_launch *at, const struct work *work)
{
	struct cuda_comm *c = (struct cuda_comm *)work->collective.comm;

	return c->nccl ? cuda_nccl_queue(c->nccl, at->stream, work) : 0;
}

/* One sum over the world serves all groups: each group has its own place, where the others add 0. */
int cuda_comm_sum_host(struct comm *comm, double *values, int count)
{
	const struct device_bootstrap *b = bootstrap_of(comm->device);
	const struct comm_group *g = &((const struct cuda_comm *)comm)->group;
	int group_count = g->world_size / g->size, place;
	size_t bytes = (size_t)count * sizeof(*values);
	double *all;
	int rc;

	if (g->size == 1 || !count)
		return 0;
	if (group_count == 1)
		return b->sum(b->context, values, count);
	all = mem_alloc((size_t)(group_count * count), sizeof(*all));
	if (!all)
		return ERR_NOMEM;
	place = (g->first / (g->size * g->stride) * g->stride + g->first % g->stride) * count;
	memcpy(all + place, values, bytes);
	rc = b->sum(b->context, all, group_count * count);
	memcpy(values, all + place, bytes);
	mem_free(all);
	return rc;
}
