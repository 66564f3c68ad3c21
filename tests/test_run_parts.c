/* links: cli */
/* Runs whose budget holds a few experts of a block, but no block: the results of whole blocks. */
#include "tests/run_fixture.h"

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

/* A whole block needs 4 MiB. Scales of scales are of a whole tensor, which is not divided. */
static void test_adapters(void **state)
{
	static const struct {
		const char *base, *budget;
	} cases[] = {{"base_format=bf16", "3MiB"}, {"base_format=mxfp4", "3MiB"}, {"base_format=fp8", "3MiB"},
	        {"base_format=int8", "3MiB"}, {"base_format=nf4", "4500KiB"},
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

static void test_ranks(void **state)
{
	(void)state;
	train("whole", RANKS);
	train("parts", RANKS "vram_budget=3MiB");
	assert_same_runs("whole", "parts", "two ranks");
	train("parts", RANKS "vram_budget=3MiB load=rank0_only");
	assert_same_runs("whole", "parts", "two ranks, read by one");
	/* there, parts of trained experts would change bits: the whole block must fit */
	assert_ferry(5, NULL,
	        "train model=%s data=%s output_dir=%s/no " COMMON
	        "ranks=2 gradient_accumulation_steps=2 optimizer_state=8bit " FEW,
	        mixture.dir, mixture.data, work_dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_parameters),
	        cmocka_unit_test(test_resume), cmocka_unit_test(test_adapters), cmocka_unit_test(test_ranks)};
	int failed;

	ferry_run_begin("run-parts");
	write_file("mixture.json",
	        "{\"model_type\":\"qwen3_moe\"," SIZES "\"num_experts\":64,\"num_experts_per_tok\":4,"
	        "\"moe_intermediate_size\":128,\"intermediate_size\":96,\"norm_topk_prob\":true,"
	        "\"tie_word_embeddings\":false}");
	write_rows("rows.jsonl", 60, 3);
	snprintf(mixture.dir, sizeof(mixture.dir), "%s/made", work_dir);
	snprintf(mixture.data, sizeof(mixture.data), "%s/rows.jsonl", work_dir);
	assert_ferry(0, NULL, "init config=%s/mixture.json output_dir=%s", work_dir, mixture.dir);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
