/* links: cli */
/* Numbers over all rows of an evaluation through the commands: names, values, ranks, the best
 * checkpoint, lone rows. What they are is in test_scores. */
#include "tests/golden_trace.h"

static json_t *evaluate(const char *keys)
{
	json_t *root = NULL;

	assert_ferry_json(&root, "eval --json compute_dtype=fp32 model=%s/%s", work_dir, keys);
	return root;
}

/* On two ranks, which have other rows each, the same numbers. */
static void ranks_check(const char *model, const char *data, const char *keys, const char *const *names)
{
	char text[900];
	json_t *one, *two;

	snprintf(text, sizeof(text), "%s data=%s/%s %s", model, work_dir, data, keys);
	one = evaluate(text);
	snprintf(text, sizeof(text), "%s data=%s/%s %s ranks=2", model, work_dir, data, keys);
	two = evaluate(text);
	for (; *names; names++) {
		const json_t *a = json_object_get(one, *names), *b = json_object_get(two, *names);

		if (!json_is_number(a) || !json_is_number(b))
			fail_msg("no %s", *names);
		if (!(fabs(json_number_value(a) - json_number_value(b)) <= 1e-12))
			fail_msg("%s: %g, on two ranks %g", *names, json_number_value(a),
			        json_number_value(b));
	}
	json_decref(one);
	json_decref(two);
}

static void test_classifier(void **state)
{
	static const char *const names[] = {
	        "accuracy", "f1", "precision", "recall", "matthews_correlation", NULL};
	(void)state;
	write_file("rows.jsonl", "{\"text\":\"good day\",\"label\":1}\n{\"text\":\"bad night\",\"label\":0}\n"
	                         "{\"text\":\"a bad day\",\"label\":0}\n{\"text\":\"good\",\"label\":1}\n");
	write_file("wrong.jsonl",
	        "{\"text\":\"good day\",\"label\":1}\n{\"text\":\"bad night\",\"label\":1}\n"
	        "{\"text\":\"a bad day\",\"label\":0}\n{\"text\":\"good\",\"label\":1}\n"
	        "{\"text\":\"good\",\"label\":0}\n");
	assert_ferry(0, NULL,
	        "train model=%s/speaker data=%s/rows.jsonl eval_data=%s/wrong.jsonl output_dir=%s/one "
	        "objective=classification max_steps=40 eval_steps=20 save_steps=best learning_rate=5e-3 "
	        "metric_for_best_model=f1 compute_dtype=fp32 per_device_train_batch_size=4",
	        work_dir, work_dir, work_dir, work_dir);
	assert_true(fabs(metric_of("one", 40, "eval_f1") - 2.0 / 3) < 1e-9);
	assert_true(fabs(metric_of("one", 40, "eval_matthews_correlation") - 1.0 / 6) < 1e-9);
	assert_non_null(strstr(ferry_said(), "f1 0.6667"));
	ranks_check("one/model", "wrong.jsonl", "objective=classification", names);
	assert_ferry(2, NULL,
	        "train model=%s/speaker data=%s/rows.jsonl eval_data=%s/wrong.jsonl output_dir=%s/two "
	        "objective=classification max_steps=1 eval_steps=1 save_steps=best metric_for_best_model=mse",
	        work_dir, work_dir, work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "eval_matthews_correlation"));
}

static void test_regression(void **state)
{
	static const char *const names[] = {"mse", "pearson", "spearmanr", NULL};

	(void)state;
	write_file("numbers.jsonl",
	        "{\"text\":\"good day\",\"label\":1.5}\n{\"text\":\"bad night\",\"label\":-1}\n"
	        "{\"text\":\"a bad day\",\"label\":0}\n{\"text\":\"good\",\"label\":1}\n");
	assert_ferry(0, NULL,
	        "train model=%s/speaker data=%s/numbers.jsonl output_dir=%s/number objective=regression "
	        "max_steps=4 compute_dtype=fp32 per_device_train_batch_size=4",
	        work_dir, work_dir, work_dir);
	ranks_check("number/model", "numbers.jsonl", "objective=regression", names);
}

/* The best evaluation by an error is that of the smallest. */
static void test_least_error(void **state)
{
	json_t *root = NULL;
	double least = INFINITY, most = 0;

	(void)state;
	assert_ferry_json(&root,
	        "train --json model=%s/speaker data=%s/numbers.jsonl eval_data=%s/numbers.jsonl "
	        "output_dir=%s/least objective=regression max_steps=6 eval_steps=1 save_steps=best "
	        "metric_for_best_model=mse learning_rate=1e-3 compute_dtype=fp32 "
	        "per_device_train_batch_size=4",
	        work_dir, work_dir, work_dir, work_dir);
	for (int step = 1; step <= 6; step++) {
		least = fmin(least, metric_of("least", step, "eval_mse"));
		most = fmax(most, metric_of("least", step, "eval_mse"));
	}
	assert_true(least < 0.9 * most);
	assert_true(least == json_number_value(json_object_get(json_object_get(root, "best"), "value")));
	json_decref(root);
}

/* The eval_mse of a run whose evaluations draw three numbers again and again. */
static double mixed_mse(int ranks)
{
	char name[40];

	snprintf(name, sizeof(name), "mixed%d", ranks);
	assert_ferry(0, NULL,
	        "train model=%s/number/model data=%s/numbers.jsonl "
	        "eval_data=%s/numbers.jsonl:1,%s/few.jsonl:5 "
	        "data_mix=all_exhausted output_dir=%s/%s objective=regression max_steps=1 eval_steps=1 "
	        "learning_rate=1e-12 compute_dtype=fp32 per_device_train_batch_size=%d "
	        "per_device_eval_batch_size=1 ranks=%d",
	        work_dir, work_dir, work_dir, work_dir, work_dir, name, 4 / ranks, ranks);
	return metric_of(name, 1, "eval_mse");
}

static void test_mixed(void **state)
{
	double one, two;

	(void)state;
	write_file("few.jsonl", /* three rows, so that two ranks take turns with each */
	        "{\"text\":\"night\",\"label\":2}\n{\"text\":\"bad good\",\"label\":-2}\n"
	        "{\"text\":\"day day\",\"label\":3}\n");
	one = mixed_mse(1);
	two = mixed_mse(2);
	if (!(fabs(one - two) < 1e-6))
		fail_msg("eval_mse %g, on two ranks %g", one, two);
}

static void test_embedder(void **state)
{
	static const char *const found[] = {"cosine_accuracy@1", "cosine_accuracy@10", "cosine_mrr@10",
	        "cosine_ndcg@10", "cosine_map@100", NULL},
	                         *const scored[] = {"pearson_cosine", "spearman_cosine", NULL},
	                         *const nearer[] = {"cosine_accuracy", NULL};
	char keys[500];
	json_t *same;

	(void)state;
	write_file("pairs.jsonl",
	        "{\"anchor\":\"good day\",\"positive\":\"a "
	        "day\"}\n{\"anchor\":\"bad\",\"positive\":\"night\"}\n"
	        "{\"anchor\":\"good "
	        "day\",\"positive\":\"good\"}\n{\"anchor\":\"day\",\"positive\":\"night\"}\n");
	write_file("scored.jsonl", "{\"sentence1\":\"good day\",\"sentence2\":\"a day\",\"score\":0.5}\n"
	                           "{\"sentence1\":\"bad\",\"sentence2\":\"night\",\"score\":0.25}\n"
	                           "{\"sentence1\":\"day\",\"sentence2\":\"good\",\"score\":0.5}\n");
	write_file("triplets.jsonl",
	        "{\"anchor\":\"good day\",\"positive\":\"a day\",\"negative\":\"bad\"}\n"
	        "{\"anchor\":\"bad\",\"positive\":\"good day\",\"negative\":\"bad night\"}\n"
	        "{\"anchor\":\"day\",\"positive\":\"good\",\"negative\":\"night\"}\n");
	ranks_check("speaker", "pairs.jsonl", "embedding_loss=mnrl per_device_eval_batch_size=2", found);
	assert_null(strstr(ferry_said(), "its loss is 0"));
	ranks_check("speaker", "pairs.jsonl", "embedding_loss=mnrl", found);
	assert_non_null(strstr(ferry_said(), "its loss is 0; set per_device_eval_batch_size=16"));
	ranks_check("speaker", "scored.jsonl", "embedding_loss=cosent", scored);
	ranks_check("speaker", "triplets.jsonl", "embedding_loss=triplet", nearer);
	/* an anchor of two rows is one, and both of its texts are right */
	write_file("same.jsonl", "{\"anchor\":\"good day\",\"positive\":\"good day\"}\n"
	                         "{\"anchor\":\"good day\",\"positive\":\"bad night\"}\n");
	snprintf(keys, sizeof(keys), "speaker data=%s/same.jsonl embedding_loss=mnrl", work_dir);
	same = evaluate(keys);
	assert_true(json_number_value(json_object_get(same, "cosine_accuracy@1")) == 1);
	json_decref(same);
}

static int64_t rows_bytes(int rows)
{
	char path[400];
	int64_t bytes;
	json_t *plan;
	FILE *f;

	snprintf(path, sizeof(path), "%s/many.jsonl", work_dir);
	f = fopen(path, "w");
	assert_non_null(f);
	for (int i = 0; i < rows; i++)
		fputs("{\"anchor\":\"good day\",\"positive\":\"a day\"}\n", f);
	fclose(f);
	assert_ferry_json(&plan,
	        "plan --json model=%s/wide.json tokenizer=%s/words data=%s/pairs.jsonl eval_data=%s "
	        "embedding_loss=mnrl",
	        work_dir, work_dir, work_dir, path);
	bytes = json_integer_value(json_object_get(plan, "rows_bytes"));
	json_decref(plan);
	return bytes;
}

/* A plan counts the vectors that an evaluation keeps: 2 KiB of each text here, far more than its tokens. */
static void test_memory(void **state)
{
	int64_t bytes;

	(void)state;
	write_file("wide.json",
	        "{\"model_type\":\"llama\",\"vocab_size\":2000,\"hidden_size\":512,\"intermediate_size\":64,"
	        "\"num_hidden_layers\":1,\"num_attention_heads\":4}");
	bytes = rows_bytes(300) - rows_bytes(100);
	assert_true(bytes > 2 * 200 * 2048 && bytes < 2 * 200 * 2400);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_classifier),
	        cmocka_unit_test(test_regression), cmocka_unit_test(test_least_error),
	        cmocka_unit_test(test_mixed), cmocka_unit_test(test_embedder), cmocka_unit_test(test_memory)};
	int failed;

	ferry_run_begin("scores");
	speaker_make();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
