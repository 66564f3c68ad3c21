/* How the states of a text's tokens become its vector: poolings, whose results stand side by side, and layers
 * behind them. A classifier's head is such layers too. Plain data, without pointers: ranks send it. */
#ifndef FERRY_MODEL_POOLING_H
#define FERRY_MODEL_POOLING_H

#include "device/act_kind.h"
#include "device/pool_mode.h"

#include <stdint.h>

enum { POOL_MODES_MAX = 6, POOL_LAYERS_MAX = 8, POOL_DENSE_MAX = 4, POOL_FOLDER_BYTES = 48 };

/* DENSE  act(x W + bias)
 * NORM   the family's norm, with weights
 * UNIT   x / max(|x|, 1e-12): length 1 */
enum pool_layer_kind { POOL_LAYER_DENSE, POOL_LAYER_NORM, POOL_LAYER_UNIT };
struct pool_layer {
	enum pool_layer_kind kind;
	int weight, bias; /* enum tensor_role */
	enum act_kind act;
	int64_t in, out;
	int has_bias;                   /* of a Dense module */
	char folder[POOL_FOLDER_BYTES]; /* that has its tensors: "2_Dense"; "": they are the model's */
};

struct pooling {
	enum pool_mode mode[POOL_MODES_MAX];
	int mode_count; /* 0: the model's head gives logits */
	struct pool_layer layer[POOL_LAYERS_MAX];
	int layer_count;
};

/* The numbers of a vector; C: of a state. */
static inline int64_t pooling_width(const struct pooling *p, int64_t C)
{
	return p->layer_count ? p->layer[p->layer_count - 1].out : p->mode_count * C;
}

/* 1: one token's state is all that it needs. */
static inline int pooling_picks(const struct pooling *p)
{
	return p->mode_count == 1 && (p->mode[0] == POOL_CLS || p->mode[0] == POOL_LASTTOKEN);
}

static inline int pooling_has(const struct pooling *p, enum pool_mode mode)
{
	for (int m = 0; m < p->mode_count; m++)
		if (p->mode[m] == mode)
			return 1;
	return 0;
}

#endif
