/* Shared by tests of the engine: the device under test, and fresh weights of a model.
 *
 * With FERRY_TEST_CUDA, the tests run on the GPU. Without a GPU they are skipped (exit code 77).
 */
#ifndef FERRY_TESTS_ENGINE_RIG_H
#define FERRY_TESTS_ENGINE_RIG_H

#include "tests/check.h"

#include "base/num.h"
#include "device/backend.h"
#include "offload/engine.h"

#ifdef FERRY_TEST_CUDA
extern const struct backend backend_cuda;
#define TEST_DEVICE "cuda"
#else
#define TEST_DEVICE "host"
#endif

/* The arrays of a micro-batch, which its test keeps. */
#define BATCH_ARRAYS(r)                                                                                      \
	.id = (r)->id, .position = (r)->position, .doc_start = (r)->start, .doc_end = (r)->end,              \
	.target_row = (r)->row, .own = {(r)->label}

static inline int engine_rig_begin(void)
{
	device_register(&backend_host);
#ifdef FERRY_TEST_CUDA
	struct device *device;

	device_register(&backend_cuda);
	if (device_open(&device, TEST_DEVICE, NULL)) {
		print_message("SKIPPED on the GPU: %s\n", err_text());
		return 77;
	}
	device_close(device);
#endif
	return 0;
}

static inline void weights_write(struct engine *e, const struct model *model)
{
	for (int t = 0; t < model->tensor_count; t++) {
		int64_t count = model->tensors[t].count;
		uint16_t *hi = calloc((size_t)count, sizeof(*hi));
		int16_t *lo = calloc((size_t)count, sizeof(*lo));

		for (int64_t i = 0; i < count; i++) {
			uint32_t bits = f32_bits(model_init_value(model, t, i, 5));

			hi[i] = plane_hi(bits);
			lo[i] = plane_lo(bits);
		}
		check_ok(engine_write(e, t, PLANE_HI, 0, count, hi));
		check_ok(engine_write(e, t, PLANE_LO, 0, count, lo));
		free(hi);
		free(lo);
	}
}

#endif
