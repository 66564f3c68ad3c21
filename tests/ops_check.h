/* Shared by the tests of ops: tensors with guards, one op run several times (ops_run.h), and comparison
 * with a reference in double.
 *
 * A case makes tensors, fills them, and calls case_run. In each variant the op starts from the same bytes.
 * It must give the same bytes each time, and must not change guards. Then the case calls case_check for
 * each element that the op should have written. case_end finds any other element that changed. A bound is
 * absolute, for the value before rounding to the tensor's dtype. Checks are written as !(diff <= bound),
 * so that NaN fails.
 */
#ifndef FERRY_TESTS_OPS_CHECK_H
#define FERRY_TESTS_OPS_CHECK_H

#include "base/mem.h"
#include "base/num.h"
#include "tests/ops_run.h"
#include "tests/sparing.h"

#include <math.h>

#define EPS_F32 5.9604644775390625e-8 /* half a unit in the last place of 1 */
#define EPS_BF16 0.00390625

enum { GUARD_BYTES = 64, TENSORS_MAX = 20 };

struct tensor {
	uint8_t *block, *first,
	        *written;             /* with guards: now, and before the op; written: a mark per element */
	dev_addr at;                  /* address of the block for the op */
	int64_t count, bytes, offset; /* offset of the data in block */
	enum dtype dtype;
};

struct ops_case {
	struct tensor tensors[TENSORS_MAX];
	int tensor_count;
	int64_t phase; /* offset in elements of all tensors from an alignment of 16 bytes; -1: random */
	uint64_t seed, draws;
	const char *name;
};

static inline int ops_setup(void **state)
{
	(void)state;
	return run_open();
}

static inline int ops_teardown(void **state)
{
	(void)state;
	run_close();
	return 0;
}

/* The number of seeds to try, out of `count`. FERRY_TEST_SPARING=n takes every n-th, if each is slow (under
 * compute-sanitizer). */
static inline uint64_t case_count(uint64_t count)
{
	uint64_t n = (uint64_t)sparing(3);

	return (count + n - 1) / n;
}

static inline void case_begin(struct ops_case *c, const char *name, uint64_t seed)
{
	static const int64_t phases[] = {-1, -1, 0, 0, 1, 2, 4, 7};

	*c = (struct ops_case){.name = name, .seed = seed};
	c->phase = phases[rng_below(seed, 4, 0, sizeof phases / sizeof *phases)];
	run_forget_places();
}

/* A whole number in [low, high], a real in [-1, 1), and a bell-shaped one of variance 1. */
static inline int64_t case_int(struct ops_case *c, int64_t low, int64_t high)
{
	return low + (int64_t)rng_below(c->seed, 1, c->draws++, (uint64_t)(high - low + 1));
}

static inline double case_uniform(struct ops_case *c)
{
	return 2 * rng_uniform(c->seed, 2, c->draws++) - 1;
}

/* The sum of four 16-bit numbers: close enough to normal, and much faster. */
static inline double case_normal(struct ops_case *c)
{
	uint64_t u = rng_u64(c->seed, 3, c->draws++);
	double sum = (double)((u & 0xffff) + (u >> 16 & 0xffff) + (u >> 32 & 0xffff) + (u >> 48));

	return (sum / 65536 - 2) * 1.7320508;
}

/* Sizes that find bugs: 1, small ones, neighbours of powers of two, and any up to high. */
static inline int64_t case_size(struct ops_case *c, int64_t high)
{
	int64_t power = (int64_t)1 << case_int(c, 0, 9), size = 1;

	switch (case_int(c, 0, 3)) {
	case 0:
		size = case_int(c, 1, 8);
		break;
	case 1:
		size = power + case_int(c, -1, 1);
		break;
	default:
		size = case_int(c, 1, high);
	}
	return size < 1 ? 1 : size > high ? high : size;
}

static inline double tensor_get(const struct tensor *t, int64_t i)
{
	const uint8_t *data = t->block + t->offset;
	double d;
	float f;
	uint16_t h;
	int32_t n;

	switch (t->dtype) {
	case DTYPE_F32:
		memcpy(&f, data + 4 * i, 4);
		return f;
	case DTYPE_BF16:
		memcpy(&h, data + 2 * i, 2);
		return bf16_to_f32(h);
	case DTYPE_F64:
		memcpy(&d, data + 8 * i, 8);
		return d;
	case DTYPE_I32:
		memcpy(&n, data + 4 * i, 4);
		return n;
	default:
		return data[i];
	}
}

static inline void tensor_set(struct tensor *t, int64_t i, double value)
{
	uint8_t *data = t->block + t->offset;
	float f = (float)value;
	uint16_t h = bf16_from_f32(f);
	int32_t n = t->dtype == DTYPE_I32 ? (int32_t)value : 0;
	int16_t s;

	assert_true(i >= 0 && i < t->count);
	switch (t->dtype) {
	case DTYPE_F32:
		memcpy(data + 4 * i, &f, 4);
		break;
	case DTYPE_BF16:
		memcpy(data + 2 * i, &h, 2);
		break;
	case DTYPE_F64:
		memcpy(data + 8 * i, &value, 8);
		break;
	case DTYPE_I32:
		memcpy(data + 4 * i, &n, 4);
		break;
	case DTYPE_I16:
		s = (int16_t)(value * 1000);
		memcpy(data + 2 * i, &s, 2);
		break;
	default:
		data[i] = (uint8_t)value;
	}
}

/* A tensor of normal numbers times scale. It is aligned to its element; the case's phase may give more. */
static inline struct tensor *case_tensor(struct ops_case *c, int64_t count, enum dtype dtype, double scale)
{
	struct tensor *t = &c->tensors[c->tensor_count++];
	int64_t element = dtype_bytes(dtype);
	struct block place;

	assert_true(c->tensor_count <= TENSORS_MAX);
	*t = (struct tensor){.count = count, .dtype = dtype};
	t->offset = GUARD_BYTES + element * (c->phase < 0 ? case_int(c, 0, 7) : c->phase);
	t->bytes = t->offset + count * element + GUARD_BYTES;
	t->block = mem_alloc((size_t)t->bytes, 1);
	t->first = mem_alloc((size_t)t->bytes, 1);
	t->written = mem_alloc((size_t)count, 1);
	assert_true(t->block && t->first && t->written);
	for (int64_t i = 0; i < t->bytes; i++)
		t->block[i] = (uint8_t)(0xa5 ^ i);
	for (int64_t i = 0; i < count; i++)
		tensor_set(t, i, scale * (dtype == DTYPE_I32 ? 0 : case_normal(c)));
	place = (struct block){.host = t->block, .bytes = t->bytes};
	run_place(&place);
	t->at = place.at;
	return t;
}

static inline dev_addr tensor_addr(const struct tensor *t)
{
	return t ? dev_at(t->at, t->offset) : DEV_NONE;
}

/* The bits of an element of 4 or 2 bytes. */
static inline uint32_t tensor_bits(const struct tensor *t, int64_t i)
{
	const uint8_t *data = t->block + t->offset;
	uint32_t word;
	uint16_t half;

	if (dtype_bytes(t->dtype) == 4) {
		memcpy(&word, data + 4 * i, 4);
		return word;
	}
	memcpy(&half, data + 2 * i, 2);
	return half;
}

static inline void tensor_set_bits(struct tensor *t, int64_t i, uint32_t bits)
{
	uint8_t *data = t->block + t->offset;
	uint16_t half = (uint16_t)bits;

	if (dtype_bytes(t->dtype) == 4)
		memcpy(data + 4 * i, &bits, 4);
	else
		memcpy(data + 2 * i, &half, 2);
}

/* An element before the op ran. */
static inline double tensor_was(const struct tensor *t, int64_t i)
{
	struct tensor first = *t;

	first.block = t->first;
	return tensor_get(&first, i);
}

static inline void case_run(struct ops_case *c, const struct op *op)
{
	uint8_t *after[TENSORS_MAX] = {0};
	struct block blocks[TENSORS_MAX];

	check_ok(op_check(op));
	for (int i = 0; i < c->tensor_count; i++) {
		struct tensor *t = &c->tensors[i];

		memcpy(t->first, t->block, (size_t)t->bytes);
		blocks[i] = (struct block){t->block, t->bytes, t->at};
	}
	for (int p = 0; p < VARIANTS; p++) {
		for (int i = 0; i < c->tensor_count; i++)
			memcpy(c->tensors[i].block, c->tensors[i].first, (size_t)c->tensors[i].bytes);
		run_variant(op, p, blocks, c->tensor_count);
		for (int i = 0; i < c->tensor_count; i++) {
			struct tensor *t = &c->tensors[i];

			if (p == 0) {
				after[i] = mem_alloc((size_t)t->bytes, 1);
				memcpy(after[i], t->block, (size_t)t->bytes);
			} else if (memcmp(after[i], t->block, (size_t)t->bytes)) {
				fail_msg("%s, seed %llu: tensor %d differs between variants 0 and %d",
				        c->name, (unsigned long long)c->seed, i, p);
			}
		}
	}
	for (int i = 0; i < c->tensor_count; i++)
		mem_free(after[i]);
}

static inline void case_check(
        struct ops_case *c, struct tensor *t, int64_t i, double want, double bound, const char *what)
{
	double got = tensor_get(t, i), diff = fabs(got - want);
	double rounding = t->dtype == DTYPE_F64 ? 0 : t->dtype == DTYPE_BF16 ? EPS_BF16 : EPS_F32;

	assert_true(i >= 0 && i < t->count);
	t->written[i] = 1;
	if (!(diff <= bound + 1.01 * rounding * (fabs(want) + bound) + 1e-44))
		fail_msg("%s, seed %llu: %s[%lld] is %.9g, wanted %.9g within %.3g", c->name,
		        (unsigned long long)c->seed, what, (long long)i, got, want, bound);
}

/* For ops that promise exact bits, also of NaN. */
static inline void case_check_bits(
        struct ops_case *c, struct tensor *t, int64_t i, uint32_t want, const char *what)
{
	t->written[i] = 1;
	if (tensor_bits(t, i) != want)
		fail_msg("%s, seed %llu: %s[%lld] is %08x, wanted %08x", c->name, (unsigned long long)c->seed,
		        what, (long long)i, tensor_bits(t, i), want);
}

/* For scratch: any element may have any value. */
static inline void case_forget(struct tensor *t)
{
	memset(t->written, 1, (size_t)t->count);
}

static inline void case_end(struct ops_case *c)
{
	for (int n = 0; n < c->tensor_count; n++) {
		struct tensor *t = &c->tensors[n];
		int64_t element = dtype_bytes(t->dtype);

		for (int64_t i = 0; i < t->count; i++)
			if (t->written[i])
				memcpy(t->first + t->offset + i * element, t->block + t->offset + i * element,
				        (size_t)element);
		for (int64_t i = 0; i < t->bytes; i++)
			if (t->block[i] != t->first[i])
				fail_msg("%s, seed %llu: tensor %d changed at element %lld of %lld", c->name,
				        (unsigned long long)c->seed, n,
				        (long long)((i - t->offset) / element), (long long)t->count);
		mem_free(t->block);
		mem_free(t->first);
		mem_free(t->written);
	}
	c->tensor_count = 0;
}

/* Compares `slope`, a derivative from backward, with central differences of f at parameter *x. `size` is the
 * magnitude for the relative error. */
typedef double case_value_fn(void *context);

static inline void case_derivative(case_value_fn *f, void *context, double *x, double slope, double size)
{
	double kept = *x, step = 1e-4 * (fabs(kept) > 1 ? fabs(kept) : 1), low2, low, high, high2, found;

	*x = kept - 2 * step;
	low2 = f(context);
	*x = kept - step;
	low = f(context);
	*x = kept + step;
	high = f(context);
	*x = kept + 2 * step;
	high2 = f(context);
	*x = kept;
	found = (8 * (high - low) - (high2 - low2)) / (12 * step);
	if (!(fabs(found - slope) <= 1e-6 * (fabs(slope) + size)))
		fail_msg("the reference says %.12g, differences say %.12g", slope, found);
}

#endif
