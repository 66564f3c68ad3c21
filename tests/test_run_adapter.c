/* links: cli */
/* Adapters as other programs write them: read, or refused by what is wrong. */
#include "tests/adapter_file.h"
#include "tests/run_disks.h"

static struct run_model tiny;

/* A new adapter of rank 2 in work_dir/a. */
static void make(void)
{
	char command[1200];

	snprintf(command, sizeof(command), "rm -rf %s/a %s/merged && cp -r %s/run/adapter %s/a", work_dir,
	        work_dir, work_dir, work_dir);
	assert_int_equal(system(command), 0);
}

static void merge(int code)
{
	assert_ferry(code, NULL, "merge model=%s lora_adapter=%s/a output_dir=%s/merged overwrite=on",
	        tiny.dir, work_dir, work_dir);
}

static void assert_said(const char *text)
{
	if (!strstr(ferry_said(), text))
		fail_msg("\"%s\" is not in: %s", text, ferry_said());
}

/* One tensor under two names that each would fit. */
static void test_two_names(void **state)
{
	struct adapter_file f;

	(void)state;
	make();
	adapter_open(&f, "a");
	adapter_add(&f, "base_model.model.layers.1.self_attn.q_proj.lora_B.weight", 32, 2, 0);
	adapter_close(&f);
	merge(2);
	assert_said("\"base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight\" and "
	            "\"base_model.model.layers.1.self_attn.q_proj.lora_B.weight\" are two names of one "
	            "tensor");
	make();
	adapter_open(&f, "a");
	adapter_rename(
	        &f, "model.model.layers.1.self_attn.q_proj.lora_B", "model.layers.1.self_attn.q_proj.lora_B");
	adapter_close(&f);
	merge(0);
}

/* Finite values of which a product is not: no verb writes the sum. */
static void test_overflow(void **state)
{
	static const char *const dtypes[] = {"bf16", "fp32"};
	struct adapter_file f;

	(void)state;
	make();
	adapter_open(&f, "a");
	adapter_fill(&f, "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", 3e38f);
	adapter_fill(&f, "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight", 2);
	adapter_close(&f);
	for (int i = 0; i < 2; i++) {
		assert_ferry(2, NULL, "merge model=%s lora_adapter=%s/a output_dir=%s/merged export_dtype=%s",
		        tiny.dir, work_dir, work_dir, dtypes[i]);
		assert_said("model.layers.0.self_attn.q_proj.weight is not finite at element 0");
		assert_false(run_has("merged"));
	}
	/* a run that takes no step has no result */
	remove_run("out");
	assert_ferry(4, NULL,
	        "train model=%s lora_adapter=%s/a data=%s output_dir=%s/out max_steps=2 threads=1", tiny.dir,
	        work_dir, tiny.data, work_dir);
	assert_said("all 2 steps were skipped, the last one because");
	assert_said("lower learning_rate");
	assert_false(run_has("out/model"));
	assert_false(run_has("out/adapter"));
}

/* Trains on from an adapter of this alpha that computes nothing yet. */
static void train_scaled(int code, double alpha, double rate, int steps)
{
	struct adapter_file f;
	const char *name;
	json_t *value;

	make();
	adapter_set("a", "lora_alpha", json_real(alpha));
	adapter_open(&f, "a");
	json_object_foreach(f.header, name, value)
	{
		if (strstr(name, "lora_B"))
			adapter_fill(&f, name, 0);
	}
	adapter_close(&f);
	remove_run("out");
	assert_ferry(code, NULL,
	        "train model=%s data=%s output_dir=%s/out lora_adapter=%s/a max_steps=%d threads=1 "
	        "learning_rate=%g lr_scheduler_type=constant compute_dtype=fp32",
	        tiny.dir, tiny.data, work_dir, work_dir, steps, rate);
}

/* The first step makes the adapters so large that the others are skipped, or that the sum is not finite. */
static void test_last_skipped(void **state)
{
	(void)state;
	train_scaled(0, 1e28, 100, 3);
	assert_said("the last 2 steps were skipped, because");
	assert_said("the result is that of step 1");
	train_scaled(4, 1e37, 1000, 1);
	assert_said("is not finite at element");
	assert_false(run_has("out/model"));
}

static int model_is_too_large(void *context, const struct file_call *call)
{
	(void)context;
	return call->kind == FILE_CALL_WRITE && call->path && strstr(call->path, "/out/model.") ? ENOSPC : 0;
}

/* Without room for the merged model the adapter is there, and the next call completes the result. */
static void test_adapter_first(void **state)
{
	(void)state;
	remove_run("out");
	assert_int_equal(run_hooked(model_is_too_large, NULL,
	                         "train model=%s data=%s output_dir=%s/out lora_rank=2 max_steps=2 threads=1 "
	                         "device=host",
	                         tiny.dir, tiny.data, work_dir),
	        1);
	assert_said("out/adapter holds the adapter of step 2; only the merged model is missing");
	assert_false(run_has("out/model"));
	assert_ferry(0, NULL, "merge model=%s lora_adapter=%s/out/adapter output_dir=%s/merged", tiny.dir,
	        work_dir, work_dir);
	assert_ferry(0, NULL, "train %s/out/config.yaml resume_from_checkpoint=auto", work_dir);
	assert_true(run_has("out/model/model.safetensors"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_two_names),
	        cmocka_unit_test(test_overflow),
	        cmocka_unit_test(test_last_skipped),
	        cmocka_unit_test(test_adapter_first),
	};
	int failed;

	ferry_run_begin("adapter");
	tiny_model(&tiny);
	assert_ferry(0, NULL,
	        "train model=%s data=%s output_dir=%s/run lora_rank=2 lora_target_modules=q_proj,v_proj "
	        "max_steps=1 threads=1 learning_rate=1e-2",
	        tiny.dir, tiny.data, work_dir);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
