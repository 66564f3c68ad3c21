/* links: cli */
/* Losses of embedders through the commands, beside runs of sentence-transformers' trainer, and refusals. */
#include "tests/golden_trace.h"

#include <math.h>

static void test_runs(void **state)
{
	const char *golden = golden_dir("test_run_contrast, test_runs"), *name;
	char *path, *source = mem_printf("%s/tests/golden/contrast_runs", getenv("FERRY_SOURCE"));
	json_t *runs = NULL, *run;

	(void)state;
	if (!golden) {
		mem_free(source);
		skip();
	}
	path = mem_printf("%s/runs.json", source);
	assert_int_equal(json_read_file(&runs, path, 1 << 24), 0);
	assert_true(json_object_size(runs) > 5);
	json_object_foreach(runs, name, run)
	{
		const char *keys = json_string_value(json_object_get(run, "keys"));

		for (int pieces = 0; pieces < 2; pieces++) {
			char *dir = mem_printf("%s%s", name, pieces ? "_pieces" : "");

			assert_ferry(0, NULL,
			        "train model=%s/embeddings/bert/model data=%s/%s.jsonl "
			        "output_dir=%s/%s " TRACE_KEYS " %s %s",
			        golden, source, name, work_dir, dir, keys,
			        pieces ? "per_device_train_batch_size=2 gradient_accumulation_steps=2 ranks=2"
			               : "per_device_train_batch_size=8");
			trace_check(dir, run, NULL);
			mem_free(dir);
		}
	}
	json_decref(runs);
	mem_free(path);
	mem_free(source);
}

/* What is wrong is refused by its name, and nothing is written. */
static void test_refusals(void **state)
{
	static const char pair[] = "{\"a\":\"x\",\"b\":\"y\",\"score\":1}",
	                  triple[] = "{\"a\":\"x\",\"b\":\"y\",\"c\":\"z\",\"label\":[1,2,3]}";
	static const struct {
		const char *rows, *keys, *says;
	} cases[] = {
	        {pair, "embedding_loss=triplet embedding_similarity=dot",
	                "embedding_similarity=dot is not for this embedding_loss; supported: cosine, "
	                "euclidean"},
	        {pair, "embedding_loss=mnrl embedding_similarity=euclidean", "supported: cosine, dot"},
	        {pair, "embedding_loss=cosent embedding_hardness=hard_negatives",
	                "only for embedding_loss=mnrl"},
	        {pair, "embedding_loss=mnrl embedding_hardness=hard_negatives",
	                "no effect without embedding_hardness_strength"},
	        {pair, "embedding_loss=mnrl embedding_hardness_strength=2",
	                "no effect without embedding_hardness;"},
	        {pair, "embedding_loss=mnrl embedding_directions=doc_to_query", "lacks query_to_doc"},
	        {pair,
	                "embedding_loss=mnrl embedding_directions=query_to_doc,doc_to_doc "
	                "embedding_partition=per_direction",
	                "set joint"},
	        {pair, "embedding_loss=mnrl matryoshka_dims=8,x", "is no list"},
	        {pair, "embedding_loss=mnrl 'matryoshka_dims=[8,4'", "is no list"},
	        {pair, "embedding_loss=mnrl 'matryoshka_dims=8,4]'", "is no list"},
	        {pair, "embedding_loss=mnrl matryoshka_dims=8,0", "not whole and positive"},
	        {pair, "embedding_loss=mnrl matryoshka_dims=1e300", "not whole and positive"},
	        {pair, "embedding_loss=mnrl matryoshka_dims=1000,8", "has 1000, but the vectors of"},
	        {pair, "embedding_loss=mnrl matryoshka_weights=1,2", "no effect without matryoshka_dims"},
	        {pair, "embedding_loss=mnrl matryoshka_dims=8,4 matryoshka_weights=1,0", "not above 0"},
	        {pair, "embedding_loss=mnrl matryoshka_dims=8,4 matryoshka_weights=1,-1", "not above 0"},
	        {pair, "embedding_loss=gist", "embedding_loss=gist is not supported yet"},
	        {pair, "embedding_loss=CachedGISTEmbedLoss",
	                "a second model in memory; try mnrl with batch_sampler=no_duplicates"},
	        {pair, "embedding_loss=mnrl matryoshka_dims=8,4 matryoshka_weights=1",
	                "another number of entries"},
	        {pair, "matryoshka_dims=8,4", "no effect without embedding_loss"},
	        {pair, "embedding_loss=margin_mse", "needs 3 texts in a row"},
	        {triple, "embedding_loss=margin_mse", "\"label\" has 3 numbers; the row has 1 negative:"},
	        {"{\"a\":\"x\",\"b\":\"y\"}", "embedding_loss=angle", "needs a score in each row"},
	        {pair, "embedding_loss=mse matryoshka_dims=8", "does not work with embedding_loss=mse"},
	        {pair, "embedding_loss=mse embedding_similarity=dot", "which compares no two texts"},
	        {pair, "embedding_loss=mse", "rows.jsonl:1: \"score\" is 1; expected a list of numbers"},
	        {triple, "embedding_loss=mse",
	                "rows.jsonl:1: \"label\" has 3 numbers and the model's vectors have 32; take a "
	                "teacher"},
	        {"{\"a\":\"x\",\"b\":\"y\"}", "embedding_loss=mse",
	                "rows.jsonl:1: embedding_loss needs a teacher's vector in each row; the row has"},
	        {"{\"a\":\"x\",\"b\":\"y\",\"label\":[[1],[2],[3]]}", "embedding_loss=mse",
	                "\"label\" has 3 vectors; the row has 2 texts: expected one vector for all, or one"},
	        {"{\"a\":\"x\",\"label\":[1,NaN]}", "embedding_loss=mse", "rows.jsonl:1"},
	        {"{\"label\":[1]}", "embedding_loss=mse", "needs a text in a row"},
	        {"{\"a\":\"x\",\"label\":\"[1, x]\"}", "embedding_loss=mse", "is [1, x]; expected a list"},
	        {"{\"a\":\"x\",\"label\":[1e300,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,"
	         "0]}",
	                "embedding_loss=mse", "rows.jsonl:1: \"label\" is 1e+300; expected a number"},
	        {"{\"a\":\"x\",\"label\":[true,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,"
	         "0]}",
	                "embedding_loss=mse", "rows.jsonl:1: \"label\" is a boolean; expected a number"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		write_file("rows.jsonl", "%s\n%s\n", cases[i].rows, cases[i].rows);
		assert_ferry(2, NULL,
		        "train model=%s/speaker data=%s/rows.jsonl output_dir=%s/refused max_steps=1 %s",
		        work_dir, work_dir, work_dir, cases[i].keys);
		if (!strstr(ferry_said(), cases[i].says))
			fail_msg("%s: %s", cases[i].keys, ferry_said());
	}
}

/* Lists in a file, and what is warned of; AnglE takes triples without a score. */
static void test_lists(void **state)
{
	(void)state;
	write_file("triples.jsonl",
	        "{\"a\":\"x\",\"b\":\"y\",\"c\":\"z\"}\n{\"a\":\"u\",\"b\":\"v\",\"c\":\"w\"}\n");
	write_file("run.yaml",
	        "model: %s/speaker\ndata: %s/triples.jsonl\noutput_dir: %s/lists\nembedding_loss: angle\n"
	        "matryoshka_dims: [8, 4]\nmatryoshka_weights: [1, 0.5]\nmax_steps: 1\n",
	        work_dir, work_dir, work_dir);
	assert_ferry(0, NULL, "train %s/run.yaml", work_dir);
	assert_non_null(strstr(ferry_said(), "they are not trained whole"));
}

/* Steps without duplicates learn the same on ranks, in pieces and after resuming; a note says how long an
 * epoch is. */
static void test_no_duplicates(void **state)
{
	static const char keys[] = "embedding_loss=mnrl batch_sampler=no_duplicates compute_dtype=fp32 "
	                           "num_train_epochs=2 learning_rate=1e-3 save_steps=5 save_total_limit=9";
	struct str rows = {0};

	(void)state;
	for (int i = 0; i < 24; i++)
		str_printf(&rows, "{\"a\":\"q%d\",\"b\":\"p%d\"}\n", i % 8, i);
	write_file("twice.jsonl", "%s", rows.data);
	str_free(&rows);
	assert_ferry(0, NULL,
	        "train model=%s/speaker data=%s/twice.jsonl output_dir=%s/whole %s "
	        "per_device_train_batch_size=4",
	        work_dir, work_dir, work_dir, keys);
	assert_ferry(0, NULL,
	        "train model=%s/speaker data=%s/twice.jsonl output_dir=%s/pieces %s "
	        "per_device_train_batch_size=1 "
	        "gradient_accumulation_steps=4 cpu_offload=on",
	        work_dir, work_dir, work_dir, keys);
	assert_near_losses("whole", "pieces", 12, 1e-5, "in pieces");
	assert_ferry(0, NULL,
	        "train model=%s/speaker data=%s/twice.jsonl output_dir=%s/ranks %s "
	        "per_device_train_batch_size=2 ranks=2",
	        work_dir, work_dir, work_dir, keys);
	assert_near_losses("whole", "ranks", 12, 1e-5, "on two ranks");
	assert_ferry(0, NULL,
	        "train model=%s/speaker data=%s/twice.jsonl output_dir=%s/part %s "
	        "per_device_train_batch_size=4",
	        work_dir, work_dir, work_dir, keys);
	remove_run("part/model");
	remove_run("part/checkpoint-000010");
	remove_run("part/checkpoint-000012");
	assert_ferry(0, NULL,
	        "train model=%s/speaker data=%s/twice.jsonl output_dir=%s/part %s "
	        "per_device_train_batch_size=4 "
	        "resume=auto",
	        work_dir, work_dir, work_dir, keys);
	assert_true(run_has("part/checkpoint-000012"));
	same_weights("whole", "part");
	assert_ferry(2, NULL,
	        "train model=%s/speaker data=%s/twice.jsonl output_dir=%s/part %s "
	        "per_device_train_batch_size=4 "
	        "resume=auto batch_sampler=default max_steps=20",
	        work_dir, work_dir, work_dir, keys);
	assert_non_null(strstr(ferry_said(), "set batch_sampler=no_duplicates"));
	/* every row is an anchor that its step has once */
	write_file("same.jsonl", "%s",
	        "{\"a\":\"q\",\"b\":\"r\"}\n{\"a\":\"q\",\"b\":\"s\"}\n{\"a\":\"t\",\"b\":\"u\"}\n");
	assert_ferry(0, NULL,
	        "train model=%s/speaker data=%s/same.jsonl output_dir=%s/same embedding_loss=mnrl "
	        "batch_sampler=no_duplicates per_device_train_batch_size=4 max_steps=4",
	        work_dir, work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "an epoch has 2 steps, not 1"));
	assert_non_null(strstr(ferry_said(), "1 of 2 steps of an epoch have one row"));
	assert_ferry(2, NULL,
	        "train model=%s/speaker data=%s/same.jsonl:1,%s/twice.jsonl:2 output_dir=%s/mixed "
	        "embedding_loss=mnrl batch_sampler=no_duplicates max_steps=1",
	        work_dir, work_dir, work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "batch_sampler=no_duplicates"));
}

/* Rows with a teacher's vectors; `turn` changes the number in the middle of one. */
static void teachers_write(const char *name, int count, double turn)
{
	struct str rows = {0};

	for (int i = 0; i < count; i++) {
		str_printf(&rows, "{\"a\":\"q%d\",\"b\":\"p%d\",\"label\":[", i, i % 7);
		for (int k = 0; k < 32; k++)
			str_printf(&rows, "%s%.5f", k ? "," : "",
			        sin(i * 0.7 + k) + (i == count / 2 && k == 16 ? turn : 0));
		str_add(&rows, "]}\n");
	}
	write_file(name, "%s", rows.data);
	str_free(&rows);
}

/* Vectors of a teacher train the same from files, on ranks, in pieces and after resuming, which refuses
 * others. */
static void test_teacher(void **state)
{
	static const char run[] =
	        "train model=%s/speaker data=%s/teacher.jsonl output_dir=%s/%s "
	        "eval_data=%s/few.jsonl eval_steps=2 embedding_loss=mse compute_dtype=fp32 max_steps=4 "
	        "learning_rate=1e-3 save_steps=2 save_total_limit=9 data_cache=%s/cache %s";
	static const struct {
		const char *name, *keys;
	} same[] = {{"t_files", "per_device_train_batch_size=4 data_memory=1MiB"},
	        {"t_again", "per_device_train_batch_size=4 data_memory=1MiB"}},
	  near[] = {{"t_pieces", "gradient_accumulation_steps=4 cpu_offload=on"},
	          {"t_ranks", "per_device_train_batch_size=2 ranks=2"},
	          {"t_both", "per_device_train_batch_size=1 gradient_accumulation_steps=2 ranks=2 "
	                     "data_memory=1MiB"}};
	static const char whole[] = "per_device_train_batch_size=4";

	(void)state;
	teachers_write("teacher.jsonl", 4000, 0);
	teachers_write("few.jsonl", 5, 0);
	assert_ferry(0, NULL, run, work_dir, work_dir, work_dir, "t_whole", work_dir, work_dir, whole);
	for (size_t i = 0; i < sizeof(same) / sizeof(*same); i++) {
		assert_ferry(0, NULL, run, work_dir, work_dir, work_dir, same[i].name, work_dir, work_dir,
		        same[i].keys);
		assert_non_null(strstr(ferry_said(), i ? "of an earlier run" : "rows are in"));
		same_weights("t_whole", same[i].name);
	}
	/* rows of an earlier run are not those of a model with longer vectors and the same tokenizer */
	write_file("wide.json",
	        "{\"model_type\":\"llama\",\"vocab_size\":2000,\"hidden_size\":48,\"intermediate_size\":48,"
	        "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"max_position_embeddings\":128}");
	assert_ferry(0, NULL, "init config=%s/wide.json tokenizer=%s/words output_dir=%s/wide", work_dir,
	        work_dir, work_dir);
	assert_ferry(2, NULL,
	        "train model=%s/wide data=%s/teacher.jsonl output_dir=%s/t_wide embedding_loss=mse "
	        "max_steps=1 data_cache=%s/cache data_memory=1MiB tokenizer=%s/speaker",
	        work_dir, work_dir, work_dir, work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "has 32 numbers and the model's vectors have 48"));
	for (size_t i = 0; i < sizeof(near) / sizeof(*near); i++) {
		assert_ferry(0, NULL, run, work_dir, work_dir, work_dir, near[i].name, work_dir, work_dir,
		        near[i].keys);
		assert_near_losses("t_whole", near[i].name, 4, 1e-5, near[i].name);
		assert_relative(metric_of(near[i].name, 4, "eval_loss"), metric_of("t_whole", 4, "eval_loss"),
		        1e-5, near[i].name);
	}
	assert_ferry(0, NULL, run, work_dir, work_dir, work_dir, "t_part", work_dir, work_dir, whole);
	remove_run("t_part/model");
	remove_run("t_part/checkpoint-000004");
	assert_ferry(0, NULL, run, work_dir, work_dir, work_dir, "t_part", work_dir, work_dir,
	        "per_device_train_batch_size=4 resume=auto");
	same_weights("t_whole", "t_part");
	remove_run("t_part/model");
	remove_run("t_part/checkpoint-000004");
	teachers_write("teacher.jsonl", 4000, 1e-3);
	assert_ferry(2, NULL, run, work_dir, work_dir, work_dir, "t_part", work_dir, work_dir,
	        "per_device_train_batch_size=4 resume=auto");
	assert_non_null(strstr(ferry_said(), "data"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_runs), cmocka_unit_test(test_refusals),
	        cmocka_unit_test(test_lists), cmocka_unit_test(test_no_duplicates),
	        cmocka_unit_test(test_teacher)};

	int failed;

	ferry_run_begin("contrast");
	speaker_make();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
