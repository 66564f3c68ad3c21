/* Benchmarks. Each measures one thing and compares it with the machine's limit, measured in the same run.
 *
 * A benchmark is a row of a table: `ferry bench NAME` runs one, `ferry bench list` prints the rows. It takes
 * seconds, uses its own memory, prints nothing, and returns one JSON object with units in the keys. Compared
 * things are measured in turn, round by round, so that other load affects both. Figures are medians over
 * rounds; ratios are medians of the ratios within a round.
 */
#ifndef FERRY_BENCH_BENCH_H
#define FERRY_BENCH_BENCH_H

#include "offload/plan.h"
#include "optim/adamw_options.h"

#include <jansson.h>
#include <stdint.h>

struct bench_args {
	int threads;        /* maximum number of threads, >= 1 */
	enum adamw_isa isa; /* for kernels with several instruction sets */
	int64_t count;      /* size of the work, in the benchmark's own unit; 0: its default */
	const char *device; /* for benchmarks of a device: a name for device_open; NULL: "host". The caller
	                       registers other devices */
	enum device_attention attention; /* as in device_options */
	double copy_gbps; /* throttle of the host device's copies each way, 1e9 bytes/s; 0: none */
	/* `offload`: micro-batches of a step (0: 1); device memory to fill (0: all that is free); the norm
	 * for clipping (0: none, and updates run inside backward) */
	int64_t micro_batches, device_budget_bytes;
	int64_t host_budget_bytes; /* `offload`: maximum host memory; 0: all that is available */
	double max_grad_norm;
	const char *ways; /* `offload`, `step`: ways, separated by commas; NULL, "" or "all": all (`step`:
	                     none) */
	const char *machine_file;     /* `clock`: file for a description of this machine; NULL: none */
	const char *tokenizer, *data; /* `tokenize`: a directory or tokenizer.json; a file of text */
	const char *models, *tokens;  /* `offload`: names, and tokens of a micro-batch, separated by commas;
	                                 `step`, `kernels`: rows x tokens; `load`: a directory; `kernels`:
	                                 begin of the operations' names. NULL or "": the default */
};

struct bench {
	const char *name, *what;
	/* The caller frees *result with json_decref. 0 or ERR_*. */
	int (*run)(json_t **result, const struct bench_args *args);
};

/* Rows in order; NULL after the last. */
const struct bench *bench_at(int index);

/* Runs the benchmark of this name. ERR_INPUT, with the list, if there is none. */
int bench_run(json_t **result, const char *name, const struct bench_args *args);

/* ---- for benchmarks ---- */

/* The median of `count` > 0 values (the lower of two middle ones); sorts them. */
double bench_median(double *values, int count);

/* Parses "8x256" into rows and their tokens. NULL and "" change nothing. ERR_INPUT for any other text. */
int bench_batch_find(int64_t *rows, int64_t *row_tokens, const char *tokens);

/* CPU seconds of this process so far; other load changes them least. */
double bench_cpu_s(void);

/* Bandwidth as JSON, in the form of bench topo. */
struct bandwidth;
json_t *bench_bandwidth_json(const struct bandwidth *bandwidth);

/* The average number of cores that other processes kept busy between begin and end, to recognise figures of a
 * busy machine. 0 if /proc/stat cannot be read. */
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
int bench_load_nf4(json_t **result, const struct bench_args *args);
int bench_load_checkpoint(json_t **result, const struct bench_args *args);
int bench_save(json_t **result, const struct bench_args *args);

/* A training step of a Llama-style model of any shape. */
struct bench_shape {
	int64_t hidden, layers, heads, intermediate, vocab, row_tokens, rows;
	int tied;
	int64_t kv_heads; /* 0: as many as heads */
	int64_t delta_heads; /* of Qwen3.5's linear attention, of 128, in three of four layers; 0: Llama's layers */
};
struct bench_variant {
	enum dtype dtype;
	int offload; /* 1: weights, gradients and optimizer state live in host memory */
	enum activation_policy activations;
};
int bench_step(json_t **result, const struct bench_args *args, const struct bench_shape *shape,
        struct bench_variant variant);
/* The same with the model, rows and variant of args. */
int bench_step_model(json_t **result, const struct bench_args *args);
int bench_tokenize(json_t **result, const struct bench_args *args);

#endif
