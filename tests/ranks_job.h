/* Jobs of several ranks that something happens to. */
#ifndef FERRY_TESTS_RANKS_JOB_H
#define FERRY_TESTS_RANKS_JOB_H

#include "tests/ranks_run.h"

static struct run_model tiny;

enum { RANKS = 3 };

#define SETTINGS                                                                                             \
	"learning_rate=1e-3 threads=1 compute_dtype=fp32 export_dtype=fp32 gradient_accumulation_steps=4 "

/* A run that takes seconds: copies are slow. */
#define SLOW "max_steps=24 save_steps=3 host_copy_gbps=0.008 "

static inline void command_make(char *command, size_t bytes, const char *out, const char *more)
{
	ranks_command(command, bytes, RANKS, "train model=%s data=%s output_dir=%s/%s " SETTINGS "%s",
	        tiny.dir, tiny.data, work_dir, out, more);
}

/* The processes of the ranks, in the order of ranks. */
static inline void ranks_find(pid_t *pids, pid_t launcher_pid)
{
	char path[64];
	FILE *f;
	int count = 0, pid;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)launcher_pid, (int)launcher_pid);
	f = fopen(path, "r");
	assert_non_null(f);
	while (count < RANKS && fscanf(f, "%d", &pid) == 1)
		pids[count++] = pid;
	fclose(f);
	assert_int_equal(count, RANKS);
}

/* Starts a run and waits until it has logged so many steps. */
static inline pid_t run_begin(pid_t *pids, const char *out, const char *more, int lines)
{
	char command[4096], path[400];
	pid_t launched;

	command_make(command, sizeof(command), out, more);
	snprintf(path, sizeof(path), "%s/%s/metrics.jsonl", work_dir, out);
	launched = run_start(command);
	while (line_count(path) < lines && is_running(launched))
		sleep_ms(2);
	if (!is_running(launched))
		fail_msg("ended before step %d: %s", lines, ferry_said());
	ranks_find(pids, launched);
	return launched;
}

/* Nothing of the job is left within seconds of its end. */
static inline void assert_gone(const pid_t *pids)
{
	for (int r = 0; r < RANKS; r++)
		for (int waited = 0; !kill(pids[r], 0); waited++) {
			if (waited > 1000)
				fail_msg("rank %d is still there", r);
			sleep_ms(10);
		}
}

static inline void assert_said(const char *text)
{
	if (!strstr(ferry_said(), text))
		fail_msg("nothing of \"%s\" in: %s", text, ferry_said());
}

/* The newest checkpoint is whole, and the run goes on from it. */
static inline void assert_goes_on(const char *out, const char *more)
{
	char command[4096];

	command_make(command, sizeof(command), out, more);
	strcat(command, " resume_from_checkpoint=auto");
	if (ranks_wait(command))
		fail_msg("%s: %s", command, ferry_said());
}

#endif
