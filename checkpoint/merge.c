/* Adds the products of adapters to the weights that are read. */
#include "checkpoint/merge.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/size.h"
#include "model/adapter.h"

/* The adapter of one matrix as it is stored: rows of `left` [rows, rank] times `right` [rank, cols]. */
struct factors {
	int tensor; /* -1: none yet */
	float *left, *right;
};

struct merge {
	const struct model *model;
	struct model *base;
	const struct plane_source *from;
	struct plane_source source;
	struct factors factors;
	uint16_t *hi;  /* [PLANE_PIECE_COUNT] */
	int16_t *lo;   /* the same */
	double *delta; /* the same */
};

static int read_floats(struct merge *m, float *dst, int tensor)
{
	int64_t total = m->model->tensors[tensor].count;
	int err = 0;

	for (int64_t at = 0, count; at < total && !err; at += count) {
		count = min_i64(PLANE_PIECE_COUNT, total - at);
		err = m->from->read(m->from->context, tensor, PLANE_HI, at, count, m->hi);
		if (!err)
			err = m->from->read(m->from->context, tensor, PLANE_LO, at, count, m->lo);
		for (int64_t i = 0; i < count && !err; i++)
			dst[at + i] = f32_from_bits(plane_join(m->hi[i], m->lo[i]));
	}
	return err;
}

/* dst [cols, rows] = src [rows, cols] turned, in new memory; frees src. NULL: no memory. */
static float *turned(float *src, int64_t rows, int64_t cols)
{
	float *dst = src ? mem_alloc((size_t)(rows * cols), sizeof(*dst)) : NULL;

	for (int64_t r = 0; r < rows && dst; r++)
		for (int64_t c = 0; c < cols; c++)
			dst[c * rows + r] = src[r * cols + c];
	mem_free(src);
	return dst;
}

static void factors_free(struct factors *f)
{
	mem_free(f->left);
	mem_free(f->right);
	*f = (struct factors){.tensor = -1};
}

/* Reads A [rank, in] and B [out, rank]. A matrix that is stored [in, out] takes both turned. */
static int factors_read(struct merge *m, int tensor, int a)
{
	const struct model_tensor *matrix = &m->model->tensors[tensor], *of_a = &m->model->tensors[a],
	                          *of_b = &m->model->tensors[a + 1];
	struct factors *f = &m->factors;
	float *values[2];
	int err;

	if (f->tensor == tensor)
		return 0;
	factors_free(f);
	values[0] = mem_alloc((size_t)of_a->count, sizeof(float));
	values[1] = mem_alloc((size_t)of_b->count, sizeof(float));
	err = values[0] && values[1] ? 0 : ERR_NOMEM;
	for (int i = 0; i < 2 && !err; i++)
		err = read_floats(m, values[i], a + i);
	if (model_matrix_is_turned(m->model, matrix)) {
		f->left = turned(values[0], of_a->shape[0], of_a->shape[1]);
		f->right = turned(values[1], of_b->shape[0], of_b->shape[1]);
	} else {
		f->left = values[1];
		f->right = values[0];
	}
	if (!err && (!f->left || !f->right))
		err = ERR_NOMEM;
	if (err)
		factors_free(f);
	else
		f->tensor = tensor;
	return err;
}

/* The product's elements [first, first + count) into delta. */
static void product(struct merge *m, int64_t cols, int64_t first, int64_t count)
{
	int64_t rank = m->model->config.adapter.rank;

	for (int64_t at = 0, run; at < count; at += run) {
		int64_t row = (first + at) / cols, col = (first + at) % cols;
		double *sum = m->delta + at;

		run = min_i64(cols - col, count - at);
		for (int64_t j = 0; j < run; j++)
			sum[j] = 0;
		for (int64_t k = 0; k < rank; k++) {
			double left = m->factors.left[row * rank + k];
			const float *right = m->factors.right + k * cols + col;

			for (int64_t j = 0; j < run; j++)
				sum[j] += left * right[j];
		}
	}
}

static int merged_piece(
        struct merge *m, int tensor, int a, enum plane plane, int64_t first, int64_t count, void *dst)
{
	double scale = m->model->config.adapter.scale;
	uint16_t *hi = dst;
	int16_t *lo = dst;
	int err = factors_read(m, tensor, a);

	if (!err)
		err = m->from->read(m->from->context, tensor, PLANE_HI, first, count, m->hi);
	if (!err)
		err = m->from->read(m->from->context, tensor, PLANE_LO, first, count, m->lo);
	if (err)
		return err;
	product(m, m->model->tensors[tensor].shape[1], first, count);
	for (int64_t i = 0; i < count; i++) {
		float base = f32_from_bits(plane_join(m->hi[i], m->lo[i]));
		uint32_t bits = f32_bits((float)(base + scale * m->delta[i]));

		if (plane == PLANE_HI)
			hi[i] = plane_hi(bits);
		else
			lo[i] = plane_lo(bits);
	}
	return 0;
}

static int merged_read(void *context, int tensor, enum plane plane, int64_t first, int64_t count, void *dst)
{
	struct merge *m = context;
	const struct model_tensor *t = &m->base->tensors[tensor];
	int of_model = model_tensor_of(m->model, t->role, t->layer), a = model_adapter_of(m->model, of_model);

	return a < 0 ? m->from->read(m->from->context, of_model, plane, first, count, dst)
	             : merged_piece(m, of_model, a, plane, first, count, dst);
}

int merge_open(struct merge **merge, const struct model *model, const struct plane_source *source)
{
	struct merge *m = mem_alloc(1, sizeof(*m));
	int err;

	*merge = m;
	if (!m)
		return ERR_NOMEM;
	m->model = model;
	m->from = source;
	m->source = (struct plane_source){.context = m, .read = merged_read};
	m->factors.tensor = -1;
	m->hi = mem_alloc(PLANE_PIECE_COUNT, sizeof(*m->hi));
	m->lo = mem_alloc(PLANE_PIECE_COUNT, sizeof(*m->lo));
	m->delta = mem_alloc(PLANE_PIECE_COUNT, sizeof(*m->delta));
	err = m->hi && m->lo && m->delta ? model_base_open(&m->base, model) : ERR_NOMEM;
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
	mem_free(merge->hi);
	mem_free(merge->lo);
	mem_free(merge->delta);
	mem_free(merge);
}
