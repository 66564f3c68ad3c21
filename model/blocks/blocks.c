/* Calls forward and backward of a stage through its type. */
#include "model/blocks/block.h"

#include <assert.h>

static int stage_run(const struct model *model, int stage, struct stream *stream,
        const struct stage_memory *memory, const struct device_batch *batch, int is_backward)
{
	const struct stage_type *type = stage_types[model->stages[stage].kind];
	struct stage_call call = call_shape(model, stage, memory->dtype, batch->tokens);

	call.stream = stream;
	call.memory = memory;
	call.batch = batch;
	call.writes_gradients = memory->first_gradient;
	call_place(&call);
	assert(is_backward ? type->backward != NULL : type->forward != NULL);
	(is_backward ? type->backward : type->forward)(&call);
	return call.err;
}

int model_forward(const struct model *model, int stage, struct stream *stream,
        const struct stage_memory *memory, const struct device_batch *batch)
{
	return stage_run(model, stage, stream, memory, batch, 0);
}

int model_backward(const struct model *model, int stage, struct stream *stream,
        const struct stage_memory *memory, const struct device_batch *batch)
{
	return stage_run(model, stage, stream, memory, batch, 1);
}
