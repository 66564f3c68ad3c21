/* links: host_cpu device_meta model_families objective offload */
/* An objective that ferry does not have trains: embeddings (tests/embedding_objective.h), against fp64. */
#include "tests/embedding_objective.h"
#include "tests/engine_rig.h"
#include "tests/model_rig.h"
#include "tests/model_text.h"

#include "host/pool.h"

/* ---- documents and models ---- */

enum { QUERIES = 4, DOCUMENTS = 2 * QUERIES, TOKENS = 29, VOCAB = 70, WIDTH = 32, MICROS = 2, STEPS = 6 };

struct texts {
	struct rig_batch rows;
	int32_t document[TOKENS], last[DOCUMENTS], label[QUERIES];
};

/* Of different lengths. A query and its answer begin with the same token. */
static void texts_make(struct texts *t, uint64_t seed)
{
	static const int lengths[DOCUMENTS] = {3, 5, 1, 6, 2, 4, 3, 5};

	*t = (struct texts){0};
	for (int d = 0; d < DOCUMENTS; d++) {
		int32_t ids[8], none[8];

		for (int i = 0; i < lengths[d]; i++) {
			ids[i] = (int32_t)rng_below(7, seed, (uint64_t)(i ? 8 * d + i : 8 * (d / 2)), VOCAB);
			none[i] = -100;
			t->document[t->rows.tokens + i] = d;
		}
		rig_batch_add(&t->rows, ids, none, lengths[d]);
		t->last[d] = (int32_t)t->rows.tokens - 1;
	}
	assert_int_equal(t->rows.tokens, TOKENS);
	for (int q = 0; q < QUERIES; q++) {
		t->label[q] = t->rows.target_label[q] = q;
		t->rows.target_row[q] = t->last[2 * q];
	}
	t->rows.targets = QUERIES;
}

/* A Llama whose last stage has the final norm alone. */
static struct model *headless(void)
{
	struct model *model = model_from(
	        "{\"model_type\":\"llama\",\"vocab_size\":70,\"hidden_size\":32,\"intermediate_size\":48,"
	        "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
	        "\"max_position_embeddings\":64,\"initializer_range\":0.2,\"tie_word_embeddings\":true}");
	struct model_config c = model->config;

	c.has[ROLE_HEAD_W] = c.tied = 0;
	check_ok(model_rebuild(model, &c));
	assert_int_equal(model->stages[model->stage_count - 1].tensor_count, 1);
	return model;
}

/* Each weight's first value, plus `step` along a direction for one tensor. */
static void weights_set(struct rig *r, int moved, const float *direction, double step)
{
	for (int t = 0; t < r->model->tensor_count; t++) {
		int64_t count = r->model->tensors[t].count;
		float *values = mem_alloc((size_t)count, sizeof(*values));

		assert_non_null(values);
		for (int64_t i = 0; i < count; i++) {
			values[i] = model_init_value(r->model, t, i, 5);
			if (t == moved)
				values[i] += (float)(step * (double)direction[i]);
		}
		rig_set_weight(r, t, values);
		mem_free(values);
	}
}

static const double settings[][2] = {{5, POOLING_MEAN}, {5, POOLING_LAST}};

static struct device_batch texts_load(struct rig *r, const struct texts *t)
{
	rig_upload(r, r->own[DOCUMENT], t->document, sizeof(t->document));
	rig_upload(r, r->own[LAST], t->last, sizeof(t->last));
	return rig_load(r, &t->rows);
}

/* Runs all groups, and backward in training; returns the sum of losses. */
static double run(
        struct rig *r, const struct texts *t, enum head_mode mode, const double *with, float *losses)
{
	struct device_batch batch = texts_load(r, t);
	struct stage_memory memory = rig_memory(r, 1);
	double sum = 0;

	memory.settings = with;
	rig_run_loaded(r, losses, &batch, memory, mode, RIG_RECOMPUTE);
	for (int q = 0; q < QUERIES; q++)
		sum += (double)losses[q];
	return sum;
}

/* ---- the head against fp64 ---- */

/* The sum of losses from the last block's output and the norm's weight, in double. losses: NULL or room. */
static double reference(const double *x, const double *weight, double epsilon, const struct texts *t,
        const double *with, double *losses)
{
	double unit[DOCUMENTS][WIDTH] = {{0}}, sum = 0;

	for (int i = 0; i < TOKENS; i++) {
		int d = t->document[i];
		double square = 0;

		if (with[POOLING] == POOLING_LAST && t->last[d] != i)
			continue;
		for (int c = 0; c < WIDTH; c++)
			square += x[i * WIDTH + c] * x[i * WIDTH + c];
		for (int c = 0; c < WIDTH; c++)
			unit[d][c] += x[i * WIDTH + c] / sqrt(square / WIDTH + epsilon) * weight[c];
	}
	for (int d = 0; d < DOCUMENTS; d++) {
		double square = 0;

		for (int c = 0; c < WIDTH; c++)
			square += unit[d][c] * unit[d][c];
		for (int c = 0; c < WIDTH; c++)
			unit[d][c] /= sqrt(square);
	}
	for (int q = 0; q < QUERIES; q++) {
		double own = 0, all = 0;

		for (int a = 0; a < QUERIES; a++) {
			double cosine = 0;

			for (int c = 0; c < WIDTH; c++)
				cosine += unit[2 * q][c] * unit[2 * a + 1][c];
			all += exp(with[SCALE] * cosine);
			own = a == q ? with[SCALE] * cosine : own;
		}
		sum += log(all) - own;
		if (losses)
			losses[q] = log(all) - own;
	}
	return sum;
}

static void near(double got, double want, double bound, const char *what, int at)
{
	if (!(fabs(got - want) <= bound))
		fail_msg("%s %d: %.9g, wanted %.9g", what, at, got, want);
}

static void widen(double *to, const float *from, int count)
{
	for (int i = 0; i < count; i++)
		to[i] = (double)from[i];
}

/* The gradient by `values`, which reference reads through x and weight, by central differences. */
static void slopes_check(const float *got, double *values, int count, const double *x, const double *weight,
        double epsilon, const struct texts *t, const double *with, const char *what)
{
	for (int i = 0; i < count; i++) {
		double here = values[i], step = 1e-5, rise;

		values[i] = here + step;
		rise = reference(x, weight, epsilon, t, with, NULL);
		values[i] = here - step;
		rise -= reference(x, weight, epsilon, t, with, NULL);
		values[i] = here;
		near((double)got[i], rise / (2 * step), 2e-5, what, i);
	}
}

static void test_head(void **state)
{
	struct model *model = headless();
	int last = model->group_count - 1, norm = model_tensor_of(model, ROLE_FINAL_NORM_W, -1);
	double epsilon = model->config.norm_of[ROLE_FINAL_NORM_W].epsilon;

	(void)state;
	for (size_t s = 0; s < sizeof(settings) / sizeof(*settings); s++) {
		static double x[TOKENS * WIDTH], weight[WIDTH];
		static float values[TOKENS * WIDTH], dx[TOKENS * WIDTH], dweight[WIDTH];
		double wanted[QUERIES];
		float losses[QUERIES];
		struct device_batch batch;
		struct stage_memory memory;
		struct texts t;
		struct rig r;

		texts_make(&t, 1);
		rig_open_for(&r, "host", model, DTYPE_F32, TOKENS, QUERIES, RIG_FILLED, &embedding_head);
		weights_set(&r, -1, NULL, 0);
		batch = texts_load(&r, &t);
		rig_forward(&r, &batch, RIG_KEEP);
		memory = rig_memory(&r, 1);
		memory.scratch = r.head_scratch;
		memory.x = r.x[last];
		memory.settings = settings[s];
		check_ok(model_head(model, &embedding_head, HEAD_TRAIN, r.stream, &memory, &batch));
		rig_download(&r, values, r.x[last], sizeof(values));
		rig_download(&r, dx, r.dx, sizeof(dx));
		rig_download(&r, losses, r.loss, sizeof(losses));
		rig_get_grad(&r, norm, dweight);
		widen(x, values, TOKENS * WIDTH);
		rig_download(&r, values, r.weight[norm], sizeof(weight) / 2);
		widen(weight, values, WIDTH);
		reference(x, weight, epsilon, &t, settings[s], wanted);
		for (int q = 0; q < QUERIES; q++)
			near((double)losses[q], wanted[q], 2e-6 * fmax(1, wanted[q]), "loss", q);
		slopes_check(dx, x, TOKENS * WIDTH, x, weight, epsilon, &t, settings[s], "dx");
		slopes_check(dweight, weight, WIDTH, x, weight, epsilon, &t, settings[s], "dweight");
		rig_check_guards(&r);
		rig_close(&r);
		rig_batch_free(&t.rows);
	}
	model_close(model);
}

/* Along each tensor's own gradient the sum of losses rises by that gradient's length. */
static void test_model(void **state)
{
	struct model *model = headless();

	(void)state;
	for (size_t s = 0; s < sizeof(settings) / sizeof(*settings); s++) {
		float losses[QUERIES];
		struct texts t;
		struct rig r;

		texts_make(&t, 2);
		rig_open_for(&r, "host", model, DTYPE_F32, TOKENS, QUERIES, RIG_FILLED, &embedding_head);
		weights_set(&r, -1, NULL, 0);
		run(&r, &t, HEAD_TRAIN, settings[s], losses);
		for (int tensor = 0; tensor < model->tensor_count; tensor++) {
			int64_t count = model->tensors[tensor].count;
			float *grad = mem_alloc((size_t)count, sizeof(*grad));
			double norm = 0, slope, step = 2e-3;

			assert_non_null(grad);
			rig_get_grad(&r, tensor, grad);
			for (int64_t i = 0; i < count; i++)
				norm += (double)grad[i] * (double)grad[i];
			norm = sqrt(norm);
			assert_true(norm > 1e-3);
			for (int64_t i = 0; i < count; i++)
				grad[i] = (float)((double)grad[i] / norm);
			weights_set(&r, tensor, grad, step);
			slope = run(&r, &t, HEAD_LOSS, settings[s], losses);
			weights_set(&r, tensor, grad, -step);
			slope = (slope - run(&r, &t, HEAD_LOSS, settings[s], losses)) / (2 * step);
			near(slope, norm, 0.01 * norm + 2e-3, model->tensors[tensor].name, (int)s);
			mem_free(grad);
		}
		rig_check_guards(&r);
		rig_close(&r);
		rig_batch_free(&t.rows);
	}
	model_close(model);
}

/* ---- training ---- */

struct outcome {
	double loss[STEPS], norm[STEPS], sure[STEPS];
	double evaluated; /* the loss of step 0 by an evaluation before it */
};

static struct host_batch host_batch_of(const struct texts *t)
{
	const struct rig_batch *b = &t->rows;

	return (struct host_batch){.tokens = b->tokens,
	        .targets = b->targets,
	        .documents = b->documents,
	        .id = b->id,
	        .position = b->position,
	        .doc_start = b->doc_start,
	        .doc_end = b->doc_end,
	        .target_row = b->target_row,
	        .own = {[LABEL] = t->label, [DOCUMENT] = t->document, [LAST] = t->last}};
}

static void train(struct outcome *out, const struct plan_policy *policy)
{
	struct model *model = headless();
	const struct engine_sizes sizes = {TOKENS, QUERIES, DOCUMENTS};
	struct engine_options o = {.model = model,
	        .world_size = 1,
	        .policy = *policy,
	        .crossing = SLAB_PINNED,
	        .train = sizes,
	        .eval = sizes,
	        .adamw = {0.9, 0.95, 1e-8, 0.1, 1},
	        .max_grad_norm = 1,
	        .skip_nonfinite = 1,
	        .check_plans = 1};
	struct texts texts[MICROS];
	struct host_batch micro[MICROS];
	struct engine_result result;
	double sums[OBJECTIVE_SUMS_MAX] = {0};
	const float *losses;
	struct engine *e;

	o.policy.micro_batches = MICROS;
	o.policy.rope_positions = TOKENS;
	o.policy.prefetch_units = 1;
	check_ok(adamw_isa_find(&o.isa, "auto"));
	check_ok(pool_open(&o.pool, 2));
	check_ok(device_open(
	        &o.device, "host", &(struct device_options){.pool = o.pool, .stream_delay_seed = 3}));
	check_ok(engine_open(&e, &o));
	check_ok(engine_start(e));
	weights_write(e, model);
	for (int m = 0; m < MICROS; m++) {
		texts_make(&texts[m], (uint64_t)(3 + m));
		micro[m] = host_batch_of(&texts[m]);
	}
	for (int m = 0; m < MICROS; m++) {
		check_ok(engine_eval(e, &losses, &micro[m]));
		objective_in_batch.sums_add(sums, o.policy.objective.settings, &micro[m], losses);
	}
	out->evaluated = sums[0] / (MICROS * QUERIES);
	for (int step = 0; step < STEPS; step++) {
		const int count = step == 1 ? 1 : MICROS; /* the end of an epoch */
		struct objective_means means;

		check_ok(engine_step(e, &result, micro, count, count * QUERIES, 1e-2, NULL));
		means = objective_means_of(&objective_in_batch, result.sums, count * QUERIES, result.targets);
		assert_true(means.loss == result.loss_sum / (count * QUERIES));
		out->loss[step] = means.loss;
		out->norm[step] = result.grad_norm;
		out->sure[step] = means.metric[0];
	}
	for (int m = 0; m < MICROS; m++)
		rig_batch_free(&texts[m].rows);
	engine_close(e);
	device_close(o.device);
	pool_close(o.pool);
	model_close(model);
}

/* It trains through plans that know nothing of it; offload and delays change no bit. */
static void test_training(void **state)
{
	(void)state;
	for (int pooling = POOLING_MEAN; pooling <= POOLING_LAST; pooling++) {
		struct plan_policy policy = {.activations = ACTIVATION_KEEP,
		        .discard = 1,
		        .compute_dtype = DTYPE_F32,
		        .gradient_dtype = DTYPE_F32,
		        .reduce_dtype = DTYPE_F32,
		        .objective = {&objective_in_batch, {5, pooling}}};
		struct outcome kept, offloaded;

		train(&kept, &policy);
		assert_true(kept.evaluated == kept.loss[0]);
		assert_true(kept.loss[STEPS - 1] < 0.5 * kept.loss[0]);
		assert_true(kept.sure[STEPS - 1] > kept.sure[0] || kept.sure[STEPS - 1] == 1);
		policy.offload_params = policy.offload_gradients = policy.offload_optimizer = HOME_HOST;
		policy.activations = ACTIVATION_OFFLOAD;
		policy.forward_prefetch = 1;
		train(&offloaded, &policy);
		assert_memory_equal(&kept, &offloaded, sizeof(kept));
		policy.compute_dtype = DTYPE_BF16;
		train(&offloaded, &policy);
		near(offloaded.loss[0], kept.loss[0], 0.05, "loss with bf16 and pooling", pooling);
		assert_true(offloaded.loss[STEPS - 1] < 0.5 * offloaded.loss[0]);
	}
}

/* Each objective refuses the head that it cannot use. */
static void test_refusal(void **state)
{
	const struct objective *const types[] = {&objective_tokens, &objective_pairs, &objective_in_batch};

	(void)state;
	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
		int is_embedding = types[i] == &objective_in_batch;
		struct model *model =
		        is_embedding ? model_from("{\"model_type\":\"llama\",\"vocab_size\":70,"
		                                  "\"hidden_size\":32,\"intermediate_size\":48,"
		                                  "\"num_hidden_layers\":2,\"num_attention_heads\":4}")
		                     : headless();
		const struct plan_policy policy = {.activations = ACTIVATION_KEEP,
		        .micro_batches = 1,
		        .max_tokens = TOKENS,
		        .max_targets = QUERIES,
		        .max_documents = DOCUMENTS,
		        .rope_positions = TOKENS,
		        .prefetch_units = 1,
		        .objective = {types[i], {0}}};
		struct unit_map *map;
		struct plan *plan;

		check_ok(unit_map_open(&map, model, WRAP_TRANSFORMER, 0, DTYPE_F32, 0, 1));
		check_fails(plan_build(&plan, PLAN_TRAIN, map, &policy), ERR_UNSUPPORTED, "logits");
		unit_map_close(map);
		model_close(model);
	}
}

/* ---- rows ---- */

/* Rows of ids become the same micro-batch, by the objective's rule. */
static void test_rows(void **state)
{
	char *path = file_join(*state, "rows.jsonl");
	int64_t starts[] = {0, DOCUMENTS};
	struct batch_source source = {.rule = &objective_in_batch.batch};
	struct dataset_options options = {.path = path, .vocab_count = VOCAB};
	struct batch_limits limits;
	struct packing *packing;
	struct micro_batch *mb;
	struct dataset *d;
	struct texts t;
	FILE *f = fopen(path, "w");

	texts_make(&t, 1);
	assert_non_null(f);
	for (int row = 0, at = 0; row < DOCUMENTS; row++) {
		fprintf(f, "{\"input_ids\":[%d", t.rows.id[at]);
		while (at++ < t.last[row])
			fprintf(f, ",%d", t.rows.id[at]);
		fputs("]}\n", f);
	}
	fclose(f);
	check_ok(dataset_open(&d, &options));
	check_ok(packing_build_groups(&packing, starts, 1, 2));
	source.data = d;
	source.packing = packing;
	source.sampler = (struct sampler){
	        .row_count = QUERIES, .batch_rows = QUERIES, .accumulation = 1, .world_size = 1};
	check_ok(sampler_init(&source.sampler));
	check_ok(batch_limits_find(&limits, &source, 1));
	assert_int_equal(limits.targets, QUERIES);
	check_ok(micro_batch_alloc(&mb, &limits, source.rule));
	check_ok(batch_build(mb, &source, 0, 0));
	assert_int_equal(mb->target_count, QUERIES);
	assert_memory_equal(mb->ids, t.rows.id, sizeof(t.document));
	assert_memory_equal(mb->target_rows, t.rows.target_row, sizeof(t.label));
	assert_memory_equal(mb->own[LABEL], t.label, sizeof(t.label));
	assert_memory_equal(mb->own[DOCUMENT], t.document, sizeof(t.document));
	assert_memory_equal(mb->own[LAST], t.last, sizeof(t.last));
	micro_batch_free(mb);
	packing_free(packing);
	dataset_close(d);
	rig_batch_free(&t.rows);
	mem_free(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_head), cmocka_unit_test(test_model),
	        cmocka_unit_test(test_training), cmocka_unit_test(test_refusal), cmocka_unit_test(test_rows)};

	device_register(&backend_host);
	return cmocka_run_group_tests(tests, check_dir_make, check_dir_remove);
}
