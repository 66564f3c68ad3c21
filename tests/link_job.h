/* Jobs of real ranks, over MPI or sockets. The ranks run the test program itself: "PROGRAM SCENARIO". */
#ifndef FERRY_TESTS_LINK_JOB_H
#define FERRY_TESTS_LINK_JOB_H

#include "tests/check.h"
#include "tests/launcher.h"
#include "tests/sparing.h"

#include "base/file.h"
#include "base/mem.h"
#include "comm/launch.h"
#include "comm/link.h"
#include "comm/local_job.h"
#include "comm/world.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- in a rank ---- */

static int rank, size;

#define must(condition)                                                                                      \
	do {                                                                                                 \
		if (!(condition)) {                                                                          \
			fprintf(stderr, "rank %d of %d, line %d: %s: %s\n", rank, size, __LINE__,            \
			        #condition, err_text());                                                     \
			fflush(NULL);                                                                        \
			_exit(9);                                                                            \
		}                                                                                            \
	} while (0)

struct scenario {
	const char *name;
	void (*run)(void);
	int ends;               /* all ranks succeed, and leave together */
	void (*before)(int of); /* runs before world_start, with the rank; may be NULL */
};

static inline void start_lost(int code, const char *text)
{
	fprintf(stderr, "the ranks' start: %d, %s\n", code, text);
	_exit(8);
}

static inline int never(void)
{
	return 0;
}

/* Names the file for the final reports of all ranks. */
#define TOLD "FERRY_TEST_TOLD"

static inline void report(void *context, int of, const char *text)
{
	FILE *f = getenv(TOLD) ? fopen(getenv(TOLD), "a") : NULL;

	(void)context;
	(void)of;
	if (f)
		fprintf(f, "%s\n", text);
	must(!f || !fclose(f));
}

static inline int rank_main(const struct scenario *scenarios, size_t count, const char *name)
{
	struct heartbeat_join join = {.patience_ns = 20000000000, .lost = start_lost, .is_stopped = never};
	int rc;

	while (count && strcmp(scenarios->name, name)) {
		scenarios++;
		count--;
	}
	if (!count)
		return 9;
	if (scenarios->before)
		scenarios->before(atoi(getenv(LOCAL_JOB_RANK)));
	rc = world_start(&join);
	rank = world_self()->rank;
	size = world_self()->size;
	must(!rc);
	scenarios->run();
	if (scenarios->ends) {
		must(world_end(0, report, NULL) == 0);
		world_leave();
	}
	fflush(NULL);
	_exit(0);
}

/* ---- the test ---- */

static char self[400];

/* Runs a job and returns its exit code. `text` gets the error of local_job. */
static inline int job_run(const char *by, const char *scenario, int ranks, char *text)
{
	char *const argv[] = {self, (char *)scenario, NULL};
	int status = 0, pipes[2];
	struct local_job_end end;
	ssize_t len;
	pid_t pid;

	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid && !strcmp(by, "local")) {
		int rc = local_job_run(&end, ranks, argv);

		if ((rc || end.is_told) && write(pipes[1], err_text(), strlen(err_text())) < 0)
			_exit(7);
		_exit(rc ? 7 : end.exit_code);
	}
	if (!pid) {
		char count[12];

		snprintf(count, sizeof(count), "%d", ranks);
		execl(by, by, "--oversubscribe", "--bind-to", "none", "-n", count, self, scenario,
		        (char *)NULL);
		_exit(7);
	}
	close(pipes[1]);
	len = read(pipes[0], text, ERR_TEXT_BYTES - 1);
	text[len < 0 ? 0 : len] = 0;
	close(pipes[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static inline void assert_job(const char *by, const char *scenario, int ranks)
{
	char text[ERR_TEXT_BYTES];
	int code = job_run(by, scenario, ranks, text);

	if (code || *text)
		fail_msg("%s, %s, %d ranks: exit %d %s", by, scenario, ranks, code, text);
}

/* NULL without MPI, or under a sanitizer, which finds errors in MPI's own start; the usual build runs the
 * same test. */
static inline const char *mpirun(void)
{
	if (SANITIZED)
		return NULL;
	if (!launcher_path())
		print_message("SKIPPED by MPI: %s\n", launcher_absence());
	return launcher_path();
}

static inline void link_job_begin(void)
{
	assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	setenv("OMPI_MCA_pml", "ob1", 0);
	setenv("OMPI_MCA_btl", "self,vader", 0);
	launcher_apart();
	setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
	setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
}

#endif
