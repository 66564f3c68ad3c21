/* Calls forward and backward of each stage through one table. */
#include "model/blocks/block.h"

#include <assert.h>

static struct stage_call call_of(const struct model *model, int stage, struct stream *stream,
        const struct stage_memory *memory, const struct device_batch *batch)
{
	enum dtype dtype = memory->dtype;

	return (struct stage_call){.model = model,
	        .c = &model->config,
	        .stream = stream,
	        .memory = memory,
	        .batch = batch,
	        .layer = model->stages[stage].layer,
	        .dtype = dtype,
	        .tokens = batch->tokens,
	        .element_bytes = dtype_bytes(dtype),
	        .writes_gradients = memory->first_gradient,
	        .acts = acts_layout_of(model, dtype, batch->tokens),
	        .scratch = scratch_layout_of(model, dtype, batch->tokens)};
}

int model_forward(const struct model *model, int stage, struct stream *stream,
        const struct stage_memory *memory, const struct device_batch *batch)
{
	static void (*const forward[])(struct stage_call *) = {
#define STAGE_CALL(NAME, name, scope) [STAGE_##NAME] = name##_forward,
	        STAGE_PASS_LIST(STAGE_CALL)
#undef STAGE_CALL
	};
	struct stage_call call = call_of(model, stage, stream, memory, batch);

	assert(model->stages[stage].kind != STAGE_HEAD);
	forward[model->stages[stage].kind](&call);
	return call.err;
}

int model_backward(const struct model *model, int stage, struct stream *stream,
        const struct stage_memory *memory, const struct device_batch *batch)
{
	static void (*const backward[])(struct stage_call *) = {
#define STAGE_CALL(NAME, name, scope) [STAGE_##NAME] = name##_backward,
	        STAGE_PASS_LIST(STAGE_CALL)
#undef STAGE_CALL
	};
	struct stage_call call = call_of(model, stage, stream, memory, batch);

	assert(model->stages[stage].kind != STAGE_HEAD);
	backward[model->stages[stage].kind](&call);
	return call.err;
}
