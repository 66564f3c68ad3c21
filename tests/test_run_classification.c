/* links: cli */
/* Classifiers through the commands: golden losses, pieces, offload, ranks, resume, new heads, refusals. */
#include "tests/golden_trace.h"

#define TRACE "objective=classification " TRACE_KEYS

static json_t *evaluate(const char *model, const char *data, const char *keys)
{
	struct str out = {0};
	json_t *root = NULL;

	assert_ferry(0, &out, "eval model=%s data=%s --json compute_dtype=fp32 %s", model, data, keys);
	assert_int_equal(json_parse(&root, "stdout", out.data, out.len_bytes), 0);
	str_free(&out);
	return root;
}

/* BERT with three classes, of which half of the rows are pairs of texts. */
static void test_golden(void **state)
{
	const char *golden = golden_dir("test_run_classification, test_golden");
	char *dir, *path, *rows, *model;
	json_t *ref = NULL, *got;
	const json_t *trace;

	(void)state;
	if (!golden)
		skip();
	golden_begin("embeddings/classifier");
	golden_now.part = "steps in fp32";
	dir = mem_printf("%s/embeddings/classifier", golden);
	path = mem_printf("%s/ref.json", dir);
	rows = mem_printf("%s/eval.jsonl", dir);
	model = mem_printf("%s/hf", dir);
	assert_int_equal(json_read_file(&ref, path, 1 << 26), 0);
	got = evaluate(model, rows, "objective=classification");
	assert_relative(number(got, "loss"),
	        number(json_object_get(json_object_get(ref, "eval"), "float64"), "loss_mean"), 1e-6, "eval");
	trace = json_object_get(json_object_get(ref, "trace"), "float32");
	assert_ferry(0, NULL,
	        "train model=%s data=%s/train.jsonl output_dir=%s/one " TRACE
	        " per_device_train_batch_size=2 gradient_accumulation_steps=2",
	        model, dir, work_dir);
	trace_check("one", trace, "accuracy");
	assert_ferry(0, NULL,
	        "train model=%s data=%s/train.jsonl output_dir=%s/major " TRACE
	        " per_device_train_batch_size=1 gradient_accumulation_steps=4 schedule=micro_batch_major",
	        model, dir, work_dir);
	trace_check("major", trace, "accuracy");
	assert_ferry(0, NULL,
	        "train model=%s data=%s/train.jsonl output_dir=%s/offload " TRACE
	        " per_device_train_batch_size=2 gradient_accumulation_steps=2 cpu_offload=on "
	        "activations=recompute stream_delay_seed=5",
	        model, dir, work_dir);
	same_weights("one", "offload");
	assert_ferry(0, NULL,
	        "train model=%s data=%s/train.jsonl output_dir=%s/ranks " TRACE
	        " per_device_train_batch_size=2 ranks=2",
	        model, dir, work_dir);
	trace_check("ranks", trace, "accuracy");
	json_decref(got);
	json_decref(ref);
	mem_free(dir);
	mem_free(path);
	mem_free(rows);
	mem_free(model);
}

#define ROWS                                                                                                 \
	"{\"text\":\"good day\",\"label\":1}\n{\"text\":\"bad night\",\"label\":0}\n"                        \
	"{\"text\":\"a bad day\",\"label\":0}\n{\"text\":\"good\",\"label\":1}\n"

/* A model without such a head gets one; the result is a classifier, and so is an export. */
static void test_new_head(void **state)
{
	char *text, *again, path[400];
	json_t *got;

	(void)state;
	write_file("rows.jsonl", "%s", ROWS);
	path_of(path, "rows.jsonl");
	assert_ferry(0, NULL,
	        "train model=%s/speaker data=%s/rows.jsonl output_dir=%s/new objective=classification "
	        "max_steps=40 save_steps=20 save_total_limit=5 learning_rate=5e-3 compute_dtype=fp32 "
	        "export_dtype=fp32 per_device_train_batch_size=4",
	        work_dir, work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "the head for classes begins with random values: score.weight"));
	text = file_of("new", "model/config.json");
	assert_non_null(strstr(text, "LlamaForSequenceClassification"));
	assert_non_null(strstr(text, "LABEL_1"));
	mem_free(text);
	{
		char model[400];

		path_of(model, "new/model");
		got = evaluate(model, path, "objective=classification");
	}
	assert_true(number(got, "accuracy") == 1);
	assert_null(json_object_get(got, "perplexity"));
	json_decref(got);
	assert_ferry(0, NULL,
	        "export checkpoint=%s/new/checkpoint-000040 output_dir=%s/exported export_dtype=fp32",
	        work_dir, work_dir);
	text = file_of("new", "model/config.json");
	again = file_of("exported", "config.json");
	assert_string_equal(text, again);
	mem_free(text);
	mem_free(again);
	/* a resumed run ends with the same bits */
	{
		char command[900], kept[400], gone[400];

		path_of(kept, "kept");
		snprintf(command, sizeof(command), "cp %s/new/model/model.safetensors %s", work_dir, kept);
		assert_int_equal(system(command), 0);
		path_of(gone, "new/checkpoint-000040");
		assert_int_equal(file_remove_tree(gone), 0);
		path_of(gone, "new/model");
		assert_int_equal(file_remove_tree(gone), 0);
		assert_ferry(0, NULL,
		        "train model=%s/speaker data=%s/rows.jsonl output_dir=%s/new "
		        "objective=classification max_steps=40 "
		        "save_steps=20 save_total_limit=5 learning_rate=5e-3 compute_dtype=fp32 "
		        "export_dtype=fp32 "
		        "per_device_train_batch_size=4 resume=auto",
		        work_dir, work_dir, work_dir);
		snprintf(command, sizeof(command), "cmp %s/new/model/model.safetensors %s", work_dir, kept);
		assert_int_equal(system(command), 0);
	}
	/* a classifier is no language model */
	assert_ferry(2, NULL, "generate model=%s/new/model prompt=hello", work_dir);
	assert_non_null(strstr(ferry_said(), "logits"));
	assert_ferry(2, NULL,
	        "train model=%s/new/model data=%s/rows.jsonl output_dir=%s/none objective=classification "
	        "num_labels=3 max_steps=1",
	        work_dir, work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "has a head for 2 labels"));
	assert_ferry(2, NULL,
	        "train model=%s/new/model data=%s/rows.jsonl output_dir=%s/none objective=regression "
	        "max_steps=1",
	        work_dir, work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "not for a number; set objective=classification"));
}

/* Adapters train the head beside them; a run goes on from its checkpoint. */
static void test_adapters(void **state)
{
	char model[400], path[400];
	json_t *got;

	(void)state;
	write_file("rows.jsonl", "%s", ROWS);
	path_of(path, "rows.jsonl");
	path_of(model, "lora/model");
	for (int again = 0; again < 2; again++)
		assert_ferry(0, NULL,
		        "train model=%s/speaker data=%s/rows.jsonl output_dir=%s/lora "
		        "objective=classification lora_rank=4 "
		        "max_steps=%d save_steps=20 learning_rate=2e-2 compute_dtype=fp32 export_dtype=fp32 "
		        "per_device_train_batch_size=4 lr_scheduler_type=constant %s",
		        work_dir, work_dir, work_dir, again ? 40 : 20, again ? "resume=auto" : "");
	got = evaluate(model, path, "objective=classification");
	assert_true(number(got, "accuracy") == 1 && number(got, "loss") < 0.5);
	json_decref(got);
	assert_ferry(2, NULL,
	        "train model=%s/speaker data=%s/rows.jsonl output_dir=%s/none objective=classification "
	        "max_steps=1 "
	        "freeze=score.*",
	        work_dir, work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "score.weight is new and has random values"));
}

static void test_regression(void **state)
{
	char *rows, *at, *line;
	double first = -1, last = -1;

	(void)state;
	write_file("numbers.csv",
	        "sentence1,sentence2,label\ngood day,good,4.5\nbad,good,-1\na day,a night,2\n");
	assert_ferry(0, NULL,
	        "train model=%s/speaker data=%s/numbers.csv output_dir=%s/numbers objective=regression "
	        "max_steps=40 learning_rate=5e-3 compute_dtype=fp32 per_device_train_batch_size=3",
	        work_dir, work_dir, work_dir);
	rows = at = file_of("numbers", "metrics.jsonl");
	while ((line = strsep(&at, "\n")) && *line) {
		json_t *row = NULL;

		assert_int_equal(json_parse(&row, "row", line, strlen(line)), 0);
		last = number(row, "loss");
		first = first < 0 ? last : first;
		assert_null(json_object_get(row, "accuracy"));
		json_decref(row);
	}
	assert_true(first > 3 && last < 0.3 * first);
	mem_free(rows);
	rows = file_of("numbers", "model/config.json");
	assert_non_null(strstr(rows, "\"problem_type\": \"regression\""));
	mem_free(rows);
}

static void test_refusals(void **state)
{
	static const struct {
		const char *rows, *keys, *says;
	} cases[] = {
	        {"{\"text\":\"x\",\"label\":2}", "objective=classification",
	                "\"label\" is 2, but the model has labels 0 to 1"},
	        {"{\"text\":\"x\",\"label\":-1}", "objective=classification",
	                "labels 0 to 1; remove the row"},
	        {"{\"text\":\"x\",\"label\":\"\"}", "objective=classification",
	                "\"label\" is empty; expected a label"},
	        {"{\"text\":\"x\",\"label\":0.5}", "objective=classification", "expected a label"},
	        {"{\"text\":\"x\",\"label\":null}", "objective=classification", "\"label\" is null"},
	        {"{\"text\":\"x\",\"label\":\"yes\"}", "objective=classification",
	                "which is no label of the model"},
	        {"{\"text\":\"x\",\"label\":\"yes\"}", "objective=regression",
	                "\"label\" is yes; expected a number"},
	        {"{\"text\":\"x\",\"label\":1e39}", "objective=regression", "expected a number"},
	        {"{\"text\":\"x\"}", "objective=classification", "set field_label"},
	        {"{\"label\":1}", "objective=classification", "set field_text"},
	        {"{\"text\":[\"x\"],\"label\":1}", "objective=classification", "expected a text"},
	        {"{\"text\":\"x\",\"label\":1}", "objective=classification field_text=body",
	                "no column \"body\""},
	        {"{\"text\":\"x\",\"label\":1}", "objective=classification field_text_pair=other",
	                "no column \"other\""},
	        {"{\"input_ids\":[1,2],\"token_type_ids\":[1,0],\"label\":1}", "objective=classification",
	                "token_type_ids must be 0, then 1"},
	        {"{\"text\":\"x\",\"label\":1}", "objective=classification packing=bfd", "are not packed"},
	        {"{\"text\":\"x\",\"label\":1}", "objective=classification embedding_loss=mnrl",
	                "choose one"},
	        {"{\"text\":\"x\",\"label\":1}", "objective=masked", "is a decoder"},
	        {"{\"text\":\"x\",\"label\":1}", "num_labels=3", "has no effect without objective"},
	        {"{\"text\":\"x\",\"label\":1}", "objective=regression num_labels=2",
	                "regression of 2 numbers"},
	        {"{\"text\":\"x\",\"label\":1}", "data_format=labels", "set objective=classification"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		write_file("bad.jsonl", "%s\n", cases[i].rows);
		assert_ferry(2, NULL,
		        "train model=%s/speaker data=%s/bad.jsonl output_dir=%s/none max_steps=1 %s",
		        work_dir, work_dir, work_dir, cases[i].keys);
		if (!strstr(ferry_said(), cases[i].says))
			fail_msg("%s %s: no \"%s\" in %s", cases[i].rows, cases[i].keys, cases[i].says,
			        ferry_said());
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden), cmocka_unit_test(test_new_head),
	        cmocka_unit_test(test_regression), cmocka_unit_test(test_adapters),
	        cmocka_unit_test(test_refusals)};
	int failed;

	ferry_run_begin("classification");
	speaker_make();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
