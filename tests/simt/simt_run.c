/* Runs a launch: blocks, their warps and barriers, and findings. */
#include "tests/simt/simt_machine.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { FINDING_BYTES = 1024, KERNELS_MAX = 256 };

static pthread_mutex_t machine_mutex = PTHREAD_MUTEX_INITIALIZER;
static char finding_text[FINDING_BYTES];
static int finding_loud = 1, finding_error;

/* What the launches queued next carry. */
static uint64_t set_order, set_op;
static int set_access_count = -1;
static struct simt_access set_accesses[SIMT_ACCESS_MAX];

static struct {
	const void *kernel;
	int bytes, has_carveout;
} dynamic_max[KERNELS_MAX];
static int dynamic_max_count, shared_max = 99 << 10;

/* ---- findings ---- */

static void finding_setv(int error, const struct thread *thread, const char *fmt, va_list ap)
{
	size_t len = 0;

	if (machine.error)
		return;
	machine.error = finding_error = error;
	if (machine.launch)
		len = (size_t)snprintf(finding_text, FINDING_BYTES, "%s, block (%u, %u, %u)",
		        symbol_name(machine.launch->kernel), machine.block.x, machine.block.y,
		        machine.block.z);
	if (thread && len < FINDING_BYTES)
		len += (size_t)snprintf(finding_text + len, FINDING_BYTES - len, ", thread (%u, %u, %u)",
		        thread->index.x, thread->index.y, thread->index.z);
	if (len < FINDING_BYTES)
		len += (size_t)snprintf(finding_text + len, FINDING_BYTES - len, ": ");
	if (len < FINDING_BYTES)
		len += (size_t)vsnprintf(finding_text + len, FINDING_BYTES - len, fmt, ap);
	if (machine.at && len < FINDING_BYTES)
		snprintf(finding_text + len, FINDING_BYTES - len, "; addr2line -pie %s 0x%zx",
		        program_invocation_name, symbol_offset(machine.at) - 1);
	machine.at = NULL;
	if (finding_loud)
		fprintf(stderr, "simt: %s\n", finding_text);
}

void finding_set(int error, const struct thread *thread, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	finding_setv(error, thread, fmt, ap);
	va_end(ap);
}

const char *simt_finding(void)
{
	return finding_text;
}

int simt_finding_error(void)
{
	return finding_error;
}

void simt_forget(void)
{
	finding_text[0] = 0;
	finding_error = 0;
}

void simt_set_loud(int on)
{
	finding_loud = on;
}

/* ---- whose turn it is ---- */

static uint64_t random_next(void)
{
	machine.random ^= machine.random << 13;
	machine.random ^= machine.random >> 7;
	machine.random ^= machine.random << 17;
	return machine.random;
}

static void ready_swap(int a, int b)
{
	struct thread **ready = machine.ready, *kept;
	int mask = SIMT_THREADS_MAX - 1, first = machine.ready_first;

	kept = ready[(first + a) & mask];
	ready[(first + a) & mask] = ready[(first + b) & mask];
	ready[(first + b) & mask] = kept;
}

/* By the seed: first come first served, anyone, or the last that became ready. */
static struct thread *ready_take(void)
{
	struct thread *thread;
	uint64_t order = machine.launch->order;

	if (order && order % 3 == 1)
		ready_swap(0, (int)(random_next() % (uint64_t)machine.ready_count));
	else if (order % 3 == 2)
		ready_swap(0, machine.ready_count - 1);
	thread = machine.ready[machine.ready_first];
	machine.ready_first = (machine.ready_first + 1) & (SIMT_THREADS_MAX - 1);
	machine.ready_count--;
	return thread;
}

void thread_ready(struct thread *thread)
{
	thread->state = THREAD_READY;
	machine.ready[(machine.ready_first + machine.ready_count++) & (SIMT_THREADS_MAX - 1)] = thread;
}

/* Goes on with whoever is ready; with the loop over blocks when nobody is. */
static void thread_leave(void)
{
	struct thread *self = machine.self;
	struct thread *next = machine.error || !machine.ready_count ? NULL : ready_take();

	if (next == self)
		return;
	machine.self = next;
	fibre_switch(&self->fibre, next ? &next->fibre : &machine.main);
}

void thread_wait(enum thread_state state, const char *file, int line)
{
	struct thread *self = machine.self;

	self->state = state;
	self->file = file;
	self->line = line;
	thread_leave();
}

void thread_stop(int error, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	finding_setv(error, machine.self, fmt, ap);
	va_end(ap);
	for (;;)
		thread_leave();
}

/* A fibre begins here. */
static void thread_main(void)
{
	struct thread *self = machine.self;

	machine.launch->run(machine.launch->args);
	self->state = THREAD_ENDED;
	self->warp->ended |= 1u << self->lane;
	machine.ended_count++;
	thread_leave();
}

/* ---- the block's barrier ---- */

static void barrier_complete(const char *file, int line)
{
	int holds = 0, result;

	for (int i = 0; i < machine.thread_count; i++) {
		struct thread *t = &machine.threads[i];

		if (t->line != line || (t->file != file && strcmp(t->file, file)))
			thread_stop(FOUND_FAILURE,
			        "divergent barrier: this thread came to the barrier at %s:%d, thread "
			        "(%u, %u, %u) to the one at %s:%d",
			        file, line, t->index.x, t->index.y, t->index.z, t->file, t->line);
		holds += t->predicate != 0;
	}
	result = machine.vote == SIMT_COUNT ? holds
	         : machine.vote == SIMT_AND ? holds == machine.thread_count
	                                    : holds > 0;
	machine.barrier_count = 0;
	machine.barrier_time = ++machine.time;
	for (int w = 0; w * SIMT_WARP < machine.thread_count; w++)
		machine.warps[w].time = machine.time;
	for (int i = 0; i < machine.thread_count; i++) {
		machine.threads[i].vote_result = result;
		if (&machine.threads[i] != machine.self)
			thread_ready(&machine.threads[i]);
	}
	thread_ready(machine.self);
}

int simt_block_sync(int predicate, enum simt_vote vote, const char *file, int line)
{
	struct thread *self = machine.self;

	self->predicate = predicate;
	self->mask = 0;
	self->file = file;
	self->line = line;
	machine.vote = vote;
	if (++machine.barrier_count == machine.thread_count)
		barrier_complete(file, line);
	else
		self->state = THREAD_AT_BARRIER;
	thread_wait(self->state, file, line);
	return self->vote_result;
}

/* ---- a block ---- */

/* Nobody is ready and not all have ended: says who waits where. */
static void report_stuck(void)
{
	char text[FINDING_BYTES];
	size_t len = 0;
	int told[SIMT_THREADS_MAX] = {0}, kinds = 0;

	for (int i = 0; i < machine.thread_count && kinds < 6; i++) {
		struct thread *t = &machine.threads[i];
		int same = 0;

		if (told[i])
			continue;
		for (int j = i; j < machine.thread_count; j++) {
			struct thread *u = &machine.threads[j];

			if (u->state == t->state &&
			        (t->state == THREAD_ENDED ||
			                (u->line == t->line && u->file == t->file && u->mask == t->mask))) {
				told[j] = 1;
				same++;
			}
		}
		if (len < sizeof(text) && t->state == THREAD_ENDED)
			len += (size_t)snprintf(text + len, sizeof(text) - len,
			        "%s%d ended (from thread %d on)", kinds ? ", " : "", same, i);
		else if (len < sizeof(text))
			len += (size_t)snprintf(text + len, sizeof(text) - len,
			        "%s%d at %s %s:%d (from thread %d on%s%.0x)", kinds ? ", " : "", same,
			        t->state == THREAD_AT_BARRIER ? "the block's barrier" : t->meeting->name,
			        t->file, t->line, i, t->state == THREAD_IN_WARP ? ", lanes 0x" : "",
			        t->state == THREAD_IN_WARP ? t->mask : 0);
		kinds++;
	}
	finding_set(FOUND_FAILURE, NULL, "threads wait for others that never come: %s", text);
}

static void block_begin(void)
{
	struct simt_launch *launch = machine.launch;

	machine.block_time = machine.barrier_time = ++machine.time;
	machine.ended_count = machine.barrier_count = 0;
	machine.array_count = 0;
	machine.shared_used = machine.static_bytes = 0;
	machine.ready_first = machine.ready_count = 0;
	for (int i = 0; i < machine.thread_count; i++) {
		struct thread *t = &machine.threads[i];
		struct warp *w = &machine.warps[i / SIMT_WARP];

		if (i % SIMT_WARP == 0) {
			w->lanes = t;
			w->lane_count =
			        machine.thread_count - i < SIMT_WARP ? machine.thread_count - i : SIMT_WARP;
			w->ended = w->waiting = 0;
			w->time = machine.time;
		}
		t->warp = w;
		t->number = i;
		t->lane = i % SIMT_WARP;
		t->index.x = (unsigned)i % launch->block[0];
		t->index.y = (unsigned)i / launch->block[0] % launch->block[1];
		t->index.z = (unsigned)i / launch->block[0] / launch->block[1];
		t->mask = 0;
		t->copy_count = 0;
		t->group = 0;
		fibre_start(&t->fibre, thread_main);
		thread_ready(t);
	}
	for (int i = machine.thread_count - 1; launch->order && i > 0; i--)
		ready_swap(i, (int)(random_next() % (uint64_t)(i + 1)));
	check_block_begin();
}

static void block_run(void)
{
	block_begin();
	machine.self = ready_take();
	fibre_switch(&machine.main, &machine.self->fibre);
	machine.self = NULL;
	if (!machine.error && machine.ended_count < machine.thread_count)
		report_stuck();
}

/* ---- a launch ---- */

static uint64_t greatest_divisor(uint64_t a, uint64_t b)
{
	while (b) {
		uint64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

/* All blocks, in the order factor * i + offset. */
static void blocks_run(void)
{
	struct simt_launch *launch = machine.launch;
	uint64_t count = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2], factor = 1, at = 0;

	machine.random = (launch->order + 1) * 0x9e3779b97f4a7c15u;
	if (launch->order) {
		factor = random_next() % count;
		while (greatest_divisor(count, factor) != 1)
			factor = (factor + 1) % count;
		factor %= count;
		at = random_next() % count;
	}
	for (uint64_t i = 0; i < count && !machine.error; i++) {
		machine.block.x = (unsigned)(at % launch->grid[0]);
		machine.block.y = (unsigned)(at / launch->grid[0] % launch->grid[1]);
		machine.block.z = (unsigned)(at / launch->grid[0] / launch->grid[1]);
		block_run();
		at = (at + factor) % count;
	}
}

static int machine_prepare(void)
{
	if (!machine.shared) {
		machine.shared = mmap(NULL, SHARED_REGION_BYTES, PROT_READ | PROT_WRITE,
		        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (machine.shared == MAP_FAILED) {
			machine.shared = NULL;
			return -1;
		}
	}
	for (int i = 0; i < machine.thread_count; i++)
		if (fibre_stacks(&machine.threads[i].fibre, 1))
			return -1;
	return 0;
}

int simt_run(struct simt_launch *launch)
{
	int error;

	pthread_mutex_lock(&machine_mutex);
	machine.launch = launch;
	machine.error = simt_check_config(launch->kernel, launch->grid, launch->block, launch->dynamic_bytes);
	machine.block_size = (struct simt_index){launch->block[0], launch->block[1], launch->block[2]};
	machine.grid_size = (struct simt_index){launch->grid[0], launch->grid[1], launch->grid[2]};
	machine.thread_count = (int)(launch->block[0] * launch->block[1] * launch->block[2]);
	if (!machine.error) {
		check_launch_begin();
		if (machine_prepare())
			finding_set(2, NULL, "the emulator is out of memory");
		else
			blocks_run();
		machine.end_time = ++machine.time;
	}
	machine.launch = NULL;
	error = machine.error;
	machine.error = 0;
	pthread_mutex_unlock(&machine_mutex);
	return error;
}

/* ---- what a launch is ---- */

void simt_set_order(uint64_t seed)
{
	set_order = seed;
}

void simt_set_access(const struct simt_access *list, int count)
{
	set_op++;
	set_access_count = count;
	if (count > 0)
		memcpy(set_accesses, list, (size_t)count * sizeof(*list));
}

struct simt_launch *simt_launch_make(void (*run)(void *args), void (*drop)(void *args), void *args,
        size_t args_bytes, const void *kernel, const uint32_t grid[3], const uint32_t block[3],
        size_t dynamic_bytes)
{
	struct simt_launch *launch = calloc(1, sizeof(*launch));

	if (!launch || !args) {
		free(launch);
		if (args)
			drop(args);
		return NULL;
	}
	launch->run = run;
	launch->drop = drop;
	launch->args = args;
	launch->args_bytes = args_bytes;
	launch->kernel = kernel;
	memcpy(launch->grid, grid, sizeof(launch->grid));
	memcpy(launch->block, block, sizeof(launch->block));
	launch->dynamic_bytes = dynamic_bytes;
	launch->order = set_order;
	launch->op = set_op;
	launch->access_count = set_access_count;
	memcpy(launch->accesses, set_accesses, sizeof(set_accesses));
	return launch;
}

void simt_launch_free(struct simt_launch *launch)
{
	if (!launch)
		return;
	launch->drop(launch->args);
	free(launch);
}

enum { ERROR_INVALID_VALUE = 1, ERROR_INVALID_CONFIGURATION = 9 };

void simt_set_capability(int capability)
{
	switch (capability) {
	case 80:
	case 87:
		shared_max = 163 << 10;
		break;
	case 90:
	case 100:
	case 103:
		shared_max = 227 << 10;
		break;
	default: /* 8.6, 8.9, 12.0 */
		shared_max = 99 << 10;
	}
}

int simt_shared_max(void)
{
	return shared_max;
}

int simt_set_dynamic_max(const void *kernel, int bytes)
{
	int i = 0;

	if (bytes < 0 || bytes > simt_shared_max())
		return ERROR_INVALID_VALUE;
	while (i < dynamic_max_count && dynamic_max[i].kernel != kernel)
		i++;
	if (i == KERNELS_MAX)
		return ERROR_INVALID_VALUE;
	dynamic_max[i].kernel = kernel;
	dynamic_max[i].bytes = bytes;
	dynamic_max_count += i == dynamic_max_count;
	return 0;
}

int simt_asked_for_dynamic(const void *kernel)
{
	int i = 0;

	while (i < dynamic_max_count && dynamic_max[i].kernel != kernel)
		i++;
	return i < dynamic_max_count;
}

void simt_set_carveout(const void *kernel, int percent)
{
	for (int i = 0; i < dynamic_max_count; i++)
		if (dynamic_max[i].kernel == kernel)
			dynamic_max[i].has_carveout = percent == 100;
}

int simt_check_config(
        const void *kernel, const uint32_t grid[3], const uint32_t block[3], size_t dynamic_bytes)
{
	uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
	size_t allowed = SIMT_SHARED_PLAIN;

	for (int i = 0; i < dynamic_max_count; i++)
		if (dynamic_max[i].kernel == kernel && dynamic_max[i].has_carveout)
			allowed = (size_t)dynamic_max[i].bytes > allowed ? (size_t)dynamic_max[i].bytes
			                                                 : allowed;
	if (!threads || block[0] > 1024 || block[1] > 1024 || block[2] > 64 || threads > 1024)
		return ERROR_INVALID_CONFIGURATION;
	if (!grid[0] || !grid[1] || !grid[2] || grid[0] > 0x7fffffff || grid[1] > 65535 || grid[2] > 65535)
		return ERROR_INVALID_CONFIGURATION;
	return dynamic_bytes > allowed ? ERROR_INVALID_VALUE : 0;
}
