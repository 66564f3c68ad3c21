/* links: cli */
/* Judged answers (KTO): rows of several forms, no bit of offload, resumed runs, and refusals. */
#include "tests/run_fixture.h"
#include "tests/sparing.h"

#include <math.h>

static char speaker[400], answers[400];

#define STRICT "{%% for m in messages %%}<|{{ m.role }}|>{{ m.content }}<|endoftext|>{%% endfor %%}"

#define KEYS                                                                                                 \
	"preference_loss=kto learning_rate=1e-2 per_device_train_batch_size=3 max_steps=4 threads=1 "        \
	"logging_steps=1 lr_scheduler_type=constant overwrite_output_dir=on export_dtype=fp32 "

/* Good answers have other words than bad ones. */
static void write_answers(const char *name, int count, uint64_t seed)
{
	static const char *const words[] = {
	        "red", "green", "old", "ship", "moves", "slowly", "over", "the", "sea", "again"};
	struct str text = {0};
	uint64_t draw = 0;

	for (int row = 0; row < count; row++) {
		int is_good = rng_below(seed, 3, draw++, 2) == 0;

		for (int i = 0; i < 2; i++) {
			int length = 1 + (int)rng_below(seed, 1, draw++, 9);

			str_printf(&text, "%s\"%s\":\"", i ? "," : "{", i ? "completion" : "prompt");
			for (int w = 0; w < length; w++)
				str_printf(&text, "%s%s", i || w ? " " : "",
				        words[i ? rng_below(seed, 2, draw++, 5) + (is_good ? 5 : 0)
				                : rng_below(seed, 2, draw++, 10)]);
			str_add(&text, "\"");
		}
		str_printf(&text, ",\"label\":%s}\n", is_good ? "true" : "false");
	}
	write_file(name, "%s", text.data);
	str_free(&text);
}

static void train(const char *out, const char *more)
{
	assert_ferry(0, NULL,
	        "train model=%s data=%s output_dir=%s/%s " KEYS "gradient_accumulation_steps=2 %s", speaker,
	        answers, work_dir, out, more);
}

/* The model is its reference: kl is 0 and every loss half its weight, to the bit of the log probabilities. */
static void test_start(void **state)
{
	static const char *const more[] = {"compute_dtype=fp32 max_steps=20",
	        "compute_dtype=bf16 lora_rank=3 max_steps=20",
	        "max_steps=20 preference_desirable_weight=2 preference_undesirable_weight=2 cpu_offload=on"};

	(void)state;
	for (int i = 0; i < 3; i++) {
		train("a", more[i]);
		assert_true(metric_of("a", 1, "loss") == (i == 2 ? 1 : 0.5));
		assert_true(metric_of("a", 1, "kl") == 0 && metric_of("a", 1, "rewards/margins") == 0);
		assert_true(metric_of("a", 1, "logps/chosen") < 0 && metric_of("a", 1, "grad_norm") > 0);
		assert_true(metric_of("a", 20, "loss") < (i == 2 ? 0.9 : 0.45));
		assert_true(metric_of("a", 20, "kl") >= 0);
		assert_true(isnan(metric_of("a", 20, "perplexity")));
	}
}

static void test_offload_changes_no_bit(void **state)
{
	static const char *const dtypes[] = {"compute_dtype=bf16", "compute_dtype=fp32 lora_rank=3"};
	static const char *const others[] = {
	        "cpu_offload=on vram_budget=off",
	        "cpu_offload=on activations=offload",
	        "cpu_offload=params activations=recompute schedule=micro_batch_major",
	        "cpu_offload=on vram_budget=off stream_delay_seed=4 threads=2",
	        "cpu_offload=off activations=recompute schedule=micro_batch_major",
	};
	char more[300];

	(void)state;
	for (size_t d = 0; d < 2; d++) {
		snprintf(more, sizeof(more), "%s cpu_offload=off activations=keep", dtypes[d]);
		train("base", more);
		for (size_t i = 0; i < sizeof(others) / sizeof(*others); i += (size_t)sparing(2)) {
			if (!d && strstr(others[i], "micro_batch_major"))
				continue; /* sums a tied embedding's in another order */
			snprintf(more, sizeof(more), "%s %s", dtypes[d], others[i]);
			train("other", more);
			assert_same_runs("base", "other", more);
		}
	}
}

/* The reference of a resumed run is that of its start, also for the answers of other rows. */
static void test_resumed(void **state)
{
	char a[400], b[400];

	(void)state;
	train("whole", "eval_split=4 eval_steps=2");
	train("part", "save_steps=2 save_total_limit=all eval_split=4 eval_steps=2");
	assert_true(isfinite(metric_of("part", 4, "eval_loss")) && metric_of("part", 4, "eval_kl") >= 0);
	assert_ferry(0, NULL,
	        "train %s/part/config.yaml resume_from_checkpoint=%s/part/checkpoint-000002 "
	        "overwrite_output_dir=off",
	        work_dir, work_dir);
	snprintf(a, sizeof(a), "%s/whole/model/model.safetensors", work_dir);
	snprintf(b, sizeof(b), "%s/part/model/model.safetensors", work_dir);
	assert_same_files(a, b, "resumed");
	/* other rows exchange answers */
	assert_ferry(2, NULL,
	        "train %s/part/config.yaml resume_from_checkpoint=auto max_steps=6 "
	        "per_device_train_batch_size=2 gradient_accumulation_steps=3 overwrite_output_dir=off",
	        work_dir);
}

/* The same answers as texts, chats, instructions with kto_tag and CSV; a table of LLaMA-Factory. */
static void test_forms(void **state)
{
	static const char *const same[] = {"chats.jsonl", "talks.jsonl", "tasks.jsonl",
	        "tasks.csv field_label=good", "talks dataset_info=%s/table.json"};
	double loss = NAN;

	(void)state;
	write_file("chats.jsonl",
	        "{\"prompt\":[{\"role\":\"user\",\"content\":\"the sea\"}],\"completion\":[{\"role\":"
	        "\"assistant\",\"content\":\"old ship\"}],\"label\":true}\n"
	        "{\"prompt\":[{\"role\":\"user\",\"content\":\"red\"}],\"completion\":[{\"role\":"
	        "\"assistant\",\"content\":\"green\"}],\"label\":false}\n");
	write_file("talks.jsonl",
	        "{\"messages\":[{\"role\":\"user\",\"content\":\"the sea\"},{\"role\":\"assistant\","
	        "\"content\":\"old ship\"}],\"label\":1}\n"
	        "{\"messages\":[{\"role\":\"user\",\"content\":\"red\"},{\"role\":\"assistant\","
	        "\"content\":\"green\"}],\"label\":0}\n");
	write_file("tasks.jsonl", "{\"instruction\":\"the sea\",\"output\":\"old ship\",\"kto_tag\":true}\n"
	                          "{\"instruction\":\"red\",\"output\":\"green\",\"kto_tag\":false}\n");
	write_file("tasks.csv", "instruction,output,good\nthe sea,old ship,True\nred,green,false\n");
	write_file("table.json", "{\"talks\": {\"file_name\": \"talks.jsonl\", \"columns\": {\"messages\": "
	                         "\"messages\", \"kto_tag\": \"label\"}, \"formatting\": \"sharegpt\", "
	                         "\"tags\": {\"role_tag\": \"role\", \"content_tag\": \"content\", "
	                         "\"user_tag\": \"user\", \"assistant_tag\": \"assistant\"}}}\n");
	for (size_t i = 0; i < sizeof(same) / sizeof(*same); i++) {
		char data[300];
		int is_table = strstr(same[i], "%s") != NULL;

		if (is_table)
			snprintf(data, sizeof(data), "talks dataset_info=%s/table.json", work_dir);
		else
			snprintf(data, sizeof(data), "%s/%s", work_dir, same[i]);
		assert_ferry(0, NULL,
		        "train model=%s data=%s output_dir=%s/f " KEYS
		        "max_steps=2 per_device_train_batch_size=2 compute_dtype=fp32 alpaca_form=chat "
		        "chat_template=%s/strict.jinja",
		        speaker, data, work_dir, work_dir);
		if (i == 0)
			loss = metric_of("f", 2, "loss");
		if (!(loss == metric_of("f", 2, "loss")))
			fail_msg("%s: %.17g, not %.17g", same[i], metric_of("f", 2, "loss"), loss);
	}
}

/* With micro-batches of one row others lie in larger groups; a lone row has its own answer. */
static void test_sizes(void **state)
{
	(void)state;
	train("a", "per_device_train_batch_size=1 max_steps=3");
	assert_non_null(
	        strstr(ferry_said(), "estimates kl from the answers of a micro-batch, here from one"));
	assert_true(metric_of("a", 3, "loss") < 0.5);
	write_file("lone.jsonl", "{\"prompt\":\"the\",\"completion\":\" sea\",\"label\":true}\n");
	assert_ferry(0, NULL, "train model=%s data=%s/lone.jsonl output_dir=%s/a " KEYS "max_steps=2",
	        speaker, work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "every answer is desirable"));
	assert_true(metric_of("a", 2, "kl") > 0 && isnan(metric_of("a", 2, "rewards/rejected")));
	/* a prompt that fills max_length */
	write_file("long.jsonl",
	        "{\"prompt\":\"the old ship moves slowly over the sea again\",\"completion\":\" "
	        "sea\",\"label\":true}\n"
	        "{\"prompt\":\"red\",\"completion\":\" sea\",\"label\":\"False\"}\n"
	        "{\"prompt\":\"the\",\"completion\":\" old sea\",\"label\":\"1\"}\n");
	assert_ferry(0, NULL,
	        "train model=%s data=%s/long.jsonl output_dir=%s/a max_length=6 " KEYS "max_steps=1", speaker,
	        work_dir, work_dir);
	assert_non_null(
	        strstr(ferry_said(), "1 row is left out: no token of the answer is within max_length"));
}

static void test_refused(void **state)
{
	static const struct {
		const char *rows, *keys, *says;
	} bad[] = {
	        {"{\"prompt\":\"the\",\"completion\":\" sea\"}\n", "",
	                "needs a label that says whether the answer is desirable; the row has \"prompt\", "
	                "\"completion\"; set field_label"},
	        {"{\"prompt\":\"the\",\"completion\":\" sea\",\"label\":2}\n", "",
	                "\"label\" is 2; expected true or false"},
	        {"{\"prompt\":\"the\",\"completion\":\" sea\",\"label\":\"good\"}\n", "",
	                "\"label\" is good; expected true or false"},
	        {"{\"prompt\":\"the\",\"completion\":\" sea\",\"label\":null}\n", "",
	                "expected true or false"},
	        {"{\"prompt\":\"the\",\"chosen\":\" sea\",\"rejected\":\" ship\",\"label\":true}\n", "",
	                "rows of the format preference; preference_loss=kto needs a prompt, one answer and a "
	                "label; set preference_loss=sigmoid"},
	        {"{\"text\":\"the sea\",\"label\":true}\n", "",
	                "rows of the format text; preference_loss=kto"},
	        {"{\"prompt\":\"the\",\"completion\":\" sea\",\"label\":true}\n", "packing=bfd",
	                "judged answers are not packed"},
	        {"{\"prompt\":\"the\",\"completion\":\" sea\",\"label\":true}\n", "preference_own_weight=0.5",
	                "preference_own_weight=0.5 is not supported with preference_loss=kto"},
	        {"{\"prompt\":\"the old ship\",\"completion\":\" sea\",\"label\":true}\n", "max_length=2",
	                "no row is left: 0 longer than max_length were dropped, 1 have no answer"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		write_file("bad.jsonl", "%s", bad[i].rows);
		assert_ferry(2, NULL, "train model=%s data=%s/bad.jsonl output_dir=%s/no " KEYS "%s", speaker,
		        work_dir, work_dir, bad[i].keys);
		if (!strstr(ferry_said(), bad[i].says))
			fail_msg("%s: %s", bad[i].says, ferry_said());
	}
	assert_false(run_has("no/model"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_start),
	        cmocka_unit_test(test_offload_changes_no_bit),
	        cmocka_unit_test(test_resumed),
	        cmocka_unit_test(test_forms),
	        cmocka_unit_test(test_sizes),
	        cmocka_unit_test(test_refused),
	};
	int failed;

	ferry_run_begin("judged");
	speaker_make();
	write_file("strict.jinja", STRICT);
	path_of(speaker, "speaker");
	path_of(answers, "answers.jsonl");
	write_answers("answers.jsonl", 19, 3);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
