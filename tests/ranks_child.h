/* A rank of `ferry` with a fault: a test program that is started as "PROGRAM as-ferry FAULT ARGS".
 *
 * FAULT is RANK:WHAT:N:HOW. It applies when rank RANK calls for the N-th time for WHAT: memory, a file,
 * MPI, a socket, a thread or a mapping. HOW: this call fails, or all calls from this one on fail, or the
 * rank dies, stops or sleeps. Any call of the command counts if this program's own code makes it; calls
 * inside MPI do not. A rank that ends by itself writes its exit code, its error and its counts to
 * $FERRY_TEST_RECORDS/rank-N.
 *
 * This file defines the failing functions under their own names: the linker prefers them to those of
 * shared libraries.
 */
#ifndef FERRY_TESTS_RANKS_CHILD_H
#define FERRY_TESTS_RANKS_CHILD_H

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "comm/launch.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum child_what {
	CHILD_MEMORY,
	CHILD_FILE,
	CHILD_LINK,
	CHILD_THREAD,
	CHILD_MAP,
	CHILD_FLIP,
	CHILD_NAN,
	CHILD_WHAT_COUNT
};
enum child_how { CHILD_ONCE, CHILD_ON, CHILD_KILL, CHILD_STOP, CHILD_SLEEP, CHILD_HOW_COUNT };
static const char *const child_whats[] = {"memory", "file", "link", "thread", "map", "flip", "nan"};
static const char *const child_hows[] = {"once", "on", "kill", "stop", "sleep"};

static struct {
	int is_here, rank;
	enum child_what what;
	enum child_how how;
	long at;
	atomic_long seen[CHILD_WHAT_COUNT];
} child;

/* Counts a call; 1 if it must fail. */
static int child_refuses(enum child_what what)
{
	long n = atomic_fetch_add(&child.seen[what], 1) + 1;

	if (!child.is_here || what != child.what || n < child.at || (n > child.at && child.how != CHILD_ON))
		return 0;
	if (child.how == CHILD_KILL)
		raise(SIGKILL);
	if (child.how == CHILD_STOP)
		kill(getpid(), SIGSTOP);
	if (child.how == CHILD_SLEEP)
		sleep(3);
	return child.how == CHILD_ONCE || child.how == CHILD_ON;
}

static int child_file(void *context, const struct file_call *call)
{
	static const int errors[] = {EIO, ENOSPC};

	(void)context;
	(void)call;
	return child_refuses(CHILD_FILE) ? errors[child.at & 1] : 0;
}

/* ---- calls that fail ---- */

/* In received data a bit may flip, or all may become NaN, if there are many bytes: weights or gradients. */
static int child_is_data(long bytes)
{
	enum { MANY = 3072, BESIDE_ERROR = 64 }; /* an error with its text is many bytes, too */

	return bytes >= MANY &&
	       (bytes < (long)sizeof(struct err) || bytes > (long)sizeof(struct err) + BESIDE_ERROR);
}

static void child_spoil(char *values, size_t bytes)
{
	if (child.what == CHILD_FLIP)
		values[bytes / 2 / 4 * 4 + 3] ^= 1;
	else
		memset(values, 0xff, bytes);
}

/* For sockets of a rank that ferry started. */
static int child_link_refuses(void)
{
	return getenv(LOCAL_JOB_RANK) && child_refuses(CHILD_LINK);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	errno = ENOBUFS;
	return child_link_refuses() ? -1 : syscall(SYS_sendmsg, fd, message, flags);
}

int getsockopt(int fd, int level, int what, void *value, socklen_t *bytes)
{
	errno = ENOTSOCK;
	return child_link_refuses() ? -1 : (int)syscall(SYS_getsockopt, fd, level, what, value, bytes);
}

ssize_t recv(int fd, void *values, size_t bytes, int flags)
{
	ssize_t came;

	errno = ENOBUFS;
	if (child_link_refuses())
		return -1;
	came = syscall(SYS_recvfrom, fd, values, bytes, flags, NULL, NULL);
	if (child_is_data(came) && getenv(LOCAL_JOB_RANK) && child.what >= CHILD_FLIP &&
	        child_refuses(child.what))
		child_spoil(values, (size_t)came);
	return came;
}

#ifdef FERRY_MPI
#include <mpi.h>

int MPI_Isend(const void *values, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
        MPI_Request *request)
{
	if (child_refuses(CHILD_LINK))
		return MPI_ERR_OTHER;
	return PMPI_Isend(values, count, type, peer, tag, comm, request);
}

static char *child_flipped;
static size_t child_flipped_bytes;

int MPI_Irecv(
        void *values, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Request *request)
{
	if (child_refuses(CHILD_LINK))
		return MPI_ERR_OTHER;
	if (child_is_data(count) && child.what >= CHILD_FLIP && child_refuses(child.what)) {
		child_flipped = values;
		child_flipped_bytes = (size_t)count;
	}
	return PMPI_Irecv(values, count, type, peer, tag, comm, request);
}

int MPI_Testall(int count, MPI_Request *requests, int *done, MPI_Status *statuses)
{
	int result =
	        child_refuses(CHILD_LINK) ? MPI_ERR_OTHER : PMPI_Testall(count, requests, done, statuses);

	if (!result && *done && child_flipped) {
		child_spoil(child_flipped, child_flipped_bytes);
		child_flipped = NULL;
	}
	return result;
}

int MPI_Init_thread(int *argc, char ***argv, int wanted, int *provided)
{
	return child_refuses(CHILD_LINK) ? MPI_ERR_OTHER : PMPI_Init_thread(argc, argv, wanted, provided);
}

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *part)
{
	return child_refuses(CHILD_LINK) ? MPI_ERR_OTHER : PMPI_Comm_split_type(comm, type, key, info, part);
}

int MPI_Bcast(void *values, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
	return child_refuses(CHILD_LINK) ? MPI_ERR_OTHER : PMPI_Bcast(values, count, type, root, comm);
}
#endif

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *context)
{
	int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

	if (child_refuses(CHILD_THREAD))
		return EAGAIN;
	*(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
	return create(thread, attr, run, context);
}

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	if (child_refuses(CHILD_MAP)) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}

/* ---- being a rank ---- */

static int child_own_rank(void)
{
	const char *text = getenv("OMPI_COMM_WORLD_RANK");

	text = text ? text : getenv("PMI_RANK");
	text = getenv(LOCAL_JOB_RANK) ? getenv(LOCAL_JOB_RANK) : text;
	return text ? atoi(text) : -1;
}

static void child_record(int code)
{
	const char *dir = getenv("FERRY_TEST_RECORDS");
	char path[600], text[ERR_TEXT_BYTES + 200];
	int len, fd;

	if (child_own_rank() < 0)
		return; /* this process started the ranks */
	snprintf(path, sizeof(path), "%s/rank-%d", dir ? dir : ".", child_own_rank());
	fd = dir ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
	if (fd < 0)
		return;
	atomic_store(&child.seen[CHILD_MEMORY], mem_fault_arm(0, MEM_FAULT_ONCE));
	len = snprintf(text, sizeof(text), "%d", code);
	for (int w = 0; w < CHILD_WHAT_COUNT; w++)
		len += snprintf(text + len, sizeof(text) - (size_t)len, " %ld", atomic_load(&child.seen[w]));
	snprintf(text + len, sizeof(text) - (size_t)len, "\n%s", code ? err_text() : "");
	if (write(fd, text, strlen(text)) < 0) /* no stdio: this may be a signal handler */
		return;
	close(fd);
}

/* cli_main ends ranks with _exit. */
void _exit(int code)
{
	child_record(code);
	syscall(SYS_exit_group, code);
	for (;;)
		;
}

/* Parses RANK:WHAT:N:HOW; 0 if the text is something else. */
static int child_read(const char *text)
{
	char what[16], how[16];

	if (sscanf(text, "%d:%15[a-z]:%ld:%15[a-z]", &child.rank, what, &child.at, how) != 4)
		return 0;
	while (child.what < CHILD_WHAT_COUNT && strcmp(child_whats[child.what], what))
		child.what++;
	while (child.how < CHILD_HOW_COUNT && strcmp(child_hows[child.how], how))
		child.how++;
	return child.what < CHILD_WHAT_COUNT && child.how < CHILD_HOW_COUNT;
}

/* main of the test program calls this first. If this process is a rank, or the parent of ranks, it runs ferry
 * and does not return. ferry starts ranks with the arguments of ferry only. */
#define CHILD_FAULT "FERRY_TEST_FAULT"

static inline void child_main(int argc, char *argv[])
{
	const char *fault = getenv(CHILD_FAULT);

	if (!fault && (argc < 3 || strcmp(argv[1], "as-ferry")))
		return;
	if (!child_read(fault ? fault : argv[2])) {
		fprintf(stderr, "%s: no fault: %s\n", argv[0], fault ? fault : argv[2]);
		exit(2);
	}
	child.is_here = child.rank == child_own_rank();
	if (!fault) {
		setenv(CHILD_FAULT, argv[2], 1);
		argv[2] = argv[0];
		argc -= 2;
		argv += 2;
	}
	file_hook_set(child_file, NULL);
	mem_fault_arm(child.is_here && child.what == CHILD_MEMORY ? child.at : 0,
	        child.how == CHILD_ON ? MEM_FAULT_FOREVER : MEM_FAULT_ONCE);
	argc = cli_main(argc, argv);
	fflush(NULL);
	_exit(argc);
}

#endif
