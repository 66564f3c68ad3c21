/* The table of keys: name, type, default, words and verbs of each key.
 *
 * Internal to config/, except for code elsewhere that parses values by the same rules (placement/machine.c).
 * schema.c builds the table from config/keys.inc. */
#ifndef FERRY_CONFIG_TABLE_H
#define FERRY_CONFIG_TABLE_H

#include "config/config.h"

#include <stddef.h>

enum config_type {
	TYPE_TEXT,    /* char *; "" and off are NULL */
	TYPE_PATTERN, /* char *: a regular expression; a list becomes alternatives */
	TYPE_TEXTS,   /* char *: a text, or several as a JSON list */
	TYPE_FLAG,    /* int, 0 or 1 */
	TYPE_COUNT,   /* int64_t: 1k 2M 1e8 */
	TYPE_BYTES,   /* int64_t: 24GiB */
	TYPE_REAL,    /* double */
	TYPE_STEPS,   /* double: a whole number, or a fraction in (0, 1) */
	TYPE_ENUM,    /* int: one of the words */
	TYPE_SET,     /* int: one of the words, or several of them that are single bits */
};

/* A word that a key accepts: a value of an enum, or a word for a number (auto, off). */
struct config_word {
	const char *name;
	int value;
	const char *aliases; /* separated by blanks; NULL = none */
	const char *refusal; /* why ferry does not support the value; NULL = supported */
};

/* The field is a char *. */
static inline int config_type_is_text(enum config_type type)
{
	return type == TYPE_TEXT || type == TYPE_PATTERN || type == TYPE_TEXTS;
}

/* Flags in config_key.verbs: concerns one call, not the run; a data set may have its own
 * (config/data_keys.h). */
enum { VERB_SETTING_ONCE = 1 << 16, VERB_SETTING_OF_SET = 1 << 17 };

/* The kind of file or directory that a key names (train/inputs/paths.h resolves relative ones). */
enum config_path {
	CONFIG_PATH_NONE,
	CONFIG_PATH_MODEL, /* read; may be a model's hub id */
	CONFIG_PATH_DATA,  /* read; may be a data set's hub id */
	CONFIG_PATH_READ,
	CONFIG_PATH_WRITE /* made in the current directory, wherever the configuration file is */
};

struct config_key {
	const char *name;
	const char *group;
	enum config_type type;
	size_t offset;                   /* of the field in struct config, in bytes */
	const char *default_text;        /* "" = none */
	const char *aliases;             /* separated by blanks; NULL = none */
	const struct config_word *words; /* ends with a NULL name; NULL = none */
	double min, max;                 /* of a number, inclusive */
	unsigned verbs;                  /* 1 << VERB_..., and VERB_SETTING_... */
	const char *meaning;
	enum config_path path;
};

extern const struct config_key config_keys[];
extern const int config_key_count;

/* Where a key was set. */
struct config_origin {
	char *place; /* "run.yaml:12", "rows.json" (at no line), "" = the command line, NULL = default */
	char *as;    /* the name used there */
	char *text;  /* the value as written there, */
	char *value; /* and how it reads back: the field may have another one by now */
	const char *shown;   /* the refused word */
	const char *refusal; /* reason if the value is not supported; NULL = supported */
	int is_auto;         /* set to auto, whatever value it has now */
};

enum verb_fact {
	VERB_MAKES_RESULT = 1,  /* writes files that the user wants */
	VERB_TAKES_SEVERAL = 2, /* several plain arguments become a list; the key has TYPE_TEXTS */
	VERB_IS_ALONE = 4       /* refuses to run as several processes, as those with results do */
};

struct verb_info {
	const char *name;
	const char *usage;      /* the text after "ferry NAME" */
	const char *meaning;    /* one line */
	const char *positional; /* key that a plain argument sets; NULL = it is a configuration file */
	const char *needs;      /* keys that must be set; "a|b" = one of them */
	const char *examples;   /* whole lines */
	unsigned facts;         /* bits of enum verb_fact */
};
extern const struct verb_info verb_infos[VERB_COUNT];

void config_origin_free(struct config_origin *origin); /* then it is that of a default */

/* Compares names without case; dashes equal underscores. */
int config_name_equal(const char *a, const char *b);
int config_name_in(const char *name, const char *list);     /* list separated by blanks, may be NULL */
const struct config_key *config_key_find(const char *name); /* by name or alias; NULL = none */

/* Whether the verb accepts the key. plan and config accept every key of train: plan even those without effect
 * on a plan. */
int config_key_known(const struct config_key *key, enum verb verb);

/* The name of the verb that explains this verb's keys. */
const char *config_keys_verb(enum verb verb);

/* Whether the settings are those of a training run. config shows what train would do with them. */
static inline int config_trains(const struct config *c)
{
	return c->verb == VERB_TRAIN || c->verb == VERB_CONFIG;
}

/* Parses a number within the key's bounds. A whole number may have a unit, of bytes or of a count by the
 * key's type; it is exact up to 2^53. ERR_INPUT says which values are valid. */
int config_whole_parse(int64_t *out, const struct config_key *key, const char *text);
int config_real_parse(double *out, const struct config_key *key, const char *text);

/* Writes the value of `text` into the key's field. ERR_INPUT says which values are valid; the caller puts
 * place and name in front. *refused is the word that ferry does not support, else NULL. */
int config_value_set(
        struct config *c, const struct config_key *key, const char *text, const struct config_word **refused);

/* Appends at most 80 bytes of a value for a message, on one line. */
void config_value_shown(struct str *out, const char *text);

/* Appends the field as text that config_value_set takes back to the same value. */
void config_value_text(struct str *out, const struct config *c, const struct config_key *key);

/* One source of settings: a file or the command line. A file may set a key once, or twice to the same value
 * under two aliases. On the command line the later setting wins, with a warning. */
struct config_layer {
	const char *file;    /* NULL = command line */
	unsigned char *seen; /* [config_key_count] of enum config_seen */
	int is_list;         /* the present setting is a YAML list */
};

/* A weak setting counts only if the layer does not set the key otherwise. */
enum config_strength { CONFIG_STRONG, CONFIG_WEAK };
enum config_seen { CONFIG_SEEN_NOT, CONFIG_SEEN_WEAK, CONFIG_SEEN_STRONG };

/* Sets a key. `as` is the name that the user wrote, `line` the line of the file. Errors name both. */
int config_set(struct config *c, struct config_layer *layer, const struct config_key *key, const char *as,
        int line, const char *text, enum config_strength strength);

/* ERR_INPUT if the present setting is a list and the key a number, a size, a switch or a word. */
int config_refuse_list(
        const struct config_layer *layer, const struct config_key *key, const char *as, int line);

/* Sets a key to what follows from the setting `as` at that place, as if it said so. file NULL: the command
 * line; line 0: at no line. */
int config_set_meant(
        struct config *c, const char *file, const char *name, const char *as, int line, const char *text);

/* Resolves keys that depend on each other. ERR_INPUT: they contradict each other. */
int config_resolve(struct config *c);

/* Appends "run.yaml:12: ", or nothing for the command line, to begin a message. */
void config_place(struct str *out, const struct config_layer *layer, int line);

#endif
