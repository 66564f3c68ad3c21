/* Measures overheads of a GPU: small kernels, host functions, copies both ways at once, pinning. */
#include "placement/measure.h"

#include "base/clock.h"
#include "device/op.h"

#include <math.h>

enum { REPEATS = 3, WARM = 10, LAUNCHES = 100, CALLS = 20, ARENA_BYTES = 4096 };

static const int64_t PIN_BYTES = INT64_C(64) << 20;
static const double HINDERED = 0.97; /* below this share of both rates alone, the ways slow each other */

struct overheads {
	const struct engine_options *o;
	struct stream *compute;
	dev_addr arena;
	int64_t pin_bytes;
};

static int nothing(void *context)
{
	(void)context;
	return 0;
}

static int small_queue(struct overheads *m, int is_call, int count)
{
	const struct op add = {.kind = OP_ADD,
	        .add = {.dst = m->arena, .a = m->arena, .b = m->arena, .count = 64, .dtype = DTYPE_F32}};
	const struct op_cost cost = {0};
	int rc = 0;

	for (int i = 0; i < count && !rc; i++)
		rc = is_call ? stream_call(m->compute, nothing, NULL, &cost) : stream_op(m->compute, &add);
	return rc;
}

/* The time of one small kernel or host function in a row of them. */
static int small_find(double *each_s, struct overheads *m, int is_call)
{
	int count = is_call ? CALLS : LAUNCHES, rc = 0;

	*each_s = 0;
	for (int i = 0; i < REPEATS && !rc; i++) {
		struct measure_span span;
		double seconds;

		rc = small_queue(m, is_call, WARM);
		if (!rc)
			rc = stream_sync(m->compute);
		if (!rc)
			rc = measure_begin(&span, m->compute);
		if (!rc)
			rc = measure_end(&seconds, &span, small_queue(m, is_call, count));
		if (!rc && (!i || seconds / count < *each_s))
			*each_s = seconds / count;
	}
	return rc;
}

/* The rate of allocating and pinning memory as for planes. */
static int pinning_find(double *bytes_per_s, struct overheads *m)
{
	int rc = 0;

	if (!device_has_bytes(m->o->device) || m->o->crossing != SLAB_PINNED)
		return 0;
	for (int i = 0; i < REPEATS && !rc; i++) {
		int64_t begin_ns = clock_now_ns();
		void *base;

		rc = device_slab_open(m->o->device, &base, m->pin_bytes, SLAB_PINNED);
		if (rc)
			break;
		*bytes_per_s = fmax(*bytes_per_s,
		        (double)m->pin_bytes / fmax(1e-9 * (double)(clock_now_ns() - begin_ns), 1e-9));
		device_slab_close(m->o->device, base);
	}
	return rc;
}

static int overheads_find(struct device_speed *speed, struct overheads *m)
{
	int rc = stream_open(&m->compute, m->o->device, QUEUE_COMPUTE);

	if (!rc)
		rc = small_find(&speed->launch_s, m, 0);
	if (!rc)
		rc = small_find(&speed->call_s, m, 1);
	return rc ? rc : pinning_find(&speed->pin_bytes, m);
}

int measure_overheads(struct device_speed *speed, const struct engine_options *o, int64_t most_bytes)
{
	struct overheads m = {.o = o, .pin_bytes = PIN_BYTES};
	int rc;

	if (most_bytes && most_bytes < m.pin_bytes)
		m.pin_bytes = most_bytes / 512 * 512;
	if (m.pin_bytes < ARENA_BYTES)
		return 0;
	rc = device_arena_open(o->device, &m.arena, ARENA_BYTES);
	if (rc)
		return rc;
	rc = overheads_find(speed, &m);
	stream_close(m.compute);
	device_arena_close(o->device);
	return rc;
}

/* At the end the slower copy has the link alone; its bytes from that time do not count. */
int measure_copies(struct device_speed *speed, const struct measure_place *p)
{
	int64_t half = p->bytes / 2 / 512 * 512;
	double bytes = (double)half, both = 0;
	int rc = half ? 0 : 1;

	for (int i = 0; i < REPEATS && !rc; i++) {
		struct measure_span in, out;
		double in_s = 0, out_s, first_s, last_s, alone;

		rc = measure_begin(&in, p->h2d);
		if (!rc)
			rc = measure_begin(&out, p->d2h);
		if (!rc)
			rc = stream_copy_in(p->h2d, p->arena, p->slab, half);
		if (!rc)
			rc = stream_copy_out(p->d2h, p->slab + half, dev_at(p->arena, half), half);
		if (!rc)
			rc = stream_stamp(p->d2h, &out.end_ns);
		if (!rc)
			rc = measure_end(&in_s, &in, 0);
		if (!rc)
			rc = stream_sync(p->d2h);
		if (rc)
			break;
		out_s = fmax(1e-9 * (double)(out.end_ns - out.begin_ns), 1e-9);
		first_s = fmin(in_s, out_s);
		last_s = fmax(in_s, out_s);
		alone = in_s > out_s ? speed->h2d_bytes : speed->d2h_bytes;
		both = fmax(both, (bytes + fmax(bytes - alone * (last_s - first_s), 0)) / first_s);
	}
	speed->copies_bytes = both < HINDERED * (speed->h2d_bytes + speed->d2h_bytes) ? both : 0;
	return rc < 0 ? rc : 0;
}
