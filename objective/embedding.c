/* Embeddings: texts of a row near to each other, and far from those of other rows. */
#include "objective/contrast.h"
#include "objective/vectors.h"

#include "base/err.h"
#include "base/mem.h"
#include "data/batch.h"

#include <string.h>

enum { LOSS, SCALE, MARGIN, SIMILARITY, DIRECTIONS, PARTITION, HARDNESS, STRENGTH };
static const char *const keys[] = {"embedding_loss", "embedding_scale", "embedding_margin",
        "embedding_similarity", "embedding_directions", "embedding_partition", "embedding_hardness",
        "embedding_hardness_strength", NULL};

/* The texts of each row. ERR_INTERNAL: a row is not whole. */
static int row_texts(int64_t *each, const struct judgement *j)
{
	*each = 0;
	for (int64_t i = 0; i < j->count && (i == 0 || j->row[i][j->width + VECTOR_PLACE] != 0); i++)
		(*each)++;
	for (int64_t i = 0; i < j->count; i++)
		if (j->row[i][j->width + VECTOR_PLACE] != (float)(i % *each) || j->count % *each)
			return err_set(ERR_INTERNAL, "embeddings: text %lld of %lld is not where its row is",
			        (long long)i, (long long)j->count);
	return 0;
}

static void vectors_take(float *to, const struct judgement *j)
{
	for (int64_t n = 0; n < j->count; n++)
		memcpy(to + n * j->width, j->row[n], (size_t)j->width * sizeof(*to));
}

static void losses_give(const struct judgement *j, const double *loss, int64_t each)
{
	for (int64_t n = 0; n < j->count; n++)
		if (j->loss[n])
			*j->loss[n] = n % each ? 0 : (float)loss[n / each];
}

static struct contrast contrast_of(const struct judgement *j)
{
	const double *set = j->settings;
	const struct objective_list *dims = &j->lists[0], *weights = &j->lists[1];
	struct contrast c = {.kind = (enum contrast_kind)set[LOSS],
	        .scale = set[SCALE],
	        .margin = set[MARGIN],
	        .similarity = (enum contrast_similarity)set[SIMILARITY],
	        .directions = (int)set[DIRECTIONS],
	        .is_per_direction = set[PARTITION] != 0,
	        .hardness = (enum contrast_hardness)set[HARDNESS],
	        .hardness_strength = set[STRENGTH],
	        .dim_count = dims->count,
	        .width = j->width,
	        .stride = j->width,
	        .gradient = j->gradient,
	        .weight = j->grad_scale,
	        .pool = j->pool,
	        .each_task = j->each};

	for (int i = 0; i < dims->count; i++) {
		c.dim[i] = (int64_t)dims->value[i];
		c.dim_weight[i] = weights->count ? weights->value[i] : 1;
	}
	return c;
}

static int judge(struct judgement *j)
{
	float *vectors = mem_alloc((size_t)(j->count * j->width), sizeof(*vectors));
	float *score = mem_alloc((size_t)j->count, sizeof(*score));
	double *loss = mem_alloc((size_t)j->count, sizeof(*loss));
	struct contrast c = contrast_of(j);
	int rc = vectors && score && loss ? row_texts(&c.each, j) : ERR_NOMEM;

	if (!rc) {
		c.rows = j->count / c.each;
		c.vectors = vectors;
		c.score = score;
		c.loss = loss;
		vectors_take(vectors, j);
		for (int64_t n = 0; n < j->count; n++)
			score[n] = j->row[n][j->width + VECTOR_LABEL];
		c.teacher = j->teacher;
		if (c.each >= contrast_facts(c.kind).texts) /* else only vectors are wanted */
			rc = contrast_losses(&c);
	}
	if (!rc)
		losses_give(j, loss, c.each);
	mem_free(vectors);
	mem_free(score);
	mem_free(loss);
	return rc;
}

static const struct vectors_pass vectors = {vectors_width, judge, 1};

/* Of texts with a label how it correlates; else whether the right text is found, among those of its row and
 * among all. */
static int scores_find(struct scores *out, const struct scored *rows, const double *settings)
{
	enum contrast_kind kind = (enum contrast_kind)settings[LOSS];
	enum contrast_score score = contrast_facts(kind).score;
	int rc = 0;

	if (rows->each < 2 || score == SCORE_VECTORS)
		return 0;
	if (score == SCORE_ONE || score == SCORE_SIDE || (score == SCORE_ONE_OR_TEXTS && rows->each == 2))
		return scores_of_pairs(out, rows);
	if (score == SCORE_NONE && contrast_facts(kind).compares_rows)
		rc = scores_of_retrieval(out, rows);
	return rc || rows->each < 3 ? rc : scores_of_triplets(out, rows);
}

const struct objective objective_embedding = {
        .name = "embedding",
        .keys = keys,
        .lists = {"matryoshka_dims", "matryoshka_weights"},
        .rows = DATASET_TEXTS_ONLY,
        .batch = VECTORS_BATCH,
        .row_documents = 2,
        .is_mean_of_rows = 1,
        .check = vectors_check,
        .head = &vectors_head,
        .vectors = &vectors,
        .sum_count = 1,
        .sums_add = objective_add_losses,
        .scores_find = scores_find,
};
