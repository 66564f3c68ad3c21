/* `ferry bench scaling`: plans how a training step scales over the GPUs of machines of one kind. Needs no
 * GPU. */
#ifndef FERRY_BENCH_BENCH_SCALING_H
#define FERRY_BENCH_BENCH_SCALING_H

#include "base/json.h"
#include "config/config.h"

/* Makes one row for each model (bench_models: paths of config.json, separated by commas) and number of GPUs:
 * 1, 2, 4 ... up to bench_count, with the same tokens on each. It plans and simulates one rank, since all do
 * the same. If sharding_strategy or cpu_offload is not given, it takes the fastest value that fits. The
 * caller frees *result. ERR_INPUT (no machine, missing models), ERR_NOMEM. */
int bench_scaling(json_t **result, const struct config *config);

#endif
