/* Benchmarks: each measures one thing and puts the limit of the machine, measured in the same run, beside it.
 *
 * A benchmark is a row of a table: `ferry bench NAME` runs one, `ferry bench list` prints the rows. It takes
 * seconds, works on memory of its own, prints nothing, and gives one JSON object with units in the keys. What
 * is compared is measured in turn, round by round, so that a neighbour's load falls on both; figures are
 * medians over rounds, ratios are medians of the ratios within a round.
 */
#ifndef FERRY_BENCH_BENCH_H
#define FERRY_BENCH_BENCH_H

#include "offload/plan.h"
#include "optim/adamw_options.h"

#include <jansson.h>
#include <stdint.h>

struct bench_args {
	int threads;        /* most threads to measure with, >= 1 */
	enum adamw_isa isa; /* for kernels that know several */
	int64_t count;      /* size of the work, in the benchmark's own unit; 0: its default */
	const char *device; /* of the benchmarks of a device, as device_open names it; NULL: "host". Devices
	                       other than the host's are registered by the caller */
	double copy_gbps;   /* throttle of the host device's copies each way, 1e9 bytes/s; 0: none */
	/* of `offload`: micro-batches of a step (0: 1), the norm that gradients are clipped to (0: they are
	 * not, and updates run inside backward), and what of the device may be filled (0: what is free) */
	int64_t micro_batches, device_budget_bytes;
	int64_t host_budget_bytes; /* of `offload`: how much host memory it may take; 0: what is available */
	double max_grad_norm;
	const char *ways; /* of `offload` and `step`: which ways, separated by commas; NULL, "" or "all":
	                     all, of `step` none */
	const char *machine_file;     /* of `clock`: where to describe this machine; NULL: nowhere */
	const char *tokenizer, *data; /* of `tokenize`: a directory or tokenizer.json, and a file of text */
	const char *models, *tokens; /* of `offload`: names, and tokens of a micro-batch, separated by commas;
	                                of `step` and `kernels` rows x tokens; of `load`: a directory; of
	                                `kernels`: how their names begin. NULL or
	                                "": its choice */
};

struct bench {
	const char *name, *what;
	/* *result is the caller's, to json_decref. 0 or ERR_*. */
	int (*run)(json_t **result, const struct bench_args *args);
};

/* Rows in order; NULL behind the last. */
const struct bench *bench_at(int index);

/* Runs the one of that name; ERR_INPUT, with the list, where there is none. */
int bench_run(json_t **result, const char *name, const struct bench_args *args);

/* ---- for benchmarks ---- */

/* The middle one of `count` > 0 values (of two middle ones the lower); sorts them. */
double bench_median(double *values, int count);

/* "8x256" into rows and their tokens; NULL and "" change nothing. ERR_INPUT for anything else. */
int bench_batch_find(int64_t *rows, int64_t *row_tokens, const char *tokens);

/* CPU seconds of this process so far: what neighbours change least. */
double bench_cpu_s(void);

/* What was measured of memory, as bench topo gives it. */
struct bandwidth;
json_t *bench_bandwidth_json(const struct bandwidth *bandwidth);

/* How many cores other processes kept busy between begin and end; figures of a busy machine are to be told
 * apart. 0 where /proc/stat cannot be read. */
struct bench_load {
	double busy_s, own_s;
	int64_t at_ns;
};
void bench_load_begin(struct bench_load *load);
double bench_load_end(const struct bench_load *load);

/* The benchmarks, by file. */
int bench_adam(json_t **result, const struct bench_args *args);
int bench_adam_f32(json_t **result, const struct bench_args *args);
int bench_adam_bf16_state(json_t **result, const struct bench_args *args);
int bench_adam_8bit_state(json_t **result, const struct bench_args *args);
int bench_pool(json_t **result, const struct bench_args *args);
int bench_topo(json_t **result, const struct bench_args *args);
int bench_kernels(json_t **result, const struct bench_args *args);
int bench_copy(json_t **result, const struct bench_args *args);
int bench_offload(json_t **result, const struct bench_args *args);
int bench_budget(json_t **result, const struct bench_args *args);
int bench_clock(json_t **result, const struct bench_args *args);
int bench_load(json_t **result, const struct bench_args *args);
int bench_load_f32(json_t **result, const struct bench_args *args);
int bench_load_checkpoint(json_t **result, const struct bench_args *args);
int bench_save(json_t **result, const struct bench_args *args);

/* A training step of a Llama-style model of any shape. */
struct bench_shape {
	int64_t hidden, layers, heads, intermediate, vocab, row_tokens, rows;
	int tied;
	int64_t kv_heads; /* 0: as many as heads */
};
struct bench_variant {
	enum dtype dtype;
	int offload; /* 1: weights, gradients and optimizer state live in host memory */
	enum activation_policy activations;
};
int bench_step(json_t **result, const struct bench_args *args, const struct bench_shape *shape,
        struct bench_variant variant);
/* Of the model, rows and variant that args name. */
int bench_step_model(json_t **result, const struct bench_args *args);
int bench_tokenize(json_t **result, const struct bench_args *args);

#endif
