/* The class of a model by config.json: a language model, an encoder, a classifier. */
#include "model/config.h"

#include "base/err.h"
#include "base/str.h"
#include "model/family.h"

#include <string.h>

/* Classes of one encoder differ in what follows the name: BertModel, BertForMaskedLM. */
static int is_of_encoder(const char *name, const char *base_class)
{
	size_t stem = strlen(base_class) - strlen("Model");

	return !strncmp(name, base_class, stem) && !strncmp(name + stem, "For", 3);
}

/* At least one class name in `architectures` must be a causal language model. */
void config_check_class(struct config_reader *r, struct model_config *c, const struct model_family *family)
{
	json_t *list = NULL;
	int found = json_get_array(r->object, r->where, "architectures", &list);
	const char *first = NULL;

	if (found < 0)
		r->err = found;
	if (found <= 0 || !json_array_size(list))
		return;
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *name = json_string_value(json_array_get(list, i));

		if (!name) {
			config_fail(r, ERR_INPUT, "architectures[%zu] is not a string", i);
			return;
		}
		if (c->is_encoder && !strcmp(name, family->causal_class))
			c->is_classifier = HEAD_OF_WORDS;
		if (!strcmp(name, family->base_class) || !strcmp(name, family->causal_class) ||
		        str_ends_with(name, "ForCausalLM"))
			return;
		if (str_ends_with(name, "ForSequenceClassification"))
			c->is_classifier = HEAD_OF_CLASSES;
		if (str_ends_with(name, "ForTokenClassification"))
			c->is_classifier = HEAD_OF_TOKENS;
		if (c->is_classifier || (c->is_encoder && is_of_encoder(name, family->base_class)))
			return;
		first = first ? first : name;
	}
	config_fail(r, ERR_UNSUPPORTED,
	        "architectures says %.80s; supported: %s, %s, ...ForSequenceClassification and "
	        "...ForTokenClassification",
	        first, family->causal_class, family->base_class);
}

/* Classes of texts: as many as have a name. */
void config_read_classes(struct config_reader *r, struct model_config *c, const struct model_family *family)
{
	const json_t *names = json_object_get(r->object, "id2label");
	int64_t labels = 2;

	if (!c->is_classifier || r->err)
		return;
	if (c->is_classifier == HEAD_OF_WORDS) {
		model_config_classify(c, family, HEAD_OF_WORDS, 0);
		return;
	}
	config_read_int(r, "num_labels", &labels, 1, CONFIG_SIZE_MAX);
	if (json_is_object(names) && json_object_size(names))
		labels = (int64_t)json_object_size(names);
	model_config_classify(c, family, c->is_classifier, labels);
}
