/* links: cli */
/* The loss that keeps experts evenly used, and how evenly they are: beside transformers
 * (tests/golden/make_balance.py), wherever weights lie, resumed, on ranks; and files that ask for it. */
#include "tests/run_fixture.h"
#include "tests/sparing.h"

#include <math.h>

static struct run_model mixture;
static const char *goldens; /* directory of golden models, or NULL */

#define COMMON                                                                                               \
	"per_device_train_batch_size=2 gradient_accumulation_steps=2 max_steps=4 threads=1 logging_steps=1 " \
	"lr_scheduler_type=constant weight_decay=0 learning_rate=1e-3 shuffle=off device=host "

static void train(const struct run_model *m, const char *out, const char *settings, const char *more)
{
	assert_ferry(0, NULL,
	        "train model=%s data=%s output_dir=%s/%s overwrite_output_dir=on " COMMON "%s %s", m->dir,
	        m->data, work_dir, out, settings, more);
}

/* fp32 beside fp64: a step's numbers differ by rounding, which training grows. */
static void golden_check(const char *name, const json_t *want)
{
	static const struct {
		const char *key;
		double bound;
	} keys[] = {{"loss", 2e-6}, {"aux_loss", 2e-6}, {"grad_norm", 5e-5}};
	struct run_model m;
	const json_t *steps = json_object_get(want, "steps");
	char coefficient[80];

	golden_model(&m, goldens, name);
	snprintf(coefficient, sizeof(coefficient), "router_aux_loss_coef=%g",
	        json_number_value(json_object_get(want, "coefficient")));
	train(&m, "out", "compute_dtype=fp32", coefficient);
	for (size_t step = 0; step < json_array_size(steps); step++)
		for (size_t k = 0; k < sizeof(keys) / sizeof(*keys); k++) {
			double a = metric_of("out", (int64_t)step + 1, keys[k].key),
			       b = json_number_value(
			               json_object_get(json_array_get(steps, step), keys[k].key));

			if (!(fabs(a - b) <= keys[k].bound * b))
				fail_msg("%s, step %zu: %s %.9g, transformers %.9g", name, step + 1,
				        keys[k].key, a, b);
		}
}

static void test_as_transformers(void **state)
{
	const char *source = getenv("FERRY_SOURCE");
	char path[500];
	const char *name;
	json_t *cases, *want;
	int found = 0;

	(void)state;
	if (!goldens)
		skip();
	snprintf(path, sizeof(path), "%s/tests/golden/balance.json", source ? source : ".");
	assert_int_equal(json_read_file(&cases, path, 1 << 20), 0);
	json_object_foreach(cases, name, want) if (found++ % sparing(3) == 0) golden_check(name, want);
	assert_true(found >= 7);
	json_decref(cases);
}

#define WITH "router_aux_loss_coef=0.3 "

static void test_where_weights_lie(void **state)
{
	static const char *const ways[] = {"cpu_offload=on vram_budget=off",
	        "cpu_offload=on vram_budget=off activations=offload stream_delay_seed=3",
	        "cpu_offload=params activations=keep",
	        "cpu_offload=on vram_budget=off prefetch_units=1 threads=2"};
	static const char *const kinds[] = {WITH "compute_dtype=bf16",
	        WITH "compute_dtype=fp32 'freeze=.*layers\\.[01]\\..*'",
	        WITH "compute_dtype=bf16 schedule=micro_batch_major",
	        WITH "lora_rank=2 lora_target_modules=q_proj,up_proj,gate_proj"};

	(void)state;
	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
		train(&mixture, "off", kinds[k], "cpu_offload=off");
		for (size_t w = 0; w < sizeof(ways) / sizeof(*ways); w++) {
			train(&mixture, "on", kinds[k], ways[w]);
			assert_same_runs("off", "on", ways[w]);
		}
	}
}

static void test_resumed(void **state)
{
	(void)state;
	train(&mixture, "whole", WITH, "save_steps=2");
	train(&mixture, "part", WITH, "save_steps=2 max_steps=2");
	assert_ferry(0, NULL,
	        "train model=%s data=%s output_dir=%s/part " COMMON WITH
	        "save_steps=2 resume_from_checkpoint=auto",
	        mixture.dir, mixture.data, work_dir);
	assert_same_runs("whole", "part", "resumed");
}

/* The loss is a mean over the micro-batches of all ranks, and loads count all of their rows. */
static void test_ranks(void **state)
{
	static const char *const keys[] = {"loss", "grad_norm", "aux_loss", "expert_load", "experts_used"};
	static const char *const strategies[] = {"FULL_SHARD", "NO_SHARD"};

	(void)state;
	train(&mixture, "one", WITH, "compute_dtype=fp32");
	for (int i = 0; i < 2; i++) {
		char more[200];

		snprintf(more, sizeof(more),
		        "compute_dtype=fp32 gradient_accumulation_steps=1 ranks=2 sharding_strategy=%s",
		        strategies[i]);
		train(&mixture, "two", WITH, more);
		for (int64_t step = 1; step <= 4; step++)
			for (size_t k = 0; k < sizeof(keys) / sizeof(*keys); k++) {
				double a = metric_of("one", step, keys[k]),
				       b = metric_of("two", step, keys[k]);

				if (!(fabs(a - b) <= 1e-5 * a))
					fail_msg("%s: %s of step %lld is %.9g, on one rank %.9g",
					        strategies[i], keys[k], (long long)step, b, a);
			}
	}
}

/* The coefficient times the loss is all that differs in the first step. */
static void test_without(void **state)
{
	(void)state;
	train(&mixture, "with", WITH, "compute_dtype=fp32");
	train(&mixture, "without", "compute_dtype=fp32", "");
	assert_true(isnan(metric_of("without", 1, "aux_loss")));
	assert_true(fabs(metric_of("with", 1, "loss") - metric_of("without", 1, "loss") -
	                    0.3 * metric_of("with", 1, "aux_loss")) < 1e-6);
	assert_true(metric_of("with", 1, "grad_norm") != metric_of("without", 1, "grad_norm"));
	assert_true(
	        metric_of("without", 1, "expert_load") >= 1 && metric_of("without", 1, "expert_load") <= 6);
	assert_true(
	        metric_of("without", 1, "experts_used") > 0 && metric_of("without", 1, "experts_used") <= 1);
}

/* What a run does with these settings, and the coefficient that its first step shows; 0: none. */
static void coefficient_check(const char *settings, double want)
{
	double got = 0, aux;

	train(&mixture, "plain", "compute_dtype=fp32", "max_steps=1 router_aux_loss_coef=0");
	train(&mixture, "out", "compute_dtype=fp32 max_steps=1", settings);
	aux = metric_of("out", 1, "aux_loss");
	if (!isnan(aux))
		got = (metric_of("out", 1, "loss") - metric_of("plain", 1, "loss")) / aux;
	if (!(fabs(got - want) < 1e-6))
		fail_msg("%s: %.9g, wanted %g", settings, got, want);
}

static void config_change(const char *key, const char *value)
{
	char path[700];
	json_t *config;

	snprintf(path, sizeof(path), "%s/config.json", mixture.dir);
	assert_int_equal(json_read_file(&config, path, 1 << 20), 0);
	if (value)
		json_object_set_new(config, key, json_loads(value, JSON_DECODE_ANY, NULL));
	else
		json_object_del(config, key);
	assert_int_equal(json_dump_file(config, path, 0), 0);
	json_decref(config);
}

static void test_who_asks(void **state)
{
	(void)state;
	coefficient_check("", 0);
	coefficient_check("router_aux_loss_coef=model", 0.001);
	coefficient_check("moe_aux_loss_coef=0.02", 0.02);
	config_change("output_router_logits", "true");
	coefficient_check("", 0.001);
	config_change("router_aux_loss_coef", "0.05");
	coefficient_check("", 0.05);
	coefficient_check("router_aux_loss_coef=0", 0);
	config_change("output_router_logits", NULL);
	coefficient_check("", 0);
	coefficient_check("router_aux_loss_coef=model", 0.05);
	config_change("router_aux_loss_coef", "-1");
	assert_ferry(2, NULL, "train model=%s data=%s output_dir=%s/no", mixture.dir, mixture.data, work_dir);
	assert_non_null(strstr(ferry_said(), "router_aux_loss_coef is -1, must be 0 to 1e+06"));
	config_change("router_aux_loss_coef", NULL);
}

/* Files of other trainers: the key, what its absence means, and what is shown. */
static void test_files(void **state)
{
	static const struct {
		const char *text;
		double coefficient;
	} files[] = {
	        {"assistant_only_loss: false\nuse_peft: false\n", 0.001}, /* TRL */
	        {"assistant_only_loss: false\nuse_peft: false\nrouter_aux_loss_coef: 0.0\n", 0},
	        {"assistant_only_loss: false\nuse_peft: false\nrouter_aux_loss_coef: 0.2\n", 0.2},
	        {"sample_packing: false\nmicro_batch_size: 2\nflash_attention: false\nmodel_config:\n"
	         "  output_router_logits: true\n",
	                0.001}, /* axolotl */
	        {"sample_packing: false\nmicro_batch_size: 2\nflash_attention: false\nmodel_config:\n"
	         "  output_router_logits: true\n  router_aux_loss_coef: 0.1\n",
	                0.1},
	        {"sample_packing: false\nmicro_batch_size: 2\nflash_attention: false\nmodel_config:\n"
	         "  router_aux_loss_coef: 0.1\n",
	                0},
	        {"stage: sft\nfinetuning_type: full\ncutoff_len: 64\nmoe_aux_loss_coef: 0.03\n",
	                0.03}, /* LLaMA-Factory */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		char settings[400];

		write_file("file.yaml", "%s", files[i].text);
		snprintf(settings, sizeof(settings), "%s/file.yaml", work_dir);
		coefficient_check(settings, files[i].coefficient);
	}
}

static void test_refused(void **state)
{
	struct run_model tiny;

	(void)state;
	tiny_model(&tiny);
	assert_ferry(2, NULL, "train model=%s data=%s output_dir=%s/no router_aux_loss_coef=0.01", tiny.dir,
	        tiny.data, work_dir);
	assert_non_null(strstr(ferry_said(), "router_aux_loss_coef=0.01: models of type llama have no such "
	                                     "loss in transformers; remove the "
	                                     "key"));
	train(&tiny, "out", "router_aux_loss_coef=model", "max_steps=1");
	assert_ferry(2, NULL,
	        "train model=%s data=%s output_dir=%s/no router_aux_loss_coef=0.01 "
	        "embedding_loss=cosine",
	        mixture.dir, mixture.data, work_dir);
	assert_non_null(strstr(ferry_said(), "router_aux_loss_coef"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_transformers),
	        cmocka_unit_test(test_where_weights_lie), cmocka_unit_test(test_resumed),
	        cmocka_unit_test(test_ranks), cmocka_unit_test(test_without), cmocka_unit_test(test_who_asks),
	        cmocka_unit_test(test_files), cmocka_unit_test(test_refused)};
	int failed;

	ferry_run_begin("run-balance");
	mixture_model(&mixture);
	goldens = golden_dir("test_run_balance with golden models");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
