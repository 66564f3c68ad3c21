/* The fake runtime's streams and events: queues of work, and the order in which it runs. */
#include "tests/simt/simt_runtime_parts.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What cudaEventRecord puts into a stream. Waits that were queued before a later record hold on to it. */
struct record {
	int holder_count;
	int is_done;
	int64_t at_ns;
};

struct CUevent_st {
	unsigned flags;
	struct record *record; /* NULL: never recorded */
};

enum piece_kind {
	PIECE_LAUNCH,
	PIECE_COPY,
	PIECE_SET,
	PIECE_CALL,
	PIECE_RECORD,
	PIECE_WAIT,
	PIECE_WRITE_VALUE,
	PIECE_WAIT_VALUE
};

struct piece {
	enum piece_kind kind;
	struct piece *next;
	int64_t queued_ns;
	struct simt_launch *launch;
	struct record *record;
	cudaHostFn_t fn;
	void *context;
	void *to;
	const void *from;
	void *staged; /* owned: what `from` held when the copy was queued */
	size_t bytes;
	int value;
	_Atomic uint32_t *word; /* in host memory */
};

struct CUstream_st {
	struct CUstream_st *next;
	struct piece *head, **tail;
	int64_t at_ns;
};

static struct CUstream_st *streams;
static struct CUstream_st standard; /* the stream NULL; in the list once it was used */
static uint64_t choices;            /* made so far */
static int is_running;              /* work that is run may not queue more */

/* ---- records ---- */

static struct record *record_hold(struct record *r)
{
	r->holder_count++;
	return r;
}

static void record_drop(struct record *r)
{
	if (r && !--r->holder_count)
		free(r);
}

/* ---- running ---- */

static uint64_t choose(uint64_t count)
{
	uint64_t x = simt_runtime.options.seed + 0x9e3779b97f4a7c15 * ++choices;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	return (x ^ (x >> 31)) % count;
}

static int can_run(const struct CUstream_st *s)
{
	const struct piece *p = s->head;

	if (p && p->kind == PIECE_WAIT_VALUE)
		return (int32_t)(atomic_load(p->word) - (uint32_t)p->value) >= 0;
	return p && (p->kind != PIECE_WAIT || p->record->is_done);
}

static void free_piece(struct piece *p)
{
	simt_runtime.calls_waiting -= p->kind == PIECE_CALL;
	simt_launch_free(p->launch);
	record_drop(p->record);
	free(p->staged);
	free(p);
}

static int64_t duration_ns(const struct piece *p)
{
	switch (p->kind) {
	case PIECE_LAUNCH:
		return simt_runtime.options.kernel_ns;
	case PIECE_COPY:
	case PIECE_SET:
		return (int64_t)((double)p->bytes / simt_runtime.options.copy_bytes_per_ns);
	case PIECE_CALL:
	case PIECE_WAIT_VALUE: /* for a function that a thread runs meanwhile */
		return simt_runtime.options.call_ns;
	default:
		return 0;
	}
}

static void copy(const struct piece *p)
{
	memmove(p->to, p->staged ? p->staged : p->from, p->bytes);
	if (!simt_check_device_range(p->from, p->bytes)) /* the host's are an op's operands, not its doing */
		simt_note_write(p->to, p->bytes);
}

static void run_piece(struct CUstream_st *s, struct piece *p)
{
	int error = 0;

	if (++simt_runtime.work_count == simt_runtime.fail_work_at) {
		simt_break(simt_runtime.fail_work_with);
		return;
	}
	if (s->at_ns < simt_runtime.blocked_ns)
		s->at_ns = simt_runtime.blocked_ns;
	s->at_ns = (s->at_ns > p->queued_ns ? s->at_ns : p->queued_ns) + duration_ns(p);
	is_running = 1;
	switch (p->kind) {
	case PIECE_LAUNCH:
		error = simt_run(p->launch);
		break;
	case PIECE_COPY:
		copy(p);
		break;
	case PIECE_SET:
		memset(p->to, p->value, p->bytes);
		simt_note_write(p->to, p->bytes);
		break;
	case PIECE_CALL:
		p->fn(p->context);
		if (simt_runtime.options.calls_block)
			simt_runtime.blocked_ns = s->at_ns;
		break;
	case PIECE_RECORD:
		p->record->is_done = 1;
		p->record->at_ns = s->at_ns;
		break;
	case PIECE_WAIT:
		if (s->at_ns < p->record->at_ns)
			s->at_ns = p->record->at_ns;
		break;
	case PIECE_WRITE_VALUE:
		atomic_store(p->word, (uint32_t)p->value);
		break;
	case PIECE_WAIT_VALUE:
		break;
	}
	is_running = 0;
	if (error)
		simt_leave((cudaError_t)error);
	if (error)
		simt_break((cudaError_t)error);
}

static void drop_queue(struct CUstream_st *s)
{
	while (s->head) {
		struct piece *p = s->head;

		s->head = p->next;
		free_piece(p);
	}
	s->tail = &s->head;
}

/* One piece of a stream that can go on, and that stream; 0 where none can. */
static int step(const struct CUstream_st **ran)
{
	uint64_t count = 0, chosen;

	for (struct CUstream_st *s = streams; s; s = s->next)
		count += (uint64_t)can_run(s);
	if (!count || simt_runtime.sticky)
		return 0;
	chosen = choose(count);
	for (struct CUstream_st *s = streams; s; s = s->next)
		if (can_run(s) && !chosen--) {
			struct piece *p = s->head;

			s->head = p->next;
			if (!s->head)
				s->tail = &s->head;
			run_piece(s, p);
			free_piece(p);
			if (ran)
				*ran = s;
			break;
		}
	return 1;
}

/* Called where no stream can go on. Gives time to a thread that writes what a stream waits for. */
static void stand_still(const char *what)
{
	static int naps;

	for (const struct CUstream_st *s = streams; s; s = s->next)
		if (s->head && s->head->kind == PIECE_WAIT_VALUE && naps < 100000) {
			usleep(50);
			naps = can_run(s) ? 0 : naps + 1;
			return;
		}
	fprintf(stderr, "simt: %s waits for work that waits for itself\n", what);
	abort();
}

static void host_reaches(int64_t at_ns)
{
	if (simt_runtime.host_ns < at_ns)
		simt_runtime.host_ns = at_ns;
}

static cudaError_t finish_stream(struct CUstream_st *s)
{
	while (s->head && !simt_runtime.sticky)
		if (!step(NULL) && !simt_runtime.sticky)
			stand_still("a stream");
	host_reaches(s->at_ns);
	if (!simt_runtime.sticky)
		simt_leave(simt_check_guards());
	return simt_runtime.sticky;
}

cudaError_t simt_finish_all(void)
{
	for (struct CUstream_st *s = streams; s; s = s->next)
		finish_stream(s);
	return simt_runtime.sticky;
}

/* ---- queueing ---- */

static struct CUstream_st *stream_of(cudaStream_t stream)
{
	if (stream)
		return stream;
	if (!standard.tail) {
		standard.tail = &standard.head;
		standard.next = streams;
		streams = &standard;
	}
	return &standard;
}

/* While too many host functions wait, the caller blocks, as it was seen of drivers. Work that none of them
 * waits for runs meanwhile, up to the moment when one has returned. */
static void wait_for_calls(void)
{
	while (simt_runtime.options.calls_most &&
	        simt_runtime.calls_waiting >= simt_runtime.options.calls_most && !simt_runtime.sticky) {
		const struct CUstream_st *s = NULL;
		int before = simt_runtime.calls_waiting;

		if (!step(&s) && !simt_runtime.sticky)
			stand_still("queueing behind host functions");
		if (simt_runtime.calls_waiting < before)
			host_reaches(s->at_ns);
	}
}

/* Takes over what the piece holds. */
static cudaError_t push(cudaStream_t stream, struct piece piece)
{
	struct CUstream_st *s = stream_of(stream);
	struct piece *p = malloc(sizeof(*p));

	if (!p || is_running) {
		fprintf(stderr, is_running ? "simt: work queues work\n" : "simt: out of memory\n");
		abort();
	}
	wait_for_calls();
	*p = piece;
	p->next = NULL;
	simt_runtime.calls_waiting += piece.kind == PIECE_CALL;
	p->queued_ns = simt_runtime.host_ns;
	*s->tail = p;
	s->tail = &p->next;
	while (simt_runtime.options.schedule == SIMT_EAGER && step(NULL))
		;
	return cudaSuccess;
}

int simt_runtime_queue_launch(void *stream, struct simt_launch *launch)
{
	cudaError_t error = simt_enter();

	if (!error)
		return push(stream, (struct piece){.kind = PIECE_LAUNCH, .launch = launch});
	simt_launch_free(launch);
	return error;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *context)
{
	cudaError_t error = simt_enter();

	return error ? error : push(stream, (struct piece){.kind = PIECE_CALL, .fn = fn, .context = context});
}

static int value_push(enum piece_kind kind, cudaStream_t stream, unsigned long long address, unsigned value)
{
	cudaError_t error = simt_enter();

	if (!error && !simt_is_registered((void *)(uintptr_t)address))
		error = simt_leave(cudaErrorInvalidValue);
	return error ? (int)error
	             : (int)push(stream, (struct piece){.kind = kind,
	                                         .value = (int)value,
	                                         .word = (_Atomic uint32_t *)(uintptr_t)address});
}

static int stream_write_value(cudaStream_t stream, unsigned long long address, unsigned value, unsigned flags)
{
	return flags ? (int)cudaErrorInvalidValue : value_push(PIECE_WRITE_VALUE, stream, address, value);
}

static int stream_wait_value(cudaStream_t stream, unsigned long long address, unsigned value, unsigned flags)
{
	return flags ? (int)cudaErrorInvalidValue : value_push(PIECE_WAIT_VALUE, stream, address, value);
}

cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **function, unsigned long long flags,
        enum cudaDriverEntryPointQueryResult *result)
{
	cudaError_t error = simt_enter();

	*function = NULL;
	*result = cudaDriverEntryPointSymbolNotFound;
	if (!error && flags)
		error = simt_leave(cudaErrorInvalidValue);
	if (error || simt_runtime.options.has_no_memory_operations)
		return error;
	if (!strcmp(symbol, "cuStreamWriteValue32"))
		*function = (void *)(uintptr_t)stream_write_value;
	if (!strcmp(symbol, "cuStreamWaitValue32"))
		*function = (void *)(uintptr_t)stream_wait_value;
	if (*function)
		*result = cudaDriverEntryPointSuccess;
	return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream)
{
	cudaError_t error = simt_enter();

	if (!error && bytes)
		error = simt_leave(simt_check_device_range(at, bytes));
	return error ? error
	             : push(stream,
	                       (struct piece){.kind = PIECE_SET, .to = at, .value = value, .bytes = bytes});
}

cudaError_t cudaMemset(void *at, int value, size_t bytes)
{
	cudaError_t error = cudaMemsetAsync(at, value, bytes, NULL);

	return error ? error : finish_stream(&standard);
}

static cudaError_t check_side(const void *at, size_t bytes, int is_device)
{
	return is_device ? simt_check_device_range(at, bytes) : simt_check_host_range(at, bytes);
}

/* Pageable memory is read when the copy is queued, as a driver does that stages it: what the stream has yet
 * to wait for comes too late. */
cudaError_t cudaMemcpyAsync(
        void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
	int to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
	int from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
	cudaError_t error = simt_enter();
	void *staged = NULL;

	if (error || !bytes)
		return error;
	error = check_side(to, bytes, to_device);
	if (!error)
		error = check_side(from, bytes, from_device);
	if (error || kind == cudaMemcpyDefault)
		return simt_leave(cudaErrorInvalidValue);
	if (kind == cudaMemcpyHostToDevice && !simt_is_registered(from)) {
		staged = malloc(bytes);
		if (!staged)
			return simt_leave(cudaErrorMemoryAllocation);
		memcpy(staged, from, bytes);
	}
	return push(stream,
	        (struct piece){.kind = PIECE_COPY, .to = to, .from = from, .staged = staged, .bytes = bytes});
}

/* ---- streams ---- */

cudaError_t cudaDeviceGetStreamPriorityRange(int *lowest, int *highest)
{
	*lowest = 0;
	*highest = -5;
	return simt_enter();
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
	cudaError_t error = simt_enter();
	struct CUstream_st *s;

	*stream = NULL;
	if (error)
		return error;
	if (flags != cudaStreamNonBlocking || priority > 0 || priority < -5)
		return simt_leave(cudaErrorInvalidValue);
	s = calloc(1, sizeof(*s));
	if (!s)
		return simt_leave(cudaErrorMemoryAllocation);
	s->tail = &s->head;
	s->next = streams;
	streams = s;
	simt_runtime.live_count++;
	*stream = s;
	return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
	return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	cudaError_t error = simt_enter();
	struct CUstream_st **at = &streams;

	if (!stream)
		return simt_leave(cudaErrorInvalidResourceHandle);
	finish_stream(stream);
	while (*at != stream)
		at = &(*at)->next;
	*at = stream->next;
	drop_queue(stream);
	free(stream);
	simt_runtime.live_count--;
	return error ? error : simt_runtime.sticky;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	cudaError_t error = simt_enter();

	return error ? error : finish_stream(stream_of(stream));
}

cudaError_t cudaDeviceSynchronize(void)
{
	cudaError_t error = simt_enter();

	return error ? error : simt_finish_all();
}

/* Asking is time that passes: something runs. */
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
	cudaError_t error = simt_enter();

	if (error || !stream_of(stream)->head)
		return error;
	step(NULL);
	return simt_runtime.sticky ? simt_runtime.sticky : cudaErrorNotReady;
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
	cudaError_t error = simt_enter();

	*event = NULL;
	if (error)
		return error;
	*event = calloc(1, sizeof(**event));
	if (!*event)
		return simt_leave(cudaErrorMemoryAllocation);
	(*event)->flags = flags;
	simt_runtime.live_count++;
	return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	cudaError_t error = simt_enter();

	if (!event)
		return simt_leave(cudaErrorInvalidResourceHandle);
	record_drop(event->record);
	free(event);
	simt_runtime.live_count--;
	return error;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	cudaError_t error = simt_enter();
	struct record *r;

	if (error)
		return error;
	r = calloc(1, sizeof(*r));
	if (!r)
		return simt_leave(cudaErrorMemoryAllocation);
	record_drop(event->record);
	event->record = record_hold(r);
	return push(stream, (struct piece){.kind = PIECE_RECORD, .record = record_hold(r)});
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
	cudaError_t error = simt_enter();

	if (!error && flags)
		error = simt_leave(cudaErrorInvalidValue);
	if (error || !event->record)
		return error;
	return push(stream, (struct piece){.kind = PIECE_WAIT, .record = record_hold(event->record)});
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
	cudaError_t error = simt_enter();

	if (error || !event->record || event->record->is_done)
		return error;
	step(NULL);
	return simt_runtime.sticky ? simt_runtime.sticky : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
	cudaError_t error = simt_enter();

	if (error || !event->record)
		return error;
	while (!event->record->is_done && !simt_runtime.sticky)
		if (!step(NULL) && !simt_runtime.sticky)
			stand_still("an event");
	host_reaches(event->record->at_ns);
	return simt_runtime.sticky;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
	cudaError_t error = simt_enter();

	*ms = 0;
	if (error)
		return error;
	if ((begin->flags | end->flags) & cudaEventDisableTiming || !begin->record || !end->record)
		return simt_leave(cudaErrorInvalidResourceHandle);
	if (!begin->record->is_done || !end->record->is_done)
		return cudaErrorNotReady;
	*ms = (float)((double)(end->record->at_ns - begin->record->at_ns) * 1e-6);
	return cudaSuccess;
}
