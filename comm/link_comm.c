/* Links over MPI: the only file that knows it. Of MPI it takes messages that are sent and received without
 * blocking, and the ranks of a host; a link is a tag. */
#include "comm/link.h"

#include "comm/heartbeat.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"

#ifdef FERRY_MPI

#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TAG_FAILURE = 1, TAG_FIRST = 2 };

enum {
	PIECE_BYTES = 1 << 28, /* MPI counts with an int */
	YIELD_NS = 30000,      /* a wait begins by giving the core away, ... */
	SLEEP_MIN_NS = 20000,  /* ... goes on sleeping, ... */
	SLEEP_MAX_NS = 500000, /* ... longer and longer */
	STAGGER_NS = 250 * 1000000,
	DRAIN_NS = 200 * 1000000, /* after a failure: what both sides had agreed to goes through */
	LOOK_NS = 50 * 1000000,
	STOPPED_NS = 1000 * 1000000, /* nobody sleeps that long between two questions */
};

/* What a failed rank says. */
struct failure {
	int32_t rank, code;
	int32_t is_lost; /* for a rank that is gone or stands still, and will not answer */
	char text[ERR_TEXT_BYTES];
};

static struct {
	int started, rank, size;
	int next_tag;
	pthread_mutex_t lock; /* for calls of MPI, and for all below */
	MPI_Request listening;
	_Atomic int64_t patience_ns;
	struct failure heard;  /* where MPI puts what `listening` receives */
	struct failure failed; /* the first, of this or another rank; code 0: none */
} mpi = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct link {
	int first, stride, size, rank, tag;
	const char *what;
	MPI_Request *requests;
	int request_cap;
};

static int mpi_error(const char *what, int result)
{
	char why[MPI_MAX_ERROR_STRING] = "";
	int len = 0;

	MPI_Error_string(result, why, &len);
	return err_set(ERR_DEVICE, "MPI, rank %d of %d: %s: %s", mpi.rank, mpi.size, what, why);
}

/* ---- start and end ---- */

static int listen(void)
{
	int result = MPI_Irecv(&mpi.heard, sizeof(mpi.heard), MPI_BYTE, MPI_ANY_SOURCE, TAG_FAILURE,
	        MPI_COMM_WORLD, &mpi.listening);

	return result ? mpi_error("MPI_Irecv", result) : 0;
}

static int place_find(struct link_place *place)
{
	MPI_Comm host;
	int result;

	MPI_Comm_rank(MPI_COMM_WORLD, &place->rank);
	MPI_Comm_size(MPI_COMM_WORLD, &place->size);
	result = MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, place->rank, MPI_INFO_NULL, &host);
	if (result)
		return mpi_error("MPI_Comm_split_type", result);
	MPI_Comm_rank(host, &place->local_rank);
	MPI_Comm_size(host, &place->local_size);
	place->host_key = getpid();
	result = MPI_Bcast(&place->host_key, 1, MPI_INT64_T, 0, host);
	MPI_Comm_free(&host);
	return result ? mpi_error("MPI_Bcast", result) : 0;
}

int link_start(struct link_place *place, int launched)
{
	int provided = MPI_THREAD_SINGLE, result, rc;
	sigset_t all, before;

	sigfillset(&all); /* threads of MPI begin here, and signals are for the program's own */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	result = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (result)
		return err_set(ERR_DEVICE, "MPI_Init_thread failed (%d)", result);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	mpi.started = 1;
	rc = place_find(place);
	if (!rc && provided < MPI_THREAD_SERIALIZED)
		rc = err_set(ERR_UNSUPPORTED, "this MPI library does not support calls from several threads "
		                              "(MPI_THREAD_SERIALIZED)");
	if (!rc && place->size != launched)
		rc = err_set(ERR_UNSUPPORTED,
		        "a launcher started %d ranks, but MPI knows of %d: launch with the mpirun of the MPI "
		        "that ferry was built with, or with srun --mpi=pmix (or pmi2)",
		        launched, place->size);
	mpi.rank = place->rank;
	mpi.size = place->size;
	mpi.next_tag = TAG_FIRST;
	return rc ? rc : listen();
}

void link_stop(void)
{
	if (!mpi.started)
		return;
	pthread_mutex_lock(&mpi.lock);
	if (mpi.listening) {
		MPI_Cancel(&mpi.listening);
		MPI_Request_free(&mpi.listening);
	}
	mpi.started = 0;
	MPI_Finalize();
	pthread_mutex_unlock(&mpi.lock);
}

/* ---- failure ---- */

/* Has a rank failed? Under the lock. */
static int listen_once(void)
{
	int done = 0, rank;

	if (mpi.listening && !MPI_Test(&mpi.listening, &done, MPI_STATUS_IGNORE) && done) {
		if (!mpi.failed.code)
			mpi.failed = mpi.heard;
		(void)listen(); /* others may fail too; they must not wait for someone to hear it */
	}
	if (!mpi.failed.code) { /* where MPI itself failed, this is how ranks of one host hear of it */
		mpi.failed.code = heartbeat_hear(&rank, mpi.failed.text);
		mpi.failed.rank = mpi.failed.code ? rank : 0;
	}
	return mpi.failed.code;
}

/* Under the lock. */
static int failure_give(void)
{
	if (mpi.failed.rank == mpi.rank)
		return err_set(mpi.failed.code, "%s", mpi.failed.text);
	return err_set(mpi.failed.code, "rank %d: %s", (int)mpi.failed.rank, mpi.failed.text);
}

int link_failure(int *rank)
{
	int code = 0;

	pthread_mutex_lock(&mpi.lock);
	if (mpi.started)
		code = listen_once();
	if (code)
		failure_give();
	if (rank)
		*rank = mpi.failed.rank;
	pthread_mutex_unlock(&mpi.lock);
	return code;
}

int link_lost(void)
{
	int is_lost;

	pthread_mutex_lock(&mpi.lock);
	is_lost = mpi.failed.is_lost;
	pthread_mutex_unlock(&mpi.lock);
	return is_lost;
}

static int link_fail_by(int code, int is_lost)
{
	MPI_Request request;

	pthread_mutex_lock(&mpi.lock);
	if (mpi.started && !listen_once()) {
		mpi.failed = (struct failure){.rank = mpi.rank, .code = code, .is_lost = is_lost};
		memcpy(mpi.failed.text, err_text(), strnlen(err_text(), sizeof(mpi.failed.text) - 1));
		heartbeat_tell(code, mpi.failed.text);
		for (int r = 0; r < mpi.size; r++)
			if (r != mpi.rank && !MPI_Isend(&mpi.failed, sizeof(mpi.failed), MPI_BYTE, r,
			                             TAG_FAILURE, MPI_COMM_WORLD, &request))
				MPI_Request_free(&request); /* mpi.failed stays as it is from here on */
	}
	pthread_mutex_unlock(&mpi.lock);
	return code;
}

int link_fail(int code)
{
	return link_fail_by(code, 0);
}

/* ---- links ---- */

static int requests_reserve(struct link *link, int64_t count)
{
	MPI_Request *requests;

	if (count <= link->request_cap)
		return 0;
	if (count > INT_MAX)
		return err_set(ERR_RANGE, "an exchange of %lld pieces", (long long)count);
	requests = mem_resize(link->requests, (size_t)count, sizeof(*requests));
	if (!requests)
		return ERR_NOMEM;
	link->requests = requests;
	link->request_cap = (int)count;
	return 0;
}

int link_open(struct link **out, int first, int stride, int size)
{
	struct link *link;

	if (!mpi.started)
		return err_set(ERR_UNSUPPORTED, "%d ranks need MPI; launch them with mpirun or srun", size);
	link = mem_alloc(1, sizeof(*link));
	if (!link)
		return ERR_NOMEM;
	*link = (struct link){.first = first,
	        .stride = stride,
	        .size = size,
	        .rank = (mpi.rank - first) / stride,
	        .tag = mpi.next_tag++,
	        .what = "an exchange"};
	if (requests_reserve(
	            link, size)) { /* small exchanges do without memory: last words, where there is none */
		mem_free(link);
		return ERR_NOMEM;
	}
	*out = link;
	return 0;
}

void link_close(struct link *link)
{
	if (!link)
		return;
	mem_free(link->requests);
	mem_free(link);
}

void link_name(struct link *link, const char *what)
{
	link->what = what;
}

void link_set_patience(int64_t timeout_ns)
{
	atomic_store(&mpi.patience_ns, timeout_ns);
}

int link_rank(const struct link *link)
{
	return link->rank;
}

int link_size(const struct link *link)
{
	return link->size;
}

/* ---- exchanges ---- */

/* Begins one part; under the lock. */
static int part_begin(struct link *link, const struct link_part *part, int *count)
{
	int peer = link->first + part->peer * link->stride, result = 0;

	for (int64_t at = 0; at < part->bytes && !result; at += PIECE_BYTES) {
		int64_t left = part->bytes - at;
		int bytes = (int)(left < PIECE_BYTES ? left : PIECE_BYTES);
		char *values = (char *)part->values + at;
		MPI_Request *request = &link->requests[*count];

		if (part->way == LINK_SEND)
			result = MPI_Isend(values, bytes, MPI_BYTE, peer, link->tag, MPI_COMM_WORLD, request);
		else
			result = MPI_Irecv(values, bytes, MPI_BYTE, peer, link->tag, MPI_COMM_WORLD, request);
		*count += !result;
	}
	return result ? mpi_error(part->way == LINK_SEND ? "MPI_Isend" : "MPI_Irecv", result) : 0;
}

static int exchange_begin(struct link *link, const struct link_part *parts, int part_count, int *count)
{
	int rc = 0;

	pthread_mutex_lock(&mpi.lock);
	for (int i = 0; i < part_count && !rc; i++) /* receives first: what arrives has its place */
		if (parts[i].way == LINK_RECEIVE)
			rc = part_begin(link, &parts[i], count);
	for (int i = 0; i < part_count && !rc; i++)
		if (parts[i].way == LINK_SEND)
			rc = part_begin(link, &parts[i], count);
	pthread_mutex_unlock(&mpi.lock);
	return rc;
}

static void pause_for(int64_t waited_ns)
{
	int64_t ns = waited_ns / 8;
	struct timespec t = {0};

	if (waited_ns < YIELD_NS) {
		sched_yield();
		return;
	}
	t.tv_nsec = ns < SLEEP_MIN_NS ? SLEEP_MIN_NS : ns > SLEEP_MAX_NS ? SLEEP_MAX_NS : ns;
	nanosleep(&t, NULL);
}

/* Asks once: 1 when all is done, negative ERR_*. Under the lock. */
static int exchange_ask(struct link *link, int count)
{
	int done = 0, result;

	if (!mpi.started)
		return err_set(ERR_DEVICE, "an exchange when MPI was left already");
	result = MPI_Testall(count, link->requests, &done, MPI_STATUSES_IGNORE);
	return result ? mpi_error("an exchange", result) : done;
}

/* The other side of the first request that is not done, by its rank in the world. */
static int exchange_peer(struct link *link, const struct link_part *parts, int part_count, int count)
{
	int at = 0, peer = -1, done = 1;

	pthread_mutex_lock(&mpi.lock);
	for (int way = LINK_RECEIVE; way >= LINK_SEND && peer < 0; way--)
		for (int i = 0; i < part_count && peer < 0; i++)
			for (int64_t piece = 0;
			        piece < parts[i].bytes && (int)parts[i].way == way && at < count;
			        piece += PIECE_BYTES, at++)
				if (peer < 0 &&
				        !MPI_Request_get_status(
				                link->requests[at], &done, MPI_STATUS_IGNORE) &&
				        !done)
					peer = link->first + parts[i].peer * link->stride;
	pthread_mutex_unlock(&mpi.lock);
	return peer;
}

/* Waited too long, or for one who is gone? Then all are told. Lower ranks ask first, so that as a rule one of
 * them speaks. */
static int exchange_lose_patience(
        struct link *link, const struct link_part *parts, int part_count, int count, int64_t waited_ns)
{
	int64_t patience_ns = atomic_load(&mpi.patience_ns);
	int rc = heartbeat_look();

	if (rc)
		return link_fail_by(rc, 1);
	if (!patience_ns || waited_ns < patience_ns + mpi.rank * (int64_t)STAGGER_NS)
		return 0;
	rc = heartbeat_judge(
	        link->what, exchange_peer(link, parts, part_count, count), waited_ns, patience_ns);
	return rc ? link_fail_by(rc, 1) : 0;
}

/* Waits until everything is done, a rank failed (where that is minded), or `until_ns` (0: never). */
static int exchange_wait(struct link *link, const struct link_part *parts, int part_count, int count,
        int minds_failure, int64_t until_ns)
{
	int64_t begin_ns = clock_now_ns(), asked_ns = begin_ns, looked_ns = begin_ns, now_ns;

	for (;;) {
		int done, failed = 0;

		pthread_mutex_lock(&mpi.lock);
		done = exchange_ask(link, count);
		if (!done && minds_failure && listen_once())
			failed = failure_give();
		pthread_mutex_unlock(&mpi.lock);
		if (done || failed)
			return done > 0 ? 0 : done ? done : failed;
		now_ns = clock_now_ns();
		if (now_ns - asked_ns > STOPPED_NS)
			begin_ns += now_ns - asked_ns; /* this process was stopped, as others may have been */
		asked_ns = now_ns;
		if (minds_failure && now_ns - looked_ns > LOOK_NS) {
			failed = exchange_lose_patience(link, parts, part_count, count, now_ns - begin_ns);
			looked_ns = now_ns;
		}
		if (failed)
			return failed;
		if (until_ns && now_ns > until_ns)
			return err_set(ERR_DEVICE, "rank %d of %d: the others did not answer in time",
			        mpi.rank, mpi.size);
		pause_for(now_ns - begin_ns);
	}
}

/* Receives that nobody will fill are taken back, so that the memory behind them may go. */
static void exchange_give_up(struct link *link, const struct link_part *parts, int part_count, int count)
{
	int at = 0;

	pthread_mutex_lock(&mpi.lock);
	for (int way = LINK_RECEIVE; way >= LINK_SEND && mpi.started; way--)
		for (int i = 0; i < part_count; i++)
			for (int64_t piece = 0; piece < parts[i].bytes && (int)parts[i].way == way;
			        piece += PIECE_BYTES, at++) {
				if (at >= count || link->requests[at] == MPI_REQUEST_NULL)
					continue;
				if (way == LINK_RECEIVE)
					MPI_Cancel(&link->requests[at]);
				MPI_Request_free(&link->requests[at]);
			}
	pthread_mutex_unlock(&mpi.lock);
}

static int exchange(
        struct link *link, const struct link_part *parts, int part_count, int minds_failure, int64_t until_ns)
{
	int64_t pieces = 0;
	struct err why = {0};
	int count = 0, rc;

	for (int i = 0; i < part_count; i++)
		pieces += parts[i].bytes / PIECE_BYTES + 1;
	rc = requests_reserve(link, pieces);
	if (!rc)
		rc = exchange_begin(link, parts, part_count, &count);
	heartbeat_set_exchange(link->what);
	if (!rc)
		rc = exchange_wait(link, parts, part_count, count, minds_failure, until_ns);
	heartbeat_set_exchange(NULL);
	if (!rc || !count)
		return rc;
	err_take(&why, rc);
	if (minds_failure)
		(void)exchange_wait(link, parts, part_count, count, 0, clock_now_ns() + DRAIN_NS);
	exchange_give_up(link, parts, part_count, count);
	return err_give(&why);
}

int link_exchange(struct link *link, const struct link_part *parts, int part_count)
{
	int rc = link_failure(NULL);

	if (rc)
		return rc;
	rc = exchange(link, parts, part_count, 1, 0);
	return rc ? link_fail(rc) : 0; /* its peers would wait for what will not come */
}

int link_exchange_last(struct link *link, const struct link_part *parts, int part_count, int64_t timeout_ns)
{
	return exchange(link, parts, part_count, 0, clock_now_ns() + timeout_ns);
}

#else

int link_start(struct link_place *place, int launched)
{
	(void)place;
	return err_set(ERR_UNSUPPORTED,
	        "this was started as one of %d ranks, and this build has no MPI: install its development "
	        "files "
	        "(scripts/deps.sh build) and build again, or start one process",
	        launched);
}

void link_stop(void) {}

int link_open(struct link **link, int first, int stride, int size)
{
	(void)link;
	(void)first;
	(void)stride;
	return err_set(ERR_UNSUPPORTED, "%d ranks need MPI, and this build has none; start one rank", size);
}

void link_close(struct link *link)
{
	(void)link;
}

void link_name(struct link *link, const char *what)
{
	(void)link;
	(void)what;
}

void link_set_patience(int64_t timeout_ns)
{
	(void)timeout_ns;
}

int link_rank(const struct link *link)
{
	(void)link;
	return 0;
}

int link_size(const struct link *link)
{
	(void)link;
	return 1;
}

int link_exchange(struct link *link, const struct link_part *parts, int part_count)
{
	(void)link;
	(void)parts;
	(void)part_count;
	return 0;
}

int link_exchange_last(struct link *link, const struct link_part *parts, int part_count, int64_t timeout_ns)
{
	(void)timeout_ns;
	return link_exchange(link, parts, part_count);
}

int link_fail(int code)
{
	return code;
}

int link_lost(void)
{
	return 0;
}

int link_failure(int *rank)
{
	(void)rank;
	return 0;
}

#endif
