/* Ends a launcher that waits forever for ranks that have ended. */
#include "cli/launcher_watchdog.h"

#include "comm/heartbeat.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A launcher that is ending its job takes at most two seconds: it waits one second between its signals to
 * ranks. */
enum { TICK_MS = 20, PATIENCE_MS = 3000, LAST_MS = 3500, GIVE_UP_MS = 60000, ANCESTORS = 6 };

/* Finds the launcher, an ancestor of this process. 0: none. */
static pid_t launcher_find(void)
{
	static const char *const names[] = {
	        "(mpirun)", "(mpiexec)", "(orterun)", "(orted)", "(prterun)", "(prted)"};
	char path[64], stat[512];
	pid_t pid = getppid();

	for (int i = 0; i < ANCESTORS && pid > 1; i++) {
		const char *name, *end;
		size_t len;
		FILE *f;

		snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
		f = fopen(path, "r");
		len = f ? fread(stat, 1, sizeof(stat) - 1, f) : 0;
		stat[len] = 0;
		if (f)
			fclose(f);
		name = strchr(stat, '(');
		end = strrchr(stat, ')');
		if (!name || !end)
			return 0;
		for (size_t n = 0; n < sizeof(names) / sizeof(*names); n++)
			if (!strncmp(name, names[n], strlen(names[n])))
				return pid;
		if (sscanf(end, ") %*c %d", &pid) != 1)
			return 0;
	}
	return 0;
}

static void close_from(unsigned first, unsigned last)
{
	if (first <= last)
		(void)syscall(SYS_close_range, first, last, 0);
}

/* Closes all other files, because the launcher waits for the end of its ranks' output. Clears the
 * environment, so that programs that look for ranks by their environment find none. */
static void guard_hide(int fd, int launcher)
{
	unsigned low = (unsigned)(fd < launcher ? fd : launcher),
	         high = (unsigned)(fd < launcher ? launcher : fd);
	extern char **environ;

	setsid();
	close_from(high + 1, ~0U);
	close_from(low + 1, high - 1);
	if (low)
		close_from(0, low - 1);
	prctl(PR_SET_NAME, "launch guard");
	for (char **word = environ; word && *word; word++)
		memset(*word, 0, strlen(*word));
}

static void guard_run(int launcher)
{
	struct pollfd end = {.fd = launcher, .events = POLLIN};

	for (int left_ms = 0, all_ms = 0; all_ms < GIVE_UP_MS; all_ms += TICK_MS) {
		if (poll(&end, 1, TICK_MS))
			return;
		left_ms = heartbeat_all_left() ? left_ms + TICK_MS : 0;
		if (left_ms >= PATIENCE_MS)
			(void)syscall(SYS_pidfd_send_signal, launcher, left_ms < LAST_MS ? SIGTERM : SIGKILL,
			        NULL, 0);
	}
}

void launcher_watchdog_start(void)
{
	pid_t pid = launcher_find();
	int launcher = pid ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;

	if (launcher < 0)
		return;
	if (!_Fork()) { /* the child has only this thread, so it uses only system calls */
		guard_hide(heartbeat_fd(), launcher);
		guard_run(launcher);
		_exit(0);
	}
	close(launcher);
}
