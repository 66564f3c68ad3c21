/* links: cli */
/* Masked words through the commands, each model beside 12 steps of transformers over two epochs
 * (tests/golden/make_masked.py): offload, ranks, resuming, adapters, new heads, what is refused. */
#include "data/batch.h"
#include "objective/objective.h"
#include "tests/golden_trace.h"

#define KEYS "objective=masked mlm_probability=0.3 seed=42 compute_dtype=fp32 "
#define STEPS                                                                                                \
	KEYS "shuffle=off export_dtype=fp32 max_steps=12 learning_rate=1e-2 lr_scheduler_type=constant "     \
	     "weight_decay=0 max_grad_norm=0 adam_epsilon=1e-5 "
#define PIECES "per_device_train_batch_size=2 gradient_accumulation_steps=2 "

static const char *const cases[] = {"bert", "bert_words", "bert_untied", "roberta", "xlm_roberta",
        "distilbert", "mpnet", "modernbert", "modernbert_odd"};
enum { CASES = sizeof(cases) / sizeof(*cases) };

/* Of these whole words are hidden. */
static const char *words_key(const char *name)
{
	return str_ends_with(name, "_words") ? " whole_word_mask=on " : "";
}

static char *golden_path(const char *name, const char *file)
{
	const char *source = getenv("FERRY_SOURCE");

	return mem_printf("%s/tests/golden/masked/%s%s", source ? source : ".", name, file);
}

static void train(const char *name, const char *run, const char *keys)
{
	char *model = golden_path(name, ""), *rows = golden_path(name, "/train.jsonl");

	assert_ferry(0, NULL, "train model=%s data=%s output_dir=%s/%s " STEPS " %s%s", model, rows, work_dir,
	        run, words_key(name), keys);
	mem_free(model);
	mem_free(rows);
}

static json_t *reference(const char *name)
{
	char *path = golden_path(name, "/ref.json");
	json_t *ref = NULL;

	assert_int_equal(json_read_file(&ref, path, 1 << 20), 0);
	mem_free(path);
	return ref;
}

static void trace_check_of(const char *name, const char *run)
{
	json_t *ref = reference(name);

	trace_follow(run, ref, 1e-5, 1e-4, NULL);
	json_decref(ref);
}

static json_t *evaluate(const char *model, const char *rows, const char *keys, const char *more)
{
	struct str out = {0};
	json_t *got = NULL;

	assert_ferry(0, &out, "eval model=%s data=%s --json %s%s", model, rows, keys, more);
	assert_int_equal(json_parse(&got, "stdout", out.data, out.len_bytes), 0);
	str_free(&out);
	return got;
}

/* The same tokens are hidden each time. */
static void test_evaluation(void **state)
{
	(void)state;
	for (int i = 0; i < CASES; i++) {
		char *model = golden_path(cases[i], ""), *rows = golden_path(cases[i], "/train.jsonl");
		json_t *ref = reference(cases[i]);

		for (int again = 0; again < 2; again++) {
			json_t *got = evaluate(model, rows,
			        again ? KEYS "per_device_eval_batch_size=3" : KEYS, words_key(cases[i]));

			assert_relative(number(got, "loss"), number(ref, "eval"), 1e-6, cases[i]);
			assert_true(number(got, "target_tokens") == number(ref, "hidden"));
			json_decref(got);
		}
		json_decref(ref);
		mem_free(model);
		mem_free(rows);
	}
}

static void test_traces(void **state)
{
	(void)state;
	for (int i = 0; i < CASES; i++) {
		char *config;

		train(cases[i], "one", PIECES "overwrite_output_dir=on");
		trace_check_of(cases[i], "one");
		config = file_of("one", "model/config.json");
		assert_non_null(strstr(config, "ForMaskedLM"));
		assert_null(strstr(config, "LABEL_0"));
		mem_free(config);
		train(cases[i], "offload",
		        PIECES
		        "overwrite_output_dir=on cpu_offload=on activations=recompute stream_delay_seed=5");
		same_weights("one", "offload");
		train(cases[i], "ranks", "per_device_train_batch_size=2 ranks=2 overwrite_output_dir=on");
		trace_check_of(cases[i], "ranks");
		train(cases[i], "again", PIECES "save_steps=7 save_total_limit=9 overwrite_output_dir=on");
		remove_run("again/checkpoint-000012");
		remove_run("again/model");
		train(cases[i], "again", PIECES "save_steps=7 save_total_limit=9 resume=auto");
		same_weights("one", "again");
		assert_ferry(0, NULL,
		        "export checkpoint=%s/again/checkpoint-000012 output_dir=%s/exported-%d "
		        "export_dtype=fp32",
		        work_dir, work_dir, i);
		{
			char command[900];

			snprintf(command, sizeof(command),
			        "cmp %s/one/model/model.safetensors %s/exported-%d/model.safetensors",
			        work_dir, work_dir, i);
			assert_int_equal(system(command), 0);
		}
	}
}

/* A result without the head gets a new one, also beside adapters; adapters leave a given head as it is. */
static void test_heads(void **state)
{
	char *rows = golden_path("bert", "/train.jsonl");
	char model[400];
	json_t *got;

	(void)state;
	train("bert", "lora", "per_device_train_batch_size=4 lora_rank=2 overwrite_output_dir=on");
	path_of(model, "lora/model");
	got = evaluate(model, rows, KEYS, "");
	assert_true(number(got, "loss") > 0);
	json_decref(got);
	write_file(
	        "classes.jsonl", "%s", "{\"text\":\"w1 w2\",\"label\":1}\n{\"text\":\"w3\",\"label\":0}\n");
	path_of(model, "classes/model");
	{
		char *base = golden_path("bert", "");

		assert_ferry(0, NULL,
		        "train model=%s data=%s/classes.jsonl output_dir=%s/classes objective=classification "
		        "max_steps=1",
		        base, work_dir, work_dir);
		assert_ferry(2, NULL,
		        "train model=%s data=%s output_dir=%s/none objective=masked max_steps=1", model, rows,
		        work_dir);
		assert_non_null(strstr(ferry_said(), "is a ...ForSequenceClassification"));
		mem_free(base);
	}
	{
		char command[1200];

		snprintf(command, sizeof(command),
		        "sed -i s/BertForSequenceClassification/BertModel/ %s/config.json", model);
		assert_int_equal(system(command), 0);
	}
	for (int lora = 0; lora < 2; lora++) {
		assert_ferry(0, NULL,
		        "train model=%s data=%s output_dir=%s/fresh%d " STEPS
		        " per_device_train_batch_size=4 %s",
		        model, rows, work_dir, lora, lora ? "lora_rank=2" : "");
		assert_non_null(strstr(ferry_said(), "the head for masked words begins with random values"));
	}
	mem_free(rows);
}

static void test_refusals(void **state)
{
	static const struct {
		const char *keys, *says;
	} bad[] = {
	        {"objective=masked mlm_probability=0", "must be between 0.0001 and 1"},
	        {"mlm_probability=0.2", "has no effect without objective=masked"},
	        {"whole_word_mask=on", "has no effect without objective=masked"},
	        {"objective=masked whole_word_mask=on data_format=tokens", "whole_word_mask=on reads texts"},
	        {"objective=masked num_labels=2", "has no effect with objective=masked"},
	        {"objective=masked packing=bfd", "are not packed"},
	        {"", "objective=masked"},
	};
	char *model = golden_path("bert", ""), *rows = golden_path("bert", "/train.jsonl");

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		assert_ferry(2, NULL, "train model=%s data=%s output_dir=%s/none max_steps=1 %s", model, rows,
		        work_dir, bad[i].keys);
		if (!strstr(ferry_said(), bad[i].says))
			fail_msg("%s: no \"%s\" in %s", bad[i].keys, bad[i].says, ferry_said());
	}
	assert_ferry(2, NULL, "eval model=%s data=%s mlm_probability=0.2", model, rows);
	assert_non_null(strstr(ferry_said(), "has no effect without objective=masked"));
	assert_ferry(2, NULL, "eval model=%s data=%s " KEYS " --json per_token=on", model, rows);
	assert_non_null(strstr(ferry_said(), "per_token"));
	assert_ferry(2, NULL,
	        "train model=%s/speaker data=%s output_dir=%s/none max_steps=1 objective=masked", work_dir,
	        rows, work_dir);
	assert_non_null(strstr(ferry_said(), "is a decoder"));
	assert_ferry(2, NULL, "generate model=%s prompt=w1", model);
	assert_non_null(strstr(ferry_said(), "is an encoder"));
	mem_free(model);
	mem_free(rows);
}

/* The share of hidden tokens, of masks, other tokens and kept ones among them; another epoch hides others. */
static void test_draws(void **state)
{
	enum { ROWS = 400, TOKENS = 250, IDS = 1000, MASK = 4 };
	const struct batch_rule *rule = &objective_masked.batch;
	struct batch_draws draws = {.seed = 3, .share = 0.15, .mask = MASK, .random = IDS, .pad = 0};
	double all = 0, masks = 0, others = 0, kept = 0, differ = 0, sum = 0, n = ROWS * TOKENS;

	(void)state;
	for (int64_t row = 0; row < ROWS; row++) {
		int32_t ids[2][TOKENS], labels[TOKENS], types[TOKENS], at[TOKENS], given[TOKENS];
		uint8_t trained[(TOKENS + 7) / 8 + 4];

		memset(trained, 0xff, sizeof(trained));
		for (int t = 0; t < TOKENS; t++)
			given[t] = 5 + (int32_t)((row * TOKENS + t) % (IDS - 5));
		for (int64_t epoch = 0; epoch < 2; epoch++) {
			struct micro_batch mb = {
			        .ids = ids[epoch], .target_rows = at, .own = {labels, types}};
			struct batch_document document = {
			        .row = {.ids = given, .trained = trained, .token_count = TOKENS},
			        .draws = &draws,
			        .epoch = epoch,
			        .data_row = row};

			memcpy(ids[epoch], given, sizeof(given));
			rule->add(&mb, &document);
			assert_int_equal(mb.target_count, rule->drawn(&draws, NULL, epoch, row, TOKENS));
			all += (double)mb.target_count;
			for (int64_t i = 0; i < mb.target_count; i++) {
				int32_t now = ids[epoch][at[i]];

				assert_int_equal(labels[i], given[at[i]]);
				assert_true(now > 0 && now < IDS);
				masks += now == MASK;
				kept += now == given[at[i]];
				others += now != MASK && now != given[at[i]];
				if (now != MASK && now != given[at[i]])
					sum += now;
			}
		}
		for (int t = 0; t < TOKENS; t++)
			differ += ids[0][t] != ids[1][t];
	}
	/* within five standard deviations */
	assert_true(fabs(all / (2 * n) - 0.15) < 5 * sqrt(0.15 * 0.85 / (2 * n)));
	assert_true(fabs(masks / all - 0.8) < 5 * sqrt(0.8 * 0.2 / all) + 0.001);
	assert_true(fabs(others / all - 0.1) < 5 * sqrt(0.1 * 0.9 / all) + 0.001);
	assert_true(fabs(kept / all - 0.1) < 5 * sqrt(0.1 * 0.9 / all) + 0.001);
	assert_true(fabs(sum / others / IDS - 0.5) < 5 * sqrt(1 / 12.0 / others) + 0.001);
	assert_true(differ > 0.2 * n * 0.9 * 0.9);
}

/* A text that a file of text, rows of JSON and a cache of rows have; the same words are hidden. */
static void test_words_of_files(void **state)
{
	char *model = golden_path("bert_words", ""), *rows = golden_path("bert_words", "/train.jsonl");
	static const char keys[] = KEYS "whole_word_mask=on max_length=26";
	struct str text = {0}, shown = {0};
	json_t *got[2];

	(void)state;
	for (int i = 0; i < 3000; i++)
		str_printf(&text, "w%d%s", i * 7 % 34, i % 3 ? "-" : " ");
	write_file("long.txt", "%s", text.data);
	write_file("long.jsonl", "{\"text\":\"%s\"}\n", text.data);
	for (int i = 0; i < 2; i++) {
		char path[400];

		path_of(path, i ? "long.jsonl" : "long.txt");
		got[i] = evaluate(model, path, keys, " long_rows=split");
	}
	assert_relative(number(got[0], "loss"), number(got[1], "loss"), 1e-9, "a file of text");
	assert_true(number(got[0], "target_tokens") == number(got[1], "target_tokens"));
	write_file("shown.jsonl", "{\"text\":\"w1-w2 w3\"}\n");
	assert_ferry(0, &shown,
	        "data model=%s data=%s/shown.jsonl objective=masked whole_word_mask=on json=on", model,
	        work_dir);
	assert_non_null(strstr(shown.data, "\"labels\": [-100, 7, 5, 8, 9, -100]")); /* ids as they are */
	str_free(&shown);
	write_file("chat.jsonl", "{\"prompt\":\"w1\",\"completion\":\"w2\"}\n");
	assert_ferry(2, NULL, "eval model=%s data=%s/chat.jsonl objective=masked whole_word_mask=on", model,
	        work_dir);
	assert_non_null(strstr(ferry_said(), "chat.jsonl:1: rows of the format prompt_completion; "
	                                     "whole_word_mask=on reads texts"));
	for (int i = 0; i < 2; i++)
		json_decref(got[i]);
	str_free(&text);
	mem_free(model);
	mem_free(rows);
}

/* Words of 1 to 4 tokens, none of which is hidden alone: their share, and that all become the mask. */
static void test_word_draws(void **state)
{
	enum { ROWS = 400, TOKENS = 250, MASK = 4 };
	const struct batch_rule *rule = &objective_masked.batch;
	struct batch_draws draws = {
	        .seed = 3, .share = 0.15, .is_of_words = 1, .mask = MASK, .random = 1000, .pad = 0};
	double words = 0, hidden = 0, twice = 0, next = 0;

	(void)state;
	for (int64_t row = 0; row < ROWS; row++) {
		int32_t ids[TOKENS], labels[TOKENS], own[TOKENS], types[TOKENS], at[TOKENS], given[TOKENS];
		uint8_t trained[(TOKENS + 7) / 8 + 4];
		struct micro_batch mb = {.ids = ids, .target_rows = at, .own = {labels, types}};
		struct batch_document document = {
		        .row = {.ids = given, .labels = own, .trained = trained, .token_count = TOKENS},
		        .draws = &draws,
		        .data_row = row};
		int was = 0;

		memset(trained, 0xff, sizeof(trained));
		for (int t = 0; t < TOKENS; t++) {
			ids[t] = given[t] = 5 + t;
			own[t] = given[t] + ((t + row) % 10 == 0 || (t + row) % 10 == 4 || (t + row) % 10 == 7
			                                    ? 0
			                                    : DATASET_GOES_ON);
		}
		rule->add(&mb, &document);
		for (int64_t i = 0; i < mb.target_count; i++)
			assert_int_equal(labels[i], given[at[i]]);
		for (int t = 0; t < TOKENS; t++) {
			int is_mask = ids[t] == MASK;

			assert_true(is_mask || ids[t] == given[t]);
			if (t && own[t] >= DATASET_GOES_ON) {
				assert_int_equal(is_mask, ids[t - 1] == MASK);
				continue;
			}
			words++;
			hidden += is_mask;
			twice += is_mask && was;
			next += was;
			was = is_mask;
		}
	}
	/* within five standard deviations; a word behind a hidden one is as likely as any */
	assert_true(fabs(hidden / words - 0.15) < 5 * sqrt(0.15 * 0.85 / words));
	assert_true(fabs(twice / next - 0.15) < 5 * sqrt(0.15 * 0.85 / next));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_draws), cmocka_unit_test(test_word_draws),
	        cmocka_unit_test(test_words_of_files), cmocka_unit_test(test_evaluation),
	        cmocka_unit_test(test_traces), cmocka_unit_test(test_heads), cmocka_unit_test(test_refusals)};
	int failed;

	ferry_run_begin("masked");
	speaker_make();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
