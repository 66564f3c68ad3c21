/* links: cli */
/* not: asan */
/* Choosing a plan is slow there: test_plan, test_choose and test_plan_draws run its parts. */
/* Budgets in `ferry plan`: whether a plan fits, what uses the memory, and what helps if it does not fit. */
#include "tests/plan_examples.h"
#include "tests/sparing.h"

/* A model in work_dir, as "PATH". */
static void model_put(char *path, size_t path_bytes, const char *name, const char *config)
{
	FILE *f;

	snprintf(path, path_bytes, "%s/%s", work_dir, name);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(config, f);
	fclose(f);
}

#define SMALL_CONFIG                                                                                         \
	"{\"model_type\": \"llama\", \"vocab_size\": 16, \"hidden_size\": 72, \"intermediate_size\": 140, "  \
	"\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "                 \
	"\"max_position_embeddings\": 9, \"tie_word_embeddings\": true}"

static void test_the_described_memory_counts(void **state)
{
	struct str out = {0};
	json_t *plan;

	(void)state;
	/* refused, but still reported in full */
	assert_ferry(5, &out, "plan %s/llama-2-70b.json machine=%s/pc-rtx-4090.yaml max_length=512 --json",
	        models, machines);
	assert_non_null(strstr(ferry_said(), "of host memory; the machine has 124 GiB; "));
	assert_int_equal(json_parse(&plan, "stdout", out.data, out.len_bytes), 0);
	str_free(&out);
	assert_true(json_is_false(json_object_get(plan, "fits")));
	assert_true(real_of(plan, "device_bytes") <= 24564.0 * 1048576);
	assert_true(real_of(plan, "resident_units") > 0);
	json_decref(plan);
	plan = plan_of("llama-2-7b", "pc-rtx-4090", "max_length=512");
	assert_true(json_is_true(json_object_get(plan, "fits")));
	json_decref(plan);
	assert_ferry(5, NULL,
	        "plan %s/llama-2-7b.json machine=%s/pc-rtx-4090.yaml cpu_offload=off vram_budget=1GiB",
	        models, machines);
}

/* Each rank of this host needs as much as one alone, and the limit is for all of them together. */
static void test_ranks_share_this_host(void **state)
{
	json_t *one, *four;
	struct str out = {0};
	char path[400];
	int code;

	(void)state;
	(void)ferry_run(
	        &out, "plan %s/llama-2-7b.json max_length=64 device=host vram_budget=off --json", models);
	assert_int_equal(json_parse(&one, "stdout", out.data, out.len_bytes), 0);
	str_free(&out);
	code = ferry_run(&out,
	        "plan %s/llama-2-7b.json max_length=64 device=host world_size=4 "
	        "sharding_strategy=NO_SHARD vram_budget=off --json",
	        models);
	assert_int_equal(json_parse(&four, "stdout", out.data, out.len_bytes), 0);
	assert_int_equal(code == 5, json_is_false(json_object_get(four, "fits")));
	assert_true(real_of(four, "host_need_bytes") > 3.9 * real_of(one, "host_need_bytes"));
	assert_true(real_of(four, "host_ranks") == 4);
	json_decref(one);
	json_decref(four);
	str_free(&out);
	/* the ranks share the cores equally */
	model_put(path, sizeof(path), "small.json", SMALL_CONFIG);
	setenv("FERRY_TOPOLOGY", "numa:1 core:8 pu:1", 1);
	for (int ranks = 1; ranks <= 16; ranks *= 4) {
		assert_ferry_json(&one,
		        "plan %s max_length=9 device=host world_size=%d vram_budget=off "
		        "--json",
		        path, ranks);
		assert_true(real_of(one, "threads") == (ranks < 8 ? 8 / ranks : 1));
		json_decref(one);
	}
	unsetenv("FERRY_TOPOLOGY");
	/* memory that the GPUs of a machine use together is divided by the number of ranks */
	one = plan_of("llama-2-7b", "h100-80-x8", "max_length=64 vram_budget=off world_size=8");
	four = plan_of(
	        "llama-2-7b", "h100-80-x8", "max_length=64 vram_budget=off world_size=8 ranks_per_node=2");
	assert_true(fabs(real_of(json_object_get(four, "speed"), "host_memory_gbps") /
	                            real_of(json_object_get(one, "speed"), "host_memory_gbps") -
	                    4) < 1e-9);
	json_decref(one);
	json_decref(four);
	/* two ranks on a node of eight are two */
	one = plan_of(
	        "llama-2-7b", "h100-80-x8", "max_length=64 vram_budget=off world_size=2 ranks_per_node=8");
	assert_true(real_of(one, "host_ranks") == 2);
	json_decref(one);
	/* a checkpoint's part of a machine is written at its disk's rate */
	one = plan_of("llama-2-7b", "h100-80-x8", "max_length=64 vram_budget=off world_size=16");
	assert_true(fabs(real_of(one, "disk_write_s") * 2 * 20e9 / real_of(one, "disk_bytes") - 1) < 1e-9);
	assert_true(fabs(real_of(one, "disk_read_s") * 2 * 40e9 / real_of(one, "disk_bytes") - 1) < 1e-9);
	json_decref(one);
}

/* Names the settings that fit and have the shortest step, with the budget spent. Activations that the
 * budget chooses are better than any single way to give them up. */
static void test_the_fastest_that_fits_is_named(void **state)
{
	static const struct {
		int layers; /* of Llama 3 8B */
		const char *machine, *settings, *said;
	} rows[] = {
	        {32, "pc-rtx-4090", "max_length=4096 vram_budget=6GiB ",
	                "activations=recompute prefetch_units=2"},
	        {8, "gh200", "max_length=32768 vram_budget=16GiB ", "activations=keep"},
	};
	static const char *const others[] = {"activations=recompute prefetch_units=1",
	        "activations=offload prefetch_units=2", "activations=offload prefetch_units=1",
	        "activations=recompute forward_prefetch=off backward_prefetch=NO_PREFETCH",
	        "activations=auto prefetch_units=2"};

	(void)state;
	for (size_t row = 0; row < sizeof(rows) / sizeof(*rows); row += (size_t)sparing(2)) {
		char with[200], command[1600], path[500];
		const char *said;
		double best_ms;
		json_t *plan;

		snprintf(path, sizeof(path), "%s/llama-3-8b.json", models);
		assert_int_equal(json_read_file(&plan, path, 1 << 20), 0);
		json_object_set_new(plan, "num_hidden_layers", json_integer(rows[row].layers));
		snprintf(path, sizeof(path), "%s/layers.json", work_dir);
		assert_int_equal(json_dump_file(plan, path, 0), 0);
		json_decref(plan);
		assert_ferry(5, NULL, "plan %s machine=%s/%s.yaml %s%s", path, machines, rows[row].machine,
		        rows[row].settings, rows[row].said);
		said = strstr(ferry_said(), "GPU memory; ");
		said = said ? strstr(said, "; set ") : NULL;
		assert_non_null(said);
		snprintf(with, sizeof(with), "%.*s", (int)strcspn(said + 6, "("), said + 6);
		assert_non_null(strstr(with, "activations=auto"));
		snprintf(command, sizeof(command), "plan %s machine=%s/%s.yaml %s", path, machines,
		        rows[row].machine, rows[row].settings);
		assert_ferry_json(&plan, "%s%s --json", command, with);
		best_ms = real_of(plan, "step_ms");
		json_decref(plan);
		for (size_t i = 0; i < sizeof(others) / sizeof(*others); i += (size_t)sparing(3)) {
			struct str out = {0};

			if (!ferry_run(&out, "%s%s --json", command, others[i])) {
				assert_int_equal(json_parse(&plan, "stdout", out.data, out.len_bytes), 0);
				assert_true(best_ms < 1.005 * real_of(plan, "step_ms"));
				json_decref(plan);
			}
			str_free(&out);
		}
	}
}

/* Each of "a|b|c". */
static int all_said(const char *parts)
{
	char part[200];

	for (size_t len; *parts; parts += len + (parts[len] == '|')) {
		len = strcspn(parts, "|");
		snprintf(part, sizeof(part), "%.*s", (int)len, parts);
		if (!strstr(ferry_said(), part))
			return 0;
	}
	return 1;
}

/* For a model that ferry cannot train, the error suggests --estimate, if ferry can count its weights. */
static void test_weights_that_can_only_be_counted(void **state)
{
	char path[400];

	(void)state;
	model_put(path, sizeof(path), "bert.json",
	        "{\"model_type\": \"bert\", \"vocab_size\": 100, \"hidden_size\": 32, "
	        "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"intermediate_size\": 64, "
	        "\"max_position_embeddings\": 64, \"type_vocab_size\": 2, "
	        "\"position_embedding_type\": \"relative_key\"}");
	assert_ferry(2, NULL, "plan %s", path);
	assert_true(all_said("relative_key|bert.json --estimate"));
	assert_ferry(0, NULL, "plan %s --estimate", path);
	model_put(path, sizeof(path), "deepseek.json", "{\"model_type\": \"deepseek_v4\"}");
	assert_ferry(2, NULL, "plan %s", path);
	assert_false(all_said("--estimate"));
}

/* Budgets that nothing can meet, and some that are no budgets. */
static void test_budgets_that_are_too_small(void **state)
{
	static const struct {
		const char *settings;
		int code;
		const char *said;
	} rows[] = {
	        {"vram_budget=0", 2, "vram_budget=0 must be at least 1"},
	        {"vram_budget=5G", 2, "unknown unit \"G\""},
	        {"vram_budget=99999999TiB", 2, "must be between 1 and"},
	        {"vram_budget=1B", 5, "vram_budget is 1 B and GPU libraries take 288 MiB; smallest plan: "},
	        {"vram_budget=3gb", 5, "needs at least |smallest plan: | with max_length="},
	        {"vram_budget=5GiB activations=recompute prefetch_units=2", 5,
	                "GPU memory; vram_budget is 5.0 GiB; set activations=auto prefetch_units=auto "
	                "(then "},
	        {"ram_budget=0", 2, "ram_budget=0 must be at least 1"},
	        {"ram_budget=1B", 5,
	                "smallest plan: | with optimizer_state=8bit max_grad_norm=0 "
	                "skip_nonfinite=off"},
	        {"ram_budget=60GiB", 5, "ram_budget is 60.0 GiB; set optimizer_state=8bit (then "},
	        {"ram_budget=60GiB optimizer_state=8bit", 0, ""},
	        {"vram_budget=5GiB", 0, ""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i += (size_t)sparing(5)) {
		assert_ferry(rows[i].code, NULL,
		        "plan %s/llama-3-8b.json machine=%s/pc-rtx-4090.yaml max_length=4096 %s", models,
		        machines, rows[i].settings);
		if (!all_said(rows[i].said))
			fail_msg("%s: \"%s\" is not in: %s", rows[i].settings, rows[i].said, ferry_said());
		if (strstr(rows[i].said, "(then ")) /* what is proposed fits; both are GiB */
			assert_in_range(strtod(strstr(ferry_said(), "(then ") + 6, NULL), 1,
			        strtod(strstr(rows[i].settings, "_budget=") + 8, NULL));
	}
	/* more than there is is what there is, and that is said */
	json_t *plan = plan_of("llama-2-7b", "pc-rtx-4090", "max_length=512 vram_budget=1TB ram_budget=2TB");

	assert_true(real_of(plan, "device_bytes") <= 24564.0 * 1048576);
	assert_true(real_of(plan, "host_limit_bytes") == 124.0 * 0x1p30);
	assert_true(all_said("vram_budget is 931 GiB, but the GPU has only 23.0 GiB|"
	                     "ram_budget is 1.8 TiB, but the machine has only 124 GiB"));
	json_decref(plan);
	assert_ferry(5, NULL,
	        "plan %s/llama-2-70b.json machine=%s/pc-rtx-4090.yaml max_length=512 ram_budget=2TB", models,
	        machines);
	assert_true(all_said("the machine has 124 GiB; "));
}

/* Without other keys, the same budget is enough, and a larger one never makes a step longer. The output
 * has the choice and the alternatives. */
static void test_a_budget_is_spent_by_simulation(void **state)
{
	static const struct {
		const char *model, *machine, *settings;
		double from_gib, to_gib;
	} rows[] = {
	        {"llama-3-8b", "pc-rtx-4090", "max_length=4096", 5, 24},
	        {"llama-2-7b", "gh200", "max_length=512 per_device_train_batch_size=4", 6, 95},
	        {"llama-2-13b", "h200", "max_length=4096 per_device_train_batch_size=4", 9, 140},
	};
	enum { STEPS = SANITIZED ? 1 : 2 };

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i += (size_t)sparing(3)) {
		double before_ms = INFINITY;

		for (int step = 0; step <= STEPS; step++) {
			double gib = rows[i].from_gib + (rows[i].to_gib - rows[i].from_gib) * step / STEPS;
			int64_t budget = (int64_t)(gib * 0x1p30);
			char settings[200];
			json_t *plan;

			snprintf(settings, sizeof(settings), "%s vram_budget=%" PRId64, rows[i].settings,
			        budget);
			plan = plan_of(rows[i].model, rows[i].machine, settings);
			assert_true(real_of(plan, "device_bytes") <= (double)budget);
			if (!(real_of(plan, "step_ms") <= before_ms))
				fail_msg("%s on %s: %g GiB, %g ms, and %g ms with less", rows[i].model,
				        rows[i].machine, gib, real_of(plan, "step_ms"), before_ms);
			before_ms = real_of(plan, "step_ms");
			json_decref(plan);
		}
	}
	assert_ferry(0, NULL,
	        "plan %s/llama-3-8b.json machine=%s/pc-rtx-4090.yaml max_length=4096 vram_budget=6GiB "
	        "--explain",
	        models, machines);
}

/* The minimum of a budget in the output is enough, and one byte less is not. */
static void least_is_exact(const char *words, const char *budget)
{
	const char *at, *bytes, *said;
	char with[200] = "";
	int64_t least;

	assert_ferry(5, NULL, "plan %s %s=1B --json", words, budget);
	at = strstr(ferry_said(), "ferry plan: ");
	bytes = at ? strstr(at, " bytes)") : NULL;
	assert_non_null(bytes);
	said = strstr(bytes, ") with ");
	if (said)
		snprintf(with, sizeof(with), "%s", said + strlen(") with "));
	with[strcspn(with, "\n")] = 0;
	while (bytes[-1] != '(')
		bytes--;
	least = strtoll(bytes, NULL, 10);
	assert_ferry(0, NULL, "plan %s %s %s=%" PRId64, words, with, budget, least);
	assert_ferry(5, NULL, "plan %s %s %s=%" PRId64, words, with, budget, least - 1);
}

/* A shorter step and shorter rows are tried where nothing else is enough: what is said fits. */
static void test_smaller_steps_are_tried(void **state)
{
	static const struct {
		const char *settings, *said; /* said: the last of the settings */
	} rows[] = {
	        {"gradient_accumulation_steps=16 max_length=8192 ram_budget=52GiB",
	                "gradient_accumulation_steps="},
	        {"gradient_accumulation_steps=8 max_length=8192 ram_budget=42GiB", "max_length="},
	        {"gradient_accumulation_steps=8 max_length=8192 ram_budget=20GiB", "max_length="},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i += (size_t)sparing(3)) {
		char words[1000], with[300];
		const char *set, *last;

		snprintf(words, sizeof(words), "%s/llama-3-8b.json machine=%s/pc-rtx-4070.yaml %s", models,
		        machines, rows[i].settings);
		assert_ferry(5, NULL, "plan %s", words);
		set = strstr(ferry_said(), "; set ");
		if (!set) { /* the smallest plan is no smaller for what it leaves out */
			assert_true(all_said("smallest plan: | with "));
			assert_non_null(strstr(ferry_said(), rows[i].said));
			continue;
		}
		snprintf(with, sizeof(with), "%.*s", (int)strcspn(set + 6, "("), set + 6);
		last = strrchr(with, ' ');
		while (last && last > with && *--last != ' ')
			;
		if (!last || !strstr(last, rows[i].said))
			fail_msg("%s: %s", rows[i].settings, with);
		assert_ferry(0, NULL, "plan %s %s", words, with);
	}
}

/* Where units move to a device that has room, and where all of them there take less than some. */
static void test_the_least_of_the_host_is_exact(void **state)
{
	char words[1000], path[400];

	(void)state;
	snprintf(words, sizeof(words), "%s/llama-2-7b.json machine=%s/pc-rtx-4090.yaml max_length=512",
	        models, machines);
	least_is_exact(words, "ram_budget");
	/* a row of a pair has two texts */
	snprintf(words, sizeof(words),
	        "%s/lfm2-1.2b.json machine=%s/laptop-2-cores.yaml max_length=512 preference_loss=sigmoid "
	        "per_device_train_batch_size=4",
	        models, machines);
	least_is_exact(words, "ram_budget");
	model_put(path, sizeof(path), "small.json",
	        "{\"model_type\": \"mistral\", \"vocab_size\": 295, \"hidden_size\": 96, "
	        "\"intermediate_size\": 521, \"num_hidden_layers\": 8, \"num_attention_heads\": 4, "
	        "\"num_key_value_heads\": 2, \"max_position_embeddings\": 124, "
	        "\"tie_word_embeddings\": true}");
	snprintf(words, sizeof(words),
	        "%s device=host max_length=116 activations=keep backward_prefetch=BACKWARD_POST "
	        "vram_budget=13796241",
	        path);
	least_is_exact(words, "ram_budget");
}

/* Units of one tensor are placed with fewer gaps where inputs stay than where they leave; one unit of all
 * tensors is the same either way. */
static void test_the_least_of_the_device_is_exact(void **state)
{
	static const char *const rows[] = {
	        "world_size=4 sharding_strategy=NO_SHARD reduce_dtype=bf16 compute_dtype=fp32 "
	        "wrap_policy=size min_num_params=1",
	        "wrap_policy=none backward_prefetch=NO_PREFETCH compute_dtype=fp32",
	};
	char words[1000], path[400];

	(void)state;
	model_put(path, sizeof(path), "small.json", SMALL_CONFIG);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		snprintf(words, sizeof(words), "%s machine=%s/laptop-2-cores.yaml max_length=1 %s", path,
		        machines, rows[i]);
		least_is_exact(words, "vram_budget");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_the_described_memory_counts),
	        cmocka_unit_test(test_ranks_share_this_host),
	        cmocka_unit_test(test_the_fastest_that_fits_is_named),
	        cmocka_unit_test(test_weights_that_can_only_be_counted),
	        cmocka_unit_test(test_budgets_that_are_too_small),
	        cmocka_unit_test(test_smaller_steps_are_tried),
	        cmocka_unit_test(test_the_least_of_the_host_is_exact),
	        cmocka_unit_test(test_the_least_of_the_device_is_exact),
	        cmocka_unit_test(test_a_budget_is_spent_by_simulation),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
