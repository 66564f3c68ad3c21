/* Keys of embedders: what they contradict, and what rows they need. */
#include "config/embedding.h"

#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "config/data_keys.h"
#include "config/table.h"

#include <math.h>
#include <string.h>

struct dataset_texts embedding_rows_of(const struct config *c)
{
	const struct contrast_facts facts = contrast_facts((enum contrast_kind)c->embedding_loss);

	return (struct dataset_texts){.wanted_by = config_where(c, "embedding_loss"),
	        .least = c->verb == VERB_EMBED ? 1 : facts.texts,
	        .is_alone = c->verb == VERB_EMBED,
	        .needs_score = facts.score != SCORE_NONE,
	        .may_lack_score = facts.score == SCORE_ONE_OR_TEXTS,
	        .scores_sides = facts.score == SCORE_SIDE,
	        .scores_negatives = facts.score == SCORE_EACH_NEGATIVE,
	        .has_vectors = facts.score == SCORE_VECTORS,
	        .prompt = {c->query_prompt, c->document_prompt}};
}

static int embedding_refuse(const struct config *c, const char *key, const char *why)
{
	return err_set(ERR_INPUT, "%s=%s %s", config_where(c, key), config_said(c, key), why);
}

/* Keys that only change embedding_loss. */
static const char *const loss_keys[] = {"embedding_scale", "embedding_margin", "embedding_similarity",
        "embedding_directions", "embedding_partition", "embedding_hardness", "embedding_hardness_strength",
        "matryoshka_dims", "matryoshka_weights", "batch_sampler", "pooling", "query_prompt",
        "document_prompt", "multi_dataset_batch_sampler", "data_keys", "eval_data_names"};

static int similarity_check(const struct config *c)
{
	const struct contrast_facts facts = contrast_facts((enum contrast_kind)c->embedding_loss);
	const struct config_word *word = config_key_find("embedding_similarity")->words;
	struct str all = {0};
	int rc;

	if (!(c->embedding_similarity & ~(int)facts.all))
		return 0;
	if (!facts.all)
		return embedding_refuse(c, "embedding_similarity",
		        "has no effect with this embedding_loss, which compares no two texts; leave it out");
	str_add(&all, "is not for this embedding_loss; supported: ");
	for (int count = 0; word->name; word++)
		if (word->value & (int)facts.all)
			str_printf(&all, "%s%s", count++ ? ", " : "", word->name);
	rc = str_check(&all);
	rc = rc ? rc : embedding_refuse(c, "embedding_similarity", all.data);
	str_free(&all);
	return rc;
}

/* Settings of a ranking. */
static int ranking_check(const struct config *c)
{
	static const char *const keys[] = {"embedding_directions", "embedding_partition",
	        "embedding_hardness", "embedding_hardness_strength"};
	int same_kind = DIRECTION_QUERY_TO_QUERY | DIRECTION_DOC_TO_DOC;

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys) && c->embedding_loss != CONTRAST_MNRL; i++)
		if (!config_is_default(c, keys[i]))
			return embedding_refuse(
			        c, keys[i], "is only for embedding_loss=mnrl; leave it out, or set that");
	if (!(c->embedding_directions & DIRECTION_QUERY_TO_DOC))
		return embedding_refuse(
		        c, "embedding_directions", "lacks query_to_doc, which has the right answers; add it");
	if (c->embedding_partition == CONFIG_EMBEDDING_PARTITION_PER_DIRECTION &&
	        (c->embedding_directions & same_kind))
		return embedding_refuse(c, "embedding_partition",
		        "needs the right answer in each direction, which query_to_query and doc_to_doc lack; "
		        "set joint");
	if (!c->embedding_hardness != (c->embedding_hardness_strength == 0))
		return embedding_refuse(c,
		        c->embedding_hardness ? "embedding_hardness" : "embedding_hardness_strength",
		        c->embedding_hardness
		                ? "has no effect without embedding_hardness_strength; set it, as to 9"
		                : "has no effect without embedding_hardness; set it, as to "
		                  "in_batch_negatives");
	return 0;
}

static int matryoshka_check(const struct config *c)
{
	double dims[CONTRAST_DIMS_MAX], weights[CONTRAST_DIMS_MAX];
	int count = config_numbers(dims, CONTRAST_DIMS_MAX, config_text(c, "matryoshka_dims")),
	    weight_count = config_numbers(weights, CONTRAST_DIMS_MAX, config_text(c, "matryoshka_weights"));

	if (count && c->embedding_loss == CONTRAST_MSE)
		return embedding_refuse(c, "matryoshka_dims",
		        "does not work with embedding_loss=mse, whose vectors of a teacher have one length; "
		        "leave "
		        "it out");
	if (count < 0)
		return embedding_refuse(
		        c, "matryoshka_dims", "is no list of at most 16 numbers; set it as in 768,512,256");
	for (int i = 0; i < count; i++)
		if (!(dims[i] >= 1 && dims[i] <= INT32_MAX) || dims[i] != floor(dims[i]))
			return embedding_refuse(
			        c, "matryoshka_dims", "has a length that is not whole and positive");
	if (weight_count < 0)
		return embedding_refuse(
		        c, "matryoshka_weights", "is no list of at most 16 numbers; set it as in 1,1,0.5");
	for (int i = 0; i < weight_count; i++)
		if (!(weights[i] > 0))
			return embedding_refuse(c, "matryoshka_weights",
			        "has a weight that is not above 0; leave out its length");
	if (weight_count && weight_count != count)
		return embedding_refuse(c, "matryoshka_weights",
		        count ? "has another number of entries than matryoshka_dims"
		              : "has no effect without matryoshka_dims; set it");
	return 0;
}

/* What objective=masked does not do, and what only it does. */
static int masked_check(const struct config *c)
{
	static const char *const keys[] = {"mlm_probability", "whole_word_mask"};

	for (int i = 0; i < 2 && c->objective != OBJECTIVE_MASKED; i++)
		if (!config_is_default(c, keys[i]))
			return embedding_refuse(c, keys[i], "has no effect without objective=masked; set it");
	if (c->objective != OBJECTIVE_MASKED)
		return 0;
	if (c->num_labels)
		return embedding_refuse(c, "num_labels", "has no effect with objective=masked; leave it out");
	return 0;
}

static void unused_warn(const struct config *c, const char *key)
{
	log_warn("%s has no effect with embedding_loss=%s", config_where(c, key),
	        config_text(c, "embedding_loss"));
}

/* Settings of a loss. */
static int loss_check(const struct config *c)
{
	const struct contrast_facts facts = contrast_facts((enum contrast_kind)c->embedding_loss);
	int rc = similarity_check(c);

	rc = rc ? rc : ranking_check(c);
	rc = rc ? rc : matryoshka_check(c);
	if (c->embedding_margin > 0 && facts.margin == 0)
		unused_warn(c, "embedding_margin");
	if (!config_is_default(c, "embedding_scale") && !facts.has_scale)
		unused_warn(c, "embedding_scale");
	return rc;
}

/* Values that ferry understands and does not support. */
static int refused_check(const struct config *c)
{
	for (int i = 0; i < config_key_count; i++)
		if (config_keys[i].verbs & VERB_SETTING_OF_SET && c->origins[i].refusal)
			return err_set(ERR_UNSUPPORTED, "%s=%s %s", config_where(c, config_keys[i].name),
			        c->origins[i].shown, c->origins[i].refusal);
	return 0;
}

/* The loss of each data set, or the one of all. */
static int sets_check(const struct config *c)
{
	struct data_keys k;
	int rc = data_keys_read(&k, c);

	for (int i = 0; i < k.count && !rc; i++) {
		rc = refused_check(&k.sets[i].config);
		rc = rc ? rc : loss_check(&k.sets[i].config);
		for (int n = 0; n < i && !rc; n++)
			if (k.sets[i].name && k.sets[n].name && !strcmp(k.sets[i].name, k.sets[n].name))
				rc = err_set(ERR_INPUT,
				        "%s: two data sets have the name %s; give one another name",
				        config_where(c, "data_keys"), k.sets[i].name);
	}
	if (!rc && !k.count)
		rc = loss_check(c);
	data_keys_free(&k);
	return rc;
}

/* A list of keys that is none comes before what follows from it. */
static int keys_check(const struct config *c)
{
	struct data_keys k;
	int rc = data_keys_read(&k, c);

	data_keys_free(&k);
	return rc;
}

/* Settings of an embedder's loss that this run does not compute, or that would change it. */
int embedding_check(const struct config *c)
{
	int rc = keys_check(c);

	if (rc)
		return rc;
	for (size_t i = 0; i < sizeof(loss_keys) / sizeof(*loss_keys); i++)
		if (!c->embedding_loss && strcmp(config_text(c, loss_keys[i]),
		                                  config_key_find(loss_keys[i])->default_text) != 0)
			return embedding_refuse(
			        c, loss_keys[i], "has no effect without embedding_loss; set it");
	if (c->center_rewards_coefficient > 0 && c->objective != OBJECTIVE_REWARD)
		return embedding_refuse(
		        c, "center_rewards_coefficient", "has no effect without objective=reward; set it");
	rc = masked_check(c);
	if (rc)
		return rc;
	if (c->objective && (c->embedding_loss || c->preference_loss))
		return embedding_refuse(c, c->embedding_loss ? "embedding_loss" : "preference_loss",
		        "and objective are both set; choose one");
	if (c->objective && c->packing != CONFIG_PACKING_OFF)
		return embedding_refuse(
		        c, "packing", "is set, but rows of objective are not packed; set packing=off");
	if (!c->objective && c->num_labels)
		return embedding_refuse(
		        c, "num_labels", "has no effect without objective=classification; set it");
	if ((c->objective || c->embedding_loss) && c->label_smoothing_factor > 0)
		return embedding_refuse(c, "label_smoothing_factor",
		        c->objective ? "is not supported with objective yet; leave it out"
		                     : "has no effect with embedding_loss; leave it out");
	if (!c->embedding_loss)
		return 0;
	if (c->preference_loss)
		return embedding_refuse(c, "preference_loss", "and embedding_loss are both set; choose one");
	if (c->packing != CONFIG_PACKING_OFF)
		return embedding_refuse(
		        c, "packing", "is set, but texts of embedding_loss are not packed; set packing=off");
	if (c->schedule == CONFIG_SCHEDULE_MICRO_BATCH_MAJOR && c->gradient_accumulation_steps > 1)
		return embedding_refuse(c, "schedule",
		        "ends one micro-batch before the next, but embedding_loss compares all rows of a "
		        "step; set "
		        "schedule=layer_major");
	return sets_check(c);
}
