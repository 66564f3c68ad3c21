/* Losses of embeddings (objective/contrast.h says what they are). */
#ifndef FERRY_DEVICE_CONTRAST_KIND_H
#define FERRY_DEVICE_CONTRAST_KIND_H

/* Values of the key objective. */
enum {
	OBJECTIVE_AUTO,
	OBJECTIVE_CLASSIFICATION,
	OBJECTIVE_REGRESSION,
	OBJECTIVE_TOKEN_CLASSIFICATION,
	OBJECTIVE_REWARD,
	OBJECTIVE_RERANKING,
	OBJECTIVE_MASKED
};

/* What is compared of two texts: bits, so that a loss lists those that it can take. */
enum contrast_similarity {
	SIMILARITY_AUTO,
	SIMILARITY_COSINE = 1,
	SIMILARITY_DOT = 2,
	SIMILARITY_EUCLIDEAN = 4,
	SIMILARITY_MANHATTAN = 8,
	SIMILARITY_PRODUCTS = SIMILARITY_COSINE | SIMILARITY_DOT,
	SIMILARITY_DISTANCES = SIMILARITY_COSINE | SIMILARITY_EUCLIDEAN | SIMILARITY_MANHATTAN
};

/* Comparisons of a ranking, as bits: of each anchor with all texts or anchors, of each positive with them. */
enum contrast_direction {
	DIRECTION_QUERY_TO_DOC = 1,
	DIRECTION_QUERY_TO_QUERY = 2,
	DIRECTION_DOC_TO_QUERY = 4,
	DIRECTION_DOC_TO_DOC = 8
};

/* Which negatives of an anchor count more, the more they are like it: texts of other rows, own ones, as bits.
 */
enum contrast_hardness {
	HARDNESS_OFF,
	HARDNESS_IN_BATCH_NEGATIVES = 1,
	HARDNESS_HARD_NEGATIVES = 2,
	HARDNESS_ALL_NEGATIVES = 3
};

/* Scores of a row: none; one; one, which is 0 or 1; one, which is 1 where a row of more than two texts has
 * none; one a negative, or one a text behind the anchor; a vector for all texts, or for each. */
enum contrast_score {
	SCORE_NONE,
	SCORE_ONE,
	SCORE_SIDE,
	SCORE_ONE_OR_TEXTS,
	SCORE_EACH_NEGATIVE,
	SCORE_VECTORS
};

/* Identifier, name, other names, scores, whether it has a scale, the margin if none is set (0: it has none),
 * whether it compares rows with each other, texts of a row at least, the similarity if none is set, all that
 * it takes (AUTO: it compares no two texts). */
#define CONTRAST_LOSSES(ROW)                                                                                 \
	ROW(MNRL, "mnrl", "multiple_negatives_ranking cached_mnrl infonce info_nce", SCORE_NONE, 1, 0, 1, 2, \
	        SIMILARITY_COSINE, SIMILARITY_PRODUCTS)                                                      \
	ROW(SYMMETRIC_MNRL, "symmetric_mnrl", "multiple_negatives_symmetric_ranking", SCORE_NONE, 1, 0, 1,   \
	        2, SIMILARITY_COSINE, SIMILARITY_PRODUCTS)                                                   \
	ROW(COSENT, "cosent", NULL, SCORE_ONE, 1, 0, 1, 2, SIMILARITY_COSINE, SIMILARITY_PRODUCTS)           \
	ROW(ANGLE, "angle", "angle_loss", SCORE_ONE_OR_TEXTS, 1, 0, 1, 2, SIMILARITY_COSINE,                 \
	        SIMILARITY_COSINE)                                                                           \
	ROW(COSINE, "cosine", "cosine_similarity", SCORE_ONE, 0, 0, 0, 2, SIMILARITY_COSINE,                 \
	        SIMILARITY_COSINE)                                                                           \
	ROW(CONTRASTIVE, "contrastive", NULL, SCORE_SIDE, 0, 0.5, 0, 2, SIMILARITY_COSINE,                   \
	        SIMILARITY_DISTANCES)                                                                        \
	ROW(ONLINE_CONTRASTIVE, "online_contrastive", NULL, SCORE_SIDE, 0, 0.5, 1, 2, SIMILARITY_COSINE,     \
	        SIMILARITY_DISTANCES)                                                                        \
	ROW(TRIPLET, "triplet", NULL, SCORE_NONE, 0, 5, 0, 3, SIMILARITY_EUCLIDEAN, SIMILARITY_DISTANCES)    \
	ROW(MARGIN_MSE, "margin_mse", NULL, SCORE_EACH_NEGATIVE, 0, 0, 0, 3, SIMILARITY_DOT,                 \
	        SIMILARITY_PRODUCTS)                                                                         \
	ROW(MSE, "mse", NULL, SCORE_VECTORS, 0, 0, 0, 1, SIMILARITY_AUTO, SIMILARITY_AUTO)

enum contrast_kind {
	CONTRAST_OFF,
#define CONTRAST_ENUM(id, ...) CONTRAST_##id,
	CONTRAST_LOSSES(CONTRAST_ENUM)
#undef CONTRAST_ENUM
};

/* What the list says of a loss. */
struct contrast_facts {
	enum contrast_score score;
	int has_scale;
	double margin;
	int compares_rows, texts;
	enum contrast_similarity usual, all;
};

static inline struct contrast_facts contrast_facts(enum contrast_kind kind)
{
#define CONTRAST_FACTS(id, name, others, score, scale, margin, rows, texts, usual, all)                      \
	[CONTRAST_##id] = {score, scale, margin, rows, texts, usual, all},
	static const struct contrast_facts facts[] = {
	        {SCORE_NONE, 0, 0, 0, 2, SIMILARITY_AUTO, SIMILARITY_AUTO}, CONTRAST_LOSSES(CONTRAST_FACTS)};
#undef CONTRAST_FACTS
	return facts[kind];
}

enum { CONTRAST_DIMS_MAX = 16 };

#endif
