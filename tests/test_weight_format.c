/* links: offload checkpoint model_families host_cpu */
/* Formats of frozen weights: one that no list has, 8-bit codes with a scale for each row, of which all that
 * ferry needs stands here; and those of base_format. Steps are those of the weights that the codes stand for;
 * no placement changes a bit; files are read into it. */
#include "tests/engine_rig.h"
#include "tests/model_text.h"

#include "base/file.h"
#include "checkpoint/file/weights.h"
#include "checkpoint/hf/hf_export.h"
#include "checkpoint/hf/hf_import.h"
#include "host/pool.h"

#include <math.h>
#include <unistd.h>

/* ---- the format ---- */

static float row_scale(const float *row, int64_t cols)
{
	float most = 0;

	for (int64_t c = 0; c < cols; c++)
		most = fmaxf(most, fabsf(row[c]));
	return most / 127;
}

static void put_rows(const struct weight_format *format, void *codes, float *scales, const float *src,
        int64_t rows, int64_t cols)
{
	(void)format;
	for (int64_t r = 0; r < rows; r++) {
		scales[r] = row_scale(src + r * cols, cols);
		for (int64_t c = 0; c < cols; c++)
			((int8_t *)codes)[r * cols + c] =
			        (int8_t)(scales[r] > 0 ? lrintf(src[r * cols + c] / scales[r]) : 0);
	}
}

static const struct weight_format int8_rows = {.name = "int8 by row",
        .keeps = DTYPE_I8,
        .planes = PLANES_CODED,
        .code = CODE_I8,
        .scale = CODE_SCALE_F32,
        .block_rows = 1,
        .put = put_rows};

/* ---- a model ---- */

enum { LAYERS = 3, TOKENS = 24, MICROS = 2, STEPS = 3 };

static int trains(const char *name, const char *other_name, void *arg)
{
	(void)other_name;
	(void)arg;
	return strstr(name, "q_proj") || strstr(name, "layernorm");
}

static struct model *model_make(const struct weight_format *kept)
{
	char text[400];
	struct model *model;
	int64_t count;

	snprintf(text, sizeof(text),
	        "{\"model_type\":\"llama\",\"vocab_size\":70,\"hidden_size\":32,\"intermediate_size\":64,"
	        "\"num_hidden_layers\":%d,\"num_attention_heads\":4,\"max_position_embeddings\":64,"
	        "\"tie_word_embeddings\":false}",
	        LAYERS);
	model = model_from(text);
	check_ok(model_set_trainable(model, &count, trains, NULL));
	for (int t = 0; t < model->tensor_count; t++)
		if (!model->tensors[t].trainable)
			model->tensors[t].kept = kept;
	return model;
}

/* Initial values; those of a frozen tensor with `rounds` as the codes stand for them, in compute_dtype. */
struct values {
	const struct model *model;
	const struct weight_format *rounds;
	enum dtype dtype;
};

/* The values that codes of a whole matrix stand for. */
static void values_round(float *value, const struct weight_format *f, int64_t rows, int64_t cols)
{
	static uint8_t codes[20000], nested[2000];
	static float scales[2000], outer[100], all[20000];
	int64_t count = rows * cols, scale_count = weight_format_scales(f, rows, cols), across;

	assert_true(count <= 20000 && scale_count <= 2000);
	memcpy(all, value, (size_t)count * sizeof(*all));
	weight_format_shape(f, &rows, &cols);
	across = f->block_cols ? (cols + f->block_cols - 1) / f->block_cols : 1;
	f->put(f, codes, scales, all, rows, cols);
	if (f->scale == CODE_SCALE_NESTED) {
		nested_make(outer, nested, scales, scale_count);
		code_scales_read(CODE_SCALE_NESTED, scales, nested, outer, 0, scale_count);
	}
	for (int64_t i = 0; i < count; i++)
		value[i] = code_values(f->code)[code_at(f->code, codes, i)] *
		           scales[i / cols / f->block_rows * across +
		                   (f->block_cols ? i % cols / f->block_cols : 0)];
}

static int values_read(void *context, int tensor, int64_t first, int64_t count, float *dst)
{
	const struct values *v = context;
	const struct model_tensor *t = &v->model->tensors[tensor];

	for (int64_t i = 0; i < count; i++)
		dst[i] = model_init_value(v->model, tensor, first + i, 5);
	if (!v->rounds || t->trainable)
		return 0;
	assert_true(!first && count == t->count);
	values_round(dst, v->rounds, model_tensor_rows(t), model_tensor_cols(t));
	for (int64_t i = 0; i < count && v->dtype == DTYPE_BF16; i++)
		dst[i] = bf16_to_f32(bf16_from_f32(dst[i]));
	return 0;
}

static int sink_write(
        void *context, int tensor, enum plane plane, int64_t first, int64_t count, const void *src)
{
	return engine_write(context, tensor, plane, first, count, src);
}

static void values_write(struct engine *e, struct values *v)
{
	const struct plane_sink sink = {.context = e,
	        .write = sink_write,
	        .is_zero = 1,
	        .keeps_formats = 1,
	        .compute_dtype = engine_units(e)->compute_dtype};
	struct weights_target target;

	weights_target_open(&target, &sink, v->model);
	for (int t = 0; t < v->model->tensor_count; t++) {
		int64_t count = v->model->tensors[t].count;
		float *value = calloc((size_t)count, sizeof(*value));

		assert_int_equal(values_read(v, t, 0, count, value), 0);
		check_ok(weights_put(&target, FORMAT_F32, t, 0, count, value));
		free(value);
	}
	weights_target_close(&target);
}

/* ---- steps ---- */

static struct host_batch batch_make(void)
{
	static int32_t id[TOKENS], position[TOKENS], start[TOKENS], end[TOKENS], row[TOKENS], label[TOKENS];

	for (int i = 0; i < TOKENS; i++) {
		id[i] = label[i] = i * 7 % 70;
		position[i] = row[i] = i;
		end[i] = TOKENS;
	}
	return (struct host_batch){.tokens = TOKENS,
	        .targets = TOKENS,
	        .documents = 1,
	        .id = id,
	        .position = position,
	        .doc_start = start,
	        .doc_end = end,
	        .target_row = row,
	        .own = {label}};
}

struct outcome {
	double loss[STEPS], norm[STEPS];
	uint16_t hi[4096]; /* of the first trained matrix */
	int64_t code_bytes, half_bytes, h2d_bytes;
};

static void engine_make(struct engine **e, struct engine_options *o, const struct model *model,
        const struct plan_policy *policy)
{
	*o = (struct engine_options){.model = model,
	        .world_size = 1,
	        .policy = *policy,
	        .crossing = SLAB_PINNED,
	        .train = {TOKENS, TOKENS},
	        .adamw = {0.9, 0.95, 1e-8, 0.1, 1},
	        .max_grad_norm = 1,
	        .skip_nonfinite = 1,
	        .check_plans = 1};
	check_ok(adamw_isa_find(&o->isa, "auto"));
	check_ok(pool_open(&o->pool, 2));
	check_ok(device_open(&o->device, TEST_DEVICE, &(struct device_options){.pool = o->pool}));
	check_ok(engine_open(e, o));
	check_ok(engine_start(*e));
}

static void engine_end(struct engine *e, const struct engine_options *o)
{
	engine_close(e);
	device_close(o->device);
	pool_close(o->pool);
}

/* `kept` or, as plain weights, the values that `rounds` makes. */
static void steps_run(struct outcome *out, const struct weight_format *kept,
        const struct weight_format *rounds, const struct plan_policy *policy)
{
	struct model *model = model_make(kept);
	struct values values = {model, rounds, policy->compute_dtype};
	struct host_batch micro[MICROS] = {batch_make(), batch_make()};
	struct engine_options o;
	const struct plan *plan;
	struct engine *e;
	int t = 0;

	*out = (struct outcome){0};
	engine_make(&e, &o, model, policy);
	values_write(e, &values);
	for (int step = 0; step < STEPS; step++) {
		struct engine_result result;

		check_ok(engine_step(e, &result, micro, MICROS, MICROS * TOKENS, 1e-2, NULL));
		out->loss[step] = result.loss_sum;
		out->norm[step] = result.grad_norm;
	}
	while (!model->tensors[t].trainable || model->tensors[t].rank != 2)
		t++;
	check_ok(engine_read(e, t, PLANE_HI, 0, model->tensors[t].count, out->hi));
	plan = engine_plan(e, PLAN_TRAIN);
	for (int space = 0; space < SPACE_COUNT; space++) {
		out->code_bytes += plan_bytes_of(plan, (enum plan_space)space, BUFFER_PLANE_CODES);
		out->half_bytes += plan_bytes_of(plan, (enum plan_space)space, BUFFER_PLANE_HI);
	}
	out->h2d_bytes = plan->h2d_bytes;
	engine_end(e, &o);
	model_close(model);
}

static const struct plan_policy streamed = {.offload_params = HOME_HOST,
        .offload_gradients = HOME_HOST,
        .offload_optimizer = HOME_HOST,
        .activations = ACTIVATION_RECOMPUTE,
        .prefetch_units = 2,
        .forward_prefetch = 1,
        .compute_dtype = DTYPE_BF16,
        .gradient_dtype = DTYPE_BF16,
        .rope_positions = TOKENS,
        .micro_batches = MICROS};

static void assert_same(const struct outcome *a, const struct outcome *b, const char *why, int n)
{
	if (memcmp(a->loss, b->loss, sizeof(a->loss)) || memcmp(a->norm, b->norm, sizeof(a->norm)) ||
	        memcmp(a->hi, b->hi, sizeof(a->hi)))
		fail_msg("%s, %d: losses %.17g and %.17g", why, n, a->loss[STEPS - 1], b->loss[STEPS - 1]);
}

static void steps_compare(const struct weight_format *format, enum dtype dtype, int ways)
{
	struct plan_policy policy = streamed, other;
	struct outcome on, got, plain;

	policy.compute_dtype = policy.gradient_dtype = dtype;
	steps_run(&on, format, NULL, &policy);
	assert_true(on.loss[0] > 0 && on.loss[STEPS - 1] < on.loss[0]);
	/* the same as weights of these values */
	steps_run(&plain, NULL, format, &policy);
	assert_same(&on, &plain, format->name, (int)dtype);
	assert_int_equal(plain.code_bytes, 0);
	assert_true(on.code_bytes > 0 && on.half_bytes < plain.half_bytes);
	assert_int_equal(on.code_bytes * 16, (plain.half_bytes - on.half_bytes) * code_bits(format->code));
	assert_true(on.h2d_bytes < plain.h2d_bytes);
	/* off, in part, without prefetch, with weights that stay */
	for (int way = 0; way < ways; way++) {
		other = policy;
		if (way == 0 || way == 1)
			other.offload_params = HOME_DEVICE;
		if (way == 0)
			other.offload_gradients = other.offload_optimizer = HOME_DEVICE;
		if (way == 2)
			other.forward_prefetch = 0;
		if (way == 3)
			other.resident_weights = 3;
		if (way == 4)
			other.resident_states = 2;
		steps_run(&got, format, NULL, &other);
		assert_same(&on, &got, format->name, way);
	}
}

static void test_steps(void **state)
{
	(void)state;
	steps_compare(&int8_rows, DTYPE_BF16, 5);
	steps_compare(&int8_rows, DTYPE_F32, 5);
}

/* Every format that base_format can name. */
static const struct weight_format *named(int n)
{
	static const struct {
		enum code code;
		enum code_scale scale;
		int64_t block;
	} all[] = {{CODE_NF4, CODE_SCALE_F32, 64}, {CODE_NF4, CODE_SCALE_NESTED, 64},
	        {CODE_NF4, CODE_SCALE_NESTED, 32}, {CODE_NF4, CODE_SCALE_F32, 4096},
	        {CODE_FP4, CODE_SCALE_F32, 128}, {CODE_FP4, CODE_SCALE_NESTED, 64},
	        {CODE_E4M3, CODE_SCALE_F32, 0}, {CODE_I8, CODE_SCALE_F32, 0},
	        {CODE_E2M1, CODE_SCALE_E8M0, 0}};

	if (n == (int)(sizeof(all) / sizeof(*all)))
		return NULL;
	assert_non_null(weight_format_coded(all[n].code, all[n].scale, all[n].block));
	return weight_format_coded(all[n].code, all[n].scale, all[n].block);
}

static void test_named(void **state)
{
	(void)state;
	for (int n = 0; named(n); n++) {
		steps_compare(named(n), DTYPE_BF16, 1);
		steps_compare(named(n), DTYPE_F32, 0);
	}
}

/* Loading a file gives the codes that weights_put makes. */
static void file_compare(const struct weight_format *format)
{
	char dir[] = "/tmp/ferry-format-XXXXXX", path[64];
	struct model *model = model_make(format);
	struct values values = {model, NULL, DTYPE_BF16};
	const struct plane_source source = {.context = &values, .floats = values_read};
	struct hf_export export = {.dir = path, .dtype = SAFETENSORS_F32};
	struct plan_policy policy = streamed;
	struct hf_import *import;
	struct engine_options o[2];
	struct engine *e[2];

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/model", dir);
	check_ok(hf_export_write(&export, model, &source));
	check_ok(hf_import_open(&import, path, model));
	for (int i = 0; i < 2; i++) {
		policy.offload_params = policy.offload_optimizer = i ? HOME_DEVICE : HOME_HOST;
		engine_make(&e[i], &o[i], model, &policy);
		if (i) {
			const struct plane_sink sink = {.context = e[i],
			        .write = sink_write,
			        .is_zero = 1,
			        .keeps_formats = 1,
			        .compute_dtype = engine_units(e[i])->compute_dtype};

			check_ok(hf_import_load(import, &sink, NULL, 0, o[i].pool));
		} else {
			values_write(e[i], &values);
		}
	}
	for (int t = 0; t < model->tensor_count; t++)
		for (int plane = PLANE_CODES; plane <= PLANE_CODE_SCALE && !model->tensors[t].trainable;
		        plane++) {
			char got[2][20000] = {{0}};

			for (int i = 0; i < 2; i++)
				check_ok(engine_read(
				        e[i], t, (enum plane)plane, 0, model->tensors[t].count, got[i]));
			assert_memory_equal(got[0], got[1], sizeof(got[0]));
			assert_true(got[0][0] || got[0][1] || got[0][2] || got[0][3]);
		}
	for (int i = 0; i < 2; i++)
		engine_end(e[i], &o[i]);
	hf_import_close(import);
	model_close(model);
	assert_int_equal(file_remove_tree(dir), 0);
}

static void test_file(void **state)
{
	(void)state;
	file_compare(&int8_rows);
	for (int n = 0; named(n); n++)
		file_compare(named(n));
}

/* Ranks divide codes and scales without gaps and without overlap, and a rank reads what makes its share. */
static void ranks_divide(const struct weight_format *format, int ranks)
{
	struct model *model = model_make(format);

	for (int t = 0; t < model->tensor_count; t++) {
		int64_t bytes[2] = {0, 0}, whole[2] = {0, 0};

		for (int r = 0; r < ranks; r++) {
			struct unit_map *map = NULL;
			int64_t first, count;

			check_ok(unit_map_open(&map, model, WRAP_TRANSFORMER, 0, DTYPE_BF16, r, ranks));
			unit_map_needed(map, &map->pieces[map->tensor_piece[t]], &first, &count);
			for (int p = 0; p < 2 && unit_map_format(map, t) == format; p++) {
				enum plane plane = p ? PLANE_CODE_SCALE : PLANE_CODES;
				struct unit_bytes all = unit_map_coded(
				                          map, t, plane, 0, model->tensors[t].count),
				                  held = unit_bytes_held(
				                          &map->units[map->pieces[map->tensor_piece[t]].unit],
				                          plane, r, all),
				                  made;

				whole[p] = all.end - all.begin;
				bytes[p] += held.end - held.begin;
				if (held.begin == held.end)
					continue;
				made = unit_map_coded(map, t, plane, first, count);
				assert_true(made.begin <= held.begin);
				/* the rest of scales is up to the next tensor */
				assert_true(made.end + (p ? 15 : 0) >= held.end);
			}
			unit_map_close(map);
		}
		assert_true(bytes[0] == whole[0] && bytes[1] == whole[1]);
	}
	model_close(model);
}

static void test_ranks(void **state)
{
	(void)state;
	for (int ranks = 1; ranks < 6; ranks++) {
		ranks_divide(&int8_rows, ranks);
		for (int n = 0; named(n); n++)
			ranks_divide(named(n), ranks);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_steps),
	        cmocka_unit_test(test_named),
	        cmocka_unit_test(test_file),
	        cmocka_unit_test(test_ranks),
	};
	int skipped = engine_rig_begin();

	return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
