/* links: cli */
/* The files beside a model's weights: ferry reads each from its own place before the first step, and
 * writes them from memory, even if their directory changes. */
#include "tests/run_fixture.h"

#include "checkpoint/file/safetensors.h"
#include "checkpoint/hf/side_files.h"

static struct run_model tiny;

static const char common[] =
        "per_device_train_batch_size=2 threads=1 device=host logging_steps=1 learning_rate=1e-3";

static void assert_text(const char *name, const char *wanted)
{
	char path[700], *text;
	size_t len;

	path_of(path, name);
	text = read_file(path, &len);
	assert_string_equal(text, wanted);
	mem_free(text);
}

/* ---- which names ---- */

static void test_names(void **state)
{
	static const char *const are[] = {"config.json", "generation_config.json", "tokenizer.json",
	        "tokenizer_config.json", "tokenizer.model", "spiece.model", "vocab.json", "merges.txt",
	        "special_tokens_map.json", "added_tokens.json", "chat_template.jinja", "chat_template.json"};
	static const char *const are_not[] = {"config.json.bak", "._tokenizer.model", ".tokenizer.json",
	        "README.md", "model.safetensors", "vocab.json~", "merges.txt.orig", "tokenizer.json.tmp", "",
	        "Config.json"};

	(void)state;
	for (size_t i = 0; i < sizeof(are) / sizeof(*are); i++)
		assert_true(side_file_is(are[i]));
	for (size_t i = 0; i < sizeof(are_not) / sizeof(*are_not); i++)
		assert_false(side_file_is(are_not[i]));
}

/* ---- before the first step ---- */

/* An unreadable file is refused by its name before anything is trained or written. */
static void refused_first(const char *file, const char *says)
{
	remove_run("out");
	assert_ferry(2, NULL, "train model=%s/m data=%s output_dir=%s/out max_steps=2 %s", work_dir,
	        tiny.data, work_dir, common);
	if (!strstr(ferry_said(), file) || !strstr(ferry_said(), says))
		fail_msg("%s, %s: %s", file, says, ferry_said());
	assert_false(run_has("out/metrics.jsonl"));
	assert_false(run_has("out/config.yaml"));
}

static void test_refused_before_the_first_step(void **state)
{
	static const char *const links[] = {
	        "special_tokens_map.json", "generation_config.json", "tokenizer.model"};
	char path[700];

	(void)state;
	write_file("elsewhere.json", "{}");
	for (size_t i = 0; i < sizeof(links) / sizeof(*links); i++) {
		char name[100];

		snprintf(name, sizeof(name), "m/%s", links[i]);
		model_copy(&tiny, "m");
		path_of(path, name);
		assert_int_equal(symlink("../elsewhere.json", path), 0);
		refused_first(links[i], "outside the directory");
		assert_int_equal(unlink(path), 0);
		assert_int_equal(symlink("nowhere", path), 0);
		refused_first(links[i], "is a link to a missing file");
		assert_int_equal(unlink(path), 0);
		if (!geteuid())
			continue; /* reads everything */
		write_file(name, "{}");
		assert_int_equal(chmod(path, 0), 0);
		refused_first(links[i], "Permission denied");
	}
	model_copy(&tiny, "m");
	path_of(path, "m/1_Pooling"); /* a module's settings, in a folder */
	assert_int_equal(mkdir(path, 0700), 0);
	path_of(path, "m/1_Pooling/config.json");
	assert_int_equal(symlink("../../elsewhere.json", path), 0);
	refused_first("1_Pooling/config.json", "outside the directory");
	model_copy(&tiny, "m");
	path_of(path, "m/tokenizer.json");
	assert_int_equal(mkfifo(path, 0600), 0);
	refused_first("tokenizer.json", "pipe");
	model_copy(&tiny, "m");
	path_of(path, "m/config.json");
	assert_int_equal(unlink(path), 0);
	assert_int_equal(symlink("../tiny/config.json", path), 0);
	refused_first("config.json", "outside the directory");
}

/* Other programs' files and names of other encodings are no reason to lose anything. */
static void test_odd_names_are_passed_over(void **state)
{
	char path[700];

	(void)state;
	model_copy(&tiny, "m");
	write_file("m/._tokenizer.model", "resource fork");
	write_file("m/chat_template\xff.jinja", "x");
	path_of(path, "m/additional_chat_templates");
	assert_int_equal(mkdir(path, 0700), 0);
	remove_run("out");
	assert_ferry(0, NULL, "train model=%s/m data=%s output_dir=%s/out max_steps=2 save_steps=1 %s",
	        work_dir, tiny.data, work_dir, common);
	assert_non_null(strstr(ferry_said(), "its name is not UTF-8"));
	assert_non_null(strstr(ferry_said(), "/m/additional_chat_templates is not copied"));
	assert_true(run_has("out/model/config.json"));
	assert_false(run_has("out/model/._tokenizer.model"));
	assert_ferry(0, NULL, "verify %s/out", work_dir);
}

/* ---- the directory goes away ---- */

static void test_the_model_directory_is_removed(void **state)
{
	static const char *const files[] = {
	        "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"};
	char command[4000], path[700], a[700], b[700];
	pid_t pid;

	(void)state;
	remove_run("out");
	write_file("speaker/generation_config.json", "{\"eos_token_id\": 3}\n");
	snprintf(command, sizeof(command), "cp -r %s/speaker %s/kept", work_dir, work_dir);
	assert_int_equal(system(command), 0);
	write_file("lines.jsonl", "{\"text\":\"one two three\"}\n{\"text\":\"four five six\"}\n");
	snprintf(command, sizeof(command),
	        "%s train model=%s/speaker data=%s/lines.jsonl output_dir=%s/out max_steps=100000 "
	        "save_steps=0 "
	        "sample_prompt=one sample_steps=100 max_new_tokens=2 eval_split=1 eval_steps=100 %s",
	        getenv("FERRY_BINARY"), work_dir, work_dir, work_dir, common);
	pid = run_start(command);
	path_of(path, "out/metrics.jsonl");
	while (line_count(path) < 3 && is_running(pid))
		sleep_ms(2);
	remove_run("speaker");
	assert_int_equal(run_signal(pid, SIGTERM, "out", 250, 0), 3);
	assert_ferry(0, NULL, "verify %s/out", work_dir);
	assert_ferry(0, NULL, "export checkpoint=%s/out output_dir=%s/exported", work_dir, work_dir);
	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		snprintf(a, sizeof(a), "%s/kept/%s", work_dir, files[i]);
		snprintf(b, sizeof(b), "%s/exported/%s", work_dir, files[i]);
		assert_same_files(a, b, files[i]);
	}
	assert_ferry(0, NULL, "generate model=%s/exported prompt=one max_new_tokens=2 device=host", work_dir);
}

/* ---- each from where it belongs ---- */

/* model=DIR/small.json is the model's config.json, even beside other ones. */
static void test_config_of_another_name(void **state)
{
	(void)state;
	model_copy(&tiny, "m");
	remove_run("out");
	write_file("m/small.json",
	        "{\"model_type\":\"llama\",\"vocab_size\":64,\"hidden_size\":32,\"intermediate_size\":48,"
	        "\"num_hidden_layers\":1,\"num_attention_heads\":4,\"max_position_embeddings\":128,"
	        "\"tie_word_embeddings\":false}");
	assert_ferry(0, NULL,
	        "train model=%s/m/small.json init_weights=random data=%s output_dir=%s/out max_steps=2 "
	        "save_steps=1 "
	        "%s",
	        work_dir, tiny.data, work_dir, common);
	assert_ferry(0, NULL, "eval model=%s/out/model data=%s device=host", work_dir, tiny.data);
	assert_null(strstr(ferry_said(), "tensor"));
	assert_ferry(0, NULL, "train %s/out/config.yaml resume_from_checkpoint=auto max_steps=3", work_dir);
	assert_false(run_has("out/model/small.json"));
}

/* tokenizer=DIR2: the tokenizer's files are DIR2's, all of them, the others the model's. */
static void test_another_tokenizer(void **state)
{
	char path[700];

	(void)state;
	model_copy(&tiny, "m");
	write_file("m/tokenizer_config.json", "{\"of\": \"the model\"}");
	write_file("m/vocab.json", "{}");
	write_file("m/generation_config.json", "{\"top_k\": 7}");
	write_file("words/generation_config.json", "{\"top_k\": 8}");
	for (int as_file = 0; as_file < 2; as_file++) {
		remove_run("out");
		assert_ferry(0, NULL,
		        "train model=%s/m tokenizer=%s/words%s data=%s data_format=tokens output_dir=%s/out "
		        "max_steps=1 %s",
		        work_dir, work_dir, as_file ? "/tokenizer.json" : "", tiny.data, work_dir, common);
		assert_text("out/model/tokenizer_config.json", "{\"eos_token\":\"<|endoftext|>\"}");
		assert_text("out/model/generation_config.json", "{\"top_k\": 7}");
		assert_true(run_has("out/model/tokenizer.json"));
		assert_false(run_has("out/model/vocab.json"));
	}
	path_of(path, "words/generation_config.json");
	assert_int_equal(unlink(path), 0);
}

/* The model has its own head although config.json says tied. The result must say untied, or loaders drop
 * the head. */
static void test_untied(void **state)
{
	char path[700], *text;
	size_t len;
	json_t *config;

	(void)state;
	model_copy(&tiny, "m");
	remove_run("out");
	write_file("m/config.json", TINY_CONFIG, "true");
	assert_ferry(0, NULL, "train model=%s/m data=%s output_dir=%s/out max_steps=2 save_steps=1 %s",
	        work_dir, tiny.data, work_dir, common);
	for (int i = 0; i < 2; i++) {
		path_of(path, i ? "exported/config.json" : "out/model/config.json");
		if (i)
			assert_ferry(0, NULL,
			        "export checkpoint=%s/out output_dir=%s/exported overwrite_output_dir=on",
			        work_dir, work_dir);
		text = read_file(path, &len);
		assert_int_equal(json_parse(&config, path, text, len), 0);
		assert_true(json_is_false(json_object_get(config, "tie_word_embeddings")));
		json_decref(config);
		mem_free(text);
	}
	assert_ferry(0, NULL, "train %s/out/config.yaml resume_from_checkpoint=auto max_steps=3", work_dir);
}

/* eos_token= ends texts with another token, and the result ends there too. */
static void test_eos_token(void **state)
{
	char path[700], *text;
	struct str rows = {0};
	size_t len;

	(void)state;
	write_file("lines.jsonl", "{\"text\":\"one two three\"}\n{\"text\":\"four five six\"}\n");
	remove_run("out");
	assert_ferry(2, NULL,
	        "train model=%s/speaker data=%s/lines.jsonl output_dir=%s/out eos_token=nosuchtoken %s",
	        work_dir, work_dir, work_dir, common);
	assert_non_null(strstr(ferry_said(), "'nosuchtoken' is not in the tokenizer's vocabulary"));
	assert_ferry(0, NULL,
	        "train model=%s/speaker data=%s/lines.jsonl output_dir=%s/out eos_token=! max_steps=1 %s",
	        work_dir, work_dir, work_dir, common);
	path_of(path, "out/model/tokenizer_config.json");
	text = read_file(path, &len);
	assert_non_null(strstr(text, "\"eos_token\": \"!\""));
	mem_free(text);
	path_of(path, "out/model/generation_config.json");
	text = read_file(path, &len);
	assert_non_null(strstr(text, "eos_token_id"));
	mem_free(text);
	assert_ferry(
	        0, &rows, "data model=%s/out/model data=%s/lines.jsonl show_tokens=on", work_dir, work_dir);
	assert_non_null(strstr(rows.data, "\"!\""));
	str_free(&rows);
}

/* Writes the weights of `from` as the text part of a model with a tower. */
static void whole_write(const char *from, const char *to)
{
	struct safetensors_writer *writer;
	struct safetensors *file;
	struct safetensors_decl decls[64];
	char names[64][200];
	static const uint16_t tower[4];
	int64_t count;

	assert_int_equal(safetensors_open(&file, from), 0);
	count = file->tensor_count;
	assert_true(count < 64);
	for (int64_t i = 0; i < count; i++) {
		const struct safetensors_tensor *t = &file->tensors[i];

		snprintf(names[i], sizeof(names[i]), "language_model.%s", t->name);
		decls[i] = (struct safetensors_decl){.name = names[i], .dtype = t->dtype, .rank = t->rank};
		memcpy(decls[i].shape, t->shape, sizeof(t->shape));
	}
	decls[count] = (struct safetensors_decl){
	        .name = "vision_tower.norm.weight", .dtype = SAFETENSORS_BF16, .rank = 1, .shape = {4}};
	assert_int_equal(safetensors_create(&writer, to, decls, count + 1, NULL, 0, SAFETENSORS_PLAIN), 0);
	for (int64_t i = 0; i < count; i++) {
		void *bytes = mem_alloc((size_t)file->tensors[i].len_bytes, 1);

		assert_int_equal(
		        safetensors_read(file, &file->tensors[i], bytes, 0, file->tensors[i].len_bytes), 0);
		assert_int_equal(safetensors_append(writer, bytes, (size_t)file->tensors[i].len_bytes), 0);
		mem_free(bytes);
	}
	assert_int_equal(safetensors_append(writer, tower, sizeof(tower)), 0);
	assert_int_equal(safetensors_finish(writer), 0);
	safetensors_writer_free(writer);
	safetensors_close(file);
}

/* A model that also reads images trains as its text part alone would; with export_text_only the result is
 * that text model. Whole results: test_run_wholes. */
static void test_text_part(void **state)
{
	char config[2000], from[700], to[700], *text;
	size_t len;

	(void)state;
	model_copy(&tiny, "m");
	model_copy(&tiny, "whole");
	path_of(from, "m/model.safetensors");
	path_of(to, "whole/model.safetensors");
	assert_int_equal(unlink(to), 0);
	whole_write(from, to);
	snprintf(config, sizeof(config), TINY_CONFIG, "false");
	write_file("whole/config.json",
	        "{\"model_type\":\"llava\",\"architectures\":[\"LlavaForConditionalGeneration\"],"
	        "\"vision_config\":{\"hidden_size\":4},\"text_config\":%s}",
	        config);
	remove_run("out");
	remove_run("plain");
	assert_ferry(0, NULL,
	        "train model=%s/m data=%s output_dir=%s/plain max_steps=3 lr_scheduler=constant %s", work_dir,
	        tiny.data, work_dir, common);
	assert_ferry(0, NULL,
	        "train model=%s/whole data=%s output_dir=%s/out max_steps=2 lr_scheduler=constant "
	        "export_text_only=on %s",
	        work_dir, tiny.data, work_dir, common);
	assert_non_null(
	        strstr(ferry_said(), "reading the text part of a llava model; 1 tensor of its other parts "
	                             "stays unchanged"));
	assert_ferry(0, NULL,
	        "train model=%s/whole data=%s output_dir=%s/out max_steps=3 lr_scheduler=constant %s "
	        "export_text_only=on resume_from_checkpoint=auto",
	        work_dir, tiny.data, work_dir, common);
	path_of(from, "plain/model/model.safetensors");
	path_of(to, "out/model/model.safetensors");
	assert_same_files(from, to, "weights of the text part");
	path_of(to, "out/model/config.json");
	text = read_file(to, &len);
	assert_non_null(strstr(text, "\"LlamaForCausalLM\""));
	assert_null(strstr(text, "vision"));
	mem_free(text);
	assert_ferry(0, NULL, "eval model=%s/out/model data=%s device=host", work_dir, tiny.data);
	assert_null(strstr(ferry_said(), "tensor"));

	/* its adapter has the names of the whole model's modules */
	remove_run("out");
	assert_ferry(0, NULL, "train model=%s/whole data=%s output_dir=%s/out max_steps=1 lora_rank=2 %s",
	        work_dir, tiny.data, work_dir, common);
	path_of(to, "out/adapter/adapter_config.json");
	text = read_file(to, &len);
	assert_non_null(strstr(text, "\"model.language_model.layers.0.self_attn.q_proj\""));
	mem_free(text);
	assert_ferry(0, NULL, "eval model=%s/whole lora_adapter=%s/out/adapter data=%s device=host", work_dir,
	        work_dir, tiny.data);
}

static int begin(void **state)
{
	(void)state;
	ferry_run_begin("run-side");
	tiny_model(&tiny);
	speaker_make();
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
	        cmocka_unit_test(test_names),
	        cmocka_unit_test(test_refused_before_the_first_step),
	        cmocka_unit_test(test_odd_names_are_passed_over),
	        cmocka_unit_test(test_eos_token),
	        cmocka_unit_test(test_the_model_directory_is_removed),
	        cmocka_unit_test(test_config_of_another_name),
	        cmocka_unit_test(test_another_tokenizer),
	        cmocka_unit_test(test_untied),
	        cmocka_unit_test(test_text_part),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
