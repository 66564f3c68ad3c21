/* What a step's tallies say: how evenly experts were used, and the loss of it. */
#include "offload/engine_parts.h"

#include "base/err.h"
#include "base/mem.h"
#include "model/blocks/balance.h"

int engine_tally(
        struct engine *e, struct engine_result *result, const struct host_batch *micro, int micro_count)
{
	const struct tally_shape shape = model_tally(e->map->model);
	int64_t count = shape.layers * shape.experts + 1;
	double *sums;
	int rc = 0;

	if (!shape.layers || !device_has_bytes(e->dock.device))
		return 0;
	sums = mem_alloc((size_t)count, sizeof(*sums));
	if (!sums)
		return ERR_NOMEM;
	for (int m = 0; m < micro_count; m++) {
		const void *tally = run_tally(e->runs[PLAN_TRAIN], m);

		if (!micro[m].tokens)
			continue;
		tally_add_rows(&shape, sums, tally);
		if (shape.has_shares)
			sums[count - 1] += micro[m].share * tally_loss(&shape, tally, micro[m].tokens);
	}
	rc = comm_sum_host(e->dock.comm, sums, (int)count);
	if (!rc && e->dock.replicas)
		rc = comm_sum_host(e->dock.replicas, sums, (int)count);
	result->balance = sums[count - 1];
	tally_load(&shape, sums, &result->expert_load, &result->experts_used);
	mem_free(sums);
	return rc;
}
