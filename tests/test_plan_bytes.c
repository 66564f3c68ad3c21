/* links: offload model_families host_cpu */
/* Exact bytes per parameter: in host memory, pinned, and over the memory bus in a step. For each format of
 * optimizer state, with and without clipping; in plans, and in the store allocated for them. */
#include "tests/check.h"
#include "tests/model_text.h"

#include "device/backend.h"
#include "host/pool.h"
#include "host/slab.h"
#include "offload/engine.h"

#include <math.h>

/* Every tensor is a multiple of UNIT_ALIGN elements, so allocations have only parameters. */
static struct model *aligned(const char *text)
{
	struct model *model = model_from(text);

	for (int t = 0; t < model->tensor_count; t++)
		assert_int_equal(model->tensors[t].count % UNIT_ALIGN, 0);
	return model;
}

static struct model *model_make(void)
{
	return aligned(
	        "{\"model_type\":\"llama\",\"vocab_size\":1024,\"hidden_size\":256,\"intermediate_size\":512,"
	        "\"num_hidden_layers\":6,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
	        "\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":false}");
}

/* The same of experts, every second layer dense. */
static struct model *mixture_make(void)
{
	return aligned("{\"model_type\":\"qwen3_moe\",\"vocab_size\":1024,\"hidden_size\":256,\"intermediate_"
	               "size\":512,"
	               "\"num_hidden_layers\":6,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_"
	               "dim\":256,"
	               "\"moe_intermediate_size\":64,\"num_experts\":8,\"num_experts_per_tok\":2,\"decoder_"
	               "sparse_step\":2,"
	               "\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":false}");
}

static struct engine_options options_of(
        const struct model *model, struct device *device, enum adamw_state state, int in_backward)
{
	return (struct engine_options){
	        .device = device,
	        .model = model,
	        .world_size = 1,
	        .policy =
	                {
	                        .offload_params = 1,
	                        .offload_gradients = 1,
	                        .offload_optimizer = 1,
	                        .activations = ACTIVATION_RECOMPUTE,
	                        .forward_prefetch = 1,
	                        .prefetch_units = 1,
	                        .update_in_backward = in_backward,
	                        .compute_dtype = DTYPE_BF16,
	                        .gradient_dtype = DTYPE_BF16,
	                        .state = state,
	                        .micro_batches = 1,
	                        .rope_positions = 16,
	                },
	        .train = {.max_tokens = 16, .max_targets = 16},
	        .adamw = {0.9, 0.95, 1e-8, 0.1, 1},
	        .max_grad_norm = !in_backward,
	        .skip_nonfinite = !in_backward,
	        .check_plans = 1,
	        .crossing = SLAB_PINNED,
	};
}

/* At most, between the planes of both slabs. */
enum { SKEWS_BYTES = PLANE_COUNT * (64 + SLAB_SKEW_BYTES) };

/* hi, lo, m, v and scales, in 128ths of a byte a parameter; scales are 2 * 4 bytes of 256 elements. */
static const struct {
	enum adamw_state state;
	int64_t planes_128ths;
} forms[] = {{ADAMW_STATE_F32, 12 * 128}, {ADAMW_STATE_BF16, 8 * 128}, {ADAMW_STATE_8BIT, 6 * 128 + 4}};
enum { FORMS = sizeof(forms) / sizeof(forms[0]) };

static int64_t largest_unit(const struct unit_map *map)
{
	int64_t most = 0;

	for (int u = 0; u < map->unit_count; u++)
		most = map->units[u].count > most ? map->units[u].count : most;
	return most;
}

static void memory_check(const struct engine *e, int64_t parameters, int64_t planes_128ths, int in_backward)
{
	const struct plan *p = engine_plan(e, PLAN_TRAIN);
	int64_t gradient = in_backward ? 0 : 2, ring = plan_bytes_of(p, SPACE_STAGING, BUFFER_GRADIENT_RING);
	int64_t small = plan_bytes_of(p, SPACE_STAGING, BUFFER_BATCH) +
	                plan_bytes_of(p, SPACE_STAGING, BUFFER_LOSS) +
	                plan_bytes_of(p, SPACE_STAGING, BUFFER_SUMS_OF_SQUARES);
	struct engine_memory m;

	engine_get_memory(e, &m);
	assert_in_range(m.store_bytes, parameters * (planes_128ths + 128 * gradient) / 128,
	        parameters * (planes_128ths + 128 * gradient) / 128 + SKEWS_BYTES);
	assert_in_range(m.pinned_bytes, parameters * (2 + gradient) + m.staging_bytes,
	        parameters * (2 + gradient) + m.staging_bytes + SKEWS_BYTES);
	/* the stage: a ring of two units, where gradients have no plane, and what does not grow with weights
	 */
	assert_true(in_backward ? ring > 0 : ring == 0);
	assert_true(
	        m.staging_bytes <= (in_backward ? 2 * 2 * largest_unit(engine_units(e)) : 0) + small + 4096);
}

/* The slabs have their planned sizes. */
static void store_check(const struct engine *e, struct device *device)
{
	const struct plan *p = engine_plan(e, PLAN_TRAIN);
	struct device_stats before, after;
	struct engine_memory m;
	struct store *store;

	engine_get_memory(e, &m);
	device_get_stats(device, &before);
	check_ok(store_open(&store, device, p, SLAB_PINNED, NULL));
	device_get_stats(device, &after);
	assert_int_equal(after.slab_bytes - before.slab_bytes, m.store_bytes);
	store_close(store);
}

/* Weights go out at most twice; gradients come in once; an update reads and writes its planes and reads the
 * gradient. The norm is not seen here: it is taken on the device, where the gradient is rounded. */
static void bus_check(const struct engine *e, int64_t parameters, int64_t planes_128ths)
{
	const struct plan *p = engine_plan(e, PLAN_TRAIN);
	struct plan_memory_traffic bus;

	plan_memory_traffic_find(&bus, p);
	assert_int_equal(128 * bus.update_bytes, parameters * (2 * planes_128ths + 2 * 128));
	assert_int_equal(bus.gradient_bytes, 2 * parameters);
	assert_true(bus.weight_bytes > 2 * parameters && bus.weight_bytes < 4 * parameters);
	assert_int_equal(bus.weight_bytes + bus.gradient_bytes + bus.other_bytes,
	        p->h2d_bytes + p->d2h_bytes + plan_bytes_of(p, SPACE_STAGING, BUFFER_SUMS_OF_SQUARES));
	assert_int_equal(
	        bus.bytes, bus.weight_bytes + bus.gradient_bytes + bus.update_bytes + bus.other_bytes);
}

static void bytes_check(struct model *model)
{
	struct device_options device_options = {0};
	struct device *device;

	check_ok(pool_open(&device_options.pool, 1));
	check_ok(device_open(&device, "host", &device_options));
	for (int form = 0; form < FORMS; form++)
		for (int in_backward = 0; in_backward < 2; in_backward++) {
			struct engine_options o = options_of(model, device, forms[form].state, in_backward);
			struct engine *e;

			check_ok(engine_open(&e, &o));
			memory_check(e, model->parameter_count, forms[form].planes_128ths, in_backward);
			store_check(e, device);
			bus_check(e, model->parameter_count, forms[form].planes_128ths);
			engine_close(e);
		}
	device_close(device);
	pool_close(device_options.pool);
	model_close(model);
}

static void test_bytes_of_a_parameter(void **state)
{
	(void)state;
	bytes_check(model_make());
	bytes_check(mixture_make());
}

/* fp32: weights cross in both planes and gradients in four bytes; all that crosses is pinned. */
static void test_pinned_bytes_of_fp32(void **state)
{
	struct device_options device_options = {0};
	struct model *model = model_make();
	struct engine_options o;
	struct device_stats stats;
	struct device *device;
	struct engine_memory m;
	struct engine *e;

	(void)state;
	check_ok(pool_open(&device_options.pool, 1));
	check_ok(device_open(&device, "host", &device_options));
	o = options_of(model, device, ADAMW_STATE_F32, 0);
	o.policy.compute_dtype = o.policy.gradient_dtype = DTYPE_F32;
	check_ok(engine_open(&e, &o));
	engine_get_memory(e, &m);
	assert_in_range(
	        m.store_bytes, 16 * model->parameter_count, 16 * model->parameter_count + SKEWS_BYTES);
	assert_in_range(m.pinned_bytes, 8 * model->parameter_count + m.staging_bytes,
	        8 * model->parameter_count + m.staging_bytes + SKEWS_BYTES);
	check_ok(engine_start(e));
	device_get_stats(device, &stats);
	assert_int_equal(stats.slab_pinned_bytes, m.pinned_bytes);
	engine_close(e);
	device_close(device);
	pool_close(device_options.pool);
	model_close(model);
}

/* Nothing is offloaded: nothing of a weight crosses. */
static void test_nothing_crosses_without_offload(void **state)
{
	struct device_options device_options = {0};
	struct model *model = model_make();
	struct engine_options o;
	struct device *device;
	struct plan_memory_traffic bus;
	struct engine *e;

	(void)state;
	check_ok(pool_open(&device_options.pool, 1));
	check_ok(device_open(&device, "host", &device_options));
	o = options_of(model, device, ADAMW_STATE_8BIT, 0);
	o.policy.offload_params = o.policy.offload_gradients = o.policy.offload_optimizer = 0;
	check_ok(engine_open(&e, &o));
	plan_memory_traffic_find(&bus, engine_plan(e, PLAN_TRAIN));
	assert_int_equal(bus.weight_bytes + bus.gradient_bytes + bus.update_bytes, 0);
	assert_true(bus.other_bytes > 0);
	engine_close(e);
	device_close(device);
	pool_close(device_options.pool);
	model_close(model);
}

static int setup(void **state)
{
	(void)state;
	device_register(&backend_host);
	return 0;
}

/* ---- between ranks ---- */

/* Two nodes of two ranks. */
enum { RANKS = 4, NODE = 2 };

static const struct strategy {
	int shard_ranks, keep_gathered;
} strategies[] = {{4, 0}, {4, 1}, {1, 0}, {2, 0}, {2, 1}};

/* What collectives of `elements` in each unit come to, by hand: a rank sends (S-1)/S of a buffer. Sent to all
 * others, as many in-node as there are peers there; along a ring through two nodes of two, half of it. */
static void traffic_add(int64_t sent[2], int64_t bytes, int size, int stride, enum comm_algorithm algorithm)
{
	int64_t all = bytes / size * (size - 1);

	if (size == 1)
		return;
	if (size == 2)
		sent[stride == 2] += all; /* neighbours, or each on its node */
	else {
		sent[0] += algorithm == COMM_RING ? all / 2 : all / 3;
		sent[1] += algorithm == COMM_RING ? all / 2 : all / 3 * 2;
	}
}

static void traffic_check(
        const struct model *model, const struct strategy *s, enum dtype reduce, enum comm_algorithm algorithm)
{
	int replicas = RANKS / s->shard_ranks, L = (int)model->config.L, width = reduce == DTYPE_F32 ? 4 : 2;
	struct engine_options o = options_of(model, NULL, ADAMW_STATE_F32, 0);
	struct plan_policy policy = o.policy;
	int64_t weights[2] = {0}, gradients[2] = {0};
	struct comm_links shards, same;
	struct plan_traffic t;
	struct unit_map *map;
	struct plan *p;

	policy.max_tokens = policy.max_targets = 16;
	policy.forward_prefetch = 0;
	policy.backward_prefetch = BACKWARD_PREFETCH_NONE;
	policy.replicas = replicas;
	policy.keep_gathered = s->keep_gathered;
	policy.reduce_dtype = reduce;
	check_ok(unit_map_open(&map, model, WRAP_TRANSFORMER, 0, DTYPE_F32, 0, s->shard_ranks));
	assert_int_equal(map->unit_count, L + 2);
	check_ok(plan_build(&p, PLAN_TRAIN, map, &policy));
	for (int u = 0; u < L + 2; u++) {
		/* the embedding is not read again, the head and the block next to it are still there */
		int gathers = u == 0 || u >= L || s->keep_gathered ? 1 : 2;
		int64_t count = map->units[u].count;

		traffic_add(weights, gathers * 2 * count, s->shard_ranks, 1, algorithm);
		traffic_add(gradients, width * count, s->shard_ranks, 1, algorithm);
		traffic_add(
		        gradients, 2 * width * count / s->shard_ranks, replicas, s->shard_ranks, algorithm);
	}
	comm_links_find(&shards,
	        &(struct comm_group){.size = s->shard_ranks, .stride = 1, .world_size = RANKS}, NODE,
	        algorithm);
	comm_links_find(&same,
	        &(struct comm_group){.size = replicas, .stride = s->shard_ranks, .world_size = RANKS}, NODE,
	        algorithm);
	plan_traffic_find(&t, p, &shards, &same);
	assert_int_equal(t.gather_node_bytes, weights[0]);
	assert_int_equal(t.gather_network_bytes, weights[1]);
	assert_int_equal(t.sum_node_bytes, gradients[0]);
	assert_int_equal(t.sum_network_bytes, gradients[1]);
	assert_int_equal(
	        t.node_bytes + t.network_bytes, weights[0] + weights[1] + gradients[0] + gradients[1]);
	plan_free(p);
	unit_map_close(map);
}

static void test_traffic_of_each_strategy(void **state)
{
	(void)state;
	for (int kind = 0; kind < 2; kind++) {
		struct model *model = kind ? mixture_make() : model_make();

		for (size_t i = 0; i < sizeof(strategies) / sizeof(*strategies); i++)
			for (int reduce = 0; reduce < 2; reduce++)
				for (int ring = 0; ring < 2; ring++)
					traffic_check(model, &strategies[i], reduce ? DTYPE_BF16 : DTYPE_F32,
					        ring ? COMM_RING : COMM_DIRECT);
		model_close(model);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_bytes_of_a_parameter),
	        cmocka_unit_test(test_pinned_bytes_of_fp32),
	        cmocka_unit_test(test_nothing_crosses_without_offload),
	        cmocka_unit_test(test_traffic_of_each_strategy),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
