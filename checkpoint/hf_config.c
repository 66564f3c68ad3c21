/* Changes config.json where the model differs from what it says. */
#include "checkpoint/hf_config.h"

#include "base/err.h"
#include "model/families/text_part.h"

int hf_config_apply(struct side_files *side, const struct model *model)
{
	static const char name[] = "config.json";
	json_t *config = NULL, *text = NULL;
	const char *whole = NULL;
	int err = 0;

	if (model->is_untied || model->whole)
		err = side_files_object(&config, side, name);
	if (err || !config)
		return err;
	err = text_part_config(&text, &whole, config, name);
	if (!err && model->is_untied && json_object_set_new(text, "tie_word_embeddings", json_false()))
		err = ERR_NOMEM;
	if (!err)
		err = side_files_put_object(side, name, text);
	json_decref(text);
	json_decref(config);
	return err;
}
