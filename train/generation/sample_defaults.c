/* Combines the sampling keys with generation_config.json. */
#include "train/generation/sample_defaults.h"

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

#include <string.h>

enum { CONFIG_BYTES_MAX = 16 << 20, TOP_K_OF_TRANSFORMERS = 50 };

static int is_set(const struct config *c, const char *key)
{
	return config_was_set(c, key);
}

static int take_number(
        double *value, const struct config *c, const json_t *file, const char *path, const char *key)
{
	int rc = is_set(c, key) ? 0 : json_get_num(file, path, key, value);

	return rc < 0 ? rc : 0;
}

/* Refuses invalid values of the file. */
static int check(const struct choose_options *o, int64_t max_new_tokens, const char *path)
{
	if (max_new_tokens > 0 && o->temperature >= 0 && o->top_k >= 0 && o->top_p >= 0 && o->top_p <= 1 &&
	        o->min_p >= 0 && o->min_p <= 1 && o->repetition_penalty > 0)
		return 0;
	return err_set(ERR_INPUT,
	        "%s: a value of temperature, top_k, top_p, min_p, repetition_penalty or max_new_tokens is "
	        "out of range; set the key of that name",
	        path);
}

/* Keys that change the text and that ferry does not read, with the number that has no effect. */
static const struct {
	const char *key;
	double neutral;
} unread[] = {
        {"bad_words_ids", 0},
        {"begin_suppress_tokens", 0},
        {"constraints", 0},
        {"diversity_penalty", 0},
        {"encoder_repetition_penalty", 1},
        {"epsilon_cutoff", 0},
        {"eta_cutoff", 0},
        {"exponential_decay_length_penalty", 0},
        {"force_words_ids", 0},
        {"forced_bos_token_id", -1},
        {"forced_eos_token_id", -1},
        {"guidance_scale", 1},
        {"min_length", 0},
        {"min_new_tokens", 0},
        {"no_repeat_ngram_size", 0},
        {"num_beams", 1},
        {"num_return_sequences", 1},
        {"penalty_alpha", 0},
        {"sequence_bias", 0},
        {"stop_strings", 0},
        {"suppress_tokens", 0},
        {"top_h", 0},
        {"typical_p", 1},
        {"watermarking_config", 0},
};

static int has_effect(const json_t *value, double neutral)
{
	if (json_is_number(value))
		return json_number_value(value) != neutral;
	if (json_is_array(value) || json_is_object(value))
		return json_array_size(value) + json_object_size(value) > 0;
	return json_is_true(value) || json_is_string(value);
}

static int warn_unread(const json_t *file, const char *path)
{
	struct str names = {0};
	int rc;

	for (size_t i = 0; i < sizeof(unread) / sizeof(*unread); i++)
		if (has_effect(json_object_get(file, unread[i].key), unread[i].neutral))
			str_printf(&names, "%s%s", names.len_bytes ? ", " : "", unread[i].key);
	if (names.len_bytes)
		log_warn("%s: ignoring %s; the text may differ from that of transformers%s", path, names.data,
		        strstr(names.data, "stop_strings") ? "; for stop_strings set stop" : "");
	rc = str_check(&names);
	str_free(&names);
	return rc;
}

static int take_file(
        struct choose_options *o, int64_t *max_new_tokens, const struct config *c, const char *path)
{
	json_t *file = NULL;
	int samples = 0, rc = json_read_file(&file, path, CONFIG_BYTES_MAX);

	if (!rc)
		rc = json_get_bool(file, path, "do_sample", &samples);
	samples = c->do_sample == 0 ? 0 : samples || c->do_sample == 1;
	if (rc >= 0 && samples && !is_set(c, "temperature")) {
		if (c->do_sample != 1)
			o->temperature = 1;
		rc = take_number(&o->temperature, c, file, path, "temperature");
	}
	if (samples && !is_set(c, "top_k"))
		o->top_k = TOP_K_OF_TRANSFORMERS;
	if (rc >= 0 && !is_set(c, "max_new_tokens"))
		rc = json_get_int(file, path, "max_new_tokens", max_new_tokens);
	if (rc >= 0 && !is_set(c, "top_k"))
		rc = json_get_int(file, path, "top_k", &o->top_k);
	if (rc >= 0)
		rc = take_number(&o->top_p, c, file, path, "top_p");
	if (rc >= 0)
		rc = take_number(&o->min_p, c, file, path, "min_p");
	if (rc >= 0)
		rc = take_number(&o->repetition_penalty, c, file, path, "repetition_penalty");
	rc = rc < 0 ? rc : check(o, *max_new_tokens, path);
	if (!rc)
		rc = warn_unread(file, path);
	if (!rc && samples && o->temperature > 0)
		log_info("sampling as generation_config.json says: temperature=%g top_k=%lld top_p=%g; "
		         "temperature=0 takes the most likely token",
		        o->temperature, (long long)o->top_k, o->top_p);
	json_decref(file);
	return rc;
}

/* Warns of sampling keys without effect at temperature=0. */
static void warn_greedy(const struct choose_options *o, const struct config *c)
{
	static const char *const keys[] = {"top_k", "top_p", "min_p"};

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys) && o->temperature == 0; i++)
		if (is_set(c, keys[i]))
			log_warn(
			        "%s has no effect with temperature=0, which takes the most likely token; set "
			        "temperature, as 0.7",
			        config_where(c, keys[i]));
}

struct choose_options sample_choose_options(const struct config *c)
{
	return (struct choose_options){.temperature = c->temperature,
	        .top_k = c->top_k,
	        .top_p = c->top_p,
	        .min_p = c->min_p,
	        .repetition_penalty = c->repetition_penalty,
	        .seed = (uint64_t)c->seed};
}

/* What do_sample says, where somebody said it. */
static int do_sample_check(struct choose_options *o, const struct config *c)
{
	if (c->do_sample == 1 && !(o->temperature > 0))
		return err_set(ERR_INPUT,
		        "%s=on needs temperature above 0; set temperature=1 to draw by the model's "
		        "probabilities, less to be more careful",
		        config_where(c, "do_sample"));
	if (!c->do_sample && is_set(c, "temperature") && o->temperature > 0)
		return err_set(ERR_INPUT, "%s=off takes the most likely token, but %s is %g; remove one",
		        config_where(c, "do_sample"), config_where(c, "temperature"), o->temperature);
	return 0;
}

int sample_defaults(
        struct choose_options *choose, int64_t *max_new_tokens, const struct config *c, const char *model_dir)
{
	char *path = model_dir ? file_join(model_dir, "generation_config.json") : NULL;
	int rc = 0;

	*choose = sample_choose_options(c);
	*max_new_tokens = c->max_new_tokens;
	if (path && file_kind_of(path) == FILE_REGULAR)
		rc = take_file(choose, max_new_tokens, c, path);
	if (!rc)
		rc = do_sample_check(choose, c);
	if (!rc)
		warn_greedy(choose, c);
	mem_free(path);
	return rc;
}
