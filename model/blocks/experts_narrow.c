/* The matrices before and behind experts whose rows are narrower than the stream (Nemotron 3 Super). */
#include "model/blocks/experts.h"

static struct linear in_of(const struct stage_call *call)
{
	return (struct linear){.weight = ROLE_EXPERTS_IN_W,
	        .bias = ROLE_EXPERTS_IN_B,
	        .out = experts_cols(call),
	        .in = call->c->C};
}

static struct linear out_of(const struct stage_call *call)
{
	return (struct linear){.weight = ROLE_EXPERTS_OUT_W,
	        .bias = ROLE_EXPERTS_OUT_B,
	        .out = call->c->C,
	        .in = experts_cols(call)};
}

static struct rows sum_rows(const struct stage_call *call)
{
	return rows_at(call, acts_at(call, layout(call)->narrow_sum), experts_cols(call));
}

void experts_narrow_forward(struct stage_call *call, struct rows x)
{
	struct linear in = in_of(call);

	linear_forward(call, &in, rows_at(call, acts_at(call, layout(call)->narrow_in), experts_cols(call)),
	        call->dtype, x);
}

void experts_widen_forward(struct stage_call *call, dev_addr y, dev_addr room)
{
	struct linear out = out_of(call);
	int adds = experts_has_shared(call);

	linear_forward(call, &out, rows_at(call, adds ? room : y, call->c->C), call->dtype, sum_rows(call));
	if (adds)
		call_add(call, y, room, y, call->tokens * call->c->C);
}

dev_addr experts_widen_backward(struct stage_call *call, dev_addr dy)
{
	struct linear out = out_of(call);
	dev_addr dsum = own_scratch_at(call, experts_scratch_of(call).narrow_dsum);
	struct rows rows = rows_at(call, dy, call->c->C);

	linear_backward_input(
	        call, &out, rows_at(call, dsum, experts_cols(call)), call->dtype, LINEAR_WRITE, rows);
	linear_backward_weight(call, &out, rows, sum_rows(call));
	return dsum;
}

void experts_narrow_backward(struct stage_call *call, dev_addr dnorm, struct rows x)
{
	struct linear in = in_of(call);
	struct experts_scratch s = experts_scratch_of(call);
	dev_addr din = own_scratch_at(call, s.narrow_din);
	struct rows rows;

	if (call->dtype != DTYPE_F32) {
		call_cast(call, own_scratch_at(call, s.narrow_dsum), din, call->tokens * experts_cols(call));
		din = own_scratch_at(call, s.narrow_dsum);
	}
	rows = rows_at(call, din, experts_cols(call));
	linear_backward_weight(call, &in, rows, x);
	linear_backward_input(call, &in, rows_at(call, dnorm, call->c->C), DTYPE_F32, LINEAR_WRITE, rows);
}
