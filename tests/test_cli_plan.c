/* links: cli */
/* not: asan */
/* Choosing a plan is slow there: test_plan, test_choose and test_plan_draws run its parts. */
/* ferry plan for described machines: examples/machines, and descriptions with mistakes. */
#include "tests/check.h"
#include "tests/plan_examples.h"
#include "tests/sparing.h"

#include "device/backend.h"

static void test_every_example_is_planned_for(void **state)
{
	char **names;
	size_t count;

	(void)state;
	assert_int_equal(file_list_dir(machines, &names, &count), 0);
	assert_true(count > 5);
	for (size_t i = 0; i < count; i++) {
		json_t *plan;

		if (!strstr(names[i], ".yaml"))
			continue;
		assert_ferry_json(&plan,
		        "plan %s/llama-2-7b.json machine=%s/%s max_length=512 vram_budget=off --json", models,
		        roomy, names[i]);
		assert_true(real_of(plan, "step_ms") > 0 && real_of(plan, "tokens_per_s") > 0);
		json_decref(plan);
	}
	file_list_free(names, count);
}

/* A rank of eight has an eighth of the store, and the host holds all eight. */
static void test_ranks_share_a_machine(void **state)
{
	json_t *one = plan_of("llama-2-7b", "a100-80-x8", "max_length=512 vram_budget=off world_size=1"),
	       *eight = plan_of("llama-2-7b", "a100-80-x8", "max_length=512 vram_budget=off"),
	       *two = plan_of("llama-2-7b", "a100-80-x8",
	               "max_length=512 vram_budget=off world_size=16 sharding_strategy=HYBRID_SHARD");
	double whole = real_of(one, "store_bytes"), part = real_of(eight, "store_bytes"), nvls;

	(void)state;
	assert_true(8 * part >= whole && 8 * part < whole * 1.001);
	assert_true(real_of(eight, "comm_ms") > real_of(one, "comm_ms"));
	/* all eight share the memory of both sockets; one alone has one socket's */
	assert_true(fabs(real_of(eight, "cpu_ms") / real_of(one, "cpu_ms") - 0.5) < 0.01);
	/* NCCL takes GPU memory for each group of ranks: all of them, or those of a machine and their likes
	 */
	nvls = real_of(one, "reserve_bytes") + RESERVE_NVLS_BYTES;
	assert_true(real_of(eight, "reserve_bytes") == nvls + RESERVE_NCCL_BYTES);
	assert_true(real_of(two, "reserve_bytes") == nvls + 2.0 * RESERVE_NCCL_BYTES);
	json_decref(two);
	json_decref(one);
	json_decref(eight);
}

/* From 1 GPU to 1,024: each row is what a plan of its settings says, and what a rank holds of the model
 * halves as they double; where only some of collectives can hide, some shows, and more between machines. */
static void test_scaling(void **state)
{
	double before_bytes = 0, node_exposed_ms = 0;
	json_t *bench, *row, *plan;
	size_t i;

	(void)state;
	assert_ferry_json(&bench,
	        "bench scaling machine=%s/a100-80-x8.yaml models=%s/llama-2-7b.json "
	        "sharding_strategy=FULL_SHARD cpu_offload=on micro_batch_tokens=512 --json",
	        machines, models);
	assert_int_equal(json_array_size(json_object_get(bench, "scaling")), 11);
	json_array_foreach(json_object_get(bench, "scaling"), i, row)
	{
		/* without the write buffer of a save: each rank has one */
		double host_bytes = real_of(row, "host_bytes") - (double)(32 << 20),
		       exposed_ms = real_of(row, "exposed_ms");

		assert_int_equal((int)real_of(row, "gpus"), 1 << i);
		assert_true(json_is_true(json_object_get(row, "fits")));
		assert_true(exposed_ms >= 0 && exposed_ms <= real_of(row, "collective_ms"));
		assert_true(real_of(row, "step_ms") >= real_of(row, "collective_ms"));
		assert_true(!i == !(real_of(row, "sent_node_bytes") > 0));
		assert_true((i > 3) == (real_of(row, "sent_network_bytes") > 0));
		assert_true(i < 2 || (host_bytes < 0.56 * before_bytes));
		if (i == 3)
			node_exposed_ms = exposed_ms;
		before_bytes = host_bytes;
	}
	row = json_array_get(json_object_get(bench, "scaling"), 10);
	assert_true(real_of(row, "exposed_ms") > node_exposed_ms);
	assert_true(real_of(row, "efficiency") > 0.1 && real_of(row, "tokens_per_s") > 0);
	plan = plan_of("llama-2-7b", "a100-80-x8",
	        "world_size=1024 max_length=512 vram_budget=off activations=keep");
	assert_true(real_of(plan, "step_ms") == real_of(row, "step_ms"));
	assert_true(real_of(plan, "device_bytes") == real_of(row, "device_bytes"));
	assert_true(real_of(plan, "exposed_collective_ms") == real_of(row, "exposed_ms"));
	json_decref(plan);
	json_decref(bench);
	assert_ferry(2, NULL, "bench scaling models=%s/llama-2-7b.json", models);
	assert_non_null(strstr(ferry_said(), "machine=FILE"));
}

static double sum_of(const json_t *object)
{
	const char *key;
	json_t *value;
	double sum = 0;

	json_object_foreach((json_t *)object, key, value) sum += json_number_value(value);
	return sum;
}

/* Nothing is left out of the tables, and nothing counted twice. */
static void test_parts_make_the_whole(void **state)
{
	static const char *const rows[][2] = {{"h100-80-x8", "prefetch_units=2"},
	        {"h100-80-x8", "vram_budget=off activations=offload"},
	        {"a100-80-x8", "gradient_accumulation_steps=2 schedule=micro_batch_major prefetch_units=2"},
	        {"h200", "cpu_offload=off vram_budget=off"},
	        {"h100-80-x8",
	                "eval_split=0.1 per_device_eval_batch_size=64 sample_prompt=hi vram_budget=off"}};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i += (size_t)sparing(2)) {
		char more[200];
		json_t *plan, *memory;

		snprintf(more, sizeof(more), "max_length=512 %s", rows[i][1]);
		plan = plan_of("llama-2-7b", rows[i][0], more);
		memory = json_object_get(plan, "memory");
		assert_true(
		        sum_of(json_object_get(plan, "parameters_by_part")) == real_of(plan, "parameters"));
		assert_true(sum_of(json_object_get(memory, "device")) + real_of(memory, "device_gap_bytes") +
		                    real_of(memory, "device_eval_bytes") ==
		            real_of(plan, "arena_bytes"));
		assert_true((real_of(memory, "host_eval_bytes") > 0) == !!strstr(more, "eval_split"));
		assert_true(real_of(memory, "device_gap_bytes") >= 0);
		assert_true(sum_of(json_object_get(memory, "host")) + real_of(memory, "host_gap_bytes") +
		                    real_of(memory, "host_eval_bytes") ==
		            real_of(plan, "host_bytes"));
		assert_true(real_of(memory, "host_gap_bytes") >= 0);
		assert_true(real_of(memory, "device_gap_bytes") + real_of(memory, "host_gap_bytes") <
		            0.1 * real_of(plan, "arena_bytes"));
		json_decref(plan);
	}
}

/* Rows of a micro-batch do not attend to each other: eight of them compute for as long as eight times one. */
static void test_rows_attend_to_themselves(void **state)
{
	static const char *const settings[] = {
	        "max_length=16384 vram_budget=off per_device_train_batch_size=1",
	        "max_length=16384 vram_budget=off per_device_train_batch_size=8"};
	double ms[2];

	(void)state;
	for (int i = 0; i < 2; i++) {
		json_t *plan = plan_of("llama-2-7b", "h200", settings[i]);

		ms[i] = real_of(plan, "compute_ms");
		json_decref(plan);
	}
	assert_true(ms[1] > 7.5 * ms[0] && ms[1] < 8.05 * ms[0]);
}

/* No step is shorter than its bounds in the output. */
static void bound_hold(const char *model, const char *machine, const char *settings, double within)
{
	json_t *plan = plan_of_roomy(model, machine, settings);
	double step = real_of(plan, "step_ms"), bound = real_of(plan, "bound_ms");

	assert_true(bound > 0 && step >= 0.9999 * bound);
	assert_true(step >= real_of(json_object_get(plan, "bus"), "ms"));
	if (!(step <= within * bound))
		fail_msg("%s on %s, %s: %.1f ms, the bound is %.1f ms by %s", model, machine, settings, step,
		        bound, json_string_value(json_object_get(plan, "bound_by")));
	json_decref(plan);
}

/* Streaming hides nearly all that can be hidden, with clipping and with updates inside backward. */
static void test_no_step_beats_its_bound(void **state)
{
	static const char *const names[] = {"llama-2-7b", "llama-2-13b", "llama-2-70b"},
	                         *const kinds[] = {"a100-80-x8", "gh200", "h100-80-x8", "h200", "pc-rtx-4090",
	                                 "pc-rtx-5090"},
	                         *const updates[] = {"", "max_grad_norm=0 skip_nonfinite=off"};
	enum { MODELS = SANITIZED ? 1 : 3, KINDS = SANITIZED ? 2 : 6 };

	(void)state;
	for (int model = 0; model < MODELS; model++)
		for (int kind = model % 2; kind < KINDS; kind += 2) {
			char settings[200];

			snprintf(settings, sizeof(settings), "max_length=4096 prefetch_units=2 %s",
			        updates[(model + model / 2 + kind / 2) % 2]);
			bound_hold(names[model], kinds[kind], settings, 1.05);
		}
	bound_hold("llama-2-7b", "pc-rtx-4090", "max_length=64 backward_prefetch=NO_PREFETCH", 9);
	bound_hold("llama-2-7b", "pc-rtx-4090",
	        "max_length=8192 vram_budget=off schedule=micro_batch_major "
	        "gradient_accumulation_steps=2",
	        1.05);
}

/* Byte for byte accelerate's own numbers (tests/golden/make_estimate_golden.py), whatever head or activation
 * a BERT has. */
static void test_weights_are_what_accelerate_counts(void **state)
{
	char path[600], dir[300];
	json_t *golden, *row;
	size_t i;

	(void)state;
	snprintf(path, sizeof(path), "%s/../../tests/golden/estimate_golden.json", models);
	assert_int_equal(json_read_file(&golden, path, 1 << 20), 0);
	snprintf(dir, sizeof(dir), "%s/estimate.json", work_dir);
	json_array_foreach(json_object_get(golden, "models"), i, row)
	{
		const json_t *adam = json_object_get(row, "adam_bytes"), *rows, *full, *half;
		json_t *plan;

		if (!strcmp(json_string_value(json_object_get(json_object_get(row, "config"), "model_type")),
		            "bert")) {
			const char *head = i % 2 ? "BertForMaskedLM" : "BertForSequenceClassification";

			json_object_set_new(
			        json_object_get(row, "config"), "architectures", json_pack("[s]", head));
			json_object_set_new(
			        json_object_get(row, "config"), "hidden_act", json_string("mish"));
		}
		assert_int_equal(json_dump_file(json_object_get(row, "config"), dir, 0), 0);
		assert_ferry_json(&plan, "plan %s --estimate --json", dir);
		rows = json_object_get(plan, "estimate");
		full = json_array_get(rows, 0);
		half = json_array_get(rows, 1);
		if (!(real_of(full, "total_bytes") == real_of(row, "total_bytes") &&
		            real_of(full, "largest_layer_bytes") == real_of(row, "largest_layer_bytes") &&
		            real_of(full, "adam_bytes") == real_of(adam, "float32") &&
		            real_of(half, "adam_bytes") == real_of(adam, "float16") &&
		            2 * real_of(half, "total_bytes") == real_of(row, "total_bytes")))
			fail_msg("%s: %s", json_string_value(json_object_get(row, "name")), ferry_said());
		assert_int_equal(json_array_size(rows), 4);
		json_decref(plan);
	}
	assert_true(i >= 12);
	json_decref(golden);
	assert_ferry(0, NULL, "plan %s --estimate", dir);
	assert_ferry(2, NULL, "plan %s/absent.json --estimate", work_dir);
}

/* A box for each operation that ran, in the row of its queue, where boxes do not overlap; rows have names. */
static void test_trace_of_a_plan(void **state)
{
	double end_us[8] = {0}, busy_us[8] = {0};
	json_t *plan, *trace, *event;
	int names = 0, boxes = 0;
	char path[300];
	size_t i;

	(void)state;
	snprintf(path, sizeof(path), "%s/plan.json", work_dir);
	assert_ferry_json(&plan,
	        "plan %s/llama-2-7b.json machine=%s/h200.yaml max_length=512 vram_budget=off trace_file=%s "
	        "--json",
	        models, machines, path);
	assert_int_equal(json_read_file(&trace, path, 64 << 20), 0);
	json_array_foreach(json_object_get(trace, "traceEvents"), i, event)
	{
		int row = (int)real_of(event, "tid");
		double begin;

		assert_true(row >= 0 && row < 8);
		if (!strcmp(json_string_value(json_object_get(event, "ph")), "M")) {
			names += !strcmp(json_string_value(json_object_get(event, "name")), "thread_name");
			continue;
		}
		assert_string_equal(json_string_value(json_object_get(event, "ph")), "X");
		begin = real_of(event, "ts");
		assert_true(real_of(event, "dur") >= 0 && begin >= end_us[row] - 1e-3);
		end_us[row] = begin + real_of(event, "dur");
		busy_us[row] += real_of(event, "dur");
		boxes++;
	}
	assert_int_equal(names, 5);
	assert_true(boxes > 300);
	assert_true(
	        fabs(busy_us[0] / 1e3 - real_of(plan, "compute_ms")) <= 1e-3 * real_of(plan, "compute_ms"));
	json_decref(trace);
	json_decref(plan);
	assert_ferry(
	        2, NULL, "plan %s/llama-2-7b.json trace_file=%s", models, path); /* it is there already */
	assert_ferry(2, NULL, "plan %s/llama-2-7b.json trace_file=%s/absent/x.json", models, work_dir);
}

/* The settings and the published figures of docs/results/plans.md: between steps, and at most. */
static void test_less_than_fsdp_was_seen_to_take(void **state)
{
	static const char same[] = "max_length=1024 max_grad_norm=0 skip_nonfinite=off optimizer_state=bf16 "
	                           "vram_budget=off activations=keep";
	static const struct {
		const char *model;
		int batch;
		const char *offload;
		double valley, peak; /* 1e9 bytes */
	} rows[] = {{"llama-2-7b", 10, "off", 8, 74}, {"llama-2-7b", 10, "on", 1.4, 68.7},
	        {"llama-2-70b", 2, "on", 0.3, 72.3}};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		char settings[300];
		json_t *plan;

		snprintf(settings, sizeof(settings), "%s per_device_train_batch_size=%d cpu_offload=%s", same,
		        rows[i].batch, rows[i].offload);
		plan = plan_of(rows[i].model, "a100-80-x8", settings);
		/* PyTorch counts its allocator's memory, not the memory of libraries */
		assert_true(real_of(plan, "valley_bytes") - real_of(plan, "reserve_bytes") <
		            0.9e9 * rows[i].valley);
		assert_true(real_of(plan, "device_bytes") < 0.9e9 * rows[i].peak);
		json_decref(plan);
	}
}

/* Writes a description of a machine, with lines added to its gpu and host. */
static void machine_changed(char *path, size_t bytes, const char *gpu, const char *host)
{
	char text[1000];

	snprintf(path, bytes, "%s/changed.yaml", work_dir);
	snprintf(text, sizeof(text),
	        "name: one\ngpus: 1\ngpu:\n  memory: 81559MiB\n  bf16_tflops: 989\n  fp32_tflops: 67\n"
	        "  memory_gbps: 3350\n  h2d_gbps: 53\n  d2h_gbps: 53\n%shost:\n  memory: 512GiB\n"
	        "  memory_gbps: 460\n%s",
	        gpu, host);
	check_ok(file_write_all(path, text, strlen(text)));
}

/* Each figure of a machine's clock does what it says. */
static void test_the_clock_follows_the_machine(void **state)
{
	static const struct {
		const char *gpu, *host, *what;
		double least, most; /* of the changed figure, by the unchanged one */
	} rows[] = {
	        {"", "", "compute_ms", 1, 1},
	        {"  attention_tflops: 10\n", "", "compute_ms", 1.02, 9},
	        {"  attention_tflops: 400\n  attention_grad_tflops: 10\n", "", "compute_ms", 1.1, 9},
	        {"  launch_us: 100\n", "", "compute_ms", 1.1, 9},
	        {"  call_us: 10000\n", "", "cpu_ms", 1.1, 9},
	        {"", "  copies_beside_update: 0.1\n", "step_ms", 1.01, 9},
	        {"", "  sockets: 2\n", "cpu_ms", 1.9, 2.1},
	        {"", "  pin_gbps: 1\n", "pin_s", 3.9, 4.1},
	};
	json_t *base = NULL;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		char path[300];
		json_t *plan;
		double ratio;

		machine_changed(path, sizeof(path), rows[i].gpu, rows[i].host);
		assert_ferry_json(&plan,
		        "plan %s/llama-3-8b.json machine=%s max_length=2048 vram_budget=off --json", models,
		        path);
		base = base ? base : json_incref(plan);
		ratio = real_of(plan, rows[i].what) / real_of(base, rows[i].what);
		if (!(ratio >= rows[i].least && ratio <= rows[i].most))
			fail_msg("%s%s: %s is %g of what it was", rows[i].gpu, rows[i].host, rows[i].what,
			        ratio);
		json_decref(plan);
	}
	json_decref(base);
}

/* What large models take (docs/results/plans.md); libraries count on the device, but not in arena_bytes. */
static void test_large_models_fit(void **state)
{
	static const struct {
		const char *model, *machine, *settings;
		double arena_bytes, device_bytes, host_bytes; /* at most; 0: not asked */
	} rows[] = {
	        {"llama-2-70b", "h200", "max_length=4096 vram_budget=24GiB", 0, 0x6p32, 0.99e12},
	        {"llama-2-70b", "h200", "max_length=4096 vram_budget=off optimizer_state=8bit", 0, 0x6p32,
	                0.56e12},
	        {"llama-2-70b", "h200", "max_length=16384 activations=offload vram_budget=off", 0, 0x6p32,
	                0.99e12},
	        {"llama-3-8b", "pc-rtx-4090", "max_length=4096 activations=offload vram_budget=off", 0x6p30,
	                0, 0},
	        {"llama-3.1-405b", "h100-80-x8", "max_length=4096 optimizer_state=8bit vram_budget=off", 0,
	                69e9, 0.41e12},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i += (size_t)sparing(2)) {
		json_t *plan = plan_of_roomy(rows[i].model, rows[i].machine, rows[i].settings);

		if ((rows[i].arena_bytes && !(real_of(plan, "arena_bytes") <= rows[i].arena_bytes)) ||
		        (rows[i].device_bytes && !(real_of(plan, "device_bytes") <= rows[i].device_bytes)) ||
		        (rows[i].host_bytes && !(real_of(plan, "host_bytes") <= rows[i].host_bytes)))
			fail_msg("%s with %s: %.0f, %.0f, %.0f bytes", rows[i].model, rows[i].settings,
			        real_of(plan, "arena_bytes"), real_of(plan, "device_bytes"),
			        real_of(plan, "host_bytes"));
		assert_true(real_of(plan, "arena_touched_bytes") <= real_of(plan, "arena_bytes"));
		assert_true(real_of(plan, "arena_touched_bytes") > 0.99 * real_of(plan, "arena_bytes"));
		json_decref(plan);
	}
}

static void test_mistakes_are_named(void **state)
{
	static const struct {
		const char *text, *said;
	} cases[] = {
	        {"name: x\ngpus: 1\nhost:\n  memory: 1GiB\n  memory_gbps: 1\n",
	                "needs gpu.memory, gpu.bf16_tflops, gpu.fp32_tflops, gpu.memory_gbps, gpu.h2d_gbps, "
	                "gpu.d2h_gbps"},
	        {"name: x\ngpus: 0\nhost:\n  memory: 8GiB\n  memory_gbps: 1\n", "needs host.gflops"},
	        {"name: x\ngpus: 0\nhost:\n  memory: 1GiB\n  memory_gbps: 1\n  gflops: 1\n",
	                "host.reserve (default 4GiB) leaves nothing of host.memory"},
	        {"name: x\nhost:\n  memory: 8GiB\n  memory_gbps: 1\n", "needs gpus\n"},
	        {"name: x\ngpus: 1\ngpu:\n  memroy: 1GiB\n",
	                "mean.yaml:4: unknown key \"gpu.memroy\" of a machine; did you mean gpu.memory?"},
	        {"name: x\ngpus: many\n", "mean.yaml:2: gpus=many is not a whole number"},
	        {"name: x\ngpus: 1\ngpu:\n  memory: 3 parsecs\n",
	                "mean.yaml:4: gpu.memory=3 parsecs has the unknown unit"},
	        {"name: x\ngpus: 1\ngpu:\n  matmul_share: 1.5\n", "must be between 0.01 and 1"},
	        {"name: [a, b]\n", "mean.yaml:1: name needs one value"},
	};
	char path[300];
	json_t *plan;
	FILE *f;

	(void)state;
	snprintf(path, sizeof(path), "%s/mean.yaml", work_dir);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		f = fopen(path, "w");
		assert_non_null(f);
		fputs(cases[i].text, f);
		fclose(f);
		assert_ferry(2, NULL, "plan %s/llama-2-7b.json machine=%s", models, path);
		if (!strstr(ferry_said(), cases[i].said))
			fail_msg("\"%s\" is not in: %s", cases[i].said, ferry_said());
	}
	assert_ferry(2, NULL, "plan %s/llama-2-7b.json machine=%s/absent.yaml", models, work_dir);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs("name: x\ngpus: 0\nhost:\n  memory: 1TB\n  reserve: 0\n  memory_gbps: 1\n  gflops: 1\n", f);
	fclose(f);
	assert_ferry_json(&plan, "plan %s/llama-2-7b.json machine=%s --json", models, path);
	assert_true(real_of(plan, "host_limit_bytes") == 1e12);
	json_decref(plan);
}

/* Activations wait in host memory where that is faster than computing them again, with at least the bytes of
 * the blocks on the link; not where host memory lacks the room. */
static void test_activations_wait_in_host_memory(void **state)
{
	static const char lora[] = "max_length=4096 per_device_train_batch_size=4 "
	                           "gradient_accumulation_steps=1 lora_rank=16 ";
	char small[200], never[200];
	json_t *roomy_one, *small_one, *recomputed;

	(void)state;
	snprintf(small, sizeof(small), "%s ram_budget=160GiB", lora);
	snprintf(never, sizeof(never), "%s activations=offload", lora);
	roomy_one = plan_of("llama-2-70b", "workstation-rtx-4090", lora);
	small_one = plan_of("llama-2-70b", "workstation-rtx-4090", small);
	recomputed = plan_of("llama-2-70b", "workstation-rtx-4090", never);
	assert_true(real_of(roomy_one, "hosted_blocks") > 60);
	assert_true(real_of(roomy_one, "step_ms") < 0.8 * real_of(recomputed, "step_ms"));
	assert_true(real_of(roomy_one, "step_ms") >= 0.999 * real_of(roomy_one, "bound_ms"));
	assert_true(real_of(roomy_one, "d2h_bytes") >
	            real_of(recomputed, "d2h_bytes") + real_of(roomy_one, "hosted_blocks") * 2e9);
	assert_true(real_of(small_one, "hosted_blocks") < 20);
	assert_true(real_of(small_one, "host_need_bytes") <= 160.0 * (1 << 30));
	assert_true(real_of(recomputed, "hosted_blocks") == 0);
	json_decref(roomy_one);
	json_decref(small_one);
	json_decref(recomputed);
}

/* The more micro-batches a step has, the fewer blocks' activations fit host memory. The choice finds how
 * many, and fills the host with them. */
static void test_activations_of_many_micro_batches_wait(void **state)
{
	static const struct {
		int micro_batches, hosted_least;
	} cases[] = {{16, 60}, {64, 10}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[200];
		json_t *plan;

		snprintf(text, sizeof(text),
		        "max_length=4096 per_device_train_batch_size=1 lora_rank=16 "
		        "gradient_accumulation_steps=%d ",
		        cases[i].micro_batches);
		plan = plan_of("llama-2-70b", "workstation-rtx-4090", text);
		assert_true(json_is_true(json_object_get(plan, "fits")));
		assert_true(real_of(plan, "hosted_blocks") >= cases[i].hosted_least);
		assert_true(real_of(plan, "host_need_bytes") > 0.9 * real_of(plan, "host_limit_bytes"));
		json_decref(plan);
	}
}

/* Where few weights fit beside activations, the search begins with either place of block inputs: with inputs
 * on the GPU all activations wait in host memory, though the best plan without that has inputs there too. */
static void test_hosting_is_found_from_both_sides(void **state)
{
	json_t *plan = plan_of(
	        "llama-2-7b", "workstation-rtx-4090", "vram_budget=3GiB gradient_accumulation_steps=4 ");

	(void)state;
	assert_int_equal((int)(real_of(plan, "hosted_blocks") + real_of(plan, "kept_blocks")), 32);
	assert_true(real_of(plan, "step_ms") < 2950); /* 3060 without */
	json_decref(plan);
}

/* A part of the activations stays where there is no room for all, and where the user says so. */
static void test_parts_of_activations_are_kept(void **state)
{
	static const char *const words[] = {"recompute", "attention", "qkv", "products", "keep"};
	json_t *before = NULL, *mixed;
	char keys[200];

	(void)state;
	for (int i = 0; i < 5; i++) {
		json_t *now;

		snprintf(keys, sizeof(keys),
		        "max_length=16384 vram_budget=off prefetch_units=1 activations=%s", words[i]);
		now = plan_of("llama-3-8b", "h200", keys);
		if (i % 4)
			assert_string_equal(json_string_value(json_object_get(now, "kept_level")), words[i]);
		if (before)
			assert_true(real_of(now, "step_ms") < real_of(before, "step_ms") &&
			            real_of(now, "arena_bytes") > real_of(before, "arena_bytes"));
		json_decref(before);
		before = now;
	}
	json_decref(before);
	mixed = plan_of(
	        "llama-2-70b", "workstation-rtx-4090", "max_length=16384 lora_rank=16 ram_budget=256GiB");
	before = plan_of("llama-2-70b", "workstation-rtx-4090",
	        "max_length=16384 lora_rank=16 ram_budget=256GiB activations=offload");
	assert_string_not_equal(json_string_value(json_object_get(mixed, "hosted_level")), "all");
	assert_true(real_of(mixed, "step_ms") < 0.9 * real_of(before, "step_ms"));
	assert_true(real_of(mixed, "host_need_bytes") <= 256.0 * (1 << 30));
	json_decref(mixed);
	json_decref(before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_hosting_is_found_from_both_sides),
	        cmocka_unit_test(test_every_example_is_planned_for),
	        cmocka_unit_test(test_activations_of_many_micro_batches_wait),
	        cmocka_unit_test(test_ranks_share_a_machine),
	        cmocka_unit_test(test_scaling),
	        cmocka_unit_test(test_parts_make_the_whole),
	        cmocka_unit_test(test_rows_attend_to_themselves),
	        cmocka_unit_test(test_no_step_beats_its_bound),
	        cmocka_unit_test(test_weights_are_what_accelerate_counts),
	        cmocka_unit_test(test_trace_of_a_plan),
	        cmocka_unit_test(test_less_than_fsdp_was_seen_to_take),
	        cmocka_unit_test(test_the_clock_follows_the_machine),
	        cmocka_unit_test(test_large_models_fit),
	        cmocka_unit_test(test_activations_wait_in_host_memory),
	        cmocka_unit_test(test_parts_of_activations_are_kept),
	        cmocka_unit_test(test_mistakes_are_named),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
