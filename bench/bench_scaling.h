/* `ferry bench scaling`: how a training step scales over the GPUs of machines of one kind, without any. */
#ifndef FERRY_BENCH_BENCH_SCALING_H
#define FERRY_BENCH_BENCH_SCALING_H

#include "base/json.h"
#include "config/config.h"

/* One row for each model (bench_models: paths of config.json, separated by commas) and number of GPUs: 1, 2,
 * 4
 * ... up to bench_count, each with as many tokens. One rank is planned and simulated, since all do the same;
 * of the strategies that are not given (sharding_strategy, cpu_offload) the fastest that fits is taken.
 * *result is the caller's. ERR_INPUT (no machine, models that are not there), ERR_NOMEM. */
int bench_scaling(json_t **result, const struct config *config);

#endif
