/* ferry bench: runs a benchmark or lists them. */
#include "cli/bench_table.h"
#include "cli/cli.h"

#include "base/err.h"
#include "bench/bench.h"
#include "bench/bench_scaling.h"
#include "host/pool.h"
#include "train/devices.h"

#include <stdio.h>
#include <string.h>

/* Listed here because it takes a configuration, unlike the other benchmarks. */
static const struct bench scaling = {"scaling",
        "planned training step on 1, 2, 4 ... GPUs of machine=FILE (needs no GPU): time, wait for "
        "collectives, memory of a rank; count: maximum GPUs; models: config.json files",
        NULL};

/* Only for a CUDA device. */
static const struct bench gpu = {"gpu",
        "time of start, pinning, copies, launches, host functions and libraries on a machine with a GPU; "
        "count: bytes of a copy",
        NULL};

static const struct bench *row_at(int index)
{
	static const struct bench *const others[] = {&scaling, &gpu};
	int known = 0;

	while (bench_at(known))
		known++;
	return index < known ? bench_at(index) : index < known + 2 ? others[index - known] : NULL;
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

static int check_name(const char *name)
{
	struct str names = {0};
	const struct bench *b;
	int found = 0, err;

	for (int i = 0; (b = row_at(i)); i++) {
		found |= !strcmp(b->name, name);
		str_printf(&names, ", %s", b->name);
	}
	err = str_check(&names);
	if (!err && !found)
		err = err_set(ERR_INPUT, "unknown benchmark '%s'; available: list%s", name, names.data);
	str_free(&names);
	return err;
}

/* With --json the table goes to stderr. */
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

struct gpu_rows {
	const struct config *c;
	json_t *rows;
};

/* Prints each row at once, so that the output shows where a probe hangs. */
static int gpu_row(void *context, const struct cuda_probe_row *row)
{
	struct gpu_rows *g = context;
	json_t *object = json_pack("{s:s, s:f, s:s, s:s}", "name", row->name, "value", row->value, "unit",
	        row->unit, "what", row->what);

	if (row->why)
		json_object_set_new(object, "why", json_string(row->why));
	if (row->verdict)
		json_object_set_new(object, "verdict", json_string(row->verdict));
	if (json_array_append_new(g->rows, object))
		return err_set(ERR_NOMEM, "out of memory for a benchmark's result");
	if (row->why)
		cli_say(g->c, "%-18s %10s %-5s %-4s %s: %s\n", row->name, "-", row->unit, "LOOK", row->what,
		        row->why);
	else
		cli_say(g->c, "%-18s %10.2f %-5s %-4s %s%s%s\n", row->name, row->value, row->unit,
		        !row->verdict                ? ""
		        : strcmp(row->verdict, "ok") ? "LOOK"
		                                     : "ok",
		        row->what, row->verdict && strcmp(row->verdict, "ok") ? ": " : "",
		        row->verdict && strcmp(row->verdict, "ok") ? row->verdict : "");
	fflush(NULL);
	return 0;
}

static int gpu_probe(const struct config *c)
{
	struct gpu_rows g = {.c = c, .rows = json_array()};
	json_t *object = json_pack("{s:O}", "rows", g.rows);
	int rc = object ? devices_cuda_probe(gpu_row, &g, c) : ERR_NOMEM;

	if (!rc && c->json)
		rc = cli_print_json(object);
	json_decref(object);
	json_decref(g.rows);
	return rc;
}

int cli_bench(const struct config *c)
{
	struct bench_args args = {.threads = c->threads > 0 ? (int)c->threads : pool_default_threads(),
	        .count = c->bench_count,
	        .copy_gbps = c->host_copy_gbps,
	        .attention = (enum device_attention)c->attention,
	        .micro_batches = c->gradient_accumulation_steps,
	        .device_budget_bytes = c->vram_budget_bytes > 0 ? c->vram_budget_bytes : 0,
	        .host_budget_bytes = c->ram_budget_bytes > 0 ? c->ram_budget_bytes : 0,
	        .max_grad_norm = c->max_grad_norm,
	        .models = c->bench_models,
	        .tokens = c->bench_tokens,
	        .machine_file = c->machine_file,
	        .tokenizer = c->tokenizer,
	        .data = c->data,
	        .ways = c->bench_ways};
	json_t *result = NULL;
	int err;

	if (strcmp(c->bench_name, "list") == 0)
		return list(c);
	err = check_name(c->bench_name);
	if (err)
		return err;
	devices_register();
	if (!strcmp(c->bench_name, gpu.name))
		return gpu_probe(c);
	err = devices_name(&args.device, c);
	if (!err)
		err = adamw_isa_find(&args.isa, config_text(c, "isa"));
	if (!err && !strcmp(c->bench_name, scaling.name))
		err = bench_scaling(&result, c);
	else if (!err)
		err = bench_run(&result, c->bench_name, &args);
	if (!err)
		err = print_result(c, result);
	json_decref(result);
	return err;
}
