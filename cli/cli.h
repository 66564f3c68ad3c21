/* Shared by the commands: exit codes, output, and the list of commands.
 *
 * A command gets its parsed and checked configuration and returns 0 or ERR_*, with the text in err_text().
 * main turns that into "ferry VERB: text" and an exit code. Results for programs go to stdout through
 * cli_print_json. Text for users goes to stdout or, with --json, to stderr. Nothing else prints.
 */
#ifndef FERRY_CLI_CLI_H
#define FERRY_CLI_CLI_H

#include "base/json.h"
#include "base/str.h"
#include "config/config.h"

enum cli_exit {
	CLI_EXIT_DONE = 0,
	CLI_EXIT_FAILED = 1,    /* device, disk, another rank; committed checkpoints are safe */
	CLI_EXIT_USAGE = 2,     /* usage, configuration, model or data; nothing was written */
	CLI_EXIT_STOPPED = 3,   /* by a signal, with a checkpoint or before the first step */
	CLI_EXIT_NONFINITE = 4, /* loss or gradients were not finite for too long */
	CLI_EXIT_FIT = 5,       /* the plan does not fit this machine */
};

/* The exit code of a command that returned err. */
enum cli_exit cli_exit_code(int err);

typedef int cli_command(const struct config *c);
cli_command cli_train, cli_eval, cli_generate, cli_plan, cli_export, cli_merge, cli_inspect, cli_verify,
        cli_tokenize, cli_data, cli_config, cli_init, cli_topo, cli_bench, cli_report, cli_embed;

/* The command of a verb; each verb has one. */
cli_command *cli_command_of(enum verb verb);

/* Prints the object and a newline on stdout. ERR_IO if writing fails. */
int cli_print_json(const json_t *object);

/* Prints text for users: to stdout, or with --json to stderr. */
void cli_say(const struct config *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The same, folded where it is wider than the terminal; not for commands to copy, nor for texts of the
 * user. */
void cli_tell(const struct config *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Appends the command line of this process, quoted for a shell. */
void cli_add_command(struct str *out);

/* cli_program: the name under which this program was started. cli_say_last: sets the last lines on stderr,
 * after the error, for copying. */
const char *cli_program(void);
void cli_say_last(struct str *line);

/* Appends `text` quoted as one word for a shell. */
void cli_add_word(struct str *out, const char *text);

/* Sends log lines to stderr from now on; warnings begin with "warning: ". A progress line on the terminal is
 * cleared before and drawn again after. */
void cli_log_start(void);

/* All of main. */
int cli_main(int argc, char *argv[]);

#endif
