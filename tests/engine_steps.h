/* Runs of a few steps of the engine with any policy, whose losses, norms and planes are compared bit for bit.
 * The test says which model: setting_model.
 */
#ifndef FERRY_TESTS_ENGINE_STEPS_H
#define FERRY_TESTS_ENGINE_STEPS_H

#include "tests/engine_rig.h"

#include "host/pool.h"

#include <string.h>

enum { MICROS = 3, ROWS = 2, ROW_TOKENS = 11, TOKENS = ROWS * ROW_TOKENS, STEPS = 3 };

struct rows {
	int32_t id[TOKENS], position[TOKENS], start[TOKENS], end[TOKENS], row[TOKENS], label[TOKENS];
	struct host_batch batch;
};

/* Rows of two documents; one micro-batch of a step has a shorter second one, the last of one step and the
 * first of another have no target. */
static void rows_make(struct rows *r, int step, int micro)
{
	int n = micro == 1 ? TOKENS - 4 : TOKENS;

	r->batch = (struct host_batch){
	        .tokens = n, .targets = 0, .documents = ROWS, BATCH_ARRAYS(r), .share = 1.0 / MICROS};
	for (int i = 0; i < n; i++) {
		int doc = i / ROW_TOKENS;

		r->id[i] = (int32_t)rng_below(9, (uint64_t)step, (uint64_t)(micro * TOKENS + i), 70);
		r->position[i] = i % ROW_TOKENS;
		r->start[i] = doc * ROW_TOKENS;
		r->end[i] = doc == 1 ? n : ROW_TOKENS;
	}
	for (int i = 0; i + 1 < n; i++)
		if (r->end[i] != i + 1 && i % 3 && !(step == 1 && micro == 2) && !(step == 2 && micro == 0)) {
			r->row[r->batch.targets] = i;
			r->label[r->batch.targets++] = r->id[i + 1];
		}
}

struct setting {
	const char *device;
	int layers, tied;    /* of test_engine's model */
	int config, trained; /* of test_engine_experts' */
	int64_t part;
	int threads;
	enum wrap_policy wrap;
	struct plan_policy policy;
	struct device_options device_options;
	double max_grad_norm;
	int skip_nonfinite;
	int empty_first; /* 1: a micro-batch without tokens, then two; -1: those two alone */
};

static const struct setting plain = {
        .device = TEST_DEVICE,
        .threads = 2,
        .layers = 3,
        .policy =
                {
                        .offload_params = 1,
                        .offload_gradients = 1,
                        .offload_optimizer = 1,
                        .activations = ACTIVATION_RECOMPUTE,
                        .backward_prefetch = BACKWARD_PREFETCH_PRE,
                        .forward_prefetch = 1,
                        .prefetch_units = 2,
                        .compute_dtype = DTYPE_F32,
                        .gradient_dtype = DTYPE_F32,
                        .micro_batches = MICROS,
                },
        .max_grad_norm = 0.5,
        .skip_nonfinite = 1,
};

/* The values that must be equal. */
struct outcome {
	double loss[STEPS], norm[STEPS];
	uint64_t planes; /* of hi, lo, m, v of all tensors */
	int64_t planned_bytes, touched_bytes;
	struct engine_memory memory;
	struct device_stats stats;
};

/* Of all planes; of a frozen tensor's, its weights. */
static uint64_t planes_hash(struct engine *e, const struct model *model, const struct plan_policy *policy)
{
	uint64_t hash = 14695981039346656037u;
	int last = policy->state == ADAMW_STATE_8BIT ? PLANE_V_SCALE : PLANE_V;

	for (int plane = PLANE_HI; plane <= last; plane++)
		for (int t = 0; t < model->tensor_count; t++) {
			int64_t count = model->tensors[t].count;
			size_t words = ((size_t)plan_plane_bytes(policy, (enum plane)plane, count) + 7) / 8;
			uint64_t *data = calloc(words, 8);

			if (model->tensors[t].trainable || plane <= PLANE_LO)
				check_ok(engine_read(e, t, (enum plane)plane, 0, count, data));
			for (size_t i = 0; i < words; i++) /* one to one in hash: a word that differs shows */
				hash = (hash ^ hash >> 29 ^ data[i]) * 1099511628211u;
			free(data);
		}
	return hash;
}

static void steps_run(struct engine *e, struct outcome *out, int steps, int empty_first)
{
	static struct rows rows[MICROS];

	for (int step = 0; step < steps; step++) {
		struct host_batch micro[MICROS];
		struct engine_result result;
		int64_t targets = 0;
		/* the last step of an epoch is short */
		int count = empty_first < 0 || (step == 2 && !empty_first) ? MICROS - 1 : MICROS;

		for (int m = 0; m < count; m++) {
			rows_make(&rows[m], step, m - (empty_first > 0));
			if (empty_first > 0 && !m)
				rows[m].batch.tokens = rows[m].batch.targets = rows[m].batch.documents = 0;
			micro[m] = rows[m].batch;
			targets += micro[m].targets;
		}
		check_ok(engine_step(e, &result, micro, count, targets, 1e-2 / (1 + step), NULL));
		out->loss[step] = result.loss_sum / (double)targets;
		out->norm[step] = result.grad_norm;
		assert_int_equal(result.targets, targets);
	}
}

/* Its model. */
static struct model *setting_model(const struct setting *s);

static void setting_run(const struct setting *s, struct outcome *out)
{
	struct model *model = setting_model(s);
	struct device_options device_options = s->device_options;
	struct engine_options o = {
	        .model = model,
	        .wrap = s->wrap,
	        .min_num_params = 2000,
	        .world_size = 1,
	        .policy = s->policy,
	        .train = {.max_tokens = TOKENS, .max_targets = TOKENS},
	        .eval = {.max_tokens = TOKENS, .max_targets = TOKENS},
	        .adamw = {0.9, 0.95, 1e-8, 0.1, 1},
	        .max_grad_norm = s->max_grad_norm,
	        .skip_nonfinite = s->skip_nonfinite,
	        .check_plans = 1,
	};
	struct engine_memory memory;
	struct engine *e;

	memset(out, 0, sizeof(*out));
	o.policy.rope_positions = ROW_TOKENS;
	check_ok(adamw_isa_find(&o.isa, "auto"));
	check_ok(pool_open(&o.pool, s->threads));
	device_options.pool = o.pool;
	check_ok(device_open(&o.device, s->device, &device_options));
	check_ok(engine_open(&e, &o));
	engine_get_memory(e, &memory);
	out->planned_bytes = memory.device_bytes;
	out->memory = memory;
	check_ok(engine_start(e));
	if (device_has_bytes(o.device))
		weights_write(e, model);
	steps_run(e, out, STEPS, s->empty_first);
	if (device_has_bytes(o.device))
		out->planes = planes_hash(e, model, &o.policy);
	device_get_stats(o.device, &out->stats);
	out->touched_bytes = out->stats.arena_touched_bytes;
	engine_close(e);
	device_close(o.device);
	pool_close(o.pool);
	model_close(model);
}

static void assert_same(const struct outcome *got, const struct outcome *want, const char *what, int n)
{
	for (int i = 0; i < STEPS; i++) {
		if (memcmp(&got->loss[i], &want->loss[i], sizeof(double)))
			fail_msg("%s %d: loss of step %d is %.17g, not %.17g", what, n, i, got->loss[i],
			        want->loss[i]);
		if (memcmp(&got->norm[i], &want->norm[i], sizeof(double)))
			fail_msg("%s %d: norm of step %d is %.17g, not %.17g", what, n, i, got->norm[i],
			        want->norm[i]);
	}
	if (got->planes != want->planes)
		fail_msg("%s %d: other weights or optimizer state", what, n);
}

/* Mixed-radix digits of n, below 64 * 27, choose a policy that must not change a bit. */
static void policy_vary(struct setting *s, int n)
{
	s->policy.offload_params = n & 1;
	s->policy.offload_gradients = n >> 1 & 1;
	s->policy.offload_optimizer = n >> 2 & 1;
	s->policy.forward_prefetch = n >> 3 & 1;
	s->policy.prefetch_units = 1 + (n >> 4) % 4;
	s->policy.resident_weights = n % 11 % 6;
	s->policy.resident_states = n % 13 % 5;
	s->policy.kept_blocks = n % 7 % 4;
	s->policy.kept_level = (enum acts_level)(n % 5 % ACTS_LEVELS);
	n /= 64;
	s->policy.backward_prefetch = (enum backward_prefetch)(n % 3);
	s->policy.activations = (enum activation_policy)(n / 3 % 3);
	s->wrap = (enum wrap_policy)(n / 9 % 3);
}

#endif
