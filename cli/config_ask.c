/* Asks for the settings of a run, checks each answer, and writes the file. */
#include "cli/config_ask.h"

#include "cli/ask_parts.h"
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
	LENGTH_STEP = 64, /* a proposed max_length is a multiple of it */
	LENGTH_PROPOSED_MAX = 2048,
	FREE_NAMES_MAX = 100
};

void ask_say(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	fflush(stdout);
}

/* ---- settings ---- */

int ask_setting(struct asking *a, const char *key, const char *value)
{
	char *word = mem_printf("%s=%s", key, value);
	size_t len = strlen(key) + 1;
	int i = 0;

	if (!word)
		return ERR_NOMEM;
	while (i < a->count && strncmp(a->words[i], word, len))
		i++;
	if (i == ASK_SETTINGS_MAX) {
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
int ask_parsed(struct config *c, const struct asking *a)
{
	int rc = config_parse(c, VERB_CONFIG, a->count, a->words);

	return rc ? rc : config_check(c);
}

/* The same for use by a verb: with the files that they mean. */
int ask_resolved(struct config *c, const struct asking *a, enum verb verb)
{
	int rc = ask_parsed(c, a);

	if (!rc)
		rc = paths_resolve(c);
	c->verb = verb;
	return rc ? rc : preflight_check(c);
}

/* Takes an answer that needs no other check than those of ferry train. */
static int take_setting(struct asking *a, const char *key)
{
	struct config c = {0};
	int rc = ask_setting(a, key, a->answer);

	if (!rc)
		rc = ask_resolved(&c, a, VERB_TRAIN);
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
	int rc = ask_setting(a, "model", a->answer);

	if (!rc)
		rc = ask_resolved(&c, a, VERB_TRAIN);
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
		ask_say("  %s, %d layer%s\n", a->model_is.data, (int)s.model->config.L,
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
	int rc = ask_setting(a, "max_length", a->answer);

	if (!rc)
		rc = ask_parsed(&c, a);
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
        {"adapter", "2 lora", {"2e-4", "1e-5"}, "16", "auto"},
};
enum { CHOICE_COUNT = sizeof(choices) / sizeof(*choices) };

static int choice_set(struct asking *a, const struct choice_row *row)
{
	int rc = ask_setting(a, "learning_rate", row->rate[a->is_paired]);

	if (!rc)
		rc = ask_setting(a, "lora_rank", row->rank);
	return rc ? rc : ask_setting(a, "lora_alpha", row->alpha);
}

static int need_find(struct host_memory *need, const struct asking *a)
{
	struct engine_memory memory;
	struct session s = {0};
	struct config c = {0};
	int world_size, rc = ask_resolved(&c, a, VERB_PLAN);

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
		ask_say("  %-8s %s\n", choices[i].name, text.data ? text.data : "");
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
int ask_propose_free(struct asking *a, const char *name, const char *ending)
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
	return ask_propose_free(a, "out", "");
}

static int output_take(struct asking *a)
{
	return take_setting(a, "output_dir");
}

/* ---- the questions ---- */

static const struct {
	const char *text;
	int (*propose)(struct asking *a); /* fills `proposed`, for an empty answer */
	int (*take)(struct asking *a);
} questions[] = {
        {"Model, a HuggingFace directory with weights", model_propose, model_take},
        {"Rows, a file (.jsonl .json .parquet .csv .txt) or a folder", data_propose, ask_data_take},
        {"Chat template, one of these or a file", ask_template_propose, ask_template_take},
        {"Longest row in tokens; longer ones are cut", length_propose, length_take},
        {"Train all weights or an adapter (LoRA): all or adapter", choice_propose, choice_take},
        {"Epochs, passes over the rows", epochs_propose, epochs_take},
        {"Directory for checkpoints and the trained model", output_propose, output_take},
        {"Write these settings to the file", ask_file_propose, ask_file_take},
};

/* Asks, and reads a line without the blanks around it. */
int ask_answer(struct asking *a, const char *question)
{
	const char *proposed = a->proposed.data ? a->proposed.data : "";
	ssize_t len;
	char *at;

	for (a->number++;;) {
		ask_say(*proposed ? "%s [%s]: " : "%s%s: ", question, proposed);
		len = getline(&a->line, &a->cap, stdin);
		if (len < 0) {
			ask_say("\n");
			return err_set(ERR_INPUT,
			        "the answers ended, and no file was written; to show a configuration, write "
			        "ferry config FILE");
		}
		while (len > 0 && strchr(" \t\r\n", a->line[len - 1]))
			a->line[--len] = 0;
		at = a->line + strspn(a->line, " \t");
		if (strlen(a->line) == (size_t)len && (*at || *proposed))
			break;
		if (!isatty(STDIN_FILENO))
			return err_set(ERR_INPUT, "answer %d is empty; no file was written", a->number);
		ask_say("  write an answer; Ctrl-C ends this without a file\n");
	}
	a->answer = *at ? at : proposed;
	if (!isatty(STDIN_FILENO)) /* nobody sees what was typed */
		ask_say("%s\n", a->answer);
	return 0;
}

/* A wrong answer from a pipe: nobody answers again. */
static int answer_refuse(const struct asking *a, int rc)
{
	struct err why = {0};

	err_take(&why, rc);
	return err_set(rc, "answer %d: %s; no file was written", a->number, why.text);
}

/* Asks until the answer is good, or once if answers come from a pipe. */
static int question_ask(struct asking *a, size_t number)
{
	int rc;

	for (;;) {
		str_free(&a->proposed);
		rc = questions[number].propose(a);
		if (!rc)
			rc = str_check(&a->proposed);
		if (!rc)
			rc = ask_answer(a, questions[number].text);
		if (rc)
			return rc;
		rc = questions[number].take(a);
		if (!is_about_input(rc))
			return rc;
		if (!isatty(STDIN_FILENO)) /* later answers are for later questions */
			return answer_refuse(a, rc);
		ask_say("  %s\n", err_text());
	}
}

int config_ask(void)
{
	struct asking a = {0};
	int rc = ask_setting(&a, "per_device_train_batch_size", "1");

	if (!rc)
		rc = ask_setting(&a, "gradient_accumulation_steps", "1");

	for (size_t i = 0; i < sizeof(questions) / sizeof(*questions) && !rc; i++)
		if (questions[i].take != ask_template_take || a.asks_template)
			rc = question_ask(&a, i);
	for (int i = 0; i < a.count; i++)
		mem_free(a.words[i]);
	str_free(&a.proposed);
	str_free(&a.model_is);
	str_free(&a.data_is);
	free(a.line);
	return rc;
}
