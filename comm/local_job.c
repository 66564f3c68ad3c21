/* Starts the ranks of a job on this host and waits for their end. */
#include "comm/local_job.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/stop_signals.h"
#include "base/str.h"
#include "comm/heartbeat.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEST_NS 100000000
#define PATIENCE_NS (10 * (int64_t)1000000000) /* for the other ranks, after a failure, ... */
#define LAST_NS (4 * (int64_t)1000000000)      /* ... and after the last rank that ended */
#define GIVE_UP_NS (10 * (int64_t)1000000000)  /* for the kernel to end them */

enum { FDS_BESIDE = 64, RANKS_MAX = 1024 };

static const char *const names[] = {
        LOCAL_JOB_RANK, LOCAL_JOB_SIZE, LOCAL_JOB_KEY, LOCAL_JOB_HEART, LOCAL_JOB_SOCKETS};
enum { NAME_COUNT = sizeof(names) / sizeof(*names) };

struct job {
	int size, left;
	char name[48]; /* of the job; unique */
	pid_t *pids;   /* [size]; 0: it has ended */
	int *fds;      /* [size][size]: from rank to rank; -1: none, or its rank has it */
	int heart_fd;
	sigset_t before;
	int64_t failed_ns, ended_ns; /* the first failure, the last end */
	int is_late;                 /* the other ranks were killed here */
	int got[NSIG];
	struct local_job_end end;
	struct str killed; /* the text of the result */
};

/* ---- sockets ---- */

static int *fd_of(struct job *j, int rank, int to)
{
	return &j->fds[(ptrdiff_t)rank * j->size + to];
}

static void fd_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* Makes the sockets from this rank to all later ones. With many ranks this takes many files. */
static int pairs_make(struct job *j, int rank)
{
	for (int to = rank + 1; to < j->size; to++) {
		int pair[2];

		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
			return err_set(ERR_DEVICE, "cannot make a socket between ranks %d and %d: %s", rank,
			        to, strerror(errno));
		*fd_of(j, rank, to) = pair[0];
		*fd_of(j, to, rank) = pair[1];
	}
	return 0;
}

/* At most size * size / 4 sockets are open here at a time. */
static void files_allow(int size)
{
	struct rlimit limit;
	rlim_t want = (rlim_t)size * (rlim_t)size / 4 + 2 * (rlim_t)size + FDS_BESIDE;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= want)
		return;
	limit.rlim_cur = want < limit.rlim_max ? want : limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit); /* if files run out, socketpair reports it */
}

/* ---- starting ---- */

static int is_of_job(const char *entry)
{
	for (int i = 0; i < NAME_COUNT; i++) {
		size_t len = strlen(names[i]);

		if (!strncmp(entry, names[i], len) && entry[len] == '=')
			return 1;
	}
	return 0;
}

/* This environment with the rank's variables, which *words holds. */
static char **environment_make(struct job *j, int rank, struct str *words)
{
	size_t count = 0, at = NAME_COUNT;
	extern char **environ;
	char **all, *text;

	while (environ[count])
		count++;
	str_printf(words, "%s=%d\n%s=%d\n%s=%s\n%s=%d\n%s=", names[0], rank, names[1], j->size, names[2],
	        j->name, names[3], j->heart_fd, names[4]);
	for (int to = 0; to < j->size; to++)
		str_printf(words, "%s%d", to ? "," : "", *fd_of(j, rank, to));
	all = mem_alloc(count + NAME_COUNT + 1, sizeof(*all));
	if (str_check(words) || !all) {
		mem_free(all);
		return NULL;
	}
	text = words->data;
	for (int i = 0; i < NAME_COUNT; i++) {
		all[i] = text;
		text = strchr(text, '\n');
		if (text)
			*text++ = 0;
	}
	for (size_t i = 0; i < count; i++)
		if (!is_of_job(environ[i]))
			all[at++] = environ[i];
	return all;
}

/* The rank inherits its sockets and the heartbeat file. Rank 0 gets standard input. The signal mask is the
 * one from before the job. */
static int rank_spawn(struct job *j, int rank, char *const argv[], char *const environment[])
{
	posix_spawn_file_actions_t files;
	posix_spawnattr_t how;
	int error = posix_spawn_file_actions_init(&files);

	if (error)
		return error;
	error = posix_spawnattr_init(&how);
	if (!error) /* dup2 to itself keeps it open */
		error = posix_spawn_file_actions_adddup2(&files, j->heart_fd, j->heart_fd);
	for (int to = 0; to < j->size && !error; to++)
		if (to != rank)
			error = posix_spawn_file_actions_adddup2(
			        &files, *fd_of(j, rank, to), *fd_of(j, rank, to));
	if (!error && rank)
		error = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	if (!error)
		error = posix_spawnattr_setsigmask(&how, &j->before);
	if (!error)
		error = posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK);
	if (!error)
		error = posix_spawn(&j->pids[rank], "/proc/self/exe", &files, &how, argv, environment);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&how);
	return error;
}

static int rank_start(struct job *j, int rank, char *const argv[])
{
	struct str words = {0};
	char **environment;
	int rc = pairs_make(j, rank), error;

	environment = rc ? NULL : environment_make(j, rank, &words);
	if (!rc && !environment)
		rc = ERR_NOMEM;
	error = rc ? 0 : rank_spawn(j, rank, argv, environment);
	if (error) {
		j->pids[rank] = 0;
		rc = err_set(ERR_DEVICE, "cannot start rank %d of %d: %s", rank, j->size, strerror(error));
	}
	j->left += !rc;
	for (int to = 0; to < j->size; to++)
		fd_close(fd_of(j, rank, to));
	mem_free(environment);
	str_free(&words);
	return rc;
}

/* ---- the end ---- */

static void ranks_signal(const struct job *j, int signal)
{
	for (int r = 0; r < j->size; r++)
		if (j->pids[r])
			kill(j->pids[r], signal);
}

static void death_tell(struct job *j, int rank, int signal)
{
	const char *name = sigabbrev_np(signal);

	str_printf(&j->killed, "%srank %d (process %d) was killed by SIG%s%s",
	        j->killed.len_bytes ? "\n" : "", rank, (int)j->pids[rank], name ? name : "?",
	        signal == SIGKILL ? "; dmesg tells whether memory ran out" : "");
}

/* A death by a signal is reported even after other failures: they may have a common cause. */
static void rank_ended(struct job *j, int rank, int status)
{
	int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;

	if (!j->failed_ns && status)
		j->failed_ns = clock_now_ns();
	if (signal && j->got[signal])
		j->end.signal = signal;
	else if (signal && !j->is_late)
		death_tell(j, rank, signal);
	if (!j->end.exit_code && status)
		j->end.exit_code = signal ? 1 : WEXITSTATUS(status);
	j->ended_ns = clock_now_ns();
	j->pids[rank] = 0;
	j->left--;
}

static void ranks_reap(struct job *j)
{
	for (int r = 0; r < j->size; r++) {
		int status = 0;

		if (j->pids[r] && waitpid(j->pids[r], &status, WNOHANG) == j->pids[r])
			rank_ended(j, r, status);
	}
}

/* Kills ranks that hang and cannot learn of the end. Gives up on a rank that hangs in the kernel. */
static void late_kill(struct job *j)
{
	int64_t now_ns = clock_now_ns(),
	        until_ns = j->size - j->left > 1 ? j->ended_ns + LAST_NS : j->failed_ns + PATIENCE_NS;

	if (!j->failed_ns || now_ns < until_ns)
		return;
	if (!j->is_late)
		ranks_signal(j, SIGKILL);
	for (int r = 0; r < j->size && !j->is_late; r++)
		if (j->pids[r])
			str_printf(&j->killed,
			        "%srank %d (process %d) did not end with the others and was killed",
			        j->killed.len_bytes ? "\n" : "", r, (int)j->pids[r]);
	j->is_late = 1;
	if (now_ns > until_ns + GIVE_UP_NS)
		j->left = 0;
}

/* Ctrl-C goes to all processes of the terminal's job, so the ranks have it already. */
static int is_of_terminal(const siginfo_t *info)
{
	return info->si_signo == SIGINT && info->si_code == SI_KERNEL;
}

static void ranks_wait(struct job *j, const sigset_t *watched)
{
	const struct timespec tick = {.tv_nsec = TEST_NS};
	siginfo_t info;

	while (j->left) {
		int signal = sigtimedwait(watched, &info, &tick);

		if (signal > 0 && signal != SIGCHLD) {
			j->got[signal] = 1;
			if (!is_of_terminal(&info))
				ranks_signal(j, signal);
		}
		ranks_reap(j);
		late_kill(j);
	}
}

int local_job_run(struct local_job_end *end, int size, char *const argv[])
{
	struct job j = {.size = size, .heart_fd = -1};
	struct timespec now;
	sigset_t watched;
	struct err why = {0};
	int rc;

	if (size > RANKS_MAX)
		return err_set(ERR_INPUT, "ranks=%d: at most %d can be started on a host", size, RANKS_MAX);
	j.pids = mem_alloc((size_t)size, sizeof(*j.pids));
	j.fds = mem_alloc((size_t)size * (size_t)size, sizeof(*j.fds));
	rc = j.pids && j.fds ? 0 : ERR_NOMEM;
	for (int64_t i = 0; i < (int64_t)size * size && !rc; i++)
		j.fds[i] = -1;
	files_allow(size);
	j.heart_fd = rc ? -1 : heartbeat_make(size);
	if (!rc && j.heart_fd < 0)
		rc = err_set(ERR_DEVICE, "no shared memory for %d ranks: %s", size, strerror(errno));
	sigemptyset(&watched);
	sigaddset(&watched, SIGCHLD);
	for (int i = 0; i < STOP_SIGNAL_COUNT; i++)
		sigaddset(&watched, stop_signals[i]);
	signal(SIGCHLD, SIG_DFL); /* if it were ignored, waitpid would find no child */
	sigprocmask(SIG_BLOCK, &watched, &j.before);
	clock_gettime(CLOCK_REALTIME, &now);
	snprintf(j.name, sizeof(j.name), "%d-%lld", (int)getpid(), now.tv_sec * 1000000000LL + now.tv_nsec);
	for (int r = 0; r < size && !rc; r++)
		rc = rank_start(&j, r, argv);
	fd_close(&j.heart_fd);
	err_take(&why, rc);
	if (rc) {
		ranks_signal(&j, SIGKILL);
		j.failed_ns = clock_now_ns();
		for (int64_t i = 0; j.fds && i < (int64_t)size * size; i++)
			fd_close(&j.fds[i]);
	}
	ranks_wait(&j, &watched);
	*end = j.end;
	end->is_told = !rc && j.killed.data && !str_check(&j.killed);
	if (end->is_told)
		err_set(ERR_DEVICE, "%s", j.killed.data);
	str_free(&j.killed);
	mem_free(j.pids);
	mem_free(j.fds);
	return rc ? err_give(&why) : 0;
}

/* ---- a rank ---- */

/* Reads "4,-1,5", the sockets of this rank to each. Returns 0 if they are not valid. */
static int sockets_read(int *fds, const struct launch *launch)
{
	const char *at = getenv(LOCAL_JOB_SOCKETS);
	int type;
	socklen_t bytes = sizeof(type);
	char *end;

	for (int r = 0; r < launch->size; r++) {
		fds[r] = at ? (int)strtol(at, &end, 10) : -1;
		at = at && end != at && *end == (r + 1 < launch->size ? ',' : 0) ? end + 1 : NULL;
		if (!at || (r != launch->rank && getsockopt(fds[r], SOL_SOCKET, SO_TYPE, &type, &bytes)))
			return 0;
		if (r != launch->rank && fcntl(fds[r], F_SETFD, FD_CLOEXEC))
			return 0;
	}
	return 1;
}

int local_job_join(int *fds, const struct launch *launch)
{
	const char *key = getenv(LOCAL_JOB_KEY);

	if (!key || !sockets_read(fds, launch))
		return err_set(
		        ERR_DEVICE, LOCAL_JOB_RANK " is set, but ferry did not start this process; unset it");
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != (pid_t)atoi(key)) /* the parent ended before prctl */
		return err_set(ERR_DEVICE, "the process that started the ranks is gone");
	return 0;
}
