/* Chooses the matrices whose products are FP8. */
#include "train/products.h"

#include "base/err.h"
#include "train/base_format.h"

int products_are_fp8(const struct config *c)
{
	return c->compute_dtype == DTYPE_F8_E4M3;
}

const struct weight_format *products_format(void)
{
	return weight_format_coded(CODE_E4M3, CODE_SCALE_F32, CODE_BLOCK);
}

static int refuse(const struct config *c, const char *what)
{
	return err_set(ERR_UNSUPPORTED, "%s=%s: %s; set compute_dtype=bf16", config_where(c, "compute_dtype"),
	        config_said(c, "compute_dtype"), what);
}

int products_check(const struct model *model, const struct config *c)
{
	if (!products_are_fp8(c))
		return 0;
	for (int t = 0; t < model->tensor_count; t++)
		if (model->tensors[t].role == ROLE_ROUTER_W)
			return refuse(c, "FP8 products of experts are not supported yet");
	if (model->config.adapter_magnitudes)
		return refuse(c, "FP8 products with DoRA are not supported yet");
	return 0;
}

int products_set(struct model *model, const struct config *c)
{
	for (int t = 0; t < model->tensor_count; t++) {
		struct model_tensor *tensor = &model->tensors[t];
		const struct weight_format *kept = tensor->trainable ? NULL : tensor->kept;

		tensor->multiplied = NULL;
		if (!products_are_fp8(c) || !base_format_is_matrix(tensor))
			continue;
		if (kept && weight_format_is_coded(kept) && kept != products_format())
			return err_set(ERR_UNSUPPORTED,
			        "%s=%s multiplies FP8 in blocks of 128 x 128, but %s is in memory as %s; set "
			        "base_format=fp8 or compute_dtype=bf16",
			        config_where(c, "compute_dtype"), config_said(c, "compute_dtype"),
			        tensor->name, kept->name);
		tensor->multiplied = products_format();
	}
	return 0;
}
