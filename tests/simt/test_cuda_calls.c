/* Host functions of the CUDA device beside other work: drivers let only some of them wait. */
#define FERRY_TEST_CUDA
#include "tests/engine_rig.h"
#include "tests/model_text.h"

#include "gpu/cuda_probe.h"
#include "host/pool.h"
#include "tests/simt/cuda_fixture.h"

#include <stdatomic.h>

enum { LAYERS = 48, TOKENS = 16, STEPS = 2 };

static const char model_text[] =
        "{\"model_type\":\"llama\",\"vocab_size\":70,\"hidden_size\":32,\"intermediate_size\":48,"
        "\"num_hidden_layers\":48,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
        "\"max_position_embeddings\":64}";

static struct engine_options options_of(const struct model *model)
{
	return (struct engine_options){
	        .model = model,
	        .world_size = 1,
	        .policy =
	                {
	                        .offload_params = 1,
	                        .offload_gradients = 1,
	                        .offload_optimizer = 1,
	                        .activations = ACTIVATION_RECOMPUTE,
	                        .backward_prefetch = BACKWARD_PREFETCH_PRE,
	                        .forward_prefetch = 1,
	                        .prefetch_units = 2,
	                        .compute_dtype = DTYPE_BF16,
	                        .gradient_dtype = DTYPE_BF16,
	                        .micro_batches = 1,
	                        .rope_positions = TOKENS,
	                },
	        .train = {.max_tokens = TOKENS, .max_targets = TOKENS},
	        .eval = {.max_tokens = TOKENS, .max_targets = TOKENS},
	        .adamw = {0.9, 0.95, 1e-8, 0.1, 1},
	        .max_grad_norm = 1,
	        .skip_nonfinite = 1,
	        .check_plans = 1,
	};
}

/* The device's time of the last of some steps, and its loss. Then updates of a step before are pending. */
static int64_t step_ns(double *loss, const struct simt_machine_options *machine)
{
	int32_t id[TOKENS], position[TOKENS], start[TOKENS] = {0}, end[TOKENS], row[TOKENS], label[TOKENS];
	struct host_batch batch = {.tokens = TOKENS,
	        .targets = TOKENS - 1,
	        .documents = 1,
	        .id = id,
	        .position = position,
	        .doc_start = start,
	        .doc_end = end,
	        .target_row = row,
	        .own = {label}};
	struct model *model = model_from(model_text);
	struct engine_options o = options_of(model);
	struct device_stats before, after;
	struct engine_result result;
	struct engine *e;

	for (int i = 0; i < TOKENS; i++) {
		id[i] = label[i] = i;
		position[i] = row[i] = i;
		end[i] = TOKENS;
	}
	simt_runtime_set(machine);
	check_ok(adamw_isa_find(&o.isa, "auto"));
	check_ok(pool_open(&o.pool, 1));
	check_ok(device_open(&o.device, "cuda", &(struct device_options){.pool = o.pool}));
	check_ok(engine_open(&e, &o));
	check_ok(engine_start(e));
	weights_write(e, model);
	for (int i = 0; i < STEPS; i++) {
		device_get_stats(o.device, &before);
		check_ok(engine_step(e, &result, &batch, 1, TOKENS - 1, 1e-2, NULL));
		device_get_stats(o.device, &after);
	}
	*loss = result.loss_sum;
	engine_close(e);
	device_close(o.device);
	pool_close(o.pool);
	model_close(model);
	return after.now_ns - before.now_ns;
}

/* A block's forward takes as long as its update. Where drivers let few calls wait, the step takes as long
 * as where they let all of them wait: work for the GPU is queued before the queue is full. */
static void test_calls_that_wait_cost_nothing(void **state)
{
	struct simt_machine_options machine = simt_runtime_defaults();
	int64_t all_ns, some_ns;
	double all_loss, some_loss;

	(void)state;
	machine.kernel_ns = 50000;
	machine.call_ns = 1000000;
	machine.calls_most = 0;
	all_ns = step_ns(&all_loss, &machine);
	machine.calls_most = 32;
	some_ns = step_ns(&some_loss, &machine);
	print_message("a step: %.1f ms, and %.1f ms where 32 calls may wait\n", 1e-6 * (double)all_ns,
	        1e-6 * (double)some_ns);
	assert_true(all_ns > LAYERS * machine.call_ns);
	assert_true((double)some_ns < 1.02 * (double)all_ns);
	assert_true(all_loss == some_loss);
}

/* A driver that lets nothing run beside a host function: the device finds out, says so, and calls on a
 * thread. */
static void test_calls_beside_other_work(void **state)
{
	struct simt_machine_options machine = simt_runtime_defaults();
	int64_t usual_ns, driver_ns, thread_ns;
	double usual_loss, driver_loss, thread_loss;

	(void)state;
	machine.kernel_ns = 250000;
	machine.call_ns = 5000000;
	usual_ns = step_ns(&usual_loss, &machine);
	assert_string_equal(last_warning, "");
	machine.calls_block = 1;
	setenv("FERRY_CALLS", "driver", 1);
	driver_ns = step_ns(&driver_loss, &machine);
	unsetenv("FERRY_CALLS");
	assert_string_equal(last_warning, "");
	thread_ns = step_ns(&thread_loss, &machine);
	assert_non_null(strstr(last_warning, "while this driver runs a host function"));
	print_message("a step: %.0f ms; %.0f ms where host functions block, %.0f ms with a thread\n",
	        1e-6 * (double)usual_ns, 1e-6 * (double)driver_ns, 1e-6 * (double)thread_ns);
	assert_true((double)driver_ns > 1.1 * (double)usual_ns);
	assert_true((double)thread_ns < 1.02 * (double)usual_ns);
	assert_true(usual_loss == driver_loss && usual_loss == thread_loss);
}

static int count_call(void *context)
{
	atomic_fetch_add((atomic_int *)context, 1);
	return 0;
}

static int fail_call(void *context)
{
	(void)context;
	return err_set(ERR_RANGE, "the call does not like it");
}

/* Open and close with calls that never ran; an error of a call; a driver without the two functions. */
static void test_thread_of_calls(void **state)
{
	struct simt_machine_options machine = simt_runtime_defaults();
	struct device *device;
	struct stream *stream;
	atomic_int count = 0;

	(void)state;
	setenv("FERRY_CALLS", "thread", 1);
	check_ok(device_open(&device, "cuda", NULL));
	check_ok(stream_open(&stream, device, QUEUE_CPU));
	for (int i = 0; i < 100; i++) /* no limit of calls that wait: these are none of the driver's */
		check_ok(stream_call(stream, count_call, &count, NULL));
	check_ok(stream_sync(stream));
	assert_int_equal(count, 100);
	check_ok(stream_call(stream, fail_call, NULL, NULL));
	check_fails(stream_sync(stream), ERR_RANGE, "does not like it");
	stream_close(stream);
	device_close(device);

	check_ok(device_open(&device, "cuda", NULL));
	check_ok(stream_open(&stream, device, QUEUE_CPU));
	check_ok(stream_call(stream, count_call, &count, NULL));
	simt_fail_work_after(1, cudaErrorECCUncorrectable); /* before the stream comes to the call */
	check_fails(stream_sync(stream), ERR_DEVICE, "cudaErrorECCUncorrectable");
	stream_close(stream);
	device_close(device);
	assert_int_equal(count, 100);

	machine.has_no_memory_operations = 1;
	simt_runtime_set(&machine);
	check_ok(device_open(&device, "cuda", NULL));
	check_ok(stream_open(&stream, device, QUEUE_CPU));
	check_fails(stream_call(stream, count_call, &count, NULL), ERR_UNSUPPORTED, "cuStreamWriteValue32");
	stream_close(stream);
	device_close(device);
	setenv("FERRY_CALLS", "tread", 1);
	check_fails(device_open(&device, "cuda", NULL), ERR_INPUT, "use driver or thread");
	unsetenv("FERRY_CALLS");
}

/* The variable is set before CUDA's first call, which reads it; who had set fewer is told. */
static void test_connections(void **state)
{
	static const struct {
		const char *before;
		int seen;
		const char *warning;
	} cases[] = {
	        {NULL, 32, ""},
	        {"1", 32, "CUDA_DEVICE_MAX_CONNECTIONS was 1, with which"},
	        {"32", 32, ""},
	};
	const struct simt_machine_options machine = simt_runtime_defaults();

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct device *device;

		unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
		if (cases[i].before)
			setenv("CUDA_DEVICE_MAX_CONNECTIONS", cases[i].before, 1);
		simt_runtime_set(&machine);
		last_warning[0] = 0;
		check_ok(device_open(&device, "cuda", NULL));
		device_close(device);
		assert_int_equal(simt_runtime_connections(), cases[i].seen);
		if (*cases[i].warning)
			assert_non_null(strstr(last_warning, cases[i].warning));
		else
			assert_string_equal(last_warning, "");
	}
}

/* Verdicts of a probe, by name. */
struct verdicts {
	char text[4000];
};

static int keep_verdict(void *context, const struct cuda_probe_row *row)
{
	struct verdicts *v = context;
	size_t used = strlen(v->text);

	assert_null(row->why);
	snprintf(v->text + used, sizeof(v->text) - used, "%s: %s\n", row->name,
	        row->verdict ? row->verdict : "none");
	return 0;
}

/* A usual machine is ok in every row; a slow link, and a driver that lets nothing run beside calls, are
 * said. */
static void test_probe_has_verdicts(void **state)
{
	struct simt_machine_options machine = simt_runtime_defaults();
	struct verdicts v = {""};

	(void)state;
	machine.copy_bytes_per_ns = 50;
	simt_runtime_set(&machine);
	check_ok(cuda_probe(keep_verdict, &v, 1 << 16, DEVICE_ATTENTION_FERRY));
	for (const char *const *name = (const char *const[]){"h2d", "d2h", "kernel", "call",
	             "kernel_beside_call", "h2d_beside_call", "launch_behind", NULL};
	        *name; name++) {
		char line[64];

		snprintf(line, sizeof(line), "\n%s: ok\n", *name);
		if (!strstr(v.text, line))
			fail_msg("no \"%s: ok\" in:\n%s", *name, v.text);
	}
	/* this "card" is not known: its rates have no verdict, but they are there */
	for (const char *const *name = (const char *const[]){"memory_rate", "product_rate", "attention_rate",
	             "attention_grad_rate", NULL};
	        *name; name++) {
		char line[64];

		snprintf(line, sizeof(line), "\n%s: none\n", *name);
		if (!strstr(v.text, line))
			fail_msg("no \"%s: none\" in:\n%s", *name, v.text);
	}
	assert_null(strstr(v.text, "sm_clock")); /* no sensors here */
	machine.name = "NVIDIA GeForce RTX 4090";
	machine.copy_bytes_per_ns = 18; /* a usual link, but not this card's */
	v.text[0] = 0;
	simt_runtime_set(&machine);
	check_ok(cuda_probe(keep_verdict, &v, 1 << 16, DEVICE_ATTENTION_FERRY));
	assert_non_null(strstr(v.text, "\nh2d: this card is expected to reach 25; the slot has few lanes"));
	assert_non_null(strstr(v.text, "\nproduct_rate: this card is expected to reach 155; look at"));
	assert_non_null(strstr(v.text, "\nkernel: ok\n"));
	machine.name = NULL;
	machine.copy_bytes_per_ns = 3;
	machine.call_ns = 50000000;
	machine.calls_block = 1;
	machine.seed = 3;
	v.text[0] = 0;
	simt_runtime_set(&machine);
	setenv("FERRY_CALLS", "driver", 1);
	check_ok(cuda_probe(keep_verdict, &v, 1 << 16, DEVICE_ATTENTION_FERRY));
	unsetenv("FERRY_CALLS");
	assert_non_null(strstr(v.text, "\nh2d: the slot has few lanes"));
	assert_non_null(strstr(v.text, "\ncall: threads of the driver wait"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CUDA_TEST(test_calls_that_wait_cost_nothing),
	        CUDA_TEST(test_calls_beside_other_work),
	        CUDA_TEST(test_thread_of_calls),
	        CUDA_TEST(test_connections),
	        CUDA_TEST(test_probe_has_verdicts),
	};

	setenv("FERRY_MATMUL", "plain", 1);
	device_register(&backend_cuda);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
