/* Keys of embedders: what they contradict, and what rows they need. */
#include "config/embedding.h"

#include "base/err.h"
#include "base/log.h"
#include "config/table.h"
#include "device/contrast_kind.h"

#include <string.h>

struct embedding_rows embedding_rows_of(const struct config *c)
{
	return (struct embedding_rows){.texts = c->verb == VERB_EMBED                   ? 1
	                                        : c->embedding_loss == CONTRAST_TRIPLET ? 3
	                                                                                : 2,
	        .has_score = contrast_has_score((enum contrast_kind)c->embedding_loss)};
}

int embedding_is_regression(const struct config *c)
{
	return c->objective == OBJECTIVE_REGRESSION;
}

static int embedding_refuse(const struct config *c, const char *key, const char *why)
{
	return err_set(ERR_INPUT, "%s=%s %s", config_where(c, key), config_text(c, key), why);
}

/* Settings of an embedder's loss that this run does not compute, or that would change it. */
int embedding_check(const struct config *c)
{
	static const char *const keys[] = {
	        "embedding_scale", "embedding_margin", "pooling", "query_prompt", "document_prompt"};

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
		if (!c->embedding_loss &&
		        strcmp(config_text(c, keys[i]), config_key_find(keys[i])->default_text) != 0)
			return embedding_refuse(c, keys[i], "has no effect without embedding_loss; set it");
	if (c->objective && (c->embedding_loss || c->preference_loss))
		return embedding_refuse(c, c->embedding_loss ? "embedding_loss" : "preference_loss",
		        "and objective are both set; choose one");
	if (c->objective && c->packing != CONFIG_PACKING_OFF)
		return embedding_refuse(
		        c, "packing", "is set, but texts with labels are not packed; set packing=off");
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
	if (c->embedding_margin > 0 && c->embedding_loss != CONTRAST_CONTRASTIVE &&
	        c->embedding_loss != CONTRAST_TRIPLET)
		log_warn("%s has no effect with embedding_loss=%s", config_where(c, "embedding_margin"),
		        config_text(c, "embedding_loss"));
	return 0;
}
