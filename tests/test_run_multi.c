/* links: cli */
/* Several data sets with an embedding loss each, through the commands: beside runs of
 * sentence-transformers' trainer, on ranks, in pieces, resumed, with offload, freeze and LoRA; evaluation
 * of each set; refusals. */
#include "tests/golden_trace.h"

static void test_golden(void **state)
{
	const char *golden = golden_dir("test_run_multi, test_golden"), *name;
	char *path, *source = mem_printf("%s/tests/golden/multi_runs", getenv("FERRY_SOURCE"));
	json_t *runs = NULL, *run;

	(void)state;
	if (!golden) {
		mem_free(source);
		skip();
	}
	path = mem_printf("%s/runs.json", source);
	assert_int_equal(json_read_file(&runs, path, 1 << 24), 0);
	assert_true(json_object_size(runs) == 3);
	json_object_foreach(runs, name, run)
	{
		double epoch_steps = json_number_value(json_object_get(run, "epoch_steps"));

		for (int pieces = 0; pieces < 2; pieces++) {
			char *dir = mem_printf("%s%s", name, pieces ? "_pieces" : ""), key[80];
			const char *set;
			json_t *loss;

			assert_ferry(0, NULL,
			        "train %s/%s.yaml model=%s/embeddings/bert/model output_dir=%s/%s " TRACE_KEYS
			        " per_device_eval_batch_size=8 %s",
			        source, name, golden, work_dir, dir,
			        pieces ? "per_device_train_batch_size=2 gradient_accumulation_steps=2 ranks=2"
			               : "per_device_train_batch_size=8");
			trace_check(dir, run, NULL);
			assert_relative(metric_of(dir, 20, "epoch"), 20 / epoch_steps, 1e-12, dir);
			json_object_foreach(json_object_get(run, "eval_loss"), set, loss)
			{
				snprintf(key, sizeof(key), "eval_%s_loss", set);
				assert_relative(metric_of(dir, 20, key), json_number_value(loss), 1e-5, key);
			}
			mem_free(dir);
		}
	}
	json_decref(runs);
	mem_free(path);
	mem_free(source);
}

/* Rows of two kinds, and a file that trains on both. */
static void rows_make(void)
{
	struct str rows = {0}, pairs = {0};

	for (int i = 0; i < 22; i++)
		str_printf(
		        &rows, "{\"a\":\"q %d\",\"b\":\"p %d of\",\"c\":\"n %d\"}\n", i % 9, i, i * 7 % 22);
	for (int i = 0; i < 13; i++)
		str_printf(
		        &pairs, "{\"one\":\"x %d\",\"other\":\"y %d\",\"how\":%d}\n", i, i * 5 % 13, i % 4);
	write_file("rows.jsonl", "%s", rows.data);
	write_file("pairs.jsonl", "%s", pairs.data);
	str_free(&rows);
	str_free(&pairs);
	write_file("run.yaml",
	        "model: speaker\n"
	        "data:\n"
	        "  - path: rows.jsonl\n"
	        "    embedding_loss: mnrl\n"
	        "    embedding_scale: 10\n"
	        "    query_prompt: 'find: '\n"
	        "  - name: scored\n"
	        "    path: pairs.jsonl\n"
	        "    embedding_loss: cosent\n"
	        "    field_anchor: one\n"
	        "    field_positive: other\n"
	        "    field_score: how\n"
	        "compute_dtype: fp32\nnum_train_epochs: 3\nlearning_rate: 1e-3\nlogging_steps: 1\n"
	        "per_device_train_batch_size: 4\nsave_steps: 5\nsave_total_limit: 9\n");
}

static void same_run(const char *dir, const char *keys)
{
	char whole[80], on[80], part[80], left[120];

	snprintf(whole, sizeof(whole), "%s_whole", dir);
	snprintf(on, sizeof(on), "%s_on", dir);
	snprintf(part, sizeof(part), "%s_part", dir);
	assert_ferry(0, NULL, "train %s/run.yaml output_dir=%s/%s_whole %s", work_dir, work_dir, dir, keys);
	assert_ferry(0, NULL, "train %s/run.yaml output_dir=%s/%s_on %s cpu_offload=on", work_dir, work_dir,
	        dir, keys);
	assert_ferry(0, NULL, "train %s/run.yaml output_dir=%s/%s_part %s", work_dir, work_dir, dir, keys);
	assert_same_runs(whole, on, "with offload");
	for (int step = 10; step < 40; step++) {
		snprintf(left, sizeof(left), "%s/checkpoint-%06d", part, step);
		if (run_has(left))
			remove_run(left);
	}
	snprintf(left, sizeof(left), "%s/model", part);
	remove_run(left);
	assert_ferry(
	        0, NULL, "train %s/run.yaml output_dir=%s/%s %s resume=auto", work_dir, work_dir, part, keys);
	snprintf(left, sizeof(left), "%s/checkpoint-000005 at step 5", part);
	assert_non_null(strstr(ferry_said(), left));
	assert_same_runs(whole, part, "resumed");
}

/* The same bits with and without offload, and resumed within an epoch; on ranks and in pieces nearly the
 * same. */
static void test_same(void **state)
{
	struct str out = {0};

	(void)state;
	rows_make();
	same_run("usual", "multi_dataset_batch_sampler=proportional");
	assert_true(run_has("usual_whole/checkpoint-000030"));
	same_run("robin", "multi_dataset_batch_sampler=round_robin batch_sampler=no_duplicates");
	same_run("frozen", "'freeze=model.layers.0.*'");
	same_run("lora", "lora_rank=4");
	assert_ferry(0, NULL,
	        "train %s/run.yaml output_dir=%s/ranks per_device_train_batch_size=1 "
	        "gradient_accumulation_steps=2 ranks=2",
	        work_dir, work_dir);
	assert_near_losses("usual_whole", "ranks", 30, 1e-5, "on two ranks");
	assert_ferry(2, NULL,
	        "train %s/run.yaml output_dir=%s/usual_part resume=auto max_steps=40 "
	        "multi_dataset_batch_sampler=round_robin",
	        work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "set multi_dataset_batch_sampler="));
	/* the file that a run leaves repeats it */
	assert_ferry(0, &out, "train %s/usual_whole/config.yaml output_dir=%s/repeated", work_dir, work_dir);
	assert_same_runs("usual_whole", "repeated", "from the run's config.yaml");
	assert_non_null(strstr(out.data, "set      rows: mnrl, 22 rows, 6 of the 10 steps of an epoch"));
	str_free(&out);
}

/* A set's numbers are those of the set alone; the best checkpoint follows one of them. */
static void test_evaluate(void **state)
{
	json_t *both = NULL, *alone = NULL;

	(void)state;
	rows_make();
	assert_ferry(0, NULL,
	        "train %s/run.yaml output_dir=%s/split eval_split=0.25 eval_steps=5 "
	        "load_best_model_at_end=on "
	        "metric_for_best_model=scored_spearman_cosine",
	        work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "eval_scored_spearman_cosine"));
	assert_false(isnan(metric_of("split", 5, "eval_rows_cosine_accuracy")));
	assert_ferry(2, NULL,
	        "train %s/run.yaml output_dir=%s/refused eval_split=0.25 eval_steps=5 "
	        "metric_for_best_model=spearman_cosine",
	        work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "it measures eval_loss, "));
	assert_non_null(strstr(ferry_said(), "eval_rows_loss"));
	assert_ferry_json(&both, "eval --json %s/run.yaml model=%s/usual_whole/model", work_dir, work_dir);
	assert_ferry_json(&alone,
	        "eval --json model=%s/usual_whole/model data=%s/pairs.jsonl embedding_loss=cosent "
	        "field_anchor=one "
	        "field_positive=other field_score=how per_device_eval_batch_size=4 compute_dtype=fp32",
	        work_dir, work_dir);
	assert_true(number(both, "scored_loss") == number(alone, "loss"));
	assert_true(number(both, "scored_spearman_cosine") == number(alone, "spearman_cosine"));
	assert_null(json_object_get(both, "spearman_cosine"));
	json_decref(both);
	json_decref(alone);
	both = NULL;
	assert_ferry_json(&both, "report %s/split html=%s/report.html --json", work_dir, work_dir);
	alone = json_object_get(json_array_get(json_object_get(both, "runs"), 0), "data_sets");
	assert_int_equal(json_object_size(alone), 2);
	alone = json_object_get(alone, "scored");
	assert_int_equal(json_integer_value(json_object_get(alone, "steps")), 9);
	assert_true(json_number_value(json_object_get(alone, "eval_loss")) ==
	            metric_of("split", 21, "eval_scored_loss"));
	json_decref(both);
}

/* What is wrong is refused by its name and line, before anything is written. */
static void test_refusals(void **state)
{
	static const struct {
		const char *first, *second, *more, *says;
	} cases[] = {
	        {"embedding_loss: gist", "embedding_loss: cosent", "",
	                "run.yaml:3: data.0.embedding_loss=gist is not supported yet"},
	        {"embedding_loss: mnrl", "embedding_loss: gist", "",
	                "run.yaml:6: data.1.embedding_loss=gist is not supported yet"},
	        {"embedding_loss: mnrl", "embedding_loss: foo", "",
	                "run.yaml:6: data.1.embedding_loss=foo is not supported; supported: off, mnrl"},
	        {"embedding_loss: mnrl", "embedding_loss: triplet", "",
	                "run.yaml:6: data.1.embedding_loss=triplet needs 3 texts in a row"},
	        {"embedding_loss: cosent", "embedding_loss: cosent", "", "needs a score in each row"},
	        {"embedding_loss: mnrl", "query_prompt: x", "", "data set 2 has no embedding_loss"},
	        {"embedding_loss: mnrl, embedding_similarity: euclidean", "embedding_loss: cosent", "",
	                "run.yaml:3: data.0.embedding_similarity=euclidean is not for this embedding_loss"},
	        {"embedding_loss: mnrl", "embedding_loss: cosent, matryoshka_dims: [99]", "",
	                "run.yaml:6: data.1.matryoshka_dims=99 has 99, but the vectors of"},
	        {"embedding_loss: mnrl, learning_rate: 1", "embedding_loss: cosent", "",
	                "data.0.learning_rate=1: is a key of all data sets"},
	        {"embedding_loss: mnrl, foo: 1", "embedding_loss: cosent", "",
	                "data.0.foo=1: of a data set, "},
	        {"embedding_loss: mnrl, weight: 1", "embedding_loss: cosent, weight: 2", "",
	                "leave the weights out"},
	        {"embedding_loss: mnrl, name: a", "embedding_loss: cosent, name: a", "",
	                "two data sets have the name a"},
	        {"embedding_loss: mnrl, name: a/b", "embedding_loss: cosent", "",
	                "data set 1 is called \"a/b\""},
	        {"embedding_loss: mnrl", "embedding_loss: cosent, field_anchor: one, field_positive: no", "",
	                "no column \"no\""},
	        {"embedding_loss: mnrl", "embedding_loss: cosent", "per_device_train_batch_size: 14",
	                "pairs.jsonl: the data set has 13 rows, too few for a step of 14"},
	        {"embedding_loss: mnrl", "embedding_loss: cosent", "eval_data: pairs.jsonl",
	                "eval_data has 1 data set and data has 2"},
	        {"embedding_loss: mnrl", "embedding_loss: cosent",
	                "eval_data: [{name: no, path: pairs.jsonl}]",
	                "no data set of data is called \"no\"; there are rows, pairs"},
	        {"embedding_loss: mnrl", "embedding_loss: cosent",
	                "eval_data: [{path: pairs.jsonl, embedding_loss: cosine}]",
	                "it has the keys of the set of that name in data"},
	        {"embedding_loss: mnrl", "embedding_loss: cosent", "packing: bfd", "set packing=off"},
	        {"field_anchor: a", "field_anchor: one", "",
	                "set embedding_loss in each, or outside of data"},
	};
	const char *said;
	char advice[50];

	(void)state;
	rows_make();
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		write_file("run.yaml",
		        "model: speaker\ndata:\n  - {%s,\n    path: rows.jsonl}\n\n  - {%s,\n    path: "
		        "pairs.jsonl%s}\n%s\n"
		        "max_steps: 1\n",
		        cases[i].first, cases[i].second, ", field_score: how", cases[i].more);
		assert_ferry(2, NULL, "train %s/run.yaml output_dir=%s/refused", work_dir, work_dir);
		if (!strstr(ferry_said(), cases[i].says))
			fail_msg("%s, %s: %s", cases[i].first, cases[i].second, ferry_said());
		assert_false(run_has("refused"));
	}
	assert_ferry(2, NULL,
	        "train model=%s/speaker data=%s/rows.jsonl output_dir=%s/refused embedding_loss=mnrl "
	        "multi_dataset_batch_sampler=proportional",
	        work_dir, work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "needs several data sets"));
	assert_ferry(2, NULL,
	        "train model=%s/speaker data=%s/rows.jsonl output_dir=%s/refused "
	        "multi_dataset_batch_sampler=proportional",
	        work_dir, work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "no effect without embedding_loss"));
	assert_ferry(2, NULL,
	        "train model=%s/speaker data=%s/rows.jsonl,%s/pairs.jsonl output_dir=%s/refused "
	        "'data_keys=[{\"embedding_loss\":\"mnrl\"}]'",
	        work_dir, work_dir, work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "data_keys has keys for 1 data set, but data has 2"));
	said = strstr(ferry_said(), "set data_keys=");
	assert_true(said && sscanf(said, "set %49s", advice) == 1);
	assert_ferry(0, NULL, "plan model=%s/speaker data=%s/gone.jsonl embedding_loss=mnrl %s", work_dir,
	        work_dir, advice);
}

/* A mapping of names, keys of the command line, one loss for sets that stay apart. */
static void test_forms(void **state)
{
	struct str out = {0};

	(void)state;
	rows_make();
	write_file("map.yaml", "model: speaker\ndata:\n  first: {path: rows.jsonl, embedding_loss: triplet}\n"
	                       "  second: {path: pairs.jsonl, embedding_loss: cosent, field_score: how}\n"
	                       "per_device_train_batch_size: 4\nmax_steps: 4\ncompute_dtype: fp32\n");
	assert_ferry(0, &out, "train %s/map.yaml output_dir=%s/map", work_dir, work_dir);
	assert_non_null(strstr(out.data, "first: triplet, 22 rows"));
	assert_non_null(strstr(out.data, "second: cosent, 13 rows"));
	str_free(&out);
	assert_ferry(0, NULL,
	        "train model=%s/speaker data=%s/rows.jsonl,%s/pairs.jsonl output_dir=%s/line max_steps=4 "
	        "compute_dtype=fp32 per_device_train_batch_size=4 "
	        "'data_keys=[{\"embedding_loss\":\"triplet\"},{\"embedding_loss\":\"cosent\",\"field_score\":"
	        "\"how\"}]'",
	        work_dir, work_dir, work_dir, work_dir);
	assert_same_runs("map", "line", "keys of the command line");
	write_file("dots.yaml", "model: speaker\ndata:\n  v1.b: {path: rows.jsonl, embedding_loss: triplet}\n"
	                        "  v2.b: {path: pairs.jsonl, embedding_loss: cosent, field_score: how}\n"
	                        "per_device_train_batch_size: 4\nmax_steps: 4\ncompute_dtype: fp32\n");
	assert_ferry(0, &out, "train %s/dots.yaml output_dir=%s/dots", work_dir, work_dir);
	assert_non_null(strstr(out.data, "v1.b: triplet, 22 rows"));
	assert_non_null(strstr(out.data, "v2.b: cosent, 13 rows"));
	str_free(&out);
	assert_same_runs("map", "dots", "names with dots");
	/* sets of as many steps: another sampler is another order all the same */
	write_file("twins.yaml", "model: speaker\ndata:\n  a: {path: rows.jsonl, embedding_loss: triplet}\n"
	                         "  b: {path: rows.jsonl, embedding_loss: triplet}\n"
	                         "per_device_train_batch_size: 4\nsave_steps: 3\n");
	assert_ferry(0, NULL,
	        "train %s/twins.yaml output_dir=%s/twins max_steps=3 multi_dataset_batch_sampler=%s",
	        work_dir, work_dir, "round_robin");
	remove_run("twins/model");
	assert_ferry(2, NULL,
	        "train %s/twins.yaml output_dir=%s/twins max_steps=6 resume=auto "
	        "multi_dataset_batch_sampler=proportional",
	        work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "set multi_dataset_batch_sampler=round_robin"));
	write_file("digits.yaml",
	        "model: speaker\ndata:\n  2024: {path: rows.jsonl, embedding_loss: triplet}\n");
	assert_ferry(2, NULL, "train %s/digits.yaml output_dir=%s/refused", work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "a name that is a number begin with a letter"));
	write_file("places.yaml", "model: speaker\ndata:\n  1: {path: rows.jsonl, embedding_loss: triplet}\n"
	                          "  0: {path: rows.jsonl, embedding_loss: triplet}\n");
	assert_ferry(2, NULL, "train %s/places.yaml output_dir=%s/refused", work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "places.yaml:3: \"data.1\": let a name that is a number"));
	write_file("more.jsonl", "%s",
	        "{\"a\":\"u\",\"b\":\"v\"}\n{\"a\":\"w\",\"b\":\"x y\"}\n"
	        "{\"a\":\"k\",\"b\":\"l\"}\n{\"a\":\"m\",\"b\":\"n\"}\n{\"a\":\"o\",\"b\":\"p\"}\n");
	assert_ferry(0, &out,
	        "train model=%s/speaker data=%s/rows.jsonl,%s/more.jsonl output_dir=%s/one max_steps=4 "
	        "per_device_train_batch_size=4 embedding_loss=mnrl multi_dataset_batch_sampler=round_robin",
	        work_dir, work_dir, work_dir, work_dir);
	assert_non_null(strstr(out.data, "rows: mnrl, 22 rows, 2 of the 4 steps of an epoch"));
	str_free(&out);
	assert_ferry(0, &out, "data show %s/map.yaml rows=23", work_dir);
	assert_non_null(strstr(out.data, "second of embedding_loss=cosent"));
	assert_non_null(strstr(out.data, "row 22: "));
	assert_non_null(strstr(out.data, "row 23: "));
	assert_null(strstr(out.data, "row 24: "));
	str_free(&out);
}

/* Rows with vectors of a teacher, as long as the 32 of the model, beside rows without, in either order. */
static void test_teacher(void **state)
{
	static const char first[] = "  taught: {path: taught.jsonl, embedding_loss: mse}\n",
	                  second[] = "  pairs: {path: rows.jsonl, embedding_loss: mnrl}\n";
	struct str rows = {0};

	(void)state;
	rows_make();
	for (int i = 0; i < 12; i++) {
		str_printf(&rows, "{\"sentence\":\"t %d\",\"label\":[", i);
		for (int k = 0; k < 32; k++)
			str_printf(&rows, "%s%d", k ? "," : "", (i * 5 + k) % 7 - 3);
		str_add(&rows, "]}\n");
	}
	write_file("taught.jsonl", "%s", rows.data);
	str_free(&rows);
	for (int turned = 0; turned < 2; turned++) {
		const char *dir = turned ? "turned" : "taught";

		write_file("taught.yaml",
		        "model: speaker\ndata:\n%s%seval_data:\n  - {name: pairs, path: rows.jsonl}\n"
		        "compute_dtype: fp32\nper_device_train_batch_size: 4\nmax_steps: 8\nlogging_steps: "
		        "1\n",
		        turned ? second : first, turned ? first : second);
		assert_ferry(0, NULL, "train %s/taught.yaml output_dir=%s/%s", work_dir, work_dir, dir);
		assert_ferry(0, NULL,
		        "train %s/taught.yaml output_dir=%s/%s_ranks per_device_train_batch_size=1 "
		        "gradient_accumulation_steps=2 ranks=2",
		        work_dir, work_dir, dir);
		assert_near_losses(dir, turned ? "turned_ranks" : "taught_ranks", 8, 1e-5, "on two ranks");
	}
}

/* A plan has room for the step that needs most, and says what a step of each set takes. */
static void test_plan(void **state)
{
	static const char keys[] = "compute_dtype=fp32 per_device_train_batch_size=4 vram_budget=off";
	json_t *both = NULL, *alone = NULL, *sets;
	double first, second, mean;

	(void)state;
	rows_make();
	assert_ferry_json(&both, "plan --json %s/run.yaml %s", work_dir, keys);
	assert_ferry_json(&alone,
	        "plan --json model=%s/speaker data=%s/rows.jsonl embedding_loss=mnrl 'query_prompt=find: ' "
	        "num_train_epochs=3 %s",
	        work_dir, work_dir, keys);
	sets = json_object_get(both, "data_sets");
	assert_int_equal(json_array_size(sets), 2);
	assert_string_equal(json_string_value(json_object_get(json_array_get(sets, 1), "name")), "scored");
	first = json_number_value(json_object_get(json_array_get(sets, 0), "step_tokens"));
	second = json_number_value(json_object_get(json_array_get(sets, 1), "step_tokens"));
	assert_true(first > 1.4 * second && second > 0); /* three texts, and two */
	assert_true(number(both, "step_tokens") == first);
	assert_true(number(both, "device_bytes") == number(alone, "device_bytes"));
	first = number(json_array_get(sets, 0), "step_ms");
	second = number(json_array_get(sets, 1), "step_ms");
	mean = number(both, "mean_step_ms");
	assert_true(fabs(mean - (6 * first + 4 * second) / 10) <= 1e-9 * mean);
	json_decref(both);
	json_decref(alone);
	assert_ferry(
	        0, NULL, "train %s/run.yaml output_dir=%s/planned %s max_steps=12", work_dir, work_dir, keys);
	/* of rows of max_length, where the file is not there */
	assert_ferry(0, NULL,
	        "plan model=%s/speaker data=%s/gone.jsonl "
	        "'data_keys=[{\"embedding_loss\":\"mnrl\",\"embedding_scale\":5}]'",
	        work_dir, work_dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden), cmocka_unit_test(test_same),
	        cmocka_unit_test(test_evaluate), cmocka_unit_test(test_teacher), cmocka_unit_test(test_plan),
	        cmocka_unit_test(test_refusals), cmocka_unit_test(test_forms)};
	int failed;

	ferry_run_begin("multi");
	speaker_make();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
