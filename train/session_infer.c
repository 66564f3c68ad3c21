/* How commands that train nothing keep weights. */
#include "train/base_format.h"
#include "train/products.h"
#include "train/ranks/ranks_share.h"
#include "train/session.h"

#include "base/log.h"
#include "comm/world.h"

int session_infer(struct session *s)
{
	const struct config *c = s->config;
	const struct weight_format *kept = NULL;
	int rc = base_format_infer(s->model, c);

	if (!rc)
		rc = ranks_share_formats(c, s->model);
	for (int t = 0; t < s->model->tensor_count && !rc; t++) {
		struct model_tensor *tensor = &s->model->tensors[t];

		if (!tensor->kept)
			continue;
		kept = tensor->kept;
		tensor->trainable = 0; /* of a rank without files too */
	}
	if (kept && !world_self()->rank && !products_are_fp8(c))
		log_info("the matrices of the blocks stay quantized (%s%s) in memory; base_format=bf16 "
		         "expands them once",
		        kept->name,
		        c->base_format == CONFIG_BASE_FORMAT_AUTO ? ", as the files have them" : "");
	return rc;
}
