/* Adds the products of adapters to the weights that are read. */
#include "checkpoint/hf/merge.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/size.h"
#include "checkpoint/file/convert.h"
#include "checkpoint/file/weights.h"
#include "model/adapter.h"
#include "model/expert_names.h"

#include <math.h>
#include <string.h>

/* The adapter of a module as it is stored: rows of `left` [rows, rank] times `right` [rank, cols]; of
 * experts' modules one after the other. left NULL: none. */
struct factor {
	float *left, *right;
	int64_t rank;
	float scale;
};

/* Those of one tensor. It has part_rows rows of each part, then again for the next expert. */
struct factors {
	int tensor; /* -1: none yet */
	struct factor part[2];
	int parts;
	int64_t part_rows;
	float *by;     /* DoRA: what each row is multiplied by; NULL: nothing */
	int is_turned; /* 1: each column is */
};

struct merge {
	const struct model *model;
	struct model *base;
	const struct plane_source *from;
	struct plane_source source;
	struct pool *pool; /* may be NULL */
	struct factors factors;
	float *merged; /* the piece being merged: `count` elements of `tensor` from `first` on */
	int tensor;
	int64_t first, count;
};

/* `count` matrices, each of dst [cols, rows] = src [rows, cols] turned, in new memory; frees src. NULL: no
 * memory. */
static float *turned(float *src, int64_t count, int64_t rows, int64_t cols)
{
	float *dst = src ? mem_alloc((size_t)(count * rows * cols), sizeof(*dst)) : NULL;

	for (int64_t at = 0; at < count * rows * cols && dst; at += rows * cols)
		for (int64_t r = 0; r < rows; r++)
			for (int64_t c = 0; c < cols; c++)
				dst[at + c * rows + r] = src[at + r * cols + c];
	mem_free(src);
	return dst;
}

/* 1 if the tensor has its matrix, or those of experts, as [in, out]. */
static int is_in_out(const struct model *model, const struct model_tensor *t)
{
	return expert_parts(t->role) ? model->config.block[t->layer].experts.in_out
	                             : model_matrix_is_turned(model, t);
}

static void factors_free(struct factors *f)
{
	for (int i = 0; i < 2; i++) {
		mem_free(f->part[i].left);
		mem_free(f->part[i].right);
	}
	mem_free(f->by);
	*f = (struct factors){.tensor = -1};
}

/* Reads A [rank, in] and B [out, rank]. A matrix that is stored [in, out] takes both turned, and so does the
 * embedding, which has a row of each input. */
static int factor_read(struct merge *m, struct factor *f, const struct model_tensor *matrix, int a)
{
	const struct model_tensor *of_a = &m->model->tensors[a], *of_b = &m->model->tensors[a + 1];
	int64_t count = expert_parts(matrix->role) ? matrix->shape[0] : 1;
	float *values[2] = {
	        mem_alloc((size_t)of_a->count, sizeof(float)), mem_alloc((size_t)of_b->count, sizeof(float))};
	int err = values[0] && values[1] ? 0 : ERR_NOMEM;

	for (int i = 0; i < 2 && !err; i++)
		err = weights_read(m->from, a + i, 0, m->model->tensors[a + i].count, values[i]);
	if (is_in_out(m->model, matrix) || matrix->role == ROLE_EMBED) {
		f->left = turned(values[0], count, of_a->shape[0] / count, of_a->shape[1]);
		f->right = turned(values[1], count, of_b->shape[0] / count, of_b->shape[1]);
	} else {
		f->left = values[1];
		f->right = values[0];
	}
	f->rank = config_adapter(&m->model->config, of_a->role, of_a->layer)->rank;
	f->scale = (float)config_adapter(&m->model->config, of_a->role, of_a->layer)->scale;
	return !err && (!f->left || !f->right) ? ERR_NOMEM : err;
}

/* The A of a part of a tensor; -1: none. */
static int part_adapter(const struct model *model, int tensor, int part)
{
	const struct model_tensor *t = &model->tensors[tensor];

	if (!expert_parts(t->role))
		return part ? -1 : model_adapter_of(model, tensor);
	return part < expert_parts(t->role)
	               ? model_tensor_of(model, expert_adapter_role(t->role, part), t->layer)
	               : -1;
}

/* The A of all parts of a tensor of experts together; -1: none. */
static int whole_adapter(const struct model *model, int tensor)
{
	const struct model_tensor *t = &model->tensors[tensor];

	return expert_parts(t->role) == 2
	               ? model_tensor_of(model, expert_adapter_role(t->role, EXPERT_WHOLE), t->layer)
	               : -1;
}

static int has_adapter(const struct model *model, int tensor)
{
	return part_adapter(model, tensor, 0) >= 0 || part_adapter(model, tensor, 1) >= 0 ||
	       whole_adapter(model, tensor) >= 0;
}

enum { STRETCH = 2048 }; /* elements that a thread computes at once */

/* Adds the products to elements [first, first + count) of a matrix with `cols` columns. The order of rounding
 * is that of PEFT on a CPU: products summed by fused multiply-adds in the order of ranks, the scale, W. */
static void add_products(float *merged, const struct factors *f, int64_t cols, int64_t first, int64_t count)
{
	float sum[STRETCH];

	for (int64_t at = 0, run; at < count; at += run) {
		int64_t row = (first + at) / cols, col = (first + at) % cols,
		        expert = row / (f->parts * f->part_rows), of_part = row % f->part_rows;
		const struct factor *p = &f->part[row / f->part_rows % f->parts];

		run = min_i64(cols - col, count - at);
		memset(sum, 0, (size_t)run * sizeof(*sum));
		for (int64_t k = 0; k < p->rank; k++)
			convert_kernels()->add_product(sum,
			        p->left[(expert * f->part_rows + of_part) * p->rank + k],
			        p->right + (expert * p->rank + k) * cols + col, run);
		for (int64_t j = 0; j < run && p->rank; j++)
			merged[at + j] += p->scale * sum[j];
	}
}

static void merge_stretch(void *context, int64_t stretch, int worker)
{
	struct merge *m = context;
	int64_t first = stretch * STRETCH, count = min_i64(STRETCH, m->count - first);

	(void)worker;
	add_products(m->merged + first, &m->factors, model_tensor_cols(&m->model->tensors[m->tensor]),
	        m->first + first, count);
}

/* Elements [first, first + count) of a tensor with the products, before rows are multiplied. */
static int sums_read(struct merge *m, int tensor, int64_t first, int64_t count, float *dst)
{
	int64_t stretches = (count + STRETCH - 1) / STRETCH;
	int err = weights_read(m->from, tensor, first, count, dst);

	if (err)
		return err;
	m->merged = dst;
	m->tensor = tensor;
	m->first = first;
	m->count = count;
	for (int64_t i = 0; !m->pool && i < stretches; i++)
		merge_stretch(m, i, 0);
	if (m->pool)
		pool_run(m->pool, stretches, merge_stretch, m);
	return 0;
}

/* The row that an element of the matrix belongs to, of those that have magnitudes. */
static int64_t row_of(const struct merge *m, int64_t cols, int64_t at)
{
	return m->factors.is_turned ? at % cols : at / cols;
}

/* Finds magnitude / norm for each row of the matrix with its products, which takes reading all of it. */
static int magnitudes_read(struct merge *m, int tensor, int magnitudes)
{
	int64_t rows = m->model->tensors[magnitudes].count, total = m->model->tensors[tensor].count,
	        cols = model_tensor_cols(&m->model->tensors[tensor]);
	double *sum = mem_alloc((size_t)rows, sizeof(*sum));
	float *piece = mem_alloc(PLANE_PIECE_COUNT, sizeof(*piece)),
	      *by = mem_alloc((size_t)rows, sizeof(*by));
	int err = sum && piece && by ? weights_read(m->from, magnitudes, 0, rows, by) : ERR_NOMEM;

	for (int64_t at = 0, n; at < total && !err; at += n) {
		n = min_i64(PLANE_PIECE_COUNT, total - at);
		err = sums_read(m, tensor, at, n, piece);
		for (int64_t i = 0; i < n && !err; i++)
			sum[row_of(m, cols, at + i)] += (double)piece[i] * (double)piece[i];
	}
	for (int64_t r = 0; r < rows && !err; r++)
		by[r] /= (float)sqrt(sum[r]);
	mem_free(piece);
	mem_free(sum);
	if (err)
		mem_free(by);
	else
		m->factors.by = by;
	return err;
}

static int factors_read(struct merge *m, int tensor)
{
	const struct model_tensor *matrix = &m->model->tensors[tensor];
	struct factors *f = &m->factors;
	int err = 0, whole = whole_adapter(m->model, tensor);

	if (f->tensor == tensor)
		return 0;
	factors_free(f);
	f->parts = expert_parts(matrix->role) == 2 && whole < 0 ? 2 : 1;
	f->part_rows = expert_parts(matrix->role) ? matrix->shape[1] / f->parts : model_tensor_rows(matrix);
	for (int part = 0; part < 2 && !err; part++) {
		int a = whole < 0 ? part_adapter(m->model, tensor, part) : part ? -1 : whole;

		if (a >= 0)
			err = factor_read(m, &f->part[part], matrix, a);
	}
	f->is_turned = model_matrix_is_turned(m->model, matrix);
	if (!err && m->model->config.adapter_magnitudes)
		err = magnitudes_read(m, tensor,
		        model_tensor_of(m->model, role_magnitude(role_adapter(matrix->role)), matrix->layer));
	if (err)
		factors_free(f);
	else
		f->tensor = tensor;
	return err;
}

static int merged_piece(struct merge *m, int tensor, int64_t first, int64_t count, float *dst)
{
	int64_t cols = model_tensor_cols(&m->model->tensors[tensor]);
	int err = factors_read(m, tensor);

	if (!err)
		err = sums_read(m, tensor, first, count, dst);
	for (int64_t i = 0; i < count && !err && m->factors.by; i++)
		dst[i] *= m->factors.by[row_of(m, cols, first + i)];
	return err;
}

static int merged_floats(void *context, int tensor, int64_t first, int64_t count, float *dst)
{
	struct merge *m = context;
	const struct model_tensor *t = &m->base->tensors[tensor];
	int of_model = model_tensor_of(m->model, t->role, t->layer);

	return has_adapter(m->model, of_model) ? merged_piece(m, of_model, first, count, dst)
	                                       : weights_read(m->from, of_model, first, count, dst);
}

int merge_open(
        struct merge **merge, const struct model *model, const struct plane_source *source, struct pool *pool)
{
	struct merge *m = mem_alloc(1, sizeof(*m));
	int err;

	*merge = m;
	if (!m)
		return ERR_NOMEM;
	m->model = model;
	m->from = source;
	m->source = (struct plane_source){.context = m, .floats = merged_floats};
	m->pool = pool;
	m->factors.tensor = -1;
	err = model_base_open(&m->base, model);
	if (err) {
		merge_close(m);
		*merge = NULL;
	}
	return err;
}

const struct model *merge_model(const struct merge *merge)
{
	return merge->base;
}

const struct plane_source *merge_source(const struct merge *merge)
{
	return &merge->source;
}

void merge_close(struct merge *merge)
{
	if (!merge)
		return;
	factors_free(&merge->factors);
	model_base_close(merge->base);
	mem_free(merge);
}
