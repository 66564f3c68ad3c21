/* links: cli */
/* Resuming with other settings: changes in config.json beyond shapes are refused with both values. Each
 * other change gets one line; unchanged settings get none. */
#include "tests/manifest_change.h"
#include "tests/run_fixture.h"

static struct run_model tiny;

static const char common[] = "per_device_train_batch_size=2 threads=1 device=host logging_steps=1 "
                             "lr_scheduler_type=constant save_steps=2";

static const char same[] =
        "train model=%s/m data=%s output_dir=%s/out max_steps=%d resume_from_checkpoint=%s %s %s";

/* work_dir/m with these keys in config.json, the others as they are. */
static void model_with(const char *keys)
{
	model_copy(&tiny, "m");
	write_file("m/config.json", "{" TINY_KEYS "%s%s}", "false", *keys ? "," : "", keys);
}

static void begin_run(void)
{
	model_with("");
	remove_run("out");
	assert_ferry(0, NULL, same, work_dir, tiny.data, work_dir, 4, "off", common, "learning_rate=1e-3");
}

static void test_another_config(void **state)
{
	static const struct {
		const char *keys, *says;
	} cases[] = {
	        {"\"rope_theta\":500000.0", "rope_theta 500000, not 10000"},
	        {"\"rms_norm_eps\":1e-5", "rms_norm_eps (layer_norm_eps, post_norm_eps) 1e-05, not 1e-06"},
	        {"\"hidden_act\":\"gelu\"", "hidden_act gelu, not silu"},
	        {"\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":4.0}",
	                "rope_type linear, not default"},
	        {"\"pad_token_id\":3", "pad_token_id 3, not -1"},
	};

	(void)state;
	begin_run();
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		model_with(cases[i].keys);
		assert_ferry(2, NULL, same, work_dir, tiny.data, work_dir, 6, "auto", common,
		        "learning_rate=1e-3");
		if (!strstr(ferry_said(), cases[i].says) || !strstr(ferry_said(), "hf/config.json"))
			fail_msg("%s: %s", cases[i].says, ferry_said());
		assert_false(run_has("out/checkpoint-000006"));
	}
}

/* Keys that change no number, in another order, with other blanks. */
static void test_the_same_config(void **state)
{
	(void)state;
	begin_run();
	model_with("\"rope_theta\":10000,  \"use_cache\":false, "
	           "\"transformers_version\":\"9\",\"bos_token_id\":1,"
	           "\"hidden_act\":\"swish\",\"torch_dtype\":\"float32\"");
	assert_ferry(0, NULL, same, work_dir, tiny.data, work_dir, 6, "auto", common, "learning_rate=1e-3");
	assert_null(strstr(ferry_said(), "from here on"));
}

static void test_other_settings(void **state)
{
	(void)state;
	begin_run();
	assert_ferry(0, NULL, same, work_dir, tiny.data, work_dir, 6, "auto", common,
	        "learning_rate=5e-4 weight_decay=0.1 save_total_limit=3 save_first_step=on "
	        "export_dtype=fp32");
	assert_non_null(
	        strstr(ferry_said(), "learning_rate is 0.0005 from here on; the checkpoint had 0.001"));
	assert_non_null(strstr(ferry_said(), "weight_decay is 0.1 from here on; the checkpoint had 0"));
	assert_int_equal(count_of(ferry_said(), "from here on"), 2);
	/* one that was not set, and one that is no more */
	begin_run();
	assert_ferry(0, NULL, same, work_dir, tiny.data, work_dir, 6, "auto", common,
	        "learning_rate=1e-3 data_split=train");
	assert_non_null(strstr(ferry_said(), "data_split is train from here on; it was not set before"));
	assert_ferry(0, NULL, same, work_dir, tiny.data, work_dir, 8, "auto", common, "learning_rate=1e-3");
	assert_non_null(strstr(ferry_said(), "data_split is not set from here on; the checkpoint had train"));
	/* and then these are the checkpoint's */
	assert_ferry(0, NULL, same, work_dir, tiny.data, work_dir, 10, "auto", common, "learning_rate=1e-3");
	assert_int_equal(count_of(ferry_said(), "from here on"), 0);
}

/* The checkpoint has the weights, so a change of these keys says nothing of them. */
static void test_other_weights(void **state)
{
	char keys[500];

	(void)state;
	begin_run();
	snprintf(keys, sizeof(keys), "learning_rate=1e-3 init_weights=random model=%s/tiny", work_dir);
	assert_ferry(0, NULL, same, work_dir, tiny.data, work_dir, 6, "auto", common, keys);
	assert_non_null(strstr(ferry_said(), "/tiny is not what the run began with ("));
	assert_non_null(
	        strstr(ferry_said(), "init_weights=random is not what the run began with (pretrained); "
	                             "the weights come from the checkpoint all the same"));
	assert_int_equal(count_of(ferry_said(), "began with"), 2);
	/* the same model by another path is no other model */
	begin_run();
	snprintf(keys, sizeof(keys), "%s/alias", work_dir);
	assert_true(!symlink("m", keys));
	snprintf(keys, sizeof(keys), "learning_rate=1e-3 model=%s/alias", work_dir);
	assert_ferry(0, NULL, same, work_dir, tiny.data, work_dir, 6, "auto", common, keys);
	assert_int_equal(count_of(ferry_said(), "began with"), 0);
}

/* Which tensors are trained is named by its key. */
static void test_other_tensors(void **state)
{
	static const char *const cases[][3] = {
	        {"", "freeze=.*norm.*",
	                "freeze was not set in this run and is .*norm.*, so it trains other tensors; remove "
	                "freeze"},
	        {"trainable=.*mlp.*", "trainable=.*attn.*",
	                "trainable was .*mlp.* in this run and is .*attn.*, so it trains other "
	                "tensors; set trainable=.*mlp.*"},
	        {"lora_rank=2 lora_modules_to_save=norm", "lora_rank=2",
	                "lora_modules_to_save was norm in this run and is not set, so its adapters are "
	                "others; set "
	                "lora_modules_to_save=norm"},
	        {"lora_rank=2", "lora_rank=2 lora_modules_to_save=norm", "remove lora_modules_to_save"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		model_with("");
		remove_run("out");
		assert_ferry(0, NULL, same, work_dir, tiny.data, work_dir, 2, "off", common, cases[i][0]);
		assert_ferry(2, NULL, same, work_dir, tiny.data, work_dir, 4, "auto", common, cases[i][1]);
		if (!strstr(ferry_said(), cases[i][2]))
			fail_msg("%s: %s", cases[i][2], ferry_said());
	}
}

/* What makes the rows is named where it changed, else the data. */
static void test_other_rows(void **state)
{
	static const struct {
		const char *settings, *says;
	} cases[] = {
	        {"seed=9", "order: seed was 42 and is 9; set seed=42"},
	        {"data_split=train[:3]", "order: data_split was not set and is train[:3]; remove data_split"},
	        {"seed=9 data_split=train[:3]", "seed was 42 and is 9; set seed=42, remove data_split"},
	        {"shuffle=off", "order: shuffle was on and is off; set shuffle=on"},
	        {"packing=bfd max_length=64",
	                "order: max_length was 1024 and is 64, packing was off and is bfd; "
	                "set max_length=1024 packing=off"},
	        {"data", "other.jsonl, the tokenizer or the chat template has changed; to go "
	                 "on with new data: model="},
	};
	char other[600];

	(void)state;
	begin_run();
	write_file("other.jsonl", "{\"input_ids\":[1,2,3]}\n{\"input_ids\":[4,5,6]}\n");
	snprintf(other, sizeof(other), "%s/other.jsonl", work_dir);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		int is_data = !strcmp(cases[i].settings, "data");

		assert_ferry(2, NULL, same, work_dir, is_data ? other : tiny.data, work_dir, 6, "auto",
		        common, is_data ? "" : cases[i].settings);
		if (!strstr(ferry_said(), cases[i].says))
			fail_msg("%s: %s", cases[i].says, ferry_said());
	}
	assert_non_null(strstr(ferry_said(), "out/model output_dir=NEW"));
	remove_run("out/model");
	assert_ferry(2, NULL, same, work_dir, other, work_dir, 6, "auto", common, "");
	assert_non_null(strstr(ferry_said(), "ferry export "));
}

static void test_another_shuffle(void **state)
{
	char path[700];

	(void)state;
	begin_run();
	snprintf(path, sizeof(path), "%s/out/checkpoint-000004", work_dir);
	manifest_change(path, "\"shuffle_version\":2", "\"shuffle_version\":1");
	assert_ferry(2, NULL, same, work_dir, tiny.data, work_dir, 6, path, common, "learning_rate=1e-3");
	assert_non_null(strstr(ferry_said(), "the checkpoint's rows are in shuffle_version 1, but this ferry "
	                                     "knows 2; resume with the ferry that began the run"));
}

static int begin(void **state)
{
	(void)state;
	ferry_run_begin("run-resume");
	tiny_model(&tiny);
	return 0;
}

static int end(void **state)
{
	(void)state;
	ferry_run_end();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_another_config),
	        cmocka_unit_test(test_other_weights),
	        cmocka_unit_test(test_the_same_config),
	        cmocka_unit_test(test_other_settings),
	        cmocka_unit_test(test_other_rows),
	        cmocka_unit_test(test_other_tensors),
	        cmocka_unit_test(test_another_shuffle),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
