/* links: cli */
/* not: asan */
/* Choosing a plan is slow there: test_plan, test_choose and test_plan_draws run its parts. */
/* vram_budget: a run uses the memory of its plan, no budget changes a bit, and advice for plans that do
 * not fit is right. */
#include "tests/planned_bytes.h"
#include "tests/sparing.h"

#include "host/topology.h"

#include <inttypes.h>

static struct run_model model;

#define DEEP_CONFIG                                                                                          \
	"{\"model_type\":\"llama\",\"vocab_size\":64,\"hidden_size\":32,\"intermediate_size\":48,"           \
	"\"num_hidden_layers\":6,\"num_attention_heads\":4,\"num_key_value_heads\":2,"                       \
	"\"max_position_embeddings\":128}"

/* The use of a budget depends on the speed of the machine, which ferry measures unless it is described. */
#define MACHINE "machine=$FERRY_SOURCE/examples/machines/laptop-2-cores.yaml "

#define SETTINGS                                                                                             \
	MACHINE                                                                                              \
	"learning_rate=1e-3 per_device_train_batch_size=4 gradient_accumulation_steps=2 max_steps=4 "        \
	"export_dtype=fp32 overwrite_output_dir=on "

static int64_t number_of(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	assert_true(json_is_integer(value));
	return json_integer_value(value);
}

/* What `ferry plan` says with these settings. */
static json_t *plan_of(const char *settings)
{
	json_t *object;

	assert_ferry_json(&object, "plan model=%s data=%s %s --json", model.dir, model.data, settings);
	return object;
}

static int64_t plan_bytes(const char *settings)
{
	json_t *object = plan_of(settings);
	int64_t bytes = number_of(object, "device_bytes");

	json_decref(object);
	return bytes;
}

#define PLANNED MACHINE "per_device_train_batch_size=4 gradient_accumulation_steps=2 "

static void test_any_budget_changes_no_bit(void **state)
{
	static const char *const more[] = {"", "max_grad_norm=0 skip_nonfinite=off activations=keep",
	        "schedule=micro_batch_major compute_dtype=fp32", "wrap_policy=size min_num_params=3000"};

	(void)state;
	for (size_t i = 0; i < sizeof(more) / sizeof(*more); i += (size_t)sparing(2)) {
		char settings[300];
		int64_t least, most;

		snprintf(settings, sizeof(settings), PLANNED "vram_budget=off %s", more[i]);
		least = plan_bytes(settings);
		snprintf(settings, sizeof(settings), PLANNED "cpu_offload=off %s %s",
		        strstr(more[i], "activations=") ? "" : "activations=keep", more[i]);
		most = plan_bytes(settings);
		assert_true(most > least);
		assert_ferry(0, NULL,
		        "train model=%s data=%s output_dir=%s/base " SETTINGS "vram_budget=off %s", model.dir,
		        model.data, work_dir, more[i]);
		assert_int_equal(device_peak("base"), least);
		for (int step = 0; step <= 4; step += sparing(4)) {
			int64_t budget = least + (most - least) * step / 4;
			json_t *plan;

			snprintf(settings, sizeof(settings), PLANNED "vram_budget=%" PRId64 " %s", budget,
			        more[i]);
			plan = plan_of(settings);
			assert_ferry(0, NULL,
			        "train model=%s data=%s output_dir=%s/a " SETTINGS "vram_budget=%" PRId64
			        " %s",
			        model.dir, model.data, work_dir, budget, more[i]);
			assert_same_runs("base", "a", settings);
			assert_true(number_of(plan, "device_bytes") <= budget);
			assert_int_equal(device_peak("a"), number_of(plan, "device_bytes"));
			assert_int_equal(number_of(plan, "device_bytes"),
			        number_of(plan, "arena_bytes") + number_of(plan, "reserve_bytes"));
			json_decref(plan);
		}
	}
}

/* Below what the keys as they are by default would take: the choice among all ways to stream, and its bits.
 */
static void test_a_tight_budget_changes_how_units_stream(void **state)
{
	int64_t usual = plan_bytes(PLANNED),
	        least = plan_bytes(PLANNED "activations=offload forward_prefetch=off "
	                                   "backward_prefetch=NO_PREFETCH");
	char settings[200];

	(void)state;
	assert_true(least < usual);
	assert_ferry(0, NULL, "train model=%s data=%s output_dir=%s/base " SETTINGS, model.dir, model.data,
	        work_dir);
	for (int step = 0; step < 3; step++) {
		int64_t budget = least + (usual - 1 - least) * step / 2;
		json_t *plan;

		snprintf(settings, sizeof(settings), PLANNED "vram_budget=%" PRId64, budget);
		plan = plan_of(settings);
		assert_true(number_of(plan, "device_bytes") <= budget);
		assert_ferry(0, NULL,
		        "train model=%s data=%s output_dir=%s/a " SETTINGS "vram_budget=%" PRId64, model.dir,
		        model.data, work_dir, budget);
		assert_same_runs("base", "a", settings);
		assert_int_equal(device_peak("a"), number_of(plan, "device_bytes"));
		json_decref(plan);
	}
	/* on the host all is host memory */
	snprintf(settings, sizeof(settings), PLANNED "ram_budget=%" PRId64 " vram_budget=%" PRId64,
	        (int64_t)1 << 40, least);
	assert_int_equal(plan_bytes(settings) <= least, 1);
}

/* The words of a run, planned: its own device bytes, also where evaluation takes more than a step. */
static void test_a_command_of_train_is_planned(void **state)
{
	char words[3000];
	json_t *plan, *memory;

	(void)state;
	remove_run("a");
	snprintf(words, sizeof(words),
	        "data=%s eval_data=%s per_device_eval_batch_size=23 eval_steps=2 output_dir=%s/a " SETTINGS
	        "lr_scheduler_type=cosine warmup_steps=1 weight_decay=0.1 save_steps=2 save_total_limit=1 "
	        "logging_steps=1 trace=1 check_replicas=2 dump_gradients=%s/gradients.safetensors",
	        model.data, model.data, work_dir, work_dir);
	assert_ferry(0, NULL, "train model=%s %s", model.dir, words);
	assert_ferry_json(&plan, "plan model=%s %s --json", model.dir, words);
	memory = json_object_get(plan, "memory");
	assert_true(number_of(memory, "device_eval_bytes") > 0);
	assert_int_equal(device_peak("a"), number_of(plan, "device_bytes"));
	json_decref(plan);
	assert_ferry(0, NULL, "plan %s/a/config.yaml", work_dir);
	/* neither rows nor a tokenizer are here: as many of max_length, and a token for each byte */
	assert_ferry_json(&plan,
	        "plan model=%s/tiny.json data=gone.jsonl eval_data=gone.jsonl max_length=26 sample_prompt=hi "
	        "max_new_tokens=90 per_device_eval_batch_size=4 --json",
	        work_dir);
	memory = json_object_get(plan, "memory");
	assert_true(number_of(memory, "device_eval_bytes") >= 0);
	json_decref(plan);
}

static int64_t epochs_plan_bytes(int epochs, int seed)
{
	int64_t bytes;
	json_t *plan;

	assert_ferry_json(&plan,
	        "plan model=%s data=%s/plain.jsonl " PLANNED "num_train_epochs=%d seed=%d --json", model.dir,
	        work_dir, epochs, seed);
	bytes = number_of(plan, "device_bytes");
	json_decref(plan);
	return bytes;
}

/* The largest micro-batch of a run may be one that only a later shuffle makes. */
static void test_later_shuffles_are_planned_for(void **state)
{
	struct str rows = {0};
	int seed = 1;

	(void)state;
	/* nothing is masked and batches are full; the micro-batch with the long row is the largest in every
	 * way, and the rows beside it say how large */
	for (int row = 0; row < 24; row++) {
		str_add(&rows, "{\"input_ids\":[1");
		for (int i = 0; i < (row < 23 ? 2 + row : 100); i++)
			str_printf(&rows, ",%d", (row + i) % 64);
		str_add(&rows, "]}\n");
	}
	write_file("plain.jsonl", "%s", rows.data);
	str_free(&rows);
	while (epochs_plan_bytes(1, seed) == epochs_plan_bytes(3, seed))
		assert_true(seed++ < 20);
	assert_ferry(0, NULL,
	        "train model=%s data=%s/plain.jsonl output_dir=%s/a " PLANNED
	        "num_train_epochs=3 seed=%d overwrite_output_dir=on",
	        model.dir, work_dir, work_dir, seed);
	assert_int_equal(device_peak("a"), epochs_plan_bytes(3, seed));
	assert_true(epochs_plan_bytes(1, seed) < epochs_plan_bytes(3, seed));
}

/* Whether twice the memory there is as budget is chosen from within the memory there is, and that is used.
 * Other programs take and give back memory meanwhile. */
static int keeps_to_memory(void)
{
	struct topology *t = mem_alloc(1, sizeof(*t));
	double tokens = 1 << 16, need, limit;
	struct str out = {0};
	json_t *plan;
	int fits, rc;

	assert_non_null(t);
	assert_int_equal(topology_read(t), 0);
	limit = (double)t->usable_bytes / t->ranks.size;
	mem_free(t);
	assert_ferry_json(
	        &plan, "plan %s/deep.json max_length=%.0f activations=keep --json", work_dir, tokens);
	need = (double)number_of(plan, "host_need_bytes");
	json_decref(plan);
	tokens *= 2 * limit / need; /* twice as much where all is kept */
	rc = ferry_run(&out,
	        "plan %s/deep.json max_length=1024 per_device_train_batch_size=%.0f vram_budget=1000TB "
	        "cpu_offload=off --json",
	        work_dir, tokens / 1024);
	assert_int_equal(json_parse(&plan, "stdout", out.data, out.len_bytes), 0);
	str_free(&out);
	fits = !rc && json_is_true(json_object_get(plan, "fits"));
	need = (double)number_of(plan, "host_need_bytes");
	json_decref(plan);
	return fits && need < limit && need > limit / 2;
}

/* If the host is the device, a vram_budget above its memory keeps no more than its memory. */
static void test_a_choice_keeps_to_the_memory_there_is(void **state)
{
	int keeps = 0;

	(void)state;
	write_file("deep.json", "%s", DEEP_CONFIG);
	for (int i = 0; i < 10 && !keeps; i++)
		keeps = keeps_to_memory();
	assert_true(keeps);
}

static void test_a_checkpoint_knows_no_budget(void **state)
{
	int64_t least = plan_bytes(PLANNED "vram_budget=off"), most = plan_bytes(PLANNED "cpu_offload=off");

	(void)state;
	remove_run("base");
	remove_run("a");
	assert_ferry(0, NULL, "train model=%s data=%s output_dir=%s/base " SETTINGS "save_steps=2", model.dir,
	        model.data, work_dir);
	assert_ferry(0, NULL,
	        "train model=%s data=%s output_dir=%s/a " SETTINGS "save_steps=2 vram_budget=%" PRId64,
	        model.dir, model.data, work_dir, (least + most) / 2);
	remove_run("a/checkpoint-000004");
	remove_run("a/model");
	assert_ferry(0, NULL,
	        "train %s/a/config.yaml resume_from_checkpoint=auto overwrite_output_dir=off "
	        "vram_budget=%" PRId64,
	        work_dir, most - 1);
	assert_same_runs("base", "a", "resumed with another budget");
}

static const char *origin_of(const json_t *plan)
{
	return json_string_value(json_object_get(json_object_get(plan, "speed"), "origin"));
}

/* With a described machine the choice is always the same, and the run names the rates; else both measure.
 * If there is no choice, nothing is measured. */
static void test_rates_are_described_or_measured(void **state)
{
	const char *train = "train model=%s data=%s output_dir=%s/a overwrite_output_dir=on max_steps=1 %s";
	static const char *const runs[][2] = {
	        {"vram_budget=300KiB", "this machine, measured: bf16 products "},
	        {MACHINE "vram_budget=300KiB", "the described machine: bf16 products 140 GFLOP/s"}, {"", ""}};
	json_t *plan, *again;

	(void)state;
	plan = plan_of(PLANNED "vram_budget=300KiB");
	again = plan_of(PLANNED "vram_budget=300KiB");
	assert_true(json_equal(plan, again));
	assert_string_equal(origin_of(plan), "described");
	assert_true(json_real_value(json_object_get(json_object_get(plan, "speed"), "bf16_gflops")) == 140);
	json_decref(plan);
	json_decref(again);
	plan = plan_of("vram_budget=300KiB host_copy_gbps=0.05");
	assert_string_equal(origin_of(plan), "measured");
	assert_true(json_real_value(json_object_get(json_object_get(plan, "speed"), "h2d_gbps")) <= 0.05001);
	json_decref(plan);
	for (size_t i = 0; i < sizeof(runs) / sizeof(*runs); i++) {
		struct str out = {0};

		assert_ferry(0, &out, train, model.dir, model.data, work_dir, runs[i][0]);
		assert_true(*runs[i][1] ? !!strstr(out.data, runs[i][1]) : !strstr(out.data, "speed "));
		str_free(&out);
	}
	assert_ferry(2, NULL, train, model.dir, model.data, work_dir,
	        "vram_budget=300KiB machine=$FERRY_SOURCE/examples/machines/pc-rtx-4090.yaml");
	assert_non_null(strstr(ferry_said(), "describes a machine with GPUs"));
	assert_ferry(2, NULL, train, model.dir, model.data, work_dir, "machine=absent.yaml");
	assert_non_null(strstr(ferry_said(), "machine=absent.yaml: no such file"));
}

static void test_eval_keeps_weights_too(void **state)
{
	json_t *streamed, *resident;

	(void)state;
	assert_ferry_json(&streamed, "eval model=%s data=%s --json", model.dir, model.data);
	for (int kib = 120; kib < 400; kib += 90) {
		assert_ferry_json(&resident, "eval model=%s data=%s vram_budget=%dKiB --json", model.dir,
		        model.data, kib);
		assert_true(json_equal(json_object_get(streamed, "loss"), json_object_get(resident, "loss")));
		assert_non_null(json_object_get(streamed, "loss"));
		json_decref(resident);
	}
	json_decref(streamed);
}

/* The settings that a refusal names, as a command line takes them. */
static int settings_of(char *settings, size_t cap)
{
	const char *memory = strstr(ferry_said(), "memory; "),
	           *set = memory ? strstr(memory, "; set ") : NULL;

	if (!set)
		return 0;
	snprintf(settings, cap, "%s", set + strlen("; set "));
	settings[strcspn(settings, "(")] = 0;
	return 1;
}

static void test_what_is_said_to_fit_fits(void **state)
{
	const char *const base =
	        "activations=keep backward_prefetch=BACKWARD_PRE prefetch_units=2 max_length=26 ";
	char settings[400];
	int64_t most, least = 0;
	int fitted = 0;

	(void)state;
	snprintf(settings, sizeof(settings), PLANNED "vram_budget=off %s", base);
	most = plan_bytes(settings);
	assert_ferry(5, NULL, "plan model=%s data=%s " PLANNED "%s vram_budget=64B --json", model.dir,
	        model.data, base);
	assert_non_null(strstr(ferry_said(), "vram_budget is 64 B; smallest plan: "));
	least = strtoll(strchr(strstr(ferry_said(), "smallest plan: "), '(') + 1, NULL, 10);
	assert_in_range(least, 1000, most - 1);
	for (int step = 0; step < 8; step++) {
		int64_t budget = least + (most - 1 - least) * step / 7;
		char command[600];

		assert_ferry(5, NULL, "plan model=%s data=%s " PLANNED "%s vram_budget=%" PRId64, model.dir,
		        model.data, base, budget);
		if (!settings_of(settings, sizeof(settings)))
			fail_msg("nothing fits %lld bytes: %s", (long long)budget, ferry_said());
		/* a key is given once */
		snprintf(command, sizeof(command), "%s %s %s %s %s vram_budget=%" PRId64,
		        strstr(settings, "activations=") ? "" : "activations=keep",
		        strstr(settings, "backward_prefetch=") ? "" : "backward_prefetch=BACKWARD_PRE",
		        strstr(settings, "prefetch_units=") ? "" : "prefetch_units=2",
		        strstr(settings, "batch_size=") ? "" : PLANNED, settings, budget);
		assert_ferry(0, NULL, "plan model=%s data=%s %s", model.dir, model.data, command);
		fitted++;
	}
	assert_int_equal(fitted, 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_any_budget_changes_no_bit),
	        cmocka_unit_test(test_a_tight_budget_changes_how_units_stream),
	        cmocka_unit_test(test_a_command_of_train_is_planned),
	        cmocka_unit_test(test_later_shuffles_are_planned_for),
	        cmocka_unit_test(test_a_choice_keeps_to_the_memory_there_is),
	        cmocka_unit_test(test_a_checkpoint_knows_no_budget),
	        cmocka_unit_test(test_rates_are_described_or_measured),
	        cmocka_unit_test(test_eval_keeps_weights_too),
	        cmocka_unit_test(test_what_is_said_to_fit_fits),
	};
	int failed;

	ferry_run_begin("budget");
	tiny_model(&model);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
