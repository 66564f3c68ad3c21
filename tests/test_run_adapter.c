/* links: cli */
/* Adapters as other programs write them: read, or refused by what is wrong. */
#include "tests/adapter_file.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_two_names),
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
