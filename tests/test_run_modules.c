/* links: cli */
/* Directories of sentence-transformers through the commands: poolings, Dense and Normalize as that library
 * computes and trains them (tests/golden/make_modules.py, ../shared), offload, ranks, resuming, adapters,
 * refusals. */
#include "tests/golden_trace.h"

#define STEPS                                                                                                \
	"embedding_loss=mnrl shuffle=off compute_dtype=fp32 export_dtype=fp32 max_steps=20 "                 \
	"learning_rate=1e-2 lr_scheduler_type=constant weight_decay=0 max_grad_norm=0"

static char *golden_path(const char *name)
{
	const char *source = getenv("FERRY_SOURCE");

	return mem_printf("%s/tests/golden/modules/%s", source ? source : ".", name);
}

static json_t *reference(void)
{
	char *path = golden_path("ref.json");
	json_t *ref = NULL;

	assert_int_equal(json_read_file(&ref, path, 1 << 24), 0);
	mem_free(path);
	return ref;
}

/* The vectors of the model in that directory are these. */
static void vectors_check(
        const char *model, const char *texts, const json_t *want, double bound, const char *keys)
{
	char *text, *at, *line, path[400];
	size_t len, row = 0;

	path_of(path, "v.jsonl");
	(void)remove(path);
	assert_ferry(0, NULL,
	        "embed model=%s data=%s output=%s compute_dtype=fp32 per_device_eval_batch_size=4 %s", model,
	        texts, path, keys);
	text = at = read_file(path, &len);
	while ((line = strsep(&at, "\n")) && *line) {
		json_t *object = NULL;
		const json_t *got, *expected = json_array_get(want, row);

		assert_int_equal(json_parse(&object, "row", line, strlen(line)), 0);
		got = json_object_get(object, "embedding");
		assert_int_equal(json_array_size(got), json_array_size(expected));
		for (size_t i = 0; i < json_array_size(got); i++)
			if (!(fabs(number_at(got, i) - number_at(expected, i)) <= bound))
				fail_msg("%s: vector %zu, number %zu is %.9g, wanted %.9g", model, row, i,
				        number_at(got, i), number_at(expected, i));
		json_decref(object);
		row++;
	}
	assert_int_equal(row, json_array_size(want));
	mem_free(text);
}

static void losses_check(const char *run, const json_t *want)
{
	assert_int_equal(json_array_size(want), 20);
	for (size_t i = 0; i < 20; i++)
		assert_relative(metric_of(run, (int64_t)i + 1, "loss"), number_at(want, i), 3e-5, run);
}

/* Vectors, 20 steps, and the vectors of the result. */
static void test_modules(void **state)
{
	json_t *ref = reference();
	char *texts = golden_path("texts.jsonl"), *rows = golden_path("train.jsonl");
	const char *name;
	json_t *want;

	(void)state;
	json_object_foreach(ref, name, want)
	{
		char *model = golden_path(name), *result = mem_printf("%s/%s/model", work_dir, name);

		vectors_check(model, texts, json_object_get(want, "vectors"), 1e-6, "");
		assert_ferry(0, NULL,
		        "train model=%s data=%s output_dir=%s/%s " STEPS " per_device_train_batch_size=4",
		        model, rows, work_dir, name);
		losses_check(name, json_object_get(want, "losses"));
		vectors_check(result, texts, json_object_get(want, "after"), 1e-4, "");
		mem_free(model);
		mem_free(result);
	}
	json_decref(ref);
	mem_free(texts);
	mem_free(rows);
}

static void same_modules(const char *a, const char *b)
{
	static const char *const files[] = {"model.safetensors", "2_Dense/model.safetensors",
	        "3_Dense/model.safetensors", "4_Dense/model.safetensors", "modules.json",
	        "1_Pooling/config.json", "3_Dense/config.json"};

	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		char command[900];

		snprintf(command, sizeof(command), "cmp %s/%s/%s %s/%s/%s", work_dir, a, files[i], work_dir,
		        b, files[i]);
		assert_int_equal(system(command), 0);
	}
}

/* All poolings and three Dense: what moves data changes no bit, and ranks go the same way. */
static void test_same(void **state)
{
	char *model = golden_path("all"), *rows = golden_path("train.jsonl");
	json_t *ref = reference();
	const json_t *losses = json_object_get(json_object_get(ref, "all"), "losses");

	(void)state;
#define TRAIN(run, keys)                                                                                     \
	assert_ferry(0, NULL, "train model=%s data=%s output_dir=%s/" run " " STEPS " " keys, model, rows,   \
	        work_dir)
	TRAIN("one", "per_device_train_batch_size=2 gradient_accumulation_steps=2");
	losses_check("one", losses);
	TRAIN("offload", "per_device_train_batch_size=2 gradient_accumulation_steps=2 cpu_offload=on "
	                 "activations=recompute "
	                 "stream_delay_seed=5");
	same_modules("one/model", "offload/model");
	TRAIN("ranks", "per_device_train_batch_size=2 ranks=2");
	losses_check("ranks", losses);
	TRAIN("again", "per_device_train_batch_size=2 gradient_accumulation_steps=2 save_steps=7 "
	               "save_total_limit=9");
	remove_run("again/checkpoint-000020");
	remove_run("again/model");
	TRAIN("again", "per_device_train_batch_size=2 gradient_accumulation_steps=2 save_steps=7 "
	               "save_total_limit=9 resume=auto");
	same_modules("one/model", "again/model");
	assert_ferry(0, NULL,
	        "export checkpoint=%s/again/checkpoint-000014 output_dir=%s/exported export_dtype=fp32",
	        work_dir, work_dir);
	assert_ferry(0, NULL,
	        "export checkpoint=%s/again/checkpoint-000020 output_dir=%s/exported export_dtype=fp32 "
	        "overwrite_output_dir=on",
	        work_dir, work_dir);
	same_modules("one/model", "exported");
	json_decref(ref);
	mem_free(model);
	mem_free(rows);
}

/* Whether a Dense module of a run has the weights that it began with. */
static int is_kept_dense(const char *run, const char *folder)
{
	char *from = golden_path("all"), *was = mem_printf("%s/%s/model.safetensors", from, folder),
	     *is = mem_printf("%s/%s/model/%s/model.safetensors", work_dir, run, folder);
	struct safetensors *a, *b;
	int64_t count;
	double *before, *after;
	int same;

	assert_int_equal(safetensors_open(&a, was), 0);
	assert_int_equal(safetensors_open(&b, is), 0);
	before = tensor_read(a, "linear.weight", &count);
	after = tensor_read(b, "linear.weight", &count);
	same = !memcmp(before, after, (size_t)count * sizeof(*before));
	safetensors_close(a);
	safetensors_close(b);
	mem_free(before);
	mem_free(after);
	mem_free(was);
	mem_free(is);
	mem_free(from);
	return same;
}

/* Adapters and frozen modules leave the Dense modules as they are; bf16 runs. */
static void test_frozen(void **state)
{
	char *model = golden_path("all"), *rows = golden_path("train.jsonl");

	(void)state;
	TRAIN("lora", "per_device_train_batch_size=4 lora_rank=2");
	assert_true(is_kept_dense("lora", "2_Dense") && is_kept_dense("lora", "3_Dense"));
	TRAIN("frozen", "per_device_train_batch_size=4 freeze=[24]_Dense.*");
	assert_true(is_kept_dense("frozen", "2_Dense") && is_kept_dense("frozen", "4_Dense"));
	assert_false(is_kept_dense("frozen", "3_Dense"));
	assert_ferry(0, NULL,
	        "train model=%s data=%s output_dir=%s/half embedding_loss=mnrl max_steps=3 "
	        "per_device_train_batch_size=4 compute_dtype=bf16 save_steps=1",
	        model, rows, work_dir);
	mem_free(model);
	mem_free(rows);
}

/* Directories of ../shared: Dense with Tanh behind the first token; EmbeddingGemma, which sees both ways. */
static void shared_check(const char *golden, const char *name, const char *keys, const char *run)
{
	char *dir = mem_printf("%s/%s", golden, name), *path = mem_printf("%s/ref.json", dir);
	json_t *ref = NULL;

	assert_int_equal(json_read_file(&ref, path, 1 << 26), 0);
	assert_ferry(0, NULL,
	        "train model=%s/model data=%s/train.jsonl output_dir=%s/%s embedding_loss=mnrl " TRACE_KEYS
	        " per_device_train_batch_size=2 gradient_accumulation_steps=4 %s",
	        dir, dir, work_dir, run, keys);
	trace_check(run, json_object_get(json_object_get(ref, "trace"), "float32"), NULL);
	json_decref(ref);
	mem_free(path);
	mem_free(dir);
}

static void test_shared(void **state)
{
	const char *golden = golden_dir("test_run_modules, test_shared");

	(void)state;
	if (!golden)
		skip();
	shared_check(golden, "embeddings/xlmr", "", "xlmr");
	shared_check(golden, "modern/embed_gemma", "query_prompt=query document_prompt=document", "gemma");
}

/* A run goes on with the poolings that it began with. */
static void test_resume(void **state)
{
	char *model = golden_path("weighted"), *rows = golden_path("train.jsonl"), command[1200];

	(void)state;
	snprintf(command, sizeof(command), "cp -r %s %s/mine", model, work_dir);
	assert_int_equal(system(command), 0);
#define GO "train model=%s/mine data=%s output_dir=%s/goes per_device_train_batch_size=4 resume=auto " STEPS
	assert_ferry(0, NULL, GO " max_steps=2", work_dir, rows, work_dir);
	write_file("mine/config.json.new", "x"); /* another file changes nothing */
	assert_ferry(0, NULL, GO " max_steps=4", work_dir, rows, work_dir);
	write_file("mine/1_Pooling/config.json", "{\"pooling_mode\":\"mean\"}");
	assert_ferry(2, NULL, GO " max_steps=6", work_dir, rows, work_dir);
	assert_non_null(strstr(ferry_said(), "the pooling"));
	mem_free(model);
	mem_free(rows);
}

/* What a directory says and ferry lacks, or what contradicts itself, is refused by name. */
static void test_refusals(void **state)
{
#define DENSE "{\"in_features\":8,\"out_features\":4,\"bias\":false"
	static const struct {
		const char *file, *text, *says;
	} cases[] = {
	        {"1_Pooling/config.json", "{\"pooling_mode\":\"mode\"}",
	                "pooling_mode mode is not supported"},
	        {"1_Pooling/config.json", "{\"pooling_mode\":[\"max\",\"max\"]}",
	                "pooling_mode has max twice"},
	        {"1_Pooling/config.json", "{\"pooling_mode\":[]}", "pooling_mode is an empty list"},
	        {"1_Pooling/config.json", "{\"pooling_mode\":3}", "supported: cls, lasttoken, max"},
	        {"2_Dense/config.json", "{\"in_features\":9,\"out_features\":6}",
	                "in_features is 9, but the module before it gives 8 numbers"},
	        {"2_Dense/config.json", "{\"in_features\":8}", "needs in_features and out_features"},
	        {"2_Dense/config.json", DENSE ",\"activation_function\":\"torch.nn.Softmax\"}",
	                "activation_function torch.nn.Softmax is not supported"},
	        {"2_Dense/config.json", DENSE ",\"activation_function\":\"my.Tanh\"}",
	                "my.Tanh is not supported"},
	        {"2_Dense/config.json", DENSE ",\"use_residual\":true}", "use_residual is not supported"},
	        {"2_Dense/config.json", DENSE ",\"module_input_name\":\"token_embeddings\"}",
	                "module_input_name is token_embeddings"},
	        {"2_Dense/config.json", DENSE "}", "2_Dense.linear.weight"},
	        {"modules.json",
	                "[{\"type\":\"a.Transformer\",\"path\":\"\"},{\"type\":\"a.Pooling\",\"path\":"
	                "\"pool\"}]",
	                "is in \"pool\"; ferry reads folders such as 1_Pooling"},
	};
	char *model = golden_path("weighted"), *rows = golden_path("train.jsonl"), command[1200];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char name[100];

		snprintf(command, sizeof(command), "rm -rf %s/bad && cp -r %s %s/bad", work_dir, model,
		        work_dir);
		assert_int_equal(system(command), 0);
		snprintf(name, sizeof(name), "bad/%s", cases[i].file);
		write_file(name, "%s", cases[i].text);
		assert_ferry(2, NULL,
		        "train model=%s/bad data=%s output_dir=%s/none embedding_loss=mnrl max_steps=1 "
		        "per_device_train_batch_size=4",
		        work_dir, rows, work_dir);
		if (!strstr(ferry_said(), cases[i].says))
			fail_msg("%s: no \"%s\" in %s", cases[i].text, cases[i].says, ferry_said());
	}
	mem_free(model);
	mem_free(rows);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_modules), cmocka_unit_test(test_same),
	        cmocka_unit_test(test_frozen), cmocka_unit_test(test_shared), cmocka_unit_test(test_resume),
	        cmocka_unit_test(test_refusals)};
	int failed;

	ferry_run_begin("modules");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
