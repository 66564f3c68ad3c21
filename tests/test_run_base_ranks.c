/* links: cli */
/* Several ranks with a quantized base: each has its share of codes and scales, the losses are those of one
 * rank to rounding, however files are read. */
#include "tests/run_fixture.h"

static struct run_model tiny;

#define RUN                                                                                                  \
	"lora_rank=3 lora_alpha=6 learning_rate=1e-2 per_device_train_batch_size=1 max_steps=3 threads=1 "   \
	"logging_steps=1 lr_scheduler_type=constant overwrite_output_dir=on compute_dtype=fp32 "             \
	"export_dtype=fp32 "

static const char *const formats[] = {
        "nf4", "nf4 base_double_quant=off", "nf4 base_block_size=4096", "fp4", "fp8", "int8", "mxfp4"};
enum { FORMAT_NUMBER = sizeof(formats) / sizeof(*formats) };

static void train(const char *out, const char *format, const char *more)
{
	assert_ferry(0, NULL, "train model=%s data=%s output_dir=%s/%s " RUN "base_format=%s %s", tiny.dir,
	        tiny.data, work_dir, out, format, more);
}

/* Offload, whole units on the device, and the way of loading change no bit; the number of ranks rounds. */
static void test_losses(void **state)
{
	static const char *const ways[] = {"ranks=2 cpu_offload=on vram_budget=off",
	        "ranks=2 cpu_offload=off", "ranks=2 load=rank0_only", "ranks=2 sharding_strategy=NO_SHARD",
	        "ranks=2 load=rank0_only sharding_strategy=NO_SHARD check_replicas=1",
	        "ranks=3 load=rank0_only", "ranks=3 sharding_strategy=SHARD_GRAD_OP",
	        "ranks=4 sharding_strategy=HYBRID_SHARD ranks_per_node=2 check_replicas=1"};

	(void)state;
	for (int f = 0; f < FORMAT_NUMBER; f++) {
		train("one", formats[f], "gradient_accumulation_steps=12");
		for (size_t w = 0; w < sizeof(ways) / sizeof(*ways); w++) {
			char more[200], name[20];

			if (f && w && w % FORMAT_NUMBER != (size_t)f) /* nf4 has all ways, the others two */
				continue;
			snprintf(more, sizeof(more), "%s gradient_accumulation_steps=%d", ways[w],
			        12 / atoi(ways[w] + 6));
			snprintf(name, sizeof(name), "two%d", (int)w);
			train(name, formats[f], more);
			assert_near_losses("one", name, 3, 5e-6, more);
		}
	}
}

/* Bytes of weights in a rank's host memory. */
static int64_t plan_bytes(const char *keys)
{
	json_t *plan;
	int64_t bytes;

	assert_ferry_json(&plan,
	        "plan model=%s device=host vram_budget=off cpu_offload=on lora_rank=3 %s --json", tiny.dir,
	        keys);
	bytes = json_integer_value(
	        json_object_get(json_object_get(json_object_get(plan, "memory"), "host"), "weights_bytes"));
	json_decref(plan);
	assert_true(bytes > 0);
	return bytes;
}

static void test_bytes(void **state)
{
	(void)state;
	for (int f = 0; f < FORMAT_NUMBER; f++) {
		char keys[100];
		int64_t one, two;

		snprintf(keys, sizeof(keys), "base_format=%s", formats[f]);
		one = plan_bytes(keys);
		snprintf(keys, sizeof(keys), "base_format=%s ranks=2", formats[f]);
		two = plan_bytes(keys);
		if (two > one / 2 + one / 20 || two < one / 2 - one / 20)
			fail_msg("%s: one rank %lld, each of two %lld", formats[f], (long long)one,
			        (long long)two);
	}
}

/* A run of three ranks that stops and goes on as two has the adapter of one to rounding, and goes on. */
static void test_resume(void **state)
{
	(void)state;
	train("whole", "nf4", "gradient_accumulation_steps=6");
	train("part", "nf4", "gradient_accumulation_steps=2 ranks=3 max_steps=2 save_steps=1");
	assert_ferry(0, NULL, "verify %s/part", work_dir);
	assert_ferry(0, NULL,
	        "train model=%s data=%s output_dir=%s/part lora_rank=3 lora_alpha=6 learning_rate=1e-2 "
	        "per_device_train_batch_size=1 gradient_accumulation_steps=3 ranks=2 max_steps=3 threads=1 "
	        "logging_steps=1 lr_scheduler_type=constant compute_dtype=fp32 export_dtype=fp32 "
	        "base_format=nf4 resume_from_checkpoint=auto",
	        tiny.dir, tiny.data, work_dir);
	assert_near_losses("whole", "part", 3, 5e-6, "resumed on other ranks");
}

/* What a rank says of the state that it holds (mem_free). */
static char *held_text(void)
{
	const char *at = strstr(ferry_said(), "optimizer state: ");

	assert_non_null(at);
	return mem_printf("%.*s", (int)strcspn(at, ","), at);
}

/* Codes of bitsandbytes' files, which all ranks read, or rank 0. */
static void test_stored(void **state)
{
	static const char *const models[] = {"single", "double"};
	const char *shared = getenv("FERRY_SHARED");
	struct run_model was = tiny;
	char path[300], *held, *first;

	(void)state;
	for (int m = 0; m < 2; m++) {
		snprintf(path, sizeof(path), "%s/golden/nf4/%s/hf", shared ? shared : "../shared", models[m]);
		if (access(path, F_OK) != 0) {
			printf("SKIPPED test_stored: no %s\n", path);
			break;
		}
		snprintf(tiny.dir, sizeof(tiny.dir), "%s", path);
		snprintf(tiny.data, sizeof(tiny.data), "%s/golden/nf4/base/train.jsonl max_length=64",
		        shared ? shared : "../shared");
		train("one", "auto", "gradient_accumulation_steps=6");
		train("two", "auto", "gradient_accumulation_steps=2 ranks=3 cpu_offload=on");
		held = held_text();
		assert_near_losses("one", "two", 3, 5e-6, models[m]);
		train("first", "auto",
		        "gradient_accumulation_steps=2 ranks=3 cpu_offload=on load=rank0_only");
		assert_same_runs("two", "first", "codes that rank 0 reads");
		first = held_text();
		assert_string_equal(held, first);
		mem_free(held);
		mem_free(first);
	}
	tiny = was;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_losses),
	        cmocka_unit_test(test_bytes),
	        cmocka_unit_test(test_resume),
	        cmocka_unit_test(test_stored),
	};
	int failed;

	ferry_run_begin("base-ranks");
	tiny_model(&tiny);
	write_file("even.json",
	        "{\"model_type\":\"llama\",\"vocab_size\":64,\"hidden_size\":32,\"intermediate_size\":160,"
	        "\"num_hidden_layers\":3,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
	        "\"max_position_embeddings\":128,\"tie_word_embeddings\":false}");
	assert_ferry(0, NULL, "init config=%s/even.json output_dir=%s/even seed=1", work_dir, work_dir);
	snprintf(tiny.dir, sizeof(tiny.dir), "%s/even", work_dir);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
