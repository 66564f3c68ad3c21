/* The program with the emulated GPU as its CUDA device: a run as on the host, whole runs that the GPU leaves
 * in the middle, too little memory, too little to pin. */
#include "tests/run_fixture.h"

static struct run_model tiny;

enum { STEPS = 4 };

/* Little beyond the reserves of the device: weights and gradients of every unit cross in every step. By
 * itself everything stays on the GPU. */
#define TIGHT " device=cuda vram_budget=302200000 "

static int setup(void **state)
{
	(void)state;
	ferry_run_begin("cuda");
	setenv("FERRY_MATMUL", "plain", 1);
	tiny_model(&tiny);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	ferry_run_end();
	return 0;
}

/* "ferry train" into work_dir/name; the exit code. */
static int train(const char *name, const char *more)
{
	return ferry_run(NULL,
	        "train model=%s data=%s data_format=tokens output_dir=%s/%s max_steps=%d save_steps=1 "
	        "save_total_limit=9 lr=1e-3 per_device_train_batch_size=2 gradient_accumulation_steps=2 "
	        "threads=2 %s",
	        tiny.dir, tiny.data, work_dir, name, STEPS, more);
}

static void check_train(int code, const char *name, const char *more)
{
	int got = train(name, more);

	if (got != code)
		fail_msg("%s: exit code %d, expected %d: %s", name, got, code, ferry_said());
}

static void check_same_model(const char *a, const char *b)
{
	char a_path[400], b_path[400];

	snprintf(a_path, sizeof(a_path), "%s/%s/model/model.safetensors", work_dir, a);
	snprintf(b_path, sizeof(b_path), "%s/%s/model/model.safetensors", work_dir, b);
	assert_same_files(a_path, b_path, "one training");
}

/* The losses of a run, STEPS of them. */
static void losses_of(double *losses, const char *name)
{
	char *text = run_numbers(name), *at = text;

	for (int i = 0; i < STEPS; i++) {
		at = strstr(at, " loss ");
		assert_non_null(at);
		losses[i] = strtod(at + 6, &at);
	}
	mem_free(text);
}

/* auto takes the GPU; losses are the host's but for rounding. No schedule, and no offload policy, changes a
 * bit. */
static void test_train(void **state)
{
	double host[STEPS], cuda[STEPS];

	(void)state;
	check_train(0, "host", "compute_dtype=fp32 device=host");
	check_train(0, "cuda", "compute_dtype=fp32");
	assert_non_null(strstr(ferry_said(), "SIMT emulator"));
	losses_of(host, "host");
	losses_of(cuda, "cuda");
	for (int i = 0; i < STEPS; i++)
		assert_true(host[i] - cuda[i] < 1e-4 && cuda[i] - host[i] < 1e-4);
	setenv("FERRY_SIMT_SEED", "77", 1);
	check_train(0, "seed", "compute_dtype=fp32 activations=offload device=cuda vram_budget=302300000");
	unsetenv("FERRY_SIMT_SEED");
	check_same_model("cuda", "seed");
	setenv("FERRY_SIMT_EAGER", "1", 1);
	check_train(0, "off", "compute_dtype=fp32 device=cuda cpu_offload=off");
	unsetenv("FERRY_SIMT_EAGER");
	check_same_model("cuda", "off");
}

/* The GPU is lost early, in the middle and late: exit 1, what was committed verifies, and going on from there
 * ends where a run without trouble does. */
static void test_gpu_is_lost(void **state)
{
	static const char *const at[] = {"1", "600", "1500"};
	int lost = 0, resumed = 0;

	(void)state;
	check_train(0, "whole", TIGHT);
	for (size_t i = 0; i < sizeof(at) / sizeof(*at); i++) {
		char name[32], path[400];
		int code;

		snprintf(name, sizeof(name), "lost-%s", at[i]);
		setenv("FERRY_SIMT_FAIL_WORK", at[i], 1);
		code = train(name, TIGHT);
		unsetenv("FERRY_SIMT_FAIL_WORK");
		if (!code) /* it was done by then */
			continue;
		lost++;
		assert_int_equal(code, 1);
		assert_non_null(strstr(ferry_said(), "uncorrectable ECC error"));
		snprintf(path, sizeof(path), "%s/%s/checkpoint-000001", work_dir, name);
		if (file_kind_of(path) == FILE_DIR) {
			assert_ferry(0, NULL, "verify %s", path);
			resumed++;
		}
		check_train(0, name, TIGHT "resume_from_checkpoint=auto");
		check_same_model("whole", name);
	}
	assert_true(lost == 3 && resumed >= 1);
}

static void test_memory(void **state)
{
	struct str out = {0};

	(void)state;
	setenv("FERRY_SIMT_MEMORY_BYTES", "301989888", 1); /* the reserves, and nothing beside them */
	check_train(5, "none", "device=cuda");
	assert_non_null(strstr(ferry_said(), "the device's libraries"));
	setenv("FERRY_SIMT_MEMORY_BYTES", "306885000", 1); /* a 64th of it is left free */
	check_train(5, "little", "device=cuda");
	assert_non_null(strstr(ferry_said(), "more than the "));
	unsetenv("FERRY_SIMT_MEMORY_BYTES");
	assert_ferry(0, &out, "plan model=%s device=cuda", tiny.dir);
	assert_non_null(strstr(out.data, "planned for a GPU: device=cuda"));
	assert_ferry(0, &out, "plan model=%s", tiny.dir);
	assert_non_null(strstr(out.data, "planned for the host: without machine=FILE, device=auto"));
	assert_non_null(strstr(out.data, "device=cuda plans for the SIMT emulator"));
	str_free(&out);
}

static void test_pin_limit(void **state)
{
	(void)state;
	setenv("FERRY_SIMT_PIN_BYTES", "4096", 1);
	check_train(0, "pageable", TIGHT);
	unsetenv("FERRY_SIMT_PIN_BYTES");
	assert_non_null(strstr(ferry_said(), "of host memory could be pinned"));
	check_train(0, "pinned", TIGHT);
	assert_null(strstr(ferry_said(), "could be pinned"));
	check_same_model("pageable", "pinned");
}

static void test_topo(void **state)
{
	struct str out = {0};
	json_t *root;

	(void)state;
	assert_ferry(0, &out, "topo");
	assert_non_null(strstr(out.data, "SIMT emulator"));
	assert_non_null(strstr(out.data, "device                 cuda: GPU 0"));
	str_free(&out);
	assert_ferry_json(&root, "topo --json");
	assert_int_equal(json_array_size(json_object_get(root, "gpus")), 1);
	assert_string_equal(json_string_value(json_object_get(root, "device")), "cuda");
	json_decref(root);
	setenv("FERRY_SIMT_DEVICES", "0", 1);
	assert_ferry(0, &out, "topo");
	unsetenv("FERRY_SIMT_DEVICES");
	assert_non_null(strstr(out.data, "none: there is no NVIDIA GPU that this process may use"));
	str_free(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_train),
	        cmocka_unit_test(test_gpu_is_lost),
	        cmocka_unit_test(test_memory),
	        cmocka_unit_test(test_pin_limit),
	        cmocka_unit_test(test_topo),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
