/* Settings of an embedder's directory, and the keys that name or replace them. */
#include "train/inputs/sentence.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "config/data_keys.h"
#include "config/embedding.h"

static int pooling_find(struct sentence_dir *s, const struct config *c, enum pool_mode otherwise)
{
	enum pool_mode asked = (enum pool_mode)c->pooling;
	struct pooling *p = &s->pooling;

	if (s->is_there && asked != POOL_NONE && (p->mode_count > 1 || asked != p->mode[0]))
		return err_set(ERR_INPUT,
		        "%s=%s, but modules.json of %s says %s%s; leave it out, or change the model's",
		        config_where(c, "pooling"), config_said(c, "pooling"), c->model,
		        pool_mode_name(p->mode[0]), p->mode_count > 1 ? " and others" : "");
	if (!s->is_there)
		p->mode[p->mode_count++] = asked != POOL_NONE ? asked : otherwise;
	return 0;
}

/* The lengths that `ferry embed` is asked for. */
static int lengths_find(struct sentence_dir *s, const struct config *c)
{
	struct pooling *p = &s->pooling;
	int last = p->layer_count - 1, is_unit = last >= 0 && p->layer[last].kind == POOL_LAYER_UNIT;

	if (c->verb != VERB_EMBED || c->normalize == CONFIG_NORMALIZE_AUTO)
		return 0;
	if (c->normalize == CONFIG_NORMALIZE_OFF) {
		p->layer_count -= is_unit;
		return 0;
	}
	if (is_unit)
		return 0;
	if (p->layer_count == POOL_LAYERS_MAX)
		return err_set(ERR_UNSUPPORTED,
		        "%s: normalize=on needs a module more than the %d that are supported; leave it out",
		        c->model, POOL_LAYERS_MAX);
	p->layer[p->layer_count++] =
	        (struct pool_layer){.kind = POOL_LAYER_UNIT, .in = s->width, .out = s->width};
	return 0;
}

static void prompt_warn(const struct sentence_dir *s, const struct config *c, const struct data_keys *k,
        const char *key, const char *name)
{
	const char *prompt = sentence_dir_prompt(s, name);

	for (int i = 0; i < k->count; i++)
		if (config_was_set(&k->sets[i].config, key))
			return;
	if (prompt && *prompt && !config_was_set(c, key))
		log_warn("%s has a prompt \"%s\", which texts of this run do not have; set %s=%s to use it",
		        c->model, name, key, name);
}

/* Lengths that the model's vectors do not have, and the full one, which should be among them. */
static int dims_check(const struct config *c, const struct pooling *pooling, int64_t state_width)
{
	double dims[CONTRAST_DIMS_MAX];
	const char *text = config_text(c, "matryoshka_dims");
	int count = config_numbers(dims, CONTRAST_DIMS_MAX, text), has_all = 0;
	int64_t width = pooling_width(pooling, state_width);

	for (int i = 0; i < count; i++) {
		if (dims[i] > (double)width)
			return err_set(ERR_INPUT,
			        "%s=%s has %.0f, but the vectors of %s have %lld components",
			        config_where(c, "matryoshka_dims"), text, dims[i], c->model,
			        (long long)width);
		has_all |= dims[i] == (double)width;
	}
	if (count > 0 && !has_all && c->verb == VERB_TRAIN)
		log_warn("%s=%s lacks %lld, the length of the model's vectors: they are not trained whole; "
		         "add it",
		        config_where(c, "matryoshka_dims"), text, (long long)width);
	return 0;
}

/* What keys of the run or of one data set ask of the model. */
static int keys_check(const struct sentence_dir *s, const struct config *c, const struct model *model)
{
	int rc = dims_check(c, &s->pooling, model->config.C);

	if (!rc && s->leaves_prompt_out && (c->query_prompt || c->document_prompt))
		return err_set(ERR_UNSUPPORTED,
		        "%s: its pooling leaves prompts out (include_prompt), which is not supported yet; "
		        "leave %s out",
		        c->model,
		        c->verb == VERB_EMBED ? "prompt_name"
		        : c->query_prompt     ? "query_prompt"
		                              : "document_prompt");
	return rc;
}

int sentence_open(struct sentence_dir *s, const struct config *c, const struct model *model)
{
	char *dir = file_kind_of(c->model) == FILE_DIR ? mem_strdup(c->model) : file_dir_of(c->model);
	int rc = dir ? sentence_dir_read(s, dir, model->config.C) : ERR_NOMEM;
	struct data_keys k;

	mem_free(dir);
	if (!rc)
		rc = pooling_find(s, c, model->config.is_encoder ? POOL_MEAN : POOL_LASTTOKEN);
	if (rc)
		return rc;
	rc = data_keys_read(&k, c);
	if (!rc && c->verb == VERB_TRAIN) {
		prompt_warn(s, c, &k, "query_prompt", "query");
		prompt_warn(s, c, &k, "document_prompt", "document");
	}
	for (int i = 0; i < k.count && !rc; i++)
		rc = keys_check(s, &k.sets[i].config, model);
	if (!rc && !k.count)
		rc = keys_check(s, c, model);
	data_keys_free(&k);
	return rc ? rc : lengths_find(s, c);
}

void sentence_texts(struct dataset_texts *texts, const struct sentence_dir *s)
{
	for (int i = 0; i < 2; i++) {
		const char *named = texts->prompt[i] ? sentence_dir_prompt(s, texts->prompt[i]) : NULL;

		texts->prompt[i] = named ? named : texts->prompt[i];
	}
	texts->vector_count = texts->has_vectors ? s->width : 0;
}

void sentence_rows(struct dataset_options *o, const struct sentence_dir *s, const struct config *c)
{
	sentence_texts(&o->texts, s);
	if (s->max_tokens < 1 || (o->max_length_tokens && o->max_length_tokens <= s->max_tokens))
		return;
	if (config_was_set(c, "max_length") && c->verb == VERB_TRAIN)
		log_warn("%s=%s is more than the model's max_seq_length, %lld, where texts are cut",
		        config_where(c, "max_length"), config_said(c, "max_length"),
		        (long long)s->max_tokens);
	o->max_length_tokens = s->max_tokens;
}
