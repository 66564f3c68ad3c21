/* What a layer of experts leaves for the loss of even use, that loss, and its gradient. */
#include "base/num.h"
#include "base/size.h"
#include "model/blocks/balance.h"
#include "model/blocks/experts.h"

/* ---- tallies ---- */

struct tally_shape model_tally(const struct model *model)
{
	struct tally_shape s = {.layers = model->tally_layers, .has_shares = model->config.balance > 0};

	for (int64_t l = 0; l < model->config.L && s.layers; l++)
		s.experts = max_i64(s.experts, model->config.block[l].experts.count);
	s.stride = round_up(s.experts + 1, 64);
	s.bytes = 4 * s.layers * s.stride * (1 + s.has_shares);
	return s;
}

static const int32_t *first_of(const struct tally_shape *s, const void *tally, int64_t layer)
{
	return (const int32_t *)tally + layer * s->stride;
}

double tally_loss(const struct tally_shape *s, const void *tally, int64_t tokens)
{
	const float *shares = (const float *)tally + s->layers * s->stride;
	double rows = (double)s->layers * (double)tokens, loss = 0;

	for (int64_t e = 0; e < s->experts; e++) {
		double chosen = 0, share = 0;

		for (int64_t l = 0; l < s->layers; l++) {
			chosen += first_of(s, tally, l)[e + 1] - first_of(s, tally, l)[e];
			share += shares[l * s->stride + e];
		}
		loss += chosen / rows * (share / rows);
	}
	return loss * (double)s->experts;
}

void tally_add_rows(const struct tally_shape *s, double *rows, const void *tally)
{
	for (int64_t l = 0; l < s->layers; l++)
		for (int64_t e = 0; e < s->experts; e++)
			rows[l * s->experts + e] += first_of(s, tally, l)[e + 1] - first_of(s, tally, l)[e];
}

void tally_load(const struct tally_shape *s, const double *rows, double *load, double *used)
{
	*load = *used = 0;
	for (int64_t l = 0; l < s->layers; l++) {
		const double *own = rows + l * s->experts;
		double sum = 0, most = 0;

		for (int64_t e = 0; e < s->experts; e++) {
			sum += own[e];
			most = own[e] > most ? own[e] : most;
			*used += own[e] > 0;
		}
		*load += sum > 0 ? most * (double)s->experts / sum : 0;
	}
	*load /= (double)s->layers;
	*used /= (double)(s->layers * s->experts);
}

/* ---- the stage ---- */

/* Where this layer's `first` is, or its shares. */
static dev_addr tally_at(const struct stage_call *call, const struct tally_shape *s, int is_shares)
{
	int64_t layer = call->model->stages[call->stage].tally + (is_shares ? s->layers : 0);

	return dev_at(call->memory->tally, 4 * layer * s->stride);
}

void experts_tally(struct stage_call *call)
{
	struct tally_shape s = model_tally(call->model);
	dev_addr shares = own_scratch_at(call, experts_scratch_of(call).dlogits), sums;

	if (dev_is_none(call->memory->tally) || call->memory->recompute)
		return;
	call_op(call, &(struct op){.kind = OP_COPY,
	                      .copy = {tally_at(call, &s, 0), acts_at(call, layout(call)->first),
	                              4 * (s.experts + 1)}});
	if (!s.has_shares)
		return;
	sums = tally_at(call, &s, 1);
	call_op(call, &(struct op){.kind = OP_ROUTER_SHARES,
	                      .router_shares = {
	                              shares, acts_at(call, layout(call)->logits), call->tokens, s.experts}});
	call_op(call, &(struct op){.kind = OP_FILL, .fill = {.dst = sums, .bytes = 4 * s.stride}});
	call_op(call, &(struct op){.kind = OP_COLSUM,
	                      .colsum = {sums, shares, call->tokens, s.experts, s.experts, DTYPE_F32}});
}

void experts_balance_backward(struct stage_call *call, dev_addr dlogits)
{
	struct tally_shape s = model_tally(call->model);
	double rows = (double)s.layers * (double)call->tokens, share = call->memory->balance_share;

	if (!s.has_shares || dev_is_none(call->memory->tally) || share == 0)
		return;
	call_op(call,
	        &(struct op){.kind = OP_BALANCE_GRAD,
	                .balance_grad = {.dlogits = dlogits,
	                        .logits = acts_at(call, layout(call)->logits),
	                        .counts = own_scratch_at(call, experts_scratch_of(call).counts),
	                        .first = call->memory->tally,
	                        .tokens = call->tokens,
	                        .experts = s.experts,
	                        .layers = s.layers,
	                        .stride = s.stride,
	                        .factor = call->c->balance * share * (double)s.experts / (rows * rows)}});
}
