/* The plan for the CUDA device equals the plan for meta, operation by operation: plans do not depend on
 * the device. */
#include "tests/check.h"
#include "tests/model_text.h"

#include "base/json.h"
#include "base/mem.h"
#include "device/backend.h"
#include "host/pool.h"
#include "offload/engine.h"

static const char config_text[] =
        "{\"model_type\":\"llama\",\"vocab_size\":70,\"hidden_size\":32,\"intermediate_size\":48,"
        "\"num_hidden_layers\":4,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
        "\"max_position_embeddings\":64,\"tie_word_embeddings\":true}";

static const char recurrent_text[] =
        "{\"model_type\":\"qwen3_5_text\",\"vocab_size\":70,\"hidden_size\":32,\"intermediate_size\":48,"
        "\"num_hidden_layers\":4,\"full_attention_interval\":2,\"num_attention_heads\":4,"
        "\"num_key_value_heads\":2,\"head_dim\":8,\"linear_num_key_heads\":2,\"linear_num_value_heads\":4,"
        "\"linear_key_head_dim\":8,\"linear_value_head_dim\":12,\"max_position_embeddings\":64}";

static struct model *model_make(int is_recurrent)
{
	return model_from(is_recurrent ? recurrent_text : config_text);
}

/* The operations, waits and buffers of all plans, as ferry plan --explain prints them (free). */
static char *plans_text(const char *device, struct engine_options o)
{
	struct engine_memory memory;
	struct engine *engine;
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	check_ok(pool_open(&o.pool, 1));
	check_ok(device_open(&o.device, device, NULL));
	check_ok(engine_open(&engine, &o));
	engine_get_memory(engine, &memory);
	fprintf(out, "arena %lld, store %lld, pinned %lld\n", (long long)memory.device_bytes,
	        (long long)memory.store_bytes, (long long)memory.pinned_bytes);
	plan_print(engine_plan(engine, PLAN_TRAIN), out);
	plan_print(engine_plan(engine, PLAN_EVAL), out);
	fclose(out);
	engine_close(engine);
	device_close(o.device);
	pool_close(o.pool);
	return text;
}

static void plans_compare(int is_recurrent)
{
	struct model *model = model_make(is_recurrent);
	int compared = 0;

	for (int i = 0; i < 16; i++) {
		struct engine_options o = {
		        .model = model,
		        .world_size = 1,
		        .policy =
		                {
		                        .offload_params = !(i & 1),
		                        .offload_gradients = !(i & 1),
		                        .offload_optimizer = !(i & 1),
		                        .activations = i & 2 ? ACTIVATION_OFFLOAD : ACTIVATION_RECOMPUTE,
		                        .order = i & 4 ? ORDER_MICRO_BATCH_MAJOR : ORDER_LAYER_MAJOR,
		                        .backward_prefetch = BACKWARD_PREFETCH_PRE,
		                        .forward_prefetch = 1,
		                        .prefetch_units = 2,
		                        .compute_dtype = i & 8 ? DTYPE_F32 : DTYPE_BF16,
		                        .gradient_dtype = i & 8 ? DTYPE_F32 : DTYPE_BF16,
		                        .micro_batches = 2,
		                        .rope_positions = 16,
		                },
		        .train = {.max_tokens = 32, .max_targets = 32},
		        .eval = {.max_tokens = 32, .max_targets = 32},
		        .adamw = {0.9, 0.95, 1e-8, 0.1, 1},
		        .max_grad_norm = 1,
		        .skip_nonfinite = 1,
		        .check_plans = 1,
		};
		char *cuda = plans_text("cuda", o), *meta = plans_text("meta", o);

		assert_string_equal(cuda, meta);
		compared += strlen(cuda) > 1000;
		free(cuda);
		free(meta);
	}
	assert_int_equal(compared, 16);
	model_close(model);
}

static void test_plans(void **state)
{
	(void)state;
	plans_compare(0);
	plans_compare(1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_plans)};

	setenv("FERRY_MATMUL", "plain", 1);
	device_register(&backend_cuda);
	device_register(&backend_meta);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
