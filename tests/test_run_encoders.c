/* links: cli */
/* Encoders through the commands, each beside 20 steps of transformers (tests/golden/make_encoders.py):
 * offload, ranks, resuming, adapters, the result. */
#include "tests/golden_trace.h"

#define STEPS                                                                                                \
	"shuffle=off compute_dtype=fp32 export_dtype=fp32 max_steps=20 learning_rate=1e-2 "                  \
	"lr_scheduler_type=constant weight_decay=0 max_grad_norm=0 adam_epsilon=1e-5"
#define PIECES "per_device_train_batch_size=2 gradient_accumulation_steps=2 "

static const struct {
	const char *name, *objective;
} cases[] = {{"bert", "classification"}, {"distilbert", "classification"}, {"modernbert", "classification"},
        {"modernbert_odd", "classification"}, {"bert_tokens", "token_classification"},
        {"roberta_tokens", "token_classification"}, {"distilbert_tokens", "token_classification"},
        {"modernbert_tokens", "token_classification"}, {"mpnet", "classification"},
        {"mpnet_tokens", "token_classification"}, {"qwen2_tokens", "token_classification"}};
enum { CASES = sizeof(cases) / sizeof(*cases) };

static char *golden_path(const char *name, const char *file)
{
	const char *source = getenv("FERRY_SOURCE");

	return mem_printf("%s/tests/golden/encoders/%s%s", source ? source : ".", name, file);
}

static void train(int i, const char *run, const char *keys)
{
	char *model = golden_path(cases[i].name, ""), *rows = golden_path(cases[i].name, "/train.jsonl");

	assert_ferry(0, NULL, "train model=%s data=%s output_dir=%s/%s objective=%s " STEPS " %s", model,
	        rows, work_dir, run, cases[i].objective, keys);
	mem_free(model);
	mem_free(rows);
}

static void trace_check_of(int i, const char *run)
{
	char *path = golden_path(cases[i].name, "/ref.json");
	json_t *ref = NULL;

	assert_int_equal(json_read_file(&ref, path, 1 << 20), 0);
	trace_follow(run, ref, 3e-5, 3e-4, NULL);
	json_decref(ref);
	mem_free(path);
}

static void test_traces(void **state)
{
	(void)state;
	for (int i = 0; i < CASES; i++) {
		train(i, "one", PIECES "overwrite_output_dir=on");
		trace_check_of(i, "one");
		train(i, "offload",
		        PIECES
		        "overwrite_output_dir=on cpu_offload=on activations=recompute stream_delay_seed=5");
		same_weights("one", "offload");
		train(i, "ranks", "per_device_train_batch_size=2 ranks=2 overwrite_output_dir=on");
		trace_check_of(i, "ranks");
		train(i, "again", PIECES "save_steps=7 save_total_limit=9 overwrite_output_dir=on");
		remove_run("again/checkpoint-000020");
		remove_run("again/model");
		train(i, "again", PIECES "save_steps=7 save_total_limit=9 resume=auto");
		same_weights("one", "again");
	}
}

/* Adapters on all layers, and the result is read again. */
static void test_adapters(void **state)
{
	(void)state;
	for (int i = 0; i < CASES; i++) {
		char *rows = golden_path(cases[i].name, "/train.jsonl"), *text;

		train(i, "lora", "per_device_train_batch_size=4 lora_rank=2 overwrite_output_dir=on");
		assert_ferry(0, NULL, "eval model=%s/lora/model data=%s objective=%s", work_dir, rows,
		        cases[i].objective);
		text = file_of(
		        "lora", "adapter/adapter_config.json"); /* PEFT wraps it as no language model */
		assert_non_null(strstr(text, "\"task_type\": null"));
		mem_free(text);
		mem_free(rows);
	}
}

static void row_check(const json_t *row, const char *ids, const char *labels)
{
	char *got[2] = {json_dumps(json_object_get(row, "input_ids"), JSON_COMPACT),
	        json_dumps(json_object_get(row, "labels"), JSON_COMPACT)};

	assert_string_equal(got[0], ids);
	assert_string_equal(got[1], labels);
	free(got[0]);
	free(got[1]);
}

/* Words as transformers tokenizes them: the first piece has the label; names and numbers of labels; a head
 * for them; what is wrong is refused. */
static void test_words(void **state)
{
	static const struct {
		const char *row, *says;
	} bad[] = {
	        {"{\"tokens\":[\"a\",\"b\"],\"ner_tags\":[0]}", "\"tokens\" has 2 entries, \"ner_tags\" 1"},
	        {"{\"tokens\":[\"a\"],\"ner_tags\":[3]}",
	                "\"ner_tags\" is 3, but the model has labels 0 to 2"},
	        {"{\"tokens\":[\"a\"],\"ner_tags\":[\"X\"]}", "which is no label of the model"},
	        {"{\"tokens\":\"a\",\"ner_tags\":[0]}", "\"tokens\" is a string; expected a list of words"},
	        {"{\"tokens\":[7],\"ner_tags\":[0]}", "\"tokens\"[0] is an integer; expected a word"},
	        {"{\"tokens\":[\"a\"]}", "no column \"ner_tags\""},
	        {"{\"text\":\"a b\"}", "needs a list of words and a list of their labels"},
	        {"{\"tokens\":[\"\",\"\"],\"ner_tags\":[0,1]}",
	                "no word has a label to train on (the first row is "},
	        {"{\"tokens\":[],\"ner_tags\":[]}", "every word is empty or has the label -100"},
	};
	const char *source = getenv("FERRY_SOURCE");
	char command[900], *text;
	struct str out = {0};
	json_t *root = NULL;

	(void)state;
	snprintf(command, sizeof(command),
	        "cp -r %s/tests/golden/modules/max %s/plain && cd %s/plain && rm -rf modules.json 1_* 2_* && "
	        "sed -i 's/^{/{\"id2label\":{\"0\":\"O\",\"1\":\"B\",\"2\":\"I\"},/' config.json",
	        source ? source : ".", work_dir, work_dir);
	assert_int_equal(system(command), 0);
	write_file("words.jsonl", "%s",
	        "{\"tokens\":[\"the\",\"catdog\",\"is\",\"\",\"Red!\"],\"ner_tags\":[0,1,\"O\",2,\"B\"]}\n"
	        "{\"tokens\":[\"green\",\"boats\",\"green\",\"boats\",\"green\",\"boats\"],"
	        "\"ner_tags\":[0,1,0,1,0,1]}\n");
	assert_ferry(0, &out,
	        "data model=%s/plain data=%s/words.jsonl objective=token_classification max_length=9 --json",
	        work_dir, work_dir);
	assert_int_equal(json_parse(&root, "stdout", out.data, out.len_bytes), 0);
	row_check(json_array_get(json_object_get(root, "examples"), 0), "[2,25,7,56,67,59,16,22,3]",
	        "[-100,0,1,-100,-100,-100,0,1,-100]");
	row_check(json_array_get(json_object_get(root, "examples"), 1), "[2,13,6,71,13,6,71,13,3]",
	        "[-100,0,1,-100,0,1,-100,0,-100]");
	json_decref(root);
	str_free(&out);
	write_file("empty.jsonl", "%s\n", "{\"text\":\"\",\"label\":0}"); /* as in transformers */
	assert_ferry(0, &out,
	        "data model=%s/plain data=%s/empty.jsonl objective=classification max_length=9 --json",
	        work_dir, work_dir);
	assert_int_equal(json_parse(&root, "stdout", out.data, out.len_bytes), 0);
	row_check(json_array_get(json_object_get(root, "examples"), 0), "[2,3]", "[-100,-100]");
	json_decref(root);
	str_free(&out);
	assert_ferry(0, NULL,
	        "train model=%s/plain data=%s/words.jsonl output_dir=%s/tags objective=token_classification "
	        "max_steps=30 learning_rate=1e-2 per_device_train_batch_size=2",
	        work_dir, work_dir, work_dir);
	text = file_of("tags", "model/config.json");
	assert_non_null(strstr(text, "BertForTokenClassification"));
	assert_non_null(strstr(text, "\"1\": \"B\""));
	mem_free(text);
	assert_ferry(2, NULL, "eval model=%s/tags/model data=%s/words.jsonl objective=classification",
	        work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "set objective=token_classification"));
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		write_file("bad.jsonl", "%s\n", bad[i].row);
		assert_ferry(2, NULL,
		        "eval model=%s/tags/model data=%s/bad.jsonl objective=token_classification", work_dir,
		        work_dir);
		if (!strstr(ferry_said(), bad[i].says))
			fail_msg("%s: no \"%s\" in %s", bad[i].row, bad[i].says, ferry_said());
	}
}

/* A new head has the names that the data has, in their order; a later run with the result knows them. */
static void test_names(void **state)
{
	const char *source = getenv("FERRY_SOURCE");
	char command[900], *text;

	(void)state;
	snprintf(command, sizeof(command),
	        "cp -r %s/tests/golden/modules/max %s/bare && cd %s/bare && rm -rf modules.json 1_* 2_*",
	        source ? source : ".", work_dir, work_dir);
	assert_int_equal(system(command), 0);
	write_file("named.csv", "text,label\ngood dog,pos\nbad cat,neg\na red egg,even\n");
#define NAMED "model=%s/bare data=%s/named.csv objective=classification "
	assert_ferry(0, NULL, "train " NAMED "output_dir=%s/named max_steps=1", work_dir, work_dir, work_dir);
	text = file_of("named", "model/config.json");
	assert_non_null(strstr(text, "\"0\": \"even\",\n    \"1\": \"neg\",\n    \"2\": \"pos\""));
	assert_non_null(strstr(text, "\"even\": 0"));
	mem_free(text);
	assert_ferry(0, NULL, "eval model=%s/named/model data=%s/named.csv objective=classification",
	        work_dir, work_dir);
	assert_ferry(2, NULL, "train " NAMED "output_dir=%s/none num_labels=2", work_dir, work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "has 3 different labels"));
	assert_ferry(2, NULL,
	        "train model=%s/bare data=%s/named.csv objective=token_classification num_labels=5000 "
	        "output_dir=%s/none",
	        work_dir, work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "at most 4096"));
	write_file("named.csv", "text,label\ngood dog,1\nbad cat,0\n"); /* numbers are no names */
	assert_ferry(0, NULL, "train " NAMED "output_dir=%s/numbers max_steps=1 ranks=2", work_dir, work_dir,
	        work_dir);
	text = file_of("numbers", "model/config.json");
	assert_non_null(strstr(text, "\"LABEL_1\""));
	mem_free(text);
	write_file("named.csv",
	        "text,kto_tag\ngood dog,yes\nbad cat,no\n"); /* a column that is read as a label */
	assert_ferry(0, NULL, "train " NAMED "output_dir=%s/tagged_texts max_steps=1", work_dir, work_dir,
	        work_dir);
	text = file_of("tagged_texts", "model/config.json");
	assert_non_null(strstr(text, "\"0\": \"no\",\n    \"1\": \"yes\""));
	mem_free(text);
	write_file("tags.jsonl", "{\"words\":[\"a\",\"dog\"],\"tags\":[\"O\",\"B-DOG\"]}\n");
	assert_ferry(0, NULL,
	        "train model=%s/bare data=%s/tags.jsonl output_dir=%s/tagged objective=token_classification "
	        "max_steps=1",
	        work_dir, work_dir, work_dir);
	text = file_of("tagged", "model/config.json");
	assert_non_null(strstr(text, "\"0\": \"B-DOG\""));
	mem_free(text);
}

/* Evaluations count entities, with one rank and with several; the best checkpoint is that of the best F1. */
static void test_entities(void **state)
{
	static const char *const runs[] = {"", "ranks=2"};
	json_t *got[2];

	(void)state;
	write_file("people.jsonl", "%s",
	        "{\"tokens\":[\"the\",\"red\",\"cat\",\"is\"],\"ner_tags\":[\"O\",\"B-CAT\",\"I-CAT\",\"O\"]}"
	        "\n"
	        "{\"tokens\":[\"green\",\"boat\"],\"ner_tags\":[\"B-BOAT\",\"I-BOAT\"]}\n"
	        "{\"tokens\":[\"egg\"],\"ner_tags\":[\"O\"]}\n");
	assert_ferry(0, NULL,
	        "train model=%s/bare data=%s/people.jsonl eval_data=%s/people.jsonl output_dir=%s/people "
	        "objective=token_classification max_steps=40 learning_rate=1e-2 "
	        "per_device_train_batch_size=3 "
	        "eval_steps=20 save_steps=20 metric_for_best_model=f1",
	        work_dir, work_dir, work_dir, work_dir);
	assert_true(metric_of("people", 40, "eval_f1") == 1);
	assert_true(metric_of("people", 40, "eval_accuracy") == 1);
	write_file("others.jsonl", "%s",
	        "{\"tokens\":[\"the\",\"red\",\"cat\",\"is\"],\"ner_tags\":[\"O\",\"B-CAT\",\"I-CAT\",\"O\"]}"
	        "\n"
	        "{\"tokens\":[\"green\",\"boat\"],\"ner_tags\":[\"B-BOAT\",\"O\"]}\n"
	        "{\"tokens\":[\"egg\"],\"ner_tags\":[\"B-CAT\"]}\n");
	for (int i = 0; i < 2; i++) {
		struct str out = {0};

		assert_ferry(0, &out,
		        "eval model=%s/people/model data=%s/others.jsonl objective=token_classification "
		        "per_device_eval_batch_size=2 --json %s",
		        work_dir, work_dir, runs[i]);
		assert_int_equal(json_parse(&got[i], "stdout", out.data, out.len_bytes), 0);
		str_free(&out);
		assert_true(number(got[i], "rows") == 3); /* of 7 words */
		assert_relative(
		        number(got[i], "accuracy"), 5.0 / 7, 1e-12, "accuracy"); /* 2 of 7 are wrong */
		assert_relative(number(got[i], "precision"), 1.0 / 2, 1e-12, "precision");
		assert_relative(number(got[i], "recall"), 1.0 / 3, 1e-12, "recall");
		assert_relative(number(got[i], "f1"), 2.0 / 5, 1e-12, "f1");
	}
	json_decref(got[0]);
	json_decref(got[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_traces), cmocka_unit_test(test_adapters),
	        cmocka_unit_test(test_words), cmocka_unit_test(test_names), cmocka_unit_test(test_entities)};
	int failed;

	ferry_run_begin("encoders");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
