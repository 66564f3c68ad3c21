/* Combines the sampling keys with generation_config.json. */
#include "train/sample_defaults.h"

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/sample.h"

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
static int check(const struct choose_options *o, const char *path)
{
	if (o->temperature >= 0 && o->top_k >= 0 && o->top_p >= 0 && o->top_p <= 1 && o->min_p >= 0 &&
	        o->min_p <= 1 && o->repetition_penalty > 0)
		return 0;
	return err_set(ERR_INPUT,
	        "%s: a value of temperature, top_k, top_p, min_p or repetition_penalty is out of range; set "
	        "the "
	        "key of that name",
	        path);
}

static int take_file(struct choose_options *o, const struct config *c, const char *path)
{
	json_t *file = NULL;
	int samples = 0, asked = is_set(c, "temperature"), rc = json_read_file(&file, path, CONFIG_BYTES_MAX);

	if (!rc)
		rc = json_get_bool(file, path, "do_sample", &samples);
	asked |= !c->do_sample;
	if (rc >= 0 && samples && !asked) {
		o->temperature = 1;
		if (!is_set(c, "top_k"))
			o->top_k = TOP_K_OF_TRANSFORMERS;
		rc = take_number(&o->temperature, c, file, path, "temperature");
	}
	if (rc >= 0 && !is_set(c, "top_k"))
		rc = json_get_int(file, path, "top_k", &o->top_k);
	if (rc >= 0)
		rc = take_number(&o->top_p, c, file, path, "top_p");
	if (rc >= 0)
		rc = take_number(&o->min_p, c, file, path, "min_p");
	if (rc >= 0)
		rc = take_number(&o->repetition_penalty, c, file, path, "repetition_penalty");
	rc = rc < 0 ? rc : check(o, path);
	if (!rc && samples && !asked)
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

int sample_defaults(struct choose_options *choose, const struct session *s)
{
	char *path = s->model_dir ? file_join(s->model_dir, "generation_config.json") : NULL;
	int rc = 0;

	*choose = sample_choose_options(s->config);
	if (path && file_kind_of(path) == FILE_REGULAR)
		rc = take_file(choose, s->config, path);
	if (!rc)
		rc = do_sample_check(choose, s->config);
	if (!rc)
		warn_greedy(choose, s->config);
	mem_free(path);
	return rc;
}
