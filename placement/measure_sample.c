/* Times a sample of operations, and fits rates to the time. */
#include "placement/measure_sample.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/size.h"
#include "device/op.h"

#include <math.h>

enum { ALIGN_BYTES = 256, CUTS = 40, REPEATS = 2, FIT_ROUNDS = 30 };

static const double FIRST_FLOPS = 4e7;
static const int64_t COPIES_BYTES = INT64_C(128) << 20;

dev_addr sample_take(struct sample *s, int64_t bytes)
{
	dev_addr at = dev_at(s->base, s->bytes);

	s->bytes = round_up(s->bytes + (bytes ? bytes : 1), ALIGN_BYTES);
	return at;
}

static void lay(struct sample *s, dev_addr base)
{
	s->base = base;
	s->bytes = 0;
	s->lay(s);
}

static void cut_to(struct sample *s, int cut)
{
	s->cut(s, cut);
	lay(s, DEV_NONE);
}

/* ---- on the device ---- */

/* Small numbers of either sign, because a GPU multiplies zeros faster. */
static void numbers_draw(uint16_t *numbers, int64_t count)
{
	uint64_t random = 1;

	for (int64_t i = 0; i < count; i++) {
		random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		numbers[i] = plane_hi(f32_bits((float)(int32_t)(random >> 32) * 0x1p-36f));
	}
}

/* Copies one piece from the host, then doubles it on the device until all bytes are filled. */
static int numbers_write(dev_addr base, int64_t bytes, struct stream *q)
{
	enum { PIECE_BYTES = 1 << 18 };
	int64_t done = bytes < PIECE_BYTES ? bytes : PIECE_BYTES;
	uint16_t *numbers = mem_alloc(PIECE_BYTES / 2, sizeof(*numbers));
	int rc = numbers ? 0 : ERR_NOMEM;

	if (!rc) {
		numbers_draw(numbers, done / 2);
		rc = stream_copy_in(q, base, numbers, done);
	}
	while (!rc && done < bytes) {
		int64_t more = done < bytes - done ? done : bytes - done;
		struct op op = {.kind = OP_COPY, .copy = {dev_at(base, done), base, more}};

		rc = stream_op(q, &op);
		done += more;
	}
	if (!rc)
		rc = stream_sync(q);
	else
		stream_sync(q);
	mem_free(numbers);
	return rc;
}

static int time_once(double *seconds, const struct sample *s, struct stream *q)
{
	struct measure_span span;
	int rc = measure_begin(&span, q);

	return measure_end(seconds, &span, rc ? rc : s->queue(s, q));
}

/* Times the sample 1 + repeats times and takes the shortest. In the first run libraries choose their kernels,
 * so it counts only if it takes long_s already. If there is room, each run has its own weights and gradients:
 * in a step they come from memory, not from a cache. */
static int run(double *seconds, struct sample *s, struct device *device, int repeats, int64_t most_bytes,
        double long_s)
{
	int64_t bytes = s->bytes, room = most_bytes < COPIES_BYTES ? most_bytes : COPIES_BYTES;
	int64_t copies = room < bytes ? 1 : room / bytes < repeats + 1 ? room / bytes : repeats + 1;
	struct stream *q = NULL;
	dev_addr base;
	int rc = device_arena_open(device, &base, copies * bytes);

	if (rc)
		return rc;
	rc = stream_open(&q, device, QUEUE_COMPUTE);
	if (!rc)
		rc = numbers_write(base, copies * bytes, q);
	for (int i = 0; i <= repeats && !rc && (!i || *seconds < long_s); i++) {
		double again;

		lay(s, dev_at(base, i % copies * bytes));
		rc = s->write(s, q);
		if (!rc)
			rc = time_once(&again, s, q);
		*seconds = rc ? 0 : i ? fmin(*seconds, again) : again;
	}
	stream_close(q);
	device_arena_close(device);
	return rc;
}

/* The smallest cut with at most these flops and bytes; CUTS: none. */
static int cut_find(struct sample *s, int first, double flops, int64_t bytes)
{
	int cut = first;

	for (; cut < CUTS; cut++) {
		cut_to(s, cut);
		if (s->bytes <= bytes && s->flops <= flops)
			break;
	}
	return cut;
}

int sample_measure(
        double *seconds, struct sample *s, struct device *device, int64_t most_bytes, double about_s)
{
	double flops = FIRST_FLOPS, spent_s = 0;
	int cut = CUTS, rc = 0;

	*seconds = 0;
	do {
		int next = cut_find(s, 0, flops, most_bytes);

		if (next == CUTS && cut == CUTS) /* none is small enough: take the smallest sample */
			next = cut_find(s, CUTS - 1, INFINITY, most_bytes);
		if (next >= cut)
			break;
		cut = next;
		rc = run(seconds, s, device, 1, most_bytes, 4 * about_s);
		if (rc)
			return rc;
		flops = s->flops / *seconds * about_s;
		spent_s += *seconds;
	} while (cut && *seconds < about_s / 3 && spent_s < about_s);
	if (cut == CUTS)
		return 0;
	cut_to(s, cut);
	return *seconds < 2 * about_s ? run(seconds, s, device, REPEATS, most_bytes, 4 * about_s) : 0;
}

/* ---- on the clock ---- */

static int predict(double *seconds, double *flops, struct sample *s, const struct device_speed *speed)
{
	const struct device_options options = {.speed = *speed};
	struct device *device = NULL;
	struct stream *q = NULL;
	struct device_stats stats;
	struct stream_work work;
	dev_addr base;
	int rc = device_open(&device, "meta", &options);

	if (!rc)
		rc = device_arena_open(device, &base, s->bytes);
	if (!rc)
		rc = stream_open(&q, device, QUEUE_COMPUTE);
	if (!rc) {
		lay(s, base);
		rc = s->queue(s, q);
	}
	if (!rc) {
		stream_get_work(q, &work);
		device_get_stats(device, &stats);
		*seconds = 1e-9 * (double)work.alone_ns;
		*flops = stats.flops;
	}
	stream_close(q);
	device_close(device);
	return rc;
}

static void rates_set(double *const rates[], double rate)
{
	for (int i = 0; rates[i]; i++)
		*rates[i] = rate;
}

int sample_fit(struct device_speed *speed, double *const rates[], struct sample *s, double seconds)
{
	double predicted_s, flops, slow, fast;
	int rc;

	rates_set(rates, 1e12);
	rc = predict(&predicted_s, &flops, s, speed);
	slow = rc ? 0 : 0.25 * flops / seconds;
	fast = 16 * slow;
	for (int i = 0; i < FIT_ROUNDS && !rc; i++) {
		double middle = 0.5 * (slow + fast);

		rates_set(rates, middle);
		rc = predict(&predicted_s, &flops, s, speed);
		*(predicted_s > seconds ? &slow : &fast) = middle;
	}
	return rc;
}
