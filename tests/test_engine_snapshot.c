/* links: offload model_families host_cpu */
/* also: tsan cuda */
/* Snapshots: a thread reads the planes (arrays of weights and moments) of a step while the next steps run.
 * It gets the same bytes as from a run that stops there, however slow it is and for any policy. */
#include "tests/engine_rig.h"
#include "tests/model_text.h"
#include "tests/sparing.h"

#include "base/mem.h"
#include "host/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

enum { MICROS = 2, TOKENS = 22, ROW_TOKENS = 11, STEPS = 6 };

/* Only rows of the second one's table cross. */
static struct model *model_make(int with_table)
{
	static const char table[] = "{\"model_type\":\"gemma4_text\",\"vocab_size\":70,\"hidden_size\":32,"
	                            "\"vocab_size_per_layer_input\":70,\"hidden_size_per_layer_input\":130,"
	                            "\"intermediate_size\":48,\"num_hidden_layers\":3,"
	                            "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":8,"
	                            "\"global_head_dim\":8,\"max_position_embeddings\":64,"
	                            "\"initializer_range\":0.2}";

	static const char text[] = "{\"model_type\":\"llama\",\"vocab_size\":70,\"hidden_size\":32,"
	                           "\"intermediate_size\":48,\"num_hidden_layers\":3,"
	                           "\"num_attention_heads\":4,\"num_key_value_heads\":2,"
	                           "\"max_position_embeddings\":64,\"initializer_range\":0.2}";
	return model_from(with_table ? table : text);
}

struct rows {
	int32_t id[TOKENS], position[TOKENS], start[TOKENS], end[TOKENS], row[TOKENS], label[TOKENS];
	struct host_batch batch;
};

static void rows_make(struct rows *r, int step, int micro)
{
	r->batch = (struct host_batch){.tokens = TOKENS, .targets = 0, .documents = 2, BATCH_ARRAYS(r)};
	for (int i = 0; i < TOKENS; i++) {
		r->id[i] = (int32_t)rng_below(9, (uint64_t)step, (uint64_t)(micro * TOKENS + i), 70);
		r->position[i] = i % ROW_TOKENS;
		r->start[i] = i / ROW_TOKENS * ROW_TOKENS;
		r->end[i] = r->start[i] + ROW_TOKENS;
	}
	for (int i = 0; i + 1 < TOKENS; i++)
		if (r->end[i] != i + 1) {
			r->row[r->batch.targets] = i;
			r->label[r->batch.targets++] = r->id[i + 1];
		}
}

/* ---- a run ---- */

struct setting {
	struct plan_policy policy;
	double max_grad_norm;
	int skip_nonfinite, with_table;
	uint64_t delay_seed;
};

struct training {
	struct model *model;
	struct engine_options options;
	struct engine *engine;
};

static void training_open(struct training *r, const struct setting *s)
{
	r->model = model_make(s->with_table);
	r->options = (struct engine_options){
	        .model = r->model,
	        .world_size = 1,
	        .policy = s->policy,
	        .train = {.max_tokens = TOKENS, .max_targets = TOKENS},
	        .adamw = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1},
	        .max_grad_norm = s->max_grad_norm,
	        .skip_nonfinite = s->skip_nonfinite,
	};
	r->options.policy.rope_positions = ROW_TOKENS;
	check_ok(adamw_isa_find(&r->options.isa, "auto"));
	check_ok(pool_open(&r->options.pool, 2));
	check_ok(device_open(&r->options.device, TEST_DEVICE,
	        &(struct device_options){.pool = r->options.pool, .stream_delay_seed = s->delay_seed}));
	check_ok(engine_open(&r->engine, &r->options));
	check_ok(engine_start(r->engine));
	weights_write(r->engine, r->model);
}

static void training_close(struct training *r)
{
	engine_close(r->engine);
	device_close(r->options.device);
	pool_close(r->options.pool);
	model_close(r->model);
}

static void training_step(struct training *r, int step)
{
	static struct rows rows[MICROS];
	struct host_batch micro[MICROS];
	struct engine_result result;
	int64_t targets = 0;

	for (int m = 0; m < MICROS; m++) {
		rows_make(&rows[m], step, m);
		micro[m] = rows[m].batch;
		targets += micro[m].targets;
	}
	check_ok(engine_step(r->engine, &result, micro, MICROS, targets, 1e-2 / (1 + step), NULL));
}

/* ---- planes ---- */

/* All planes of all tensors, one after another. */
struct image {
	char *bytes;
	int64_t len_bytes;
};

/* A frozen tensor has only its weights. */
static int64_t plane_len(const struct training *r, int tensor, int plane)
{
	const struct plan_policy *policy = &engine_plan(r->engine, PLAN_TRAIN)->policy;

	if (!r->model->tensors[tensor].trainable && plane > PLANE_LO)
		return 0;
	return plan_plane_bytes(policy, (enum plane)plane, r->model->tensors[tensor].count);
}

static int plane_last(const struct training *r)
{
	return engine_plan(r->engine, PLAN_TRAIN)->policy.state == ADAMW_STATE_8BIT ? PLANE_V_SCALE : PLANE_V;
}

static void image_alloc(struct image *image, const struct training *r)
{
	image->len_bytes = 0;
	for (int t = 0; t < r->model->tensor_count; t++)
		for (int p = 0; p <= plane_last(r); p++)
			image->len_bytes += plane_len(r, t, p);
	image->bytes = calloc(1, (size_t)image->len_bytes);
}

/* The place of a plane of a tensor in the image. */
static char *image_at(const struct image *image, const struct training *r, int tensor, int plane)
{
	char *at = image->bytes;

	for (int t = 0; t <= tensor; t++)
		for (int p = 0; p <= plane_last(r) && (t < tensor || p < plane); p++)
			at += plane_len(r, t, p);
	return at;
}

static void image_read(struct image *image, struct training *r)
{
	image_alloc(image, r);
	for (int t = 0; t < r->model->tensor_count; t++)
		for (int p = 0; p <= plane_last(r); p++)
			if (plane_len(r, t, p))
				check_ok(engine_read(r->engine, t, (enum plane)p, 0,
				        r->model->tensors[t].count, image_at(image, r, t, p)));
}

/* A reader on its own thread: unit by unit, with pauses. */
struct reader {
	struct training *run;
	struct image image;
	int64_t pause_ns;
	int stops_at;       /* units read before it gives up; -1: none */
	int waits;          /* 1: reads nothing before an update stands still for it */
	atomic_int is_over; /* the steps are */
	int code;
	pthread_t thread;
};

static void *read_units(void *context)
{
	struct reader *r = context;
	struct snapshot *s = engine_snapshot(r->run->engine);
	const struct unit_map *map = engine_units(r->run->engine);

	while (r->waits && !snapshot_wait_ns(s) && !atomic_load(&r->is_over))
		sched_yield();
	for (int i = 0; i < map->unit_count && !r->code && i != r->stops_at; i++) {
		const struct unit *unit = &map->units[snapshot_order(s, i)];

		for (int n = 0; n < unit->piece_count && !r->code; n++) {
			int t = map->pieces[unit->pieces[n]].tensor;

			for (int p = 0; p <= plane_last(r->run) && !r->code; p++)
				if (plane_len(r->run, t, p))
					r->code = snapshot_read(s, t, (enum plane)p, 0,
					        r->run->model->tensors[t].count,
					        image_at(&r->image, r->run, t, p));
			nanosleep(&(struct timespec){0, r->pause_ns}, NULL);
			snapshot_done(s, t, 0);
		}
	}
	snapshot_end(s);
	return NULL;
}

/* `kind` names what differs from a plain reader. */
static void reader_start(struct reader *r, struct training *run, struct reader kind)
{
	*r = kind;
	r->run = run;
	image_alloc(&r->image, run);
	engine_snapshot_begin(run->engine);
	assert_int_equal(pthread_create(&r->thread, NULL, read_units, r), 0);
}

/* ---- tests ---- */

static const struct setting plain = {
        .policy =
                {
                        .offload_params = 1,
                        .offload_gradients = 1,
                        .offload_optimizer = 1,
                        .activations = ACTIVATION_RECOMPUTE,
                        .forward_prefetch = 1,
                        .prefetch_units = 2,
                        .compute_dtype = DTYPE_F32,
                        .gradient_dtype = DTYPE_F32,
                        .state = ADAMW_STATE_F32,
                        .micro_batches = MICROS,
                },
        .max_grad_norm = 0.5,
        .skip_nonfinite = 1,
};

enum { SETTINGS = 48 };

/* The n-th of the settings that differ in how and when planes change. */
static struct setting setting_of(int n)
{
	static const enum adamw_state states[] = {ADAMW_STATE_F32, ADAMW_STATE_BF16, ADAMW_STATE_8BIT};
	struct setting s = plain;

	s.with_table = n >= SETTINGS / 2;
	n %= SETTINGS / 2;
	s.policy.compute_dtype = s.policy.gradient_dtype = n & 1 ? DTYPE_BF16 : DTYPE_F32;
	s.policy.order = n & 2 ? ORDER_MICRO_BATCH_MAJOR : ORDER_LAYER_MAJOR;
	s.policy.state = states[n % 3];
	s.policy.offload_params = n % 5 != 4 || s.with_table; /* frozen scalars would stay */
	s.policy.offload_gradients = n % 7 != 5;
	if (n & 4) {
		s.policy.update_in_backward = 1;
		s.max_grad_norm = 0;
		s.skip_nonfinite = 0;
	}
	s.delay_seed = (uint64_t)(n & 8 ? n : 0);
	return s;
}

/* The planes of a run that stops after `steps`. */
static void reference(struct image *image, const struct setting *s, int steps)
{
	struct training run;

	training_open(&run, s);
	for (int i = 0; i < steps; i++)
		training_step(&run, i);
	image_read(image, &run);
	training_close(&run);
}

static void test_a_snapshot_is_the_step(void **state)
{
	(void)state;
	for (int n = 0; n < SETTINGS; n += 1 + n / (SETTINGS / 2) + 4 * (sparing(5) > 1)) {
		struct setting s = setting_of(n);
		int at = 1 + n % 3;
		struct image want, last, end;
		struct training run;
		struct reader reader;

		reference(&want, &s, at);
		reference(&last, &s, STEPS);
		training_open(&run, &s);
		if (!snapshot_is_possible(engine_snapshot(run.engine)))
			fail_msg("setting %d keeps planes on the device", n);
		for (int i = 0; i < STEPS; i++) {
			if (i == at)
				reader_start(&reader, &run,
				        (struct reader){
				                .pause_ns = n % 4 == 3 ? 0 : 1000000, .stops_at = -1});
			training_step(&run, i);
		}
		pthread_join(reader.thread, NULL);
		check_ok(reader.code);
		if (memcmp(reader.image.bytes, want.bytes, (size_t)want.len_bytes))
			fail_msg("setting %d: other planes than those of step %d", n, at);
		image_read(&end, &run); /* and the run is none the worse for it */
		if (memcmp(end.bytes, last.bytes, (size_t)last.len_bytes))
			fail_msg("setting %d: another result", n);
		training_close(&run);
		free(want.bytes);
		free(last.bytes);
		free(end.bytes);
		free(reader.image.bytes);
	}
}

/* The slowest reader: reads nothing until an update waits for it. */
static void test_updates_wait(void **state)
{
	(void)state;
	for (int n = 0; n < SETTINGS / 2 + 8; n += n == 6 ? SETTINGS / 2 - 6 : 1 + sparing(5)) {
		struct setting s = setting_of(n);
		struct training run;
		struct reader reader;
		struct image want;

		reference(&want, &s, 1);
		training_open(&run, &s);
		training_step(&run, 0);
		reader_start(&reader, &run, (struct reader){.waits = 1, .stops_at = -1});
		for (int i = 1; i < 4; i++)
			training_step(&run, i);
		atomic_store(&reader.is_over, 1);
		pthread_join(reader.thread, NULL);
		check_ok(reader.code);
		assert_memory_equal(reader.image.bytes, want.bytes, (size_t)want.len_bytes);
		assert_true(snapshot_wait_ns(engine_snapshot(run.engine)) > 0);
		training_close(&run);
		free(want.bytes);
		free(reader.image.bytes);
	}
}

/* After the last step, settling runs the pending updates. */
static void test_the_last_step(void **state)
{
	struct image want;
	struct training run;
	struct reader reader;

	(void)state;
	reference(&want, &plain, 2);
	training_open(&run, &plain);
	training_step(&run, 0);
	training_step(&run, 1);
	reader_start(&reader, &run, (struct reader){.pause_ns = 100000, .stops_at = -1});
	check_ok(engine_snapshot_settle(run.engine));
	pthread_join(reader.thread, NULL);
	check_ok(reader.code);
	assert_memory_equal(reader.image.bytes, want.bytes, (size_t)want.len_bytes);
	check_ok(engine_snapshot_settle(run.engine)); /* nothing to do */
	training_close(&run);
	free(want.bytes);
	free(reader.image.bytes);
}

/* If a reader gives up, all units continue. If updates never come, the reader gets an error. */
static void test_giving_up(void **state)
{
	struct training run;
	struct reader reader;

	(void)state;
	training_open(&run, &plain);
	training_step(&run, 0);
	reader_start(&reader, &run, (struct reader){.stops_at = 1});
	for (int i = 1; i < STEPS; i++)
		training_step(&run, i);
	pthread_join(reader.thread, NULL);
	free(reader.image.bytes);
	reader_start(&reader, &run, (struct reader){.stops_at = -1});
	snapshot_cancel(engine_snapshot(run.engine));
	pthread_join(reader.thread, NULL);
	assert_int_equal(reader.code, ERR_STOPPED);
	free(reader.image.bytes);
	training_step(&run, STEPS);
	reader_start(&reader, &run, (struct reader){.stops_at = -1}); /* and the next one is as good as any */
	training_step(&run, STEPS + 1);
	pthread_join(reader.thread, NULL);
	check_ok(reader.code);
	free(reader.image.bytes);
	training_close(&run);
}

/* Without offload the planes are the device's, and no other thread's to read. */
static void test_planes_on_the_device(void **state)
{
	struct setting s = plain;
	struct training run;

	(void)state;
	for (int kind = 0; kind < 2; kind++) {
		s.policy.offload_optimizer = kind;
		s.policy.resident_states = kind;
		training_open(&run, &s);
		assert_int_equal(snapshot_is_possible(engine_snapshot(run.engine)), 0);
		training_close(&run);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_a_snapshot_is_the_step),
	        cmocka_unit_test(test_updates_wait),
	        cmocka_unit_test(test_the_last_step),
	        cmocka_unit_test(test_giving_up),
	        cmocka_unit_test(test_planes_on_the_device),
	};

	if (engine_rig_begin())
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
