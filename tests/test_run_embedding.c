/* links: cli */
/* An embedder through the commands: golden losses, pieces of a step, offload, ranks, resume, results. */
#include "tests/golden_trace.h"

#define PROMPTS " query_prompt=query document_prompt=document"
#define TRACE "embedding_loss=mnrl " TRACE_KEYS

static void remove_in(const char *name)
{
	char path[400];

	path_of(path, name);
	assert_int_equal(file_remove_tree(path), 0);
}

static void test_golden(void **state)
{
	const char *golden = golden_dir("test_run_embedding, test_golden");
	char *dir;
	json_t *ref = NULL;
	const json_t *trace;

	(void)state;
	if (!golden)
		skip();
	golden_begin("modern/embed_qwen3");
	golden_now.part = "steps in fp32";
	dir = mem_printf("%s/modern/embed_qwen3", golden);
	assert_non_null(dir);
	{
		char *path = file_join(dir, "ref.json");

		assert_int_equal(json_read_file(&ref, path, 1 << 26), 0);
		mem_free(path);
	}
	trace = json_object_get(json_object_get(ref, "trace"), "float32");
	assert_ferry(0, NULL,
	        "train model=%s/model data=%s/train.jsonl output_dir=%s/one " TRACE PROMPTS
	        " per_device_train_batch_size=8",
	        dir, dir, work_dir);
	trace_check("one", trace, NULL);
	/* one contrastive batch in pieces, with everything that leaves the device */
	assert_ferry(0, NULL,
	        "train model=%s/model data=%s/train.jsonl output_dir=%s/pieces " TRACE PROMPTS
	        " per_device_train_batch_size=2 gradient_accumulation_steps=4",
	        dir, dir, work_dir);
	trace_check("pieces", trace, NULL);
	assert_ferry(0, NULL,
	        "train model=%s/model data=%s/train.jsonl output_dir=%s/offload " TRACE PROMPTS
	        " per_device_train_batch_size=2 gradient_accumulation_steps=4 cpu_offload=on "
	        "activations=offload stream_delay_seed=3",
	        dir, dir, work_dir);
	same_weights("pieces", "offload");
	/* two ranks compare with each other's rows */
	assert_ferry(0, NULL,
	        "train model=%s/model data=%s/train.jsonl output_dir=%s/ranks " TRACE PROMPTS
	        " per_device_train_batch_size=2 gradient_accumulation_steps=2 ranks=2",
	        dir, dir, work_dir);
	trace_check("ranks", trace, NULL);
	*golden_now.model = 0;
	/* resumed in the middle */
	assert_ferry(0, NULL,
	        "train model=%s/model data=%s/train.jsonl output_dir=%s/again " TRACE PROMPTS
	        " per_device_train_batch_size=8 save_steps=9 save_total_limit=9",
	        dir, dir, work_dir);
	remove_in("again/checkpoint-000020");
	remove_in("again/checkpoint-000018");
	remove_in("again/model");
	assert_ferry(0, NULL,
	        "train model=%s/model data=%s/train.jsonl output_dir=%s/again " TRACE PROMPTS
	        " per_device_train_batch_size=8 save_steps=9 save_total_limit=9 resume=auto",
	        dir, dir, work_dir);
	same_weights("one", "again");
	json_decref(ref);
	mem_free(dir);
}

/* BERT: mean pooling, norms behind the sums, WordPiece; offload changes no bit. */
static void test_bert(void **state)
{
	const char *golden = golden_dir("test_run_embedding, test_bert");
	char *dir, *path;
	json_t *ref = NULL;

	(void)state;
	if (!golden)
		skip();
	golden_begin("embeddings/bert");
	dir = mem_printf("%s/embeddings/bert", golden);
	path = mem_printf("%s/ref.json", dir);
	assert_int_equal(json_read_file(&ref, path, 1 << 26), 0);
	assert_ferry(0, NULL,
	        "train model=%s/model data=%s/train.jsonl output_dir=%s/bert " TRACE
	        " per_device_train_batch_size=2 gradient_accumulation_steps=4",
	        dir, dir, work_dir);
	trace_check("bert", json_object_get(json_object_get(ref, "trace"), "float32"), NULL);
	*golden_now.model = 0;
	assert_ferry(0, NULL,
	        "train model=%s/model data=%s/train.jsonl output_dir=%s/bert_off " TRACE
	        " per_device_train_batch_size=2 gradient_accumulation_steps=4 cpu_offload=on "
	        "activations=recompute stream_delay_seed=3",
	        dir, dir, work_dir);
	same_weights("bert", "bert_off");
	json_decref(ref);
	mem_free(path);
	mem_free(dir);
}

/* The result is a directory of sentence-transformers, of an embedder or of a plain model. */
static void test_result(void **state)
{
	char *text, *again, path[400];

	(void)state;
	write_file("pairs.jsonl", "%s",
	        "{\"question\":\"hi there\",\"answer\":\"hello\"}\n{\"question\":\"2+2\",\"answer\":\"4\"}\n"
	        "{\"question\":\"a\",\"answer\":\"bc\"}\n{\"question\":\"yes\",\"answer\":\"no\"}\n");
	assert_ferry(0, NULL,
	        "train model=%s/speaker data=%s/pairs.jsonl output_dir=%s/plain embedding_loss=mnrl "
	        "pooling=mean max_steps=2 per_device_train_batch_size=2",
	        work_dir, work_dir, work_dir);
	text = file_of("plain", "model/modules.json");
	assert_non_null(strstr(text, "sentence_transformers.models.Pooling"));
	mem_free(text);
	text = file_of("plain", "model/1_Pooling/config.json");
	assert_non_null(strstr(text, "\"pooling_mode_mean_tokens\": true"));
	assert_non_null(strstr(text, "\"pooling_mode_lasttoken\": false"));
	mem_free(text);
	/* it is read as it was written, and a checkpoint exports the same */
	assert_ferry(0, NULL,
	        "train model=%s/plain/model data=%s/pairs.jsonl output_dir=%s/more embedding_loss=mnrl "
	        "max_steps=1 per_device_train_batch_size=2",
	        work_dir, work_dir, work_dir);
	assert_ferry(0, NULL, "export checkpoint=%s/more/checkpoint-000001 output_dir=%s/exported", work_dir,
	        work_dir);
	text = file_of("more", "model/1_Pooling/config.json");
	again = file_of("exported", "1_Pooling/config.json");
	assert_string_equal(text, again);
	mem_free(text);
	mem_free(again);
	assert_ferry(2, NULL,
	        "train model=%s/plain/model data=%s/pairs.jsonl output_dir=%s/no embedding_loss=mnrl "
	        "pooling=cls max_steps=1",
	        work_dir, work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "pooling=cls, but modules.json of"));
	/* an embedder's directory is ferry's own, but not a folder with notes that is called as a module */
	assert_ferry(0, NULL,
	        "export checkpoint=%s/more/checkpoint-000001 output_dir=%s/exported overwrite_output_dir=on",
	        work_dir, work_dir);
	path_of(path, "exported/2024_notes");
	assert_int_equal(file_make_dir(path), 0);
	write_file("exported/2024_notes/notes.txt", "mine");
	assert_ferry(2, NULL,
	        "export checkpoint=%s/more/checkpoint-000001 output_dir=%s/exported overwrite_output_dir=on",
	        work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "contains 2024_notes"));
}

/* What is wrong is refused by its name, and nothing is written. */
static void test_refusals(void **state)
{
	static const struct {
		const char *rows, *keys, *says;
	} cases[] = {
	        {"{\"a\":\"x\"}", "embedding_loss=mnrl", "needs 2 texts in a row"},
	        {"{\"a\":\"x\",\"b\":\"y\"}", "embedding_loss=triplet", "needs 3 texts in a row"},
	        {"{\"a\":\"x\",\"b\":[\"y\"]}", "embedding_loss=mnrl", "\"b\" is an array; expected a text"},
	        {"{\"a\":\"x\",\"b\":null}", "embedding_loss=mnrl", "\"b\" is null; expected a text"},
	        {"{\"a\":\"x\",\"b\":\"y\"}\n{\"a\":\"x\",\"b\":\"y\",\"c\":\"z\"}", "embedding_loss=mnrl",
	                "rows.jsonl:2: the row has 3 texts and earlier rows have 2"},
	        {"{\"a\":\"x\",\"b\":\"y\"}", "embedding_loss=cosent", "needs a score in each row"},
	        {"{\"a\":\"x\",\"b\":\"y\",\"score\":\"much\"}", "embedding_loss=cosent",
	                "\"score\" is much; expected a number"},
	        {"{\"a\":\"x\",\"b\":\"y\",\"score\":0.5}", "embedding_loss=online_contrastive",
	                "\"score\" is 0.5; expected 0 or 1"},
	        {"{\"a\":\"x\",\"b\":\"y\",\"score\":4}", "embedding_loss=contrastive",
	                "\"score\" is 4; expected 0 or 1"},
	        {"{\"a\":\"x\",\"b\":\"y\"}", "embedding_loss=mnrl field_positive=c field_anchor=a",
	                "no column \"c\" (set by field_positive)"},
	        {"{\"a\":\"x\",\"b\":\"y\"}", "embedding_loss=mnrl field_anchor=q",
	                "no column \"q\" (set by field_anchor)"},
	        {"{\"a\":\"x\",\"b\":\"y\"}",
	                "embedding_loss=mnrl field_anchor=a field_positive=b field_negative=c",
	                "no column \"c\" (set by field_negative)"},
	        {"{\"a\":\"x\",\"b\":\"y\"}", "embedding_scale=3", "has no effect without embedding_loss"},
	        {"{\"a\":\"x\",\"b\":\"y\"}", "pooling=cls", "has no effect without embedding_loss"},
	        {"{\"a\":\"x\",\"b\":\"y\"}", "embedding_loss=mnrl preference_loss=sigmoid", "choose one"},
	        {"{\"a\":\"x\",\"b\":\"y\"}", "embedding_loss=mnrl packing=bfd",
	                "texts of embedding_loss are not packed"},
	        {"{\"a\":\"x\",\"b\":\"y\"}",
	                "embedding_loss=mnrl schedule=micro_batch_major gradient_accumulation_steps=2",
	                "set schedule=layer_major"},
	        {"{\"a\":\"x\",\"b\":\"y\"}", "data_format=texts", "set embedding_loss=mnrl"},
	        {"{\"a\":\"x\",\"b\":\"y\"}", "embedding_loss=mnrl data_format=text",
	                "leave data_format out"},
	        {"{\"a\":\"x\",\"b\":\"y\"}", "embedding_loss=angle", "embedding_loss"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		write_file("rows.jsonl", "%s\n", cases[i].rows);
		assert_ferry(2, NULL,
		        "train model=%s/speaker data=%s/rows.jsonl output_dir=%s/none max_steps=1 %s",
		        work_dir, work_dir, work_dir, cases[i].keys);
		if (!strstr(ferry_said(), cases[i].says))
			fail_msg("%s: no \"%s\" in %s", cases[i].keys, cases[i].says, ferry_said());
	}
}

/* A step of one row has nothing to compare; a negative of its own is something. */
static void test_lone_rows(void **state)
{
	static const struct {
		const char *rows, *keys;
		int is_warned;
	} cases[] = {
	        {"{\"a\":\"x\",\"b\":\"y\"}", "embedding_loss=mnrl", 1},
	        {"{\"a\":\"x\",\"b\":\"y\",\"score\":0.5}", "embedding_loss=cosent", 1},
	        {"{\"a\":\"x\",\"b\":\"y\",\"score\":0.5}", "embedding_loss=cosine", 0},
	        {"{\"a\":\"x\",\"b\":\"y\",\"c\":\"z\"}", "embedding_loss=mnrl", 0},
	        {"{\"a\":\"x\",\"b\":\"y\"}", "embedding_loss=mnrl gradient_accumulation_steps=2", 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		write_file("lone.jsonl", "%s\n%s\n", cases[i].rows, cases[i].rows);
		assert_ferry(0, NULL,
		        "train model=%s/speaker data=%s/lone.jsonl output_dir=%s/lone max_steps=1 "
		        "overwrite_output_dir=on save_steps=off pooling=mean %s",
		        work_dir, work_dir, work_dir, cases[i].keys);
		if (!strstr(ferry_said(), "each step has one") != !cases[i].is_warned)
			fail_msg("%s: %s", cases[i].keys, ferry_said());
	}
}

/* Modules that ferry lacks are refused by name. */
static void test_modules(void **state)
{
	static const struct {
		const char *modules, *pooling, *says;
	} cases[] = {
	        {"[]", "{}", "no module is a Pooling"},
	        {"{}", "{}", "expected a list of modules"},
	        {"[{\"type\":\"a.b.StaticEmbedding\",\"path\":\"\"}]", "{}",
	                "ferry reads a Transformer at the top"},
	        {"[{\"type\":\"a.Transformer\",\"path\":\"\"},{\"type\":\"a.Pooling\",\"path\":\"1_Pooling\"}"
	         ","
	         "{\"type\":\"a.models.LayerNorm\",\"path\":\"2_LayerNorm\"}]",
	                "{\"pooling_mode\":\"cls\"}", "module a.models.LayerNorm is not supported yet"},
	};

	char path[400];

	(void)state;
	write_file("rows.jsonl", "{\"a\":\"x\",\"b\":\"y\"}\n");
	path_of(path, "speaker/1_Pooling");
	assert_int_equal(file_make_dir(path), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		write_file("speaker/modules.json", "%s", cases[i].modules);
		write_file("speaker/1_Pooling/config.json", "%s", cases[i].pooling);
		assert_ferry(2, NULL,
		        "train model=%s/speaker data=%s/rows.jsonl output_dir=%s/none max_steps=1 "
		        "embedding_loss=mnrl",
		        work_dir, work_dir, work_dir);
		if (!strstr(ferry_said(), cases[i].says))
			fail_msg("%s: no \"%s\" in %s", cases[i].modules, cases[i].says, ferry_said());
	}
}

/* Other words before the texts are other rows: the key is named. */
static void test_resumed_prompt(void **state)
{
	(void)state;
	write_file(
	        "pairs.jsonl", "{\"a\":\"the sea\",\"b\":\"old ship\"}\n{\"a\":\"red\",\"b\":\"green\"}\n");
	assert_ferry(0, NULL,
	        "train model=%s/speaker data=%s/pairs.jsonl output_dir=%s/prompted max_steps=1 save_steps=1 "
	        "embedding_loss=mnrl per_device_train_batch_size=2 query_prompt=slowly",
	        work_dir, work_dir, work_dir);
	assert_ferry(2, NULL,
	        "train %s/prompted/config.yaml resume_from_checkpoint=auto max_steps=2 query_prompt=again",
	        work_dir);
	assert_non_null(
	        strstr(ferry_said(), "query_prompt was slowly and is again; set query_prompt=slowly"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden), cmocka_unit_test(test_bert),
	        cmocka_unit_test(test_result), cmocka_unit_test(test_refusals),
	        cmocka_unit_test(test_lone_rows), cmocka_unit_test(test_resumed_prompt),
	        cmocka_unit_test(test_modules)};
	int failed;

	ferry_run_begin("embedding");
	speaker_make();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
