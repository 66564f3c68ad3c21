/* Runs the cases of ops_check.h in several variants, which must give the same bits.
 *
 * On the host, the variants are pools of several sizes. With FERRY_TEST_CUDA, the op runs several times on
 * the CUDA device or its emulator.
 */
#ifndef FERRY_TESTS_OPS_RUN_H
#define FERRY_TESTS_OPS_RUN_H

#include "base/mem.h"
#include "device/op.h"
#include "tests/check.h"

enum { VARIANTS = 4 };

/* A tensor's bytes on the host with guards, and their address for the op. */
struct block {
	uint8_t *host;
	int64_t bytes;
	dev_addr at;
};

#ifdef FERRY_TEST_CUDA

#include "device/backend.h"

extern const struct backend backend_cuda;

/* Of the emulator: sets the order of blocks and threads. Absent on a GPU. */
void simt_set_order(uint64_t seed) __attribute__((weak));

enum { RUN_ARENA_BYTES = 256 << 20 };

static struct device *run_device;
static struct stream *run_stream;
static dev_addr run_arena;
static int64_t run_used_bytes;

static inline int run_open(void)
{
	const char *attention = getenv("FERRY_TEST_ATTENTION");
	const struct device_options options = {.check_races = 1,
	        .attention = attention && !strcmp(attention, "cudnn") ? DEVICE_ATTENTION_CUDNN
	                                                              : DEVICE_ATTENTION_FERRY};
	int rc;

	device_register(&backend_cuda);
	rc = device_open(&run_device, "cuda", &options);
	if (rc && !simt_set_order) {
		print_message("SKIPPED on the GPU: %s\n", err_text());
		exit(77);
	}
	if (!rc)
		rc = device_arena_open(run_device, &run_arena, RUN_ARENA_BYTES);
	if (!rc)
		rc = stream_open(&run_stream, run_device, QUEUE_COMPUTE);
	if (rc)
		print_error("%s\n", err_text());
	return rc;
}

static inline void run_close(void)
{
	stream_close(run_stream);
	device_close(run_device);
}

/* Gives a block an address until the next case begins. Blocks begin at any multiple of 16 bytes, with gaps
 * between them: an op must not rely on more alignment. */
static inline void run_place(struct block *b)
{
	b->at = dev_at(run_arena, run_used_bytes);
	run_used_bytes += (b->bytes + 15) / 16 * 16 + 16;
	assert_true(run_used_bytes <= RUN_ARENA_BYTES);
}

static inline void run_forget_places(void)
{
	run_used_bytes = 0;
}

static inline void run_variant(const struct op *op, int variant, struct block *blocks, int block_count)
{
	if (simt_set_order)
		simt_set_order((uint64_t)variant);
	for (int i = 0; i < block_count; i++)
		check_ok(stream_copy_in(run_stream, blocks[i].at, blocks[i].host, blocks[i].bytes));
	check_ok(stream_op(run_stream, op));
	for (int i = 0; i < block_count; i++)
		check_ok(stream_copy_out(run_stream, blocks[i].host, blocks[i].at, blocks[i].bytes));
	check_ok(stream_sync(run_stream));
}

#else

#include "host/cpu/cpu.h"

static struct pool *case_pools[VARIANTS];
static struct cpu_context case_contexts[VARIANTS];

static inline int run_open(void)
{
	static const int threads[VARIANTS] = {1, 2, 3, 5};

	for (int i = 0; i < VARIANTS; i++) {
		if (pool_open(&case_pools[i], threads[i]) < 0)
			return -1;
		case_contexts[i] = (struct cpu_context){.pool = case_pools[i]};
	}
	return 0;
}

static inline void run_close(void)
{
	for (int i = 0; i < VARIANTS; i++) {
		cpu_context_free(&case_contexts[i]);
		pool_close(case_pools[i]);
	}
}

static inline void run_place(struct block *b)
{
	b->at = (dev_addr){(uint64_t)(uintptr_t)b->host};
}

static inline void run_forget_places(void) {}

static inline void run_variant(const struct op *op, int variant, struct block *blocks, int block_count)
{
	(void)blocks;
	(void)block_count;
	check_ok(cpu_op(&case_contexts[variant], op));
}

#endif
#endif
