/* Disks that fail during a run: a hook on its file operations, or the test's own small file system. */
#ifndef FERRY_TESTS_RUN_DISKS_H
#define FERRY_TESTS_RUN_DISKS_H

#include "tests/run_fixture.h"

#include "cli/cli.h"

#include <errno.h>
#include <sys/mount.h>

/* ---- with a hook ---- */

/* Runs `ferry LINE` (a line without quotes) in the library, in a child process with this hook on its file
 * operations. Returns its exit code; 128 + 9 if it was killed. */
__attribute__((format(printf, 3, 4))) static inline int run_hooked(
        file_hook *hook, void *context, const char *fmt, ...)
{
	static char line[4096];
	char *args[64] = {"ferry"}, *rest, path[400];
	int count = 1;
	va_list ap;
	pid_t pid;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	for (char *arg = strtok_r(line, " ", &rest); arg; arg = strtok_r(NULL, " ", &rest))
		args[count++] = arg;
	fflush(NULL);
	pid = fork();
	if (pid)
		return run_wait(pid);
	path_of(path, "stderr");
	assert_non_null(freopen(path, "w", stderr));
	assert_non_null(freopen("/dev/null", "w", stdout));
	file_hook_set(hook, context);
	count = cli_main(count, args);
	fflush(NULL);
	_exit(count);
}

/* ---- with a file system ---- */

/* Mounts an empty file system of `kib` KiB on work_dir/disk; 0 if the machine does not allow it. */
static inline int disk_mount(int kib)
{
	char path[400], options[64];

	path_of(path, "disk");
	mkdir(path, 0777);
	snprintf(options, sizeof(options), "size=%dk,mode=777", kib);
	if (!mount("disk", path, "tmpfs", 0, options))
		return 1;
	print_message(
	        "SKIPPED full disks: this machine lets nobody mount a tmpfs here (%s)\n", strerror(errno));
	return 0;
}

static inline void disk_unmount(void)
{
	char path[400];

	path_of(path, "disk");
	umount2(path, MNT_DETACH);
}

/* 1 while a save is in progress in work_dir/disk/out. */
static inline int is_saving(void)
{
	char path[400], **names = NULL;
	size_t count = 0;
	int found = 0;

	path_of(path, "disk/out");
	assert_int_equal(file_list_dir(path, &names, &count), 0);
	for (size_t i = 0; i < count; i++)
		found |= strstr(names[i], ".tmp") != NULL;
	file_list_free(names, count);
	return found;
}

/* Fills the disk while the run is halted and no save is in progress: a save that fails would free room. */
static inline void fill_disk(pid_t pid, const char *name)
{
	char path[400], block[4096] = "";
	int fd;

	path_of(path, name);
	for (run_halt(pid); is_saving(); run_halt(pid)) {
		kill(pid, SIGCONT);
		sleep_ms(5);
	}
	fd = open(path, O_WRONLY | O_CREAT, 0666);
	assert_true(fd >= 0);
	while (write(fd, block, sizeof(block)) > 0)
		;
	close(fd);
}

#endif
