/* MPI as a transport, the only file that uses MPI: nonblocking messages; a lane is a tag. */
#include "comm/transport.h"

#include "base/err.h"

#ifdef FERRY_MPI

#include "base/mem.h"

#include <limits.h>
#include <mpi.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { TAG_NOTE = 1 };
enum { PIECE_BYTES = 1 << 28 /* MPI counts with an int */ };

static struct {
	int started, rank, size;
	MPI_Request listening;
	struct transport_note heard; /* `listening` receives into it */
	struct transport_note told;
} mpi;

struct lane {
	int tag, first, stride;
	const struct link_part *parts;
	int part_count;
	MPI_Request *requests; /* receives first, in pieces */
	int request_cap, count;
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
	int result = MPI_Irecv(&mpi.heard, sizeof(mpi.heard), MPI_BYTE, MPI_ANY_SOURCE, TAG_NOTE,
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

static int mpi_start(struct link_place *place, const struct launch *launch)
{
	int provided = MPI_THREAD_SINGLE, result, rc;
	sigset_t all, before;

	sigfillset(&all); /* MPI starts threads here; the program's first thread handles signals */
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
	if (!rc && place->size != launch->size)
		rc = err_set(ERR_UNSUPPORTED,
		        "a launcher started %d ranks, but MPI knows of %d: launch with the mpirun of the MPI "
		        "that ferry was built with, or with srun --mpi=pmix (or pmi2)",
		        launch->size, place->size);
	mpi.rank = place->rank;
	mpi.size = place->size;
	return rc ? rc : listen();
}

static void mpi_stop(void)
{
	if (mpi.listening) {
		MPI_Cancel(&mpi.listening);
		MPI_Request_free(&mpi.listening);
	}
	mpi.started = 0;
	MPI_Finalize();
}

/* ---- notes ---- */

static int mpi_hear(struct transport_note *note)
{
	int done = 0;

	if (!mpi.listening || MPI_Test(&mpi.listening, &done, MPI_STATUS_IGNORE) || !done)
		return 0;
	*note = mpi.heard;
	(void)listen();
	return 1;
}

static void mpi_tell(const struct transport_note *note)
{
	MPI_Request request;

	mpi.told = *note; /* must not change from here on */
	for (int r = 0; r < mpi.size; r++)
		if (r != mpi.rank && !MPI_Isend(&mpi.told, sizeof(mpi.told), MPI_BYTE, r, TAG_NOTE,
		                             MPI_COMM_WORLD, &request))
			MPI_Request_free(&request);
}

/* ---- lanes ---- */

static int requests_reserve(struct lane *lane, int64_t count)
{
	MPI_Request *requests;

	if (count <= lane->request_cap)
		return 0;
	if (count > INT_MAX)
		return err_set(ERR_RANGE, "an exchange of %lld pieces", (long long)count);
	requests = mem_resize(lane->requests, (size_t)count, sizeof(*requests));
	if (!requests)
		return ERR_NOMEM;
	lane->requests = requests;
	lane->request_cap = (int)count;
	return 0;
}

static int mpi_open(struct lane **out, int tag, int first, int stride)
{
	struct lane *lane = mem_alloc(1, sizeof(*lane));

	if (!lane)
		return ERR_NOMEM;
	*lane = (struct lane){.tag = tag, .first = first, .stride = stride};
	/* small exchanges, such as last reports, then need no memory */
	if (requests_reserve(lane, mpi.size)) {
		mem_free(lane);
		return ERR_NOMEM;
	}
	*out = lane;
	return 0;
}

static void mpi_close(struct lane *lane)
{
	mem_free(lane->requests);
	mem_free(lane);
}

/* ---- exchanges ---- */

static int part_begin(struct lane *lane, const struct link_part *part)
{
	int peer = lane->first + part->peer * lane->stride, result = 0;

	for (int64_t at = 0; at < part->bytes && !result; at += PIECE_BYTES) {
		int64_t left = part->bytes - at;
		int bytes = (int)(left < PIECE_BYTES ? left : PIECE_BYTES);
		char *values = (char *)part->values + at;
		MPI_Request *request = &lane->requests[lane->count];

		if (part->way == LINK_SEND)
			result = MPI_Isend(values, bytes, MPI_BYTE, peer, lane->tag, MPI_COMM_WORLD, request);
		else
			result = MPI_Irecv(values, bytes, MPI_BYTE, peer, lane->tag, MPI_COMM_WORLD, request);
		lane->count += !result;
	}
	return result ? mpi_error(part->way == LINK_SEND ? "MPI_Isend" : "MPI_Irecv", result) : 0;
}

static int mpi_begin(struct lane *lane, const struct link_part *parts, int part_count)
{
	int64_t pieces = 0;
	int rc;

	for (int i = 0; i < part_count; i++)
		pieces += parts[i].bytes / PIECE_BYTES + 1;
	lane->parts = parts;
	lane->part_count = part_count;
	lane->count = 0;
	rc = requests_reserve(lane, pieces);
	for (int way = LINK_RECEIVE; way >= LINK_SEND;
	        way--) /* receives first, so that messages have a place */
		for (int i = 0; i < part_count && !rc; i++)
			if ((int)parts[i].way == way)
				rc = part_begin(lane, &parts[i]);
	return rc;
}

static int mpi_ask(struct lane *lane)
{
	int done = 0, result = MPI_Testall(lane->count, lane->requests, &done, MPI_STATUSES_IGNORE);

	return result ? mpi_error("an exchange", result) : done;
}

/* Finds the way and the peer of the next request, in order. Returns 1, or 0 at the end. */
static int request_next(const struct lane *lane, int *at, int *way, int *peer)
{
	int seen = 0;

	++*at;
	for (*way = LINK_RECEIVE; *way >= LINK_SEND; --*way)
		for (int i = 0; i < lane->part_count; i++)
			for (int64_t piece = 0;
			        piece < lane->parts[i].bytes && (int)lane->parts[i].way == *way;
			        piece += PIECE_BYTES, seen++) {
				*peer = lane->first + lane->parts[i].peer * lane->stride;
				if (seen == *at)
					return *at < lane->count;
			}
	return 0;
}

static int mpi_peer(struct lane *lane, int only_gone)
{
	int at = -1, way, peer, done = 1;

	while (!only_gone && request_next(lane, &at, &way, &peer))
		if (!MPI_Request_get_status(lane->requests[at], &done, MPI_STATUS_IGNORE) && !done)
			return peer;
	return -1;
}

static void mpi_give_up(struct lane *lane)
{
	int at = -1, way, peer;

	while (request_next(lane, &at, &way, &peer)) {
		if (lane->requests[at] == MPI_REQUEST_NULL)
			continue;
		if (way == LINK_RECEIVE)
			MPI_Cancel(&lane->requests[at]);
		MPI_Request_free(&lane->requests[at]);
	}
	lane->count = 0;
}

static void mpi_rest(struct lane *lane, int64_t ns)
{
	(void)lane;
	nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

const struct transport transport_mpi = {mpi_start, mpi_stop, mpi_open, mpi_close, mpi_begin, mpi_ask,
        mpi_peer, mpi_give_up, mpi_rest, mpi_tell, mpi_hear};

#else

static int mpi_start(struct link_place *place, const struct launch *launch)
{
	(void)place;
	return err_set(ERR_UNSUPPORTED,
	        "%s started this as one of %d ranks, and this build has no MPI: start ranks of one host with "
	        "ranks=N, or install MPI's development files (scripts/deps.sh build) and build again",
	        launch->program, launch->size);
}

const struct transport transport_mpi = {.start = mpi_start};

#endif
