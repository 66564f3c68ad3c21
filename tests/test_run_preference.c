/* links: cli */
/* Preference training: the start at ln 2, no bit of offload, resumed runs and several ranks, the numbers of
 * evaluation, and refusals. */
#include "tests/run_fixture.h"
#include "tests/sparing.h"

#include <math.h>

static char speaker[400], pairs[400];

#define KEYS                                                                                                 \
	"preference_loss=sigmoid learning_rate=1e-2 per_device_train_batch_size=2 max_steps=5 threads=1 "    \
	"logging_steps=1 lr_scheduler_type=constant overwrite_output_dir=on export_dtype=fp32 "

static void write_pairs(const char *name, int count, uint64_t seed)
{
	static const char *const words[] = {
	        "red", "green", "old", "ship", "moves", "slowly", "over", "the", "sea", "again"};
	struct str text = {0};
	uint64_t draw = 0;

	for (int row = 0; row < count; row++) {
		static const char *const names[] = {"prompt", "chosen", "rejected"};

		for (int i = 0; i < 3; i++) {
			int length = 1 + (int)rng_below(seed, 1, draw++, 9);

			str_printf(&text, "%s\"%s\":\"", i ? "," : "{", names[i]);
			for (int w = 0; w < length; w++)
				str_printf(&text, "%s%s", i || w ? " " : "",
				        words[rng_below(seed, 2, draw++, 10)]);
			str_add(&text, i ? "\"" : ":\"");
		}
		str_add(&text, "}\n");
	}
	write_file(name, "%s", text.data);
	str_free(&text);
}

static void train(const char *out, const char *more)
{
	assert_ferry(0, NULL,
	        "train model=%s data=%s output_dir=%s/%s " KEYS "gradient_accumulation_steps=2 %s", speaker,
	        pairs, work_dir, out, more);
}

static void assert_near(double got, double want, double tolerance)
{
	if (!(fabs(got - want) <= tolerance))
		fail_msg("%.12g, not %.12g within %g", got, want, tolerance);
}

/* The model is its reference: every margin is zero and the loss ln 2, to the bit of the log probabilities. */
static void test_start(void **state)
{
	static const char *const more[] = {
	        "compute_dtype=fp32 max_steps=20", "compute_dtype=bf16 lora_rank=3 max_steps=20"};

	(void)state;
	for (int i = 0; i < 2; i++) {
		train("a", more[i]);
		assert_near(metric_of("a", 1, "loss"), log(2), 1e-15);
		assert_near(metric_of("a", 1, "rewards/margins"), 0, 0);
		assert_true(metric_of("a", 20, "loss") < 0.65);
		assert_near(metric_of("a", 20, "rewards/chosen") - metric_of("a", 20, "rewards/rejected"),
		        metric_of("a", 20, "rewards/margins"), 1e-9);
		assert_true(metric_of("a", 1, "logps/chosen") < 0);
		assert_true(metric_of("a", 20, "rewards/accuracies") > 0.7);
		assert_true(isnan(metric_of("a", 20, "perplexity")));
	}
}

static void test_offload_changes_no_bit(void **state)
{
	static const char *const dtypes[] = {
	        "compute_dtype=bf16", "compute_dtype=fp32 lora_rank=3 preference_loss=ipo"};
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
			if (!d && strstr(others[i],
			                  "micro_batch_major")) /* sums a tied embedding's in another order */
				continue;
			snprintf(more, sizeof(more), "%s %s", dtypes[d], others[i]);
			train("other", more);
			assert_same_runs("base", "other", more);
		}
	}
}

static void make_last_value_nan(const char *path)
{
	size_t len;
	char *data = read_file(path, &len);

	memset(data + len - 8, 0xff, 8);
	assert_int_equal(file_write_all(path, data, len), 0);
	mem_free(data);
}

/* The reference of a resumed run is that of its start, not the model of its checkpoint. */
static void test_resumed(void **state)
{
	char a[400], b[400], *before, *after;
	size_t len;

	(void)state;
	train("whole", "save_steps=2 save_total_limit=all eval_split=4 eval_steps=2");
	for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
		train("part", "save_steps=2 save_total_limit=all eval_split=4 eval_steps=2");
		remove_run("other");
		assert_ferry(0, NULL,
		        "train %s/part/config.yaml resume_from_checkpoint=%s/part/checkpoint-000002 "
		        "output_dir=%s/%s overwrite_output_dir=off",
		        work_dir, work_dir, work_dir, elsewhere ? "other" : "part");
		snprintf(a, sizeof(a), "%s/whole/model/model.safetensors", work_dir);
		snprintf(b, sizeof(b), "%s/%s/model/model.safetensors", work_dir,
		        elsewhere ? "other" : "part");
		assert_same_files(a, b, "resumed");
		snprintf(a, sizeof(a), "%s/whole/reference.safetensors", work_dir);
		snprintf(b, sizeof(b), "%s/%s/reference.safetensors", work_dir, elsewhere ? "other" : "part");
		assert_same_files(a, b, "the reference");
	}
	/* a run that was shorter at first */
	train("part", "max_steps=2 save_steps=2 eval_split=4 eval_steps=2 lr_scheduler_type=constant");
	assert_ferry(0, NULL,
	        "train %s/part/config.yaml resume_from_checkpoint=auto max_steps=5 overwrite_output_dir=off",
	        work_dir);
	assert_same_runs("whole", "part", "resumed with more steps");

	/* other rows, and none */
	assert_ferry(2, NULL,
	        "train %s/part/config.yaml resume_from_checkpoint=auto max_steps=6 eval_split=5 "
	        "overwrite_output_dir=off",
	        work_dir);
	assert_non_null(strstr(ferry_said(), "order: eval_split was 4 and is 5; set eval_split=4"));
	assert_ferry(2, NULL,
	        "train %s/part/config.yaml resume_from_checkpoint=auto max_steps=6 data_split=train[:9] "
	        "overwrite_output_dir=off",
	        work_dir);
	assert_non_null(strstr(ferry_said(), "data_split was not set and is train[:9]; remove data_split"));
	snprintf(a, sizeof(a), "%s/part/reference.safetensors", work_dir);
	make_last_value_nan(a);
	assert_ferry(2, NULL,
	        "train %s/part/config.yaml resume_from_checkpoint=auto max_steps=6 overwrite_output_dir=off",
	        work_dir);
	assert_non_null(strstr(ferry_said(), "not finite: the file is damaged"));
	assert_int_equal(remove(a), 0);
	assert_ferry(2, NULL,
	        "train %s/part/config.yaml resume_from_checkpoint=auto max_steps=6 overwrite_output_dir=off",
	        work_dir);
	assert_non_null(strstr(ferry_said(), "reference.safetensors is missing"));
	snprintf(a, sizeof(a), "%s/part/config.yaml", work_dir);
	assert_int_equal(file_read_all(a, 1 << 20, &before, &len), 0);
	assert_ferry(2, NULL,
	        "train %s/part/config.yaml resume_from_checkpoint=auto max_steps=6 learning_rate=7e-3 "
	        "overwrite_output_dir=off",
	        work_dir);
	assert_int_equal(file_read_all(a, 1 << 20, &after, &len), 0);
	assert_string_equal(before, after); /* a run that cannot go on changes nothing */
	mem_free(before);
	mem_free(after);
}

/* Other pairs to evaluate on: the key is named. */
static void test_other_evaluation(void **state)
{
	char more[600];

	(void)state;
	remove_run("e");
	snprintf(more, sizeof(more),
	        "eval_data=%s eval_data_split=train[:4] eval_steps=2 max_steps=2 save_steps=2", pairs);
	train("e", more);
	assert_ferry(2, NULL,
	        "train %s/e/config.yaml resume_from_checkpoint=auto max_steps=4 eval_data_split=train[:5] "
	        "overwrite_output_dir=off",
	        work_dir);
	assert_non_null(
	        strstr(ferry_said(), "than those to evaluate on: eval_data_split was train[:4] and is "
	                             "train[:5]"));
}

/* Pairs of a mixed set that an evaluation draws again, on one rank or two, have one reference: before the
 * model learns the loss is ln 2. Resumed with other weights, pairs that were not drawn have one too. */
static void test_mixed_evaluation(void **state)
{
	char more[900];

	(void)state;
	write_pairs("few.jsonl", 3, 9); /* an odd number, so that two ranks take turns with each */
	for (int ranks = 1; ranks <= 2; ranks++) {
		snprintf(more, sizeof(more),
		        "eval_data=%s:1,%s/few.jsonl:5 data_mix=all_exhausted eval_steps=1 max_steps=1 "
		        "learning_rate=1e-12 compute_dtype=fp32 per_device_eval_batch_size=1 ranks=%d",
		        pairs, work_dir, ranks);
		train("mixed", more);
		assert_near(metric_of("mixed", 1, "eval_loss"), log(2), 1e-5);
	}
	snprintf(more, sizeof(more),
	        "eval_data=%s:1,%s/few.jsonl:5 eval_steps=1 max_steps=1 learning_rate=1e-12 save_steps=1 "
	        "compute_dtype=fp32",
	        pairs, work_dir);
	train("mixed", more);
	assert_ferry(0, NULL,
	        "train %s/mixed/config.yaml resume_from_checkpoint=auto max_steps=2 overwrite_output_dir=off "
	        "eval_data=%s:5,%s/few.jsonl:1",
	        work_dir, pairs, work_dir);
	assert_near(metric_of("mixed", 2, "eval_loss"), log(2), 1e-5);
}

/* N ranks are one rank to rounding, and each row's reference is computed by one of them. */
static void test_ranks(void **state)
{
	static const char *const keys[] = {"loss", "grad_norm", "rewards/chosen", "rewards/rejected",
	        "rewards/accuracies", "logps/chosen", "eval_loss", "eval_rewards/margins"};

	(void)state;
	train("one", "compute_dtype=fp32 eval_split=4 eval_steps=5 max_grad_norm=0");
	assert_ferry(0, NULL,
	        "train model=%s data=%s output_dir=%s/two " KEYS "gradient_accumulation_steps=1 "
	        "compute_dtype=fp32 eval_split=4 eval_steps=5 max_grad_norm=0 ranks=2",
	        speaker, pairs, work_dir);
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		double want = metric_of("one", 5, keys[i]);

		assert_near(metric_of("two", 5, keys[i]), want, 1e-4 * fabs(want) + 1e-5);
	}
	assert_ferry(0, NULL,
	        "train %s/two/config.yaml resume_from_checkpoint=auto max_steps=7 overwrite_output_dir=off "
	        "load=rank0_only",
	        work_dir);
}

/* The reference is of all pairs, also of those that no step reaches. */
static void test_later_pairs_are_longer(void **state)
{
	(void)state;
	write_file("growing.jsonl", "{\"prompt\":\"the\",\"chosen\":\" sea\",\"rejected\":\" ship\"}\n"
	                            "{\"prompt\":\"the old ship moves slowly over the\",\"chosen\":\" sea "
	                            "again\",\"rejected\":\" red "
	                            "ship again, slowly over the green sea\"}\n");
	assert_ferry(0, NULL,
	        "train model=%s data=%s/growing.jsonl output_dir=%s/a " KEYS
	        "per_device_train_batch_size=1 max_steps=1 shuffle=off",
	        speaker, work_dir, work_dir);
	assert_near(metric_of("a", 1, "loss"), log(2), 1e-15);
}

/* Each loss learns. simpo has no reference, and needs no pass over the rows. */
static void test_losses(void **state)
{
	static const char *const losses[] = {"hinge", "ipo", "robust", "exo_pair", "nca_pair", "bco_pair",
	        "sppo_hard", "apo_zero", "apo_down", "discopop", "sigmoid_norm", "simpo"};

	(void)state;
	for (size_t i = 0; i < sizeof(losses) / sizeof(*losses); i++) {
		char more[200];

		remove_run("a");
		snprintf(more, sizeof(more), "preference_loss=%s max_steps=8 %s", losses[i],
		        i == 2 || i == 3 ? "preference_label_smoothing=0.1" : "");
		train("a", more);
		if (!(metric_of("a", 8, "loss") < metric_of("a", 1, "loss")))
			fail_msg("%s: %g, then %g", losses[i], metric_of("a", 1, "loss"),
			        metric_of("a", 8, "loss"));
		assert_int_equal(run_has("a/reference.safetensors"), strcmp(losses[i], "simpo") != 0);
	}
	/* simpo, the last one, compares means over tokens, and so do its rewards */
	assert_near(metric_of("a", 1, "rewards/chosen"), 0.1 * metric_of("a", 1, "logps/chosen"), 1e-6);
	assert_near(metric_of("a", 1, "logps/chosen"), -log(2000), 1);
}

/* Evaluation on the training's pairs after zero steps' worth of change is ln 2; and has TRL's names. */
static void test_evaluation(void **state)
{
	char more[600];

	(void)state;
	snprintf(more, sizeof(more), "eval_data=%s eval_steps=1 learning_rate=0 max_steps=1", pairs);
	train("a", more);
	assert_near(metric_of("a", 1, "eval_loss"), log(2), 1e-6);
	assert_near(metric_of("a", 1, "eval_rewards/margins"), 0, 1e-5);
	assert_true(isnan(metric_of("a", 1, "eval_perplexity")));
	train("a", "eval_split=0.25 eval_steps=2");
	assert_true(isfinite(metric_of("a", 4, "eval_loss")));
	assert_true(isfinite(metric_of("a", 5, "eval_rewards/accuracies")));
}

static double planned_ms(const char *keys)
{
	const char *source = getenv("FERRY_SOURCE");
	json_t *got;
	double ms;

	assert_ferry_json(&got,
	        "plan model=%s/words.json machine=%s/examples/machines/pc-rtx-4090.yaml max_length=128 "
	        "--json %s",
	        work_dir, source ? source : ".", keys);
	ms = json_number_value(json_object_get(got, "step_ms"));
	json_decref(got);
	assert_true(ms > 0);
	return ms;
}

/* A plan counts both texts of a pair, and that the head goes over them twice. */
static void test_plan(void **state)
{
	(void)state;
	assert_true(planned_ms("preference_loss=sigmoid per_device_train_batch_size=64") >
	            planned_ms("per_device_train_batch_size=128"));
	assert_true(planned_ms("preference_loss=sigmoid per_device_train_batch_size=64") <
	            1.6 * planned_ms("per_device_train_batch_size=128"));
}

static void test_refused(void **state)
{
	(void)state;
	write_file("texts.jsonl", "{\"prompt\":\"the\",\"completion\":\" sea\"}\n");
	assert_ferry(2, NULL, "train model=%s data=%s/texts.jsonl output_dir=%s/no " KEYS, speaker, work_dir,
	        work_dir);
	assert_non_null(strstr(ferry_said(), "preference_loss"));
	assert_ferry(
	        2, NULL, "train model=%s data=%s output_dir=%s/no max_steps=1", speaker, pairs, work_dir);
	assert_non_null(strstr(ferry_said(), "preference_loss=sigmoid"));
	assert_ferry(2, NULL, "eval model=%s data=%s", speaker, pairs);
	assert_ferry(2, NULL, "train model=%s data=%s output_dir=%s/no packing=bfd " KEYS, speaker, pairs,
	        work_dir);
	assert_non_null(strstr(ferry_said(), "packing"));
	assert_ferry(2, NULL, "train model=%s data=%s output_dir=%s/no preference_beta=1 max_steps=1",
	        speaker, pairs, work_dir);
	assert_non_null(strstr(ferry_said(), "preference_"));
	assert_false(run_has("no/model"));
	train("dora", "lora_rank=2 use_dora=on max_steps=1");
	assert_ferry(2, NULL,
	        "train model=%s data=%s output_dir=%s/no lora_adapter=%s/dora/adapter "
	        "preference_reference=base " KEYS,
	        speaker, pairs, work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "preference_reference=base cannot take off its magnitudes"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_start),
	        cmocka_unit_test(test_mixed_evaluation),
	        cmocka_unit_test(test_offload_changes_no_bit),
	        cmocka_unit_test(test_resumed),
	        cmocka_unit_test(test_other_evaluation),
	        cmocka_unit_test(test_ranks),
	        cmocka_unit_test(test_later_pairs_are_longer),
	        cmocka_unit_test(test_losses),
	        cmocka_unit_test(test_evaluation),
	        cmocka_unit_test(test_plan),
	        cmocka_unit_test(test_refused),
	};
	int failed;

	ferry_run_begin("preference");
	speaker_make();
	path_of(speaker, "speaker");
	path_of(pairs, "pairs.jsonl");
	write_pairs("pairs.jsonl", 17, 3);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
