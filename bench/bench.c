/* The table of benchmarks, and functions that they share. */
#include "bench/bench.h"

#include "base/clock.h"
#include "base/err.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const struct bench table[] = {
        {"adam",
                "AdamW on the CPU with bf16 gradients, compared with in-place memory bandwidth; count: "
                "parameters",
                bench_adam},
        {"adam-f32", "the same with fp32 gradients", bench_adam_f32},
        {"adam-bf16", "the same with bf16 state, rounded stochastically", bench_adam_bf16_state},
        {"adam-8bit", "the same with 8-bit state", bench_adam_8bit_state},
        {"pool", "time that the worker pool needs to hand out calls and tasks; count: calls", bench_pool},
        {"topo", "memory bandwidth of all threads, of each NUMA node, and between nodes; count: seconds",
                bench_topo},
        {"step",
                "training step on the host device, fp32 and offloaded, compared with one matrix product; "
                "models: 15m, 134m, 1b-4l, hybrid; micro_batch_tokens: rows x tokens, as 8x256; ways: bf16, "
                "resident, recompute; count: steps",
                bench_step_model},
        {"kernels",
                "each operation at a model's shapes, compared with the device's memory bandwidth or matrix "
                "products; count: tokens, or micro_batch_tokens: documents x tokens; models: first letters "
                "of the operations to run",
                bench_kernels},
        {"copy",
                "copies between host and device by direction, kind of memory and size; count: bytes of the "
                "largest copy",
                bench_copy},
        {"offload",
                "training step with everything in host memory, with nothing there, and with the GPU memory "
                "filled as in a run, by model and tokens of a micro-batch; count: steps",
                bench_offload},
        {"budget",
                "the same steps with GPU memory budgets from the minimum to the largest useful one; "
                "host_copy_gbps: speed of the link; count: steps; models: tiny, for a quick try",
                bench_budget},
        {"clock",
                "measured step times beside those that ferry plan predicts, with copies throttled to several "
                "rates (on a GPU with 1, 2 and 4 micro-batches); machine_file: file for a description of "
                "this machine; count: steps at each rate; models: tiny, for a quick try",
                bench_clock},
        {"load",
                "loading a bf16 model, compared with reading its files into fresh memory; count: bytes; "
                "models: a model directory instead of generated files",
                bench_load},
        {"load-f32", "the same for an fp32 model", bench_load_f32},
        {"load-nf4", "the same for a bf16 model whose matrices are quantized to nf4 (base_format=nf4)",
                bench_load_nf4},
        {"load-checkpoint", "the same for a ferry checkpoint, with weights and optimizer state",
                bench_load_checkpoint},
        {"save",
                "saving a checkpoint, alone and beside a training step, compared with write and fsync of as "
                "many bytes; count: bytes of state; models: directory to write to instead of the current one",
                bench_save},
        {"tokenize",
                "tokenizing text on one core, with tokenizer=DIR and data=FILE: in documents of 4 KB, 2 MB "
                "at once, and only reading each byte; count: bytes",
                bench_tokenize},
};

enum { TABLE_COUNT = sizeof(table) / sizeof(table[0]) };

const struct bench *bench_at(int index)
{
	return index >= 0 && index < TABLE_COUNT ? &table[index] : NULL;
}

int bench_run(json_t **result, const char *name, const struct bench_args *args)
{
	*result = NULL;
	for (int i = 0; i < TABLE_COUNT; i++)
		if (strcmp(table[i].name, name) == 0)
			return table[i].run(result, args);
	return err_set(ERR_INPUT, "unknown benchmark '%s'", name);
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double bench_median(double *values, int count)
{
	qsort(values, (size_t)count, sizeof(*values), ascending);
	return values[(count - 1) / 2];
}

/* Busy seconds of all processors since the system started (proc_stat(5): all but idle and iowait). */
static double machine_busy_s(void)
{
	FILE *f = fopen("/proc/stat", "re");
	double user = 0, nice = 0, system = 0, irq = 0, softirq = 0;

	if (f && fscanf(f, "cpu %lf %lf %lf %*s %*s %lf %lf", &user, &nice, &system, &irq, &softirq) != 5)
		user = 0;
	if (f)
		fclose(f);
	return (user + nice + system + irq + softirq) / (double)sysconf(_SC_CLK_TCK);
}

double bench_cpu_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int bench_batch_find(int64_t *rows, int64_t *row_tokens, const char *tokens)
{
	int used = 0;

	if (!tokens || !*tokens)
		return 0;
	if (sscanf(tokens, "%7" SCNd64 "x%7" SCNd64 "%n", rows, row_tokens, &used) != 2 || tokens[used] ||
	        *rows < 1 || *row_tokens < 2)
		return err_set(
		        ERR_INPUT, "micro_batch_tokens: '%s' must be rows x tokens, such as 8x256", tokens);
	return 0;
}

void bench_load_begin(struct bench_load *load)
{
	*load = (struct bench_load){machine_busy_s(), bench_cpu_s(), clock_now_ns()};
}

double bench_load_end(const struct bench_load *load)
{
	double seconds = (double)(clock_now_ns() - load->at_ns) * 1e-9;
	double others = machine_busy_s() - load->busy_s - (bench_cpu_s() - load->own_s);

	return others > 0 && seconds > 0 ? others / seconds : 0;
}
