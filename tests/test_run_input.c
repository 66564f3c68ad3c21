/* links: cli */
/* Bad input: every invalid flag, configuration, model or data file gives the right exit code and one
 * message with the place, and writes nothing. */
#include "tests/run_fixture.h"

#if defined(__aarch64__)
#define ISA_ELSEWHERE "isa=avx2"
#else
#define ISA_ELSEWHERE "isa=neon"
#endif

static struct run_model tiny;

/* Runs a verb, and checks its output and files. Its one message must contain all `words`, separated by
 * '|'. */
static void refuse(int code, const char *words, const char *arguments)
{
	int got = ferry_run(NULL, "%s", arguments);
	const char *said = ferry_said();
	char list[400], *word, *rest = list;

	snprintf(list, sizeof(list), "%s", words);
	if (got != code)
		fail_msg("%s: exit code %d, expected %d: %s", arguments, got, code, said);
	while ((word = strsep(&rest, "|")))
		if (!strstr(said, word))
			fail_msg("%s: no \"%s\" in: %s", arguments, word, said);
	if (!strstr(said, "ferry "))
		fail_msg("%s: said %s", arguments, said);
	if (run_has("out"))
		fail_msg("%s: output_dir was made", arguments);
}

static void refuse_train(
        int code, const char *words, const char *model, const char *data, const char *settings)
{
	char arguments[2000];

	snprintf(arguments, sizeof(arguments), "train model=%s data=%s output_dir=%s/out %s", model, data,
	        work_dir, settings);
	refuse(code, words, arguments);
}

/* ---- flags ---- */

static void test_flags(void **state)
{
	static const struct {
		const char *settings, *words;
		int code;
	} rows[] = {
	        {"learning_rate=-1", "learning_rate|-1", 2},
	        {"learning_rate=nan", "learning_rate|nan", 2},
	        {"lr=1e-3x", "lr|1e-3x", 2},
	        {"lr=", "lr", 2},
	        {"--lr", "--lr needs a value", 2},
	        {"learning_rat=1", "learning_rat|did you mean learning_rate", 2},
	        {"max_steps=0", "max_steps=0|trains nothing", 2},
	        {"num_train_epochs=0", "num_train_epochs=0|trains nothing", 2},
	        {"max_length=1", "max_length|at least 2", 2},
	        {"max_length=-3", "max_length|-3", 2},
	        {"max_length=99999999999999", "max_length|16777216", 2},
	        {"per_device_train_batch_size=0", "per_device_train_batch_size|between 1", 2},
	        {"per_device_train_batch_size=-1", "per_device_train_batch_size|-1", 2},
	        {"batch_size=99999999999999999999", "99999999999999999999", 2},
	        {"gradient_accumulation_steps=0", "gradient_accumulation_steps", 2},
	        {"gradient_accumulation_steps=1.5", "gradient_accumulation_steps|whole number", 2},
	        {"threads=0", "threads", 2},
	        {"seed=x", "seed|whole number", 2},
	        {"adam_beta1=1", "adam_beta1", 2},
	        {"adam_beta2=0", "adam_beta2|between 0.01", 2},
	        {"adam_epsilon=0", "adam_epsilon", 2},
	        {"weight_decay=nan", "weight_decay", 2},
	        {"max_grad_norm=-1", "max_grad_norm", 2},
	        {"warmup_steps=-1", "warmup_steps", 2},
	        {"save_steps=1.5", "save_steps|1.5", 2},
	        {"eval_split=23", "eval_split=23 of 23 rows", 2},
	        {"eval_split=0.9999", "eval_split", 2},
	        {"eval_steps=2", "eval_steps=2|eval_data or eval_split", 2},
	        {"sample_steps=2", "sample_steps=2|sample_prompt", 2},
	        {"sample_prompt=hi", "tokenizer.json", 2},
	        {"compute_dtype=fp16", "compute_dtype=fp16|supported: bf16, fp32, fp8", 2},
	        {"compute_dtype=fp32 gradient_dtype=bf16", "gradient_dtype", 2},
	        {"device=tpu", "device|tpu|host", 2},
	        {"optimizer_state=4bit", "optimizer_state|4bit|8bit", 2},
	        {"schedule=any", "schedule|layer_major", 2},
	        {"cpu_offload=params,disk", "cpu_offload|optimizer", 2},
	        {"prefetch_units=0", "prefetch_units", 2},
	        {ISA_ELSEWHERE, ISA_ELSEWHERE, 2},
	        {"packing=bfd max_length=off", "packing|max_length", 2},
	        {"long_rows=error max_length=5", "rows.jsonl:1|long_rows", 2},
	        {"long_rows=drop max_length=2", "no row is left", 2},
	        {"data_format=messages",
	                "rows.jsonl:1|\"messages\" is missing|\"input_ids\", \"labels\"|field_messages", 2},
	        {"eval_data=nothere.jsonl", "eval_data=nothere.jsonl|no such file", 2},
	        {"resume_from_checkpoint=nothere", "resume_from_checkpoint=nothere|no such", 2},
	        {"resume_from_checkpoint=auto overwrite_output_dir=on", "overwrite_output_dir", 2},
	        {"dump_gradients=/nothere/x", "dump_gradients=/nothere/x|no such directory", 2},
	        {"dump_gradients=/tmp", "dump_gradients=/tmp is a directory", 2},
	        {"nofile.yaml", "nofile.yaml|no such file", 2},
	        {"vram_budget=10Q", "vram_budget|KiB", 2},
	        {"vram_budget=1KiB", "of device memory; vram_budget is 1.0 KiB|needs less", 5},
	        {"ram_budget=1KiB", "of host memory; ram_budget is 1.0 KiB|optimizer_state=8bit", 5},
	        {"ranks=0", "ranks", 2},
	        {"ranks=2000", "ranks=2000: at most 1024", 2},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		refuse_train(rows[i].code, rows[i].words, tiny.dir, tiny.data, rows[i].settings);
}

static void test_missing_arguments(void **state)
{
	(void)state;
	refuse(2, "model, data, output_dir are not set", "train");
	refuse(2, "unknown verb|did you mean train", "trian");
	refuse(2, "model is not set", "eval data=x");
	refuse_train(2, "huggingface_hub|hf download meta-llama/Llama-3-8B", "meta-llama/Llama-3-8B",
	        tiny.data, "");
	refuse_train(2, "hf download tatsu-lab/alpaca --repo-type dataset", tiny.dir, "tatsu-lab/alpaca", "");
	refuse_train(2, "expected a directory", "/dev/null", tiny.data, "");
	refuse_train(2, "has no config.json", "/tmp", tiny.data, "");
}

/* OWNER/NAME is no hub's where OWNER is a directory here. */
static void test_missing_in_a_directory(void **state)
{
	int here = open(".", O_RDONLY | O_DIRECTORY);

	(void)state;
	assert_true(here >= 0 && !chdir(work_dir));
	refuse_train(2, "model=tiny/nothere: no such file", "tiny/nothere", tiny.data, "");
	assert_int_equal(fchdir(here), 0);
	close(here);
}

/* ---- configuration files ---- */

static void test_configurations(void **state)
{
	static const struct {
		const char *text, *words;
	} rows[] = {
	        {"learning_rate: 1\nlearning_rate: 2\n", "c.yaml:2|already set on line 1"},
	        {"lerning_rate: 1\nfoo: 2\nmax_steps: x\n", "2 problems|c.yaml: unknown keys|line 1; did you "
	                                                    "mean learning_rate?|line 2|c.yaml:3"},
	        {"max_steps: [1\n", "c.yaml:2"},
	        {"max_steps: !!python/object:os.system x\n", "c.yaml:1|tags"},
	        {"- a\n- b\n", "c.yaml:1"},
	        {"max_steps: *x\n", "c.yaml"},
	        {"\xff\xfe: 1\n", "c.yaml"},
	        {"adapter: lora\nbase_model: m\n", "adapter"},
	        {"load_in_4bit: true\n", "load_in_4bit"},
	};
	char settings[400];

	(void)state;
	snprintf(settings, sizeof(settings), "%s/c.yaml", work_dir);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		write_file("c.yaml", "%s", rows[i].text);
		refuse_train(2, rows[i].words, tiny.dir, tiny.data, settings);
	}
}

/* ---- data ---- */

static void test_data(void **state)
{
	static const struct {
		const char *text, *words;
	} rows[] = {
	        {"", "has no rows"},
	        {"\n\n \n", "has no rows"},
	        {"[]", "has no rows"},
	        {"{", "d.jsonl:1:"},
	        {"{\"input_ids\":[1,2]}\n\n{\"input_ids\":[1,\n", "d.jsonl:3:"},
	        {"{\"input_ids\":[1,2]}\n{\"input_ids\":[1,64]}", "d.jsonl:2|input_ids[1] is 64|0 to 63"},
	        {"{\"input_ids\":[1,-1]}", "d.jsonl:1|input_ids[1] is -1"},
	        {"{\"input_ids\":[1,2.5]}", "d.jsonl:1|input_ids[1]|integer"},
	        {"{\"input_ids\":[1,99999999999999999999]}", "d.jsonl:1|input_ids[1]"},
	        {"{\"input_ids\":\"1 2\"}", "d.jsonl:1|input_ids|array"},
	        {"{\"input_ids\":[1,2,3],\"labels\":[1,2]}", "d.jsonl:1|2 labels for 3 input_ids"},
	        {"{\"input_ids\":[1,2],\"labels\":[1,64]}", "d.jsonl:1|labels[1] is 64"},
	        {"{\"input_ids\":[1,2],\"labels\":[1,-1]}", "d.jsonl:1|labels[1] is -1|-100"},
	        {"{\"input_ids\":[1,2],\"labels\":[-100,-100]}", "no row has a token to train on|d.jsonl:1"},
	        {"{\"input_ids\":[5]}", "no row has a token to train on"},
	        {"{\"input_ids\":[]}", "no row is left"},
	        {"{\"input_ids\":[1,2],\"input_ids\":[1]}", "d.jsonl:1:|duplicate"},
	        {"{\"input_ids\":[1,2],\"attention_mask\":[1,0]}", "d.jsonl:1|attention_mask[1]"},
	        {"{\"input_ids\":[1,2],\"attention_mask\":[1]}", "d.jsonl:1|attention_mask|1 entries for 2"},
	        {"{\"input_ids\":[1,2],\"position_ids\":[0,1]}", "d.jsonl:1|position_ids"},
	        {"{\"input_ids\":[1,2]}\n{\"text\":\"x\"}", "d.jsonl:2|input_ids"},
	        {"{\"foo\":1}", "d.jsonl:1|data_format"},
	        {"{\"text\":\"x\"}", "tokenizer.json"},
	        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", "tokenizer.json"},
	        {"\"x\"", "d.jsonl:1|object"},
	        {"[1,2]", "element 1|object"},
	        {"[{\"input_ids\":[1,2]},]", "d.jsonl:1|element"},
	        {"[{\"input_ids\":[1,2]}", "ends inside the array"},
	        {"{\"text\":\"\xff\"}", "d.jsonl:1:"},
	        {"PAR1\x01\x02", "d.jsonl: its metadata is damaged"},
	        {"\xff\xfe{", "d.jsonl|UTF-16|UTF-8"},
	};
	char path[400];

	(void)state;
	snprintf(path, sizeof(path), "%s/d.jsonl", work_dir);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		write_file("d.jsonl", "%s", rows[i].text);
		refuse_train(2, rows[i].words, tiny.dir, path, "");
	}
	refuse_train(2, "/dev/zero|regular file", tiny.dir, "/dev/zero", "");
	refuse_train(2, "nothere.jsonl|no such file", tiny.dir, "nothere.jsonl", "");
}

/* ---- models ---- */

/* work_dir/broken: the tiny model under another config.json. */
static void break_config(const char *text)
{
	char from[800], to[400];

	remove_run("broken");
	snprintf(to, sizeof(to), "%s/broken", work_dir);
	assert_int_equal(file_make_dir(to), 0);
	snprintf(from, sizeof(from), "%s/model.safetensors", tiny.dir);
	snprintf(to, sizeof(to), "%s/broken/model.safetensors", work_dir);
	assert_int_equal(file_copy(from, to), 0);
	write_file("broken/config.json", "%s", text);
}

#define LLAMA(more)                                                                                          \
	"{\"model_type\":\"llama\",\"vocab_size\":64,\"hidden_size\":32,\"intermediate_size\":48,"           \
	"\"num_attention_heads\":4,\"num_key_value_heads\":2,\"max_position_embeddings\":128," more "}"

static void test_model_configs(void **state)
{
	static const struct {
		const char *text, *words;
	} rows[] = {
	        {"", "config.json"},
	        {"{", "config.json:1:"},
	        {"[]", "config.json|object"},
	        {"{}", "config.json|model_type is missing"},
	        {"{\"model_type\":\"foo\"}", "config.json|model_type \"foo\"|llama"},
	        {"{\"model_type\":\"deepseek_v4\"}", "config.json|deepseek_v4"},
	        {"{\"model_type\":3}", "config.json|model_type"},
	        {LLAMA("\"num_hidden_layers\":4"), "tensors are missing: model.layers.3."},
	        {LLAMA("\"num_hidden_layers\":0"), "config.json: num_hidden_layers is 0"},
	        {LLAMA("\"num_hidden_layers\":1000000000"), "config.json: num_hidden_layers"},
	        {LLAMA("\"num_hidden_layers\":3,\"attention_bias\":true"), "missing|q_proj.bias"},
	        {LLAMA("\"num_hidden_layers\":3,\"hidden_act\":\"foo\""), "config.json: hidden_act \"foo\""},
	        {LLAMA("\"num_hidden_layers\":3,\"rope_scaling\":{\"rope_type\":\"spiral\",\"factor\":2}"),
	                "config.json|spiral"},
	        {LLAMA("\"num_hidden_layers\":3,\"rms_norm_eps\":-1"), "config.json: rms_norm_eps is -1"},
	        {LLAMA("\"num_hidden_layers\":3,\"quantization_config\":{\"bits\":4}"),
	                "config.json: quantization_config"},
	        {LLAMA("\"num_hidden_layers\":3,\"architectures\":[\"LlamaForSequenceClassification\"]"),
	                "is a classifier (...ForSequenceClassification)"},
	        {"{\"model_type\":\"llama\",\"vocab_size\":65,\"hidden_size\":32,\"intermediate_size\":48,"
	         "\"num_hidden_layers\":3,\"num_attention_heads\":4,\"num_key_value_heads\":2}",
	                "model.embed_tokens.weight|[64, 32]|[65, 32]"},
	        {"{\"model_type\":\"llama\",\"vocab_size\":\"64\"}", "config.json|vocab_size|integer"},
	        {"{\"model_type\":\"llama\",\"vocab_size\":64,\"hidden_size\":33,\"num_attention_heads\":4}",
	                "config.json: hidden_size 33"},
	        {"{\"model_type\":\"llama\",\"num_attention_heads\":4,\"num_key_value_heads\":3,"
	         "\"hidden_size\":32}",
	                "config.json: num_attention_heads 4|3"},
	};
	char dir[400];

	(void)state;
	snprintf(dir, sizeof(dir), "%s/broken", work_dir);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		break_config(rows[i].text);
		refuse_train(2, rows[i].words, dir, tiny.data, "");
	}
}

static int64_t weights_bytes(void)
{
	char path[800];
	struct stat st;

	snprintf(path, sizeof(path), "%s/model.safetensors", tiny.dir);
	assert_int_equal(stat(path, &st), 0);
	return st.st_size;
}

/* Overwrites bytes of the broken model's weights, or cuts them. */
static void patch(int64_t offset_bytes, const char *bytes, size_t len_bytes, int64_t new_bytes)
{
	char path[400];
	int fd;

	break_config(LLAMA("\"num_hidden_layers\":3"));
	snprintf(path, sizeof(path), "%s/broken/model.safetensors", work_dir);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, len_bytes, offset_bytes), len_bytes);
	assert_int_equal(ftruncate(fd, new_bytes), 0);
	close(fd);
}

static void test_model_files(void **state)
{
	int64_t bytes = weights_bytes();
	char dir[400], path[400], other[400];

	(void)state;
	snprintf(dir, sizeof(dir), "%s/broken", work_dir);
	snprintf(path, sizeof(path), "%s/broken/model.safetensors", work_dir);
	patch(bytes - 2, "\xc0\x7f", 2, bytes);
	refuse_train(2, "model.safetensors|holds nan at element", dir, tiny.data, "");
	patch(bytes - 2, "\x80\x7f", 2, bytes);
	refuse_train(2, "model.safetensors|holds inf at element", dir, tiny.data, "");
	patch(0, "", 0, bytes - 10);
	refuse_train(2, "model.safetensors: byte|it was cut", dir, tiny.data, "");
	patch(0, "", 0, bytes + 2);
	refuse_train(2, "model.safetensors: byte|belong to no tensor", dir, tiny.data, "");
	patch(0, "", 0, 0);
	refuse_train(2, "model.safetensors: byte 0", dir, tiny.data, "");
	patch(0, "\xff\xff\xff\xff\xff\xff\xff\xff", 8, bytes);
	refuse_train(2, "model.safetensors: byte 0", dir, tiny.data, "");
	patch(8, "[", 1, bytes);
	refuse_train(2, "model.safetensors: byte", dir, tiny.data, "");

	break_config(LLAMA("\"num_hidden_layers\":3"));
	remove(path);
	refuse_train(2, "broken: contains no weights", dir, tiny.data, "");
	write_file("broken/pytorch_model.bin", "x");
	refuse_train(2, "pytorch_model.bin|save_pretrained", dir, tiny.data, "");
	write_file("broken/model.safetensors.index.json", "{\"weight_map\":{\"a\":\"../../etc/passwd\"}}");
	refuse_train(2, "index.json|../../etc/passwd", dir, tiny.data, "");
	write_file("broken/model.safetensors.index.json", "{\"weight_map\":{\"a\":\"b.safetensors\"}}");
	refuse_train(2, "b.safetensors|missing", dir, tiny.data, "");
	snprintf(other, sizeof(other), "%s/broken/model.safetensors.index.json", work_dir);
	remove(other);
	assert_int_equal(mkfifo(path, 0666), 0);
	refuse_train(2, "model.safetensors|regular file", dir, tiny.data, "");
}

/* ---- output_dir ---- */

static void test_output_dir(void **state)
{
	char arguments[2000];

	(void)state;
	snprintf(arguments, sizeof(arguments), "train model=%s data=%s output_dir=%s", tiny.dir, tiny.data,
	        tiny.data);
	refuse(2, "is a file; expected a directory", arguments);
	snprintf(arguments, sizeof(arguments), "train model=%s data=%s output_dir=%s/x", tiny.dir, tiny.data,
	        tiny.data);
	refuse(2, "rows.jsonl", arguments);
	snprintf(arguments, sizeof(arguments), "train model=%s data=%s output_dir=%s", tiny.dir, tiny.data,
	        tiny.dir);
	refuse(2, "is not empty and holds no ferry run; choose another directory", arguments);
	snprintf(arguments, sizeof(arguments), "train model=%s data=%s output_dir=/proc/nothere", tiny.dir,
	        tiny.data);
	refuse(2, "/proc/nothere", arguments);
	snprintf(arguments, sizeof(arguments),
	        "train model=%s data=%s output_dir=%s/a/out overwrite_output_dir=on max_steps=1", tiny.dir,
	        tiny.data, work_dir);
	assert_ferry(0, NULL, "%s", arguments);
	snprintf(arguments, sizeof(arguments),
	        "train model=%s/a/out/model data=%s output_dir=%s/a/out overwrite_output_dir=on", work_dir,
	        tiny.data, work_dir);
	refuse(2, "would remove model=", arguments);
}

/* Files that this user may not read. */
static void test_permissions(void **state)
{
	char dir[400], data[400];

	(void)state;
	if (geteuid() == 0) {
		printf("SKIPPED test_permissions: root may read everything\n");
		skip();
	}
	break_config(LLAMA("\"num_hidden_layers\":3"));
	write_file("secret.jsonl", "{\"input_ids\":[1,2]}\n");
	snprintf(data, sizeof(data), "%s/secret.jsonl", work_dir);
	chmod(data, 0);
	refuse_train(2, "secret.jsonl|Permission denied", tiny.dir, data, "");
	snprintf(dir, sizeof(dir), "%s/broken/model.safetensors", work_dir);
	chmod(dir, 0);
	snprintf(dir, sizeof(dir), "%s/broken", work_dir);
	refuse_train(2, "model.safetensors|Permission denied", dir, tiny.data, "");
	chmod(dir, 0);
	refuse_train(2, "config.json: Permission denied", dir, tiny.data, "");
	chmod(dir, 0700);
	refuse_train(
	        2, "dump_gradients=/proc/x cannot be written", tiny.dir, tiny.data, "dump_gradients=/proc/x");
}

/* ---- other verbs ---- */

static void test_other_verbs(void **state)
{
	static const struct {
		const char *arguments, *words;
		int code;
	} rows[] = {
	        {"eval model=%s data=nothere.jsonl", "nothere.jsonl", 2},
	        {"eval model=%s data=/dev/null", "/dev/null", 2},
	        {"eval model=%s output_dir=x data=y", "output_dir is not a key of ferry eval", 2},
	        {"generate model=%s prompt_ids=[1,64]", "64|outside the vocabulary of 64", 2},
	        {"generate model=%s prompt_ids=[]", "prompt is empty", 2},
	        {"generate model=%s prompt_ids=[1,x]", "prompt_ids", 2},
	        {"generate model=%s prompt=hi", "tokenizer.json", 2},
	        {"generate model=%s", "no prompt; set prompt|prompt_file", 2},
	        {"generate model=%s system=x prompt=y", "needs chat=on", 2},
	        {"generate model=%s prompt=a prompt_file=b", "prompt and prompt_file are both set", 2},
	        {"generate model=%s prompt_ids=1,2 max_new_tokens=4 cache_tokens=5",
	                "cache_tokens=5|drop_oldest", 5},
	        {"generate model=%s prompt_ids=1,2 stop=x", "stop needs a tokenizer", 2},
	        {"generate model=%s prompt_ids=1 max_new_tokens=0", "max_new_tokens", 2},
	        {"generate model=%s prompt_ids=1 temperature=-1", "temperature", 2},
	        {"tokenize model=%s /dev/null", "tokenizer.json", 2},
	        {"plan model=%s/nothere", "nothere", 2},
	        {"inspect %s/nothere", "nothere", 2},
	        {"verify %s/nothere", "nothere", 2},
	        {"verify %s", "tiny", 2},
	        {"export checkpoint=%s output_dir=x", "tiny is not a ferry checkpoint", 2},
	        {"bench nothere model=%s", "", 2},
	        {"train %s data=x", "tiny is a directory|for a model write model=", 2},
	        {"init %s/config.json output_dir=x dtype=fp32", "dtype means compute_dtype|ferry init", 2},
	        {"topo dtype=fp32 per_device_train_batch_size=%s", "dtype means compute_dtype", 2},
	};
	char arguments[1000];

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		const char *at = strstr(rows[i].arguments, "%s");

		snprintf(arguments, sizeof(arguments), "%.*s%s%s", (int)(at - rows[i].arguments),
		        rows[i].arguments, tiny.dir, at + 2);
		refuse(rows[i].code, rows[i].words, arguments);
	}
}

/* A closed stdout is an error, and never takes the place of a file. */
static void test_closed_files(void **state)
{
	char path[400];

	(void)state;
	assert_ferry(1, NULL, "eval model=%s data=%s --json >&-", tiny.dir, tiny.data);
	assert_ferry(1, NULL, "eval model=%s data=%s >/dev/full", tiny.dir, tiny.data);
	remove_run("closed");
	ferry_run(NULL, "train model=%s data=%s output_dir=%s/closed max_steps=2 <&- >&-", tiny.dir,
	        tiny.data, work_dir);
	snprintf(path, sizeof(path), "%s/closed", work_dir);
	assert_ferry(0, NULL, "verify %s", path);
	assert_ferry(0, NULL, "eval model=%s/model data=%s", path, tiny.data);
}

/* A limit on file sizes acts like a full disk: committed files stay. */
static void test_disk_full(void **state)
{
	const char *binary = getenv("FERRY_BINARY");
	char command[3000], path[400];
	int status;

	(void)state;
	remove_run("full");
	assert_ferry(0, NULL, "train model=%s data=%s output_dir=%s/full max_steps=2", tiny.dir, tiny.data,
	        work_dir);
	snprintf(command, sizeof(command),
	        "ulimit -f 200; %s train model=%s data=%s output_dir=%s/full max_steps=6 save_steps=1 "
	        "resume_from_checkpoint=auto >%s/stderr 2>&1",
	        binary ? binary : "build/ferry", tiny.dir, tiny.data, work_dir, work_dir);
	status = system(command);
	assert_int_equal(WEXITSTATUS(status), 1);
	assert_non_null(strstr(ferry_said(), "File too large"));
	assert_non_null(strstr(ferry_said(), "the last checkpoint is of step 2"));
	assert_non_null(strstr(last_line(), "resume_from_checkpoint=auto"));
	snprintf(path, sizeof(path), "%s/full", work_dir);
	assert_ferry(0, NULL, "verify %s", path);
	assert_ferry(0, NULL, "train %s/config.yaml resume_from_checkpoint=auto", path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_flags),
	        cmocka_unit_test(test_missing_arguments),
	        cmocka_unit_test(test_missing_in_a_directory),
	        cmocka_unit_test(test_configurations),
	        cmocka_unit_test(test_data),
	        cmocka_unit_test(test_model_configs),
	        cmocka_unit_test(test_model_files),
	        cmocka_unit_test(test_output_dir),
	        cmocka_unit_test(test_permissions),
	        cmocka_unit_test(test_other_verbs),
	        cmocka_unit_test(test_closed_files),
	        cmocka_unit_test(test_disk_full),
	};
	int failed;

	ferry_run_begin("run-input");
	tiny_model(&tiny);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
