/* links: offload model_families host_cpu device_meta */
/* also: tsan cuda */
/* Tables of which only rows cross (Gemma 4 E's embeddings of layers): the same bits as with the whole table
 * on the device, in as many bytes as planned, and not a byte of other rows. */
#include "tests/engine_steps.h"
#include "tests/model_text.h"
#include "tests/sparing.h"

#include "base/mem.h"
#include "base/size.h"

enum { VOCAB = 70, LAYERS = 3, INPUT = 512, COLUMNS = LAYERS * INPUT };
_Static_assert(VOCAB *COLUMNS > 65536 && 65536 % COLUMNS, "a row has parts of two blocks of sums of squares");

/* What trains. */
enum trained { ALL, TABLE_FROZEN, TABLE_ALONE, TRAINED_COUNT };

static int is_trained(const char *name, const char *other, void *arg)
{
	enum trained what = *(const enum trained *)arg;
	int is_table = strstr(name, "embed_tokens_per_layer") != NULL;

	(void)other;
	return what == ALL || (what == TABLE_ALONE) == is_table;
}

static struct model *model_make(enum trained what)
{
	char text[600];
	struct model *model;
	int64_t count;

	snprintf(text, sizeof(text),
	        "{\"model_type\":\"gemma4_text\",\"vocab_size\":%d,\"vocab_size_per_layer_input\":%d,"
	        "\"hidden_size\":32,\"hidden_size_per_layer_input\":%d,\"intermediate_size\":48,"
	        "\"num_hidden_layers\":%d,\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":"
	        "16,"
	        "\"global_head_dim\":16,\"sliding_window\":5,\"max_position_embeddings\":64,\"pad_token_id\":"
	        "7,"
	        "\"initializer_range\":0.2}",
	        VOCAB, VOCAB, INPUT, LAYERS);
	model = model_from(text);
	check_ok(model_set_trainable(model, &count, is_trained, &what));
	return model;
}

static struct model *setting_model(const struct setting *s)
{
	return model_make((enum trained)s->trained);
}

/* ---- bits ---- */

static const enum adamw_state states[] = {ADAMW_STATE_F32, ADAMW_STATE_8BIT, ADAMW_STATE_BF16};

/* Kind n of what trains, dtype, order, optimizer state; its base has all of the model on the device. */
static void kind_make(struct setting *s, int n)
{
	*s = plain;
	s->trained = n % TRAINED_COUNT;
	s->policy.compute_dtype = n / 3 % 2 ? DTYPE_BF16 : DTYPE_F32;
	s->policy.gradient_dtype = n / 6 % 2 ? DTYPE_BF16 : DTYPE_F32;
	s->policy.order = n / 12 % 2 ? ORDER_MICRO_BATCH_MAJOR : ORDER_LAYER_MAJOR;
	s->policy.state = states[n % 5 % 3];
	s->empty_first = n % 4 == 3;
	policy_vary(s, 0);
}
enum { KINDS = 24 };

static void test_rows_change_no_bit(void **state)
{
	(void)state;
	for (int kind = 0; kind < KINDS; kind += sparing(3)) {
		struct setting s;
		struct outcome base, other;

		kind_make(&s, kind);
		setting_run(&s, &base);
		assert_true(base.loss[0] > 3 && base.norm[0] > 0);
		for (int n = 1 + kind; n < 64 * 27; n += 397 * sparing(4)) {
			policy_vary(&s, n);
			s.threads = 1 + n % 3;
			setting_run(&s, &other);
			assert_same(&other, &base, "policy", n);
		}
	}
}

static void test_updates_inside_backward(void **state)
{
	(void)state;
	for (int kind = 0; kind < KINDS; kind += 1 + 4 * (sparing(4) > 1)) {
		struct setting s;
		struct outcome base, other;

		kind_make(&s, kind);
		s.max_grad_norm = 0;
		s.skip_nonfinite = 0;
		setting_run(&s, &base);
		s.policy.update_in_backward = 1;
		for (int n = 7; n < 64 * 9; n += 150 * sparing(4)) {
			policy_vary(&s, n);
			setting_run(&s, &other);
			assert_same(&other, &base, "policy inside backward", n);
		}
	}
}

/* Random delays and poisoned memory show a missing wait, or a read of what nothing wrote. */
static void test_delays_change_no_bit(void **state)
{
	(void)state;
#ifdef FERRY_TEST_CUDA
	skip();
#endif
	for (int kind = 0; kind < KINDS; kind += 1 + 4 * (sparing(4) > 1)) {
		struct setting s;
		struct outcome base, other;

		kind_make(&s, kind);
		policy_vary(&s, 63);
		setting_run(&s, &base);
		s.policy.discard = 1;
		s.device_options.stream_delay_seed = 11 + (uint64_t)kind;
		setting_run(&s, &other);
		assert_same(&other, &base, "delays", kind);
	}
}

/* ---- bytes ---- */

/* A micro-batch of `used` different tokens. */
static void distinct_make(struct rows *r, int used)
{
	r->batch = (struct host_batch){.tokens = TOKENS, .targets = TOKENS, .documents = 1, BATCH_ARRAYS(r)};
	for (int i = 0; i < TOKENS; i++) {
		r->id[i] = r->label[i] = (i * 13 + 5) % used * 3;
		r->position[i] = r->row[i] = i;
		r->start[i] = 0;
		r->end[i] = TOKENS;
	}
}

static const struct plan_buffer *find_buffer(
        const struct plan *p, enum buffer_kind kind, enum plan_space space)
{
	for (int i = 0; i < p->buffer_count; i++)
		if (p->buffers[i].kind == kind && p->buffers[i].space == space)
			return &p->buffers[i];
	return NULL;
}

/* No buffer of the device has as many bytes as the table. */
static void device_check(const struct plan *p, int64_t table_bytes)
{
	for (int i = 0; i < p->buffer_count; i++)
		if (p->buffers[i].space == SPACE_DEVICE && p->buffers[i].bytes >= table_bytes)
			fail_msg("%s has %lld bytes on the device", plan_buffer_name(p->buffers[i].kind),
			        (long long)p->buffers[i].bytes);
}

/* Plans count sums of squares apart: they are the norm's. */
static int64_t norm_bytes(const struct plan *p)
{
	for (int i = 0; i < p->op_count; i++)
		if (p->ops[i].kind == PLAN_OP_NORM)
			return p->buffers[p->args[p->ops[i].first_arg].buffer].bytes;
	return 0;
}

/* Runs three steps on micro-batches of `used` tokens; their copies differ from the plan's by rows that do not
 * occur. */
static void step_check(enum trained what, enum dtype dtype, enum visit_order order, int used)
{
	struct model *model = model_make(what);
	struct setting s = plain;
	struct engine_options o = {.model = model,
	        .world_size = 1,
	        .policy = s.policy,
	        .crossing = SLAB_PINNED,
	        .train = {.max_tokens = TOKENS, .max_targets = TOKENS},
	        .adamw = {0.9, 0.95, 1e-8, 0.1, 1},
	        .max_grad_norm = 1,
	        .skip_nonfinite = 1,
	        .check_plans = 1};
	struct rows rows[MICROS];
	struct host_batch micro[MICROS];
	struct engine_memory planned;
	struct engine_result result;
	struct device_stats before, after;
	int64_t spared, row_bytes = COLUMNS * dtype_bytes(dtype);
	const struct plan *p;
	struct engine *e;

	o.policy.compute_dtype = o.policy.gradient_dtype = dtype;
	o.policy.order = order;
	o.policy.rope_positions = TOKENS;
	for (int m = 0; m < MICROS; m++) {
		distinct_make(&rows[m], used);
		micro[m] = rows[m].batch;
	}
	check_ok(adamw_isa_find(&o.isa, "auto"));
	check_ok(pool_open(&o.pool, 2));
	check_ok(device_open(&o.device, TEST_DEVICE, &(struct device_options){.pool = o.pool}));
	check_ok(engine_open(&e, &o));
	engine_get_memory(e, &planned);
	p = engine_plan(e, PLAN_TRAIN);
	device_check(p, VOCAB * row_bytes);
	assert_int_equal(find_buffer(p, BUFFER_ROWS, SPACE_DEVICE)->bytes, TOKENS * row_bytes);
	assert_int_equal(find_buffer(p, BUFFER_ROW_GRADIENTS, SPACE_DEVICE) != NULL, what != TABLE_FROZEN);
	planned.d2h_bytes += norm_bytes(p);
	check_ok(engine_start(e));
	weights_write(e, model);
	for (int step = 0; step < 3; step++) {
		device_get_stats(
		        o.device, &before); /* of the last step: with the updates of the one before */
		check_ok(engine_step(e, &result, micro, MICROS, MICROS * TOKENS, 1e-3, NULL));
	}
	device_get_stats(o.device, &after);
	spared = (int64_t)MICROS * (TOKENS - used) * row_bytes;
	assert_int_equal(after.copied_in_bytes - before.copied_in_bytes, planned.h2d_bytes - spared);
	assert_int_equal(after.copied_out_bytes - before.copied_out_bytes, planned.d2h_bytes);
	assert_int_equal(after.slab_peak_bytes, planned.store_bytes + planned.staging_bytes);
	if (!spared)
		assert_int_equal(after.arena_touched_bytes, planned.device_bytes);
	engine_close(e);
	device_close(o.device);
	pool_close(o.pool);
	model_close(model);
}

static void test_a_step_takes_what_is_planned(void **state)
{
	(void)state;
	for (int n = 0, end = TRAINED_COUNT * 8; n<end; n += sparing(1)> 1 ? 5 : 1)
		step_check((enum trained)(n / 8), n & 1 ? DTYPE_BF16 : DTYPE_F32,
		        n & 2 ? ORDER_MICRO_BATCH_MAJOR : ORDER_LAYER_MAJOR, n & 4 ? 9 : TOKENS);
}

/* More tokens than rows: a micro-batch has room for all rows and no more. A row is shorter than what units
 * are padded to. */
static void test_no_more_rows_than_the_table_has(void **state)
{
	enum { ROW = 3 };
	struct model *model =
	        model_from("{\"model_type\":\"gemma4_text\",\"vocab_size\":70,\"hidden_size\":32,"
	                   "\"vocab_size_per_layer_input\":71,\"hidden_size_per_layer_input\":1,"
	                   "\"num_hidden_layers\":3,\"num_attention_heads\":4,\"head_dim\":16,"
	                   "\"global_head_dim\":16}");
	struct plan_policy policy = plain.policy;
	struct unit_map *map;
	struct plan *p;

	(void)state;
	policy.max_tokens = policy.max_targets = policy.rope_positions = 3 * VOCAB;
	check_ok(unit_map_open(&map, model, WRAP_TRANSFORMER, 0, DTYPE_F32, 0, 1));
	check_ok(plan_build(&p, PLAN_TRAIN, map, &policy));
	check_ok(plan_check(p));
	assert_int_equal(find_buffer(p, BUFFER_ROWS, SPACE_DEVICE)->bytes, 4 * 71 * ROW);
	plan_free(p);
	unit_map_close(map);
	model_close(model);
}

/* ---- units ---- */

/* A table stays on the device after everything else, and ranks that divide units have none. */
static void test_tables_are_the_last_to_stay(void **state)
{
	struct model *model = model_make(ALL);
	struct unit_map *map;

	(void)state;
	for (int wrap = 0; wrap < 3; wrap++)
		for (int ranks = 1; ranks < 3; ranks++) {
			int seen[40] = {0}, order[40];

			check_ok(unit_map_open(
			        &map, model, (enum wrap_policy)wrap, 2000, DTYPE_BF16, 0, ranks));
			assert_int_equal(map->table_count, ranks == 1);
			plan_residency_order(order, map);
			for (int i = 0; i < map->unit_count; i++) {
				assert_false(seen[order[i]]++);
				assert_int_equal(map->units[order[i]].row_count,
				        ranks == 1 && i == map->unit_count - 1 ? COLUMNS : 0);
			}
			unit_map_close(map);
		}
	model_close(model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_rows_change_no_bit),
	        cmocka_unit_test(test_updates_inside_backward),
	        cmocka_unit_test(test_delays_change_no_bit),
	        cmocka_unit_test(test_a_step_takes_what_is_planned),
	        cmocka_unit_test(test_no_more_rows_than_the_table_has),
	        cmocka_unit_test(test_tables_are_the_last_to_stay),
	};
	int rc = engine_rig_begin();

	return rc ? rc : cmocka_run_group_tests(tests, NULL, NULL);
}
