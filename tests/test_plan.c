/* links: offload model_families device_meta */
/* The plan: plan_check accepts every policy, no wait is missing or redundant, byte counts are right, and wrap
 * policies match torch. */
#include "tests/check.h"
#include "tests/model_text.h"
#include "tests/sparing.h"

#include "base/mem.h"
#include "device/op_attention.h"
#include "model/blocks/blocks.h"
#include "model/join.h"
#include "offload/plan.h"
#include "offload/plan_parts.h"

static struct model *small_llama(int layers, int tied)
{
	char text[512];

	snprintf(text, sizeof(text),
	        "{\"model_type\":\"llama\",\"vocab_size\":320,\"hidden_size\":64,\"intermediate_size\":96,"
	        "\"num_hidden_layers\":%d,"
	        "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"max_position_embeddings\":128,\"rms_"
	        "norm_eps\":1e-5,"
	        "\"tie_word_embeddings\":%s}",
	        layers, tied ? "true" : "false");
	return model_from(text);
}

/* Only rows of its second table cross. */
static struct model *small_gemma(int layers)
{
	char text[512];

	snprintf(text, sizeof(text),
	        "{\"model_type\":\"gemma4_text\",\"vocab_size\":320,\"vocab_size_per_layer_input\":320,"
	        "\"hidden_size\":64,\"hidden_size_per_layer_input\":16,\"intermediate_size\":96,"
	        "\"num_hidden_layers\":%d,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
	        "\"head_dim\":16,\"global_head_dim\":16,\"max_position_embeddings\":128}",
	        layers);
	return model_from(text);
}

/* Untied, tied, with a table of rows. */
enum { SMALL_MODELS = 3 };
static struct model *small_model(int which, int layers)
{
	return which == 2 ? small_gemma(layers) : small_llama(layers, which);
}

static const struct plan_policy default_policy = {
        .offload_params = 1,
        .offload_gradients = 1,
        .offload_optimizer = 1,
        .activations = ACTIVATION_RECOMPUTE,
        .order = ORDER_LAYER_MAJOR,
        .backward_prefetch = BACKWARD_PREFETCH_PRE,
        .forward_prefetch = 1,
        .prefetch_units = 2,
        .compute_dtype = DTYPE_BF16,
        .gradient_dtype = DTYPE_BF16,
        .micro_batches = 2,
        .max_tokens = 32,
        .max_targets = 31,
        .rope_positions = 32,
};

/* Policy number n of all combinations; 0 when n is beyond them. */
static int policy_number(int n, struct plan_policy *p, enum wrap_policy *wrap)
{
	static const int sides[] = {2, 2, 2, 3, 2, 3, 2, 2, 2, 2, 2, 3, 3, 3, 2, 2, 5};
	int digit[17];

	for (int i = 0; i < 17; i++) {
		digit[i] = n % sides[i];
		n /= sides[i];
	}
	if (n)
		return 0;
	*p = default_policy;
	p->offload_params = digit[0];
	p->offload_gradients = digit[1];
	p->offload_optimizer = digit[2];
	p->activations = (enum activation_policy)digit[3];
	p->order = (enum visit_order)digit[4];
	p->backward_prefetch = (enum backward_prefetch)digit[5];
	p->forward_prefetch = digit[6];
	p->prefetch_units = digit[7] ? 3 : 1;
	p->update_in_backward = digit[8];
	p->compute_dtype = digit[9] ? DTYPE_F32 : DTYPE_BF16;
	p->gradient_dtype = digit[9] ? DTYPE_F32 : DTYPE_BF16;
	p->micro_batches = digit[10] ? 3 : 1;
	*wrap = (enum wrap_policy)digit[11];
	p->resident_weights = 2 * digit[12];
	p->kept_blocks = 2 * digit[14];
	p->hosted_blocks = 2 * digit[15];
	p->kept_level = (enum acts_level)(digit[16] % ACTS_LEVELS);
	p->hosted_level = (enum acts_level)((digit[16] + digit[14]) % ACTS_LEVELS);
	p->resident_states = digit[13] ? 2 * digit[13] - 1 : 0;
	return 1;
}

static void test_every_policy_is_accepted(void **state)
{
	struct plan_policy policy;
	enum wrap_policy wrap;
	int count = 0;

	(void)state;
	for (int which = 0; which < SMALL_MODELS; which++) {
		struct model *model = small_model(which, 3);

		/* every 1301st, a number that shares no factor with the sides, so each value meets each other
		 * one; nor does 3989 */
		for (int n = which; policy_number(n, &policy, &wrap); n += SANITIZED ? 3989 : 1301)
			for (int discard = 0; discard < 2; discard++) {
				struct unit_map *map;
				struct plan *plan;

				policy.discard = discard;
				check_ok(unit_map_open(&map, model, wrap, 10000, DTYPE_F32, 0, 1));
				check_ok(plan_build(&plan, PLAN_TRAIN, map, &policy));
				check_ok(plan_check(plan));
				plan_free(plan);
				unit_map_close(map);
				count++;
			}
		model_close(model);
	}
	assert_true(count > (SANITIZED ? 1300 : 4000));
}

/* The same of ranks that share units out, whole or in groups of replicas. */
static void test_every_policy_of_several_ranks(void **state)
{
	struct model *model = small_llama(3, 1);
	struct plan_policy policy;
	enum wrap_policy wrap;
	int count = 0;

	(void)state;
	for (int n = 0; policy_number(n, &policy, &wrap); n += 653) {
		int world = 1 + count % 3;
		struct unit_map *map;
		struct plan *plan;

		policy.resident_weights = policy.resident_states = 0;
		policy.discard = count % 2;
		policy.replicas = world == 1 || count % 5 == 0 ? 2 : 1;
		policy.keep_gathered = count / 2 % 2;
		policy.reduce_dtype = count / 4 % 2 ? DTYPE_BF16 : DTYPE_F32;
		check_ok(unit_map_open(&map, model, wrap, 10000, DTYPE_F32, world - 1, world));
		check_ok(plan_build(&plan, PLAN_TRAIN, map, &policy));
		check_ok(plan_check(plan));
		plan_free(plan);
		unit_map_close(map);
		count++;
	}
	assert_true(count > 1000);
	model_close(model);
}

/* Each wait in turn is taken out: the plan must then be rejected. */
static void waits_are_all_needed(
        const struct unit_map *map, enum plan_kind kind, const struct plan_policy *policy)
{
	struct plan *plan;

	check_ok(plan_build(&plan, kind, map, policy));
	check_ok(plan_check(plan));
	for (int i = 0; i < plan->op_count; i++) {
		struct plan_op *op = &plan->ops[i];

		for (int w = 0; w < op->wait_count; w++) {
			int *waits = &plan->waits[op->first_wait], taken = waits[w],
			    last = waits[op->wait_count - 1];

			waits[w] = last;
			op->wait_count--;
			if (plan_check(plan) != ERR_INTERNAL)
				fail_msg("operation %d (%s): its wait for %d (%s) is redundant", i,
				        plan_op_name(op->kind), taken, plan_op_name(plan->ops[taken].kind));
			op->wait_count++;
			waits[op->wait_count - 1] = last;
			waits[w] = taken;
		}
	}
	check_ok(plan_check(plan));
	plan_free(plan);
}

static void test_no_wait_is_redundant(void **state)
{
	static const enum plan_kind kinds[] = {PLAN_TRAIN, PLAN_UPDATE, PLAN_EVAL, PLAN_LOGITS};
	struct plan_policy policy;
	enum wrap_policy wrap;
	int waits_seen = 0;

	(void)state;
	for (int which = 0; which < SMALL_MODELS; which++) {
		struct model *model = small_model(which, 2);

		for (int n = which; policy_number(n, &policy, &wrap); n += 12007) {
			struct unit_map *map;

			check_ok(unit_map_open(&map, model, wrap, 10000, DTYPE_F32, 0, 1));
			for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++)
				if (kinds[k] != PLAN_UPDATE || !policy.update_in_backward)
					waits_are_all_needed(map, kinds[k], &policy);
			unit_map_close(map);
			waits_seen++;
		}
		model_close(model);
	}
	assert_true(waits_seen > 40);
}

/* ---- bytes ---- */

static void test_bytes_follow_policy(void **state)
{
	struct model *model = small_llama(6, 0);
	struct plan_policy policy = default_policy;
	struct unit_map *map;
	struct plan *on, *off, *spill, *shallow;

	(void)state;
	check_ok(unit_map_open(&map, model, WRAP_TRANSFORMER, 0, DTYPE_F32, 0, 1));
	check_ok(plan_build(&on, PLAN_TRAIN, map, &policy));
	/* hi, lo, m, v and bf16 gradients: 14 bytes an element, all of it on the host */
	assert_int_equal(on->space_bytes[SPACE_STORE] / map->shard_total, 14);
	assert_int_equal(plan_bytes_of(on, SPACE_STORE, BUFFER_PLANE_M), 4 * map->shard_total);
	/* weights cross twice a step except the units next to the head; gradients once */
	assert_true(on->h2d_bytes < 2 * 2 * map->shard_total + 4 * plan_batch_bytes(&policy));
	policy.offload_params = policy.offload_gradients = policy.offload_optimizer = 0;
	check_ok(plan_build(&off, PLAN_TRAIN, map, &policy));
	assert_int_equal(off->space_bytes[SPACE_STORE], 0);
	assert_true(off->persistent_bytes[SPACE_DEVICE] >= 14 * map->shard_total);
	assert_int_equal(off->h2d_bytes, 2 * plan_batch_bytes(&policy));
	assert_true(on->space_bytes[SPACE_DEVICE] < off->space_bytes[SPACE_DEVICE]);
	policy = default_policy;
	policy.activations = ACTIVATION_OFFLOAD;
	policy.max_tokens = 4096;
	check_ok(plan_build(&spill, PLAN_TRAIN, map, &policy));
	policy.activations = ACTIVATION_RECOMPUTE;
	check_ok(plan_build(&shallow, PLAN_TRAIN, map, &policy));
	assert_true(spill->space_bytes[SPACE_DEVICE] < shallow->space_bytes[SPACE_DEVICE]);
	plan_free(spill);
	plan_free(shallow);
	plan_free(off);
	plan_free(on);
	/* a home that nothing has yet is refused by name */
	policy.offload_optimizer = HOME_DISK;
	assert_int_equal(plan_build(&on, PLAN_TRAIN, map, &policy), ERR_UNSUPPORTED);
	assert_non_null(strstr(err_text(), "optimizer state on a disk"));
	unit_map_close(map);
	model_close(model);
}

/* The cache lives from pass to pass, a buffer for each block that its attention alone touches; with weights
 * that stay and with weights that are streamed. A block with a window keeps what a pass may see. */
static void test_cache_is_planned(void **state)
{
	struct model *model = small_llama(4, 1);
	struct plan_policy policy = default_policy;
	struct unit_map *map;
	struct plan *with, *without;

	(void)state;
	check_ok(unit_map_open(&map, model, WRAP_TRANSFORMER, 0, DTYPE_F32, 0, 1));
	policy.inference = 1;
	model->config.block[2].window = 5;
	for (int on_host = 0; on_host < 2; on_host++) {
		const struct cache_shape shape = {100, 50, 8};
		int64_t row = attention_cache_row_count(model->config.KV, model->config.D) *
		              dtype_bytes(policy.compute_dtype);
		int64_t bytes = (3 * 100 + 2 * (5 - 1 + 8)) * row;
		int uses = 0;

		policy.offload_params = on_host;
		policy.cache = (struct cache_shape){0};
		check_ok(plan_build(&without, PLAN_LOGITS, map, &policy));
		policy.cache = shape;
		check_ok(plan_build(&with, PLAN_LOGITS, map, &policy));
		check_ok(plan_check(with));
		assert_true(bytes > 0);
		assert_int_equal(plan_bytes_of(with, SPACE_DEVICE, BUFFER_CACHE), bytes);
		assert_int_equal(plan_bytes_of(without, SPACE_DEVICE, BUFFER_CACHE), 0);
		assert_true(with->persistent_bytes[SPACE_DEVICE] >=
		            without->persistent_bytes[SPACE_DEVICE] + bytes);
		assert_int_equal(with->h2d_bytes, without->h2d_bytes);
		for (int i = 0; i < with->arg_count; i++)
			uses += with->args[i].role == ARG_CACHE;
		assert_int_equal(uses, 4);
		plan_free(with);
		plan_free(without);
	}
	unit_map_close(map);
	model_close(model);
}

/* The cost and the saving of each unit's weights, then of its state. */
static void test_residency_costs_and_spares(void **state)
{
	struct model *model = small_llama(12, 0);
	struct plan_policy policy = default_policy;
	struct unit_map *map;
	int64_t link_before = INT64_MAX, device_before = 0, block;
	int units, weights = 0, states = 0;

	(void)state;
	check_ok(unit_map_open(&map, model, WRAP_TRANSFORMER, 0, DTYPE_F32, 0, 1));
	units = map->unit_count;
	block = map->units[1].count;
	assert_true(plan_residency_is_open(&policy));
	for (int step = 0; step <= 2 * units; step++) {
		int weights_before = weights, states_before = states;
		int64_t link, device;
		struct plan *plan;

		policy.resident_weights = step < units ? step : units;
		policy.resident_states = step - policy.resident_weights;
		check_ok(plan_build(&plan, PLAN_TRAIN, map, &policy));
		link = plan->h2d_bytes + plan->d2h_bytes;
		device = plan->persistent_bytes[SPACE_DEVICE];
		plan_residency_get(plan, &weights, &states);
		assert_int_equal(states, policy.resident_states);
		/* what lives on the device does not live on the host too, but for weights that it updates */
		assert_int_equal(plan_bytes_of(plan, SPACE_STORE, BUFFER_PLANE_M) +
		                         plan_bytes_of(plan, SPACE_DEVICE, BUFFER_PLANE_M),
		        4 * map->shard_total);
		if (weights > weights_before) {
			assert_int_equal(link_before - link, 2 * block);
			assert_in_range(device - device_before, 2 * block, 2 * block + 255);
		}
		if (states > states_before && states > 1 && states < units) {
			int had_weights = weights < weights_before;

			assert_int_equal(link_before - link, 4 * block);
			assert_in_range(device - device_before, (had_weights ? 12 : 14) * block,
			        (had_weights ? 12 : 14) * block + 5 * 255);
		}
		assert_true(link <= link_before && device >= device_before);
		link_before = link;
		device_before = device;
		plan_free(plan);
	}
	/* all resident: only batches and losses cross */
	assert_int_equal(link_before, 2 * plan_batch_bytes(&policy) + 2 * 4 * policy.max_targets);
	assert_int_equal(states, units);
	unit_map_close(map);
	model_close(model);
}

/* ---- wrap policies ---- */

/* Joined tensors lie side by side under every policy, in a unit for them all, and no two pieces overlap. */
static void test_joined_lie_side_by_side(void **state)
{
	static const struct {
		enum wrap_policy policy;
		int64_t min_num_params;
	} cases[] = {
	        {WRAP_NONE, 0}, {WRAP_TRANSFORMER, 0}, {WRAP_SIZE, 1}, {WRAP_SIZE, 5000}, {WRAP_SIZE, 20000}};
	struct model *model = model_from("{\"model_type\":\"qwen2\",\"vocab_size\":80,\"hidden_size\":512,"
	                                 "\"intermediate_size\":768,\"num_hidden_layers\":2,"
	                                 "\"num_attention_heads\":2,\"num_key_value_heads\":1}");
	int joined = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct unit_map *map;

		check_ok(unit_map_open(
		        &map, model, cases[i].policy, cases[i].min_num_params, DTYPE_BF16, 1, 3));
		for (int t = 0; t < model->tensor_count; t++) {
			int list[JOIN_MOST], count = model_place(list, model, t);

			joined += count > 1;
			for (int n = 1; n < count; n++) {
				const struct unit_piece *a = &map->pieces[map->tensor_piece[list[n - 1]]],
				                        *b = &map->pieces[map->tensor_piece[list[n]]];

				assert_int_equal(a->unit, b->unit);
				assert_int_equal(a->offset + a->count, b->offset);
			}
		}
		for (int u = 0; u < map->unit_count; u++)
			for (int n = 1; n < map->units[u].piece_count; n++) {
				const struct unit_piece *a = &map->pieces[map->units[u].pieces[n - 1]],
				                        *b = &map->pieces[map->units[u].pieces[n]];

				assert_true(a->offset + a->count <= b->offset);
			}
		unit_map_close(map);
	}
	assert_int_equal(joined, 5 * 2 * 3); /* q, k, v; their biases; gate and up, of two blocks */
	model_close(model);
}

static void test_size_wrap_follows_torch(void **state)
{
	/* 64 x 96 matrices (6144) and 64 x 64 (4096), 32 x 64 (2048); self_attn has 12288, mlp 18432, a block
	 * 30848. Unlike with torch, up is in the unit of gate, with which it is joined */
	static const struct {
		int64_t min_num_params;
		int units;
		const char *first;
	} cases[] = {
	        {6000, 9,
	                "model.embed_tokens"}, /* embedding; attn, gate with up, and down of each block; head,
	                                            rest */
	        {12000, 7, "model.embed_tokens"}, /* embedding; attn and mlp of each block; head, rest */
	        {20000, 5, "model.embed_tokens"}, /* embedding; two blocks; head, rest */
	        {1000000, 1, "rest"},
	};
	struct model *model = small_llama(2, 0);

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct unit_map *map;

		check_ok(unit_map_open(&map, model, WRAP_SIZE, cases[i].min_num_params, DTYPE_F32, 0, 1));
		if (map->unit_count != cases[i].units)
			fail_msg("min_num_params %lld: %d units, expected %d",
			        (long long)cases[i].min_num_params, map->unit_count, cases[i].units);
		assert_string_equal(map->units[0].name, cases[i].first);
		unit_map_close(map);
	}
	model_close(model);
}

static void test_shards_cover_every_element(void **state)
{
	struct model *model = small_llama(2, 1);

	(void)state;
	for (int world = 1; world <= 5; world++)
		for (int wrap = 0; wrap < 3; wrap++)
			for (int t = 0; t < model->tensor_count; t++) {
				int64_t covered = 0;

				for (int rank = 0; rank < world; rank++) {
					struct unit_map *map;
					int64_t at, held, skipped;

					check_ok(unit_map_open(&map, model, (enum wrap_policy)wrap, 10000,
					        DTYPE_F32, rank, world));
					unit_map_locate(
					        map, t, 0, model->tensors[t].count, &at, &held, &skipped);
					if (held)
						assert_int_equal(skipped, covered);
					covered += held;
					assert_true(at >= 0 && at + held <= map->shard_total);
					unit_map_close(map);
				}
				assert_int_equal(covered, model->tensors[t].count);
			}
	model_close(model);
}

/* ---- failures ---- */

static void test_every_allocation_may_fail(void **state)
{
	struct model *model = small_llama(2, 0);
	int64_t n = 1;

	(void)state;
	for (;; n++) {
		struct unit_map *map = NULL;
		struct plan *plan = NULL;
		int rc;

		mem_fault_arm(n, MEM_FAULT_ONCE);
		rc = unit_map_open(&map, model, WRAP_SIZE, 10000, DTYPE_F32, 0, 1);
		if (!rc)
			rc = plan_build(&plan, PLAN_TRAIN, map, &default_policy);
		if (!rc)
			rc = plan_check(plan);
		mem_fault_arm(0, MEM_FAULT_ONCE);
		plan_free(plan);
		unit_map_close(map);
		if (!rc)
			break;
		assert_int_equal(rc, ERR_NOMEM);
	}
	assert_true(n > 20);
	model_close(model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_every_policy_is_accepted),
	        cmocka_unit_test(test_every_policy_of_several_ranks),
	        cmocka_unit_test(test_no_wait_is_redundant),
	        cmocka_unit_test(test_bytes_follow_policy),
	        cmocka_unit_test(test_cache_is_planned),
	        cmocka_unit_test(test_residency_costs_and_spares),
	        cmocka_unit_test(test_joined_lie_side_by_side),
	        cmocka_unit_test(test_size_wrap_follows_torch),
	        cmocka_unit_test(test_shards_cover_every_element),
	        cmocka_unit_test(test_every_allocation_may_fail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
