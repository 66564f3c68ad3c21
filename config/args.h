/* The words after `ferry VERB`, split into settings, configuration files and plain arguments.
 *
 * A setting is "name=value", "--name value", "--flag" or "--no-flag". Words after "--" are never options. A
 * training command takes "--name a b c" for keys with lists and for words of other trainers. */
#ifndef FERRY_CONFIG_ARGS_H
#define FERRY_CONFIG_ARGS_H

#include "config/config.h"

enum argument_kind { ARGUMENT_FILE, ARGUMENT_PLAIN, ARGUMENT_SETTING };

enum { ARGUMENT_NAME_BYTES = 128 };
struct argument {
	enum argument_kind kind;
	char name[ARGUMENT_NAME_BYTES]; /* set for a setting only */
	const char *text; /* its value, or the file or plain argument; lives as long as argv and list */
	int words;        /* of a setting: its text is so many words, joined by commas; 0: one */
};

/* Number of words before "--". The words after it are not options, even if they begin with a dash. */
int argument_options(int argc, char *const argv[]);

/* Splits argv into *count arguments; the caller frees the list with mem_free. ERR_INPUT names the first word
 * that has no valid form. */
int argument_split(struct argument **list, int *count, enum verb verb, int argc, char *const argv[]);

/* The key that a file of this name belongs to; NULL for a configuration file. */
const char *argument_file_key(const char *path);

/* Explains a word that is neither a setting nor a configuration file. The current error comes from reading it
 * as a file. */
int argument_not_a_file(const struct argument *a, int err);

#endif
