/* links: cli */
/* base_format: runs of adapters over a quantized base. Where its weights lie changes no bit; memory holds the
 * codes; what cannot be quantized is refused by name. */
#include "tests/run_fixture.h"

static struct run_model tiny;

#define RUN                                                                                                  \
	"lora_rank=3 lora_alpha=6 learning_rate=1e-2 per_device_train_batch_size=2 "                         \
	"gradient_accumulation_steps=2 max_steps=4 threads=1 logging_steps=1 lr_scheduler_type=constant "    \
	"overwrite_output_dir=on "

static const char *const formats[] = {
        "nf4", "nf4 base_double_quant=off", "nf4 base_block_size=32", "fp4", "fp8", "int8", "mxfp4"};
enum { FORMAT_NUMBER = sizeof(formats) / sizeof(*formats) };

static void train(const char *out, const char *format, const char *more)
{
	assert_ferry(0, NULL, "train model=%s data=%s output_dir=%s/%s " RUN "base_format=%s %s", tiny.dir,
	        tiny.data, work_dir, out, format, more);
}

static void assert_same_numbers(const char *a, const char *b, const char *why, int same)
{
	char *of_a = run_numbers(a), *of_b = run_numbers(b);

	if ((strcmp(of_a, of_b) == 0) != same)
		fail_msg("%s: %s numbers:\n%s\n%s", why, same ? "other" : "the same", of_a, of_b);
	mem_free(of_a);
	mem_free(of_b);
}

static void test_offload(void **state)
{
	static const char *const ways[] = {"cpu_offload=off",
	        "cpu_offload=on vram_budget=off prefetch_units=1", "cpu_offload=params", "threads=2"};

	(void)state;
	train("bf16", "bf16", "");
	for (int f = 0; f < FORMAT_NUMBER; f++) {
		train("on", formats[f], "cpu_offload=on vram_budget=off");
		assert_same_numbers("on", "bf16", formats[f], 0);
		for (size_t w = 0; w < sizeof(ways) / sizeof(*ways); w++) {
			train("other", formats[f], ways[w]);
			assert_same_numbers("on", "other", formats[f], 1);
		}
	}
}

/* A run that goes on has the same numbers, and refuses another format. */
static void test_resume(void **state)
{
	(void)state;
	train("whole", "nf4", "");
	train("half", "nf4", "max_steps=2 save_steps=2");
	assert_ferry(0, NULL,
	        "train model=%s data=%s output_dir=%s/half lora_rank=3 lora_alpha=6 learning_rate=1e-2 "
	        "per_device_train_batch_size=2 gradient_accumulation_steps=2 max_steps=4 threads=1 "
	        "logging_steps=1 lr_scheduler_type=constant base_format=nf4 resume_from_checkpoint=auto",
	        tiny.dir, tiny.data, work_dir);
	assert_same_numbers("whole", "half", "resumed", 1);
}

/* Of weights in host memory. */
static int64_t plan_bytes(const char *keys)
{
	int64_t bytes;
	json_t *plan;

	assert_ferry_json(&plan,
	        "plan model=%s device=host vram_budget=off cpu_offload=on lora_rank=3 %s --json", tiny.dir,
	        keys);
	bytes = json_integer_value(
	        json_object_get(json_object_get(json_object_get(plan, "memory"), "host"), "weights_bytes"));
	assert_true(bytes > 0);
	json_decref(plan);
	return bytes;
}

/* Elements of the matrices of the model's blocks. */
enum { MATRICES = 3 * (32 * 32 * 2 + 32 * 16 * 2 + 3 * 64 * 32) };

static void test_bytes(void **state)
{
	int64_t bf16 = plan_bytes("base_format=bf16"), gained;

	(void)state;
	assert_true(bf16 == plan_bytes(""));
	gained = bf16 - plan_bytes("base_format=nf4 base_double_quant=off");
	assert_true(gained == MATRICES * 2 - MATRICES / 2 - MATRICES / 64 * 4);
	gained = bf16 - plan_bytes("base_format=fp8");
	assert_true(gained >= MATRICES - 21 * 16 && gained < MATRICES); /* scales of a matrix in 16 bytes */
	gained = bf16 - plan_bytes("base_format=mxfp4");
	assert_true(gained == MATRICES * 2 - MATRICES / 2 - MATRICES / 32);
}

/* The plan says where bf16 is as fast and fits, by all settings that it takes, and that of a run in bf16 does
 * not. */
static void test_plan_advice(void **state)
{
	static const struct {
		const char *keys, *advice;
	} of[] = {
	        {"lora_rank=2 base_format=nf4", "base_format=bf16"},
	        {"lora_rank=2 base_format=bf16", NULL},
	        {"lora_rank=2 base_format=nf4 ram_budget=150MiB", "base_format=bf16"},
	        {"compute_dtype=fp8", "compute_dtype=bf16"},
	        {"lora_rank=2 compute_dtype=fp8", "compute_dtype=bf16"},
	        {"lora_rank=2 compute_dtype=fp8 base_format=fp8", "compute_dtype=bf16 base_format=bf16"},
	        {"", NULL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(of) / sizeof(*of); i++) {
		char advice[200] = "is as fast and loses no quality";
		struct str out = {0};

		assert_int_equal(
		        ferry_run(&out,
		                "plan model=%s/even.json "
		                "machine=%s/examples/machines/workstation-rtx-4090.yaml "
		                "max_length=64 %s",
		                work_dir, getenv("FERRY_SOURCE") ? getenv("FERRY_SOURCE") : ".", of[i].keys),
		        0);
		if (of[i].advice)
			snprintf(advice, sizeof(advice),
			        "bf16     %s is as fast and loses no quality: ", of[i].advice);
		if (!strstr(out.data, advice) == !!of[i].advice)
			fail_msg("%s: %s", of[i].keys, out.data);
		str_free(&out);
	}
}

static double loss_of(const char *keys)
{
	json_t *got;
	double loss;

	assert_ferry_json(&got, "eval model=%s data=%s threads=1 --json %s", tiny.dir, tiny.data, keys);
	loss = json_number_value(json_object_get(got, "loss"));
	json_decref(got);
	return loss;
}

/* What the training's evaluation computes over the base that it quantized; and a plain model quantized. */
static void test_eval(void **state)
{
	char more[1000], keys[500];
	double plain = loss_of(""), inside;

	(void)state;
	for (int f = 0; f < FORMAT_NUMBER; f++) {
		snprintf(more, sizeof(more), "eval_data=%s eval_steps=4", tiny.data);
		train("a", formats[f], more);
		inside = metric_of("a", 4, "eval_loss");
		snprintf(
		        keys, sizeof(keys), "lora_adapter=%s/a/adapter base_format=%s", work_dir, formats[f]);
		if (loss_of(keys) != inside)
			fail_msg("%s: eval gives %.17g, the training %.17g", formats[f], loss_of(keys),
			        inside);
		snprintf(keys, sizeof(keys), "base_format=%s", formats[f]);
		assert_true(loss_of(keys) != plain);
	}
	snprintf(keys, sizeof(keys), "base_format=bf16");
	assert_true(loss_of(keys) == plain);
}

static void assert_refused(const char *keys, const char *said)
{
	assert_ferry(2, NULL, "train model=%s data=%s output_dir=%s/no max_steps=1 %s", tiny.dir, tiny.data,
	        work_dir, keys);
	if (!strstr(ferry_said(), said))
		fail_msg("%s: %s", keys, ferry_said());
}

static void test_refused(void **state)
{
	(void)state;
	assert_refused("base_format=nf4", "base_format=nf4: quantized weights cannot be trained");
	assert_refused("base_format=nf4 lora_rank=2 init_weights=random", "but init_weights=random has none");
	assert_refused("base_format=nf4 lora_rank=2 base_block_size=100", "is not a power of two");
	assert_refused("base_format=nf4 lora_rank=2 base_block_size=16", "base_block_size");
	assert_refused("base_format=int3 lora_rank=2", "base_format");
	assert_ferry(
	        2, NULL, "eval model=%s data=%s base_format=nf4 base_block_size=48", tiny.dir, tiny.data);
	assert_non_null(strstr(ferry_said(), "base_block_size=48 is not a power of two"));
	write_file("odd.json",
	        "{\"model_type\":\"llama\",\"vocab_size\":64,\"hidden_size\":32,\"intermediate_size\":48,"
	        "\"num_hidden_layers\":1,\"num_attention_heads\":4,\"tie_word_embeddings\":false,"
	        "\"max_position_embeddings\":128}");
	assert_ferry(0, NULL, "init config=%s/odd.json output_dir=%s/odd", work_dir, work_dir);
	assert_ferry(2, NULL, "train model=%s/odd data=%s output_dir=%s/no lora_rank=2 base_format=mxfp4",
	        work_dir, tiny.data, work_dir);
	assert_non_null(strstr(ferry_said(), "model.layers.0.mlp.down_proj.weight has rows of 48"));
	/* of parts that do not train too */
	train("part", "nf4", "lora_rank=0 lora_alpha=auto 'freeze=.*layers.0.*'");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_offload),
	        cmocka_unit_test(test_resume),
	        cmocka_unit_test(test_bytes),
	        cmocka_unit_test(test_plan_advice),
	        cmocka_unit_test(test_eval),
	        cmocka_unit_test(test_refused),
	};
	int failed;

	ferry_run_begin("base-format");
	tiny_model(&tiny);
	write_file("even.json",
	        "{\"model_type\":\"llama\",\"vocab_size\":64,\"hidden_size\":32,\"intermediate_size\":64,"
	        "\"num_hidden_layers\":3,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
	        "\"max_position_embeddings\":128,\"tie_word_embeddings\":false}");
	assert_ferry(0, NULL, "init config=%s/even.json output_dir=%s/even seed=1", work_dir, work_dir);
	snprintf(tiny.dir, sizeof(tiny.dir), "%s/even", work_dir);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
