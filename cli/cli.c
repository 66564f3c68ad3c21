/* Finds and runs the command, and turns its error into an exit code. */
#include "cli/cli.h"

#include "cli/launcher_watchdog.h"
#include "cli/progress.h"
#include "cli/screen.h"
#include "cli/signals.h"

#include "base/err.h"
#include "base/log.h"
#include "base/quantity.h"
#include "comm/launch.h"
#include "comm/local_job.h"
#include "comm/world.h"
#include "config/args.h"
#include "config/table.h"
#include "host/limits.h"
#include "host/topology.h"
#include "placement/ranks.h"
#include "train/devices.h"
#include "train/inputs/chat_date.h"
#include "train/inputs/paths.h"
#include "train/preflight.h"
#include "train/ranks/ranks_compare.h"
#include "train/run_dir/run_owner.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum cli_exit cli_exit_code(int err)
{
	switch (err) {
	case 0:
		return CLI_EXIT_DONE;
	case ERR_INPUT:
	case ERR_UNSUPPORTED:
		return CLI_EXIT_USAGE;
	case ERR_STOPPED:
		return CLI_EXIT_STOPPED;
	case ERR_NONFINITE:
		return CLI_EXIT_NONFINITE;
	case ERR_FIT:
		return CLI_EXIT_FIT;
	default:
		return CLI_EXIT_FAILED;
	}
}

/* The exit code of ranks that this process started, if there was no error. */
static int exit_code;

/* Whether this call asks for a JSON object, and whether stdout has one. */
static int json_is_wanted, json_is_there;

int cli_print_json(const json_t *object)
{
	if (world_self()->rank)
		return 0;
	json_is_there = 1;
	if (json_dumpf(object, stdout, JSON_REAL_PRECISION(17)) || putchar('\n') == EOF)
		return err_set(ERR_IO, "cannot write to stdout");
	return 0;
}

void cli_say(const struct config *c, const char *fmt, ...)
{
	va_list ap;

	if (world_self()->rank)
		return;
	va_start(ap, fmt);
	vfprintf(c->json ? stderr : stdout, fmt, ap);
	va_end(ap);
	fflush(stdout); /* keeps the order of lines if stderr is the same file */
}

void cli_tell(const struct config *c, const char *fmt, ...)
{
	static struct screen_fold fold;
	struct str folded = {0};
	char *part = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&part, fmt, ap) < 0)
		part = NULL;
	va_end(ap);
	if (part)
		screen_fold(&folded, &fold, part, screen_columns(c->json ? stderr : stdout));
	cli_say(c, "%s", folded.data ? folded.data : "");
	str_free(&folded);
	free(part);
}

static const char *program = "ferry", *verb_said = "";
static char **words; /* of the command line */
static int word_count;
static struct str last_line;

const char *cli_program(void)
{
	return program;
}

void cli_say_last(struct str *line)
{
	str_free(&last_line);
	last_line = *line;
	*line = (struct str){0};
}

void cli_add_word(struct str *out, const char *text)
{
	static const char plain[] =
	        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";

	if (*text && !text[strspn(text, plain)]) {
		str_add(out, text);
		return;
	}
	str_add_char(out, '\'');
	for (; *text; text++)
		if (*text == '\'')
			str_add(out, "'\\''");
		else
			str_add_char(out, *text);
	str_add_char(out, '\'');
}

static void log_line(void *context, enum log_level level, const char *line)
{
	char text[2100];
	struct screen_fold fold = {0};
	struct str folded = {0};

	(void)context;
	if (level == LOG_DEBUG || world_self()->rank)
		return;
	snprintf(text, sizeof(text), "%s%s", level == LOG_WARN ? "warning: " : "", line);
	screen_fold(&folded, &fold, text, screen_columns(stderr));
	progress_log(folded.data && !folded.broken ? folded.data : text);
	str_free(&folded);
}

void cli_log_start(void)
{
	log_set_sink(log_line, NULL);
}

/* ---- help ---- */

static void print_short_help(FILE *to)
{
	fprintf(to,
	        "ferry %s: fine-tune language models that are larger than the GPU's memory\n\nusage: ferry "
	        "VERB [CONFIG.yaml] [key=value | --key value]...\n\n",
	        FERRY_VERSION);
	for (int v = 0; v < VERB_COUNT; v++)
		fprintf(to, "  %-10s%s\n", verb_infos[v].name, verb_infos[v].meaning);
	fprintf(to, "\n\"ferry VERB --help\" lists the keys of a verb with their defaults.\n");
}

static int print_text(struct str *text)
{
	int err = str_check(text);

	if (!err && fputs(text->data ? text->data : "", stdout) == EOF)
		err = err_set(ERR_IO, "cannot write to stdout");
	str_free(text);
	return err;
}

/* Verbs of other programs. */
static const struct {
	const char *names, *call;
} others[] = {{"chat talk", "generate model=DIR chat=on"},
        {"run infer inference predict", "generate model=DIR prompt=TEXT"},
        {"finetune fine_tune sft fit", "train model=DIR data=FILE output_dir=DIR"},
        {"evaluate test", "eval model=DIR data=FILE"},
        {"convert save", "export checkpoint=DIR output_dir=DIR"}, {"show", "data show model=DIR data=FILE"},
        {"estimate estimate_memory", "plan MODEL"}, {"plot curves tensorboard", "report OUTPUT_DIR"},
        {"configure setup wizard", "config"}};

static enum verb find_verb(const char *name)
{
	const char *nearest;
	enum verb verb = verb_find(name, &nearest);

	for (size_t i = 0; verb == VERB_COUNT && i < sizeof(others) / sizeof(*others); i++)
		if (config_name_in(name, others[i].names)) {
			err_set(ERR_INPUT, "unknown verb \"%.40s\"; write ferry %s", name, others[i].call);
			return verb;
		}
	if (verb == VERB_COUNT)
		err_set(ERR_INPUT, "unknown verb \"%.40s\"%s%s%s; see ferry help", name,
		        nearest ? " (did you mean " : "", nearest ? nearest : "", nearest ? "?)" : "");
	return verb;
}

static int help(int argc, char *argv[])
{
	struct str text = {0};
	enum verb verb;

	static const struct {
		const char *name;
		void (*write)(struct str *out);
	} texts[] = {{"--markdown", config_write_markdown}, {"--man", config_write_man},
	        {"--completion", config_write_completion}};

	for (size_t i = 0; argc > 0 && i < sizeof(texts) / sizeof(*texts); i++)
		if (!strcmp(argv[0], texts[i].name)) {
			texts[i].write(&text);
			return print_text(&text);
		}
	if (argc == 0) {
		print_short_help(stdout);
		return 0;
	}
	verb = find_verb(argv[0]);
	if (verb == VERB_COUNT)
		return ERR_INPUT;
	config_write_help(&text, verb);
	return print_text(&text);
}

/* ---- main ---- */

/* Refuses ranks=N if a launcher started another number. */
static int ranks_are_as_asked(const struct config *c)
{
	struct launch launch;

	launch_read(&launch);
	if (c->ranks == CONFIG_AUTO || c->ranks == world_self()->size || launch.size == 1)
		return 0;
	return err_set(ERR_INPUT, "%s is %lld, but %s started %d; set ranks=%d, or leave it out",
	        config_where(c, "ranks"), (long long)c->ranks, launch.program, launch.size, launch.size);
}

static int takes_ranks(enum verb verb)
{
	return verb == VERB_TRAIN || verb == VERB_EVAL;
}

/* Prints an object with the error and the lines that follow it, so that a program always reads one object
 * from stdout. */
static void print_json_error(int rank, const char *text)
{
	struct str all = {0};
	json_t *object = json_object(), *error;

	str_printf(&all, "%s%s%s", text, last_line.data ? " " : "", last_line.data ? last_line.data : "");
	for (char *at = all.data; at && (at = strchr(at, '\n'));)
		*at = ' ';
	error = json_of_text(all.data ? all.data : text);
	json_is_there = 1;
	if (object && !json_object_set_new(object, "error", error) &&
	        (rank < 0 || !json_object_set_new(object, "rank", json_integer(rank))) &&
	        !json_dumpf(object, stdout, 0)) {
		putchar('\n');
		fflush(stdout); /* a failure here is harmless: stderr has the error */
	}
	json_decref(object);
	str_free(&all);
}

/* Adds the limit of address space to an error of memory or threads, because the system's text does not name
 * it. */
static void add_limit(struct str *out, int code)
{
	struct rlimit limit;

	if ((code != ERR_NOMEM && code != ERR_DEVICE) || getrlimit(RLIMIT_AS, &limit) ||
	        limit.rlim_cur == RLIM_INFINITY)
		return;
	str_add(out, "this process may map at most ");
	quantity_bytes(out, limit.rlim_cur < INT64_MAX ? (int64_t)limit.rlim_cur : INT64_MAX);
	str_add(out, " of address space (ulimit -v)\n");
}

/* Prints the error with one write, so that a launcher keeps it together. code: this rank's error code, or
 * NULL. */
static void print_error(void *code, int rank, const char *text)
{
	const char *name = verb_said;
	struct str line = {0};

	str_printf(&line, "ferry%s%s: ", *name ? " " : "", name);
	if (rank >= 0)
		str_printf(&line, "rank %d: ", rank);
	str_printf(&line, "%s\n", text);
	add_limit(&line, code ? *(const int *)code : 0);
	if (last_line.data)
		str_printf(&line, "%s\n", last_line.data);
	if (line.data && !str_check(&line))
		fputs(line.data, stderr);
	else /* no memory for the line */
		fprintf(stderr, "ferry%s%s: rank %d: %s\n", *name ? " " : "", name, rank, text);
	str_free(&line);
	if (json_is_wanted && !json_is_there && !world_self()->rank)
		print_json_error(rank, text);
}

/* ---- joining the ranks ---- */

enum { WATCHDOG_SECONDS = CONFIG_WATCHDOG_S }; /* used if the configuration cannot be read */

/* Ends the process because a rank failed during the start of ranks. rank -1: the text names it. Any
 * thread. */
static void start_leave(int code, int rank, const char *text)
{
	launcher_watchdog_start();
	heartbeat_unlink();
	if (heartbeat_speaks())
		print_error(NULL, rank, text);
	_exit(cli_exit_code(code));
}

static void rank_lost(int code, const char *text)
{
	start_leave(code, -1, text);
}

/* The settings of ranks in a configuration. It is read again later, with its errors, when all ranks can
 * report them. */
struct ranks_wish {
	int64_t watchdog_s, count; /* count 1: start no ranks */
};

static struct ranks_wish wish_of(enum verb verb, int argc, char *argv[])
{
	struct ranks_wish wish = {WATCHDOG_SECONDS, 1};
	struct config c = {0};

	log_set_sink(NULL, NULL);
	if (!config_parse(&c, verb, argc, argv) && !c.help) {
		wish.watchdog_s = c.watchdog_timeout_s;
		wish.count = c.ranks == CONFIG_AUTO ? 1 : c.ranks;
	}
	config_free(&c);
	cli_log_start();
	return wish;
}

/* The command that starts this run again, once a signal ended it before its first step. */
static struct str again_line;
static const char *_Atomic again_more = "";

/* Ends the process: on a thread of its own, while the main one loads. Files that it writes meanwhile appear
 * whole or not at all. */
static void leave_early(int signal)
{
	const struct timespec turn = {.tv_nsec = 300000000};
	struct str text = {0};

	str_printf(&text, "stopped by SIG%s before the first step, so nothing is lost; to start again:",
	        sigabbrev_np(signal));
	str_add(&again_line, again_more);
	cli_say_last(&again_line);
	if (world_self()->rank) /* rank 0 speaks first, if it got the signal too */
		nanosleep(&turn, NULL);
	if (world_self()->size > 1)
		start_leave(ERR_STOPPED, -1, text.data ? text.data : "stopped");
	print_error(NULL, -1, text.data ? text.data : "stopped");
	fflush(stdout);
	fflush(stderr);
	_exit(CLI_EXIT_STOPPED); /* the main thread has the lock of output_dir; its file holds nobody up */
}

void cli_add_command(struct str *out)
{
	struct launch launch;

	launch_read(&launch);
	if (launch.size > 1 && !launch.is_local) /* only the job's script knows the hosts */
		str_printf(out, "%s -n %d ", launch.program, launch.size);
	for (int i = 0; i < word_count; i++) {
		str_add(out, i ? " " : "");
		cli_add_word(out, words[i]);
	}
}

static int early_stop_begin(void)
{
	cli_add_command(&again_line);
	return str_check(&again_line) ? ERR_NOMEM : signals_leave_by(leave_early);
}

static int ranks_join(enum verb verb, const struct launch *launch, int64_t watchdog_s)
{
	struct heartbeat_join join = {
	        .lost = rank_lost, .is_stopped = signals_held, .patience_ns = watchdog_s * 1000000000};
	int err;

	signals_hold();
	err = world_start(&join);
	if (err && world_self()->size == 1) /* this rank did not join */
		start_leave(err, err == ERR_UNSUPPORTED ? -1 : launch->rank, err_text());
	if (verb != VERB_TRAIN) /* train itself handles a signal from before its first step */
		signals_release();
	return err;
}

static void warn_crowded(int count)
{
	struct topology t;

	if (!topology_read(&t) && count > t.allowed.processor_count)
		log_warn("ranks=%d is more than the %d processors that this process may use; fewer ranks are "
		         "faster",
		        count, t.allowed.processor_count);
}

/* Starts the ranks of this host and ends in the same way as they do. */
static int ranks_run(int count, char *argv[], const struct launch *launch)
{
	struct local_job_end end;
	int err;

	if (launch->program)
		log_warn("%s started one process; ferry itself starts the %d ranks of ranks=%d, all on this "
		         "host",
		        launch->program, count, count);
	warn_crowded(count);
	err = local_job_run(&end, count, argv);
	if (err)
		return err;
	if (end.is_told)
		fprintf(stderr, "%s\n", err_text()); /* in addition to the ranks' own messages */
	if (end.signal)
		signals_end_by(end.signal);
	exit_code = end.exit_code;
	return 0;
}

static int run_verb(enum verb verb, int argc, char *argv[])
{
	struct config c = {0};
	struct str text = {0};
	int err = config_parse(&c, verb, argc, argv);

	if (!err && verb == VERB_TRAIN && !c.resume_from_checkpoint && !c.overwrite_output_dir && !c.dry_run)
		again_more = " resume_from_checkpoint=auto"; /* a killed run leaves a directory */
	json_is_wanted |= c.json;
	if (!err)
		world_set_patience(c.watchdog_timeout_s * 1000000000);
	if (!err && c.help) {
		config_write_help(&text, verb);
		err = print_text(&text);
		goto out;
	}
	if (!err)
		err = config_check(&c);
	if (!err)
		err = ranks_are_as_asked(&c);
	if (!err && takes_ranks(verb))
		err = devices_place_ranks(&c);
	if (!err)
		err = paths_resolve(&c);
	if (!err)
		err = world_agree(run_owner_take(&c));
	if (!err && ranks_reads_files(&c, world_self()))
		err = preflight_check(&c);
	err = world_agree(err);
	if (!err)
		err = ranks_check(&c);
	if (!err)
		err = chat_date_begin(&c);
	if (!err)
		err = cli_command_of(verb)(&c);
	run_owner_release();
out:
	config_free(&c);
	return err;
}

/* Whether the reader of stdout has gone. */
static int is_unread(void)
{
	struct pollfd out = {.fd = STDOUT_FILENO};

	return poll(&out, 1, 0) == 1 && out.revents & POLLERR;
}

/* Runs one call. */
static int dispatch(int argc, char *argv[])
{
	struct launch launch;
	struct ranks_wish wish;
	enum verb verb;
	int skip = 2, err = 0;

	if (argc < 2) {
		print_short_help(stdout);
		return 0;
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V") || !strcmp(argv[1], "version")) {
		printf("ferry %s\n", FERRY_VERSION);
		return 0;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
		return help(argc - 2, argv + 2);
	verb = find_verb(argv[1]);
	if (verb == VERB_COUNT)
		return ERR_INPUT;
	verb_said = verb_name(verb);
	if (verb_makes_result(verb)) /* goes on if the reader of its output has gone (| head) */
		signal(SIGPIPE, SIG_IGN);
	if (verb == VERB_DATA && argc > 2 && !strcmp(argv[2], "show"))
		skip = 3;
	if (takes_ranks(verb)) {
		launch_read_any(&launch);
		if (verb == VERB_TRAIN && launch.size == 1)
			err = early_stop_begin();
		wish = wish_of(verb, argc - skip, argv + skip);
		if (launch.size == 1 && wish.count > 1)
			return ranks_run((int)wish.count, argv, &launch);
		if (launch.size > 1 && !launch.is_foreign)
			err = ranks_join(verb, &launch, wish.watchdog_s);
		if (!err && verb == VERB_TRAIN && launch.size > 1)
			err = early_stop_begin();
	}
	return err ? err : run_verb(verb, argc - skip, argv + skip);
}

/* Opens closed standard files as /dev/null. Otherwise the next opened file would take such a place, and
 * messages would go into it. Writing to this stdout fails. */
static void standard_files_open(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 &&
		        open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY) != fd)
			_exit(CLI_EXIT_FAILED);
}

/* Limit for leaving MPI, because a launcher that is ending the job may not answer it. */
enum { LEAVE_SECONDS = 3 };

int cli_main(int argc, char *argv[])
{
	int err, is_one;

	if (argc > 0 && *argv[0])
		program = argv[0];
	words = argv;
	word_count = argc;
	standard_files_open();
	signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is an error like a full disk */
	cli_log_start();
	for (int i = 1; i < argument_options(argc, argv); i++) /* even if parsing fails later */
		json_is_wanted |= !strcmp(argv[i], "--json");
	err = limits_raise();
	if (!err)
		err = dispatch(argc, argv);
	signals_stay();
	if ((fflush(stdout) || ferror(stdout)) && !err && !is_unread())
		err = err_set(ERR_IO, "cannot write to stdout");
	is_one = world_self()->size == 1;
	if (!is_one)
		signals_stop(); /* a launcher sends signals after the first rank has left */
	err = world_end(err, print_error, &(int){err});
	str_free(&last_line);
	if (is_one)
		return err ? (int)cli_exit_code(err) : exit_code;
	signals_exit_after(LEAVE_SECONDS, cli_exit_code(err));
	if (!err) /* after an error the launcher ends the job itself */
		world_leave();
	fflush(stdout);
	_exit(cli_exit_code(err)); /* a regular exit could fail because of threads left by MPI */
}
