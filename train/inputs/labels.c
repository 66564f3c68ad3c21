/* Classes from config.json and keys, and config.json of classifiers. */
#include "train/inputs/labels.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/quantity.h"
#include "base/str.h"
#include "model/family.h"
#include "placement/options.h"
#include "train/inputs/label_names.h"

#include <inttypes.h>
#include <string.h>

enum { CONFIG_BYTES_MAX = 16 << 20 };

static int config_read(struct labels *l, const char *model)
{
	char *path = file_kind_of(model) == FILE_DIR ? file_join(model, "config.json") : mem_strdup(model);
	int rc = path ? json_read_file(&l->config, path, CONFIG_BYTES_MAX) : ERR_NOMEM;

	mem_free(path);
	return rc;
}

/* Whether config.json names classes: LABEL_0 is no name. */
static int has_names(const json_t *config)
{
	const json_t *value;
	const char *key;

	json_object_foreach(json_object_get(config, "id2label"), key, value)
	{
		if (json_is_string(value) && strncmp(json_string_value(value), "LABEL_", 6))
			return 1;
	}
	return 0;
}

/* A new head has the names that stand in the data. */
static int names_from_data(struct labels *l, const struct config *c)
{
	json_t *by_id = NULL;
	int rc = label_names_read(&by_id, c), count = (int)json_object_size(by_id);

	if (!rc && by_id && c->num_labels && c->num_labels < count)
		rc = err_set(ERR_INPUT, "%s=%lld, but %s has %d different labels; raise it, or leave it out",
		        config_where(c, "num_labels"), (long long)c->num_labels, c->data, count);
	if (!rc && by_id)
		rc = json_object_set(l->config, "id2label", by_id) ? ERR_NOMEM : 0;
	json_decref(by_id);
	return rc;
}

/* id2label: {"0": "no", "1": "yes"}. */
static int names_find(struct labels *l)
{
	const json_t *names = json_object_get(l->config, "id2label");

	l->names = mem_alloc((size_t)l->of.count, sizeof(*l->names));
	if (!l->names)
		return ERR_NOMEM;
	for (int64_t i = 0; i < l->of.count; i++) {
		char key[24];

		snprintf(key, sizeof(key), "%" PRId64, i);
		l->names[i] = json_string_value(json_object_get(names, key));
	}
	l->of.names = l->names;
	return 0;
}

/* B-PER and the like; NULL: the name is of another kind. */
static const char *type_of(const char *name)
{
	if (!name || (strcmp(name, "O") && !(strchr("BIES", *name) && *name && name[1] == '-')))
		return NULL;
	return *name == 'O' ? name : name + 2;
}

/* What labels of words say of chunks, where all of them do. */
static int tags_find(struct labels *l)
{
	int chunks = 0;

	l->tag = mem_alloc((size_t)l->of.count, sizeof(*l->tag));
	if (!l->tag)
		return ERR_NOMEM;
	memset(l->tag, 0, (size_t)l->of.count * sizeof(*l->tag));
	for (int64_t i = 0; i < l->of.count; i++) {
		if (!type_of(l->names[i]))
			return 0;
		chunks += *l->names[i] != 'O';
	}
	for (int64_t i = 0; i < l->of.count && chunks; i++) {
		int64_t same = 0;

		while (strcmp(type_of(l->names[same]), type_of(l->names[i])) != 0)
			same++;
		l->tag[i] = (struct label_tag){*l->names[i], (int)same};
	}
	return 0;
}

/* What the objective wants of a head. */
static int head_of(const struct config *c)
{
	const struct objective *o = objective_of_config(c).type;

	return o->rows == DATASET_HIDDEN_ONLY ? HEAD_OF_WORDS
	       : o->labels.is_of_tokens       ? HEAD_OF_TOKENS
	                                      : HEAD_OF_CLASSES;
}

static const char *suffix_of(int head)
{
	return head == HEAD_OF_WORDS    ? "ForMaskedLM"
	       : head == HEAD_OF_TOKENS ? "ForTokenClassification"
	                                : "ForSequenceClassification";
}

/* Gives the model the head for masked words. */
static int words_open(const struct config *c, struct model *model)
{
	if (!model->config.is_encoder)
		return err_set(ERR_UNSUPPORTED,
		        "%s=masked trains encoders such as BERT; %s (%s) is a decoder: leave objective out",
		        config_where(c, "objective"), c->model, model->config.model_type);
	if (model->config.is_classifier == HEAD_OF_WORDS)
		return 0;
	if (model->config.is_classifier)
		return err_set(ERR_INPUT,
		        "%s is a ...%s; objective=masked needs a ...ForMaskedLM, or a model "
		        "without a head",
		        c->model, suffix_of(model->config.is_classifier));
	return model_classify(model, HEAD_OF_WORDS, 0);
}

static int count_find(struct labels *l, const struct config *c, const struct model *model)
{
	const json_t *names = json_object_get(l->config, "id2label");
	int64_t named = json_is_object(names) ? (int64_t)json_object_size(names) : 0;

	if (model->config.is_classifier && model->config.is_classifier != head_of(c))
		return err_set(ERR_INPUT, "%s is a ...%s; set objective=%s", c->model,
		        suffix_of(model->config.is_classifier),
		        model->config.is_classifier == HEAD_OF_TOKENS ? "token_classification"
		                                                      : "classification");
	if (model->config.is_classifier)
		named = model->config.labels;
	l->of.count = c->num_labels ? c->num_labels : named ? named : l->of.is_regression ? 1 : 2;
	if (model->config.is_classifier && l->of.count != model->config.labels)
		return err_set(ERR_INPUT,
		        "%s=%" PRId64 ", but %s has a head for %" PRId64 " label%s; leave it out",
		        config_where(c, "num_labels"), l->of.count, c->model, model->config.labels,
		        plural_s(model->config.labels));
	if (l->of.is_regression && l->of.count != 1 && model->config.is_classifier)
		return err_set(ERR_INPUT,
		        "%s has a head for %" PRId64
		        " labels, not for a number; set objective=classification",
		        c->model, l->of.count);
	if (l->of.is_regression && l->of.count != 1)
		return err_set(ERR_UNSUPPORTED,
		        "%s: regression of %" PRId64 " numbers is not supported yet; set num_labels=1",
		        c->model, l->of.count);
	if (l->of.is_of_tokens && l->of.count > TOKEN_LABELS_MAX)
		return err_set(ERR_UNSUPPORTED,
		        "%s: %" PRId64 " labels of tokens are not supported; at most %d are",
		        c->num_labels ? config_where(c, "num_labels") : c->model, l->of.count,
		        TOKEN_LABELS_MAX);
	return 0;
}

int labels_open(struct labels *l, const struct config *c, struct model *model)
{
	const struct objective *o = objective_of_config(c).type;
	int rc;

	*l = (struct labels){.of = o->labels, .problem = o->problem};
	if (o->rows == DATASET_HIDDEN_ONLY)
		return words_open(c, model);
	if (model->config.is_classifier == HEAD_OF_WORDS)
		model->config.is_classifier = 0; /* gets another head below */
	if (o->rows == DATASET_REWARDS_ONLY && model->config.is_encoder)
		return err_set(ERR_UNSUPPORTED,
		        "%s is an encoder: objective=reward trains models that give a next token", c->model);
	rc = config_read(l, c->model);
	if (!rc && !model->config.is_classifier && !l->of.is_regression && !has_names(l->config))
		rc = names_from_data(l, c);
	if (!rc)
		rc = count_find(l, c, model);
	if (!rc)
		rc = names_find(l);
	if (!rc && l->of.is_of_tokens)
		rc = tags_find(l);
	if (!rc && !model->config.is_classifier)
		rc = model_classify(model, head_of(c), l->of.count);
	return rc;
}

void labels_free(struct labels *l)
{
	json_decref(l->config);
	mem_free(l->names);
	mem_free(l->tag);
	*l = (struct labels){0};
}

/* Such as "BertForSequenceClassification" */
static int class_set(json_t *config, const struct model *model)
{
	const char *base = model->family->base_class;
	char *name = mem_printf("%.*s%s", (int)(strlen(base) - strlen("Model")), base,
	        suffix_of(model->config.is_classifier));
	int rc = name ? json_object_set_new(config, "architectures", json_pack("[s]", name)) : -1;

	mem_free(name);
	return rc;
}

static int names_set(json_t *config, const struct labels *l)
{
	json_t *by_id = json_object(), *by_name = json_object();
	int rc = 0;

	for (int64_t i = 0; i < l->of.count && !rc; i++) {
		char key[24], name[40];

		snprintf(key, sizeof(key), "%" PRId64, i);
		snprintf(name, sizeof(name), "LABEL_%" PRId64, i);
		rc = json_object_set_new(by_id, key, json_string(l->names[i] ? l->names[i] : name)) ||
		     json_object_set_new(by_name, l->names[i] ? l->names[i] : name, json_integer(i));
	}
	rc = json_object_set_new(config, "id2label", by_id) || rc;
	return json_object_set_new(config, "label2id", by_name) || rc;
}

static int is_classifier(const json_t *config, int head)
{
	const char *class = json_string_value(json_array_get(json_object_get(config, "architectures"), 0));

	return class && str_ends_with(class, suffix_of(head));
}

int labels_complete(struct side_files *side, const struct labels *l, const struct model *model)
{
	json_t *config = NULL;
	int rc = side_files_object(&config, side, "config.json");

	if (!rc && config && !is_classifier(config, model->config.is_classifier)) {
		int has_names = model->config.is_classifier != HEAD_OF_WORDS;

		if (class_set(config, model) || (has_names && names_set(config, l)) ||
		        (l->problem && json_object_set_new(config, "problem_type", json_string(l->problem))))
			rc = ERR_NOMEM;
		if (model->config.pooling.mode[0] == POOL_LASTTOKEN && model->config.pad_id < 0)
			log_warn("config.json has no pad_token_id, which transformers needs to classify "
			         "several "
			         "texts at once");
		if (!rc)
			rc = side_files_put_object(side, "config.json", config);
	}
	json_decref(config);
	return rc;
}
