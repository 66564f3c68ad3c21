/* Host functions run by a thread of ours, and the trial that decides whether they must. */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "device/op.h"
#include "gpu/cuda_device.h"

#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	POLL_NS = 20000,
	TRIAL_NS = 5000000, /* how long a function of the trial runs */
	TRIALS = 3,         /* a busy machine may spoil one */
	WAIT_GEQ = 0,       /* CU_STREAM_WAIT_VALUE_GEQ */
	WRITE_DEFAULT = 0,  /* CU_STREAM_WRITE_VALUE_DEFAULT: earlier copies are visible first */
};

/* cuStreamWaitValue32 and cuStreamWriteValue32 of the driver. */
typedef int stream_value_fn(cudaStream_t, unsigned long long address, unsigned value, unsigned flags);

struct caller_words {
	_Atomic uint32_t reached, returned;
};

struct pending {
	struct pending *next;
	cudaHostFn_t fn;
	void *context;
	uint32_t number;
};

struct cuda_caller {
	struct caller_words *words;
	stream_value_fn *write, *wait;
	uint32_t count; /* calls queued so far */
	pthread_t thread;
	int has_thread;
	pthread_mutex_t lock; /* protects what follows */
	pthread_cond_t wake;
	struct pending *first, **last;
	int closing;
};

static void nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
}

/* ---- the thread ---- */

/* The oldest call; NULL once the caller closes. */
static struct pending *pending_take(struct cuda_caller *c)
{
	struct pending *p = NULL;

	pthread_mutex_lock(&c->lock);
	while (!c->first && !c->closing)
		pthread_cond_wait(&c->wake, &c->lock);
	if (!c->closing) {
		p = c->first;
		c->first = p->next;
		if (!c->first)
			c->last = &c->first;
	}
	pthread_mutex_unlock(&c->lock);
	return p;
}

static int is_closing(struct cuda_caller *c)
{
	int closing;

	pthread_mutex_lock(&c->lock);
	closing = c->closing;
	pthread_mutex_unlock(&c->lock);
	return closing;
}

static void *call_all(void *context)
{
	struct cuda_caller *c = context;
	struct pending *p;

	while ((p = pending_take(c))) {
		while ((int32_t)(atomic_load(&c->words->reached) - p->number) < 0 && !is_closing(c))
			nap();
		if ((int32_t)(atomic_load(&c->words->reached) - p->number) >= 0)
			p->fn(p->context);
		atomic_store(&c->words->returned, p->number);
		mem_free(p);
	}
	return NULL;
}

static int thread_open(struct cuda_caller *c)
{
	sigset_t all, before;
	int error;

	sigfillset(&all); /* the program's first thread handles signals */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&c->thread, NULL, call_all, c);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error)
		return err_set(ERR_NOMEM, "cannot start the thread of host functions: %s", strerror(error));
	c->has_thread = 1;
	return 0;
}

/* ---- open, close ---- */

static int driver_function(stream_value_fn **function, const char *name)
{
	enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
	void *at = NULL;
#if CUDART_VERSION >= 12050
	cudaError_t error = cudaGetDriverEntryPointByVersion(name, &at, 12000, cudaEnableDefault, &found);
#else
	cudaError_t error = cudaGetDriverEntryPoint(name, &at, cudaEnableDefault, &found);
#endif
	int rc = cuda_check(error, "cudaGetDriverEntryPoint");

	if (!rc && (found != cudaDriverEntryPointSuccess || !at))
		rc = err_set(ERR_UNSUPPORTED, "the driver has no %s", name);
	*function = (stream_value_fn *)(uintptr_t)at;
	return rc;
}

static int caller_open(struct cuda_caller **out)
{
	struct cuda_caller *c = mem_alloc(1, sizeof(*c));
	void *words = NULL;
	int rc = c ? 0 : ERR_NOMEM;

	if (rc)
		return rc;
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->wake, NULL);
	c->last = &c->first;
	rc = driver_function(&c->write, "cuStreamWriteValue32");
	if (!rc)
		rc = driver_function(&c->wait, "cuStreamWaitValue32");
	if (!rc)
		rc = cuda_check(
		        cudaHostAlloc(&words, sizeof(*c->words), cudaHostAllocDefault), "cudaHostAlloc");
	c->words = words;
	if (!rc) {
		atomic_init(&c->words->reached, 0);
		atomic_init(&c->words->returned, 0);
		rc = thread_open(c);
	}
	if (rc) {
		cuda_caller_close(c);
		return rc;
	}
	*out = c;
	return 0;
}

void cuda_caller_close(struct cuda_caller *c)
{
	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	c->closing = 1;
	pthread_cond_signal(&c->wake);
	pthread_mutex_unlock(&c->lock);
	if (c->has_thread)
		pthread_join(c->thread, NULL);
	while (c->first) {
		struct pending *p = c->first;

		c->first = p->next;
		mem_free(p);
	}
	if (c->words) {
		atomic_store(&c->words->returned, c->count);
		cudaFreeHost(c->words);
	}
	pthread_cond_destroy(&c->wake);
	pthread_mutex_destroy(&c->lock);
	mem_free(c);
}

/* ---- queueing ---- */

static int value_queue(stream_value_fn *function, const struct cuda_stream *s, const _Atomic uint32_t *word,
        uint32_t value, unsigned flags, const char *name)
{
	int error = function(s->launch.stream, (unsigned long long)(uintptr_t)word, value, flags);

	return error ? err_set(ERR_DEVICE, "%s: error %d of the driver", name, error) : 0;
}

int cuda_caller_queue(struct cuda_stream *s, cudaHostFn_t fn, void *context)
{
	struct pending *p = mem_alloc(1, sizeof(*p));
	struct cuda_caller *c;
	int rc = p ? 0 : ERR_NOMEM;

	if (!rc && !s->caller)
		rc = caller_open(&s->caller);
	c = s->caller;
	if (!rc)
		rc = value_queue(
		        c->write, s, &c->words->reached, c->count + 1, WRITE_DEFAULT, "cuStreamWriteValue32");
	if (rc) {
		mem_free(p);
		return rc;
	}
	*p = (struct pending){.fn = fn, .context = context, .number = ++c->count};
	pthread_mutex_lock(&c->lock);
	*c->last = p;
	c->last = &p->next;
	pthread_cond_signal(&c->wake);
	pthread_mutex_unlock(&c->lock);
	/* the thread may have freed p already */
	return value_queue(c->wait, s, &c->words->returned, c->count, WAIT_GEQ, "cuStreamWaitValue32");
}

/* ---- the trial ---- */

struct trial {
	cudaStream_t calls, work;
	cudaEvent_t begin, end;
	atomic_llong started_ns;
};

static void CUDART_CB trial_call(void *context)
{
	struct trial *t = context;

	atomic_store(&t->started_ns, clock_now_ns());
	nanosleep(&(struct timespec){.tv_nsec = TRIAL_NS}, NULL);
}

static int trial_kernel(const struct cuda_device *d, const struct trial *t)
{
	dev_addr at = {(uint64_t)(uintptr_t)d->workspace};
	struct op add = {
	        .kind = OP_ADD, .add = {.dst = at, .a = at, .b = at, .count = 64, .dtype = DTYPE_F32}};
	struct cuda_launch launch = d->launch;

	launch.stream = t->work;
	return cuda_op(&launch, &add);
}

/* Waits until the function runs. Asking the stream also makes it start. */
static int trial_begin(struct trial *t, int64_t begin_ns)
{
	cudaError_t error = cudaErrorNotReady;

	while (error == cudaErrorNotReady && !atomic_load(&t->started_ns) &&
	        clock_now_ns() - begin_ns < 20 * (int64_t)TRIAL_NS)
		error = cudaStreamQuery(t->calls);
	return error == cudaErrorNotReady ? 0 : cuda_check(error, "cudaStreamQuery");
}

/* The time that a kernel takes; with_call: while another stream's function runs. */
static int trial_run(double *ns, const struct cuda_device *d, struct trial *t, int with_call)
{
	int64_t begin_ns = clock_now_ns();
	float ms = 0;
	int rc = cuda_check(cudaEventRecord(t->begin, t->work), "cudaEventRecord");

	atomic_store(&t->started_ns, 0);
	if (!rc)
		rc = cuda_check(cudaStreamSynchronize(t->work), "cudaStreamSynchronize");
	if (!rc && with_call)
		rc = cuda_check(cudaLaunchHostFunc(t->calls, trial_call, t), "cudaLaunchHostFunc");
	if (!rc && with_call)
		rc = trial_begin(t, begin_ns);
	if (!rc)
		rc = trial_kernel(d, t);
	if (!rc)
		rc = cuda_check(cudaEventRecord(t->end, t->work), "cudaEventRecord");
	if (!rc)
		rc = cuda_check(cudaStreamSynchronize(t->work), "cudaStreamSynchronize");
	if (!rc)
		rc = cuda_check(cudaEventElapsedTime(&ms, t->begin, t->end), "cudaEventElapsedTime");
	cudaStreamSynchronize(t->calls); /* the function uses t */
	*ns = 1e6 * (double)ms;
	if (with_call) /* a busy machine may start it late */
		*ns -= (double)(atomic_load(&t->started_ns) - begin_ns);
	return rc;
}

static int trial_open(struct trial *t, const struct cuda_device *d)
{
	cudaStream_t *const streams[] = {&t->calls, &t->work};
	cudaEvent_t *const events[] = {&t->begin, &t->end};
	int rc = 0;

	for (int i = 0; i < 2 && !rc; i++)
		rc = cuda_check(cudaStreamCreateWithFlags(streams[i], cudaStreamNonBlocking),
		        "cudaStreamCreateWithFlags");
	for (int i = 0; i < 2 && !rc; i++)
		rc = cuda_check(cudaEventCreateWithFlags(events[i], cudaEventBlockingSync),
		        "cudaEventCreateWithFlags");
	if (!rc)
		rc = cuda_check(cudaMemsetAsync(d->workspace, 0, 4096, t->work), "cudaMemsetAsync");
	if (!rc) /* the first launch loads the kernel, which may wait for all streams */
		rc = trial_kernel(d, t);
	return rc ? rc : cuda_check(cudaStreamSynchronize(t->work), "cudaStreamSynchronize");
}

static void trial_close(struct trial *t)
{
	if (t->begin)
		cudaEventDestroy(t->begin);
	if (t->end)
		cudaEventDestroy(t->end);
	if (t->calls)
		cudaStreamDestroy(t->calls);
	if (t->work)
		cudaStreamDestroy(t->work);
}

static int trials(struct cuda_device *d)
{
	struct trial t = {0};
	double alone_ns = 0, beside_ns = TRIAL_NS;
	int rc = trial_open(&t, d);

	if (!rc)
		rc = trial_run(&alone_ns, d, &t, 0);
	for (int i = 0; i < TRIALS && beside_ns > alone_ns + TRIAL_NS / 2 && !rc; i++)
		rc = trial_run(&beside_ns, d, &t, 1);
	trial_close(&t);
	d->calls_by_thread = !rc && beside_ns > alone_ns + TRIAL_NS / 2;
	if (d->calls_by_thread)
		log_warn("cuda device: while this driver runs a host function, work of other streams waits; "
		         "ferry runs them on threads of its own. "
		         "FERRY_CALLS=driver leaves them to the driver, FERRY_CALLS=thread skips this test");
	return rc;
}

int cuda_caller_choose(struct cuda_device *d)
{
	const char *wish = getenv("FERRY_CALLS");

	if (!wish || !*wish)
		return trials(d);
	d->calls_by_thread = !strcmp(wish, "thread");
	return d->calls_by_thread || !strcmp(wish, "driver")
	               ? 0
	               : err_set(ERR_INPUT, "FERRY_CALLS is \"%s\"; use driver or thread", wish);
}
