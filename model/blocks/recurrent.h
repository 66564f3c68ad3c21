/* What layers with a recurrent state share: a short convolution over the columns that enter the recurrence,
 * the recurrence, a norm with a gate, and the state of generation (device/op_recurrent.h). A layer makes the
 * projections and says where they lie.
 *
 *     forward   convolve, recur; then hidden, the gated norm's output, which the layer projects
 *     backward  hidden again; from hidden's gradient, in its place, those of the projections and the tensors
 *
 * Private to their files. */
#ifndef FERRY_MODEL_BLOCKS_RECURRENT_H
#define FERRY_MODEL_BLOCKS_RECURRENT_H

#include "model/blocks/block.h"

/* The tensors; ROLE_COUNT: the layer has no such one. */
struct recurrent_facts {
	enum delta_rule rule;
	enum tensor_role conv_weight, conv_bias, decay, dt_bias, skip, norm;
};

/* The part of a stage's scratch. Forward also needs hidden. The recurrence, the convolution and the norm use
 * `work` one after the other. */
struct recurrent_scratch {
	int64_t hidden; /* [tokens, heads value_dim] the gated norm's output, then its gradient, then that of
	                   the recurrence's output */
	int64_t hidden_rstd; /* F32 [tokens, groups of the norm] */
	int64_t dconv;       /* [tokens, W] */
	int64_t work;        /* F32 */
	int64_t sink;        /* F32, gradients of frozen tensors that ops compute all the same */
};
struct recurrent_scratch recurrent_scratch_of(
        const struct stage_call *call, const struct recurrent_facts *facts, int64_t *end);

/* One layer's places. W columns enter the recurrence: q, k and v or, of a scan, x, B and C. Strides in
 * elements, of activations and their gradients alike; gradients may lie in their place. */
struct recurrent {
	const struct recurrent_facts *facts;
	struct recurrent_scratch scratch;
	dev_addr mixed, dmixed; /* [tokens, W] as projected */
	int64_t mixed_stride;
	dev_addr conv;         /* [tokens, W] behind the convolution; may be dmixed */
	dev_addr a, b, da, db; /* [tokens, heads] gates of the recurrence */
	int64_t step_stride;
	dev_addr out;         /* [tokens, heads value_dim] the recurrence's output */
	dev_addr gate, dgate; /* of the norm */
	int64_t gate_stride;
};
void recurrent_forward(struct stage_call *call, const struct recurrent *r);
struct rows recurrent_hidden(struct stage_call *call, const struct recurrent *r);
void recurrent_backward(struct stage_call *call, const struct recurrent *r);

/* For struct stage_type. */
int64_t recurrent_state_bytes(const struct stage_call *call, const struct cache_shape *shape);
int recurrent_goes_back(
        const struct stage_call *call, const struct cache_shape *shape, int64_t reached, int64_t at);

#endif
