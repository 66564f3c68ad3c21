/* links: cli */
/* Runs of DoRA: a new adapter computes what its base does; offload, ranks and resuming change no result; what
 * is not exact is refused. */
#include "tests/run_fixture.h"

#include <math.h>
#include <stdlib.h>

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

static double first_loss(const char *out, const char *more)
{
	char *numbers, *at;
	double loss;

	remove_run(out);
	train(out, more);
	numbers = run_numbers(out);
	at = strstr(numbers, "loss");
	assert_non_null(at);
	loss = strtod(at + strcspn(at, "0123456789"), NULL);
	mem_free(numbers);
	assert_true(loss > 0.1);
	return loss;
}

/* B is zero and magnitudes are the norms of rows: the first loss is the model's own. */
static void test_start(void **state)
{
	static const char *const dtypes[] = {"compute_dtype=fp32", "compute_dtype=bf16"};
	char plain[200];

	(void)state;
	for (int i = 0; i < 2; i++) {
		double with = first_loss("with", dtypes[i]), without;

		snprintf(plain, sizeof(plain), "%s use_dora=off", dtypes[i]);
		without = first_loss("without", plain);
		assert_true(fabs(with - without) <= (i ? 1e-3 : 1e-6) * without);
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
}

static void test_refused(void **state)
{
	static const char *const cases[][2] = {{"base_format=nf4", "use_dora: DoRA over a base"},
	        {"init_weights=random", "use_dora: DoRA begins with the norms"},
	        {"trainable=.*q_proj.weight", "q_proj.weight trains itself"}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_ferry(2, NULL, "train model=%s data=%s output_dir=%s/no " DORA "%s", tiny.dir,
		        tiny.data, work_dir, cases[i][0]);
		if (!strstr(ferry_said(), cases[i][1]))
			fail_msg("%s: %s", cases[i][0], ferry_said());
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_start),
	        cmocka_unit_test(test_same),
	        cmocka_unit_test(test_refused),
	};
	int failed;

	ferry_run_begin("dora");
	tiny_model(&tiny);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
