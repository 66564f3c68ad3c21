/* From keys to a tokenizer and the options of a dataset. */
#include "train/data_config.h"

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"

#include <string.h>

enum { CONFIG_BYTES_MAX = 16 << 20 };

int data_config_tokenizer(struct tokenizer **t, const struct config *c, enum data_config_need need)
{
	const char *dir = c->tokenizer ? c->tokenizer : c->model;
	int found, err;

	*t = NULL;
	if (c->tokenizer && file_kind_of(c->tokenizer) == FILE_REGULAR)
		return tokenizer_open(t, c->tokenizer);
	if (!dir || file_kind_of(dir) != FILE_DIR) {
		if (need == TOKENIZER_OPTIONAL && !c->tokenizer)
			return 0;
		return err_set(ERR_INPUT, "set tokenizer=DIR, a directory with a tokenizer.json");
	}
	found = tokenizer_exists(dir);
	if (found < 0)
		return found;
	if (!found && need == TOKENIZER_OPTIONAL && !c->tokenizer)
		return 0;
	if (!found)
		return err_set(ERR_INPUT,
		        "%s has no tokenizer.json or tokenizer.model; set tokenizer=DIR, a directory with "
		        "one",
		        dir);
	err = tokenizer_open(t, dir);
	if (err != ERR_UNSUPPORTED || need == TOKENIZER_REQUIRED || c->tokenizer)
		return err;
	log_warn("%s", err_text());
	return 0;
}

static int template_chosen(const struct config *c)
{
	return c->chat_template && *c->chat_template && strcmp(c->chat_template, "auto") &&
	       strcmp(c->chat_template, "default") && strcmp(c->chat_template, "tokenizer_default");
}

/* The directory that holds a tokenizer.json named as a file. */
static char *parent_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? mem_strndup(path, (size_t)(slash - path)) : mem_strdup(".");
}

int data_config_chat_template(
        struct chat_template **t, const struct config *c, const char *dir, const struct tokenizer *tokenizer)
{
	struct chat_template_options o = {.tokenizer = tokenizer};
	char *parent = NULL;
	json_t *kwargs = NULL;
	int rc = 0;

	*t = NULL;
	if (c->tokenizer && file_kind_of(c->tokenizer) == FILE_REGULAR) {
		dir = parent = parent_of(c->tokenizer);
		rc = parent ? 0 : ERR_NOMEM;
	} else if (c->tokenizer) {
		dir = c->tokenizer;
	} else if (!dir) {
		dir = c->model;
	}
	if (!rc && c->chat_template_kwargs && *c->chat_template_kwargs) {
		rc = json_parse(&kwargs, "chat_template_kwargs", c->chat_template_kwargs,
		        strlen(c->chat_template_kwargs));
		if (!rc && !json_is_object(kwargs))
			rc = err_set(ERR_INPUT, "%s must be a JSON object",
			        config_where(c, "chat_template_kwargs"));
	}
	o.choice = template_chosen(c) ? c->chat_template : NULL;
	o.dir = dir && file_kind_of(dir) == FILE_DIR ? dir : NULL;
	o.kwargs = kwargs;
	if (!rc)
		rc = chat_template_open(t, &o);
	json_decref(kwargs);
	mem_free(parent);
	return rc;
}

struct dataset_options data_config_options(const struct config *c, const char *path,
        const struct tokenizer *tokenizer, const struct chat_template *chat_template, int64_t vocab_count)
{
	static const enum dataset_format formats[] = {
	        [CONFIG_DATA_FORMAT_AUTO] = DATASET_FORMAT_AUTO,
	        [CONFIG_DATA_FORMAT_TOKENS] = DATASET_FORMAT_TOKENS,
	        [CONFIG_DATA_FORMAT_TEXT] = DATASET_FORMAT_TEXT,
	        [CONFIG_DATA_FORMAT_ALPACA] = DATASET_FORMAT_ALPACA,
	        [CONFIG_DATA_FORMAT_PROMPT_COMPLETION] = DATASET_FORMAT_PROMPT_COMPLETION,
	        [CONFIG_DATA_FORMAT_MESSAGES] = DATASET_FORMAT_MESSAGES,
	        [CONFIG_DATA_FORMAT_SHAREGPT] = DATASET_FORMAT_SHAREGPT,
	};
	static const enum dataset_long_rows long_rows[] = {
	        [CONFIG_LONG_ROWS_TRUNCATE] = DATASET_LONG_ROWS_TRUNCATE,
	        [CONFIG_LONG_ROWS_DROP] = DATASET_LONG_ROWS_DROP,
	        [CONFIG_LONG_ROWS_ERROR] = DATASET_LONG_ROWS_ERROR,
	};

	const char *split = path == c->eval_data ? c->eval_data_split : c->data_split;

	if (split && !*split)
		split = NULL;
	return (struct dataset_options){
	        .path = path,
	        .split = split                  ? split
	                 : path == c->eval_data ? "validation"
	                                        : "train",
	        .split_want = split ? FILES_SPLIT_ASKED : FILES_SPLIT_DEFAULT,
	        .format = formats[c->data_format],
	        .text_field = c->text_field,
	        .tokenizer = tokenizer,
	        .vocab_count = vocab_count,
	        .max_length_tokens = c->max_length,
	        .long_rows = long_rows[c->long_rows],
	        .inputs = c->train_on_inputs ? DATASET_INPUTS_TRAIN : DATASET_INPUTS_MASK,
	        .turns = c->train_on_last_turn ? DATASET_TURNS_LAST : DATASET_TURNS_ALL,
	        .chat_template = chat_template,
	        /* alpaca is the form that its rows have by themselves */
	        .chat_template_is_chosen = template_chosen(c) && strcmp(c->chat_template, "alpaca"),
	        .max_samples = c->max_samples,
	};
}

int data_config_vocab_count(int64_t *vocab_count, const char *model_path)
{
	json_t *root = NULL;
	char *path = NULL;
	int err = 0;

	*vocab_count = 0;
	if (!model_path)
		return 0;
	path = file_kind_of(model_path) == FILE_DIR ? file_join(model_path, "config.json")
	                                            : mem_strdup(model_path);
	if (!path)
		return ERR_NOMEM;
	if (file_kind_of(path) == FILE_REGULAR) {
		err = json_read_file(&root, path, CONFIG_BYTES_MAX);
		if (!err)
			err = json_get_int(root, path, "vocab_size", vocab_count);
		err = err < 0 ? err : 0;
		json_decref(root);
	}
	mem_free(path);
	return err;
}
