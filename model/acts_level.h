/* How much of a group's activations is kept from forward to backward. The rest is computed again. */
#ifndef FERRY_MODEL_ACTS_LEVEL_H
#define FERRY_MODEL_ACTS_LEVEL_H

/* The levels, X(id, word, what users call it): each after ALL has those before it. A kind of stage says which
 * of its activations a level keeps (struct stage_type: kept_bytes). Of a kind that says nothing only ALL
 * keeps any.
 *
 *   ALL        everything: nothing is computed again
 *   MIXED      attention's output, and what its backward needs to know of the scores
 *   PROJECTED  queries, keys and values too
 *   PRODUCTS   the outputs of all products: norms and the like are computed again */
#define ACTS_LEVEL_LIST(X)                                                                                   \
	X(ALL, "all", "activations")                                                                         \
	X(MIXED, "attention", "outputs of attention")                                                        \
	X(PROJECTED, "qkv", "inputs and outputs of attention")                                               \
	X(PRODUCTS, "products", "outputs of matrix products and of attention")

#define ACTS_LEVEL_ENUM(id, ...) ACTS_##id,
enum acts_level { ACTS_LEVEL_LIST(ACTS_LEVEL_ENUM) ACTS_LEVELS };
#undef ACTS_LEVEL_ENUM

static inline const char *acts_level_name(enum acts_level level)
{
#define ACTS_LEVEL_NAME(id, name, what) [ACTS_##id] = (name),
	static const char *const names[ACTS_LEVELS] = {ACTS_LEVEL_LIST(ACTS_LEVEL_NAME)};
#undef ACTS_LEVEL_NAME

	return names[level];
}

static inline const char *acts_level_title(enum acts_level level)
{
#define ACTS_LEVEL_TITLE(id, name, what) [ACTS_##id] = (what),
	static const char *const titles[ACTS_LEVELS] = {ACTS_LEVEL_LIST(ACTS_LEVEL_TITLE)};
#undef ACTS_LEVEL_TITLE

	return titles[level];
}

#endif
