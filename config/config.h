/* The configuration of one command: every key that a person can set, typed.
 *
 * Mental model. One list (config/keys.inc) says of each key its name, type, default, aliases, the verbs
 * that know it, a line of meaning and which values are refused. The fields of struct config, the parser, the
 * help, docs/reference/keys.md and the config.yaml that a run leaves are all made from it. Settings come from
 * the table's defaults, then configuration files, then the command line; the later one wins. Of each key the
 * place it was set is remembered, so that a complaint made much later still names file and line
 * (config_where).
 *
 * Words that stand for a number have a value here: `auto` is CONFIG_AUTO, `off` is 0. Texts are owned by the
 * struct, NULL where nothing was set. Texts of files written for other tools are understood too
 * (config/foreign.c).
 */
#ifndef FERRY_CONFIG_CONFIG_H
#define FERRY_CONFIG_CONFIG_H

#include "base/str.h"

#include <stdint.h>

/* Defaults of keys that are needed where no configuration is read. */
#define CONFIG_WATCHDOG_S 600
#define CONFIG_PREFETCH_UNITS 2

enum verb {
	VERB_TRAIN,
	VERB_EVAL,
	VERB_GENERATE,
	VERB_PLAN,
	VERB_EXPORT,
	VERB_INSPECT,
	VERB_VERIFY,
	VERB_TOKENIZE,
	VERB_DATA,
	VERB_INIT,
	VERB_TOPO,
	VERB_BENCH,
	VERB_COUNT
};

enum { CONFIG_AUTO = -1 };

enum config_offload { /* bits of cpu_offload */
	CONFIG_OFFLOAD_PARAMS = 1,
	CONFIG_OFFLOAD_GRADIENTS = 2,
	CONFIG_OFFLOAD_OPTIMIZER = 4,
	CONFIG_OFFLOAD_ACTIVATIONS = 8,
	CONFIG_OFFLOAD_ON = CONFIG_OFFLOAD_PARAMS | CONFIG_OFFLOAD_GRADIENTS | CONFIG_OFFLOAD_OPTIMIZER
};

/* enum config_packing, and so on: the values of keys that are words. */
#define KEY(...)
#define WORDS(name, list) enum config_##name{list};
#define WORDS_OF(name, list)
#define WORD(value, name, aliases) value,
#define REFUSED(value, name, aliases, why)
#include "config/keys.inc"

struct config_origin; /* where a key was set */

struct config {
	enum verb verb;

	/* of each key its field, which has the key's name where keys.inc says no other */
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
};

/* What stands after `ferry VERB`. Reads the configuration files that are named, resolves keys that depend on
 * each other, and leaves checks of meaning to config_check. With --help only c->help is set.
 *
 * Lines for people about files of other tools go to log_info. ERR_INPUT or ERR_UNSUPPORTED with a text that
 * names file, line and key; all unknown keys at once. *c can be freed in any case. */
int config_parse(struct config *c, enum verb verb, int argc, char *const argv[]);
void config_free(struct config *c);

/* Keys that the verb needs, values that are understood and not done (ERR_UNSUPPORTED, by name), and settings
 * that contradict each other (ERR_INPUT). Reads no file and writes none. */
int config_check(const struct config *c);

/* A number of steps: `value` itself, or ceil(value * total_steps) where it is below 1 (transformers' rule).
 */
int64_t config_steps(double value, int64_t total_steps);

/* Where a key (canonical name) was set: "run.yaml:12: lr", "lr" (command line) or "lr (default)". Valid for
 * the next seven calls of config_where and config_text by the same thread. */
const char *config_where(const struct config *c, const char *key);

/* "run.yaml:3" where a file set the key, "" where the command line did, NULL where nobody did. */
const char *config_set_at(const struct config *c, const char *key);

/* 1 where a key was set by a file or the command line. */
int config_was_set(const struct config *c, const char *key);

/* The value of a key as it would be written in a file; "" when it has none. Valid as config_where. */
const char *config_text(const struct config *c, const char *key);

/* The resolved configuration as a file: `ferry train` of it repeats the run. What only concerns one call
 * (resume, overwrite, dry run) is left out. */
void config_write_yaml(struct str *out, const struct config *c);

/* `ferry VERB --help`; docs/reference/keys.md, docs/ferry.1, docs/ferry.bash. */
void config_write_help(struct str *out, enum verb verb);
void config_write_markdown(struct str *out);
void config_write_man(struct str *out);
void config_write_completion(struct str *out);

const char *verb_name(enum verb verb);
/* VERB_COUNT when there is none of that name; *nearest is then a similar one or NULL. */
enum verb verb_find(const char *name, const char **nearest);

#endif
