/* links: cli */
/* Runs of DoRA: a new adapter computes what its base does; offload, ranks and resuming change no result; what
 * is not exact is refused. */
#include "tests/run_fixture.h"

static struct run_model tiny;

#define DORA                                                                                                 \
	"lora_rank=3 lora_alpha=6 use_dora=on learning_rate=1e-2 max_steps=4 threads=1 logging_steps=1 "     \
	"lr_scheduler_type=constant "

static void train(const char *out, const char *more)
{
	assert_ferry(0, NULL, "train model=%s data=%s output_dir=%s/%s " DORA "%s", tiny.dir, tiny.data,
	        work_dir, out, more);
}

static void assert_same_adapters(const char *a, const char *b)
{
	char one[400], other[400];

	snprintf(one, sizeof(one), "%s/%s/adapter/adapter_model.safetensors", work_dir, a);
	snprintf(other, sizeof(other), "%s/%s/adapter/adapter_model.safetensors", work_dir, b);
	assert_same_files(one, other, b);
}

/* B is zero and magnitudes are the norms of rows: the first loss is the model's own, the next are not. */
static void test_start(void **state)
{
	static const char *const dtypes[] = {"compute_dtype=fp32", "compute_dtype=bf16"};
	char plain[200];

	(void)state;
	for (int i = 0; i < 2; i++) {
		remove_run("with");
		remove_run("without");
		train("with", dtypes[i]);
		snprintf(plain, sizeof(plain), "%s use_dora=off", dtypes[i]);
		train("without", plain);
		assert_near_losses("with", "without", 1, i ? 1e-3 : 1e-6, dtypes[i]);
		assert_true(fabs(metric_of("with", 4, "loss") - metric_of("without", 4, "loss")) > 1e-4);
	}
}

/* Over a base that ferry quantizes, the magnitudes are the norms of the values that its codes stand for. */
static void test_quantized(void **state)
{
	static const char *const formats[] = {"nf4", "nf4 base_double_quant=off", "fp4", "fp8", "int8"};
	char keys[300];

	(void)state;
#define ALIKE "compute_dtype=fp32 overwrite_output_dir=on base_format=nf4 "
	train("alone", ALIKE "per_device_train_batch_size=2 cpu_offload=on");
	train("parted", ALIKE "per_device_train_batch_size=1 ranks=2");
	assert_near_losses("alone", "parted", 4, 1e-5, "two ranks");
	train("unquantized", "compute_dtype=fp32 overwrite_output_dir=on");
	for (size_t f = 0; f < sizeof(formats) / sizeof(*formats); f++) {
		snprintf(keys, sizeof(keys), "compute_dtype=fp32 overwrite_output_dir=on base_format=%s",
		        formats[f]);
		train("with", keys);
		snprintf(keys, sizeof(keys),
		        "compute_dtype=fp32 overwrite_output_dir=on use_dora=off base_format=%s", formats[f]);
		train("without", keys);
		assert_near_losses("with", "without", 1, 1e-6, formats[f]);
		assert_true(fabs(metric_of("with", 1, "loss") - metric_of("unquantized", 1, "loss")) > 1e-5);
		assert_true(fabs(metric_of("with", 4, "loss") - metric_of("without", 4, "loss")) > 1e-5);
	}
}

static void test_same(void **state)
{
	(void)state;
	train("base", "cpu_offload=off save_steps=2 per_device_train_batch_size=2");
	train("offload", "cpu_offload=on vram_budget=off per_device_train_batch_size=2");
	assert_same_adapters("base", "offload");
	assert_ferry(0, NULL,
	        "train model=%s data=%s output_dir=%s/again " DORA
	        "per_device_train_batch_size=2 resume_from_checkpoint=%s/base/checkpoint-000002",
	        tiny.dir, tiny.data, work_dir, work_dir);
	assert_same_adapters("base", "again");
	train("one", "compute_dtype=fp32 per_device_train_batch_size=2");
	train("ranks", "compute_dtype=fp32 per_device_train_batch_size=1 ranks=2");
	assert_near_losses("one", "ranks", 4, 1e-5, "two ranks");
}

/* Norms depend on the weights alone: a step finds them once, whatever its micro-batches and their order. */
static void test_once(void **state)
{
	static const char *const ways[] = {"gradient_accumulation_steps=1", "gradient_accumulation_steps=4",
	        "gradient_accumulation_steps=3 schedule=micro_batch_major"};
	int counts[3] = {0};

	(void)state;
	for (int i = 0; i < 3; i++) {
		struct str text = {0};

		assert_ferry(0, &text,
		        "plan model=%s lora_rank=3 use_dora=on max_length=16 device=host "
		        "activations=recompute cpu_offload=on vram_budget=off %s --explain",
		        tiny.dir, ways[i]);
		for (const char *at = text.data; (at = strstr(at, " compute ROW_NORMS ")); at++)
			counts[i]++;
		str_free(&text);
	}
	assert_true(counts[0] > 0);
	assert_int_equal(counts[1], counts[0]);
	assert_int_equal(counts[2], counts[0]);
}

static void assert_refused(const struct run_model *m, const char *keys, const char *says)
{
	assert_ferry(2, NULL, "train model=%s data=%s output_dir=%s/no " DORA "%s", m->dir, m->data, work_dir,
	        keys);
	if (!strstr(ferry_said(), says))
		fail_msg("%s: %s", keys, ferry_said());
}

static void test_refused(void **state)
{
	static const char *const cases[][2] = {
	        {"init_weights=random", "use_dora: DoRA begins with the norms"},
	        {"trainable=.*q_proj.weight", "q_proj.weight trains itself"}};
	struct run_model mixture;
	char keys[500];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		assert_refused(&tiny, cases[i][0], cases[i][1]);
	train("plain", "use_dora=off");
	snprintf(keys, sizeof(keys), "lora_adapter=%s/plain/adapter", work_dir);
	assert_refused(&tiny, keys, "plain/adapter has no magnitudes; leave it out");
	mixture_model(&mixture);
	assert_refused(&mixture, "lora_target_modules=gate_proj", "DoRA of experts is not supported");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_start),
	        cmocka_unit_test(test_quantized),
	        cmocka_unit_test(test_same),
	        cmocka_unit_test(test_once),
	        cmocka_unit_test(test_refused),
	};
	int failed;

	ferry_run_begin("dora");
	tiny_model(&tiny);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
