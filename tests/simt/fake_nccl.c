/* An NCCL for tests: ranks are processes that share memory. */
#include "tests/simt/fake_nccl.h"

#include "base/clock.h"
#include "base/num.h"
#include "gpu/cuda_library.h"
#include "tests/simt/simt.h"

#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* What ranks share. A rank writes its slot, says so in `arrived`, and goes on when all have; a collective has
 * two such meetings: data are there, data were read. */
struct slot {
	int32_t kind, type, root, rank_failed;
	int64_t bytes;
	unsigned char data[FAKE_NCCL_BYTES_MAX];
};

struct meeting_place {
	atomic_llong arrived[FAKE_NCCL_RANKS_MAX]; /* meetings that the rank has come to */
	struct slot slots[FAKE_NCCL_RANKS_MAX];
};

/* Of a world: a place for each communicator. An id says which. */
enum { PLACES_MAX = 16, ID_MARK = 7 };
struct city {
	atomic_int place_count;
	struct meeting_place places[PLACES_MAX];
};

enum collective { ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, BROADCAST };

struct fake_comm {
	struct meeting_place *place;
	int rank, world_size;
	long long meetings;
	atomic_int aborted, error, asks_left; /* in progress until asks_left is 0 */
	int is_joined, is_finalized;
	struct slot *own;
};

struct run {
	struct fake_comm *comm;
	enum collective kind;
	const unsigned char *send;
	unsigned char *receive;
	size_t send_bytes, receive_bytes;
	ncclDataType_t type;
	int root, n;
	struct run *next; /* of those that were queued and will perhaps never run */
};

enum { ASKS = 3 };

static struct city *shared;
static struct fake_nccl_stats stats;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static enum fake_nccl_fault fault;
static int fault_at;
static struct run *queued;

int fake_nccl_share(void)
{
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return shared == MAP_FAILED ? -1 : 0;
}

void fake_nccl_break(enum fake_nccl_fault kind, int n)
{
	fault = kind;
	fault_at = n;
}

void fake_nccl_get_stats(struct fake_nccl_stats *out)
{
	pthread_mutex_lock(&lock);
	*out = stats;
	pthread_mutex_unlock(&lock);
}

static void count(int64_t *counter, int64_t by)
{
	pthread_mutex_lock(&lock);
	*counter += by;
	pthread_mutex_unlock(&lock);
}

static ncclResult_t finding(const char *what)
{
	count(&stats.finding_count, 1);
	fprintf(stderr, "fake NCCL: %s\n", what);
	return ncclInvalidUsage;
}

/* ---- meeting ---- */

static void sleep_ns(int64_t ns)
{
	const struct timespec t = {.tv_nsec = (long)ns};

	nanosleep(&t, NULL);
}

/* Comes to the next meeting without waiting for it. */
static void arrive(struct fake_comm *c)
{
	atomic_store(&c->place->arrived[c->rank], ++c->meetings);
}

static int all_arrived(struct fake_comm *c)
{
	for (int r = 0; r < c->world_size; r++)
		if (atomic_load(&c->place->arrived[r]) < c->meetings)
			return 0;
	return 1;
}

/* 1, or 0 when the communicator was aborted meanwhile. */
static int meet(struct fake_comm *c)
{
	arrive(c);
	while (!all_arrived(c)) {
		if (atomic_load(&c->aborted))
			return 0;
		sleep_ns(20000);
	}
	return !atomic_load(&c->aborted);
}

/* ---- the library ---- */

ncclResult_t ncclGetVersion(int *version)
{
	*version = 22000;
	return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	if (fault == FAKE_NCCL_NO_ID)
		return ncclSystemError;
	memset(id, ID_MARK, sizeof(*id));
	id->internal[1] = (char)(shared ? atomic_fetch_add(&shared->place_count, 1) : 0);
	if (id->internal[1] >= PLACES_MAX)
		return finding("more communicators than the fake has places");
	return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
	return result == ncclRemoteError ? "remote error (fake)" : "error (fake)";
}

const char *ncclGetLastError(ncclComm_t comm)
{
	(void)comm;
	return "last error (fake)";
}

ncclResult_t ncclCommInitRankConfig(
        ncclComm_t *comm, int world_size, ncclUniqueId id, int rank, ncclConfig_t *config)
{
	struct fake_comm *c;

	*comm = NULL;
	if (id.internal[0] != ID_MARK || config->size != sizeof(*config) || config->blocking)
		return finding("a communicator that blocks, or that nobody invited");
	if (world_size > FAKE_NCCL_RANKS_MAX || (world_size > 1 && !shared))
		return finding("a world that fake_nccl_share has not made");
	if (fault == FAKE_NCCL_NO_INIT)
		return ncclSystemError;
	c = calloc(1, sizeof(*c));
	if (!c)
		return ncclSystemError;
	c->place = world_size > 1 ? &shared->places[(int)id.internal[1]] : calloc(1, sizeof(*c->place));
	c->rank = rank;
	c->world_size = world_size;
	c->own = &c->place->slots[rank];
	atomic_store(&c->asks_left, ASKS);
	if (fault == FAKE_NCCL_BAD_INIT)
		atomic_store(&c->error, ncclRemoteError);
	else
		arrive(c);
	count(&stats.live_count, 1);
	*comm = c;
	return ncclInProgress;
}

/* In progress: the answer to a call that has not finished. */
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result)
{
	if (atomic_load(&comm->error)) {
		*result = (ncclResult_t)atomic_load(&comm->error);
		return ncclSuccess;
	}
	if (!comm->is_joined && all_arrived(comm))
		comm->is_joined = 1;
	if (comm->is_joined && atomic_load(&comm->asks_left) > 0)
		atomic_fetch_sub(&comm->asks_left, 1);
	*result = !comm->is_joined || atomic_load(&comm->asks_left) > 0 ? ncclInProgress : ncclSuccess;
	return ncclSuccess;
}

static void drop(struct fake_comm *c)
{
	if (c->world_size == 1)
		free(c->place);
	free(c);
	count(&stats.live_count, -1);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
	if (atomic_load(&comm->asks_left) > 0)
		return finding("finalized while a call has not finished");
	comm->is_finalized = 1;
	atomic_store(&comm->asks_left, ASKS);
	return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
	if (!comm->is_finalized || atomic_load(&comm->asks_left) > 0)
		finding("destroyed, but not finalized");
	drop(comm);
	return ncclSuccess;
}

/* A collective may be waiting in it: it is told, and what it uses stays. */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
	atomic_store(&comm->aborted, 1);
	count(&stats.abort_count, 1);
	count(&stats.live_count, -1);
	return ncclSuccess;
}

/* ---- collectives ---- */

static size_t type_bytes(ncclDataType_t type)
{
	switch (type) {
	case ncclUint8:
		return 1;
	case ncclBfloat16:
	case ncclFloat16:
		return 2;
	case ncclFloat64:
		return 8;
	default:
		return 4;
	}
}

static double number(const unsigned char *at, ncclDataType_t type, size_t i)
{
	uint16_t half;
	int32_t whole;
	float f;
	double d;

	switch (type) {
	case ncclUint8:
		return at[i];
	case ncclBfloat16:
		memcpy(&half, at + 2 * i, 2);
		return bf16_to_f32(half);
	case ncclFloat16:
		memcpy(&half, at + 2 * i, 2);
		return f16_to_f32(half);
	case ncclFloat64:
		memcpy(&d, at + 8 * i, 8);
		return d;
	case ncclInt32:
		memcpy(&whole, at + 4 * i, 4);
		return whole;
	default:
		memcpy(&f, at + 4 * i, 4);
		return f;
	}
}

static void number_set(unsigned char *at, ncclDataType_t type, size_t i, double value)
{
	uint16_t bf16 = bf16_from_f32((float)value), f16 = f16_from_f32((float)value);
	int32_t whole = (int32_t)value;
	float f = (float)value;

	switch (type) {
	case ncclUint8:
		at[i] = (unsigned char)value;
		break;
	case ncclBfloat16:
		memcpy(at + 2 * i, &bf16, 2);
		break;
	case ncclFloat16:
		memcpy(at + 2 * i, &f16, 2);
		break;
	case ncclFloat64:
		memcpy(at + 8 * i, &value, 8);
		break;
	case ncclInt32:
		memcpy(at + 4 * i, &whole, 4);
		break;
	default:
		memcpy(at + 4 * i, &f, 4);
	}
}

static void sum_into(const struct run *r, size_t from_byte)
{
	const struct fake_comm *c = r->comm;
	size_t e = type_bytes(r->type);

	for (size_t i = 0; i < r->receive_bytes / e; i++) {
		double sum = 0;

		for (int rank = 0; rank < c->world_size; rank++)
			sum += number(c->place->slots[rank].data + from_byte, r->type, i);
		number_set(r->receive, r->type, i, sum);
	}
}

static void receive(const struct run *r)
{
	const struct fake_comm *c = r->comm;

	switch (r->kind) {
	case ALL_GATHER:
		for (int rank = 0; rank < c->world_size; rank++)
			memcpy(r->receive + (size_t)rank * r->send_bytes, c->place->slots[rank].data,
			        r->send_bytes);
		break;
	case REDUCE_SCATTER:
		sum_into(r, (size_t)c->rank * r->receive_bytes);
		break;
	case ALL_REDUCE:
		sum_into(r, 0);
		break;
	case BROADCAST:
		memcpy(r->receive, c->place->slots[r->root].data, r->receive_bytes);
		break;
	}
	simt_note_write(r->receive, r->receive_bytes);
}

static void peers_check(const struct run *r)
{
	for (int rank = 0; rank < r->comm->world_size; rank++) {
		const struct slot *s = &r->comm->place->slots[rank];

		if (s->kind != (int32_t)r->kind || s->type != (int32_t)r->type || s->root != r->root ||
		        s->bytes != (int64_t)r->send_bytes)
			finding("ranks make different collectives");
	}
}

static void wait_for_abort(const struct fake_comm *c)
{
	while (!atomic_load(&c->aborted))
		sleep_ns(100000);
}

static void run_keep(struct run *r)
{
	pthread_mutex_lock(&lock);
	r->next = queued;
	queued = r;
	pthread_mutex_unlock(&lock);
}

static void run_free(struct run *r)
{
	struct run **at = &queued;

	pthread_mutex_lock(&lock);
	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	pthread_mutex_unlock(&lock);
	free(r);
}

static void run_collective(void *context)
{
	struct run *r = context;
	struct fake_comm *c = r->comm;

	if (fault == FAKE_NCCL_SLOW && r->n == fault_at)
		sleep_ns(50000000);
	if (fault == FAKE_NCCL_ERROR && r->n == fault_at)
		atomic_store(&c->error, ncclRemoteError);
	if ((fault == FAKE_NCCL_HANG || fault == FAKE_NCCL_ERROR) && r->n == fault_at)
		wait_for_abort(c);
	c->own->kind = (int32_t)r->kind;
	c->own->type = (int32_t)r->type;
	c->own->root = r->root;
	c->own->bytes = (int64_t)r->send_bytes;
	memcpy(c->own->data, r->send, r->send_bytes);
	if (!atomic_load(&c->aborted) && meet(c)) {
		peers_check(r);
		receive(r);
		meet(c);
	}
	run_free(r);
}

static ncclResult_t collective(struct run it, cudaStream_t stream)
{
	struct run *r;

	if (atomic_load(&it.comm->asks_left) > 0)
		return finding("a collective while an earlier call has not finished");
	if (it.send_bytes > FAKE_NCCL_BYTES_MAX || it.receive_bytes > FAKE_NCCL_BYTES_MAX)
		return finding("a collective of more bytes than the fake can hold");
	count(&stats.collective_count, 1);
	it.n = (int)stats.collective_count;
	if (fault == FAKE_NCCL_REFUSE && it.n == fault_at)
		return ncclInternalError;
	r = malloc(sizeof(*r));
	if (!r)
		return ncclSystemError;
	*r = it;
	run_keep(r);
	if (cudaLaunchHostFunc(stream, run_collective, r) != cudaSuccess) {
		run_free(r);
		return ncclUnhandledCudaError;
	}
	atomic_store(&it.comm->asks_left, ASKS);
	return ncclInProgress;
}

ncclResult_t ncclAllGather(const void *send, void *receive_at, size_t send_count, ncclDataType_t type,
        ncclComm_t comm, cudaStream_t stream)
{
	size_t bytes = send_count * type_bytes(type);

	if (send != (char *)receive_at + (size_t)comm->rank * bytes)
		return finding("an all_gather that is not in place");
	return collective((struct run){comm, ALL_GATHER, send, receive_at, bytes,
	                          bytes * (size_t)comm->world_size, type, 0, 0, NULL},
	        stream);
}

ncclResult_t ncclReduceScatter(const void *send, void *receive_at, size_t receive_count, ncclDataType_t type,
        ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
	size_t bytes = receive_count * type_bytes(type);

	if (op != ncclSum || receive_at != (char *)send + (size_t)comm->rank * bytes)
		return finding("a reduce_scatter that is not a sum in place");
	return collective((struct run){comm, REDUCE_SCATTER, send, receive_at,
	                          bytes * (size_t)comm->world_size, bytes, type, 0, 0, NULL},
	        stream);
}

ncclResult_t ncclAllReduce(const void *send, void *receive_at, size_t element_count, ncclDataType_t type,
        ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
	size_t bytes = element_count * type_bytes(type);

	if (op != ncclSum)
		return finding("an all_reduce that is not a sum");
	return collective(
	        (struct run){comm, ALL_REDUCE, send, receive_at, bytes, bytes, type, 0, 0, NULL}, stream);
}

ncclResult_t ncclBroadcast(const void *send, void *receive_at, size_t element_count, ncclDataType_t type,
        int root, ncclComm_t comm, cudaStream_t stream)
{
	size_t bytes = element_count * type_bytes(type);

	if (root < 0 || root >= comm->world_size)
		return finding("a broadcast from a rank that is not there");
	return collective(
	        (struct run){comm, BROADCAST, send, receive_at, bytes, bytes, type, root, 0, NULL}, stream);
}

static void __attribute__((constructor)) fake_install(void)
{
#define ADDRESS(function) (void *)(uintptr_t)function,
	static void *functions[] = {NCCL_FUNCTIONS(ADDRESS)};

	cuda_library_replace(CUDA_LIBRARY_NCCL, functions, 22000);
}
