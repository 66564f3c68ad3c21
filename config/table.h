/* The table of keys: what config/ knows of each, for its own files and for others that parse values by its
 * rules. */
#ifndef FERRY_CONFIG_TABLE_H
#define FERRY_CONFIG_TABLE_H

#include "config/config.h"

#include <stddef.h>

enum config_type {
	TYPE_TEXT,    /* char *; "" and off are NULL */
	TYPE_PATTERN, /* char *: a regular expression; a list of them are alternatives */
	TYPE_TEXTS,   /* char *: a text, or several as a JSON list */
	TYPE_FLAG,    /* int, 0 or 1 */
	TYPE_COUNT,   /* int64_t: 1k 2M 1e8 */
	TYPE_BYTES,   /* int64_t: 24GiB */
	TYPE_REAL,    /* double */
	TYPE_STEPS,   /* double: a whole number, or a fraction in (0, 1) */
	TYPE_ENUM,    /* int: one of the words */
	TYPE_SET,     /* int: one of the words, or several of them that are single bits */
};

/* A word: of an enum its values, of a number those that stand for one (auto, off). */
struct config_word {
	const char *name;
	int value;
	const char *aliases; /* separated by blanks; NULL = none */
	const char *refusal; /* why the value is understood and not done; NULL = it is done */
};

/* The field is a char *. */
static inline int config_type_is_text(enum config_type type)
{
	return type == TYPE_TEXT || type == TYPE_PATTERN || type == TYPE_TEXTS;
}

enum { VERB_SETTING_ONCE = 1 << 16 }; /* flag in config_key.verbs: concerns one call, not the run */

/* What the value of a key names, where it names a file or directory (train/paths.h resolves those). */
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
	size_t offset;                   /* of the field in struct config */
	const char *default_text;        /* "" = none */
	const char *aliases;             /* separated by blanks; NULL = none */
	const struct config_word *words; /* ends with a NULL name; NULL = none */
	double min, max;                 /* of a number; bounds included */
	unsigned verbs;                  /* 1 << VERB_..., and VERB_SETTING_ONCE */
	const char *meaning;
	enum config_path path;
};

extern const struct config_key config_keys[];
extern const int config_key_count;

/* Where a key was set. */
struct config_origin {
	char *place;         /* "run.yaml:12", "" = the command line, NULL = default */
	char *as;            /* the name that was used there */
	const char *shown;   /* the refused word */
	const char *refusal; /* of the value that was set; NULL = it is done */
	int is_auto;         /* it was set to auto, whatever that became */
};

struct verb_info {
	const char *name;
	const char *usage;      /* what stands after "ferry NAME" */
	const char *meaning;    /* one line */
	const char *positional; /* key that a plain argument sets; NULL = it is a configuration file */
	const char *needs;      /* keys that must be set; "a|b" = one of them */
	const char *examples;   /* whole lines */
};
extern const struct verb_info verb_infos[VERB_COUNT];

/* Names are compared without case, with dashes and underscores alike. */
int config_name_equal(const char *a, const char *b);
int config_name_in(const char *name, const char *list);     /* list separated by blanks, may be NULL */
const struct config_key *config_key_find(const char *name); /* by name or alias; NULL = none */

/* Whether the verb takes the key: plan takes what train takes, also what changes nothing of a plan. */
int config_key_known(const struct config_key *key, enum verb verb);

/* A number within the key's bounds: whole, with a unit of bytes or of a count by the key's type (exact up to
 * 2^53), or real. ERR_INPUT says what it may be. */
int config_whole_parse(int64_t *out, const struct config_key *key, const char *text);
int config_real_parse(double *out, const struct config_key *key, const char *text);

/* Writes the value of `text` into the key's field. ERR_INPUT says what the value may be; the caller puts
 * place and name in front. *refused is the word that is understood and not done, else NULL. */
int config_value_set(
        struct config *c, const struct config_key *key, const char *text, const struct config_word **refused);

/* Appends at most 80 bytes of a value for a message, on one line. */
void config_value_shown(struct str *out, const char *text);

/* Appends the field as text that config_value_set takes back to the same value. */
void config_value_text(struct str *out, const struct config *c, const struct config_key *key);

/* One source of settings: a file, or the command line. Within a file a key may be set once, or again to the
 * same value (two aliases); on the command line the later setting counts, with a warning. */
struct config_layer {
	const char *file;    /* NULL = command line */
	unsigned char *seen; /* [config_key_count] of enum config_seen */
};

/* weak: only where the layer has not set the key, and a strong one takes its place */
enum config_strength { CONFIG_STRONG, CONFIG_WEAK };
enum config_seen { CONFIG_SEEN_NOT, CONFIG_SEEN_WEAK, CONFIG_SEEN_STRONG };

/* Sets a key. `as` is the name in use, `line` of the file. Errors carry place and name. */
int config_set(struct config *c, struct config_layer *layer, const struct config_key *key, const char *as,
        int line, const char *text, enum config_strength strength);

/* "run.yaml:12: " or "" in front of a message. */
void config_place(struct str *out, const struct config_layer *layer, int line);

#endif
