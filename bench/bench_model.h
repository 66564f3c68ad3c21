/* A model and rows for benchmarks of training: random weights, and one fixed batch that can be learned. */
#ifndef FERRY_BENCH_BENCH_MODEL_H
#define FERRY_BENCH_BENCH_MODEL_H

#include "bench/bench.h"
#include "offload/engine.h"

/* The fixed batch: shape->rows documents; every token but a row's last has a target. */
struct bench_rows {
	struct host_batch batch;
	int32_t *arrays; /* one block of six */
};
int bench_rows_open(struct bench_rows *rows, const struct bench_shape *shape);
void bench_rows_close(struct bench_rows *rows);

/* The default model of training benchmarks on the host: 30M parameters, or with models "tiny" one for tests.
 * ERR_INPUT for other names. */
int bench_shape_find(const struct bench_shape **shape, const char *models);

/* The options of a usual run: bf16, everything offloaded and recomputed, two units prefetched, clipped. The
 * caller changes what it measures. */
struct engine_options bench_engine_options(const struct model *model, const struct bench_rows *rows,
        struct device *device, struct pool *pool, enum adamw_isa isa);

/* The machine's speed for a choice (placement/choice.h). Assumed on a device without bytes, or with too
 * little memory to measure. The options' device must have no open arena. */
int bench_speed_find(
        struct device_speed *speed, const struct engine_options *options, const struct bench_args *args);

/* A Llama-style model of this shape; model_close when done. */
int bench_model_open(struct model **model, const struct bench_shape *shape);

/* Writes the planes of all weights: norms 1, the rest uniform with the usual standard deviation. Numbers
 * repeat from one table of prime length, because drawing each would take longer than the steps. */
int bench_weights_write(struct engine *engine, const struct model *model);

#endif
