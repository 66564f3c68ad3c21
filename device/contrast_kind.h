/* Losses of embeddings (objective/contrast.h says what they are). */
#ifndef FERRY_DEVICE_CONTRAST_KIND_H
#define FERRY_DEVICE_CONTRAST_KIND_H

/* Values of the key objective. */
enum { OBJECTIVE_AUTO, OBJECTIVE_CLASSIFICATION, OBJECTIVE_REGRESSION };

/* Identifier, name, other names, whether rows have a score, the margin if none is set (0: it has none), and
 * whether it compares rows with each other. */
#define CONTRAST_LOSSES(ROW)                                                                                 \
	ROW(MNRL, "mnrl", "multiple_negatives_ranking cached_mnrl infonce info_nce", 0, 0, 1)                \
	ROW(SYMMETRIC_MNRL, "symmetric_mnrl", "multiple_negatives_symmetric_ranking", 0, 0, 1)               \
	ROW(COSENT, "cosent", NULL, 1, 0, 1)                                                                 \
	ROW(COSINE, "cosine", "cosine_similarity", 1, 0, 0)                                                  \
	ROW(CONTRASTIVE, "contrastive", NULL, 1, 0.5, 0)                                                     \
	ROW(TRIPLET, "triplet", NULL, 0, 5, 0)

enum contrast_kind {
	CONTRAST_OFF,
#define CONTRAST_ENUM(id, ...) CONTRAST_##id,
	CONTRAST_LOSSES(CONTRAST_ENUM)
#undef CONTRAST_ENUM
};

static inline int contrast_has_score(enum contrast_kind kind)
{
#define CONTRAST_SCORE(id, name, others, score, ...) [CONTRAST_##id] = score,
	static const int has[] = {0, CONTRAST_LOSSES(CONTRAST_SCORE)};
#undef CONTRAST_SCORE
	return has[kind];
}

static inline int contrast_compares_rows(enum contrast_kind kind)
{
#define CONTRAST_ROWS(id, name, others, score, margin, rows) [CONTRAST_##id] = rows,
	static const int compares[] = {0, CONTRAST_LOSSES(CONTRAST_ROWS)};
#undef CONTRAST_ROWS
	return compares[kind];
}

#endif
