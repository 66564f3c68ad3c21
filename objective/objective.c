/* The list of objectives, and what follows from a row. */
#include "objective/objective.h"

#include "base/err.h"

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

struct objective_means objective_means_of(
        const struct objective *o, const double *sums, int64_t count, int64_t targets)
{
	struct objective_means means = {
	        .loss = count ? sums[0] / (double)count : NAN, .count = count, .targets = targets};

	if (o->metrics_find)
		o->metrics_find(means.metric, sums, (double)count);
	return means;
}
