/* The shared memory in which ranks of one host watch each other. */
#include "comm/heartbeat.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BEAT_NS 100000000
#define STILL_NS (2 * (int64_t)1000000000) /* without a beat: the rank is stopped, not slow */
#define MISSED_NS (5 * (int64_t)BEAT_NS)   /* without a beat: it may be stopped */
#define HOSTS_NS (3 * (int64_t)1000000000) /* the ranks of the stuck rank's host see it and report first */
#define JOIN_LOOK_NS 50000000              /* a launcher that ends its job gives a rank one second */
#define JOIN_MEET_NS (2 * (int64_t)1000000000)
#define JOIN_LEAST_NS (30 * (int64_t)1000000000)
enum { PATIENT_TIMES = 10 }; /* of patience in a patient phase; the work of other hosts is not visible */

enum { TEXT_BYTES = 48 };

/* One rank. Times are on CLOCK_MONOTONIC, which all processes of a host share. A text may be read while it
 * changes. */
struct line {
	_Atomic int64_t beat_ns, progress;
	atomic_int rank, pid; /* pid 0: the rank has not come */
	atomic_int is_patient, waiting_threads, failed_code;
	atomic_int is_told; /* first line: a rank reports for all */
	char phase[TEXT_BYTES], exchange[TEXT_BYTES];
	struct err failure; /* complete once failed_code is set */
};

/* The last progress seen of a line (in the ranks' start: its last beat), and the time of its last change. */
struct seen {
	int64_t progress, since_ns;
};

static struct {
	struct line *lines, *own; /* NULL: not started */
	struct seen *seen;        /* [count]; under the lock */
	int count, fd;            /* fd: the process of line i locks its byte i while it lives */
	char path[64];
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	int is_ending;
	struct heartbeat_join join; /* lost NULL: the ranks' start is over */
	int64_t looked_ns, waited_ns;
} heart = {.fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER};

static void join_look(void);

static void *beat(void *unused)
{
	struct timespec until;

	(void)unused;
	pthread_mutex_lock(&heart.lock);
	while (!heart.is_ending) {
		atomic_store(&heart.own->beat_ns, clock_now_ns());
		if (heart.join.lost)
			join_look();
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += heart.join.lost ? JOIN_LOOK_NS : BEAT_NS;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		pthread_cond_timedwait(&heart.wake, &heart.lock, &until);
	}
	pthread_mutex_unlock(&heart.lock);
	return NULL;
}

/* A POSIX lock ends with its process, even if the process's number means nothing here (containers) or its
 * parent has not waited for it. */
static int line_lock(int command, int i, short *type)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = i, .l_len = 1};
	int rc = fcntl(heart.fd, command, &lock);

	*type = lock.l_type;
	return rc;
}

static void lines_unmap(void)
{
	if (heart.lines)
		munmap(heart.lines, (size_t)heart.count * sizeof(*heart.lines));
	if (heart.fd >= 0 && *heart.path) /* an inherited one may be tried again */
		close(heart.fd);
	mem_free(heart.seen);
	heart.lines = heart.own = NULL;
	heart.seen = NULL;
	heart.fd = -1;
}

/* Nobody can shrink a file with these seals, so it is safe to map. They also tell it from another file that a
 * stale environment may name.
 */
#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW)

int heartbeat_make(int size)
{
	enum { NO_EXEC = 8 }; /* MFD_NOEXEC_SEAL, which Linux 6.3 may require */
	static const char name[] = "ferry-ranks";
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | NO_EXEC), error;

	if (fd < 0 && errno == EINVAL)
		fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -1;
	if (!ftruncate(fd, (off_t)size * (off_t)sizeof(*heart.lines)) && !fcntl(fd, F_ADD_SEALS, SEALS))
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

static int lines_open(int64_t key, off_t bytes)
{
	snprintf(heart.path, sizeof(heart.path), "/dev/shm/ferry-ranks-%lld", (long long)key);
	heart.fd = open(heart.path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (heart.fd < 0 || ftruncate(heart.fd, bytes))
		return err_set(ERR_IO, "%s: %s", heart.path, strerror(errno));
	return 0;
}

static int lines_inherit(int fd, off_t bytes)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat file;

	*heart.path = 0;
	if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &file) || file.st_size != bytes ||
	        fcntl(fd, F_SETFD, FD_CLOEXEC))
		return err_set(ERR_IO, "descriptor %d is not the shared memory of this host's ranks", fd);
	heart.fd = fd;
	return 0;
}

static int lines_map(int fd, int64_t key, int rank, int size)
{
	size_t bytes = (size_t)size * sizeof(*heart.lines);
	int rc = fd >= 0 ? lines_inherit(fd, (off_t)bytes) : lines_open(key, (off_t)bytes);
	void *lines = MAP_FAILED;
	short type;

	if (rc)
		return rc;
	if (!line_lock(F_SETLK, rank, &type))
		lines = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, heart.fd, 0);
	if (lines == MAP_FAILED)
		return err_set(ERR_IO, "cannot share memory between the ranks of this host%s%s: %s",
		        *heart.path ? ", " : "", heart.path, strerror(errno));
	heart.lines = lines;
	heart.count = size;
	heart.seen = mem_alloc((size_t)size, sizeof(*heart.seen));
	return heart.seen ? 0 : ERR_NOMEM;
}

int heartbeat_start(int fd, int64_t key, int rank, int size)
{
	pthread_condattr_t monotonic;
	int rc = lines_map(fd, key, rank, size), error;

	if (!rc && *heart.path &&
	        atomic_load(&heart.lines[rank].pid)) { /* left by a job that died in its start */
		heartbeat_unlink();
		lines_unmap();
		rc = lines_map(fd, key, rank, size);
	}
	if (rc) {
		lines_unmap();
		return rc;
	}
	heart.own = &heart.lines[rank];
	atomic_store(&heart.own->rank, rank);
	atomic_store(&heart.own->beat_ns, clock_now_ns());
	heartbeat_set_phase("start", HEARTBEAT_PATIENT);
	atomic_store(&heart.own->pid, (int)getpid());
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&heart.wake, &monotonic);
	pthread_condattr_destroy(&monotonic);
	error = thread_start(&heart.thread, beat, NULL);
	if (!error)
		return 0;
	atomic_store(&heart.own->beat_ns, INT64_MAX);
	lines_unmap();
	return err_set(ERR_NOMEM, "cannot start the heartbeat thread: %s", strerror(error));
}

void heartbeat_unlink(void)
{
	if (heart.lines && *heart.path)
		unlink(heart.path); /* the first call does it */
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
	atomic_store(&heart.own->beat_ns, INT64_MAX); /* from here on nobody watches it */
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
	if (what) { /* several threads exchange at once; the text is the last one's */
		pthread_mutex_lock(&heart.lock);
		snprintf(heart.own->exchange, sizeof(heart.own->exchange), "%s", what);
		pthread_mutex_unlock(&heart.lock);
	}
	atomic_fetch_add(&heart.own->waiting_threads, what ? 1 : -1);
}

void heartbeat_progress(void)
{
	if (heart.own)
		atomic_fetch_add_explicit(&heart.own->progress, 1, memory_order_relaxed);
}

/* ---- failures ---- */

void heartbeat_tell(int code)
{
	if (!heart.own)
		return;
	heart.own->failure = (struct err){0};
	err_take(&heart.own->failure, code);
	atomic_store(&heart.own->failed_code, code);
}

int heartbeat_hear(int *rank, struct err *failure)
{
	for (int i = 0; heart.own && i < heart.count; i++) {
		int code = atomic_load(&heart.lines[i].failed_code);

		if (!code || &heart.lines[i] == heart.own)
			continue;
		*rank = atomic_load(&heart.lines[i].rank);
		*failure = heart.lines[i].failure;
		return code;
	}
	return 0;
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

/* The line's rank has not come or has ended, so the line shows nothing. */
static int is_silent(const struct line *line)
{
	return !atomic_load(&line->pid) || atomic_load(&line->beat_ns) == INT64_MAX;
}

static int is_gone(int i)
{
	short type;

	return &heart.lines[i] != heart.own && !is_silent(&heart.lines[i]) && !line_lock(F_GETLK, i, &type) &&
	       type == F_UNLCK;
}

/* Reports the first rank that is gone, as an error. */
static int gone_find(void)
{
	for (int i = 0; i < heart.count; i++)
		if (is_gone(i))
			return err_set(ERR_DEVICE, "rank %d (process %d) is gone; it was in %.*s",
			        atomic_load(&heart.lines[i].rank), atomic_load(&heart.lines[i].pid),
			        TEXT_BYTES - 1, heart.lines[i].phase);
	return 0;
}

int heartbeat_look(void)
{
	int64_t now_ns = clock_now_ns();

	if (!heart.own)
		return 0;
	pthread_mutex_lock(&heart.lock);
	for (int i = 0; i < heart.count; i++) {
		int64_t progress = atomic_load(&heart.lines[i].progress);

		if (progress != heart.seen[i].progress || !heart.seen[i].since_ns)
			heart.seen[i] = (struct seen){progress, now_ns};
	}
	pthread_mutex_unlock(&heart.lock);
	return gone_find();
}

int heartbeat_all_move(void)
{
	int64_t now_ns = clock_now_ns();

	for (int i = 0; heart.own && i < heart.count; i++)
		if (!is_silent(&heart.lines[i]) &&
		        (is_gone(i) || now_ns - atomic_load(&heart.lines[i].beat_ns) > STILL_NS))
			return 0;
	return 1;
}

/* Judges a rank that waits for nobody: it is in the way unless it makes progress. */
static int line_judge(int i, const char *what, int64_t patience_ns, int64_t now_ns)
{
	int64_t idle_ns;

	pthread_mutex_lock(&heart.lock);
	idle_ns = now_ns - heart.seen[i].since_ns;
	pthread_mutex_unlock(&heart.lock);
	if (atomic_load(&heart.lines[i].is_patient) || idle_ns < patience_ns)
		return 0;
	return line_text(&heart.lines[i], "has made no progress for", idle_ns, what);
}

int heartbeat_judge(const char *what, int peer, int64_t waited_ns, int64_t patience_ns)
{
	int64_t now_ns = clock_now_ns();
	int peer_is_here = 0, is_doubtful = 0, has_hosts = 0;

	if (!heart.own)
		return err_set(ERR_DEVICE, "rank %d did not reach %s within %.0f s", peer, what,
		        1e-9 * (double)waited_ns);
	for (int i = 0; i < heart.count; i++) {
		int64_t still_ns = now_ns - atomic_load(&heart.lines[i].beat_ns);

		has_hosts |= !atomic_load(&heart.lines[i].pid);
		if (is_silent(&heart.lines[i]))
			continue;
		if (still_ns > STILL_NS)
			return line_text(&heart.lines[i], "has not moved for", still_ns, what);
		is_doubtful |= still_ns > MISSED_NS;
		peer_is_here |= atomic_load(&heart.lines[i].rank) == peer;
	}
	if (is_doubtful)
		return 0;
	if (!peer_is_here && waited_ns < patience_ns + HOSTS_NS)
		return 0;
	if (atomic_load(&heart.own->is_patient) &&
	        (peer_is_here || waited_ns < PATIENT_TIMES * patience_ns + HOSTS_NS))
		return 0;
	for (int i = 0; i < heart.count; i++)
		if (!is_silent(&heart.lines[i]) && !atomic_load(&heart.lines[i].waiting_threads))
			return line_judge(i, what, patience_ns, now_ns);
	/* all ranks here wait, the peer too: the one that waits for another host reports first */
	if (peer_is_here && has_hosts && waited_ns < patience_ns + 2 * HOSTS_NS)
		return 0;
	return err_set(ERR_DEVICE, "rank %d%s did not reach %s within %.0f s", peer,
	        peer_is_here ? "" : ", on another host,", what, 1e-9 * (double)waited_ns);
}

/* ---- the ranks' start ---- */

static int lines_came(int *missing)
{
	int count = 0;

	*missing = -1;
	for (int i = 0; i < heart.count; i++) {
		int is_there = atomic_load(&heart.lines[i].pid) != 0;

		count += is_there;
		if (!is_there && *missing < 0)
			*missing = i;
	}
	return count;
}

/* Counts only the time in which this process ran, because all processes may have been stopped together. */
static int still_find(int64_t patience_ns)
{
	for (int i = 0; i < heart.count; i++) {
		struct line *line = &heart.lines[i];
		int64_t beat_ns = atomic_load(&line->beat_ns);

		if (is_silent(line) || beat_ns != heart.seen[i].progress)
			heart.seen[i] = (struct seen){beat_ns, heart.waited_ns};
		else if (heart.waited_ns - heart.seen[i].since_ns > patience_ns && line != heart.own)
			return err_set(ERR_DEVICE,
			        "rank %d (process %d) has not moved for %.0f s: it is in %.*s",
			        atomic_load(&line->rank), atomic_load(&line->pid),
			        1e-9 * (double)(heart.waited_ns - heart.seen[i].since_ns), TEXT_BYTES - 1,
			        line->phase);
	}
	return 0;
}

static int late_find(const struct heartbeat_join *join)
{
	int64_t limit_ns = join->patience_ns > JOIN_LEAST_NS ? join->patience_ns : JOIN_LEAST_NS;
	int missing, came = lines_came(&missing);

	if (heart.waited_ns <= limit_ns)
		return 0;
	if (came < heart.count && join->local_size == heart.count)
		return err_set(ERR_DEVICE, "rank %d did not reach the ranks' start within %.0f s", missing,
		        1e-9 * (double)heart.waited_ns);
	return err_set(ERR_DEVICE,
	        "not all ranks reached their start within %.0f s: one of them hangs or cannot be reached",
	        1e-9 * (double)heart.waited_ns);
}

/* Runs under the lock, so `lost` is not called after heartbeat_join_end. */
static void join_look(void)
{
	const struct heartbeat_join *join = &heart.join;
	int64_t now_ns = clock_now_ns(), went_ns = now_ns - heart.looked_ns;
	struct err failure;
	int rank, rc;

	heart.looked_ns = now_ns;
	heart.waited_ns += went_ns < STILL_NS ? went_ns : 0;
	rc = heartbeat_hear(&rank, &failure);
	if (rc)
		err_note(err_give(&failure), "rank %d", rank);
	else
		rc = gone_find();
	if (!rc && join->patience_ns)
		rc = still_find(join->patience_ns > STILL_NS ? join->patience_ns : STILL_NS);
	if (!rc && join->patience_ns)
		rc = late_find(join);
	if (!rc && join->is_stopped())
		rc = err_set(ERR_STOPPED, "stopped by a signal during the ranks' start");
	if (rc)
		join->lost(rc, err_text());
}

void heartbeat_join_begin(const struct heartbeat_join *join)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	int64_t begin_ns = clock_now_ns();
	int missing;

	if (!heart.own)
		return;
	heartbeat_set_phase("the ranks' start", HEARTBEAT_PATIENT);
	pthread_mutex_lock(&heart.lock);
	heart.join = *join;
	heart.looked_ns = begin_ns;
	pthread_cond_signal(&heart.wake);
	pthread_mutex_unlock(&heart.lock);
	while (lines_came(&missing) < join->local_size) {
		if (clock_now_ns() - begin_ns > JOIN_MEET_NS)
			return;
		nanosleep(&pause, NULL);
	}
	heartbeat_unlink();
}

void heartbeat_join_end(void)
{
	if (!heart.own)
		return;
	heartbeat_set_phase("start", HEARTBEAT_PATIENT);
	pthread_mutex_lock(&heart.lock);
	heart.join.lost = NULL;
	memset(heart.seen, 0, (size_t)heart.count * sizeof(*heart.seen));
	pthread_mutex_unlock(&heart.lock);
}

int heartbeat_speaks(void)
{
	return !heart.own || !atomic_exchange(&heart.lines[0].is_told, 1);
}

int heartbeat_fd(void)
{
	return heart.own ? heart.fd : -1;
}

int heartbeat_all_left(void)
{
	short type;

	for (int i = 0; i < heart.count; i++)
		if (atomic_load(&heart.lines[i].pid) && (line_lock(F_GETLK, i, &type) || type != F_UNLCK))
			return 0;
	return 1;
}
