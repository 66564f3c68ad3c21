/* links: offload host_cpu model_families */
/* also: tsan */
/* The engine on simulated machines of 1, 2 and 8 NUMA nodes: the same bits, and each shard's pages are on
 * the node of the workers that update it. */
#include "tests/engine_rig.h"
#include "tests/sparing.h"

#include "base/mem.h"
#include "host/pool.h"
#include "host/topology.h"
#include "model/families/open.h"

#include <unistd.h>

enum { TOKENS = 16, VOCAB = 3000, STEPS = 2, NODES_MAX = 8 };

static const char config[] =
        "{\"model_type\":\"llama\",\"vocab_size\":3000,\"hidden_size\":128,\"intermediate_size\":384,"
        "\"num_hidden_layers\":3,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
        "\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":false,"
        "\"initializer_range\":0.2}";

static const struct plan_policy policy = {
        .offload_params = 1,
        .offload_gradients = 1,
        .offload_optimizer = 1,
        .activations = ACTIVATION_RECOMPUTE,
        .backward_prefetch = BACKWARD_PREFETCH_PRE,
        .prefetch_units = 2,
        .compute_dtype = DTYPE_BF16,
        .gradient_dtype = DTYPE_BF16,
        .micro_batches = 2,
        .max_tokens = TOKENS,
        .max_targets = TOKENS,
        .rope_positions = TOKENS,
};

static struct model *model_make(void)
{
	struct model *model;
	json_t *json;

	check_ok(json_parse(&json, "config.json", config, strlen(config)));
	check_ok(model_open(&model, json, "config.json"));
	json_decref(json);
	return model;
}

static struct pool *pool_make(const char *machine, int threads)
{
	static struct topology t;
	struct pool *pool;

	setenv(TOPOLOGY_ENVIRONMENT, machine, 1);
	check_ok(topology_read(&t));
	check_ok(pool_open_on(&pool, threads, &t));
	return pool;
}

/* ---- whole steps ---- */

static void steps_run(struct engine *e, double *losses)
{
	int32_t id[TOKENS], position[TOKENS], start[TOKENS] = {0}, end[TOKENS], row[TOKENS], label[TOKENS];
	const struct host_batch batch = {.tokens = TOKENS,
	        .targets = TOKENS - 1,
	        .documents = 1,
	        .id = id,
	        .position = position,
	        .doc_start = start,
	        .doc_end = end,
	        .target_row = row,
	        .own = {label}};
	const struct host_batch micro[] = {batch, batch};

	for (int i = 0; i < TOKENS; i++) {
		id[i] = i * 977 % VOCAB;
		position[i] = row[i] = i;
		end[i] = TOKENS;
		label[i] = (i + 1) * 977 % VOCAB;
	}
	for (int step = 0; step < STEPS; step++) {
		struct engine_result result;

		check_ok(engine_step(e, &result, micro, 2, 2 * (TOKENS - 1), 1e-2, NULL));
		losses[step] = result.loss_sum;
	}
	check_ok(engine_flush(e));
}

static uint64_t planes_hash(struct engine *e, const struct model *model)
{
	uint64_t hash = 14695981039346656037u;

	for (int plane = PLANE_HI; plane <= PLANE_V; plane++)
		for (int t = 0; t < model->tensor_count; t++) {
			size_t bytes = (size_t)model->tensors[t].count * (plane >= PLANE_M ? 4 : 2);
			unsigned char *data = calloc(1, bytes);

			check_ok(engine_read(e, t, (enum plane)plane, 0, model->tensors[t].count, data));
			for (size_t i = 0; i < bytes; i++)
				hash = (hash ^ data[i]) * 1099511628211u;
			free(data);
		}
	return hash;
}

/* Less than a page at either end of a run may be the neighbour's; nothing else is where it should not be. */
static void check_placement(const struct store *store, const struct pool *pool, int runs_of_node)
{
	struct store_placement nodes[NODES_MAX];
	int64_t page_bytes = sysconf(_SC_PAGESIZE), sum = 0, bytes, huge_bytes;
	int count = store_get_placement(store, nodes, NODES_MAX);

	assert_int_equal(count, pool_node_os_index(pool, 0) < 0 ? 0 : pool_node_count(pool));
	for (int n = 0; n < count; n++) {
		const struct numa_found *f = &nodes[n].found;

		assert_int_equal(nodes[n].os_index, pool_node_os_index(pool, n));
		assert_int_equal(f->right_bytes + f->wrong_bytes, nodes[n].bytes);
		if (f->wrong_bytes > runs_of_node * page_bytes)
			fail_msg("node %d: %lld of %lld bytes are elsewhere", n, (long long)f->wrong_bytes,
			        (long long)nodes[n].bytes);
		assert_true(f->right_bytes > nodes[n].bytes / 2);
		sum += nodes[n].bytes;
	}
	store_get_pages(store, &bytes, &huge_bytes);
	assert_true(huge_bytes <= bytes);
	assert_true(!count || (sum <= bytes && sum > bytes - (1 << 16))); /* but for gaps between planes */
}

/* Gradients that return into a ring: those of both blocks, and others of their size, are placed, except
 * for a page at either end. Embedding and head are larger, and take turns with them in the same bytes. */
static void check_rings(const struct engine *e, const struct pool *pool)
{
	const struct plan *plan = engine_plan(e, PLAN_TRAIN);
	struct store_placement nodes[NODES_MAX];
	int count = staging_get_placement(engine_staging(e), nodes, NODES_MAX), blocks = 0;
	int64_t page_bytes = sysconf(_SC_PAGESIZE), returned = 0, block_bytes = 0, right = 0, placed = 0;

	if (pool_node_count(pool) == 1 || !plan->policy.update_in_backward) {
		assert_int_equal(count, 0);
		return;
	}
	assert_int_equal(count, pool_node_count(pool));
	for (int i = 0; i < plan->buffer_count; i++) {
		const struct plan_buffer *b = &plan->buffers[i];

		if (b->space != SPACE_STAGING || b->unit < 0)
			continue;
		returned += b->bytes;
		if (b->unit == 0 || b->unit == engine_units(e)->unit_count - 1)
			continue;
		block_bytes += b->bytes;
		blocks++;
	}
	assert_int_equal(blocks, engine_units(e)->unit_count - 2);
	for (int n = 0; n < count; n++) {
		const struct numa_found *f = &nodes[n].found;

		assert_int_equal(f->right_bytes + f->wrong_bytes, nodes[n].bytes);
		right += f->right_bytes;
		placed += nodes[n].bytes;
	}
	assert_int_equal(placed, returned);
	if (right < block_bytes - 2 * count * blocks * page_bytes)
		fail_msg("%lld bytes of gradients are where they are used, of blocks' %lld", (long long)right,
		        (long long)block_bytes);
}

struct outcome {
	double losses[STEPS];
	uint64_t planes;
	int64_t placed_count; /* pieces of work that were handed out by node */
};

/* Every update's pieces of 64K elements went to the node that holds their middle: nodes have blocks of 256
 * elements in proportion to their workers, rounded down. */
static int64_t check_pieces(const struct pool *pool, const struct unit_map *map)
{
	int64_t want[NODES_MAX] = {0}, sum = 0;

	for (int u = 0; u < map->unit_count; u++)
		for (int i = 0; i < map->units[u].piece_count; i++) {
			const struct unit_piece *piece = &map->pieces[map->units[u].pieces[i]];
			int node;

			for (int64_t at = 0; at < piece->count; at += 65536) {
				int64_t left = piece->count - at, before = 0;
				int64_t middle = piece->offset + at + (left < 65536 ? left : 65536) / 2;

				for (node = 0; node + 1 < pool_node_count(pool); node++) {
					before += pool_node_worker_count(pool, node);
					if (middle < map->units[u].count / 256 * before /
					                     pool_worker_count(pool) * 256)
						break;
				}
				want[node] += STEPS;
			}
		}
	for (int n = 0; n < pool_node_count(pool); n++) {
		int64_t near, stolen;

		pool_get_placed(pool, n, &near, &stolen);
		if (pool_node_count(pool) > 1)
			assert_int_equal(near + stolen, want[n]);
		sum += near + stolen;
	}
	return sum;
}

enum updates { UPDATES_AFTER_NORM, UPDATES_IN_BACKWARD };

static void engine_run(struct outcome *out, const char *machine, int threads, enum updates updates)
{
	struct model *model = model_make();
	struct engine_options o = {
	        .pool = pool_make(machine, threads),
	        .model = model,
	        .world_size = 1,
	        .policy = policy,
	        .train = {.max_tokens = TOKENS, .max_targets = TOKENS},
	        .adamw = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1},
	        .max_grad_norm = 0.5,
	        .skip_nonfinite = 1,
	};
	struct device_options device_options = {.pool = o.pool};
	struct engine *e;

	if (updates == UPDATES_IN_BACKWARD) {
		o.policy.update_in_backward = 1;
		o.max_grad_norm = 0;
		o.skip_nonfinite = 0;
	}
	memset(out, 0, sizeof(*out));
	check_ok(adamw_isa_find(&o.isa, "auto"));
	check_ok(device_open(&o.device, "host", &device_options));
	check_ok(engine_open(&e, &o));
	check_ok(engine_start(e));
	weights_write(e, model);
	steps_run(e, out->losses);
	out->planes = planes_hash(e, model);
	check_placement(engine_store(e), o.pool, PLANE_COUNT * engine_units(e)->unit_count);
	check_rings(e, o.pool);
	out->placed_count = check_pieces(o.pool, engine_units(e));
	engine_close(e);
	device_close(o.device);
	pool_close(o.pool);
	model_close(model);
}

static void check_nodes(enum updates updates)
{
	static const struct {
		const char *machine;
		int threads, nodes;
	} cases[] = {
	        {"numa:2 core:2 pu:1", 4, 2}, {"numa:2 core:4 pu:2", 3, 2},
	        {"pack:2 numa:4 core:1 pu:1", 8, 8},
	        {"numa:8 core:2 pu:1", 1, 1}, /* one of eight: all on that one */
	};
	struct outcome base, other;

	engine_run(&base, "numa:1 core:2 pu:1", 2, updates);
	assert_true(base.losses[0] > 0 && base.losses[1] < base.losses[0]);
	assert_int_equal(base.placed_count, 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i += (size_t)sparing(2)) {
		engine_run(&other, cases[i].machine, cases[i].threads, updates);
		if (memcmp(base.losses, other.losses, sizeof(base.losses)) || base.planes != other.planes)
			fail_msg("%s on %d threads: other bits", cases[i].machine, cases[i].threads);
		assert_true((other.placed_count > 0) == (cases[i].nodes > 1));
	}
}

static void test_nodes_change_no_bit(void **state)
{
	(void)state;
	check_nodes(UPDATES_AFTER_NORM);
}

static void test_rings_are_placed(void **state)
{
	(void)state;
	check_nodes(UPDATES_IN_BACKWARD);
}

/* ---- shards ---- */

/* Bytes of the plan's planes in the store: all belong to a node. */
static void check_whole(const struct store *store, const struct plan *plan)
{
	struct store_placement nodes[NODES_MAX];
	int64_t placed = 0, planes = 0;
	int count = store_get_placement(store, nodes, NODES_MAX);

	for (int n = 0; n < count; n++)
		placed += nodes[n].bytes;
	for (int i = 0; i < plan->buffer_count; i++)
		planes += plan->buffers[i].space == SPACE_STORE ? plan->buffers[i].bytes : 0;
	assert_int_equal(placed, planes);
}

/* The store of each rank of three: shards that begin and end within tensors. `code`: of frozen matrices. */
static void check_shards(const struct weight_format *code)
{
	struct model *model = model_make();
	struct pool *pool = pool_make("numa:8 core:1 pu:1", 8);
	struct device *device;
	struct device_options device_options = {.pool = pool};

	for (int t = 0; t < model->tensor_count && code; t++)
		if (model->tensors[t].layer >= 0 && model_tensor_rows(&model->tensors[t]) > 1) {
			model->tensors[t].trainable = 0;
			model->tensors[t].kept = code;
		}
	check_ok(device_open(&device, "host", &device_options));
	for (int rank = 0; rank < 3; rank++) {
		struct unit_map *map;
		struct plan *plan;
		struct store *store;

		check_ok(unit_map_open(&map, model, WRAP_TRANSFORMER, 0, DTYPE_F32, rank, 3));
		check_ok(plan_build(&plan, PLAN_TRAIN, map, &policy));
		check_ok(store_open(&store, device, plan, SLAB_PINNED, pool));
		for (int i = 0; i < plan->buffer_count; i++) {
			const struct plan_buffer *b = &plan->buffers[i];

			if (b->space == SPACE_STORE)
				memset(store_at(store, plan_kind_plane(b->kind), b->unit), 1,
				        (size_t)b->bytes);
		}
		check_placement(store, pool, PLANE_COUNT * map->unit_count);
		check_whole(store, plan);
		store_close(store);
		plan_free(plan);
		unit_map_close(map);
	}
	device_close(device);
	pool_close(pool);
	model_close(model);
}

/* Blocks that share a scale are smaller and larger than those that nodes divide, and one is a whole row. */
static void test_shards_are_placed(void **state)
{
	(void)state;
	check_shards(NULL);
	check_shards(weight_format_coded(CODE_NF4, CODE_SCALE_F32, 32));
	check_shards(weight_format_coded(CODE_NF4, CODE_SCALE_NESTED, 4096));
	check_shards(weight_format_coded(CODE_E4M3, CODE_SCALE_F32, 128));
	check_shards(weight_format_coded(CODE_I8, CODE_SCALE_F32, WEIGHT_BLOCK_ROW));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_nodes_change_no_bit),
	        cmocka_unit_test(test_rings_are_placed),
	        cmocka_unit_test(test_shards_are_placed),
	};

	device_register(&backend_host);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
