/* The words after `ferry VERB`, split into settings, configuration files and plain arguments. */
#ifndef FERRY_CONFIG_ARGS_H
#define FERRY_CONFIG_ARGS_H

#include "config/config.h"

enum argument_kind { ARGUMENT_FILE, ARGUMENT_PLAIN, ARGUMENT_SETTING };

enum { ARGUMENT_NAME_BYTES = 128 };
struct argument {
	enum argument_kind kind;
	char name[ARGUMENT_NAME_BYTES]; /* of a setting */
	const char *text;               /* its value, or the file or plain argument; points into argv */
};

/* How many words stand before "--", which ends the options: what follows it is none, whatever it begins with.
 */
int argument_options(int argc, char *const argv[]);

/* At most argc arguments (mem_free the list). ERR_INPUT names the word that is none. */
int argument_split(struct argument **list, int *count, enum verb verb, int argc, char *const argv[]);

#endif
