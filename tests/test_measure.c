/* links: placement offload model_families host_cpu device_meta */
/* also: tsan */
/* Measuring a machine (placement/measure.h). The meta device's clock has given rates: the measurement
 * finds them. On the host device it stays within its memory limit, and frees all memory. */
#include "tests/check.h"
#include "tests/model_text.h"

#include "device/backend.h"
#include "host/cpu/cpu_device.h"
#include "host/pool.h"
#include "model/adapter.h"
#include "placement/measure.h"

static void adapt_all(struct model *model)
{
	json_t *all = json_string("all-linear");

	check_ok(model_adapt(model, &(struct adapter_options){.rank = 64, .alpha = 128, .targets = all}));
	json_decref(all);
}

static struct engine_options options_of(
        struct device *device, struct pool *pool, const struct model *model, int64_t tokens)
{
	return (struct engine_options){
	        .device = device,
	        .pool = pool,
	        .model = model,
	        .world_size = 1,
	        .policy = {.compute_dtype = DTYPE_BF16,
	                .gradient_dtype = DTYPE_BF16,
	                .state = ADAMW_STATE_F32,
	                .micro_batches = 1,
	                .rope_positions = tokens},
	        .train = {.max_tokens = tokens, .max_targets = tokens},
	        .adamw = {0.9, 0.999, 1e-8, 0.01, 1},
	        .crossing = SLAB_PINNED,
	};
}

static void assert_near(double value, double expected)
{
	assert_true(value > 0.99 * expected && value < 1.01 * expected);
}

/* Blocks of several families, some that are cut to a part of themselves. */
static const char *const configs[] = {
        "{\"model_type\":\"llama\",\"vocab_size\":1000,\"hidden_size\":1024,\"intermediate_size\":2816,"
        "\"num_hidden_layers\":2,\"num_attention_heads\":8,\"num_key_value_heads\":2}",
        "{\"model_type\":\"llama\",\"vocab_size\":128256,\"hidden_size\":8192,\"intermediate_size\":28672,"
        "\"num_hidden_layers\":80,\"num_attention_heads\":64,\"num_key_value_heads\":8}",
        "{\"model_type\":\"gpt2\",\"vocab_size\":500,\"n_embd\":768,\"n_layer\":3,\"n_head\":12,"
        "\"n_positions\":4096}",
        "{\"model_type\":\"qwen3\",\"vocab_size\":900,\"hidden_size\":1024,\"intermediate_size\":3072,"
        "\"num_hidden_layers\":3,\"num_attention_heads\":16,\"num_key_value_heads\":8,\"head_dim\":128}",
};

static const char small[] =
        "{\"model_type\":\"llama\",\"vocab_size\":1000,\"hidden_size\":256,\"intermediate_size\":704,"
        "\"num_hidden_layers\":2,\"num_attention_heads\":8,\"num_key_value_heads\":2}";

/* The meta device's clock follows a given machine: a GPU, or a host that computes. Measuring finds its
 * products to one per cent, its copies and its memory. */
static void test_finds_what_a_clock_was_told(void **state)
{
	static const struct device_speed machines[] = {{.matmul_flops_bf16 = 400e12,
	                                                       .matmul_flops_f32 = 400e12,
	                                                       .attention_flops = 150e12,
	                                                       .memory_bytes = 2e12,
	                                                       .h2d_bytes = 50e9,
	                                                       .d2h_bytes = 40e9,
	                                                       .host_memory_bytes = 300e9,
	                                                       .host_update_bytes = 200e9,
	                                                       .launch_s = 3e-6,
	                                                       .call_s = 12e-6,
	                                                       .copies_bytes = 60e9},
	        {.matmul_flops_bf16 = 90e9,
	                .matmul_flops_f32 = 90e9,
	                .attention_flops = 30e9,
	                .memory_bytes = 40e9,
	                .h2d_bytes = 0.2e9,
	                .d2h_bytes = 0.3e9,
	                .host_memory_bytes = 40e9,
	                .host_update_bytes = 30e9,
	                .host_computes = 1}};
	struct pool *pool;

	(void)state;
	device_register(&backend_meta);
	check_ok(pool_open(&pool, 2));
	for (size_t i = 0; i < 10; i++) {
		const struct device_speed *told = &machines[i % 2];
		const struct device_options d = {.speed = *told};
		struct device_speed found = {.host_computes = told->host_computes};
		struct model *model = model_from(configs[i / 2 % 4]);
		struct device *device;
		struct engine_options o;

		if (i >= 8)
			adapt_all(model);
		check_ok(device_open(&device, "meta", &d));
		o = options_of(device, pool, model, i % 4 == 1 ? 100 : 2048);
		if (i == 6 || i == 7)
			o.policy.rope_positions = 500; /* documents, the last one shorter */
		check_ok(measure_speed(&found, &o, 0));
		assert_near(found.matmul_flops_bf16, told->matmul_flops_bf16);
		assert_near(found.matmul_flops_f32, told->matmul_flops_f32);
		assert_near(found.attention_flops, told->attention_flops);
		assert_near(found.memory_bytes, told->memory_bytes);
		assert_near(found.h2d_bytes, told->h2d_bytes);
		assert_near(found.d2h_bytes, told->d2h_bytes);
		assert_near(found.host_update_bytes, told->host_update_bytes);
		if (!told->host_computes) {
			assert_near(found.copies_bytes, told->copies_bytes);
			assert_near(found.launch_s, told->launch_s);
			assert_near(found.call_s, told->call_s);
		}
		assert_true(found.host_memory_bytes >= found.host_update_bytes &&
		            found.host_memory_bytes <= 1.01 * told->host_memory_bytes);
		device_close(device);
		model_close(model);
	}
	pool_close(pool);
}

/* Throttled copies are measured as such, every state and gradient has its update, and the device is as
 * before. */
static void test_on_the_host(void **state)
{
	static const enum adamw_state states[] = {ADAMW_STATE_F32, ADAMW_STATE_BF16, ADAMW_STATE_8BIT};
	const struct device_options d = {.threads = 2, .host_copy_gbps = 0.05};
	struct model *model = model_from(small);
	struct device_stats stats;
	struct device *device;
	struct pool *pool;
	dev_addr arena;

	(void)state;
	device_register(&backend_host);
	check_ok(pool_open(&pool, 2));
	check_ok(device_open(&device, "host", &d));
	for (int i = 0; i < 3; i++) {
		struct device_speed found = {.host_computes = 1};
		struct engine_options o = options_of(device, pool, model, 40);

		o.policy.state = states[i];
		o.policy.gradient_dtype = i ? DTYPE_BF16 : DTYPE_F32;
		check_ok(adamw_isa_find(&o.isa, "auto"));
		check_ok(measure_speed(&found, &o, 0));
		assert_true(found.h2d_bytes > 0 && found.h2d_bytes <= 0.05e9 * 1.0001);
		assert_true(found.d2h_bytes > 0 && found.d2h_bytes <= 0.05e9 * 1.0001);
		assert_true(found.matmul_flops_bf16 > 0 && found.memory_bytes > 0);
		assert_true(
		        found.host_update_bytes > 0 && found.host_memory_bytes >= found.host_update_bytes);
		device_get_stats(device, &stats);
		assert_int_equal(stats.slab_bytes, 0);
		check_ok(device_arena_open(device, &arena, 4096));
		device_arena_close(device);
	}
	device_close(device);
	pool_close(pool);
	model_close(model);
}

/* A block with adapters, cut: nothing is written past its buffers, such as to the documents behind them. */
static void test_adapters(void **state)
{
	const struct device_options d = {.threads = 2};
	struct device_speed found = {.host_computes = 1};
	struct model *model = model_from(configs[0]);
	struct engine_options o;
	struct device *device;
	struct pool *pool;

	(void)state;
	device_register(&backend_host);
	adapt_all(model);
	check_ok(pool_open(&pool, 2));
	check_ok(device_open(&device, "host", &d));
	o = options_of(device, pool, model, 44);
	check_ok(adamw_isa_find(&o.isa, "auto"));
	check_ok(measure_speed(&found, &o, 0));
	device_close(device);
	pool_close(pool);
	model_close(model);
}

/* A budget is kept to while measuring; in next to nothing nothing is measured. */
static void test_keeps_to_the_memory_there_is(void **state)
{
	struct model *model = model_from(small);
	struct device_speed found = {.host_computes = 1};
	const struct device_options d = {.threads = 2};
	struct device_stats stats;
	struct engine_options o;
	struct device *device;
	struct pool *pool;

	(void)state;
	device_register(&backend_host);
	check_ok(pool_open(&pool, 2));
	check_ok(device_open(&device, "host", &d));
	o = options_of(device, pool, model, 1000);
	check_ok(adamw_isa_find(&o.isa, "auto"));
	o.device_budget_bytes = 14 << 20;
	check_ok(measure_speed(&found, &o, 28 << 20));
	device_get_stats(device, &stats);
	assert_true(stats.slab_peak_bytes <= 14 << 20);
	o.device_budget_bytes = 1000;
	check_fails(measure_speed(&found, &o, 0), ERR_FIT, "too little memory");
	o.device_budget_bytes = 0;
	check_fails(measure_speed(&found, &o, 1 << 16), ERR_FIT, "too little memory");
	device_close(device);
	pool_close(pool);
	model_close(model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_finds_what_a_clock_was_told),
	        cmocka_unit_test(test_on_the_host),
	        cmocka_unit_test(test_adapters),
	        cmocka_unit_test(test_keeps_to_the_memory_there_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
