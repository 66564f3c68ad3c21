/* Measures a GPU and its machine. */
#include "gpu/cuda_probe.h"

#include "base/clock.h"
#include "gpu/cuda_bounce.h"
#include "gpu/cuda_device.h"
#include "gpu/cuda_probe_parts.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum {
	COPY_BYTES = 128 << 20,
	COPY_BYTES_MIN = 1 << 16,
	COPIES = 4,
	LAUNCHES = 2000,
	CALLS = 200,
	BUSY_NS = 50000000, /* of a host function, while other streams are to work */
	START_NS = 2000000, /* until it surely runs */
	BESIDE = 20,
	SIDE = 1024, /* of the product that loads cuBLASLt's kernels */
	SIDE_SMALL = 64,
};

/* What rows usually are, by estimate, and what it means if they are not. */
static const struct usual {
	const char *name;
	double least, most;
	const char *otherwise;
} usual[] = {
        {"pin_4k", 1.5, 1e9, "starting takes long: a run pins 4 bytes a parameter"},
        {"pin_huge", 1.5, 1e9, "starting takes long: a run pins 4 bytes a parameter"},
        {"h2d", 10, 1e9, "the slot has few lanes, or the memory is another socket's"},
        {"d2h", 10, 1e9, "the slot has few lanes, or the memory is another socket's"},
        {"h2d_beside_d2h", 8, 1e9, "copies share the link: weights and gradients slow each other"},
        {"d2h_beside_h2d", 8, 1e9, "copies share the link: weights and gradients slow each other"},
        {"launch", 0, 12, "a virtual machine or a debugger sits between"},
        {"kernel", 0, 15, "a virtual machine or a debugger sits between"},
        {"call", 0, 100, "threads of the driver wait for a core"},
        {"kernel_beside_call", 0, 25,
                "AdamW on the CPU holds up the GPU; runs call from threads of their own"},
        {"h2d_beside_call", 0, 25, "AdamW on the CPU holds up copies; runs call from threads of their own"},
        {"launch_behind", 0, 25, "few host functions may wait; plans list few ahead"},
};

/* What a known card does in a row, and the share of it that is still ok. */
static const struct by_card {
	const char *name;
	size_t figure;
	double share;
	const char *otherwise;
} by_card[] = {
        {"h2d", offsetof(struct cuda_card, link), 0.75,
                "the slot has few lanes, or the memory is another socket's"},
        {"d2h", offsetof(struct cuda_card, link), 0.75,
                "the slot has few lanes, or the memory is another socket's"},
        {"product_rate", offsetof(struct cuda_card, product), 0.75,
                "look at the clock and what slowed it, and whether cuBLASLt was found"},
        {"attention_rate", offsetof(struct cuda_card, attention), 0.6, "please report it"},
        {"attention_grad_rate", offsetof(struct cuda_card, attention_grad), 0.6, "please report it"},
        {"memory_rate", offsetof(struct cuda_card, memory), 0.7,
                "another process may use the GPU, or its memory runs at a lower clock"},
};

/* The verdict of a row by the figures of its card; NULL: there are none. */
static const char *card_verdict(char text[200], const struct cuda_card *card, const char *name, double value)
{
	for (size_t i = 0; card && i < sizeof(by_card) / sizeof(*by_card); i++) {
		const struct by_card *b = &by_card[i];
		double expected;

		if (strcmp(b->name, name))
			continue;
		expected = *(const double *)((const char *)card + b->figure);
		if (value >= b->share * expected)
			return "ok";
		snprintf(text, 200, "this card is expected to reach %.0f; %s", expected, b->otherwise);
		return text;
	}
	return NULL;
}

static const char *verdict_of(const char *name, double value)
{
	for (size_t i = 0; i < sizeof(usual) / sizeof(*usual); i++)
		if (!strcmp(usual[i].name, name))
			return value < usual[i].least || value > usual[i].most ? usual[i].otherwise : "ok";
	return NULL;
}

int probe_tell(struct probe *p, int rc, const char *name, double value, const char *unit, const char *what)
{
	struct cuda_probe_row row = {.name = name, .unit = unit, .what = what, .value = rc ? 0 : value};
	char text[200];

	row.why = rc ? err_text() : NULL;
	row.verdict = rc ? NULL : card_verdict(text, p->card, name, value);
	if (!rc && !row.verdict)
		row.verdict = verdict_of(name, value);
	return probe_tell_verdict(p, &row);
}

int probe_tell_verdict(struct probe *p, const struct cuda_probe_row *row)
{
	if (!p->ended)
		p->ended = p->found(p->context, row);
	return p->ended;
}

static double gbps(double bytes, int64_t ns)
{
	return ns > 0 ? bytes / (double)ns : 0;
}

/* ---- pinning ---- */

/* Touches memory with pages of one size, then registers it; a row for each. */
static void probe_registered(
        struct probe *p, size_t bytes, int advice, const char *const names[2], const char *const what[2])
{
	char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int64_t begin_ns = clock_now_ns(), touched_ns;
	int rc;

	if (at == MAP_FAILED) {
		rc = err_set(ERR_NOMEM, "no host memory for %zu MiB", bytes >> 20);
		probe_tell(p, rc, names[0], 0, "GB/s", what[0]);
		probe_tell(p, rc, names[1], 0, "GB/s", what[1]);
		return;
	}
	madvise(at, bytes, advice);
	for (size_t i = 0; i < bytes; i += 4096)
		at[i] = 1;
	touched_ns = clock_now_ns();
	probe_tell(p, 0, names[0], gbps((double)bytes, touched_ns - begin_ns), "GB/s", what[0]);
	begin_ns = clock_now_ns();
	rc = cuda_check(cudaHostRegister(at, bytes, cudaHostRegisterDefault), "cudaHostRegister");
	probe_tell(p, rc, names[1], gbps((double)bytes, clock_now_ns() - begin_ns), "GB/s", what[1]);
	if (!rc)
		cudaHostUnregister(at);
	munmap(at, bytes);
}

static int pin_allocated(double *pin, size_t bytes)
{
	int64_t begin_ns = clock_now_ns();
	void *at = NULL;
	int rc = cuda_check(cudaHostAlloc(&at, bytes, cudaHostAllocDefault), "cudaHostAlloc");

	*pin = gbps((double)bytes, clock_now_ns() - begin_ns);
	if (!rc)
		cudaFreeHost(at);
	return rc;
}

static void probe_pinning(struct probe *p)
{
	static const char *const small[] = {"touch_4k", "pin_4k"},
	                         *const small_what[] = {"first touch of host memory, 4 KiB pages, one thread",
	                                 "cudaHostRegister, 4 KiB pages"},
	                         *const huge[] = {"touch_huge", "pin_huge"},
	                         *const huge_what[] = {"first touch of host memory, huge pages, one thread",
	                                 "cudaHostRegister, huge pages"};
	size_t bytes = 2 * (size_t)p->copy_bytes;
	double pin = 0;
	int rc;

	probe_registered(p, bytes, MADV_NOHUGEPAGE, small, small_what);
	probe_registered(p, bytes, MADV_HUGEPAGE, huge, huge_what);
	rc = pin_allocated(&pin, bytes);
	probe_tell(p, rc, "pin_alloc", pin, "GB/s", "cudaHostAlloc");
}

/* ---- copies ---- */

/* Runs COPIES copies in, out, or both at once, and finds the rate of each way. */
static int copies_time(double *in, double *out, struct probe *p, char *slab, int has_in, int has_out)
{
	int64_t at_ns[4] = {0};
	int rc = stream_stamp(p->h2d, &at_ns[0]);

	if (!rc)
		rc = stream_stamp(p->d2h, &at_ns[2]);
	for (int i = 0; i < COPIES && !rc; i++) {
		if (has_in)
			rc = stream_copy_in(p->h2d, p->arena, slab, p->copy_bytes);
		if (has_out && !rc)
			rc = stream_copy_out(
			        p->d2h, slab + p->copy_bytes, dev_at(p->arena, p->copy_bytes), p->copy_bytes);
	}
	if (!rc)
		rc = stream_stamp(p->h2d, &at_ns[1]);
	if (!rc)
		rc = stream_stamp(p->d2h, &at_ns[3]);
	if (!rc)
		rc = device_sync(p->device);
	*in = gbps(COPIES * (double)p->copy_bytes, at_ns[1] - at_ns[0]);
	*out = gbps(COPIES * (double)p->copy_bytes, at_ns[3] - at_ns[2]);
	return rc;
}

static void copies_tell(struct probe *p, char *slab, const char *const names[4], const char *const what[4])
{
	double in = 0, out = 0, none;
	int rc;

	copies_time(&in, &out, p, slab, 1, 1); /* the first run touches memory and wakes the GPU */
	rc = copies_time(&in, &none, p, slab, 1, 0);
	probe_tell(p, rc, names[0], in, "GB/s", what[0]);
	rc = copies_time(&none, &out, p, slab, 0, 1);
	probe_tell(p, rc, names[1], out, "GB/s", what[1]);
	if (!names[2])
		return;
	rc = copies_time(&in, &out, p, slab, 1, 1);
	probe_tell(p, rc, names[2], in, "GB/s", what[2]);
	probe_tell(p, rc, names[3], out, "GB/s", what[3]);
}

static void probe_copies(struct probe *p)
{
	static const char *const pinned[] = {"h2d", "d2h", "h2d_beside_d2h", "d2h_beside_h2d"},
	                         *const pinned_what[] = {"copies in, pinned memory", "copies out, pinned",
	                                 "copies in while others go out", "copies out while others come in"},
	                         *const pageable[] = {"h2d_pageable", "d2h_pageable", NULL, NULL},
	                         *const pageable_what[] = {"copies in, memory that is not pinned",
	                                 "copies out, memory that is not pinned", NULL, NULL},
	                         *const bounce[] = {"h2d_bounced", "d2h_bounced", NULL, NULL},
	                         *const bounce_what[] = {
	                                 "copies in through a pinned buffer, as used if pinning is "
	                                 "refused",
	                                 "copies out through a pinned buffer", NULL, NULL};

	copies_tell(p, p->pinned, pinned, pinned_what);
	copies_tell(p, p->pageable, pageable, pageable_what);
	if (cuda_bounce_pin((struct cuda_device *)p->device))
		copies_tell(p, p->pageable, bounce, bounce_what);
}

/* ---- launches and calls ---- */

static int nothing(void *context)
{
	(void)context;
	return 0;
}

static int queue_small(struct stream *stream, dev_addr at, int is_call, int count)
{
	struct op add = {
	        .kind = OP_ADD, .add = {.dst = at, .a = at, .b = at, .count = 64, .dtype = DTYPE_F32}};
	int rc = 0;

	for (int i = 0; i < count && !rc; i++)
		rc = is_call ? stream_call(stream, nothing, NULL, NULL) : stream_op(stream, &add);
	return rc;
}

static void probe_small(struct probe *p, int is_call)
{
	int64_t at_ns[2] = {0}, begin_ns, queued_ns;
	int count = is_call ? CALLS : LAUNCHES;
	int rc = queue_small(p->compute, p->arena, is_call, 10);

	if (!rc)
		rc = device_sync(p->device);
	begin_ns = clock_now_ns();
	if (!rc)
		rc = stream_stamp(p->compute, &at_ns[0]);
	if (!rc)
		rc = queue_small(p->compute, p->arena, is_call, count);
	queued_ns = clock_now_ns();
	if (!rc)
		rc = stream_stamp(p->compute, &at_ns[1]);
	if (!rc)
		rc = device_sync(p->device);
	if (is_call) {
		probe_tell(p, rc, "call", 1e-3 * (double)(at_ns[1] - at_ns[0]) / count, "us",
		        "a host function between work of a stream");
		return;
	}
	probe_tell(p, rc, "launch", 1e-3 * (double)(queued_ns - begin_ns) / count, "us",
	        "the host's time to queue a kernel");
	probe_tell(p, rc, "kernel", 1e-3 * (double)(at_ns[1] - at_ns[0]) / count, "us",
	        "from one small kernel to the next");
}

/* ---- beside a host function ---- */

static void sleep_ns(int64_t ns)
{
	nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

static int busy(void *context)
{
	(void)context;
	sleep_ns(BUSY_NS);
	return 0;
}

/* Milliseconds of other work on a stream while the cpu queue runs a function of 50 ms. */
static int beside_call(double *ms, struct probe *p, struct stream *stream)
{
	int64_t at_ns[2] = {0};
	int rc = stream_stamp(stream, &at_ns[0]);

	if (!rc)
		rc = stream_call(p->cpu, busy, NULL, NULL);
	sleep_ns(START_NS);
	if (!rc && stream == p->compute)
		rc = queue_small(stream, p->arena, 0, BESIDE);
	for (int i = 0; i < BESIDE && stream == p->h2d && !rc; i++)
		rc = stream_copy_in(stream, p->arena, p->pinned, COPY_BYTES_MIN);
	if (!rc)
		rc = stream_stamp(stream, &at_ns[1]);
	if (!rc)
		rc = device_sync(p->device);
	*ms = 1e-6 * (double)(at_ns[1] - at_ns[0]);
	return rc;
}

/* How long a launch takes behind many functions that wait. */
static int behind_calls(double *ms, struct probe *p)
{
	int rc = stream_call(p->cpu, busy, NULL, NULL);
	int64_t begin_ns;

	if (!rc)
		rc = queue_small(p->cpu, p->arena, 1, CALLS);
	begin_ns = clock_now_ns();
	if (!rc)
		rc = queue_small(p->compute, p->arena, 0, 1);
	*ms = 1e-6 * (double)(clock_now_ns() - begin_ns);
	return rc ? rc : device_sync(p->device);
}

static void probe_calls(struct probe *p)
{
	double ms = 0;
	int rc = beside_call(&ms, p, p->compute);

	probe_tell(p, rc, "kernel_beside_call", ms, "ms", "20 kernels while a host function runs for 50 ms");
	rc = beside_call(&ms, p, p->h2d);
	probe_tell(p, rc, "h2d_beside_call", ms, "ms",
	        "20 small copies in while a host function runs for 50 ms");
	rc = behind_calls(&ms, p);
	probe_tell(
	        p, rc, "launch_behind", ms, "ms", "a launch while 200 host functions wait for one of 50 ms");
}

/* ---- libraries ---- */

static int product_run(struct probe *p)
{
	int64_t side = p->copy_bytes >= 16 * SIDE * SIDE ? SIDE : SIDE_SMALL;
	struct op o = {.kind = OP_MATMUL,
	        .matmul = {.c = dev_at(p->arena, 8 * side * side),
	                .a = p->arena,
	                .b = dev_at(p->arena, 4 * side * side),
	                .m = side,
	                .n = side,
	                .k = side,
	                .a_stride = side,
	                .b_stride = side,
	                .c_stride = side,
	                .ab_dtype = DTYPE_BF16,
	                .c_dtype = DTYPE_BF16}};
	int rc = stream_op(p->compute, &o);

	return rc ? rc : device_sync(p->device);
}

static void took(struct probe *p, int rc, int64_t begin_ns, int64_t free_bytes, const char *const names[2],
        const char *const what[2])
{
	probe_tell(p, rc, names[0], 1e-6 * (double)(clock_now_ns() - begin_ns), "ms", what[0]);
	probe_tell(p, rc, names[1], (double)(free_bytes - device_free_bytes(p->device)) * 0x1p-20, "MiB",
	        what[1]);
}

static void probe_product(struct probe *p)
{
	static const char *const names[] = {"product_first", "product_memory"},
	                         *const what[] = {"first matrix product: cuBLASLt loads its kernels",
	                                 "GPU memory that this takes"};
	int64_t begin_ns = clock_now_ns(), free_bytes = device_free_bytes(p->device);
	int rc = product_run(p);

	took(p, rc, begin_ns, free_bytes, names, what);
	begin_ns = clock_now_ns();
	rc = product_run(p);
	probe_tell(
	        p, rc, "product_again", 1e-6 * (double)(clock_now_ns() - begin_ns), "ms", "the same again");
}

/* ---- all ---- */

static int probe_open(struct probe *p, enum device_attention attention)
{
	static const char *const names[] = {"libraries_open", "libraries_memory"},
	                         *const what[] = {"opening cuBLASLt (and cuDNN with attention=cudnn)",
	                                 "GPU memory that this takes"};
	int64_t begin_ns = clock_now_ns(), free_bytes;
	void *pinned = NULL, *pageable = NULL;
	int rc = device_open(&p->device, "cuda", &(struct device_options){.attention = attention});

	if (rc)
		return rc;
	p->card = cuda_card_of(((const struct cuda_device *)p->device)->name);
	probe_tell(p, 0, "start", 1e-6 * (double)(clock_now_ns() - begin_ns), "ms", "driver and GPU");
	probe_tell(p, 0, "memory_free", (double)device_free_bytes(p->device) * 0x1p-20, "MiB",
	        "GPU memory that is free");
	probe_pinning(p);
	free_bytes = device_free_bytes(p->device);
	begin_ns = clock_now_ns();
	rc = stream_open(&p->compute, p->device, QUEUE_COMPUTE);
	took(p, rc, begin_ns, free_bytes, names, what);
	if (!rc)
		rc = stream_open(&p->h2d, p->device, QUEUE_H2D);
	if (!rc)
		rc = stream_open(&p->d2h, p->device, QUEUE_D2H);
	if (!rc)
		rc = stream_open(&p->cpu, p->device, QUEUE_CPU);
	if (!rc)
		rc = device_arena_open(p->device, &p->arena, 2 * p->copy_bytes);
	if (!rc)
		rc = device_slab_open(p->device, &pinned, 2 * p->copy_bytes, SLAB_PINNED);
	if (!rc)
		rc = device_slab_open(p->device, &pageable, 2 * p->copy_bytes, SLAB_PAGEABLE);
	p->pinned = pinned;
	p->pageable = pageable;
	return rc;
}

int cuda_probe(cuda_probe_fn *found, void *context, int64_t copy_bytes, enum device_attention attention)
{
	struct probe p = {
	        .found = found, .context = context, .copy_bytes = copy_bytes ? copy_bytes : COPY_BYTES};
	int rc;

	if (p.copy_bytes < COPY_BYTES_MIN)
		return err_set(ERR_INPUT, "a probe of copies of %" PRId64 " bytes: at least %d", copy_bytes,
		        COPY_BYTES_MIN);
	rc = probe_open(&p, attention);

	if (!rc) {
		probe_copies(&p);
		probe_small(&p, 0);
		probe_small(&p, 1);
		probe_calls(&p);
		probe_product(&p);
		probe_rates(&p);
		rc = device_sync(p.device); /* finds a GPU that was lost meanwhile */
	}
	stream_close(p.compute);
	stream_close(p.h2d);
	stream_close(p.d2h);
	stream_close(p.cpu);
	device_close(p.device);
	return rc ? rc : p.ended;
}
