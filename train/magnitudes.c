/* First magnitudes of adapters (DoRA). */
#include "train/adapters.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/size.h"
#include "checkpoint/file/weights.h"
#include "model/adapter.h"
#include "optim/weight_rounded.h"

#include <math.h>

/* The matrix that has these magnitudes; -1: they are none. */
static int matrix_of(const struct model *model, int magnitudes)
{
	const struct model_tensor *m = &model->tensors[magnitudes];

	for (int t = 0; t < model->tensor_count && role_facts[m->role].kind == KIND_MAGNITUDE; t++)
		if (model->tensors[t].layer == m->layer &&
		        role_adapter(model->tensors[t].role) != ROLE_COUNT &&
		        role_magnitude(role_adapter(model->tensors[t].role)) == m->role)
			return t;
	return -1;
}

/* A number as the device gets it. */
static float seen(const struct config *c, float x)
{
	return config_stage_dtype(c) == DTYPE_BF16 ? bf16_to_f32(bf16_from_f32(x)) : x;
}

/* Reads elements of a matrix; import takes PLANE_PIECE_COUNT at once. */
static int piece_read(const struct session *s, float *piece, int matrix, int64_t first, int64_t count)
{
	int err = 0;

	for (int64_t at = 0, n; at < count && !err; at += n) {
		n = min_i64(PLANE_PIECE_COUNT, count - at);
		err = hf_import_read(s->import, piece + at, matrix, first + at, n);
	}
	return err;
}

/* The format with codes that a matrix gets while loading; NULL: it keeps the values of its files. */
static const struct weight_format *quantized_to(const struct model_tensor *t)
{
	return t->kept && t->kept != t->stored && weight_format_is_coded(t->kept) ? t->kept : NULL;
}

/* With double quantization scales depend on all others: the whole matrix is read once more. */
static int scales_find(const struct session *s, struct weight_rounded *w, int matrix, float *piece)
{
	const struct model_tensor *t = &s->model->tensors[matrix];
	int err = 0;

	if (w->format->scale != CODE_SCALE_NESTED)
		return 0;
	for (int64_t at = 0, n; at < t->count && !err; at += n) {
		n = min_i64(w->most, t->count - at);
		err = piece_read(s, piece, matrix, at, n);
		if (!err)
			weight_rounded_see(w, piece, at, n);
	}
	return err ? err : weight_rounded_end(w, model_tensor_rows(t));
}

/* Adds the squares of elements [at, at + n) to those of rows [first, first + count). */
static void piece_add(double *sum, const struct session *s, int matrix, int64_t first, int64_t count,
        const float *piece, int64_t at, int64_t n)
{
	const struct model_tensor *t = &s->model->tensors[matrix];
	int is_turned = model_matrix_is_turned(s->model, t);
	int64_t cols = model_tensor_cols(t);

	for (int64_t i = 0; i < n; i++) {
		int64_t row = (is_turned ? (at + i) % cols : (at + i) / cols) - first;
		double x = seen(s->config, piece[i]);

		if (row >= 0 && row < count)
			sum[row] += x * x;
	}
}

/* Adds the squares of a matrix to those of its rows [first, first + count). */
static int squares_add(double *sum, const struct session *s, int matrix, int64_t first, int64_t count)
{
	const struct model_tensor *t = &s->model->tensors[matrix];
	const struct weight_format *format = quantized_to(t);
	int is_turned = model_matrix_is_turned(s->model, t), err = 0;
	int64_t cols = model_tensor_cols(t), at = is_turned ? 0 : first * cols,
	        end = is_turned ? t->count : (first + count) * cols, most = PLANE_PIECE_COUNT;
	struct weight_rounded w = {0};
	float *piece;

	if (format)
		err = weight_rounded_open(&w, format, model_tensor_rows(t), cols, PLANE_PIECE_COUNT);
	if (!err && format)
		most = w.most;
	piece = err ? NULL : mem_alloc((size_t)most, sizeof(*piece));
	err = err || piece ? err : ERR_NOMEM;
	if (!err && format)
		err = scales_find(s, &w, matrix, piece);
	for (int64_t n, from = at / most * most; from < end && !err; from += n) {
		n = min_i64(most, (format ? t->count : end) - from);
		err = piece_read(s, piece, matrix, from, n);
		if (!err && format)
			weight_rounded_put(&w, piece, from, n);
		if (!err)
			piece_add(sum, s, matrix, first, count, piece, from, n);
	}
	weight_rounded_close(&w);
	mem_free(piece);
	return err;
}

static int range_load(const struct session *s, struct weights_target *target, const struct plane_range *range)
{
	int matrix = matrix_of(s->model, range->tensor);
	double *sum = mem_alloc((size_t)range->count, sizeof(*sum));
	float *norm = mem_alloc((size_t)range->count, sizeof(*norm));
	int err = sum && norm ? squares_add(sum, s, matrix, range->first, range->count) : ERR_NOMEM;

	for (int64_t i = 0; i < range->count && !err; i++)
		norm[i] = (float)sqrt(sum[i]);
	if (!err)
		err = weights_put(target, FORMAT_F32, range->tensor, range->first, range->count, norm);
	mem_free(norm);
	mem_free(sum);
	return err;
}

int magnitudes_load(const struct session *s, const struct plane_sink *sink, const struct plane_range *ranges,
        int64_t range_count)
{
	struct weights_target target;
	int err = 0;

	weights_target_open(&target, sink, s->model);
	for (int64_t i = 0; i < range_count && !err; i++)
		if (matrix_of(s->model, ranges[i].tensor) >= 0)
			err = range_load(s, &target, &ranges[i]);
	weights_target_close(&target);
	return err;
}

int magnitudes_check(const struct session *s)
{
	const struct config *c = s->config;
	const char *where = config_where(c, s->config->lora_adapter ? "lora_adapter" : "use_dora");

	if (!s->model->config.adapter_magnitudes)
		return 0;
	if (c->init_weights == CONFIG_INIT_WEIGHTS_RANDOM)
		return err_set(ERR_UNSUPPORTED,
		        "%s: DoRA begins with the norms of the model's weights, and init_weights=random has "
		        "no "
		        "files of them; remove one of the two",
		        where);
	for (int t = 0; t < s->model->tensor_count; t++) {
		int matrix = matrix_of(s->model, t);

		if (matrix < 0)
			continue;
		if (s->model->tensors[matrix].trainable)
			return err_set(ERR_UNSUPPORTED,
			        "%s: %s trains itself, so DoRA of it is not supported; exclude it from "
			        "trainable",
			        where, s->model->tensors[matrix].name);
	}
	return 0;
}
