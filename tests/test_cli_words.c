/* links: cli */
/* Messages for users: what a command does, omits or refuses. */
#include "base/name.h"
#include "tests/cli_words.h"

static struct run_model tiny;

/* ---- train ---- */

static void test_trained_parameters(void **state)
{
	(void)state;
	assert_words(0, TRAIN, "!trains ");
	assert_words(0, TRAIN "'freeze=.*layers.*'",
	        "trains   4128 of |frozen): model.embed_tokens, model.norm, lm_head\n");
	assert_words(0, TRAIN "'trainable=.*layers\\.[12]\\..*'", "frozen): model.layers.1-2\n");
	assert_words(0, TRAIN "'trainable=.*layers\\.[02]\\.mlp.*'",
	        "frozen): model.layers.0.mlp, model.layers.2.mlp\n");
	assert_words(0, "plan model=@/tiny 'trainable=.*q_proj.*' --details",
	        "frozen): model.layers.0-2.self_attn.q_proj\n");
}

static void test_no_checkpoint(void **state)
{
	(void)state;
	assert_words(0, TRAIN "resume_from_checkpoint=auto",
	        "/said has no checkpoint to resume; starting at step 0\n");
	assert_words(0, TRAIN, "!starting at step 0");
}

/* ---- rows without a target ---- */

/* Rows without targets stay, as in other trainers. A step with only such rows changes nothing. */
static void test_untrained_rows(void **state)
{
	static const char *const settings =
	        "num_train_epochs=2 shuffle=off weight_decay=0.1 learning_rate=0.1";
	char command[1000], *numbers, *resumed, first[400], second[400];

	(void)state;
	write_file("some.jsonl", "{\"input_ids\":[1,2,3]}\n{\"input_ids\":[4,5,6],\"labels\":[4,-100,-100]}\n"
	                         "{\"input_ids\":[7]}\n{\"input_ids\":[8,9]}\n{\"input_ids\":[10,11,12]}\n");
	write_file("one.jsonl", "{\"input_ids\":[1,2,3]}\n{\"input_ids\":[7]}\n");
	write_file("none.jsonl", "{\"input_ids\":[1,2,3],\"labels\":[1,-100,-100]}\n");
	snprintf(command, sizeof(command), "train model=@/tiny data=@/some.jsonl output_dir=@/whole %s",
	        settings);
	assert_words(0, command,
	        "2 of 5 rows have no token to train on; the first is |some.jsonl:2|4 of 10 steps have only "
	        "rows without a token to train on; they are skipped");
	numbers = run_numbers("whole");
	snprintf(command, sizeof(command),
	        "train model=@/tiny data=@/some.jsonl output_dir=@/half save_steps=2 save_total_limit=9 %s",
	        settings);
	assert_words(0, command, "");
	for (int step = 4; step <= 10; step += 2) {
		char name[64];

		snprintf(name, sizeof(name), "half/checkpoint-%06d", step);
		remove_run(name);
	}
	strcat(command, " resume_from_checkpoint=auto");
	assert_words(0, command, "at step 2");
	resumed = run_numbers("half");
	assert_string_equal(resumed, numbers);
	mem_free(numbers);
	mem_free(resumed);
	/* the second of two steps has no target: it leaves the weights of the first */
	assert_words(0,
	        "train model=@/tiny data=@/one.jsonl output_dir=@/steps save_steps=1 shuffle=off "
	        "lr_scheduler_type=constant weight_decay=0.1 learning_rate=0.1",
	        "1 of 2 steps have only rows|step 2/2  grad 0  skipped: no token to train on  lr |  0 tok/s");
	snprintf(first, sizeof(first), "%s/steps/checkpoint-000001/rank-00000.safetensors", work_dir);
	snprintf(second, sizeof(second), "%s/steps/checkpoint-000002/rank-00000.safetensors", work_dir);
	assert_same_files(first, second, "a step without a target changes nothing");
	assert_words(2, "train model=@/tiny data=@/none.jsonl output_dir=@/never",
	        "no row has a token to train on (the first is |none.jsonl:1");
	assert_words(2, "data show model=@/tiny data=@/none.jsonl", "no row has a token to train on");
}

/* ---- the form of rows ---- */

/* The generate command that train prints fits the form of the training data. */
static void test_use(void **state)
{
	static const char *const rows = "{\"instruction\":\"Who?\",\"output\":\"Ben\"}\n";

	(void)state;
	write_file("alpaca.jsonl", "%s", rows);
	assert_words(0, "train model=@/speaker data=@/alpaca.jsonl output_dir=@/plain",
	        "/plain/model data_format=alpaca prompt=");
	assert_words(0, "train model=@/speaker data=@/alpaca.jsonl output_dir=@/chat chat_template=alpaca",
	        "to use it: ferry generate model=|/chat/model chat=on\n");
	assert_words(
	        0, "generate model=@/chat/model chat=on prompt=Who? max_new_tokens=1", "!no chat template");
	assert_words(0, TRAIN, "!to use it");
}

/* A list is alternatives where a key takes patterns, and several texts where it takes texts. */
static void test_lists(void **state)
{
	(void)state;
	write_file("freeze.yaml", "freeze:\n  - .*layers.*\n  - .*norm.*\n");
	assert_words(0, TRAIN "@/freeze.yaml", "frozen): model.embed_tokens, lm_head\n");
	assert_words(
	        0, TRAIN "'freeze=[\".*layers.*\", \".*norm.*\"]'", "frozen): model.embed_tokens, lm_head\n");
}

/* Other splits than those of folders, and parts that are none: the key and its place. */
static void test_splits(void **state)
{
	(void)state;
	write_file("split.yaml", "model: m\ndata_split: train+test\n");
	assert_words(2, "data show @/split.yaml data=@/rows.jsonl",
	        "/split.yaml:2: data_split: unknown split \"train+test\"; supported: train, validation, "
	        "test");
	assert_words(2, "data show model=@/tiny data=@/rows.jsonl data_split=train[5]",
	        "ferry data: data_split: train[5]: unknown part of a split; write it as train[:500]");
	assert_words(2, TRAIN "eval_data=@/rows.jsonl eval_data_split=[:5]",
	        "ferry train: eval_data_split: unknown split \"\"; supported: ");
	assert_words(0, TRAIN "data_split=Train[:2]", "2 rows");
}

/* ---- data show ---- */

static void test_shown_rows(void **state)
{
	(void)state;
	write_file("lines.jsonl", "{\"prompt\":\"Who?\\n\\nA:\\n\",\"completion\":\"Ben\"}\n");
	assert_words(0, "data show model=@/speaker data=@/lines.jsonl",
	        "\n- Who?\n- \n- A:\n+ Ben<|endoftext|>\n");
}

/* Ids that the tokenizer has not are an error. */
static void test_unknown_ids(void **state)
{
	(void)state;
	write_file("ids.txt", "[1, 2, 99999]\n");
	assert_words(2, "tokenize model=@/speaker --decode @/ids.txt",
	        "element 2 is 99999; the tokenizer has ids 0 to ");
}

/* A token that was added to the tokenizer alone: its text, and no word of another model. */
static void test_new_token(void **state)
{
	static const char says[] =
	        "the token '<new>' has id |, but the model has ids 0 to |; resize the model's "
	        "embedding with transformers|!another model's";
	char command[800];

	(void)state;
	snprintf(command, sizeof(command), "sed 's/2000/420/' %s/words.json >%s/small.json", work_dir,
	        work_dir);
	assert_int_equal(system(command), 0);
	assert_words(0, "init config=@/small.json tokenizer=@/words output_dir=@/grown", "");
	write_file("grown/special_tokens_map.json", "{\"additional_special_tokens\":[\"<new>\"]}");
	write_file("new.jsonl", "{\"prompt\":\"a\",\"completion\":\"b <new>\"}\n");
	assert_words(2, "train model=@/grown data=@/new.jsonl output_dir=@/never", says);
	assert_words(2, "eval model=@/grown data=@/new.jsonl", says);
	assert_words(2, "generate model=@/grown prompt='<new>' max_new_tokens=1", says);
	/* one without a text, in both forms of files */
	write_file("words/added_tokens.json", "{\"\": 700}");
	assert_words(0, "generate model=@/speaker tokenizer=@/words prompt=a max_new_tokens=1",
	        "/words/added_tokens.json: the token with id 700 has no text; it is left out");
	write_file("words/tokenizer_config.json", "{\"eos_token\":\"<|endoftext|>\",\"added_tokens_decoder\":"
	                                          "{\"700\":{\"content\":\"\"}}}");
	assert_words(0, "generate model=@/speaker tokenizer=@/words prompt=a max_new_tokens=1",
	        "/words/tokenizer_config.json: the token with id 700 has no text; it is left out");
}

/* config.yaml of a run: what it evaluates, and what follows another key. */
static void test_config_of_a_run(void **state)
{
	(void)state;
	assert_words(0, "train model=@/tiny data=@/rows.jsonl output_dir=@/known max_steps=1", "");
	assert_words(0, "eval @/known/config.yaml",
	        "evaluating |/tiny on |/rows.jsonl|/tiny is the model that the run started from; to evaluate "
	        "its result set model=|/known/model");
	assert_words(0, "eval @/known/config.yaml model=@/known/model", "!started from");
	assert_words(0, "train @/known/config.yaml compute_dtype=fp32 output_dir=@/other max_steps=1",
	        "fp32 compute");
}

static void test_distance(void **state)
{
	(void)state;
	assert_int_equal(name_distance("abc", "abc"), 0);
	assert_int_equal(name_distance("a-c", "a_c"), 0);
	assert_int_equal(name_distance("abc", "acb"), 1);
	assert_int_equal(name_distance("", "acb"), 3);
	assert_int_equal(name_distance("kitten", "sitting"), 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_trained_parameters),
	        cmocka_unit_test(test_no_checkpoint),
	        cmocka_unit_test(test_untrained_rows),
	        cmocka_unit_test(test_use),
	        cmocka_unit_test(test_lists),
	        cmocka_unit_test(test_splits),
	        cmocka_unit_test(test_shown_rows),
	        cmocka_unit_test(test_unknown_ids),
	        cmocka_unit_test(test_new_token),
	        cmocka_unit_test(test_config_of_a_run),
	        cmocka_unit_test(test_distance),
	};
	int failed;

	ferry_run_begin("words");
	tiny_model(&tiny);
	speaker_make();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
