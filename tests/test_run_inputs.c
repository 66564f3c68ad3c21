/* links: cli */
/* No verb puts its result in the place of what it reads, whatever the names: the input stays as it was. */
#include "tests/run_fixture.h"

static struct run_model tiny;

/* A command in work_dir. */
static void shell(const char *command)
{
	char text[900];

	snprintf(text, sizeof(text), "cd %s && %s", work_dir, command);
	assert_int_equal(system(text), 0);
}

static void setup_files(void)
{
	tiny_model(&tiny);
	assert_ferry(0, NULL,
	        "train model=%s data=%s output_dir=%s/run lora_rank=2 max_steps=1 threads=1 save_steps=1",
	        tiny.dir, tiny.data, work_dir);
	shell("ln -s tiny alias && ln -s . here && cp -r tiny kept && mkdir far && cp tiny/* far && "
	      "mkdir linked && ln -s ../far/model.safetensors ../far/config.json linked && "
	      "cp -al tiny hard && cp -r run/adapter adapter && mkdir both && "
	      "cp tiny/* adapter/* rows.jsonl both && cp -r tiny model && mkdir run2 && ln -s ../tiny "
	      "run2/model");
}

/* The command would replace what it reads; the last word is the key that it names. */
static void test_refused(void **state)
{
	static const struct {
		const char *call, *key;
	} cases[] = {
	        {"merge model=tiny lora_adapter=adapter output_dir=tiny", "model=tiny"},
	        {"merge model=tiny/ lora_adapter=adapter output_dir=./here/tiny/", "model=tiny/"},
	        {"merge model=alias lora_adapter=adapter output_dir=tiny", "model=alias"},
	        {"merge model=tiny lora_adapter=adapter output_dir=alias", "model=tiny"},
	        {"merge model=linked lora_adapter=adapter output_dir=far", "model=linked"},
	        {"merge model=tiny lora_adapter=adapter output_dir=adapter", "lora_adapter=adapter"},
	        {"merge model=both lora_adapter=both output_dir=both", "model=both"},
	        {"merge model=tiny lora_adapter=adapter tokenizer=far output_dir=far", "tokenizer=far"},
	        {"init config=tiny/config.json output_dir=tiny", "config=tiny/config.json"},
	        {"init config=tiny output_dir=alias", "config=tiny"},
	        {"init config=tiny.json tokenizer=here/far output_dir=far", "tokenizer=here/far"},
	        {"export checkpoint=run model=tiny output_dir=tiny", "model=tiny"},
	        {"train model=tiny data=rows.jsonl max_steps=1 output_dir=run2", "model=tiny"},
	        {"train model=tiny data=rows.jsonl max_steps=1 output_dir=out save_fallback_dir=. "
	         "model=model",
	                "model=model"},
	        {"train model=tiny data=rows.jsonl max_steps=1 output_dir=alias", "model=tiny"},
	        {"train model=tiny lora_adapter=adapter data=rows.jsonl max_steps=1 output_dir=adapter",
	                "lora_adapter=adapter"},
	        {"train model=run/model data=rows.jsonl max_steps=1 output_dir=run", "model=run/model"},
	        {"train model=tiny lora_adapter=run/adapter data=rows.jsonl max_steps=1 output_dir=here/run",
	                "lora_adapter=run/adapter"},
	        {"train model=tiny data=rows.jsonl chat_template=run/model/config.json max_steps=1 "
	         "output_dir=run",
	                "chat_template=run/model/config.json"},
	};

	(void)state;
	assert_int_equal(chdir(work_dir), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_ferry(2, NULL, "%s overwrite_output_dir=on", cases[i].call);
		if (!strstr(ferry_said(), cases[i].key) || !strstr(ferry_said(), "reads"))
			fail_msg("%s: %s", cases[i].call, ferry_said());
		shell("for d in tiny far model; do cmp kept/model.safetensors $d/model.safetensors && "
		      "cmp kept/config.json $d/config.json || exit 1; done; "
		      "cmp run/adapter/adapter_model.safetensors adapter/adapter_model.safetensors");
	}
}

/* A hard link is another name of the file, which stays; a copy is no input. */
static void test_taken(void **state)
{
	(void)state;
	assert_ferry(
	        0, NULL, "merge model=tiny lora_adapter=adapter output_dir=hard overwrite_output_dir=on");
	shell("cmp kept/model.safetensors tiny/model.safetensors && "
	      "! cmp -s hard/model.safetensors tiny/model.safetensors");
	assert_ferry(0, NULL, "merge model=tiny lora_adapter=adapter output_dir=tiny/merged");
	assert_ferry(0, NULL, "export checkpoint=run model=tiny output_dir=far overwrite_output_dir=on");
	assert_ferry(0, NULL, "train run/config.yaml resume_from_checkpoint=auto max_steps=2");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_refused),
	        cmocka_unit_test(test_taken),
	};
	int failed;

	ferry_run_begin("inputs");
	setup_files();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
