/* Collectives by NCCL. */
#include "gpu/cuda_nccl.h"

#include "base/clock.h"
#include "base/mem.h"
#include "gpu/cuda_library.h"

#if __has_include(<nccl.h>)

#include <assert.h>
#include <nccl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* The longest wait for other ranks: another rank may write a checkpoint meanwhile. */
#define TIMEOUT_NS (1800 * (int64_t)1000000000)

/* The longest wait after an error of the device: collectives in flight may never end. */
#define FAILED_TIMEOUT_NS (5 * (int64_t)1000000000)

enum { WATCH_NS = 100000000, ASK_NS = 50000 };

struct nccl {
	NCCL_FUNCTIONS(CUDA_LIBRARY_FIELD)
};

struct cuda_nccl {
	struct cuda_device *device;
	struct nccl f;
	struct comm_group group;
	int64_t timeout_ns;
	pthread_mutex_t lock; /* protects the fields below, and calls of NCCL with the handle */
	pthread_cond_t wake;
	ncclComm_t handle; /* NULL: aborted */
	int closing, has_watcher;
	pthread_t watcher;
};

/* ---- errors ---- */

/* Ends all work of NCCL, here and on the GPU. Call under the lock, as all functions that use the handle. */
static int nccl_abort(struct cuda_nccl *n, const char *what, const char *why)
{
	int rc = err_set(ERR_DEVICE, "NCCL, rank %d of %d: %s: %s",
	        n->group.first + n->group.rank * n->group.stride, n->group.world_size, what, why);

	n->f.ncclCommAbort(n->handle);
	n->handle = NULL;
	cuda_device_fail(n->device, rc);
	return rc;
}

static int nccl_fail(struct cuda_nccl *n, const char *what, ncclResult_t result)
{
	const char *detail = n->f.ncclGetLastError(n->handle);
	char why[ERR_TEXT_BYTES / 2];

	snprintf(why, sizeof(why), "%s%s%s", n->f.ncclGetErrorString(result), detail && *detail ? "; " : "",
	        detail ? detail : "");
	return nccl_abort(n, what, why);
}

/* ---- calls that may take their time ---- */

static void sleep_ns(int64_t ns)
{
	const struct timespec t = {.tv_nsec = (long)ns};

	nanosleep(&t, NULL);
}

/* Waits for a call that returned `result`. Releases the lock meanwhile. */
static int nccl_settle(struct cuda_nccl *n, const char *what, ncclResult_t result)
{
	int64_t deadline_ns = clock_now_ns() + n->timeout_ns;

	while (result == ncclInProgress) {
		ncclResult_t asked;

		if (clock_now_ns() > deadline_ns)
			return nccl_abort(n, what, "the other ranks did not come in time");
		pthread_mutex_unlock(&n->lock);
		sleep_ns(ASK_NS);
		pthread_mutex_lock(&n->lock);
		if (!n->handle)
			return cuda_device_error(n->device);
		asked = n->f.ncclCommGetAsyncError(n->handle, &result);
		if (asked)
			result = asked;
	}
	return result ? nccl_fail(n, what, result) : 0;
}

/* ---- the watcher ---- */

static void watch_once(struct cuda_nccl *n)
{
	int64_t since_ns = atomic_load(&n->device->waiting_since_ns);
	int64_t timeout_ns = n->timeout_ns;
	ncclResult_t result = ncclSuccess, asked = n->f.ncclCommGetAsyncError(n->handle, &result);

	if (atomic_load(&n->device->failed) && timeout_ns > FAILED_TIMEOUT_NS)
		timeout_ns = FAILED_TIMEOUT_NS;
	if (!asked && (!result || result == ncclInProgress)) {
		if (since_ns && clock_now_ns() - since_ns > timeout_ns)
			nccl_abort(n, "a collective", "the other ranks did not come in time");
		return;
	}
	nccl_fail(n, "a collective", asked ? asked : result);
}

static void *watch(void *context)
{
	struct cuda_nccl *n = context;
	struct timespec until;

	pthread_mutex_lock(&n->lock);
	while (!n->closing && n->handle) {
		watch_once(n);
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += WATCH_NS;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		if (!n->closing && n->handle)
			pthread_cond_timedwait(&n->wake, &n->lock, &until);
	}
	pthread_mutex_unlock(&n->lock);
	return NULL;
}

static int watch_open(struct cuda_nccl *n)
{
	int error = pthread_create(&n->watcher, NULL, watch, n);

	if (error)
		return err_set(
		        ERR_NOMEM, "NCCL: cannot start the thread that watches it: %s", strerror(error));
	n->has_watcher = 1;
	return 0;
}

/* ---- open, close ---- */

/* The message of the first rank of a group to the others. */
struct invitation {
	ncclUniqueId id;
	int32_t is_valid;
};

/* Returns 0 on all ranks, or an error on all if one rank failed. */
static int all_agree(const struct device_bootstrap *b, int rc)
{
	double failed = rc != 0;
	int heard = b ? b->sum(b->context, &failed, 1) : 0;

	if (rc || heard)
		return rc ? rc : heard;
	return failed > 0 ? err_set(ERR_UNSUPPORTED, "NCCL: %.0f other ranks could not open it", failed) : 0;
}

/* The first rank of each group broadcasts its id to the world, group by group, and each rank keeps its
 * group's. If a rank has no id, all ranks learn of it. */
static int invite(struct cuda_nccl *n, const struct device_bootstrap *b, ncclUniqueId *id)
{
	const struct comm_group *g = &n->group;
	int span = g->size * g->stride, own = g->first + g->rank * g->stride, rc = 0;
	ncclResult_t result = ncclSuccess;
	int without = -1;

	for (int first = 0; first < g->world_size && !rc; first++) {
		struct invitation it = {.is_valid = 1};

		if (first % span >= g->stride)
			continue;
		if (first == own) {
			result = n->f.ncclGetUniqueId(&it.id);
			it.is_valid = !result;
		}
		rc = b ? b->broadcast(b->context, &it, sizeof(it), first) : 0;
		if (!it.is_valid)
			without = first;
		if (first == g->first)
			*id = it.id;
	}
	if (result)
		return err_set(ERR_DEVICE, "ncclGetUniqueId: %s", n->f.ncclGetErrorString(result));
	return rc || without < 0 ? rc
	                         : err_set(ERR_DEVICE, "NCCL: rank %d could not invite the others", without);
}

static int join(struct cuda_nccl *n, const struct device_bootstrap *b)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclResult_t result;
	ncclUniqueId id;
	int rc = invite(n, b, &id);

	if (rc)
		return rc;
	config.blocking = 0;
	pthread_mutex_lock(&n->lock);
	result = n->f.ncclCommInitRankConfig(&n->handle, n->group.size, id, n->group.rank, &config);
	if (!n->handle)
		rc = err_set(ERR_DEVICE, "NCCL, rank %d of %d: ncclCommInitRankConfig: %s",
		        n->group.first + n->group.rank * n->group.stride, n->group.world_size,
		        n->f.ncclGetErrorString(result));
	else
		rc = nccl_settle(n, "ncclCommInitRankConfig", result);
	pthread_mutex_unlock(&n->lock);
	return rc;
}

static void locks_open(struct cuda_nccl *n)
{
	pthread_condattr_t monotonic;

	pthread_mutex_init(&n->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&n->wake, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

static int nccl_start(struct cuda_nccl *n, const struct device_bootstrap *bootstrap)
{
	int rc = n ? cuda_library_bind(&n->f, sizeof(n->f), CUDA_LIBRARY_NCCL) : ERR_NOMEM;

	rc = all_agree(bootstrap, rc);
	if (!rc)
		rc = join(n, bootstrap);
	return rc ? rc : watch_open(n);
}

int cuda_nccl_open(struct cuda_nccl **nccl, struct cuda_device *device,
        const struct device_bootstrap *bootstrap, const struct comm_group *group)
{
	struct cuda_nccl *n = mem_alloc(1, sizeof(*n));
	sigset_t all, before;
	int rc;

	if (n) {
		locks_open(n);
		n->device = device;
		n->group = *group;
		n->timeout_ns = bootstrap && bootstrap->timeout_ns ? bootstrap->timeout_ns : TIMEOUT_NS;
	}
	sigfillset(&all); /* NCCL starts threads here; the program's first thread handles signals */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = nccl_start(n, bootstrap);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc) {
		cuda_nccl_close(n);
		return rc;
	}
	*nccl = n;
	return 0;
}

/* Call under the lock. After an error of the device, collectives in flight may never end. */
static void leave(struct cuda_nccl *n)
{
	if (cuda_device_error(n->device)) {
		n->f.ncclCommAbort(n->handle);
	} else if (!nccl_settle(n, "ncclCommFinalize", n->f.ncclCommFinalize(n->handle))) {
		n->f.ncclCommDestroy(n->handle);
	}
	n->handle = NULL;
}

void cuda_nccl_close(struct cuda_nccl *n)
{
	if (!n)
		return;
	pthread_mutex_lock(&n->lock);
	n->closing = 1;
	pthread_cond_signal(&n->wake);
	pthread_mutex_unlock(&n->lock);
	if (n->has_watcher)
		pthread_join(n->watcher, NULL);
	pthread_mutex_lock(&n->lock);
	if (n->handle)
		leave(n);
	pthread_mutex_unlock(&n->lock);
	pthread_cond_destroy(&n->wake);
	pthread_mutex_destroy(&n->lock);
	mem_free(n);
}

/* ---- collectives ---- */

/* Gathers and broadcasts move plain bytes. Sums are of F32 or BF16 (device/device_work.c). */
static ncclResult_t collective_call(struct cuda_nccl *n, cudaStream_t stream, const struct work *work)
{
	ncclDataType_t type = work->collective.dtype == DTYPE_BF16 ? ncclBfloat16 : ncclFloat32;
	char *buffer = (char *)(uintptr_t)work->collective.buffer.value;
	size_t bytes = (size_t)work->collective.bytes, shard_bytes = bytes / (size_t)n->group.size,
	       element_bytes = (size_t)dtype_bytes(work->collective.dtype);
	char *own = buffer + (size_t)n->group.rank * shard_bytes;

	switch (work->kind) {
	case WORK_ALL_GATHER:
		return n->f.ncclAllGather(own, buffer, shard_bytes, ncclUint8, n->handle, stream);
	case WORK_REDUCE_SCATTER:
		return n->f.ncclReduceScatter(
		        buffer, own, shard_bytes / element_bytes, type, ncclSum, n->handle, stream);
	case WORK_ALL_REDUCE:
		return n->f.ncclAllReduce(
		        buffer, buffer, bytes / element_bytes, type, ncclSum, n->handle, stream);
	default:
		assert(work->kind == WORK_BROADCAST);
		return n->f.ncclBroadcast(
		        buffer, buffer, bytes, ncclUint8, work->collective.root, n->handle, stream);
	}
}

int cuda_nccl_queue(struct cuda_nccl *n, cudaStream_t stream, const struct work *work)
{
	int rc;

	pthread_mutex_lock(&n->lock);
	if (n->handle)
		rc = nccl_settle(n, work_name(work), collective_call(n, stream, work));
	else
		rc = cuda_device_error(n->device);
	pthread_mutex_unlock(&n->lock);
	return rc;
}

#else

int cuda_nccl_open(struct cuda_nccl **nccl, struct cuda_device *device,
        const struct device_bootstrap *bootstrap, const struct comm_group *group)
{
	(void)nccl;
	(void)device;
	(void)bootstrap;
	return err_set(ERR_UNSUPPORTED,
	        "cuda device: %d ranks need NCCL, and this build was made without nccl.h", group->world_size);
}

void cuda_nccl_close(struct cuda_nccl *nccl)
{
	(void)nccl;
}

int cuda_nccl_queue(struct cuda_nccl *nccl, cudaStream_t stream, const struct work *work)
{
	(void)nccl;
	(void)stream;
	return err_set(ERR_UNSUPPORTED, "%s needs NCCL", work_name(work));
}

#endif
