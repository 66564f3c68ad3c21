/* add_prefix_space of tokenizer_config.json: which classes of transformers obey it, and how. */
#include "data/tokenizer/beside.h"

#include <string.h>

#include "base/err.h"
#include "base/json.h"

static int is_type(const json_t *spec, const char *type)
{
	const char *own = json_string_value(json_object_get(spec, "type"));

	return own && strcmp(own, type) == 0;
}

/* 1 if tokenizer_config.json names this class, with or without Fast. */
static int is_class(const struct beside *b, const char *name)
{
	const char *class = json_string_value(json_object_get(b->config.tree, "tokenizer_class"));
	size_t len = strlen(name);

	return class && strncmp(class, name, len) == 0 && (!class[len] || strcmp(class + len, "Fast") == 0);
}

/* Classes that replace the ByteLevel by one with add_prefix_space of the configuration. Others keep
 * tokenizer.json. */
static int makes_byte_level(const struct beside *b)
{
	static const char *const classes[] = {
	        "GPT2Tokenizer", "GPTNeoXTokenizer", "Qwen2Tokenizer", "CohereTokenizer", "CodeGenTokenizer"};

	for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
		if (is_class(b, classes[i]))
			return 1;
	return 0;
}

/* The class that makes its own steps, unless transformers takes another for models of this type. */
static int is_llama(const struct beside *b)
{
	static const char *const others[] = {"mistral", "mistral3", "ministral", "ministral3", "phi3",
	        "phi3_v", "phimoe", "granite", "glm", "glm4", "olmo2", "olmo3", "stablelm", "nemotron",
	        "internlm2", "internlm3", "minicpm3"};

	for (size_t i = 0; b->model_type && i < sizeof(others) / sizeof(others[0]); i++)
		if (strcmp(b->model_type, others[i]) == 0)
			return 0;
	return is_class(b, "LlamaTokenizer");
}

/* Sets add_prefix_space of a ByteLevel, alone or in a Sequence. */
static int set_byte_level(json_t *spec, int prefix_space)
{
	json_t *item;
	size_t i;
	int rc = 0;

	if (is_type(spec, "ByteLevel"))
		rc = json_object_set_new(spec, "add_prefix_space", json_boolean(prefix_space));
	json_array_foreach(json_object_get(spec, "pretokenizers"), i, item) if (!rc) rc =
	        set_byte_level(item, prefix_space);
	return rc ? ERR_NOMEM : 0;
}

/* 1 if a step, or one in its Sequence, has this type. *found is that step. */
static int has_step(json_t *spec, const char *list, const char *type, json_t **found)
{
	json_t *item;
	size_t i;

	if (is_type(spec, type)) {
		*found = spec;
		return 1;
	}
	json_array_foreach(json_object_get(spec, list), i, item) if (is_type(item, type))
	{
		*found = item;
		return 1;
	}
	return 0;
}

static int puts_space(const json_t *root)
{
	json_t *step = NULL;
	const char *scheme;

	if (has_step(json_object_get(root, "normalizer"), "normalizers", "Prepend", &step))
		return 1;
	if (!has_step(json_object_get(root, "pre_tokenizer"), "pretokenizers", "Metaspace", &step))
		return 0;
	scheme = json_string_value(json_object_get(step, "prepend_scheme"));
	return scheme ? strcmp(scheme, "never") != 0
	              : !json_is_false(json_object_get(step, "add_prefix_space"));
}

static json_t *metaspace(const char *scheme)
{
	return json_pack("{s:s, s:s, s:s, s:b}", "type", "Metaspace", "replacement", "\xe2\x96\x81",
	        "prepend_scheme", scheme, "split", 0);
}

/* The steps of LlamaTokenizer. */
static int set_llama(json_t *root, int prefix_space, int legacy)
{
	const char *scheme = !prefix_space ? "never" : legacy ? "always" : "first";
	json_t *decoders = json_pack("[{s:s, s:{s:s}, s:s}, {s:s}, {s:s}]", "type", "Replace", "pattern",
	        "String", "\xe2\x96\x81", "content", " ", "type", "ByteFallback", "type", "Fuse");
	int rc = json_object_set_new(root, "normalizer", json_null()) |
	         json_object_set_new(root, "pre_tokenizer", metaspace(scheme));

	if (prefix_space)
		rc |= json_array_append_new(decoders, json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip",
		                                              "content", " ", "start", 1, "stop", 0));
	rc |= json_object_set_new(
	        root, "decoder", json_pack("{s:s, s:o}", "type", "Sequence", "decoders", decoders));
	return rc ? ERR_NOMEM : 0;
}

/* The space comes before the first piece only, not before each between added tokens. */
static int set_first_only(json_t *root)
{
	json_t *list = json_object_get(json_object_get(root, "normalizer"), "normalizers");

	for (size_t i = 0; i < json_array_size(list); i++)
		if (is_type(json_array_get(list, i), "Prepend"))
			return json_array_remove(list, i) |
			                       json_object_set_new(root, "pre_tokenizer", metaspace("first"))
			               ? ERR_NOMEM
			               : 0;
	return 0;
}

int beside_set_prefix_space(const struct beside *b, json_t *root, int is_model)
{
	const json_t *config = b->config.tree;
	int on = 1, legacy = 0, given, says_legacy, is_bpe = is_type(json_object_get(root, "model"), "BPE");
	json_t *step = NULL;

	if (!config)
		return 0;
	given = json_get_bool(config, b->config.path, "add_prefix_space", &on);
	says_legacy = json_get_bool(config, b->config.path, "legacy", &legacy);
	if (given < 0 || says_legacy < 0)
		return given < 0 ? given : says_legacy;
	if (makes_byte_level(b))
		return set_byte_level(json_object_get(root, "pre_tokenizer"), given && on);
	if (has_step(json_object_get(root, "pre_tokenizer"), "pretokenizers", "ByteLevel", &step))
		return 0;
	if (is_llama(b) && is_bpe && (is_model || (given && on != puts_space(root))))
		return set_llama(root, on, legacy);
	return is_model && says_legacy && !legacy ? set_first_only(root) : 0;
}
