/* Host functions of the CUDA device beside other work: drivers let only some of them wait. */
#define FERRY_TEST_CUDA
#include "tests/engine_rig.h"
#include "tests/model_text.h"

#include "host/pool.h"
#include "tests/simt/cuda_fixture.h"

enum { LAYERS = 64, TOKENS = 16, STEPS = 2 };

static const char model_text[] =
        "{\"model_type\":\"llama\",\"vocab_size\":70,\"hidden_size\":32,\"intermediate_size\":48,"
        "\"num_hidden_layers\":64,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
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
	struct host_batch batch = {TOKENS, TOKENS - 1, 1, id, position, start, end, row, {label}};
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

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CUDA_TEST(test_calls_that_wait_cost_nothing),
	};

	setenv("FERRY_MATMUL", "plain", 1);
	device_register(&backend_cuda);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
