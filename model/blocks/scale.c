/* Forward and backward of the scalar behind a block, which multiplies the whole stream. */
#include "model/blocks/block.h"

static void multiply(struct stage_call *call, dev_addr dst, dev_addr src)
{
	call_op(call, &(struct op){.kind = OP_SCALE,
	                      .scale = {.dst = dst,
	                              .src = src,
	                              .by = weight_of(call, ROLE_LAYER_SCALAR),
	                              .count = call->tokens * call->c->C,
	                              .factor = 1,
	                              .dtype = call->dtype}});
}

static void scale_forward(struct stage_call *call)
{
	dev_addr out = stream_out(call);

	if (!dev_is_none(out))
		multiply(call, out, stream_in(call));
}

/* The scalar does not train, so that the stream is not needed. */
static void scale_backward(struct stage_call *call)
{
	multiply(call, call->memory->dx, call->memory->dx);
}

const struct stage_type stage_scale = {
        .forward = scale_forward, .backward = scale_backward, .writes_stream = 1};
