/* links: cli */
/* not: asan */
/* A sanitizer's shadow is memory too. */
/* Resident memory of whole runs: at most slightly more than in the plan. A process that trains almost
 * nothing is the base line. Weights are zeros from files with a hole, because their values do not matter. */
#include "tests/zeros_model.h"

#include <math.h>
#include <sys/resource.h>

enum { HIDDEN = 1024, VOCAB = 8000, INTERMEDIATE = 2816, LAYERS = 1 };

/* Memory above the plan: page tables, staging of a load, stacks, and libraries for larger shapes. ferry
 * promises a bound of 64 MiB. */
enum { MARGIN_BYTES = 16 << 20 };

static int64_t parameters;

static void write_config(const char *name, int hidden, int vocab, int intermediate)
{
	char path[300];

	snprintf(path, sizeof(path), "%s/%s", work_dir, name);
	assert_int_equal(file_make_dir(path), 0);
	snprintf(path, sizeof(path), "%s/config.json", name);
	write_file(path,
	        "{\"model_type\":\"llama\",\"vocab_size\":%d,\"hidden_size\":%d,\"intermediate_size\":%d,"
	        "\"num_hidden_layers\":%d,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
	        "\"max_position_embeddings\":128,\"tie_word_embeddings\":false}",
	        vocab, hidden, intermediate, LAYERS);
}

#define SETTINGS "data=%s/rows.jsonl per_device_train_batch_size=2 max_length=32 %s"

static int metrics_rows(const char *out)
{
	char path[300], *text = NULL;
	size_t len;
	int rows = 0;

	snprintf(path, sizeof(path), "%s/%s/metrics.jsonl", work_dir, out);
	if (file_kind_of(path) != FILE_REGULAR || file_read_all(path, 1 << 20, &text, &len))
		return 0;
	for (const char *c = text; *c; c++)
		rows += *c == '\n';
	mem_free(text);
	return rows;
}

static pid_t train_start(const char *model, const char *steps, const char *settings)
{
	char command[2048];
	pid_t pid;

	remove_run("out");
	snprintf(command, sizeof(command),
	        "exec %s train model=%s/%s output_dir=%s/out %s " SETTINGS " >/dev/null 2>%s/stderr",
	        getenv("FERRY_BINARY"), work_dir, model, work_dir, steps, work_dir, settings, work_dir);
	pid = fork();
	if (!pid) {
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	return pid;
}

/* The most that a training process had resident until its second step was over; it ends there. */
static int64_t train_peak(const char *model, const char *settings)
{
	char path[64], line[256];
	long long kib = 0;
	FILE *status;
	pid_t pid = train_start(model, "max_steps=100 logging_steps=1", settings);

	for (int i = 0; i < 6000 && metrics_rows("out") < 2 && !waitpid(pid, NULL, WNOHANG); i++)
		nanosleep(&(struct timespec){0, 10000000}, NULL);
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	status = fopen(path, "r");
	while (status && fgets(line, sizeof(line), status))
		if (sscanf(line, "VmHWM: %lld", &kib) == 1)
			break;
	if (status)
		fclose(status);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	if (metrics_rows("out") < 2)
		fail_msg("no two steps: %s", ferry_said());
	return kib * 1024;
}

/* Peak resident memory of a whole run: it saves during the third step, and saves and exports after the
 * last. */
static int64_t whole_peak(const char *model, const char *settings)
{
	struct rusage used;
	int status;
	pid_t pid = train_start(model, "max_steps=3 save_steps=2", settings);

	assert_int_equal(wait4(pid, &status, 0, &used), pid);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		fail_msg("train: %s", ferry_said());
	return used.ru_maxrss * INT64_C(1024);
}

struct planned {
	int64_t store, stage, arena, need;
};

static struct planned plan_of(const char *model, const char *settings)
{
	struct planned p;
	json_t *o;

	assert_ferry_json(&o, "plan model=%s/%s " SETTINGS " --json", work_dir, model, work_dir, settings);
	p.store = json_integer_value(json_object_get(o, "store_bytes"));
	p.stage = json_integer_value(json_object_get(o, "staging_bytes"));
	p.arena = json_integer_value(json_object_get(o, "arena_bytes"));
	p.need = json_integer_value(json_object_get(o, "host_need_bytes"));
	json_decref(o);
	return p;
}

static void check_run(const char *model, const char *settings, double bytes_per_parameter)
{
	struct planned plan = plan_of(model, settings), small = plan_of("tiny", settings);
	int64_t empty = train_peak("tiny", settings) - small.store - small.stage - small.arena;
	int64_t peak = train_peak(model, settings) - empty;
	int64_t over = peak - plan.store - plan.stage - plan.arena;
	double each = (double)(peak - plan.stage - plan.arena) / (double)parameters;

	print_message("%s %s: %.2f bytes a parameter, %.1f MiB above the plan\n", model, settings, each,
	        (double)over / 0x1p20);
	assert_true(over <= MARGIN_BYTES);
	assert_true(fabs(each - bytes_per_parameter) <= 0.03 * bytes_per_parameter);
}

static void with_clipping(void **state)
{
	(void)state;
	parameters = write_zeros("model", "BF16", 2);
	check_run("model", "vram_budget=off", 14);
}

/* A run uses the host memory that `plan` prints, with saving, plus the program itself. A tiny run, minus
 * its own plan, gives the size of the program. */
static void a_whole_run_takes_what_is_planned(void **state)
{
	struct planned plan, small;
	int64_t program, peak;
	double more;

	(void)state;
	write_zeros("model", "BF16", 2);
	plan = plan_of("model", "");
	small = plan_of("tiny", "");
	program = whole_peak("tiny", "") - small.need;
	peak = whole_peak("model", "") - program;
	more = (double)(peak - plan.need) / (double)plan.need;
	print_message("%.1f MiB planned, %.2f%% more taken, the program's %.1f MiB not counted\n",
	        (double)plan.need / 0x1p20, 100 * more, (double)program / 0x1p20);
	assert_true(fabs(more) <= 0.02);
	assert_true(plan.need >= INT64_C(300) << 20 && program <= 64 << 20);
}

/* Weights in fp32 go through the same planes: no second copy of them. */
static void from_fp32_files_without_clipping(void **state)
{
	(void)state;
	parameters = write_zeros("model", "F32", 4);
	check_run("model", "cpu_offload=on max_grad_norm=0 skip_nonfinite=off", 12);
}

static void with_a_smaller_state(void **state)
{
	(void)state;
	parameters = write_zeros("model", "BF16", 2);
	check_run("model", "cpu_offload=on optimizer_state=8bit", 8 + 2 * 4.0 / 256);
}

/* A frozen weight takes the 2 bytes of its file, a parameter of an adapter what every trained one does. */
static void with_adapters(void **state)
{
	enum { RANK = 512, Q = HIDDEN, KV = HIDDEN / 2 };
	int64_t adapters =
	        RANK * (int64_t)LAYERS * (2 * (HIDDEN + Q) + 2 * (HIDDEN + KV) + 3 * (HIDDEN + INTERMEDIATE));

	(void)state;
	parameters = write_zeros("model", "BF16", 2);
	check_run("model", "vram_budget=off lora_rank=512", 2 + 14 * (double)adapters / (double)parameters);
}

static int setup(void **state)
{
	(void)state;
	ferry_run_begin("memory");
	write_config("tiny", 32, 64, 48);
	write_zeros("tiny", "BF16", 2);
	write_config("model", HIDDEN, VOCAB, INTERMEDIATE);
	write_rows("rows.jsonl", 8, 7);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	ferry_run_end();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(with_clipping),
	        cmocka_unit_test(a_whole_run_takes_what_is_planned),
	        cmocka_unit_test(from_fp32_files_without_clipping),
	        cmocka_unit_test(with_a_smaller_state),
	        cmocka_unit_test(with_adapters),
	};

	return cmocka_run_group_tests_name("run_memory", tests, setup, teardown);
}
