/* Changes config.json where the model differs from what it says. */
#include "checkpoint/hf/hf_config.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "model/families/text_part.h"

#include <string.h>

enum { CONFIG_BYTES_MAX = 16 << 20 };

static const char config_name[] = "config.json";

/* Results have numbers where the files had codes. 1 if config.json said otherwise. */
static int leave_codes(json_t *config)
{
	static const char *const keys[] = {"quantization_config", "compression_config"};
	json_t *text = json_object_get(config, "text_config");
	int found = 0;

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		found += !json_object_del(config, keys[i]);
		found += !json_object_del(text, keys[i]);
	}
	return found;
}

int hf_config_apply(struct side_files *side, const struct model *model)
{
	static const char tied[] = "tie_word_embeddings";
	json_t *config = NULL, *text;
	int err = side_files_object(&config, side, config_name), is_other;

	if (err || !config)
		return err;
	is_other = leave_codes(config) || model->is_untied;
	text = json_object_get(config, "text_config");
	if (model->is_untied &&
	        (json_object_set_new(config, tied, json_false()) ||
	                (json_object_get(text, tied) && json_object_set_new(text, tied, json_false()))))
		err = ERR_NOMEM;
	if (!err && is_other)
		err = side_files_put_object(side, config_name, config);
	json_decref(config);
	return err;
}

static int remove_processors(const char *dir)
{
	char **names = NULL;
	size_t count = 0;
	int err = file_list_dir(dir, &names, &count);

	for (size_t i = 0; i < count && !err; i++) {
		char *path = side_file_is_of_processor(names[i]) ? file_join(dir, names[i]) : NULL;

		err = path ? file_remove_tree(path) : 0;
		mem_free(path);
	}
	file_list_free(names, count);
	return err;
}

int hf_config_leave_text(const char *dir)
{
	char *path = file_join(dir, config_name);
	struct side_files side = {0};
	json_t *config = NULL, *text = NULL;
	const char *whole = NULL;
	int err = path ? 0 : ERR_NOMEM;

	if (!err && file_kind_of(path) == FILE_REGULAR)
		err = json_read_python(&config, path, CONFIG_BYTES_MAX);
	if (!err && config)
		err = text_part_config(&text, &whole, config, path);
	if (!err && whole)
		err = side_files_put_object(&side, config_name, text);
	if (!err)
		err = side_files_write(&side, dir, NULL);
	if (!err)
		err = remove_processors(dir);
	side_files_free(&side);
	json_decref(text);
	json_decref(config);
	mem_free(path);
	return err;
}
