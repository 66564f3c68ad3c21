/* First magnitudes of adapters (DoRA). */
#include "train/adapters.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/size.h"
#include "checkpoint/file/weights.h"
#include "model/adapter.h"

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
	return (enum dtype)c->compute_dtype == DTYPE_BF16 ? bf16_to_f32(bf16_from_f32(x)) : x;
}

/* Adds the squares of a matrix to those of its rows [first, first + count). `piece`: PLANE_PIECE_COUNT. */
static int squares_add(
        double *sum, const struct session *s, int matrix, int64_t first, int64_t count, float *piece)
{
	const struct model_tensor *t = &s->model->tensors[matrix];
	int is_turned = model_matrix_is_turned(s->model, t), err = 0;
	int64_t cols = model_tensor_cols(t), at = is_turned ? 0 : first * cols,
	        end = is_turned ? t->count : (first + count) * cols;

	for (int64_t n; at < end && !err; at += n) {
		n = min_i64(PLANE_PIECE_COUNT, end - at);
		err = hf_import_read(s->import, piece, matrix, at, n);
		for (int64_t i = 0; i < n && !err; i++) {
			int64_t row = (is_turned ? (at + i) % cols : (at + i) / cols) - first;
			double x = seen(s->config, piece[i]);

			if (row >= 0 && row < count)
				sum[row] += x * x;
		}
	}
	return err;
}

static int range_load(const struct session *s, struct weights_target *target, const struct plane_range *range)
{
	int matrix = matrix_of(s->model, range->tensor);
	double *sum = mem_alloc((size_t)range->count, sizeof(*sum));
	float *norm = mem_alloc((size_t)range->count, sizeof(*norm)),
	      *piece = mem_alloc(PLANE_PIECE_COUNT, sizeof(*piece));
	int err = sum && norm && piece ? squares_add(sum, s, matrix, range->first, range->count, piece)
	                               : ERR_NOMEM;

	for (int64_t i = 0; i < range->count && !err; i++)
		norm[i] = (float)sqrt(sum[i]);
	if (!err)
		err = weights_put(target, FORMAT_F32, range->tensor, range->first, range->count, norm);
	mem_free(piece);
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
		if (!c->lora_adapter && s->model->tensors[matrix].kept &&
		        s->model->tensors[matrix].kept != s->model->tensors[matrix].stored)
			return err_set(ERR_UNSUPPORTED,
			        "%s: DoRA over a base that base_format=%s quantizes is not supported; set "
			        "base_format=bf16",
			        where, config_text(c, "base_format"));
	}
	return 0;
}
