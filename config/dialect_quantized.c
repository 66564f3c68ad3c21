/* Quantized bases in the words of other trainers: what they mean for base_format. */
#include "config/dialect_item.h"

#include "base/err.h"
#include "base/log.h"
#include "config/table.h"

#include <string.h>

int item_quantized(const struct item *s)
{
	return item_is_off(s->text) ? 0 : item_keep(s, "quantized");
}

int item_quant_type(const struct item *s)
{
	return config_name_in(s->text, "nf4 fp4") ? item_keep(s, "quant_type")
	                                          : item_refuse(s, "only nf4 and fp4 are supported");
}

int item_quant_double(const struct item *s)
{
	return item_keep(s, "quant_double");
}

int item_quant_block(const struct item *s)
{
	return item_keep(s, "quant_block");
}

int item_quant_method(const struct item *s)
{
	return item_keep(s, "quant_method");
}

int item_quant_dtype(const struct item *s)
{
	if (config_name_in(s->text, "bfloat16 torch.bfloat16 bf16 auto") || item_is_off(s->text))
		return item_pass(s);
	if (config_name_in(s->text, "float32 torch.float32 fp32"))
		return item_set(s, "compute_dtype", "fp32", CONFIG_WEAK);
	item_warn(s, "%s=%s: ferry computes in compute_dtype, bf16 or fp32", s->name, s->text);
	return 0;
}

/* The format that a setting asks for: NULL if ferry has none that is like it. */
static const char *format_of(const struct dialect_state *d, const struct dialect_kept *asked)
{
	const struct dialect_kept *type = dialect_kept(d, "quant_type");
	const char *dot = strrchr(asked->name, '.'), *name = dot ? dot + 1 : asked->name;

	if (config_name_equal(name, "qlora_fp8"))
		return "fp8";
	if (config_name_equal(name, "qlora_fp4"))
		return NULL;
	if (config_name_equal(name, "load_in_8bit"))
		return "int8";
	if (config_name_in(name, "quantization_bit quant_bits") && !config_name_in(asked->text, "4"))
		return config_name_in(asked->text, "8") ? "int8" : NULL;
	return type && config_name_equal(type->text, "fp4") ? "fp4" : "nf4";
}

static void say(const struct dialect_kept *asked, const char *what, const char *format)
{
	log_warn("%s%s%s=%s: %s%s", asked->file ? asked->file : "", asked->file ? ": " : "", asked->name,
	        asked->text, what, format);
}

/* Double quantization, unless the trainer's default or the file says otherwise. */
static int details_set(const struct dialect_state *d, const struct dialect_kept *asked, struct config *c)
{
	const struct dialect_kept *twice = dialect_kept(d, "quant_double"),
	                          *block = dialect_kept(d, "quant_block");
	int is_single =
	        twice ? item_is_off(twice->text) : d->file && d->file->lora && d->file->lora->quants_once;
	int rc = 0;

	if (is_single && !config_was_set(c, "base_double_quant"))
		rc = kept_set(c, twice ? twice : asked, "base_double_quant", "off");
	if (!rc && block && !config_was_set(c, "base_block_size"))
		rc = kept_set(c, block, "base_block_size", block->text);
	return rc;
}

int quantized_apply(const struct dialect_state *d, struct config *c, int has_lora)
{
	const struct dialect_kept *asked = dialect_kept(d, "quantized"),
	                          *method = dialect_kept(d, "quant_method");
	const char *format;
	int rc;

	if (!asked)
		return 0;
	if (!has_lora && !c->lora_rank && !c->lora_adapter)
		return kept_error(
		        ERR_UNSUPPORTED, asked, "is not supported; quantized weights cannot be trained");
	if (config_was_set(c, "base_format"))
		return 0;
	format = format_of(d, asked);
	if (!format) {
		say(asked,
		        "ferry has no such format; the base stays in bf16, 2 bytes a parameter; "
		        "base_format=nf4 has 4 bits",
		        "");
		return 0;
	}
	if (method && !config_name_in(method->text, "bnb bitsandbytes"))
		say(method, "ferry has the formats of bitsandbytes; base_format=", format);
	rc = kept_set(c, asked, "base_format", format);
	if (!rc && strcmp(format, "int8") != 0 && strcmp(format, "fp8") != 0)
		rc = details_set(d, asked, c);
	if (!rc && !strcmp(format, "int8"))
		say(asked, "base_format=int8 keeps the outliers in 8 bits too", "");
	return rc;
}

void quantized_say(const struct dialect_state *d, const struct config *c)
{
	const struct dialect_kept *asked = dialect_kept(d, "quantized");

	if (asked && config_key_known(config_key_find("base_format"), c->verb) &&
	        !config_was_set(c, "base_format"))
		say(asked, "the model is read as it is stored; to quantize it as in training set base_format",
		        "");
}
