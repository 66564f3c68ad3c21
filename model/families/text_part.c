/* Finds the language model in the config.json of a model that also reads images or sound. */
#include "model/families/text_part.h"

#include "base/err.h"
#include "model/families/families.h"

#include <string.h>

/* Whole models whose other parts only replace the embeddings of some tokens. Models that change the language
 * model (cross-attention, experts for images, attention to later tokens of a text) do not belong here.
 *
 *   text_type  of a text_config that does not say, as in transformers; NULL: there is no text_config in older
 *              files, and its keys are at the top
 *   family     the family that computes the same for texts; NULL: text_config's model_type says it
 *   modules    of the text part within the whole; NULL: "model.language_model."
 *   replaced   the default ids of tokens for images, videos and sounds, if a text with one of them is another
 *              text to the whole, even without an image; 0: there are none
 *   tied       whether the head is the embedding where the whole does not say, whatever text_config says. 0
 *              also where published files have a head of their own without saying so */
static const struct whole {
	const char *model_type, *text_type, *family, *modules;
	int64_t replaced[TEXT_PART_REPLACED];
	int tied;
} wholes[] = {
        {"gemma3", "gemma3_text", NULL, NULL, {0}, 1},
        {"gemma4", "gemma4_text", NULL, NULL, {258880, 258884, 258881}, 1},
        {"gemma4_unified", "gemma4_unified_text", NULL, NULL, {258880, 258884, 258881}, 1},
        {"idefics3", "llama", NULL, "model.text_model.", {0}, 0},
        {"internvl", "qwen2", NULL, NULL, {0}, 0},
        {"llava", "llama", NULL, NULL, {0}, 0},
        {"llava_next", "llama", NULL, NULL, {0}, 0},
        {"llava_onevision", "qwen2", NULL, NULL, {0}, 0},
        {"mistral3", "mistral", NULL, NULL, {0}, 0},
        {"muse_glimmer", "muse_glimmer_text", NULL, NULL, {0}, 0},
        {"qwen2_5_vl", NULL, "qwen2", NULL, {0}, 0},
        {"qwen2_audio", "qwen2", NULL, NULL, {0}, 0},
        {"qwen2_vl", NULL, "qwen2", NULL, {0}, 0},
        {"qwen3_5", "qwen3_5_text", NULL, NULL, {0}, 0},
        {"qwen3_5_moe", "qwen3_5_moe_text", NULL, NULL, {0}, 0},
        {"qwen3_vl", NULL, "qwen3", NULL, {0}, 0},
        {"qwen3_vl_moe", "qwen3_vl_moe_text", NULL, NULL, {0}, 0},
        {"smolvlm", "llama", NULL, "model.text_model.", {0}, 0},
        {"vipllava", "llama", NULL, NULL, {0}, 0},
};

static const struct whole *whole_find(const char *model_type)
{
	for (size_t i = 0; model_type && i < sizeof(wholes) / sizeof(*wholes); i++)
		if (!strcmp(wholes[i].model_type, model_type))
			return &wholes[i];
	return NULL;
}

const char *text_part_modules(const char *whole)
{
	const struct whole *w = whole_find(whole);

	return w && w->modules ? w->modules : "model.language_model.";
}

int text_part_replaced(
        int64_t ids[TEXT_PART_REPLACED], const char *whole, const json_t *config, const char *where)
{
	static const char *const keys[TEXT_PART_REPLACED] = {
	        "image_token_id", "video_token_id", "audio_token_id"};
	const struct whole *w = whole_find(whole);

	for (int i = 0; i < TEXT_PART_REPLACED; i++) {
		int found;

		ids[i] = w && w->replaced[i] ? w->replaced[i] : -1;
		found = ids[i] < 0 ? 0 : json_get_int(config, where, keys[i], &ids[i]);
		if (found < 0)
			return found;
	}
	return 0;
}

/* The class that loads the text part alone. Those of the whole must not stay. */
static int set_class(json_t *text)
{
	const char *type = json_string_value(json_object_get(text, "model_type"));
	const struct model_family *family = type ? family_find(type) : NULL;

	json_object_del(text, "architectures");
	if (!family)
		return 0;
	return json_object_set_new(text, "architectures", json_pack("[s]", family->causal_class)) ? ERR_NOMEM
	                                                                                          : 0;
}

/* Copies keys that the text part may leave to the whole. If either calls the head tied, it is: files that
 * have a head of their own untie it. */
static int inherit(json_t *text, const struct whole *w, const json_t *config, const char *where)
{
	static const char *const keys[] = {"bos_token_id", "eos_token_id", "dtype", "torch_dtype",
	        "quantization_config", "transformers_version"};
	int is_tied = w->tied, own = 0, found = json_get_bool(config, where, "tie_word_embeddings", &is_tied),
	    own_found = found < 0 ? found : json_get_bool(text, where, "tie_word_embeddings", &own);

	if (own_found < 0)
		return own_found;
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		json_t *value = json_object_get(config, keys[i]);

		if (value && !json_object_get(text, keys[i]) && json_object_set(text, keys[i], value))
			return ERR_NOMEM;
	}
	if (is_tied || (found && !own_found))
		return json_object_set_new(text, "tie_word_embeddings", json_boolean(is_tied)) ? ERR_NOMEM
		                                                                               : 0;
	return 0;
}

/* Sections of a head that rotate by time, height and width: for a text all three are its position. */
static int drop_sections(json_t *text)
{
	static const char *const keys[] = {"rope_scaling", "rope_parameters"};

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		json_t *rope = json_object_get(text, keys[i]), *copy;
		static const char *const types[] = {"rope_type", "type"};

		if (!json_is_object(rope) || !json_object_get(rope, "mrope_section"))
			continue;
		copy = json_copy(rope);
		if (!copy || json_object_set_new(text, keys[i], copy))
			return ERR_NOMEM;
		json_object_del(copy, "mrope_section");
		json_object_del(copy, "mrope_interleaved");
		for (size_t k = 0; k < sizeof(types) / sizeof(*types); k++) {
			const char *type = json_string_value(json_object_get(copy, types[k]));

			if (type && !strcmp(type, "mrope") &&
			        json_object_set_new(copy, types[k], json_string("default")))
				return ERR_NOMEM;
		}
	}
	return 0;
}

/* Turns the copy of text_config, or of the whole config.json, into that of a text model. */
static int make_own(json_t *text, const struct whole *w, const json_t *config, const char *where)
{
	int err;

	if (w->family && !json_object_get(text, "rms_norm_eps")) /* its default is not the family's */
		return err_set(ERR_INPUT, "%s: rms_norm_eps is missing", where);
	if ((w->family || !json_object_get(text, "model_type")) &&
	        json_object_set_new(text, "model_type", json_string(w->family ? w->family : w->text_type)))
		return ERR_NOMEM;
	json_object_del(text, "vision_config");
	err = set_class(text);
	if (!err)
		err = inherit(text, w, config, where);
	return err ? err : drop_sections(text);
}

int text_part_config(json_t **text, const char **whole, const json_t *config, const char *where)
{
	const struct whole *w;
	const char *type = NULL;
	json_t *part = NULL;
	int err = json_get_str(config, where, "model_type", &type);

	*whole = NULL;
	*text = NULL;
	if (err < 0)
		return err;
	w = whole_find(type);
	if (!w) {
		*text = json_incref((json_t *)config);
		return 0;
	}
	err = json_get_object(config, where, "text_config", &part);
	if (err < 0)
		return err;
	if (!err && w->text_type)
		return err_set(ERR_INPUT,
		        "%s: text_config is missing; a %s model of transformers has one (their names end in "
		        "-hf)",
		        where, type);
	*whole = w->model_type;
	*text = json_copy(err ? part : (json_t *)config);
	return *text ? make_own(*text, w, config, where) : ERR_NOMEM;
}
