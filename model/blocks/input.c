/* Forward and backward of a layer's input: the stream + norm(act(gate) * input, projected). */
#include "model/blocks/block.h"

static struct linear gate_of(const struct stage_call *call)
{
	return (struct linear){ROLE_INPUT_GATE_W, ROLE_COUNT, call->c->input_columns, call->c->C,
	        call->c->weight_in_out, 0, 0};
}

static struct linear output_of(const struct stage_call *call)
{
	return (struct linear){
	        ROLE_INPUT_W, ROLE_COUNT, call->c->C, call->c->input_columns, call->c->weight_in_out, 0, 0};
}

struct input_layout {
	int64_t gate;      /* [tokens, columns] before the activation */
	int64_t branch;    /* [tokens, C] before the norm */
	int64_t post_rstd; /* F32 [tokens] */
	int64_t bytes;
};

static struct input_layout layout_of(const struct stage_call *call)
{
	int64_t end = 0;
	struct input_layout l;

	l.gate = layout_take(&end, call->tokens * call->c->input_columns, call->element_bytes);
	l.branch = layout_take(&end, call->tokens * call->c->C, call->element_bytes);
	l.post_rstd = layout_take(&end, call->tokens, 4);
	l.bytes = end;
	return l;
}

static int64_t input_acts_bytes(const struct stage_call *call)
{
	return layout_of(call).bytes;
}

/* act(gate) * input, then its gradient; the gradients of gate and input; the gate's part of dx. */
struct input_scratch {
	int64_t hidden, dgate, dinput, dx, bytes;
};

static struct input_scratch scratch_of(const struct stage_call *call)
{
	int64_t count = call->tokens * call->c->input_columns, e = call->element_bytes, end = 0;
	struct input_scratch s;

	s.hidden = layout_take(&end, count, e);
	s.dgate = layout_take(&end, count, e);
	s.dinput = layout_take(&end, count, e);
	s.dx = layout_take(&end, call->tokens * call->c->C, e);
	s.bytes = end;
	return s;
}

static int64_t input_scratch_bytes(const struct stage_call *call)
{
	return scratch_of(call).bytes;
}

static struct rows input_rows(const struct stage_call *call, dev_addr base)
{
	return rows_at(call, base, call->c->input_columns);
}

static struct norm_place post_norm_of(const struct stage_call *call)
{
	return (struct norm_place){ROLE_POST_INPUT_NORM_W, ROLE_COUNT,
	        acts_at(call, layout_of(call).post_rstd), DEV_NONE,
	        scratch_at(call, call->scratch.norm_zeros)};
}

static void mix(struct stage_call *call, dev_addr hidden)
{
	call_op(call, &(struct op){.kind = OP_GLU,
	                      .glu = {.out = hidden,
	                              .gate = acts_at(call, layout_of(call).gate),
	                              .up = value_of(call, 0)->at,
	                              .count = call->tokens * call->c->input_columns,
	                              .act = call->c->act,
	                              .dtype = call->dtype}});
}

static void input_forward(struct stage_call *call)
{
	struct norm_place post = post_norm_of(call);
	struct linear gate = gate_of(call), output = output_of(call);
	dev_addr hidden = own_scratch_at(call, scratch_of(call).hidden),
	         branch = branch_at(call, &post, acts_at(call, layout_of(call).branch));

	linear_forward(call, &gate, input_rows(call, acts_at(call, layout_of(call).gate)), call->dtype,
	        rows_at(call, stream_in(call), call->c->C));
	mix(call, hidden);
	linear_forward(
	        call, &output, rows_at(call, branch, call->c->C), call->dtype, input_rows(call, hidden));
	branch_end(call, &post, branch);
}

/* Of gate and input, from that of their product. */
static void mix_backward(struct stage_call *call, const struct input_scratch *s)
{
	const struct stage_value *value = value_of(call, 0);
	int64_t columns = call->c->input_columns;
	dev_addr dinput = own_scratch_at(call, s->dinput);

	call_op(call, &(struct op){.kind = OP_GLU_GRAD,
	                      .glu_grad = {.dgate = own_scratch_at(call, s->dgate),
	                              .dup = dinput,
	                              .dout = own_scratch_at(call, s->hidden),
	                              .gate = acts_at(call, layout_of(call).gate),
	                              .up = value->at,
	                              .count = call->tokens * columns,
	                              .act = call->c->act,
	                              .dtype = call->dtype}});
	if (!dev_is_none(value->grad))
		call_columns(call, value->grad, columns, DTYPE_F32, dinput, columns, call->dtype, columns,
		        !value->writes_grad);
}

static void input_backward(struct stage_call *call)
{
	struct input_scratch s = scratch_of(call);
	struct norm_place post = post_norm_of(call);
	struct linear gate = gate_of(call), output = output_of(call);
	dev_addr hidden = own_scratch_at(call, s.hidden), dx = call->memory->dx;
	struct rows dy = rows_at(
	        call, branch_gradient(call, &post, acts_at(call, layout_of(call).branch)), call->c->C);
	struct rows dgate = input_rows(call, own_scratch_at(call, s.dgate)),
	            part = rows_at(call, own_scratch_at(call, s.dx), call->c->C);

	mix(call, hidden);
	linear_backward_weight(call, &output, dy, input_rows(call, hidden));
	linear_backward_input(call, &output, input_rows(call, hidden), call->dtype, LINEAR_WRITE, dy);
	mix_backward(call, &s);
	linear_backward_weight(call, &gate, dgate, rows_at(call, stream_in(call), call->c->C));
	linear_backward_input(call, &gate, part, call->dtype, LINEAR_WRITE, dgate);
	call_add(call, dx, dx, part.base, call->tokens * call->c->C);
}

const struct stage_type stage_input = {.forward = input_forward,
        .backward = input_backward,
        .writes_stream = 1,
        .acts_bytes = input_acts_bytes,
        .scratch_bytes = input_scratch_bytes};
