/* links: optim */
/* AdamW and sums of squares beyond 2^31 elements. */
#include "check.h"
#include "tests/sparing.h"

#include "base/num.h"
#include "optim/adamw.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

/* Counts beyond 32 bits. */

enum { PLANES = 5, CHECKED = 5 * ADAMW_BLOCK + 100 };

enum { PIECE = 2 << 20 };

/* `bytes` of address space in whole pieces, all of them the same memory but for the last two, which are their
 * own. */
static char *map_repeated(size_t bytes)
{
	const size_t pieces = (bytes + PIECE - 1) / PIECE;
	char *at = mmap(NULL, pieces * PIECE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int fd = memfd_create("planes", 0);

	assert_true(at != MAP_FAILED && fd >= 0 && ftruncate(fd, 3 * PIECE) == 0);
	for (size_t i = 0; i < pieces; i++) {
		off_t own = i + 2 < pieces ? 0 : (off_t)(i + 3 - pieces);

		assert_true(mmap(at + i * PIECE, PIECE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
		                    own * PIECE) != MAP_FAILED);
	}
	close(fd);
	return at;
}

/* The planes of the last elements; m and v by byte, as their state has them. */
struct last {
	uint16_t hi[CHECKED];
	int16_t lo[CHECKED];
	uint8_t m[4 * CHECKED], v[4 * CHECKED];
	float m_scale[CHECKED / ADAMW_BLOCK + 1], v_scale[CHECKED / ADAMW_BLOCK + 1];
};

static void last_fill(struct last *l, uint16_t *grad, enum adamw_state state)
{
	memset(l, 0, sizeof(*l));
	memset(l->m, state == ADAMW_STATE_8BIT ? 127 : 0, sizeof(l->m));
	for (int i = 0; i < CHECKED; i++) {
		l->hi[i] = 0x3f80;
		grad[i] = (uint16_t)(0x3c00 + rng_below(1, 1, (uint64_t)i, 256));
	}
}

/* Copies between the end of a span's planes and `last`. */
static void last_move(struct last *l, const struct adamw_span *s, int64_t first, int into_span)
{
	const int bytes = adamw_state_bytes(s->state);
	const struct {
		void *of_last, *of_span;
		size_t bytes;
	} planes[] = {{l->hi, s->hi + first, sizeof(l->hi)}, {l->lo, s->lo + first, sizeof(l->lo)},
	        {l->m, (char *)s->m + first * bytes, CHECKED * (size_t)bytes},
	        {l->v, (char *)s->v + first * bytes, CHECKED * (size_t)bytes},
	        {l->m_scale, s->m_scale ? s->m_scale + first / ADAMW_BLOCK : NULL, sizeof(l->m_scale)},
	        {l->v_scale, s->v_scale ? s->v_scale + first / ADAMW_BLOCK : NULL, sizeof(l->v_scale)}};

	for (size_t i = 0; i < sizeof(planes) / sizeof(planes[0]); i++)
		if (planes[i].of_span && into_span)
			memcpy(planes[i].of_span, planes[i].of_last, planes[i].bytes);
		else if (planes[i].of_span)
			memcpy(planes[i].of_last, planes[i].of_span, planes[i].bytes);
}

/* Elements beyond 2^31 are updated like a separate span, by every ISA of this CPU. Takes 28 GiB of address
 * space (50 MiB of memory) and many page faults, so it needs FERRY_LONG_TESTS=1. */
static void check_adamw(enum adamw_state state)
{
	const int64_t count = (INT64_C(1) << 31) + (1 << 20) + 100, first = count - CHECKED;
	const size_t state_bytes = (size_t)adamw_state_bytes(state),
	             bytes[PLANES] = {2 * count, 2 * count, state_bytes * count, state_bytes * count,
	                     2 * count},
	             scale_bytes = (count / ADAMW_BLOCK + 1) * sizeof(float);
	const struct adamw_options options = {.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .seed = 5};
	struct adamw_span s = {.count = count, .grad_dtype = DTYPE_BF16, .tensor = 3, .state = state}, alone;
	struct adamw_step step;
	struct last before, expected, got;
	uint16_t grad[CHECKED];
	char *at[PLANES];

	if (!getenv("FERRY_LONG_TESTS")) {
		print_message("SKIPPED counts beyond 32 bits: FERRY_LONG_TESTS is not set\n");
		skip();
	}
	adamw_step_init(&step, &options, 1e-3, 1, 1);
	last_fill(&before, grad, state);
	expected = before;
	alone = (struct adamw_span){.hi = expected.hi,
	        .lo = expected.lo,
	        .m = expected.m,
	        .v = expected.v,
	        .m_scale = expected.m_scale,
	        .v_scale = expected.v_scale,
	        .grad = grad,
	        .count = CHECKED,
	        .first = first,
	        .tensor = s.tensor,
	        .grad_dtype = s.grad_dtype,
	        .state = state};
	adamw_update(&alone, &step, ADAMW_ISA_SCALAR);
	assert_memory_not_equal(expected.lo, before.lo, sizeof(before.lo));
	for (int i = 0; i < PLANES; i++)
		at[i] = map_repeated(bytes[i]);
	s.hi = (uint16_t *)(void *)at[0];
	s.lo = (int16_t *)(void *)at[1];
	s.m = at[2];
	s.v = at[3];
	s.grad = at[4];
	if (state == ADAMW_STATE_8BIT) {
		s.m_scale = calloc(2, scale_bytes);
		assert_non_null(s.m_scale);
		s.v_scale = s.m_scale + scale_bytes / sizeof(float);
	}
	memcpy(at[4] + 2 * first, grad, sizeof(grad));
	for (int isa = 0; isa < ADAMW_ISA_COUNT; isa++) {
		enum adamw_isa found;

		if (adamw_isa_find(&found, adamw_isa_name(isa)))
			continue;
		last_move(&before, &s, first, 1);
		adamw_update(&s, &step, found);
		memset(&got, 0, sizeof(got));
		memcpy(got.m, before.m, sizeof(got.m)); /* what the state's bytes leave of them */
		last_move(&got, &s, first, 0);
		assert_memory_equal(&got, &expected, sizeof(got));
	}
	free(s.m_scale);
	for (int i = 0; i < PLANES; i++)
		munmap(at[i], (bytes[i] + PIECE - 1) / PIECE * PIECE);
}

static void test_fp32_state(void **state)
{
	(void)state;
	check_adamw(ADAMW_STATE_F32);
}

static void test_bf16_state(void **state)
{
	(void)state;
	check_adamw(ADAMW_STATE_BF16);
}

static void test_8bit_state(void **state)
{
	(void)state;
	check_adamw(ADAMW_STATE_8BIT);
}

/* Sums of squares, over the zero page. */
static void test_sumsq_beyond_32_bits(void **state)
{
	const int64_t count = (INT64_C(1) << (SANITIZED ? 26 : 31)) + 3; /* slow code: its end only */
	const size_t bytes = 2 * (size_t)count, block_count = count / SUMSQ_BLOCK + 1;
	uint16_t *x =
	        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	double *partial = calloc(block_count, sizeof(*partial));
	enum adamw_isa isa = 0;

	(void)state;
	assert_true(x != MAP_FAILED && partial);
	madvise(x, bytes, MADV_HUGEPAGE); /* one huge page of zeros instead of a million faults */
	check_ok(adamw_isa_find(&isa, "auto"));
	x[count - 1] = 0x4000;
	sumsq_blocks(partial, x, count, DTYPE_BF16, isa);
	assert_true(partial[block_count - 1] == 4 && partial[block_count - 2] == 0);
	free(partial);
	munmap(x, bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_fp32_state),
	        cmocka_unit_test(test_bf16_state),
	        cmocka_unit_test(test_8bit_state),
	        cmocka_unit_test(test_sumsq_beyond_32_bits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
