/* links: cli */
/* Runs whose budget holds a few experts of a block, but no block: the results of whole blocks. */
#include "tests/planned_bytes.h"
#include "tests/sparing.h"

#define SIZES                                                                                                \
	"\"vocab_size\":300,\"hidden_size\":64,\"num_hidden_layers\":3,\"num_attention_heads\":4,"           \
	"\"num_key_value_heads\":2,\"head_dim\":16,\"max_position_embeddings\":128,"                         \
	"\"initializer_range\":0.05,"

/* A block of it needs 10 MiB with its gradient. */
#define FEW "vram_budget=6MiB "
#define COMMON                                                                                               \
	"max_length=64 per_device_train_batch_size=2 gradient_accumulation_steps=3 max_steps=6 "             \
	"learning_rate=1e-3 save_steps=3 logging_steps=1 overwrite_output_dir=on "

#define RANKS "ranks=2 gradient_accumulation_steps=2 lora_rank=4 lora_target_modules=all-linear "

static struct run_model mixture;

static void train(const char *out, const char *more)
{
	assert_ferry(0, NULL, "train model=%s data=%s output_dir=%s/%s " COMMON "%s", mixture.dir,
	        mixture.data, work_dir, out, more);
}

static void assert_few(const char *more)
{
	json_t *plan;

	assert_ferry_json(&plan,
	        "plan model=%s data=%s max_length=64 per_device_train_batch_size=2 "
	        "gradient_accumulation_steps=3 max_steps=6 " FEW "%s --json",
	        mixture.dir, mixture.data, more);
	assert_true(json_integer_value(json_object_get(plan, "device_bytes")) <= 6 << 20);
	json_decref(plan);
}

/* Without division the least is more than the budget, so a plan that fits is one of parts. */
static void test_all_parameters(void **state)
{
	(void)state;
	assert_few("");
	train("whole", "vram_budget=off");
	train("parts", FEW);
	assert_same_runs("whole", "parts", "parts");
	train("parts", "vram_budget=8MiB compute_dtype=fp32 optimizer_state=8bit");
	train("whole", "vram_budget=off compute_dtype=fp32 optimizer_state=8bit");
	assert_same_runs("whole", "parts", "fp32, 8bit");
}

/* A checkpoint does not depend on the parts of the run that wrote it. */
static void test_resume(void **state)
{
	(void)state;
	train("whole", "vram_budget=off");
	train("parts", FEW);
	remove_run("parts/model");
	remove_run("parts/checkpoint-000006");
	assert_ferry(0, NULL, "train %s/parts/config.yaml resume_from_checkpoint=auto vram_budget=100MiB",
	        work_dir);
	assert_same_runs("whole", "parts", "parts, then whole");
	remove_run("whole/model");
	remove_run("whole/checkpoint-000006");
	assert_ferry(0, NULL, "train %s/whole/config.yaml resume_from_checkpoint=auto " FEW, work_dir);
	assert_same_runs("parts", "whole", "whole, then parts");
}

/* A whole block needs 4 MiB. */
static void test_adapters(void **state)
{
	static const struct {
		const char *base, *budget;
	} cases[] = {{"base_format=bf16", "3MiB"}, {"base_format=mxfp4", "3MiB"}, {"base_format=fp8", "3MiB"},
	        {"base_format=int8", "3MiB"}, {"base_format=nf4", "3MiB"},
	        {"base_format=fp4 base_block_size=32", "3MiB"},
	        {"base_format=nf4 base_double_quant=off", "3MiB"}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char text[200];
		int len = snprintf(
		        text, sizeof(text), "lora_rank=4 lora_target_modules=all-linear %s ", cases[i].base);

		train("whole", text);
		snprintf(text + len, sizeof(text) - (size_t)len, "vram_budget=%s", cases[i].budget);
		train("parts", text);
		assert_same_runs("whole", "parts", cases[i].base);
	}
}

/* Three ranks hold different shares of each part. */
static void test_ranks(void **state)
{
	static const char *const ways[] = {RANKS, RANKS "base_format=nf4 ", RANKS "base_format=nf4 ranks=3 "};

	(void)state;
	for (size_t w = 0; w < sizeof(ways) / sizeof(*ways); w++) {
		char text[400];

		train("whole", ways[w]);
		snprintf(text, sizeof(text), "%s vram_budget=3MiB", ways[w]);
		train("parts", text);
		assert_same_runs("whole", "parts", text);
		snprintf(text, sizeof(text), "%s vram_budget=3MiB load=rank0_only", ways[w]);
		train("parts", text);
		assert_same_runs("whole", "parts", text);
	}
}

/* Rows of one length: every micro-batch is the largest, which plans count everywhere. */
static void write_even_rows(void)
{
	struct str text = {0};

	for (int row = 0; row < 60; row++) {
		str_add(&text, "{\"input_ids\":[1");
		for (int i = 1; i < 24; i++)
			str_printf(&text, ",%d", (i * i * (row + 1) + row) % 64);
		str_add(&text, "]}\n");
	}
	write_file("even.jsonl", "%s", text.data);
	str_free(&text);
}

/* Ranks that train the experts: they are divided with any budget and offload, so no bit differs. One rank has
 * the same but for rounding; a run goes on with another number of ranks; plans have the run's bytes. */
static void test_ranks_train_experts(void **state)
{
	static const char *const kinds[] = {"optimizer_state=8bit vram_budget=8MiB ",
	        "vram_budget=3500KiB lora_rank=4 "
	        "lora_target_parameters=mlp.experts.gate_up_proj,mlp.experts.down_proj "
	        "lora_target_modules=q_proj ",
	        "vram_budget=14MiB compute_dtype=fp32 'freeze=.*down_proj' "};
	static const char *const ways[] = {
	        "ranks=2 gradient_accumulation_steps=2 cpu_offload=on vram_budget=off stream_delay_seed=3 ",
	        "ranks=2 gradient_accumulation_steps=2 load=rank0_only activations=offload ",
	        "ranks=2 gradient_accumulation_steps=2 "};
	char text[400], data[620];

	(void)state;
	memcpy(data, mixture.data, sizeof(data));
	snprintf(mixture.data, sizeof(mixture.data), "%s/even.jsonl", work_dir);
	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k += (size_t)sparing(3)) {
		snprintf(text, sizeof(text),
		        "%s ranks=2 gradient_accumulation_steps=2 cpu_offload=off vram_budget=off", kinds[k]);
		train("off", text);
		for (size_t w = 0; w < sizeof(ways) / sizeof(*ways); w++) {
			json_t *plan;

			snprintf(text, sizeof(text), "%s %s", kinds[k], ways[w]);
			train("on", text);
			assert_same_runs("off", "on", text);
			assert_ferry_json(&plan,
			        "plan model=%s data=%s max_length=64 per_device_train_batch_size=2 "
			        "max_steps=6 %s --json",
			        mixture.dir, mixture.data, text);
			/* what a budget keeps follows from measured speeds */
			if (strstr(ways[w], "vram_budget=off") &&
			        device_peak("on") !=
			                json_integer_value(json_object_get(plan, "device_bytes")))
				fail_msg("%s: %lld bytes, planned %lld", text, (long long)device_peak("on"),
				        (long long)json_integer_value(json_object_get(plan, "device_bytes")));
			json_decref(plan);
		}
		/* one rank, with the micro-batches of two */
		snprintf(text, sizeof(text), "%s gradient_accumulation_steps=4", kinds[k]);
		train("one", text);
		assert_near_losses("off", "one", 6, 1e-6, kinds[k]);
		/* and on with one, from the checkpoint of two, and the other way round */
		remove_run("on/model");
		remove_run("on/checkpoint-000006");
		assert_ferry(0, NULL,
		        "train %s/on/config.yaml resume_from_checkpoint=auto ranks=1 "
		        "gradient_accumulation_steps=4",
		        work_dir);
		assert_non_null(strstr(ferry_said(), "on/checkpoint-000003 at step 3"));
		assert_near_losses("off", "on", 6, 1e-6, "resumed with one rank");
		remove_run("one/model");
		remove_run("one/checkpoint-000006");
		assert_ferry(0, NULL,
		        "train %s/one/config.yaml resume_from_checkpoint=auto ranks=2 "
		        "gradient_accumulation_steps=2 " FEW,
		        work_dir);
		assert_non_null(strstr(ferry_said(), "one/checkpoint-000003 at step 3"));
		assert_near_losses("off", "one", 6, 1e-6, "resumed with two ranks");
	}
	memcpy(mixture.data, data, sizeof(data));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_parameters),
	        cmocka_unit_test(test_resume), cmocka_unit_test(test_adapters), cmocka_unit_test(test_ranks),
	        cmocka_unit_test(test_ranks_train_experts)};
	int failed;

	ferry_run_begin("run-parts");
	write_file("mixture.json",
	        "{\"model_type\":\"qwen3_moe\"," SIZES "\"num_experts\":64,\"num_experts_per_tok\":4,"
	        "\"moe_intermediate_size\":128,\"intermediate_size\":96,\"norm_topk_prob\":true,"
	        "\"tie_word_embeddings\":false}");
	write_rows("rows.jsonl", 60, 3);
	write_even_rows();
	snprintf(mixture.dir, sizeof(mixture.dir), "%s/made", work_dir);
	snprintf(mixture.data, sizeof(mixture.data), "%s/rows.jsonl", work_dir);
	assert_ferry(0, NULL, "init config=%s/mixture.json output_dir=%s", work_dir, mixture.dir);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
