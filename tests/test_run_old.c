/* links: cli */
/* A checkpoint of an older ferry (tests/golden/old-checkpoint): the run continues with the right rows in
 * its own order, although new runs shuffle differently. */
#include "tests/run_fixture.h"

#include <math.h>

static char golden[4096];

/* The fp32 tensors of a safetensors file, after its header; their number in *count. */
static float *read_weights(const char *path, size_t *count)
{
	char *data = NULL;
	size_t len = 0;
	uint64_t header;
	float *weights;

	assert_int_equal(file_read_all(path, 1 << 20, &data, &len), 0);
	memcpy(&header, data, 8);
	assert_true(header + 8 < len);
	*count = (len - 8 - header) / sizeof(*weights);
	weights = malloc(*count * sizeof(*weights));
	assert_non_null(weights);
	memcpy(weights, data + 8 + header, *count * sizeof(*weights));
	mem_free(data);
	return weights;
}

/* Largest distance of two files' weights. */
static double distance(const char *path, const char *wanted_path)
{
	size_t count, wanted_count;
	float *got = read_weights(path, &count), *wanted = read_weights(wanted_path, &wanted_count);
	double most = 0;

	assert_int_equal(count, wanted_count);
	for (size_t i = 0; i < count; i++) {
		double d = fabs((double)got[i] - (double)wanted[i]);

		if (!(d <= most))
			most = d;
		if (isnan(most))
			break;
	}
	free(got);
	free(wanted);
	return most;
}

static void train(const char *run, const char *more)
{
	assert_ferry(0, NULL,
	        "train model=%s data=%s/rows.jsonl output_dir=%s/%s "
	        "device=host "
	        "threads=1 seed=7 compute_dtype=fp32 per_device_train_batch_size=2 max_steps=8 save_steps=0 "
	        "learning_rate=0.01 eval_split=3 %s",
	        golden, golden, work_dir, run, more);
}

static void test_old_order(void **state)
{
	char resume[5000], path[5000], reached[5000];

	(void)state;
	snprintf(reached, sizeof(reached), "%s/reached.safetensors", golden);
	snprintf(resume, sizeof(resume), "resume_from_checkpoint=%s/checkpoint-000004", golden);
	train("resumed", resume);
	snprintf(path, sizeof(path), "%s/resumed/model/model.safetensors", work_dir);
	/* matrix products round otherwise on another CPU; another order of rows is far beyond that */
	assert_true(distance(path, reached) <= 1e-5);
	train("anew", "init_weights=random");
	snprintf(path, sizeof(path), "%s/anew/model/model.safetensors", work_dir);
	assert_true(distance(path, reached) > 1e-3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_old_order),
	};
	int failed;

	snprintf(golden, sizeof(golden), "%s/tests/golden/old-checkpoint", getenv("FERRY_SOURCE"));
	ferry_run_begin("old");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
