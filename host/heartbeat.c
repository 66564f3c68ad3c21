#include "host/heartbeat.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define BEAT_NS 100000000
#define STILL_NS (2 * (int64_t)1000000000) /* without a beat: it is not merely slow */

enum { TEXT_BYTES = 48 };

/* One rank; on CLOCK_MONOTONIC, which all processes of a host share. Texts may be torn while they change. */
struct line {
	_Atomic int64_t beat_ns;
	atomic_int rank, pid, is_patient, is_waiting;
	char phase[TEXT_BYTES], exchange[TEXT_BYTES];
};

static struct {
	struct line *lines, *own; /* NULL: not started */
	int count;
	char path[64];
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	int is_ending;
} heart = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *beat(void *unused)
{
	struct timespec until;

	(void)unused;
	pthread_mutex_lock(&heart.lock);
	while (!heart.is_ending) {
		atomic_store(&heart.own->beat_ns, clock_now_ns());
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += BEAT_NS;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		pthread_cond_timedwait(&heart.wake, &heart.lock, &until);
	}
	pthread_mutex_unlock(&heart.lock);
	return NULL;
}

static int lines_map(int64_t key, int local_size)
{
	size_t bytes = (size_t)local_size * sizeof(*heart.lines);
	void *lines;
	int fd;

	snprintf(heart.path, sizeof(heart.path), "/dev/shm/ferry-ranks-%lld", (long long)key);
	fd = open(heart.path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return err_set(ERR_IO, "%s: %s", heart.path, strerror(errno));
	lines = ftruncate(fd, (off_t)bytes) ? MAP_FAILED
	                                    : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (lines == MAP_FAILED)
		return err_set(ERR_IO, "%s: %s", heart.path, strerror(errno));
	heart.lines = lines;
	heart.count = local_size;
	return 0;
}

int heartbeat_start(int64_t key, int rank, int local_rank, int local_size)
{
	pthread_condattr_t monotonic;
	sigset_t all, before;
	int rc = lines_map(key, local_size), error;

	if (rc)
		return rc;
	heart.own = &heart.lines[local_rank];
	atomic_store(&heart.own->rank, rank);
	atomic_store(&heart.own->pid, (int)getpid());
	atomic_store(&heart.own->beat_ns, clock_now_ns());
	heartbeat_set_phase("start", HEARTBEAT_PATIENT);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&heart.wake, &monotonic);
	pthread_condattr_destroy(&monotonic);
	sigfillset(&all); /* signals are for the program's own thread */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&heart.thread, NULL, beat, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!error)
		return 0;
	munmap(heart.lines, (size_t)heart.count * sizeof(*heart.lines));
	heart.lines = heart.own = NULL;
	return err_set(ERR_NOMEM, "no thread for the heartbeat: %s", strerror(error));
}

void heartbeat_unlink(void)
{
	if (heart.own)
		unlink(heart.path); /* the first one does */
}

void heartbeat_stop(void)
{
	if (!heart.own)
		return;
	pthread_mutex_lock(&heart.lock);
	heart.is_ending = 1;
	pthread_cond_signal(&heart.wake);
	pthread_mutex_unlock(&heart.lock);
	pthread_join(heart.thread, NULL);
	pthread_cond_destroy(&heart.wake);
	munmap(heart.lines, (size_t)heart.count * sizeof(*heart.lines));
	heart.lines = heart.own = NULL;
	heart.is_ending = 0;
}

void heartbeat_set_phase(const char *text, enum heartbeat_phase phase)
{
	if (!heart.own)
		return;
	snprintf(heart.own->phase, sizeof(heart.own->phase), "%s", text);
	atomic_store(&heart.own->is_patient, phase == HEARTBEAT_PATIENT);
}

void heartbeat_set_exchange(const char *what)
{
	if (!heart.own)
		return;
	if (what)
		snprintf(heart.own->exchange, sizeof(heart.own->exchange), "%s", what);
	atomic_store(&heart.own->is_waiting, what != NULL);
}

/* ---- judging ---- */

static int line_text(const struct line *line, const char *verb, int64_t for_ns, const char *what)
{
	char phase[TEXT_BYTES], exchange[TEXT_BYTES];

	snprintf(phase, sizeof(phase), "%.*s", TEXT_BYTES - 1, line->phase);
	snprintf(exchange, sizeof(exchange), "%.*s", TEXT_BYTES - 1, line->exchange);
	return err_set(ERR_DEVICE,
	        "rank %d (process %d) %s %.0f s: it is in %s, its last exchange was %s; rank %d waits for it "
	        "in %s",
	        atomic_load(&line->rank), atomic_load(&line->pid), verb, 1e-9 * (double)for_ns, phase,
	        *exchange ? exchange : "none", atomic_load(&heart.own->rank), what);
}

int heartbeat_judge(const char *what, int peer, int64_t waited_ns)
{
	int64_t now_ns = clock_now_ns();
	int peer_is_here = 0;

	if (!heart.own)
		return err_set(ERR_DEVICE, "rank %d did not come to %s in %.0f s", peer, what,
		        1e-9 * (double)waited_ns);
	for (int i = 0; i < heart.count; i++) {
		int64_t still_ns = now_ns - atomic_load(&heart.lines[i].beat_ns);

		if (still_ns > STILL_NS)
			return line_text(&heart.lines[i], "has not moved for", still_ns, what);
		peer_is_here |= atomic_load(&heart.lines[i].rank) == peer;
	}
	if (atomic_load(&heart.own->is_patient))
		return 0;
	for (int i = 0; i < heart.count; i++)
		if (!atomic_load(&heart.lines[i].is_waiting))
			return atomic_load(&heart.lines[i].is_patient)
			               ? 0
			               : line_text(&heart.lines[i], "has come to no exchange for", waited_ns,
			                         what);
	return err_set(ERR_DEVICE, "rank %d%s did not come to %s in %.0f s", peer,
	        peer_is_here ? "" : ", on another host,", what, 1e-9 * (double)waited_ns);
}
