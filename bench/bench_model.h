/* A model and rows for a benchmark of training: random weights, one fixed batch that can be learned. */
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

/* A Llama-style model of this shape; model_close when done. */
int bench_model_open(struct model **model, const struct bench_shape *shape);

/* Writes the planes of all weights: norms 1, the rest uniform with the usual standard deviation. Numbers come
 * from one table of a prime length, over and over: drawing each anew would take longer than the steps. */
int bench_weights_write(struct engine *engine, const struct model *model);

#endif
