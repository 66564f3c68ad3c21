/* Writes the answers of ferry config as a file. */
#include "cli/ask_parts.h"
#include "cli/cli.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "config/table.h"
#include "config/write.h"

#include <string.h>

enum { COMMENT_COLUMN = 40 };

/* What stands in the file. Without adapters, or pairs, their keys are left out. */
static const struct {
	const char *key, *meaning;
} lines[] = {
        {"model", NULL},
        {"data", NULL},
        {"chat_template", "turns chats into text"},
        {"preference_loss", "trains on pairs of answers; sigmoid is the loss of DPO"},
        {"max_length", "longer rows are cut to this many tokens"},
        {"lora_rank", "trains an adapter of this rank; 0 trains all weights"},
        {"lora_alpha", "scale of the adapter, times the rank; auto is the rank"},
        {"learning_rate", "at its peak; it falls to 0 by the end"},
        {"num_train_epochs", "passes over the rows"},
        {"per_device_train_batch_size", "rows that go through the model together"},
        {"gradient_accumulation_steps", "times so many, for one step; ferry plan says what more gain"},
        {"output_dir", "checkpoints, metrics.jsonl and the model"},
};

static int text_write(struct str *out, const struct asking *a)
{
	struct config c = {0};
	int rc = ask_parsed(&c, a);

	str_add(out, "# Written by ferry config. More keys: ferry train --help\n");
	for (size_t i = 0; i < sizeof(lines) / sizeof(*lines) && !rc; i++) {
		const char *key = lines[i].key, *meaning = lines[i].meaning;
		size_t begin = out->len_bytes;

		if ((!strncmp(key, "lora_", 5) && !c.lora_rank) ||
		        (!strncmp(key, "preference_", 11) && !c.preference_loss) ||
		        (!strcmp(key, "chat_template") && !c.chat_template))
			continue;
		if (!meaning)
			meaning = !strcmp(key, "model") ? a->model_is.data : a->data_is.data;
		config_write_setting(out, &c, key);
		begin = out->len_bytes - begin;
		str_printf(out, "%*s  # %s\n", begin < COMMENT_COLUMN ? (int)(COMMENT_COLUMN - begin) : 0, "",
		        meaning ? meaning : "");
	}
	config_free(&c);
	return rc ? rc : str_check(out);
}

/* Writes the file, unless another one of this name is to stay. */
static int file_write(struct asking *a, const char *path)
{
	struct str text = {0}, question = {0};
	enum file_kind kind = file_kind_of(path);
	int rc = text_write(&text, a);

	if (!rc && kind != FILE_NONE && kind != FILE_REGULAR)
		rc = err_set(ERR_INPUT, "%s is not a file", path);
	if (!rc && kind == FILE_REGULAR) {
		str_printf(&question, "%s exists. Replace it, yes or no", path);
		str_free(&a->proposed);
		str_add(&a->proposed, "no");
		rc = str_check(&question);
		if (!rc)
			rc = ask_answer(a, question.data);
		if (!rc && !config_name_in(a->answer, "yes y"))
			rc = err_set(ERR_INPUT, "%s stays as it is; name another file", path);
	}
	file_clean_parts_of(path);
	if (!rc)
		rc = file_write_all(path, text.data, text.len_bytes);
	str_free(&question);
	str_free(&text);
	return rc;
}

int ask_file_propose(struct asking *a)
{
	return ask_propose_free(a, "run", ".yaml");
}

int ask_file_take(struct asking *a)
{
	int has_ending = str_ends_with(a->answer, ".yaml") || str_ends_with(a->answer, ".yml");
	char *path = mem_printf("%s%s", a->answer, has_ending ? "" : ".yaml");
	struct str word = {0};
	int rc = path ? file_write(a, path) : ERR_NOMEM;

	if (!rc) {
		if (*path == '-' || strchr(path, '=')) /* else it would be an option or a setting */
			str_add(&word, "./");
		str_add(&word, path);
		mem_free(path);
		path = str_take(&word);
		rc = path ? 0 : ERR_NOMEM;
	}
	if (!rc) {
		cli_add_word(&word, path);
		rc = str_check(&word);
	}
	if (!rc)
		ask_say("wrote %s. Next, see what it takes, then train:\n  %s plan %s\n  %s train %s\n", path,
		        cli_program(), word.data, cli_program(), word.data);
	str_free(&word);
	mem_free(path);
	return rc;
}
