/* ferry bench: one named benchmark, or the list of them. */
#include "cli/bench_table.h"
#include "cli/cli.h"

#include "base/err.h"
#include "bench/bench.h"
#include "bench/bench_scaling.h"
#include "host/pool.h"
#include "train/devices.h"

#include <stdio.h>
#include <string.h>

/* It plans, and so stands above what bench/ knows. */
static const struct bench scaling = {"scaling",
        "a training step on 1, 2, 4 ... GPUs of a machine=FILE, without any: time, what of collectives "
        "shows, "
        "memory of a rank; count: most GPUs; models: config.json files",
        NULL};

static const struct bench *row_at(int index)
{
	return bench_at(index) ? bench_at(index) : index && bench_at(index - 1) ? &scaling : NULL;
}

static int list(const struct config *c)
{
	json_t *names = json_array(), *object = json_pack("{s:O}", "benchmarks", names);
	const struct bench *b;
	int err = 0;

	for (int i = 0; (b = row_at(i)); i++) {
		if (!c->json)
			printf("%-18s %s\n", b->name, b->what);
		json_array_append_new(names, json_pack("{s:s, s:s}", "name", b->name, "what", b->what));
	}
	if (c->json)
		err = object ? cli_print_json(object) : err_set(ERR_NOMEM, "out of memory for a list");
	json_decref(object);
	json_decref(names);
	return err;
}

/* With --json the table goes to stderr, for whoever reads along. */
static int print_result(const struct config *c, const json_t *result)
{
	struct str table = {0};
	int rc;

	bench_table_write(&table, result);
	rc = str_check(&table);
	if (!rc)
		cli_say(c, "%s", table.data);
	str_free(&table);
	return rc || !c->json ? rc : cli_print_json(result);
}

static const char *const isa_names[] = {
        [CONFIG_ISA_AUTO] = "auto",
        [CONFIG_ISA_SCALAR] = "scalar",
        [CONFIG_ISA_AVX2] = "avx2",
        [CONFIG_ISA_AVX512] = "avx512",
        [CONFIG_ISA_NEON] = "neon",
};

int cli_bench(const struct config *c)
{
	struct bench_args args = {.threads = c->threads > 0 ? (int)c->threads : pool_default_threads(),
	        .count = c->bench_count,
	        .copy_gbps = c->host_copy_gbps,
	        .micro_batches = c->gradient_accumulation_steps,
	        .device_budget_bytes = c->vram_budget_bytes > 0 ? c->vram_budget_bytes : 0,
	        .max_grad_norm = c->max_grad_norm,
	        .models = c->bench_models,
	        .tokens = c->bench_tokens};
	json_t *result = NULL;
	int err;

	if (strcmp(c->bench_name, "list") == 0)
		return list(c);
	devices_register();
	err = devices_name(&args.device, c);
	if (!err)
		err = adamw_isa_find(&args.isa, isa_names[c->isa]);
	if (!err && !strcmp(c->bench_name, scaling.name))
		err = bench_scaling(&result, c);
	else if (!err)
		err = bench_run(&result, c->bench_name, &args);
	if (!err)
		err = print_result(c, result);
	json_decref(result);
	return err;
}
