/* Jobs of several ranks with faults. */
#ifndef FERRY_TESTS_RANKS_JOB_H
#define FERRY_TESTS_RANKS_JOB_H

#include "tests/ranks_run.h"

#include "base/clock.h"
#include "comm/launch.h"

#include <dirent.h>

static struct run_model tiny;

enum { RANKS = 3 };

#define SETTINGS "learning_rate=1e-3 threads=1 compute_dtype=fp32 export_dtype=fp32 vram_budget=off "

/* Slow copies, so that a run takes seconds. */
#define SLOW_STEPS "save_steps=3 host_copy_gbps=0.008 "
#define SLOW "max_steps=24 " SLOW_STEPS

/* Each step has twelve rows, for any number of ranks. */
static inline void command_make_for(char *command, size_t bytes, int ranks, const char *out, const char *more)
{
	ranks_command(command, bytes, ranks,
	        "train model=%s data=%s output_dir=%s/%s gradient_accumulation_steps=%d " SETTINGS "%s",
	        tiny.dir, tiny.data, work_dir, out, 12 / ranks, more);
}

static inline void command_make(char *command, size_t bytes, const char *out, const char *more)
{
	command_make_for(command, bytes, RANKS, out, more);
}

/* ---- the processes of a job: their environment has its mark (ranks_begin) ---- */

static inline int environ_has(const char *path, const char *mark)
{
	char *text = NULL;
	size_t cap = 0;
	int found = 0;
	FILE *f = fopen(path, "r");

	while (f && !found && getdelim(&text, &cap, 0, f) > 0)
		found = !strncmp(text, JOB_MARK "=", strlen(JOB_MARK) + 1) &&
		        !strcmp(text + strlen(JOB_MARK) + 1, mark);
	free(text);
	if (f)
		fclose(f);
	return found;
}

/* Checks the environment of every thread, because an ended thread has an empty one. In a killed process, a
 * thread may still be inside a rename after the first thread has ended. */
static inline int job_has(pid_t pid)
{
	const char *mark = getenv(JOB_MARK);
	char tasks[64], path[400];
	struct dirent *entry;
	int found = 0;
	DIR *dir;

	snprintf(tasks, sizeof(tasks), "/proc/%d/task", (int)pid);
	dir = pid == getpid() ? NULL : opendir(tasks);
	while (dir && !found && (entry = readdir(dir))) {
		snprintf(path, sizeof(path), "%s/%s/environ", tasks, entry->d_name);
		found = entry->d_name[0] != '.' && environ_has(path, mark);
	}
	if (dir)
		closedir(dir);
	return found;
}

/* Sends `signal` (0: none) to the processes of the job, and counts them. */
static inline int job_signal(int signal)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	int count = 0;

	assert_non_null(proc);
	while ((entry = readdir(proc))) {
		pid_t pid = (pid_t)atoi(entry->d_name);

		if (pid <= 0 || !job_has(pid))
			continue;
		count++;
		if (signal)
			kill(pid, signal);
	}
	closedir(proc);
	return count;
}

static inline void job_kill(void)
{
	while (job_signal(SIGKILL))
		sleep_ms(10);
}

/* Checks that no process of the job is left a few seconds after its end. */
static inline void job_check_gone(void)
{
	for (int waited_ms = 0; job_signal(0); waited_ms += 10) {
		if (waited_ms > 5000)
			fail_msg("%d processes of the job are still there", job_signal(SIGKILL));
		sleep_ms(10);
	}
}

/* The process of a rank; 0 if it does not exist, or does not run ferry yet. */
static inline pid_t job_rank(int rank)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	char path[300], lines[3][64], exe[400];
	pid_t found = 0;

	assert_non_null(proc);
	while (!found && (entry = readdir(proc))) {
		pid_t pid = (pid_t)atoi(entry->d_name);
		char *text = NULL;
		size_t cap = 0;
		FILE *f;

		if (pid <= 0 || !job_has(pid))
			continue;
		snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
		exe[0] = 0;
		if (readlink(path, exe, sizeof(exe) - 1) < 0 || strstr(exe, "mpirun") || strstr(exe, "orte"))
			continue;
		snprintf(lines[0], sizeof(lines[0]), "OMPI_COMM_WORLD_RANK=%d", rank);
		snprintf(lines[1], sizeof(lines[1]), "PMI_RANK=%d", rank);
		snprintf(lines[2], sizeof(lines[2]), LOCAL_JOB_RANK "=%d", rank);
		snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
		f = fopen(path, "r");
		while (f && !found && getdelim(&text, &cap, 0, f) > 0)
			for (int l = 0; l < 3 && !found; l++)
				found = strcmp(text, lines[l]) ? 0 : pid;
		free(text);
		if (f)
			fclose(f);
	}
	closedir(proc);
	return found;
}

/* Finds the processes of all ranks, in the order of ranks. */
static inline void ranks_find(pid_t *pids)
{
	for (int r = 0; r < RANKS; r++)
		assert_true((pids[r] = job_rank(r)) > 0);
}

/* Starts a run, and waits until it has logged this many steps. */
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
	ranks_find(pids);
	return launched;
}

static inline void assert_said(const char *text)
{
	if (!strstr(ferry_said(), text))
		fail_msg("nothing of \"%s\" in: %s", text, ferry_said());
}

/* Checks that the run continues from its newest checkpoint, on another number of ranks. */
static inline void assert_goes_on(int ranks, const char *out, const char *more)
{
	char command[4096];

	command_make_for(command, sizeof(command), ranks, out, more);
	strcat(command, " resume_from_checkpoint=auto");
	if (ranks_wait(command))
		fail_msg("%s: %s", command, ferry_said());
}

#endif
