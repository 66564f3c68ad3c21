/* What the files of experts share: activations, scratch, and products of rows with their expert's matrix.
 * Private to them. */
#ifndef FERRY_MODEL_BLOCKS_EXPERTS_H
#define FERRY_MODEL_BLOCKS_EXPERTS_H

#include "model/blocks/block.h"

/* What forward keeps. Backward overwrites gate_up and the shared expert's gate and up with their gradients.
 */
struct experts_layout {
	int64_t rstd, mean; /* F32 [tokens] */
	int64_t norm;       /* [tokens, C] */
	int64_t logits;     /* F32 [tokens, experts] */
	int64_t ids;        /* int32 [tokens, chosen] */
	int64_t weights;    /* F32 [tokens, chosen] */
	int64_t first;      /* int32 [experts + 1] */
	int64_t slot, row;  /* int32 [rows], [tokens, chosen] */
	int64_t gate_up; /* [rows, 2 F], or [rows, F] of experts without a gate; of divided experts in scratch */
	/* Of divided experts: F32 [tokens, C], the sum of their rows, in backward the gradient of their
	 * input; F32 [tokens, chosen], the gradients of weights; [tokens, C], the shared expert's output. */
	int64_t parts_sum, parts_dweights, parts_shared;
	/* With a shared expert, of width S. Its weight is that of a router with one expert. */
	int64_t shared_gate, shared_up; /* [tokens, S]; shared_gate has no room without a gate */
	int64_t shared_logits;          /* F32 [tokens] */
	int64_t shared_ids;             /* int32 [tokens] */
	int64_t shared_weights;         /* F32 [tokens] */
	/* With norms of their own: input and rstd of the experts and the router, output before a norm and its
	 * rstd of the shared expert, the experts and the sum; and weights times EXPERT_SCALE. */
	struct experts_norm {
		int64_t rows; /* [tokens, C] */
		int64_t rstd; /* F32 [tokens] */
	} input, router, shared, output, sum;
	int64_t scaled; /* F32 [tokens, chosen] */
	/* Of experts of another width W than the stream's: their input and their sum, [tokens, W]. */
	int64_t narrow_in, narrow_sum;
	int64_t bytes;
};

/* Forward uses in_rows, hidden, shared_hidden and dlogits. */
struct experts_scratch {
	int64_t in_rows;         /* [rows, W] the input of gate_up, or the output of down; its gradient */
	int64_t out_rows;        /* [rows, W] the gradient of down's output, then that of in_rows */
	int64_t hidden, dhidden; /* [rows, F] */
	int64_t shared_hidden, shared_dhidden; /* [tokens, S] */
	int64_t dweights;                      /* F32 [tokens, chosen] */
	int64_t dlogits, dlogits_cast;         /* F32 and, if not F32, dtype [tokens, experts] */
	int64_t part;                          /* [tokens, C] a part of the sum, or its gradient */
	int64_t counts;                        /* F32 [experts], with the loss of even use */
	int64_t adapter, adapter_grad;         /* [rows, rank] */
	int64_t gate_up;                       /* [rows, 2 F], of a part */
	int64_t narrow_dsum;                   /* [tokens, W] the gradient of narrow_sum, then of narrow_in */
	int64_t narrow_din;                    /* F32 [tokens, W] the gradient of narrow_in */
	int64_t bytes;
};

/* Columns of gate_up, and where up begins in a row of it. */
static inline int64_t experts_up_at(const struct stage_call *call)
{
	return call_has(call, ROLE_EXPERTS_UP_W) ? 0 : call->block->experts.F;
}

static inline int64_t experts_gate_up_cols(const struct stage_call *call)
{
	return experts_up_at(call) + call->block->experts.F;
}

/* W, the columns of their input and output. */
static inline int64_t experts_cols(const struct stage_call *call)
{
	return experts_width(&call->block->experts, call->c->C);
}

static inline int experts_are_narrow(const struct stage_call *call)
{
	return call_has(call, ROLE_EXPERTS_OUT_W);
}

static inline int64_t experts_rows(const struct stage_call *call)
{
	return call->tokens * call->block->experts.chosen;
}

static inline const struct experts_layout *layout(const struct stage_call *call)
{
	return call->layout;
}

struct experts_layout experts_layout_of(const struct stage_call *call);
struct experts_scratch experts_scratch_of(const struct stage_call *call);

/* The experts whose matrices the stage has, from `begin` on: all, or those of a part. */
struct experts_share {
	int64_t begin, count;
};
struct experts_share experts_share_of(const struct stage_call *call);
static inline int experts_are_divided(const struct stage_call *call)
{
	return call->block->experts.part > 0;
}

/* Their rows; and where those of the first of them begin. */
struct row_range experts_range(const struct stage_call *call);
dev_addr experts_first(const struct stage_call *call);

/* weight_of and grad_of for the first of them: of a tensor that all parts share, behind the experts before.
 */
dev_addr experts_weight_of(const struct stage_call *call, enum tensor_role role);
dev_addr experts_grad_of(const struct stage_call *call, enum tensor_role role);

/* The steps of forward: norms, choice, order; rows from gate and up on to down's output, in in_rows; the
 * shared expert's products, and its output. */
int experts_has_shared(const struct stage_call *call);
void experts_begin(struct stage_call *call);
void experts_rows_forward(struct stage_call *call);
void experts_shared_forward(struct stage_call *call, dev_addr branch);

/* Matrices before and behind experts of another width: narrow_in from x [tokens, C]; and y [tokens, C] from
 * narrow_sum, added to the shared expert's output if there is one, with room for y. From dy, the gradient of
 * y, that of narrow_sum, which is returned; and that of x, written to dnorm, F32 [tokens, C], from that of
 * narrow_in in scratch. */
void experts_narrow_forward(struct stage_call *call, struct rows x);
void experts_widen_forward(struct stage_call *call, dev_addr y, dev_addr room);
dev_addr experts_widen_backward(struct stage_call *call, dev_addr dy);
void experts_narrow_backward(struct stage_call *call, dev_addr dnorm, struct rows x);

/* The sum of a token's rows, and how it begins. */
enum experts_sum { EXPERTS_SUM_WRITE, EXPERTS_SUM_ADD, EXPERTS_SUM_GO_ON };
void experts_combine(struct stage_call *call, dev_addr y, enum dtype y_dtype, dev_addr x,
        enum experts_sum sum, int is_reversed);

/* The steps of backward: rows, with the gradient of the experts' input to or, with GO_ON, added to dnorm and
 * those of the weights to experts_dweights; then router, shared expert and norms. */
dev_addr experts_dweights(const struct stage_call *call);
void experts_rows_backward(struct stage_call *call, dev_addr dy, dev_addr dnorm, enum experts_sum sum);
void experts_end_backward(struct stage_call *call, dev_addr dy);

/* norm2's output; and what the router reads, that or the output of a norm of its own. */
struct rows experts_norm_rows(const struct stage_call *call);
struct rows experts_router_rows(const struct stage_call *call);

/* Matrices of the shared expert; every other linear layer of it has C columns. */
struct linear experts_shared_of(const struct stage_call *call, enum tensor_role role);

/* Where gate_up lies; and hidden [rows, F] from it, or from hidden's gradient its own, in its place. */
dev_addr experts_gate_up_at(const struct stage_call *call);
void experts_activate(struct stage_call *call, dev_addr hidden);
void experts_activate_backward(struct stage_call *call, dev_addr dhidden);

/* A router: of the experts, or of the one shared expert, whose weight is a sigmoid. */
struct router {
	int64_t logits, ids, weights; /* in activations */
	int64_t experts, chosen;
	struct linear linear;
	int is_shared;
};

struct router experts_router(const struct stage_call *call, int is_shared);
void experts_route(struct stage_call *call, const struct router *r);
void experts_order(struct stage_call *call);

/* The weights of rows: those of the router, or these times EXPERT_SCALE, which experts_scale_weights
 * makes. */
dev_addr experts_row_weights(const struct stage_call *call);
void experts_scale_weights(struct stage_call *call);

/* From the gradients of the weights of rows, in scratch, those of the router's weights; then those of the
 * router; adds that of its input to dnorm, or writes it. */
void experts_scale_weights_backward(struct stage_call *call);
void experts_route_backward(
        struct stage_call *call, const struct router *r, dev_addr dnorm, enum linear_sum sum);

/* Leaves what the step's tally has of this layer, and adds the loss of even use to the gradient of the
 * router's logits (model/blocks/balance.h). */
void experts_tally(struct stage_call *call);
void experts_balance_backward(struct stage_call *call, dev_addr dlogits);

/* Matrices [out, in] of all experts, as the model stores them. Forward makes y [rows, out] from x
 * [rows, in], with their biases if there are any. Backward makes dx from dy, or adds to the gradients that
 * are wanted. */
struct experts_linear {
	enum tensor_role weight, bias;
	int64_t out, in;
};
struct experts_linear experts_gate_up_of(const struct stage_call *call);
struct experts_linear experts_down_of(const struct stage_call *call);
void experts_linear_forward(
        struct stage_call *call, const struct experts_linear *linear, dev_addr y, dev_addr x);
void experts_linear_backward_input(
        struct stage_call *call, const struct experts_linear *linear, dev_addr dx, dev_addr dy);
void experts_linear_backward_weight(
        struct stage_call *call, const struct experts_linear *linear, dev_addr dy, dev_addr x);

/* c (+)= a times the matrix b of each row's expert. */
void experts_rows_product(struct stage_call *call, dev_addr c, dev_addr a, dev_addr b, int64_t n, int64_t k,
        enum matmul_layout b_layout, int adds);

/* The gradient of experts' matrices [m, n], unless it is not wanted, from rows of their outputs' gradient and
 * of their inputs. */
void experts_weights_product(
        struct stage_call *call, dev_addr grad, dev_addr dy, int64_t m, dev_addr x, int64_t n);

/* The adapter of a module of all experts: of gate, of up, or of down; or of gate and up together, whose B has
 * rows in the order of gate_up's columns. */
enum experts_module { EXPERTS_GATE, EXPERTS_UP, EXPERTS_DOWN, EXPERTS_GATE_UP };
int experts_has_adapters(const struct stage_call *call);

/* Adds the adapters' part to gate_up, from its input rows, with room for [rows, F]; and to down's output,
 * from the weighted hidden rows. */
void experts_adapt_gate_up(struct stage_call *call, const struct experts_scratch *s, dev_addr gate_up,
        dev_addr in, dev_addr room);
void experts_adapt_down(
        struct stage_call *call, const struct experts_scratch *s, dev_addr out, dev_addr hidden);

/* Adds the adapter's part to dhidden, before rows are weighed; then, with the weighted hidden rows, the
 * gradients of A and B. */
void experts_adapt_down_input(
        struct stage_call *call, const struct experts_scratch *s, dev_addr dhidden, dev_addr dout);
void experts_adapt_down_weights(
        struct stage_call *call, const struct experts_scratch *s, dev_addr dout, dev_addr hidden);

/* The gradients of A and B of gate and up, and their part of din, which is added. */
void experts_adapt_gate_up_backward(struct stage_call *call, const struct experts_scratch *s, dev_addr din,
        dev_addr dgate_up, dev_addr in, dev_addr room);

#endif
