/* Parts of `ferry config` without a file: the answers so far, and the questions about rows and the file.
 *
 * A question proposes an answer, reads one, and takes it. The settings so far are "key=value", as on the
 * command line; each answer is checked as ferry train would check it. Private to cli/config_ask.c and
 * cli/ask_*.c. */
#ifndef FERRY_CLI_ASK_PARTS_H
#define FERRY_CLI_ASK_PARTS_H

#include "base/str.h"
#include "config/config.h"

enum { ASK_SETTINGS_MAX = 16 };

struct asking {
	char *words[ASK_SETTINGS_MAX]; /* "key=value": the settings so far */
	int count;
	char *line; /* the last answer, from getline */
	size_t cap;
	const char *answer; /* in `line`, or the proposed one */
	int number;         /* of the answer, from 1 */
	struct str proposed;
	struct str model_is, data_is; /* comments for the file */
	int64_t max_positions, longest_tokens;
	int asks_template; /* the rows are chats, and the model has no template */
	int is_paired;     /* the rows are pairs: learning rates are lower */
	int is_bounded;    /* rows of more than max_positions are refused */
};

void ask_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Sets a key for the file; replaces an earlier value. */
int ask_setting(struct asking *a, const char *key, const char *value);

/* Parses the settings so far, as they stand in the file: keys that a verb needs may be missing. */
int ask_parsed(struct config *c, const struct asking *a);

/* The same for use by a verb: with the files that they mean. */
int ask_resolved(struct config *c, const struct asking *a, enum verb verb);

/* Asks, and reads a line without the blanks around it. ERR_INPUT: there is none, or it is empty and
 * nothing is proposed. */
int ask_answer(struct asking *a, const char *question);

/* Proposes the first of NAME, NAME-2, NAME-3, ... that does not exist. */
int ask_propose_free(struct asking *a, const char *name, const char *ending);

/* Rows: opens them, as pairs if they are. */
int ask_data_take(struct asking *a);

/* The chat template, where rows are chats and the model has none: offers those that the tokenizer can end. */
int ask_template_propose(struct asking *a);
int ask_template_take(struct asking *a);

/* Writes the file, and prints the next commands. */
int ask_file_propose(struct asking *a);
int ask_file_take(struct asking *a);

#endif
