/* Callbacks that connect lower folders to the ranks. */
#include "train/ranks/world_hooks.h"

#include "comm/world.h"

static int agree(void *context, int code)
{
	(void)context;
	return world_agree(code);
}

static int share(void *context, uint64_t *value)
{
	(void)context;
	return world_broadcast(value, sizeof(*value), 0);
}

struct checkpoint_world world_for_checkpoint(void)
{
	const struct world *w = world_self();

	return (struct checkpoint_world){.rank = w->rank,
	        .size = w->size,
	        .agree = w->size > 1 ? agree : NULL,
	        .share = w->size > 1 ? share : NULL};
}

static int device_broadcast(void *context, void *values, int64_t bytes, int root)
{
	(void)context;
	return world_broadcast(values, bytes, root);
}

static int device_sum(void *context, double *values, int count)
{
	(void)context;
	return world_sum(values, count);
}

const struct device_bootstrap *world_for_device(void)
{
	static const struct device_bootstrap bootstrap = {.broadcast = device_broadcast, .sum = device_sum};

	return &bootstrap;
}
