/* Asks for the settings of a run, checks each answer, and writes the file. */
#include "cli/config_ask.h"

#include "cli/cli.h"
#include "cli/plan_open.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/quantity.h"
#include "config/table.h"
#include "config/write.h"
#include "placement/host_memory.h"
#include "train/inputs/paths.h"
#include "train/preflight.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	SETTINGS_MAX = 16,
	COMMENT_COLUMN = 40,
	LENGTH_STEP = 64, /* a proposed max_length is a multiple of it */
	LENGTH_PROPOSED_MAX = 2048,
	ROWS_FEW = 200,
	FREE_NAMES_MAX = 100
};

struct asking {
	char *words[SETTINGS_MAX]; /* "key=value": the settings so far */
	int count;
	char *line; /* the last answer, from getline */
	size_t cap;
	const char *answer; /* in `line`, or the proposed one */
	struct str proposed;
	struct str model_is, data_is; /* comments for the file */
	int64_t max_positions, longest_tokens;
	int is_paired;  /* the rows are pairs: learning rates are lower */
	int is_bounded; /* rows of more than max_positions are refused */
};

static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	fflush(stdout);
}

/* ---- settings ---- */

static int setting(struct asking *a, const char *key, const char *value)
{
	char *word = mem_printf("%s=%s", key, value);
	size_t len = strlen(key) + 1;
	int i = 0;

	if (!word)
		return ERR_NOMEM;
	while (i < a->count && strncmp(a->words[i], word, len))
		i++;
	if (i == SETTINGS_MAX) {
		mem_free(word);
		return err_set(ERR_INTERNAL, "more settings than there is room for");
	}
	if (i < a->count)
		mem_free(a->words[i]);
	a->words[i] = word;
	a->count += i == a->count;
	return 0;
}

/* Parses the settings so far, as they stand in the file. Keys that a verb needs may be missing. */
static int parsed(struct config *c, const struct asking *a)
{
	int rc = config_parse(c, VERB_CONFIG, a->count, a->words);

	return rc ? rc : config_check(c);
}

/* The same for use by a verb: with the files that they mean. */
static int resolved(struct config *c, const struct asking *a, enum verb verb)
{
	int rc = parsed(c, a);

	if (!rc)
		rc = paths_resolve(c);
	c->verb = verb;
	return rc ? rc : preflight_check(c);
}

/* Takes an answer that needs no other check than those of ferry train. */
static int take_setting(struct asking *a, const char *key)
{
	struct config c = {0};
	int rc = setting(a, key, a->answer);

	if (!rc)
		rc = resolved(&c, a, VERB_TRAIN);
	config_free(&c);
	return rc;
}

/* ---- the model ---- */

static int is_model(const char *name)
{
	char *path = file_join(name, "config.json");
	int found = path && file_kind_of(path) == FILE_REGULAR;

	mem_free(path);
	return found;
}

static int is_data(const char *name)
{
	static const char *const endings[] = {".jsonl", ".parquet", ".csv", ".tsv"};

	for (size_t i = 0; i < sizeof(endings) / sizeof(*endings); i++)
		if (str_ends_with(name, endings[i]))
			return file_kind_of(name) == FILE_REGULAR;
	return 0;
}

/* Proposes the first name of the current directory that fits. */
static void propose_here(struct asking *a, int (*fits)(const char *name))
{
	char **names;
	size_t count;

	if (file_list_dir(".", &names, &count))
		return;
	for (size_t i = 0; i < count && !a->proposed.len_bytes; i++)
		if (fits(names[i]))
			str_add(&a->proposed, names[i]);
	file_list_free(names, count);
}

static int model_propose(struct asking *a)
{
	propose_here(a, is_model);
	return 0;
}

static int model_take(struct asking *a)
{
	struct session s = {0};
	struct config c = {0};
	int rc = setting(a, "model", a->answer);

	if (!rc)
		rc = resolved(&c, a, VERB_TRAIN);
	if (!rc)
		rc = session_open_model(&s, &c, SESSION_WEIGHTS_MODEL);
	if (!rc) {
		str_free(&a->model_is);
		str_printf(&a->model_is, "%s, ", s.model->config.model_type);
		quantity_count(&a->model_is, (double)s.model->parameter_count);
		str_add(&a->model_is, " parameters");
		a->max_positions = s.model->config.max_positions;
		a->is_bounded = s.model->config.has[ROLE_POSITION] || s.model->config.rope[0].is_bounded;
		rc = str_check(&a->model_is);
	}
	if (!rc)
		say("  %s, %d layer%s\n", a->model_is.data, (int)s.model->config.L,
		        plural_s(s.model->config.L));
	session_close(&s);
	config_free(&c);
	return rc;
}

/* ---- the data ---- */

static int data_propose(struct asking *a)
{
	propose_here(a, is_data);
	return 0;
}

static void rows_describe(struct asking *a, const struct dataset *d)
{
	a->longest_tokens = d->counts.longest_tokens;
	for (int64_t row = 0; row < d->row_count; row++)
		if (dataset_row_tokens(d, row) > a->longest_tokens)
			a->longest_tokens = dataset_row_tokens(d, row);
	str_free(&a->data_is);
	str_printf(&a->data_is, "%" PRId64 " %s%s of %s", dataset_unit_count(d), dataset_unit(d),
	        plural_s(dataset_unit_count(d)), dataset_format_name(d->format));
	say("  %s; the first has %" PRId64 " tokens, the longest %" PRId64 "\n",
	        a->data_is.data ? a->data_is.data : "", dataset_row_tokens(d, 0), a->longest_tokens);
}

/* Reads the rows, as pairs if a loss of pairs is set. */
static int data_try(struct asking *a, const char *preference_loss)
{
	struct session s = {0};
	struct config c = {0};
	int rc = setting(a, "preference_loss", preference_loss);

	if (!rc)
		rc = resolved(&c, a, VERB_TRAIN);
	if (!rc)
		rc = session_open_model(&s, &c, SESSION_WEIGHTS_ELSEWHERE);
	if (!rc)
		rc = session_open_rows(&s);
	if (!rc) {
		rows_describe(a, s.train.data);
		rc = str_check(&a->data_is);
	}
	if (!rc) { /* a copy of the weights serves more rows; few rows need many steps */
		rc = setting(
		        a, "gradient_accumulation_steps", s.train.data->row_count < ROWS_FEW ? "1" : "8");
	}
	a->is_paired = c.preference_loss != 0;
	session_close(&s);
	config_free(&c);
	return rc;
}

static int data_take(struct asking *a)
{
	char limit[24] = "off";
	struct err first = {0};
	int rc = setting(a, "data", a->answer);

	if (a->max_positions > 0)
		snprintf(limit, sizeof(limit), "%" PRId64, a->max_positions);
	if (!rc) /* as long as they are; the next question is about it */
		rc = setting(a, "max_length", limit);
	if (!rc)
		rc = data_try(a, "off");
	if (rc != ERR_INPUT)
		return rc;
	err_take(&first, rc);
	return data_try(a, "sigmoid") ? err_give(&first) : 0;
}

/* ---- the length ---- */

static int length_propose(struct asking *a)
{
	int64_t tokens = (a->longest_tokens + LENGTH_STEP - 1) / LENGTH_STEP * LENGTH_STEP;

	if (tokens > LENGTH_PROPOSED_MAX)
		tokens = LENGTH_PROPOSED_MAX;
	if (a->max_positions > 0 && tokens > a->max_positions)
		tokens = a->max_positions;
	str_printf(&a->proposed, "%" PRId64, tokens);
	return 0;
}

static int length_take(struct asking *a)
{
	struct config c = {0};
	int rc = setting(a, "max_length", a->answer);

	if (!rc)
		rc = parsed(&c, a);
	if (!rc && a->is_bounded && (!c.max_length || c.max_length > a->max_positions))
		rc = err_set(ERR_INPUT, "the model has %" PRId64 " positions; no row may be longer",
		        a->max_positions);
	config_free(&c);
	return rc;
}

/* ---- what trains ---- */

static const struct choice_row {
	const char *name, *also;
	const char *rate[2]; /* of rows, of pairs */
	const char *rank, *alpha;
} choices[] = {
        {"all", "1 weights full", {"2e-5", "1e-6"}, "0", "auto"},
        {"adapter", "2 lora", {"2e-4", "1e-5"}, "16", "32"},
};
enum { CHOICE_COUNT = sizeof(choices) / sizeof(*choices) };

static int choice_set(struct asking *a, const struct choice_row *row)
{
	int rc = setting(a, "learning_rate", row->rate[a->is_paired]);

	if (!rc)
		rc = setting(a, "lora_rank", row->rank);
	return rc ? rc : setting(a, "lora_alpha", row->alpha);
}

static int need_find(struct host_memory *need, const struct asking *a)
{
	struct engine_memory memory;
	struct session s = {0};
	struct config c = {0};
	int world_size, rc = resolved(&c, a, VERB_PLAN);

	if (!rc) {
		mem_free(c.data); /* rows of max_length are enough, and reading them again takes time */
		c.data = NULL;
		rc = plan_open_model(&s, &c);
	}
	if (!rc)
		rc = plan_open_engine(&s, &world_size);
	if (!rc)
		rc = session_start_engine(&s);
	if (!rc) {
		engine_get_memory(s.engine, &memory);
		rc = host_memory_find(need, &c, session_host_bytes(&s, &memory), NULL);
	}
	session_close(&s);
	config_free(&c);
	return rc;
}

static int is_about_input(int rc)
{
	return rc == ERR_INPUT || rc == ERR_UNSUPPORTED || rc == ERR_FIT || rc == ERR_IO;
}

/* Says what each choice takes, and proposes the first that fits, or an adapter. */
static int choice_propose(struct asking *a)
{
	const char *proposed = choices[CHOICE_COUNT - 1].name;

	for (int i = CHOICE_COUNT - 1; i >= 0; i--) {
		struct host_memory need = {0};
		struct str text = {0};
		int rc = choice_set(a, &choices[i]);

		log_set_sink(NULL, NULL);
		if (!rc)
			rc = need_find(&need, a);
		cli_log_start();
		if (rc && !is_about_input(rc))
			return rc;
		if (rc) {
			str_printf(&text, "not possible: %s", err_text());
		} else {
			quantity_bytes(&text, need.need_bytes);
			str_printf(&text, " of host memory; %s ", need.limit_is);
			quantity_bytes(&text, need.limit_bytes);
		}
		if (!rc && need.fits)
			proposed = choices[i].name;
		say("  %-8s %s\n", choices[i].name, text.data ? text.data : "");
		str_free(&text);
	}
	str_add(&a->proposed, proposed);
	return 0;
}

static int choice_take(struct asking *a)
{
	for (int i = 0; i < CHOICE_COUNT; i++) {
		struct host_memory need;
		int rc;

		if (!config_name_in(a->answer, choices[i].name) &&
		        !config_name_in(a->answer, choices[i].also))
			continue;
		rc = choice_set(a, &choices[i]);
		log_set_sink(NULL, NULL);
		if (!rc)
			rc = need_find(&need, a);
		cli_log_start();
		return rc;
	}
	return err_set(ERR_INPUT, "write all or adapter");
}

/* ---- epochs, results ---- */

static int epochs_propose(struct asking *a)
{
	str_add(&a->proposed, "1");
	return 0;
}

static int epochs_take(struct asking *a)
{
	return take_setting(a, "num_train_epochs");
}

/* Proposes the first of NAME, NAME-2, NAME-3, ... that does not exist. */
static int propose_free(struct asking *a, const char *name, const char *ending)
{
	for (int i = 1; i < FREE_NAMES_MAX; i++) {
		str_free(&a->proposed);
		str_add(&a->proposed, name);
		if (i > 1)
			str_printf(&a->proposed, "-%d", i);
		str_add(&a->proposed, ending);
		if (!a->proposed.data || file_kind_of(a->proposed.data) == FILE_NONE)
			break;
	}
	return 0;
}

static int output_propose(struct asking *a)
{
	return propose_free(a, "out", "");
}

static int output_take(struct asking *a)
{
	return take_setting(a, "output_dir");
}

/* ---- the file ---- */

/* What stands in the file. Without adapters, or pairs, their keys are left out. */
static const struct {
	const char *key, *meaning;
} lines[] = {
        {"model", NULL},
        {"data", NULL},
        {"preference_loss", "trains on pairs of answers; sigmoid is the loss of DPO"},
        {"max_length", "longer rows are cut to this many tokens"},
        {"lora_rank", "trains an adapter of this rank; 0 trains all weights"},
        {"lora_alpha", "scale of the adapter, times the rank"},
        {"learning_rate", "at its peak; it falls to 0 by the end"},
        {"num_train_epochs", "passes over the rows"},
        {"per_device_train_batch_size", "rows that go through the model together"},
        {"gradient_accumulation_steps", "times so many, for one step of the optimizer"},
        {"output_dir", "checkpoints, metrics.jsonl and the model"},
};

static int text_write(struct str *out, const struct asking *a)
{
	struct config c = {0};
	int rc = parsed(&c, a);

	str_add(out, "# Written by ferry config. More keys: ferry train --help\n");
	for (size_t i = 0; i < sizeof(lines) / sizeof(*lines) && !rc; i++) {
		const char *key = lines[i].key, *meaning = lines[i].meaning;
		size_t begin = out->len_bytes;

		if ((!strncmp(key, "lora_", 5) && !c.lora_rank) ||
		        (!strncmp(key, "preference_", 11) && !c.preference_loss))
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

static int answer_read(struct asking *a, const char *question);

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
			rc = answer_read(a, question.data);
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

static int file_propose(struct asking *a)
{
	return propose_free(a, "run", ".yaml");
}

static int file_take(struct asking *a)
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
		say("wrote %s. Next, see what it takes, then train:\n  %s plan %s\n  %s train %s\n", path,
		        cli_program(), word.data, cli_program(), word.data);
	str_free(&word);
	mem_free(path);
	return rc;
}

/* ---- the questions ---- */

static const struct {
	const char *text;
	int (*propose)(struct asking *a); /* fills `proposed`, for an empty answer */
	int (*take)(struct asking *a);
} questions[] = {
        {"Model to fine-tune, a HuggingFace directory with config.json and weights", model_propose,
                model_take},
        {"Rows to train on: a file (.jsonl, .json, .parquet, .csv, .txt) or a folder of them", data_propose,
                data_take},
        {"Longest row in tokens; longer ones are cut", length_propose, length_take},
        {"Train all weights, or only an adapter (LoRA), which takes less memory: all or adapter",
                choice_propose, choice_take},
        {"Epochs, passes over the rows", epochs_propose, epochs_take},
        {"Directory for checkpoints and the trained model", output_propose, output_take},
        {"Write these settings to the file", file_propose, file_take},
};

/* Asks, and reads a line without the blanks around it. */
static int answer_read(struct asking *a, const char *question)
{
	const char *proposed = a->proposed.data ? a->proposed.data : "";
	ssize_t len;
	char *at;

	for (;;) {
		say(*proposed ? "%s [%s]: " : "%s%s: ", question, proposed);
		len = getline(&a->line, &a->cap, stdin);
		if (len < 0) {
			say("\n");
			return err_set(ERR_INPUT,
			        "the answers ended, and no file was written; to show a configuration, write "
			        "ferry config FILE");
		}
		while (len > 0 && strchr(" \t\r\n", a->line[len - 1]))
			a->line[--len] = 0;
		at = a->line + strspn(a->line, " \t");
		if (strlen(a->line) == (size_t)len && (*at || *proposed))
			break;
		say("  write an answer; Ctrl-C ends this without a file\n");
	}
	a->answer = *at ? at : proposed;
	if (!isatty(STDIN_FILENO)) /* nobody sees what was typed */
		say("%s\n", a->answer);
	return 0;
}

/* Asks until the answer is good. */
static int question_ask(struct asking *a, size_t number)
{
	int rc;

	for (;;) {
		str_free(&a->proposed);
		rc = questions[number].propose(a);
		if (!rc)
			rc = str_check(&a->proposed);
		if (!rc)
			rc = answer_read(a, questions[number].text);
		if (rc)
			return rc;
		rc = questions[number].take(a);
		if (!is_about_input(rc))
			return rc;
		say("  %s\n", err_text());
	}
}

int config_ask(void)
{
	struct asking a = {0};
	int rc = setting(&a, "per_device_train_batch_size", "1");

	for (size_t i = 0; i < sizeof(questions) / sizeof(*questions) && !rc; i++)
		rc = question_ask(&a, i);
	for (int i = 0; i < a.count; i++)
		mem_free(a.words[i]);
	str_free(&a.proposed);
	str_free(&a.model_is);
	str_free(&a.data_is);
	free(a.line);
	return rc;
}
