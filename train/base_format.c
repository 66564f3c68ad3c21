/* Chooses the format of frozen matrices in memory. */
#include "train/base_format.h"

#include "base/err.h"
#include "base/log.h"
#include "comm/world.h"
#include "train/products.h"

#include <inttypes.h>

int base_format_is_matrix(const struct model_tensor *t)
{
	const struct role_facts *role = &role_facts[t->role];

	/* A router is small, and an error of its weights sends tokens to other experts. */
	return role->scope == SCOPE_BLOCK && t->role != ROLE_ROUTER_W && t->role != ROLE_SHARED_WEIGHT_W &&
	       (role->kind == KIND_MATRIX || role->kind == KIND_RESIDUAL || role->kind == KIND_STACK ||
	               role->kind == KIND_RESIDUAL_STACK);
}

int base_format_is_of(const struct model_tensor *t)
{
	return !t->trainable && base_format_is_matrix(t);
}

/* The format that the keys name; NULL: none. */
static const struct weight_format *format_asked(const struct config *c)
{
	enum code_scale of_blocks = c->base_double_quant ? CODE_SCALE_NESTED : CODE_SCALE_F32;

	switch (c->base_format) {
	case CONFIG_BASE_FORMAT_NF4:
		return weight_format_coded(CODE_NF4, of_blocks, c->base_block_size);
	case CONFIG_BASE_FORMAT_FP4:
		return weight_format_coded(CODE_FP4, of_blocks, c->base_block_size);
	case CONFIG_BASE_FORMAT_INT8:
		return weight_format_coded(CODE_I8, CODE_SCALE_F32, 0);
	case CONFIG_BASE_FORMAT_FP8:
		return weight_format_coded(CODE_E4M3, CODE_SCALE_F32, 0);
	case CONFIG_BASE_FORMAT_MXFP4:
		return weight_format_coded(CODE_E2M1, CODE_SCALE_E8M0, 0);
	case CONFIG_BASE_FORMAT_AUTO:
	case CONFIG_BASE_FORMAT_BF16:
		break;
	}
	return NULL;
}

static int check_run(const struct config *c, int is_frozen, int leaves_base)
{
	const char *where = config_where(c, "base_format"), *text = config_text(c, "base_format");

	if (!is_frozen)
		return err_set(ERR_INPUT,
		        "%s=%s: quantized weights cannot be trained, and every matrix of the blocks trains; "
		        "set "
		        "lora_rank, or leave base_format out",
		        where, text);
	if (!leaves_base)
		return err_set(ERR_UNSUPPORTED,
		        "%s=%s needs a base from the model's files, but %s; leave base_format out", where,
		        text,
		        c->init_weights == CONFIG_INIT_WEIGHTS_RANDOM
		                ? "init_weights=random has none"
		                : "the checkpoints of this run hold it");
	return 0;
}

static int check_matrix(const struct config *c, const struct model_tensor *t, const struct weight_format *f)
{
	int64_t cols = model_tensor_cols(t);

	if (f->code == CODE_E2M1 && cols % f->block_cols)
		return err_set(ERR_UNSUPPORTED,
		        "%s=%s needs rows of a multiple of %d elements; %s has rows of %" PRId64
		        "; set another format",
		        config_where(c, "base_format"), config_said(c, "base_format"), (int)f->block_cols,
		        t->name, cols);
	return 0;
}

/* auto: frozen matrices whose files have codes keep these. */
static void stored_keep(struct model *model)
{
	for (int t = 0; t < model->tensor_count; t++)
		if (base_format_is_of(&model->tensors[t]))
			model->tensors[t].kept = model->tensors[t].stored;
}

/* auto with FP8 products: the others get the codes that products read, while they are loaded. */
static void multiplied_keep(struct model *model)
{
	for (int t = 0; t < model->tensor_count; t++)
		if (base_format_is_of(&model->tensors[t]) && !model->tensors[t].kept)
			model->tensors[t].kept = products_format();
}

static int kept_set(struct model *model, const struct config *c, int leaves_base)
{
	const struct weight_format *format = format_asked(c);
	int frozen = 0, rc;

	for (int t = 0; t < model->tensor_count; t++)
		frozen += base_format_is_of(&model->tensors[t]);
	if (c->base_format == CONFIG_BASE_FORMAT_AUTO && leaves_base)
		stored_keep(model);
	if (c->base_format == CONFIG_BASE_FORMAT_AUTO && leaves_base && products_are_fp8(c))
		multiplied_keep(model);
	if (!format)
		return 0;
	rc = check_run(c, frozen, leaves_base);
	for (int t = 0; t < model->tensor_count && !rc; t++) {
		struct model_tensor *tensor = &model->tensors[t];

		if (!base_format_is_of(tensor))
			continue;
		tensor->kept = format;
		rc = check_matrix(c, tensor, format);
	}
	return rc;
}

int base_format_set(struct model *model, const struct config *c, int leaves_base)
{
	int rc = products_check(model, c);

	if (!rc)
		rc = kept_set(model, c, leaves_base);
	return rc ? rc : products_set(model, c);
}

int base_format_infer(struct model *model, const struct config *c)
{
	const struct weight_format *format = format_asked(c);

	for (int t = 0; t < model->tensor_count; t++) {
		struct model_tensor *tensor = &model->tensors[t];
		int is_coded = format || (c->base_format == CONFIG_BASE_FORMAT_AUTO &&
		                                 (tensor->stored || products_are_fp8(c)));

		if (is_coded && !tensor->in_adapter && base_format_is_matrix(tensor))
			tensor->trainable = 0;
	}
	return base_format_set(model, c, 1);
}

void base_format_say_result(const struct model *model, const struct config *c, const char *coded)
{
	const struct weight_format *kept = NULL;

	for (int t = 0; t < model->tensor_count && !kept; t++)
		kept = model->tensors[t].kept;
	if (c->merge_base || (!kept && !coded))
		return;
	if (coded)
		log_info("%s is quantized (%s): the result has the values of its codes; merge_base=DIR takes "
		         "the weights of "
		         "the model in full precision",
		        c->model, coded);
	else
		log_info("the result has the weights of %s, not the %s ones that the adapter was trained on",
		        c->model, kept->name);
}
