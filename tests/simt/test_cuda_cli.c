/* The program with the emulated GPU as its CUDA device: a run like on the host, a GPU lost in the middle
 * of whole runs, too little GPU memory, too little pinned memory. */
#include "tests/run_fixture.h"

#include "device/backend.h"

#include <math.h>

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
	static const char *const at[] = {"1", "1020", "1920"}; /* measuring has 420 */
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

/* Another process takes GPU memory between reading what is free and allocating it: planned again, once,
 * with the same result. Earlier allocations are for products and for measuring. */
static void test_memory_goes(void **state)
{
	int found = 0;

	(void)state;
	check_train(0, "stays", "device=cuda");
	for (int i = 2; i < 12 && !found; i++) {
		char first[8];

		snprintf(first, sizeof(first), "%d", i);
		setenv("FERRY_SIMT_REFUSED_FIRST", first, 1);
		setenv("FERRY_SIMT_REFUSED_COUNT", "1", 1);
		train("goes", "device=cuda overwrite_output_dir=on");
		found = strstr(ferry_said(), "planning again with what is free now") != NULL;
	}
	assert_true(found);
	check_same_model("stays", "goes");
	setenv("FERRY_SIMT_REFUSED_COUNT", "2", 1);
	check_train(1, "gone", "device=cuda");
	assert_non_null(strstr(ferry_said(), "of GPU memory in one piece"));
	unsetenv("FERRY_SIMT_REFUSED_FIRST");
	unsetenv("FERRY_SIMT_REFUSED_COUNT");
}

static void test_memory(void **state)
{
	struct str out = {0};

	(void)state;
	setenv("FERRY_SIMT_MEMORY_BYTES", "301989888", 1); /* the reserves, and nothing beside them */
	check_train(5, "none", "device=cuda");
	assert_non_null(strstr(ferry_said(), "GPU libraries take"));
	setenv("FERRY_SIMT_MEMORY_BYTES", "306885000", 1); /* a 64th of it is left free */
	check_train(5, "little", "device=cuda");
	assert_non_null(strstr(ferry_said(), "the GPU has "));
	unsetenv("FERRY_SIMT_MEMORY_BYTES");
	assert_ferry(0, &out, "plan model=%s device=cuda max_length=32 --details", tiny.dir);
	assert_non_null(strstr(out.data, "planned for a GPU: device=cuda"));
	assert_ferry(0, &out, "plan model=%s max_length=32 --details", tiny.dir);
	assert_non_null(strstr(out.data, "planned for the host: without machine=FILE, device=auto"));
	assert_non_null(strstr(out.data, "device=cuda plans for the SIMT emulator"));
	str_free(&out);
}

/* More targets than the host's head takes at once: those of the GPU are planned for and used, to the byte. */
static void test_rows_of_the_head(void **state)
{
	static const char model[] =
	        "{\"model_type\":\"llama\",\"vocab_size\":20000,\"hidden_size\":8,"
	        "\"intermediate_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":1,"
	        "\"max_position_embeddings\":32,\"tie_word_embeddings\":true}";
	struct str keys = {0}, out = {0};
	json_t *gpu, *host, *row;
	char path[400], *text;
	size_t len;

	(void)state;
	write_file("wide.json", "%s", model);
	write_rows("many.jsonl", 64, 3);
	assert_ferry(0, NULL, "init config=%s/wide.json output_dir=%s/wide", work_dir, work_dir);
	str_printf(&keys,
	        "model=%s/wide data=%s/many.jsonl data_format=tokens per_device_train_batch_size=64 "
	        "gradient_accumulation_steps=1 max_steps=1 vram_budget=off threads=2",
	        work_dir, work_dir);
	assert_ferry(0, &out, "plan %s device=cuda --explain", keys.data);
	assert_non_null(strstr(out.data, "the head computes logits of 2048 rows at once\n"));
	assert_ferry_json(&gpu, "plan %s device=cuda --json", keys.data);
	assert_ferry_json(&host, "plan %s device=host --json", keys.data);
	assert_true(json_integer_value(json_object_get(gpu, "arena_bytes")) >
	            json_integer_value(json_object_get(host, "arena_bytes")) + 50 * 20000 * 4);
	assert_ferry(0, NULL, "train %s device=cuda output_dir=%s/head", keys.data, work_dir);
	path_of(path, "head/metrics.jsonl");
	text = read_file(path, &len);
	assert_int_equal(json_parse(&row, path, text, strcspn(text, "\n")), 0);
	assert_int_equal(json_integer_value(json_object_get(row, "device_peak_bytes")),
	        json_integer_value(json_object_get(gpu, "arena_bytes")) + RESERVE_MATMUL_BYTES);
	json_decref(row);
	json_decref(gpu);
	json_decref(host);
	mem_free(text);
	str_free(&keys);
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
	setenv("FERRY_SIMT_NO_REGISTER", "1", 1);
	check_train(0, "allocated", TIGHT);
	assert_non_null(strstr(ferry_said(), "the driver allocates it instead"));
	check_same_model("pageable", "allocated");
	setenv("FERRY_SIMT_NO_ALLOC", "1", 1);
	check_train(0, "bounced", TIGHT);
	unsetenv("FERRY_SIMT_NO_ALLOC");
	unsetenv("FERRY_SIMT_NO_REGISTER");
	assert_non_null(strstr(ferry_said(), "go through a pinned buffer"));
	check_same_model("pageable", "bounced");
}

/* Small caches: the memory that topo measures with is as small. */
static void small_machine(void)
{
	setenv("FERRY_TOPOLOGY", "numa:1 core:2 pu:1", 1);
}

static void test_topo(void **state)
{
	struct str out = {0};
	json_t *root;

	(void)state;
	small_machine();
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
	unsetenv("FERRY_TOPOLOGY");
	assert_non_null(strstr(out.data, "none: there is no NVIDIA GPU that this process may use"));
	str_free(&out);
}

static void sysfs_write(int gpu, const char *name, const char *text)
{
	char path[400];

	snprintf(path, sizeof(path), "%s/sysfs/bus/pci/devices/0000:%02x:00.0", work_dir, gpu + 1);
	assert_int_equal(file_make_dir(path), 0);
	snprintf(path + strlen(path), sizeof(path) - strlen(path), "/%s", name);
	assert_int_equal(file_write_all(path, text, strlen(text)), 0);
}

/* All GPUs, their nodes and the processors there, and the ways between them. */
static void test_topo_of_several(void **state)
{
	struct str out = {0};
	char path[400];
	json_t *root, *gpu;

	(void)state;
	for (int g = 0; g < 7; g++) {
		sysfs_write(g, "numa_node", g < 4 ? "1\n" : g < 6 ? "0\n" : "-1\n");
		sysfs_write(g, "local_cpulist", g < 4 ? "16-31,48-63\n" : "0-15,32-47\n");
	}
	snprintf(path, sizeof(path), "%s/sysfs", work_dir);
	setenv("FERRY_SYSFS", path, 1);
	setenv("FERRY_SIMT_DEVICES", "7", 1);
	small_machine();
	assert_ferry(0, &out, "topo");
	assert_non_null(strstr(out.data, "GPU 0                  SIMT emulator"));
	assert_non_null(strstr(out.data, "at 0000:01:00.0, NUMA node 1, near processors 16-31,48-63\n"));
	assert_non_null(strstr(out.data, "at 0000:06:00.0, NUMA node 0, near processors 0-15,32-47\n"));
	assert_non_null(strstr(out.data, "at 0000:07:00.0, near processors"));
	assert_non_null(strstr(out.data, "direct copies, as over NVLink, rank 0: 0-1 2-3 4-5\n"));
	assert_non_null(strstr(out.data, "direct copies, as over PCIe, rank 1: 0-2 0-3 1-2 1-3 4-6 5-6\n"));
	assert_non_null(strstr(out.data, "no direct copies: through host memory, rank 0: 0-4 0-5 0-6 1-4"));
	assert_non_null(strstr(out.data, "cuda: GPU 0; with ranks=7 each of them"));
	str_free(&out);
	assert_ferry_json(&root, "topo --json");
	gpu = json_array_get(json_object_get(root, "gpus"), 5);
	assert_int_equal(json_integer_value(json_object_get(gpu, "numa_node")), 0);
	assert_string_equal(json_string_value(json_object_get(gpu, "processors")), "0-15,32-47");
	assert_int_equal(json_array_size(json_object_get(root, "gpu_links")), 42);
	json_decref(root);
	unsetenv("FERRY_SIMT_DEVICES");
	unsetenv("FERRY_SYSFS");
	unsetenv("FERRY_TOPOLOGY");
}

/* More ranks than GPUs are refused before anything is opened or made; also where a list shows all ranks the
 * same one. The CPU takes any number. */
static void test_too_many_ranks(void **state)
{
	static const char *const devices[] = {"cuda", "auto"};
	char path[400];

	(void)state;
	for (int i = 0; i < 4; i++) {
		char more[60];

		if (i & 2)
			setenv("CUDA_VISIBLE_DEVICES", "0", 1);
		snprintf(more, sizeof(more), "device=%s ranks=2", devices[i & 1]);
		check_train(2, "many", more);
		assert_non_null(strstr(ferry_said(),
		        "2 ranks on this host need 2 GPUs, and there is 1; start 1 here, "
		        "or set device=host"));
		assert_null(strstr(ferry_said(), "rank 0"));
		snprintf(path, sizeof(path), "%s/many/config.yaml", work_dir);
		assert_int_equal(file_kind_of(path), FILE_NONE);
	}
	unsetenv("CUDA_VISIBLE_DEVICES");
	check_train(0, "many", "device=host ranks=2");
}

/* What the clock is fitted to becomes a machine that plans take. The emulator's own figures: a microsecond
 * for each kernel and host function, a byte a nanosecond for copies. */
static void test_clock(void **state)
{
	json_t *bench, *plan, *speed;

	(void)state;
	assert_ferry_json(&bench,
	        "bench clock device=cuda models=tiny count=1 machine_file=%s/here.yaml threads=2 --json",
	        work_dir);
	assert_int_equal(json_array_size(json_object_get(bench, "rates")), 3);
	assert_true(fabs(json_real_value(json_object_get(bench, "launch_us")) - 1) < 1e-6);
	assert_true(fabs(json_real_value(json_object_get(bench, "call_us")) - 1) < 1e-6);
	assert_true(json_is_null(json_object_get(bench, "copies_gbps")));
	assert_ferry_json(
	        &plan, "plan model=%s machine=%s/here.yaml max_length=32 --json", tiny.dir, work_dir);
	speed = json_object_get(plan, "speed");
	assert_true(fabs(json_real_value(json_object_get(speed, "launch_us")) - 1) < 1e-6);
	assert_true(fabs(json_real_value(json_object_get(speed, "h2d_gbps")) - 1) < 1e-9);
	assert_true(json_real_value(json_object_get(speed, "pin_gbps")) > 0);
	assert_true(json_real_value(json_object_get(plan, "pin_s")) > 0);
	json_decref(bench);
	json_decref(plan);
}

/* The last row of a run's metrics. */
static json_t *last_row(const char *name)
{
	char path[400], *text, *line;
	json_t *row = NULL;
	size_t len;

	snprintf(path, sizeof(path), "%s/%s/metrics.jsonl", work_dir, name);
	text = read_file(path, &len);
	line = memrchr(text, '\n', len - 1);
	line = line ? line + 1 : text;
	assert_int_equal(json_parse(&row, path, line, strcspn(line, "\n")), 0);
	mem_free(text);
	return row;
}

/* Lets the program find one of the built libraries of sensors. */
static void sensors_use(const char *name)
{
	char path[600];

	snprintf(path, sizeof(path), "%s_%s", getenv("FERRY_NVML"), name);
	assert_int_equal(file_kind_of(path), FILE_DIR);
	setenv("LD_LIBRARY_PATH", path, 1);
}

/* A step's line has the GPU's sensors where NVIDIA's library is there and can be used, and the plan's time.
 * Without the library the line ends before them. */
static void test_sensors(void **state)
{
	static const char *const without[] = {"lacks", "refuses"};
	json_t *row, *gpu;

	(void)state;
	sensors_use("good");
	check_train(0, "sensed", TIGHT);
	assert_non_null(strstr(ferry_said(), "  gpu 1500 MHz 698 W 71 C, slowed by power limit, heat\n"));
	assert_non_null(strstr(ferry_said(), " ms, planned "));
	row = last_row("sensed");
	gpu = json_object_get(row, "gpu");
	assert_true(json_number_value(json_object_get(row, "planned_ms")) > 0);
	assert_true(json_number_value(json_object_get(gpu, "sm_mhz")) == 1500);
	assert_true(json_number_value(json_object_get(gpu, "memory_mhz")) == 2619);
	assert_true(fabs(json_number_value(json_object_get(gpu, "watts")) - 698.5) < 1e-9);
	assert_true(json_number_value(json_object_get(gpu, "celsius")) == 71);
	assert_string_equal(json_string_value(json_object_get(gpu, "slowed")), "power limit, heat");
	json_decref(row);
	for (int i = 0; i < 3; i++) {
		if (i < 2)
			sensors_use(without[i]);
		else
			unsetenv("LD_LIBRARY_PATH");
		check_train(0, "senseless", TIGHT "overwrite_output_dir=on");
		assert_null(strstr(ferry_said(), "  gpu "));
		assert_non_null(strstr(ferry_said(), " ms, planned "));
		row = last_row("senseless");
		assert_null(json_object_get(row, "gpu"));
		json_decref(row);
	}
	check_same_model("sensed", "senseless");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_train),
	        cmocka_unit_test(test_gpu_is_lost),
	        cmocka_unit_test(test_memory),
	        cmocka_unit_test(test_memory_goes),
	        cmocka_unit_test(test_rows_of_the_head),
	        cmocka_unit_test(test_pin_limit),
	        cmocka_unit_test(test_topo),
	        cmocka_unit_test(test_topo_of_several),
	        cmocka_unit_test(test_too_many_ranks),
	        cmocka_unit_test(test_clock),
	        cmocka_unit_test(test_sensors),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
