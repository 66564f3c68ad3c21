/* The configuration of one command: every key that a user can set, with its type.
 *
 * Mental model. One list, config/keys.inc, gives each key its name, type, default, aliases, verbs, help line
 * and refused values. The fields of struct config, the parser, the help, docs/reference/keys.md and the
 * config.yaml of a run are all made from it. Settings come from the defaults, then from configuration files,
 * then from the command line. The later one wins. Each key remembers where it was set, so that a later error
 * can still name file and line (config_where).
 *
 * A word that stands for a number has a numeric value here: `auto` is CONFIG_AUTO, `off` is 0. The struct
 * owns its texts; a text without a value is NULL. The parser also understands files written for other tools
 * (config/dialect.h).
 */
#ifndef FERRY_CONFIG_CONFIG_H
#define FERRY_CONFIG_CONFIG_H

#include "base/str.h"

#include <stdint.h>

/* Defaults that code without a configuration needs too. */
#define CONFIG_WATCHDOG_S 600
#define CONFIG_PREFETCH_UNITS 2

enum verb {
	VERB_TRAIN,
	VERB_EVAL,
	VERB_GENERATE,
	VERB_PLAN,
	VERB_EXPORT,
	VERB_MERGE,
	VERB_INSPECT,
	VERB_VERIFY,
	VERB_TOKENIZE,
	VERB_DATA,
	VERB_CONFIG,
	VERB_INIT,
	VERB_TOPO,
	VERB_BENCH,
	VERB_REPORT,
	VERB_EMBED,
	VERB_COUNT
};

enum { CONFIG_AUTO = -1, CONFIG_EACH_EPOCH = -1, CONFIG_AT_THE_BEST = -2, CONFIG_BALANCE_MODEL = -2 };

enum config_offload { /* bits of cpu_offload */
	CONFIG_OFFLOAD_PARAMS = 1,
	CONFIG_OFFLOAD_GRADIENTS = 2,
	CONFIG_OFFLOAD_OPTIMIZER = 4,
	CONFIG_OFFLOAD_ACTIVATIONS = 8,
	CONFIG_OFFLOAD_ON = CONFIG_OFFLOAD_PARAMS | CONFIG_OFFLOAD_GRADIENTS | CONFIG_OFFLOAD_OPTIMIZER
};

/* enum config_packing and so on: one enum for each key with words as values. */
#define KEY(...)
#define WORDS(name, list) enum config_##name{list};
#define WORDS_OF(name, list)
#define WORD(value, name, aliases) value,
#define REFUSED(value, name, aliases, why)
#include "config/keys.inc"

struct config_origin; /* where a key was set */

struct config {
	enum verb verb;
	int word_count; /* of the command line, after the verb */

	/* One field for each key. It has the key's name unless keys.inc gives another. */
#define CONFIG_FIELD_TEXT char *
#define CONFIG_FIELD_PATTERN char *
#define CONFIG_FIELD_TEXTS char *
#define CONFIG_FIELD_FLAG int
#define CONFIG_FIELD_COUNT int64_t
#define CONFIG_FIELD_BYTES int64_t
#define CONFIG_FIELD_REAL double
#define CONFIG_FIELD_STEPS double
#define CONFIG_FIELD_ENUM int /* enum config_... of its words */
#define CONFIG_FIELD_SET int
#define KEY(name, field, type, ...) CONFIG_FIELD_##type field;
#define WORDS(name, list)
#define WORDS_OF(name, list)
#include "config/keys.inc"

	struct config_origin *origins; /* one per key of the table */
	struct json_t *data_lines; /* of the file that data_keys is from: lines of "data.0.embedding_loss" and
	                                  so on; NULL: none */
};

/* 1 if `activations` keeps some on the device. */
static inline int config_keeps_activations(const struct config *c)
{
	return c->activations != CONFIG_ACTIVATIONS_AUTO && c->activations != CONFIG_ACTIVATIONS_RECOMPUTE &&
	       c->activations != CONFIG_ACTIVATIONS_OFFLOAD;
}

/* Parses the words after `ferry VERB`. Reads the configuration files among them and resolves keys that depend
 * on each other. config_check checks what the values mean. With --help only c->help is set.
 *
 * Notes about files of other tools go to log_info. ERR_INPUT or ERR_UNSUPPORTED with a text that names file,
 * line and key. The text lists all unknown keys at once. The caller may free *c even after an error. */
int config_parse(struct config *c, enum verb verb, int argc, char *const argv[]);
void config_free(struct config *c);

/* Checks that all keys the verb needs are set (ERR_INPUT), that no value is unsupported (ERR_UNSUPPORTED, by
 * name), and that no settings contradict each other (ERR_INPUT). Reads and writes no file. */
int config_check(const struct config *c);

/* A number of steps: `value` itself from 1 on, below 1 ceil(value * total_steps), as in transformers; for
 * CONFIG_EACH_EPOCH epoch_steps, the steps of an epoch; for CONFIG_AT_THE_BEST 0. */
int64_t config_steps(double value, int64_t total_steps, int64_t epoch_steps);

/* Where a key (canonical name) was set: "run.yaml:12: lr", "lr" (command line) or "lr (default)". The text
 * stays valid for the next twelve calls of config_where, config_text and config_said by the same thread. */
const char *config_where(const struct config *c, const char *key);

/* "run.yaml:3" if a file set the key, "" if the command line did, NULL if it has its default. */
const char *config_set_at(const struct config *c, const char *key);

/* 1 if a file or the command line set the key. */
int config_was_set(const struct config *c, const char *key);

/* The value of a key as a file would write it; "" if it has none. Valid as long as the text of
 * config_where. */
const char *config_text(const struct config *c, const char *key);

/* The same in the words that set it, for a message behind config_where: `on` for packing=on. */
const char *config_said(const struct config *c, const char *key);

/* The dtype of activations and of what no key names: that of compute_dtype, bf16 for fp8. An enum dtype. */
int config_stage_dtype(const struct config *c);

/* The value of a switch, a number or an enum. */
double config_number(const struct config *c, const char *key);

/* The numbers of a list such as "768,512" or "[1, 0.5]": how many, at most `most`. -1: it is none, or
 * longer. */
int config_numbers(double *out, int most, const char *text);

/* 1 if the key's value is the default, whether it was set or not. */
int config_is_default(const struct config *c, const char *key);

/* The resolved configuration as a file: `ferry train FILE` repeats the run. Keys that concern only one call
 * (resume, overwrite, dry run) are left out. */
void config_write_yaml(struct str *out, const struct config *c);

/* `ferry VERB --help`; docs/reference/keys.md, docs/ferry.1, docs/ferry.bash. */
void config_write_help(struct str *out, enum verb verb);
void config_write_markdown(struct str *out);
void config_write_man(struct str *out);
void config_write_completion(struct str *out);

const char *verb_name(enum verb verb);
int verb_makes_result(enum verb verb); /* not 0: writes files that the user wants, as output_dir */
/* VERB_COUNT if no verb has that name; *nearest is then a similar name or NULL. */
enum verb verb_find(const char *name, const char **nearest);

#endif
