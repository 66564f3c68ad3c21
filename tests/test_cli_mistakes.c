/* links: cli */
/* Mistakes of beginners: refusals, their messages, and the advice in them. */
#include "tests/cli_words.h"

#include "base/json.h"

static struct run_model tiny;

/* The golden tokenizer with many tokens more, in work_dir/large. */
static void large_tokenizer(void)
{
	char path[500], to[500];
	json_t *root, *added;

	snprintf(path, sizeof(path), "%s/words/tokenizer.json", work_dir);
	assert_int_equal(json_read_file(&root, path, 1 << 26), 0);
	added = json_object_get(root, "added_tokens");
	for (int id = 420; id < 2600; id++)
		json_array_append_new(
		        added, json_pack("{s:i,s:o,s:b,s:b,s:b,s:b,s:b}", "id", id, "content",
		                       json_sprintf("<more%d>", id), "special", 0, "single_word", 0, "lstrip",
		                       0, "rstrip", 0, "normalized", 0));
	snprintf(to, sizeof(to), "%s/large", work_dir);
	assert_int_equal(file_make_dir(to), 0);
	snprintf(to, sizeof(to), "%s/large/tokenizer.json", work_dir);
	assert_int_equal(json_dump_file(root, to, 0), 0);
	write_file("large/tokenizer_config.json", "{\"eos_token\":\"<|endoftext|>\"}");
	json_decref(root);
}

static void make_dir(const char *name)
{
	char path[500];

	snprintf(path, sizeof(path), "%s/%s", work_dir, name);
	assert_int_equal(file_make_dir(path), 0);
}

/* The tiny model's files, with a config.json that lacks the last layer. */
static void short_model(void)
{
	char from[500], to[500];

	snprintf(from, sizeof(from), "%s/tiny/model.safetensors", work_dir);
	snprintf(to, sizeof(to), "%s/short/model.safetensors", work_dir);
	assert_int_equal(file_copy(from, to), 0);
	write_file("short/config.json",
	        "{\"model_type\":\"llama\",\"vocab_size\":64,\"hidden_size\":32,\"intermediate_size\":48,"
	        "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
	        "\"max_position_embeddings\":128,\"tie_word_embeddings\":false}");
}

#define ASK "generate model=@/speaker max_new_tokens=1 "

/* The words that were typed, and the words that must be in the message. */
struct mistake {
	int code;
	const char *before, *arguments, *words;
};

static void check_all(const struct mistake *list, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		char line[600];

		snprintf(line, sizeof(line), "%s%s", list[i].before, list[i].arguments);
		assert_words(list[i].code, line, list[i].words);
	}
}

#define CHECK_ALL(list) check_all(list, sizeof(list) / sizeof(*(list)))

/* Keys and values that cannot be meant as they are. */
static const struct mistake settings[] = {
        {0, TRAIN, "lr=0", "lr=0: no weight changes; set it above 0"},
        {0, TRAIN, "ram_budget=900TB", "ram_budget is 819 TiB, but this process may use only "},
        {2, TRAIN, "data_memory=1KiB", "data_memory=1KiB must be at least 1.0 MiB"},
        {2, TRAIN, "output_dir=@/rows.csv/x", "rows.csv is not a directory"},
        {2, "", "bench nope", "unknown benchmark 'nope'; available: list, adam, |, tokenize, scaling, gpu"},
        {2, "", "train @/rows.csv model=@/tiny",
                "rows.csv is not a configuration file; write data=|/rows.csv"},
        {2, "", "data show model=@/tiny @/rows.csv", "is not a configuration file; write data="},
        {2, "", "train model=@/tiny no/where.jsonl", "no/where.jsonl: no such file|!quotes"},
        {2, "", "train --resume output_dir=@/x",
                "--resume needs a value; write --resume auto for the newest checkpoint"},
        {2, TRAIN, "vram_budget=12", "has no unit; 12 GiB is 12GiB"},
        {2, ASK, "tokenizer=@/large prompt=a",
                "/large has 2600 tokens, the model only 2000; this is another model's"},
        {2, "train data=@/lines.jsonl output_dir=@/said model=@/speaker ", "tokenizer=@/large",
                "/large has 2600 tokens, the model only 2000"},
        {2, ASK, "prompt_file=@/rows.json", "rows.json: the file has no prompt"},
        {2, ASK, "prompt=Once upon a time", "upon: no such file|quote a text that contains spaces"},
        {0, ASK, "prompt=a top_p=0.9 top_k=5",
                "top_k has no effect with temperature=0|top_p has no effect with"},
        {0, ASK, "prompt=a top_p=0.9 temperature=1", "!no effect"},
        {0, ASK, "chat_template=alpaca prompt_file=@/said.jsonl",
                "a prompt ends with an assistant message, so a second answer follows"},
        {0, ASK, "chat_template=alpaca prompt_file=@/asked.jsonl", "!a second answer"},
        {0, ASK, "prompt=a max_length=20", "max_length=20 has no effect on answers; max_new_tokens is their"},
        {0, ASK, "prompt=a \"stop=['.', 'a']\"",
                "stop=['.', 'a'] is not a JSON list, so ferry stops at this text"},
        {0, ASK, "prompt=a 'stop=\\n'", "stop=\\n contains a backslash, which ferry takes literally"},
        {0, ASK, "prompt=a 'stop=[\"\\n\"]'", "!stop="},
        {5, "generate model=@/speaker prompt=a ", "max_new_tokens=300 cache_tokens=50",
                "max_new_tokens=300 leaves no room for a prompt in cache_tokens=50; lower "
                "max_new_tokens|!drop_oldest"},
        {5, "generate model=@/speaker prompt='a b c d e f g h' ", "max_new_tokens=10 cache_tokens=12",
                "raise it or set drop_oldest=on"},
        {0, "generate model=@/speaker prompt='a b c d e f g h' ",
                "max_new_tokens=10 cache_tokens=12 drop_oldest=on", "dropped the first"},
        {0, ASK, "max_new_tokens=2 prompt=a", "max_new_tokens is set twice; using max_new_tokens=2"},
        {0, "data show model=@/speaker ", "data=@/silent.jsonl",
                "with an empty answer: 2 rows, the first at |silent.jsonl:2"},
        {0, "train model=@/speaker output_dir=@/said --dry-run ", "data=@/silent.jsonl",
                "2 rows with an empty answer, the first at "},
        {0, "data show model=@/speaker chat_template=alpaca ", "data=@/mute.jsonl",
                "with an empty answer: 1 row, "},
        {0, "data show model=@/speaker ", "data=@/lines.jsonl", "!empty answer|!columns not read|!no effect"},
        {0, "data show model=@/speaker chat_template=alpaca train_on_last_turn=on ", "data=@/lines.jsonl",
                "chat_template=alpaca, train_on_last_turn=on have no effect: no row of |/lines.jsonl is a "
                "chat "
                "(prompt_completion)"},
        {0, "data show model=@/speaker role_user=guest ", "data=@/said.jsonl chat_template=alpaca",
                "!no effect"},
        {0, "data show model=@/speaker alpaca_form=stanford chat_template=alpaca ",
                "data=@/dolly.jsonl "
                "field_output=response",
                "chat_template=alpaca has no effect|columns not read: context, kind\n"},
        {0, "data show model=@/speaker alpaca_form=chat chat_template=alpaca ",
                "data=@/dolly.jsonl "
                "field_output=response field_input=context",
                "!no effect|columns not read: kind\n"},
        {0, "train model=@/speaker output_dir=@/said --dry-run ", "data=@/dolly.jsonl field_output=response",
                "columns not read: context, kind\n"},
        {0, "data show model=@/speaker chat_template=alpaca ", "data=@/chat.csv", "messages, 1 row|chats: 1"},
        {2, "data show model=@/speaker chat_template=alpaca field_messages=talk ",
                "data=@/said.jsonl,@/asked.jsonl",
                "no column \"talk\" (set by field_messages)|columns hold for all data sets, so set "
                "field_messages to the names of each"},
        {0, "data show model=@/speaker chat_template=alpaca ", "data=@/pictures.jsonl",
                "the column \"images\" is not read: only text is supported"},
        {2, ASK, "prompt=a alpaca_form=stanford", "alpaca_form=stanford needs data_format=alpaca; set it"},
        {2, "data show ", "@/template.yaml", "template.yaml:3: template=qwen3 is not a file"},
        {2, TRAIN, "'trainable=[model.layers.1.*, model.norm.*]'",
                "a list of patterns is written trainable='[\"model.layers.1.*\", \"model.norm.*\"]'"},
        {2, TRAIN, "'freeze=model\\.layers\\.1\\..*,lm_head'",
                "freeze='[\"model\\\\.layers\\\\.1\\\\..*\", \"lm_head\"]'"},
        {2, TRAIN, "freeze=.", "matches no whole parameter name; the nearest are"},
        {0, TRAIN, "'trainable=[\"model.layers.1.*\", \"model.norm.*\"]'", "model.layers.1, model.norm"},
        {0, "eval model=@/tiny data=@/rows.jsonl eval_split=5 ", "seed=3",
                "evaluating the 5 rows that a run with seed=3 holds back of 23| in 5 rows"},
        {0, "eval model=@/tiny ", "@/held.yaml",
                "held.yaml:3: val_set_size=0.1: evaluating the 3 rows|eval_data=|is not evaluated; for that "
                "set data="},
        {2, "train model=@/tiny output_dir=@/said ", "@/many.yaml",
                "many.yaml:3: val_set_size=200 of 23 rows: set a fraction below 1"},
        {2, "eval model=@/speaker data=@/lines.jsonl ", "per_device_train_batch_size=4",
                "per_device_train_batch_size is not a key of ferry eval; set per_device_eval_batch_size"},
};

/* Files with another content than their name says. */
static const struct mistake files[] = {
        {2, "train model=@/tiny data=@/rows.jsonl ", "output_dir=@/$FAR",
                "output_dir=|: cannot be accessed: File name too long"},
        {2, "train data=@/rows.jsonl output_dir=@/said ", "model=@/$FAR",
                "model=|: cannot be accessed: File name too long"},
        {5, "init config=@/beyond.json ", "output_dir=@/beyond",
                "/beyond has | free, but the model takes 116 TiB; free space or choose another"},
        {2, "train data=@/rows.jsonl output_dir=@/said ", "@/nowhere.yaml",
                "nowhere.yaml:1: model=no/where does not exist, neither in the current directory nor beside "
                "that file. If it is a name"},
        {2, "verify ", "@/rows.csv", "rows.csv is a file; expected a checkpoint directory"},
        {2, "train model=@/tiny output_dir=@/said ", "data=https://x.org/a.jsonl",
                "data=https://x.org/a.jsonl is a URL; ferry reads files, so download it first"},
        {2, "train model=@/speaker output_dir=@/said ", "data=@/void.jsonl",
                "no row has a token to train on (the first is |void.jsonl:1): every answer is empty"},
        {2, "", "train @/equals.yaml",
                "equals.yaml:1: expected \"key: value\", with a colon and a space; found \"learning_rate = "
                "1e-4\""},
        {2, "", "train @/train.py", "train.py is a Python script; ferry reads files of settings"},
        {2, "", "train @/later.yaml", "later.yaml:2: expected \"key: value\", with a colon and a space"},
        {2, "", "train @/tab.yaml", "tab.yaml:2: a tab; indent with spaces"},
        {2, "", "train @/quote.yaml", "quote.yaml:1:17: unexpected colon; quote a value"},
        {2, "data show model=@/speaker ", "data=@/single.jsonl", "JSON needs double quotes around strings"},
        {2, "data show model=@/speaker ", "data=@/latin.jsonl",
                "the file is not UTF-8; convert it, as with iconv -f LATIN1"},
        {2, "data show model=@/speaker ", "data=@/pointer.jsonl",
                "this is a git-lfs pointer instead of the file; run git lfs pull"},
        {2, "", "inspect @/pointer.safetensors",
                "this is a git-lfs pointer instead of the file; run git lfs pull"},
        {2, "", "inspect @/lines.jsonl", "to show rows, run ferry data show"},
        {2, "generate prompt=a ", "model=@/adapter",
                "/adapter is a LoRA adapter (adapter_config.json), not a model; set "
                "lora_adapter=|model=BASE"},
        {2, "generate prompt=a ", "model=@/both",
                "/both has a LoRA adapter (adapter_config.json) beside its weights; set lora_adapter="},
        {2, "eval data=@/lines.jsonl ", "model=@/both", "/both has a LoRA adapter (adapter_config.json)"},
        {2, "plan ", "model=some-lab/Model-8B",
                "A plan needs only config.json|hf download some-lab/Model-8B config.json "},
        {0, "generate prompt_ids=1,2 max_new_tokens=1 ", "model=@/short",
                "config.json has 2 layers, the files 3; leaving 9 tensors unused and unchanged: "
                "model.layers.2."},
};

/* Words of other programs. */
static const struct mistake others[] = {
        {2, TRAIN, "gpus=2", "gpus=2: start one rank for each GPU: set ranks=N"},
        {0, ASK, "prompt=a do_sample=true temperature=1", ""},
        {2, ASK, "prompt=a do_sample=true", "do_sample=on needs temperature above 0; set temperature=1 "},
        {2, ASK, "prompt=a do_sample=off temperature=1", "do_sample=off takes the most likely token"},
        {2, ASK, "prompt=a num_beams=4", "num_beams=4: beam search is not supported"},
        {2, TRAIN, "lora=true", "lora=true: needs lora_rank"},
        {0, TRAIN, "use_lora=true lora_r=2 lora_target=q_proj,v_proj",
                "adapters of rank 2 on q_proj, v_proj\n"},
        {2, TRAIN, "freeze_layers=2",
                "freeze_layers=2: ferry chooses parameters by name; write freeze='model"},
        {2, "train ", "--config @/freeze.yaml", "name the file alone: ferry VERB FILE.yaml"},
        {0, TRAIN, "vram=4GiB ram=8GiB", "memory"},
        {2, "chat ", "model=@/speaker", "unknown verb \"chat\"; write ferry generate model=DIR chat=on"},
        {2, "train ", "learning_rate 1e-4", "learning_rate needs a value; write learning_rate=VALUE"},
        {2, TRAIN, "bf16=maybe", "supported: bf16 (on), fp32 (off)"},
        {2, "train ", "@/home.yaml",
                "output_dir=$HOME/x: ferry does not expand $HOME; write the whole path, or ~ for your home"},
};

/* Numbers that cannot be meant. */
static const struct mistake numbers[] = {
        {0, TRAIN, "max_steps=2 warmup_steps=1000",
                "the warm-up of 1000 steps is as long as the run or longer (2 steps)"},
        {0, TRAIN, "batch_size=1000000",
                "batch_size=1000000 exceeds the 23 rows of the data; a micro-batch has no more than these"},
        {0, TRAIN, "batch_size=23 warmup_steps=0", "!exceeds the|!warm-up"},
        {0, TRAIN, "threads=4096", "threads=4096 is more than the "},
        {0,
                "train model=@/tiny data=@/rows.jsonl output_dir=@/wild overwrite_output_dir=on "
                "max_steps=6 ",
                "learning_rate=10 lr_scheduler_type=constant", "the training diverged; lower learning_rate"},
        {0, "train model=@/tiny data=@/rows.jsonl output_dir=@/tame max_steps=6 ", "learning_rate=1e-4",
                "!diverged"},
        {0, ASK, "prompt=a", "KV cache: |!device memory"},
};

static void test_settings(void **state)
{
	(void)state;
	CHECK_ALL(settings);
}

static void test_files(void **state)
{
	(void)state;
	CHECK_ALL(files);
}

static void test_other_programs(void **state)
{
	(void)state;
	CHECK_ALL(others);
}

static void test_numbers(void **state)
{
	(void)state;
	CHECK_ALL(numbers);
}

static void write_files(void)
{
	static const char pointer[] =
	        "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";

	char far[300] = {0};

	memset(far, 'x', sizeof(far) - 1);
	setenv("FAR", far, 1);
	write_file("freeze.yaml", "freeze: .*norm.*\n");
	write_file("rows.csv", "prompt,completion\na,b\n");
	write_file("rows.json", "[]");
	write_file("lines.jsonl", "{\"prompt\":\"Who?\",\"completion\":\"Ben\"}\n");
	write_file("silent.jsonl",
	        "{\"prompt\":\"a\",\"completion\":\"b\"}\n{\"prompt\":\"a\",\"completion\":\"\"}\n"
	        "{\"prompt\":\"a\",\"completion\":\" \"}\n");
	write_file("beyond.json", "{\"model_type\":\"llama\",\"vocab_size\":64,\"hidden_size\":65536,"
	                          "\"intermediate_size\":212992,\"num_hidden_layers\":1250,"
	                          "\"num_attention_heads\":128,\"num_key_value_heads\":8}");
	write_file("nowhere.yaml", "model: no/where\n");
	write_file("asked.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}\n");
	write_file("said.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},"
	                         "{\"role\":\"assistant\",\"content\":\"b\"}]}\n");
	write_file("pictures.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},"
	                             "{\"role\":\"assistant\",\"content\":\"b\"}],\"images\":[\"x.png\"]}\n");
	write_file("dolly.jsonl",
	        "{\"instruction\":\"a\",\"context\":\"b\",\"response\":\"c\",\"kind\":\"d\",\"id\":null}\n");
	write_file("chat.csv", "messages\n\"[{\"\"role\"\":\"\"user\"\",\"\"content\"\":\"\"a\"\"},"
	                       "{\"\"role\"\":\"\"assistant\"\",\"\"content\"\":\"\"b\"\"}]\"\n");
	write_file("template.yaml", "model: %s/speaker\ndata: %s/said.jsonl\ntemplate: qwen3\n", work_dir,
	        work_dir);
	write_file("void.jsonl", "{\"prompt\":\"\",\"completion\":\"\"}\n");
	write_file("mute.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},"
	                         "{\"role\":\"assistant\",\"content\":\"\"}]}\n");
	write_file("equals.yaml", "learning_rate = 1e-4\n");
	write_file("train.py", "import torch\n");
	write_file("later.yaml", "model: m\nlearning_rate = 1e-4\nseed: 3\n");
	write_file("tab.yaml", "fsdp_config:\n\toffload_params: true\n");
	write_file("quote.yaml", "prompt: Question: what?\n");
	write_file("home.yaml", "model: %s/tiny\ndata: %s/rows.jsonl\noutput_dir: $HOME/x\n", work_dir,
	        work_dir);
	write_file("single.jsonl", "{'prompt':'a'}\n");
	write_file("latin.jsonl", "{\"prompt\":\"caf\xe9\",\"completion\":\"b\"}\n");
	write_file("pointer.jsonl", "%s", pointer);
	write_file("pointer.safetensors", "%s", pointer);
	make_dir("adapter");
	write_file("held.yaml",
	        "base_model: %s/tiny\ndata: %s/rows.jsonl\nval_set_size: 0.1\neval_data: %s/rows.jsonl\n",
	        work_dir, work_dir, work_dir);
	write_file("many.yaml", "datasets:\n  - path: %s/rows.jsonl\nval_set_size: 200\n", work_dir);
	make_dir("both");
	write_file("both/config.json", "{\"model_type\":\"llama\"}");
	write_file("both/adapter_config.json", "{}");
	write_file("adapter/adapter_config.json", "{\"peft_type\":\"LORA\"}");
	make_dir("short");
	short_model();
	large_tokenizer();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_settings),
	        cmocka_unit_test(test_files),
	        cmocka_unit_test(test_other_programs),
	        cmocka_unit_test(test_numbers),
	};
	int failed;

	ferry_run_begin("mistakes");
	tiny_model(&tiny);
	speaker_make();
	write_files();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
