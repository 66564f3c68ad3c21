/* links: cli */
/* not: asan */
/* Why not: it forks the program many hundred times, and the sanitizer looks at forks for seconds each. */
/* Two or three processes in one directory. Each is stopped at one of its file operations and continued later.
 *
 * In the end the directory has the complete files of one run: never two successes, never a mixture.
 *
 *     FERRY_RACES=N    random cases per scenario (default 6), with two and three processes. 0: all places of
 *                      each of two processes, all pairs of their first places with either one continued
 *                      first, and as many random cases as there are places
 *     FERRY_SEED=N     seed of the random cases (default 1)
 */
#include "tests/run_fixture.h"

#include "base/err.h"
#include "checkpoint/file/temp_dir.h"
#include "checkpoint/load.h"
#include "checkpoint/save.h"
#include "cli/cli.h"

#include <sys/mman.h>

enum {
	WORDS = 40,
	NEVER = 1 << 30,
	TAKING = 12, /* places within which a process takes the directory */
};

static struct run_model model;
static uint64_t seed = 1, draws;

/* ---- a process that stops ---- */

static int stop_at, made, *calls; /* `made` of them, for the parent to read */
/* Where it may stop: at any call; having taken the directory and looked at it; putting a checkpoint or the
 * result in its place. */
static enum stops { ANY, TAKEN, WHOLE } stops_at;

static int is_watched(const struct file_call *call)
{
	const char *name = call->path ? strrchr(call->path, '/') : NULL;

	if (stops_at == TAKEN)
		return call->kind == FILE_CALL_LIST && name && !strcmp(name, "/race");
	if (stops_at == WHOLE)
		return call->kind == FILE_CALL_RENAME && name &&
		       (!strncmp(name, "/step-", 6) || !strncmp(name, "/model.", 7));
	return call->kind != FILE_CALL_READ && call->path && strstr(call->path, "race");
}

static int stopping(void *context, const struct file_call *call)
{
	(void)context;
	if (!is_watched(call))
		return 0;
	if (made++ == stop_at)
		kill(getpid(), SIGSTOP);
	*calls = made;
	return 0;
}

struct racer {
	pid_t pid;
	int code; /* -1: it has stopped */
};

static int wait_for(struct racer *r)
{
	int status;

	assert_int_equal(waitpid(r->pid, &status, WUNTRACED), r->pid);
	if (WIFSTOPPED(status))
		r->code = -1;
	else
		r->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	return r->code;
}

/* Runs `ferry LINE`, a line without quotes, until its call number `at` or its end. */
static void racer_start(struct racer *r, const char *line, int at)
{
	r->pid = fork();
	assert_true(r->pid >= 0);
	if (!r->pid) {
		char *copy = strdup(line), *words[WORDS] = {(char *)"ferry"}, path[300];
		int count = 1, fd;

		snprintf(path, sizeof(path), "%s/stderr", work_dir);
		fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
		dup2(fd, STDERR_FILENO);
		dup2(fd, STDOUT_FILENO);
		for (char *word; (word = strsep(&copy, " ")) && count < WORDS;)
			if (*word)
				words[count++] = word;
		stop_at = at;
		made = 0;
		file_hook_set(stopping, NULL);
		_exit(cli_main(count, words));
	}
	wait_for(r);
}

static void racer_continue(struct racer *r)
{
	if (r->code >= 0)
		return;
	kill(r->pid, SIGCONT);
	wait_for(r);
	if (r->code < 0)
		fail_msg("it stopped twice");
}

/* ---- scenarios ---- */

#define TRAIN "train model=%1$s data=%2$s output_dir=%3$s/race threads=1 save_steps=1 save_total_limit=all "

/* printf wants every argument named */
#define INIT "init %1$.0s%2$.0sconfig=%3$s/tiny.json output_dir=%3$s/race "

/* Commands of up to three processes, their files, and the required result. */
struct scenario {
	const char *name, *prepare; /* NULL: nothing is there before */
	const char *lines[3];
	const char *results[3]; /* reference runs: what is there where that process was the last to succeed */
	int least, most;        /* of successes */
	int is_first_for_all;   /* once process 0 succeeded, its result is what the others go on with */
};

static const struct scenario scenarios[] = {
        {"two fresh runs", NULL,
                {TRAIN "max_steps=2 lr=1e-2", TRAIN "max_steps=2 lr=1e-3", TRAIN "max_steps=2 lr=3e-3"},
                {"ref0", "ref1", "ref2"}, 1, 1, 0},
        {"overwrite and overwrite", TRAIN "max_steps=1 lr=5e-3",
                {TRAIN "max_steps=2 lr=1e-2 overwrite_output_dir=on",
                        TRAIN "max_steps=2 lr=1e-3 overwrite_output_dir=on",
                        TRAIN "max_steps=2 lr=3e-3 overwrite_output_dir=on"},
                {"ref0", "ref1", "ref2"}, 1, 3, 0},
        {"resume and overwrite", TRAIN "max_steps=1 lr=1e-2 lr_scheduler_type=constant",
                {TRAIN "max_steps=2 lr=1e-2 lr_scheduler_type=constant resume_from_checkpoint=auto",
                        TRAIN "max_steps=1 lr=1e-2 lr_scheduler_type=constant overwrite_output_dir=on",
                        TRAIN "max_steps=2 lr=1e-2 lr_scheduler_type=constant resume_from_checkpoint=auto"},
                {"constant", "one", "constant"}, 1, 3, 0}, /* who resumes goes on with either's first step */
        {"branch and resume", TRAIN "max_steps=2 lr=1e-2 lr_scheduler_type=constant",
                {TRAIN "max_steps=2 lr=1e-3 lr_scheduler_type=constant "
                       "resume_from_checkpoint=%3$s/race/checkpoint-000001",
                        TRAIN "max_steps=2 lr=1e-2 lr_scheduler_type=constant resume_from_checkpoint=auto",
                        TRAIN "max_steps=2 lr=1e-2 lr_scheduler_type=constant resume_from_checkpoint=auto"},
                {"branch", "constant", "constant"}, 1, 3, 1},
        {"two results", NULL, {INIT "seed=1", INIT "seed=2", INIT "seed=3"}, {"init1", "init2", "init3"}, 1,
                1, 0},
        {"results that replace", INIT "seed=1",
                {INIT "seed=1 overwrite_output_dir=on", INIT "seed=2 overwrite_output_dir=on",
                        INIT "seed=3 overwrite_output_dir=on"},
                {"init1", "init2", "init3"}, 1, 3, 0},
};

static void line_make(char *line, size_t bytes, const char *fmt)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(line, bytes, fmt, model.dir, model.data, work_dir);
#pragma GCC diagnostic pop
}

static void clean(void)
{
	char path[300];

	remove_run("race");
	snprintf(path, sizeof(path), "%s/stderr", work_dir);
	unlink(path);
}

static void prepare(const struct scenario *s)
{
	char line[3000];
	struct racer r;

	clean();
	if (!s->prepare)
		return;
	line_make(line, sizeof(line), s->prepare);
	racer_start(&r, line, NEVER);
	if (r.code)
		fail_msg("%s: %s", line, ferry_said());
}

static void check_left(const char *dir, const char *why)
{
	char **names = NULL;
	size_t count = 0;

	assert_int_equal(file_list_dir(dir, &names, &count), 0);
	for (size_t i = 0; i < count; i++)
		if (strstr(names[i], ".tmp") || strstr(names[i], ".lock"))
			fail_msg("%s: %s is left", why, names[i]);
	file_list_free(names, count);
}

/* Everything in the directory is that of the reference. */
static void check_result(const char *reference, const char *why)
{
	char path[400], **names = NULL;
	size_t count = 0;

	if (strncmp(reference, "init", 4)) {
		assert_same_runs("race", reference, why);
	} else {
		char got[400], expected[400];

		snprintf(got, sizeof(got), "%s/race/model.safetensors", work_dir);
		snprintf(expected, sizeof(expected), "%s/%s/model.safetensors", work_dir, reference);
		assert_same_files(got, expected, why);
	}
	check_left(work_dir, why);
	snprintf(path, sizeof(path), "%s/race", work_dir);
	assert_int_equal(file_list_dir(path, &names, &count), 0);
	check_left(path, why);
	for (size_t i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "%s/race/%s", work_dir, names[i]);
		if (checkpoint_step_of(names[i]) >= 0 && checkpoint_verify(path, NULL, NULL))
			fail_msg("%s: %s", why, err_text());
	}
	file_list_free(names, count);
}

/* Process p stops at its call at[p]; all begin in order, and go on in the order of `then`. The last that
 * succeeds has the directory. Returns how many came to their place. */
static int race(const struct scenario *s, int processes, const int *at, const int *then)
{
	struct racer racers[3];
	int last = -1, successes = 0, stopped = 0;
	char line[3000], why[300];

	prepare(s);
	for (int p = 0; p < processes; p++) {
		line_make(line, sizeof(line), s->lines[p]);
		racer_start(&racers[p], line, at[p]);
		stopped += racers[p].code < 0;
		if (racers[p].code == 0)
			last = p;
	}
	for (int p = 0; p < processes; p++) {
		struct racer *r = &racers[then[p]];

		if (r->code >= 0)
			continue;
		racer_continue(r);
		if (r->code == 0)
			last = then[p];
	}
	snprintf(why, sizeof(why), "%s at %d %d %d", s->name, at[0], at[1], processes > 2 ? at[2] : -1);
	for (int p = 0; p < processes; p++) {
		successes += !racers[p].code;
		if (racers[p].code && racers[p].code != 2)
			fail_msg("%s: process %d ended with %d: %s", why, p, racers[p].code, ferry_said());
	}
	if (successes < s->least || successes > s->most)
		fail_msg("%s: %d succeeded: %s", why, successes, ferry_said());
	check_result(s->results[s->is_first_for_all && !racers[0].code ? 0 : last], why);
	return stopped;
}

static int below(int bound)
{
	return (int)rng_below(seed, 1, draws++, (uint64_t)bound);
}

/* How many places a process has that runs alone. */
static int places(const struct scenario *s, int p)
{
	struct racer r;
	char line[3000];

	line_make(line, sizeof(line), s->lines[p]);
	prepare(s);
	racer_start(&r, line, NEVER);
	assert_int_equal(r.code, 0);
	return *calls;
}

static void scenario_run(const struct scenario *s, int cases)
{
	int count[3] = {places(s, 0), places(s, 1), places(s, 2)}, raced = 0;

	if (!cases) /* one process stops, wherever it can; the other runs through */
		for (int i = 0; i < count[0]; i++, raced++)
			race(s, 2, (int[]){i, NEVER}, (int[]){0, 1});
	for (int i = TAKING; i < count[1] && !cases; i++, raced++) /* the other way round */
		race(s, 2, (int[]){0, i}, (int[]){0, 1});
	for (int i = 0; i < TAKING * TAKING * 2 && !cases; i++, raced++)
		race(s, 2, (int[]){i / 2 / TAKING, i / 2 % TAKING}, (int[]){i % 2, 1 - i % 2});
	for (int i = 0; i < (cases ? cases : count[0]); i++, raced++) {
		int processes = 2 + i % 2, from = below(processes);
		int at[3], then[3];

		for (int p = 0; p < processes; p++) {
			/* the first places are where a directory is taken; half of the draws go there */
			at[p] = below(below(2) ? count[p] : TAKING);
			then[p] = (from + p) % processes;
		}
		race(s, processes, at, then);
	}
	printf("%s: %d, %d and %d places, %d cases\n", s->name, count[0], count[1], count[2], raced);
}

static void test_races(void **state)
{
	const char *cases = getenv("FERRY_RACES"), *from = getenv("FERRY_SEED");

	(void)state;
	if (from)
		seed = strtoull(from, NULL, 10);
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(*scenarios); i++)
		scenario_run(&scenarios[i], cases ? atoi(cases) : 6);
}

/* ---- taken ---- */

/* A run stops, its lock's file is removed, and another run takes the directory and ends there. What that one
 * left stays to the byte when the first goes on. Rows are left out: one may be written between a look and the
 * next call. */
static int taken_at(enum stops stops, int place, const char *second)
{
	char line[3000], command[1500];
	struct racer first, other;

	clean();
	line_make(line, sizeof(line), TRAIN "max_steps=3 lr=1e-2");
	stops_at = stops;
	racer_start(&first, line, place);
	if (first.code >= 0)
		return 0;
	snprintf(command, sizeof(command), "rm -rf %1$s/left %1$s/race.1; rm -f %1$s/race/.ferry.lock",
	        work_dir);
	assert_int_equal(system(command), 0);
	stops_at = ANY;
	line_make(line, sizeof(line), second);
	racer_start(&other, line, NEVER);
	snprintf(command, sizeof(command), "cp -a %1$s/race %1$s/left", work_dir);
	assert_true(other.code || !system(command));
	racer_continue(&first);
	snprintf(command, sizeof(command), "diff -r -x metrics.jsonl %1$s/race %1$s/left >>%1$s/stderr 2>&1",
	        work_dir);
	if (!other.code && system(command))
		fail_msg("taken at place %d by %s: what it left is changed: %s", place, second, ferry_said());
	if (first.code && (stops == WHOLE || first.code != 1)) /* it goes on elsewhere, or has not begun */
		fail_msg("taken at place %d by %s: the first ended with %d: %s", place, second, first.code,
		        ferry_said());
	return 1;
}

static void test_taken(void **state)
{
	static const char *const seconds[] = {TRAIN "max_steps=1 lr=1e-3 resume_from_checkpoint=auto",
	        TRAIN "max_steps=3 lr=1e-3 resume_from_checkpoint=auto",
	        TRAIN "max_steps=1 lr=1e-3 overwrite_output_dir=on"};
	(void)state;
	for (int i = 0; i < 3; i++) {
		int place = 0;

		assert_true(
		        taken_at(TAKEN, 2, seconds[i])); /* a look is for left-overs, one for what is there */
		while (taken_at(WHOLE, place, seconds[i]))
			place++;
		assert_int_equal(place, 4); /* three checkpoints and the result */
	}
	stops_at = ANY;
}

static int references_make(void **state)
{
	static const char *const runs[][2] = {{"ref0", "max_steps=2 lr=1e-2"},
	        {"ref1", "max_steps=2 lr=1e-3"}, {"ref2", "max_steps=2 lr=3e-3"},
	        {"constant", "max_steps=2 lr=1e-2 lr_scheduler_type=constant"},
	        {"one", "max_steps=1 lr=1e-2 lr_scheduler_type=constant"}};

	(void)state;
	calls = mmap(NULL, sizeof(*calls), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(calls != MAP_FAILED);
	tiny_model(&model);
	for (size_t i = 0; i < sizeof(runs) / sizeof(*runs); i++)
		assert_ferry(0, NULL, "train model=%s data=%s output_dir=%s/%s threads=1 %s", model.dir,
		        model.data, work_dir, runs[i][0], runs[i][1]);
	assert_ferry(0, NULL,
	        "train model=%s data=%s output_dir=%s/branch threads=1 max_steps=2 save_steps=1 lr=1e-2 "
	        "lr_scheduler_type=constant",
	        model.dir, model.data, work_dir);
	assert_ferry(0, NULL,
	        "train %s/branch/config.yaml lr=1e-3 resume_from_checkpoint=%s/branch/checkpoint-000001",
	        work_dir, work_dir);
	for (int i = 1; i <= 3; i++)
		assert_ferry(0, NULL, "init config=%s/tiny.json output_dir=%s/init%d seed=%d", work_dir,
		        work_dir, i, i);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_taken), cmocka_unit_test(test_races)};
	int failed;

	ferry_run_begin("several");
	failed = cmocka_run_group_tests(tests, references_make, NULL);
	ferry_run_end();
	return failed;
}
