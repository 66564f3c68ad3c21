/* links: cli */
/* Training runs: options that only move work change no bit, and a run that is stopped and resumed equals an
 * uninterrupted one. FERRY_RUN_ROUNDS sets the number of random stops. */
#include "tests/run_fixture.h"
#include "tests/sparing.h"

#include "checkpoint/file/safetensors.h"

#include <math.h>

static struct run_model models[12];
static int model_count;

/* ---- settings that change no bit ---- */

#define SETTINGS                                                                                             \
	"learning_rate=1e-3 weight_decay=0.1 per_device_train_batch_size=2 gradient_accumulation_steps=3 "   \
	"lr_scheduler_type=cosine warmup_steps=1 max_steps=4 export_dtype=fp32 overwrite_output_dir=on "     \
	"vram_budget=off " /* cpu_offload=auto is on */

static const char *const same_bits[] = {
        "cpu_offload=off",
        "cpu_offload=params",
        "cpu_offload=gradients",
        "cpu_offload=optimizer",
        "cpu_offload=params,optimizer",
        "cpu_offload=params,gradients,optimizer,activations",
        "cpu_offload=activations,params activations=recompute",
        "cpu_offload=off activations=offload",
        "cpu_offload=off activations=keep",
        "cpu_offload=off wrap_policy=none threads=1",
        "threads=1",
        "threads=3",
        "activations=keep",
        "activations=offload",
        "backward_prefetch=BACKWARD_POST",
        "backward_prefetch=NO_PREFETCH forward_prefetch=off",
        "prefetch_units=1",
        "prefetch_units=7 activations=offload",
        "wrap_policy=none",
        "wrap_policy=size min_num_params=1",
        "wrap_policy=size min_num_params=5000 activations=keep",
        "wrap_policy=size min_num_params=20000 cpu_offload=off",
        "sharding_strategy=SHARD_GRAD_OP",
        "host_copy_gbps=0.05",
        "stream_delay_seed=1",
        "stream_delay_seed=2 activations=offload prefetch_units=3",
        "stream_delay_seed=3 wrap_policy=none backward_prefetch=NO_PREFETCH",
        "stream_delay_seed=4 cpu_offload=optimizer activations=keep",
        "isa=scalar",
};

enum { SAME_BITS_COUNT = sizeof(same_bits) / sizeof(*same_bits) };

static void train(const struct run_model *m, const char *out, const char *settings, const char *more)
{
	assert_ferry(0, NULL, "train model=%s data=%s output_dir=%s/%s %s %s", m->dir, m->data, work_dir, out,
	        settings, more);
}

/* Each row of the table once over all models and both dtypes; all of them on the model made here. */
static void same_bits_of(int model, const char *dtype, const char *schedule, const char *state)
{
	char settings[600], why[800];

	snprintf(settings, sizeof(settings), SETTINGS "compute_dtype=%s schedule=%s optimizer_state=%s",
	        dtype, schedule, state);
	train(&models[model], "base", settings, "");
	for (int i = model; i < SAME_BITS_COUNT; i += model_count * sparing(5)) {
		train(&models[model], "other", settings, same_bits[i]);
		snprintf(why, sizeof(why), "%s %s", settings, same_bits[i]);
		assert_same_runs("base", "other", why);
	}
}

static void test_same_bits(void **state)
{
	static const char *const states[] = {"8bit", "fp32", "bf16"};

	(void)state;
	for (int model = 0; model < model_count; model += sparing(3)) {
		same_bits_of(model, model % 2 ? "fp32" : "bf16", "layer_major", states[model % 3]);
		same_bits_of(
		        model, model % 2 ? "bf16" : "fp32", "micro_batch_major", states[(model + 1) % 3]);
	}
}

static double step_loss(const char *numbers, const char *key)
{
	const char *at = strstr(numbers, key);

	assert_non_null(at);
	return strtod(at + strlen(key), NULL);
}

/* The two schedules sum in another order. */
static void test_schedules_agree(void **state)
{
	(void)state;
	for (int model = 0; model < model_count; model += sparing(3)) {
		char *a, *b;
		const char *p, *q;

		train(&models[model], "base", SETTINGS "compute_dtype=fp32", "schedule=layer_major");
		train(&models[model], "other", SETTINGS "compute_dtype=fp32", "schedule=micro_batch_major");
		a = run_numbers("base");
		b = run_numbers("other");
		for (p = a, q = b; *p; p = strchr(p, '\n') + 1, q = strchr(q, '\n') + 1) {
			double one = step_loss(p, " loss "), two = step_loss(q, " loss ");

			if (!(fabs(one - two) <= 5e-6 * fabs(one)))
				fail_msg("%s: loss %.9g and %.9g", models[model].dir, one, two);
		}
		mem_free(a);
		mem_free(b);
	}
}

/* Without clipping and skipping, updates run inside backward: the same numbers, less memory. */
static void test_update_in_backward(void **state)
{
	(void)state;
	for (int model = 0; model < model_count; model += sparing(3)) {
		train(&models[model], "base", SETTINGS "max_grad_norm=0", "");
		train(&models[model], "other", SETTINGS "max_grad_norm=0 skip_nonfinite=off", "");
		assert_same_runs("base", "other", "max_grad_norm=0 skip_nonfinite=off");
		train(&models[model], "other",
		        SETTINGS "max_grad_norm=0 skip_nonfinite=off "
		                 "cpu_offload=off stream_delay_seed=5",
		        "");
		assert_same_runs("base", "other", "max_grad_norm=0 skip_nonfinite=off cpu_offload=off");
	}
}

/* ---- stopped and resumed ---- */

static const char *const resume_settings[] = {
        "compute_dtype=bf16 packing=bfd max_length=40 eval_split=0.2 eval_steps=3 num_train_epochs=3 "
        "gradient_accumulation_steps=2 optimizer_state=bf16",
        "compute_dtype=fp32 eval_split=3 eval_steps=0.3 num_train_epochs=2 per_device_train_batch_size=3",
        "compute_dtype=bf16 num_train_epochs=1.5 per_device_train_batch_size=2 cpu_offload=off "
        "optimizer_state=8bit lr_scheduler_type=cosine warmup_ratio=0.2",
        "compute_dtype=fp32 packing=bfd max_length=30 num_train_epochs=4 per_device_train_batch_size=2 "
        "schedule=micro_batch_major activations=offload eval_split=2 logging_steps=1 optimizer_state=8bit",
};

enum { RESUME_COUNT = sizeof(resume_settings) / sizeof(*resume_settings) };

#define RESUME_COMMON "learning_rate=2e-3 weight_decay=0.1 export_dtype=fp32 "

/* Stops a run again and again until it is done; each time goes on by the command that it printed. */
static void stopped_run(const struct run_model *m, int signal, uint64_t seed, const char *settings)
{
	const char *binary = getenv("FERRY_BINARY");
	char command[4096];
	int stops = 0, code = -1;

	snprintf(command, sizeof(command),
	        "%s train model=%s data=%s output_dir='%s/a run' " RESUME_COMMON
	        "host_copy_gbps=0.004 save_steps=2 save_first_step=%s %s",
	        binary ? binary : "build/ferry", m->dir, m->data, work_dir, seed % 2 ? "on" : "off",
	        settings);
	for (; code; stops++) {
		char path[400];
		int lines, delay_ms = (int)rng_below(seed, 5, (uint64_t)stops, 40);
		pid_t pid;

		snprintf(path, sizeof(path), "%s/a run/metrics.jsonl", work_dir);
		lines = line_count(path) + 1 + (int)rng_below(seed, 6, (uint64_t)stops, 4);
		assert_true(stops < 60);
		pid = run_start(command);
		code = run_signal(pid, signal, "a run", stops < 12 ? lines : INT32_MAX, delay_ms);
		if (code == 0)
			break;
		if (signal == SIGKILL) {
			assert_int_equal(code, 128 + SIGKILL);
			if (stops == 0)
				strcat(command, " resume_from_checkpoint=auto");
			continue;
		}
		if (code != 3)
			fail_msg("exit code %d after signal %d: %s", code, signal, ferry_said());
		snprintf(command, sizeof(command), "%s", last_line());
		assert_non_null(strstr(command, "resume_from_checkpoint=auto"));
	}
	assert_true(stops > 0);
}

static void test_stopped(void **state)
{
	static const int signals[] = {SIGTERM, SIGINT, SIGKILL, SIGUSR1};
	const char *rounds_text = getenv("FERRY_RUN_ROUNDS");
	int rounds = rounds_text ? atoi(rounds_text) : 4 / sparing(2);

	(void)state;
	for (int round = 0; round < rounds; round++) {
		const struct run_model *m = &models[round % 5 == 4 ? model_count - 1 : 0];
		const char *settings = resume_settings[round % RESUME_COUNT];
		int signal = signals[(round + round / RESUME_COUNT) % 4];
		char why[700];

		remove_run("whole");
		remove_run("a run");
		train(m, "whole", RESUME_COMMON, settings);
		stopped_run(m, signal, (uint64_t)round, settings);
		snprintf(why, sizeof(why), "stopped by signal %d, round %d, %s", signal, round, settings);
		assert_same_runs("whole", "a run", why);
	}
}

/* After a kill between the last checkpoint and the end, resuming writes the missing files. */
static void test_resume_at_the_end(void **state)
{
	char path[400];

	(void)state;
	remove_run("whole");
	remove_run("end");
	train(&models[0], "whole", "max_steps=5 eval_split=2", "");
	train(&models[0], "end", "max_steps=5 eval_split=2", "");
	remove_run("end/model");
	assert_ferry(0, NULL, "train %s/end/config.yaml resume_from_checkpoint=auto", work_dir);
	assert_same_runs("whole", "end", "resumed at its last step");
	assert_ferry(2, NULL, "train %s/end/config.yaml resume_from_checkpoint=auto max_steps=3", work_dir);
	assert_non_null(strstr(ferry_said(), "max_steps"));
	/* a newer directory that was never committed, and half a line, are of no account */
	snprintf(path, sizeof(path), "%s/end/checkpoint-000009", work_dir);
	assert_int_equal(file_make_dir(path), 0);
	snprintf(path, sizeof(path), "%s/end/metrics.jsonl", work_dir);
	FILE *f = fopen(path, "a");

	assert_non_null(f);
	fputs("{\"step\":6,\"lo", f);
	fclose(f);
	assert_ferry(0, NULL, "train %s/end/config.yaml resume_from_checkpoint=auto", work_dir);
	assert_same_runs("whole", "end", "beside a directory that is not a checkpoint");
}

/* A checkpoint of any family knows nothing of where its run kept what. */
static void test_resume_elsewhere(void **state)
{
	static const char *const elsewhere[] = {"cpu_offload=off threads=1",
	        "wrap_policy=none activations=keep cpu_offload=optimizer",
	        "wrap_policy=size min_num_params=5000 activations=offload stream_delay_seed=9",
	        "per_device_eval_batch_size=1 logging_steps=1 isa=scalar"};

	enum { PLACES = sizeof(elsewhere) / sizeof(*elsewhere) };

	(void)state;
	for (int i = 0; i < PLACES || i < model_count; i++) {
		const struct run_model *m = &models[i % model_count];
		const char *from = elsewhere[(i + 1) % PLACES];
		char settings[600];

		remove_run("whole");
		remove_run("a");
		snprintf(settings, sizeof(settings), "max_steps=6 save_steps=2 export_dtype=fp32 %s", from);
		train(m, "whole", settings, "");
		train(m, "a", settings, "");
		remove_run("a/checkpoint-000006");
		remove_run("a/model");
		assert_ferry(0, NULL,
		        "train model=%s data=%s output_dir=%s/a max_steps=6 export_dtype=fp32 "
		        "resume_from_checkpoint=auto %s",
		        m->dir, m->data, work_dir, elsewhere[i % PLACES]);
		assert_same_runs("whole", "a", elsewhere[i % PLACES]);
	}
}

/* Other rows, another order or another model than in the checkpoint. */
static void test_resume_on_something_else(void **state)
{
	static const char *const changes[] = {"seed=1", "shuffle=off", "max_length=9", "eval_split=3",
	        "packing=bfd", "per_device_train_batch_size=2", "max_samples=9"};

	(void)state;
	remove_run("a");
	train(&models[0], "a", "save_steps=2 max_steps=6", "");
	for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
		assert_ferry(2, NULL,
		        "train model=%s data=%s output_dir=%s/b max_steps=6 "
		        "resume_from_checkpoint=%s/a/checkpoint-000004 %s",
		        models[0].dir, models[0].data, work_dir, work_dir, changes[i]);
		assert_non_null(strstr(ferry_said(), "checkpoint-000004"));
		assert_false(run_has("b"));
	}
	assert_ferry(2, NULL,
	        "train model=%s data=%s output_dir=%s/b max_steps=6 gradient_accumulation_steps=3 "
	        "per_device_train_batch_size=1 resume_from_checkpoint=%s/a/checkpoint-000004",
	        models[0].dir, models[0].data, work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), " rows a step, this run 3 (gradient_accumulation_steps 3 "));
	assert_non_null(strstr(ferry_said(), "; set gradient_accumulation_steps="));
	write_rows("others.jsonl", 23, 8);
	assert_ferry(2, NULL,
	        "train model=%s data=%s/others.jsonl output_dir=%s/b max_steps=6 "
	        "resume_from_checkpoint=%s/a/checkpoint-000004",
	        models[0].dir, work_dir, work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "other rows"));
	write_file("other.json",
	        "{\"model_type\":\"llama\",\"vocab_size\":64,\"hidden_size\":24,\"intermediate_size\":48,"
	        "\"num_hidden_layers\":3,\"num_attention_heads\":2}");
	assert_ferry(0, NULL, "init config=%s/other.json output_dir=%s/wider", work_dir, work_dir);
	assert_ferry(2, NULL,
	        "train model=%s/wider data=%s output_dir=%s/b max_steps=6 "
	        "resume_from_checkpoint=%s/a/checkpoint-000004",
	        work_dir, models[0].data, work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "checkpoint-000004"));
	assert_false(run_has("b"));
}

/* Two runs do not share an output_dir. */
static void test_two_at_once(void **state)
{
	const char *binary = getenv("FERRY_BINARY");
	char command[2000], path[400];
	pid_t pid;

	(void)state;
	remove_run("busy");
	snprintf(command, sizeof(command),
	        "%s train model=%s data=%s output_dir=%s/busy max_steps=400 host_copy_gbps=0.001",
	        binary ? binary : "build/ferry", models[0].dir, models[0].data, work_dir);
	pid = run_start(command);
	snprintf(path, sizeof(path), "%s/busy/metrics.jsonl", work_dir);
	while (!line_count(path) && is_running(pid))
		sleep_ms(2);
	assert_ferry(2, NULL, "train %s/busy/config.yaml resume_from_checkpoint=auto", work_dir);
	assert_non_null(strstr(ferry_said(), "another ferry is writing there"));
	assert_ferry(2, NULL, "train %s/busy/config.yaml overwrite_output_dir=on", work_dir);
	kill(pid, SIGKILL);
	assert_int_equal(run_wait(pid), 128 + SIGKILL);
	assert_ferry(0, NULL,
	        "train %s/busy/config.yaml overwrite_output_dir=on max_steps=2 host_copy_gbps=off", work_dir);
}

static void damage(const char *name, int64_t from_end_bytes)
{
	char path[400];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", work_dir, name);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(pwrite(fd, "\x5a\xa5", 2, st.st_size - from_end_bytes), 2);
	close(fd);
}

/* `auto` passes over a damaged checkpoint and says so; one that was asked for by name is an error. */
static void test_resume_from_damage(void **state)
{
	(void)state;
	remove_run("whole");
	remove_run("a");
	train(&models[0], "whole", "save_steps=2 max_steps=6", "");
	train(&models[0], "a", "save_steps=2 max_steps=6", "");
	damage("a/checkpoint-000006/rank-00000.safetensors", 1000);
	assert_ferry(2, NULL,
	        "train %s/a/config.yaml output_dir=%s/b resume_from_checkpoint=%s/a/checkpoint-000006",
	        work_dir, work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "rank-00000.safetensors"));
	assert_false(run_has("b"));
	assert_ferry(0, NULL, "train %s/a/config.yaml resume_from_checkpoint=auto", work_dir);
	assert_non_null(strstr(ferry_said(), "a/checkpoint-000006: damaged: rank-00000.safetensors"));
	assert_same_runs("whole", "a", "resumed from the checkpoint before the damaged one");
	damage("a/checkpoint-000006/hf/config.json", 20); /* files beside the weights count too */
	assert_ferry(2, NULL, "export %s/a/checkpoint-000006 output_dir=%s/e", work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "hf/config.json: byte 0: "));
	assert_ferry(0, NULL, "train %s/a/config.yaml resume_from_checkpoint=auto", work_dir);
	assert_non_null(strstr(ferry_said(), "a/checkpoint-000006: damaged: hf/config.json"));
	assert_same_runs("whole", "a", "resumed from the checkpoint before one with a damaged config.json");
	damage("a/checkpoint-000004/manifest.json", 20);
	damage("a/checkpoint-000006/manifest.json", 20);
	assert_ferry(2, NULL, "train %s/a/config.yaml resume_from_checkpoint=auto", work_dir);
	assert_non_null(strstr(ferry_said(), "a/checkpoint-000006: damaged: manifest.json"));
	assert_non_null(strstr(ferry_said(), "no checkpoint in output_dir="));
	remove_run("a/checkpoint-000006/manifest.json");
	assert_ferry(2, NULL, "train %s/a/config.yaml resume_from_checkpoint=auto", work_dir);
	assert_non_null(strstr(ferry_said(), "a/checkpoint-000006: incomplete (no manifest.json)"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_same_bits),
	        cmocka_unit_test(test_schedules_agree),
	        cmocka_unit_test(test_update_in_backward),
	        cmocka_unit_test(test_stopped),
	        cmocka_unit_test(test_resume_at_the_end),
	        cmocka_unit_test(test_resume_elsewhere),
	        cmocka_unit_test(test_resume_on_something_else),
	        cmocka_unit_test(test_resume_from_damage),
	        cmocka_unit_test(test_two_at_once),
	};
	const char *golden = golden_dir("test_run with golden models");
	int failed;

	ferry_run_begin("run");
	tiny_model(&models[model_count++]);
	golden_model(&models[model_count++], golden, "own/falcon_h1");
	golden_model(&models[model_count++], golden, "own/falcon_h1_norm");
	if (golden) {
		golden_model(&models[model_count++], golden, "llama3");
		golden_model(&models[model_count++], golden, "gpt_neox");
		golden_model(&models[model_count++], golden, "modern/gemma4");
		golden_model(&models[model_count++], golden, "modern/gemma4_e");
		golden_model(&models[model_count++], golden, "modern/granitemoehybrid");
		golden_model(&models[model_count++], golden, "modern/lfm2");
		golden_model(&models[model_count++], golden, "modern/nemotron_h");
		golden_model(&models[model_count++], golden, "modern/muse_glimmer");
		golden_model(&models[model_count++], golden, "modern/qwen3_5");
	}
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
