/* The list of objectives, and what follows from a row. */
#include "objective/objective.h"

#include "base/err.h"
#include "model/blocks/head.h"

#include <math.h>

const struct objective *const objectives[] = {
#define OBJECTIVE_ROW(name) &objective_##name,
        OBJECTIVE_LIST(OBJECTIVE_ROW)
#undef OBJECTIVE_ROW
};
const int objective_count = (int)(sizeof(objectives) / sizeof(*objectives));

int objective_needs_vocabulary(const struct model *model)
{
	return model->config.has[ROLE_HEAD_W]
	               ? 0
	               : err_set(ERR_UNSUPPORTED, "the model has no head that gives logits");
}

static void labels_run(struct stage_call *call, enum head_mode mode)
{
	head_losses(call, mode, &(struct token_losses){.label = call->batch->own[0], .weight = DEV_NONE});
}

const struct head_pass objective_labels_head = {labels_run, head_scratch_bytes, 0};

void objective_add_losses(
        double *sums, const double *settings, const struct host_batch *batch, const float *losses)
{
	(void)settings;
	for (int64_t i = 0; i < batch->targets; i++)
		sums[0] += (double)losses[i];
}

struct objective_means objective_means_of(
        const struct objective *o, const double *sums, int64_t count, int64_t targets)
{
	struct objective_means means = {
	        .loss = count ? sums[0] / (double)count : NAN, .count = count, .targets = targets};

	if (o->metrics_find)
		o->metrics_find(means.metric, sums, (double)count);
	return means;
}
