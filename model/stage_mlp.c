#include "model/stage.h"

/* Gate and up read norm2's output; down reads act(gate) * up, which is computed anew in backward. */
static struct linear gate_of(const struct stage_run *run)
{
	return (struct linear){ROLE_GATE_W, ROLE_GATE_B, run->c->F, run->c->C, run->c->weight_in_out};
}

static struct linear up_of(const struct stage_run *run)
{
	return (struct linear){ROLE_UP_W, ROLE_UP_B, run->c->F, run->c->C, run->c->weight_in_out};
}

static struct linear down_of(const struct stage_run *run)
{
	return (struct linear){ROLE_DOWN_W, ROLE_DOWN_B, run->c->C, run->c->F, run->c->weight_in_out};
}

static struct rows rows_at(const struct stage_run *run, dev_addr base, int64_t stride)
{
	return (struct rows){base, run->tokens, stride};
}

static struct norm_place norm2_of(const struct stage_run *run)
{
	return (struct norm_place){
	        ROLE_NORM2_W, ROLE_NORM2_B, acts_at(run, run->acts.rstd2), acts_at(run, run->acts.mean2)};
}

/* What norm2 normalises. */
static dev_addr norm2_input(const struct stage_run *run)
{
	return run->c->parallel_residual ? run->memory->x : acts_at(run, run->acts.middle);
}

static void first_forward(struct stage_run *run)
{
	struct norm_place norm = norm2_of(run);

	norm_forward(run, &norm, acts_at(run, run->acts.norm2), norm2_input(run), run->tokens);
}

/* The gradient of norm2's output is complete: on to the residual stream. With a parallel residual dx is also
 * what attention's projection gets, so norm2's part waits in scratch. */
static void first_backward(struct stage_run *run, dev_addr dnorm)
{
	struct norm_place norm = norm2_of(run);
	int apart = run->c->parallel_residual;

	norm_backward(run, &norm, apart ? scratch_at(run, run->scratch.residual) : run->memory->dx, dnorm,
	        norm2_input(run), run->tokens, apart ? LINEAR_WRITE : LINEAR_ADD,
	        scratch_at(run, run->scratch.norm_partial));
}

void gate_forward(struct stage_run *run)
{
	struct linear gate = gate_of(run);

	first_forward(run);
	linear_forward(run, &gate, rows_at(run, acts_at(run, run->acts.gate), run->c->F), run->dtype,
	        rows_at(run, acts_at(run, run->acts.norm2), run->c->C));
}

void up_forward(struct stage_run *run)
{
	struct linear up = up_of(run);

	if (!run->c->gated)
		first_forward(run);
	linear_forward(run, &up, rows_at(run, acts_at(run, run->acts.up), run->c->F), run->dtype,
	        rows_at(run, acts_at(run, run->acts.norm2), run->c->C));
}

static void activate(struct stage_run *run, dev_addr hidden)
{
	dev_addr gate = acts_at(run, run->acts.gate), up = acts_at(run, run->acts.up);
	int64_t count = run->tokens * run->c->F;

	if (run->c->gated)
		run_op(run, &(struct op){.kind = OP_GLU,
		                    .glu = {.out = hidden,
		                            .gate = gate,
		                            .up = up,
		                            .count = count,
		                            .act = run->c->act,
		                            .dtype = run->dtype}});
	else
		run_op(run, &(struct op){.kind = OP_ACT,
		                    .act = {.out = hidden,
		                            .x = up,
		                            .count = count,
		                            .act = run->c->act,
		                            .dtype = run->dtype}});
}

/* The gradients of gate and up replace them. */
static void activate_backward(struct stage_run *run, dev_addr dhidden)
{
	dev_addr gate = acts_at(run, run->acts.gate), up = acts_at(run, run->acts.up);
	int64_t count = run->tokens * run->c->F;

	if (run->c->gated)
		run_op(run, &(struct op){.kind = OP_GLU_GRAD,
		                    .glu_grad = {.dgate = gate,
		                            .dup = up,
		                            .dout = dhidden,
		                            .gate = gate,
		                            .up = up,
		                            .count = count,
		                            .act = run->c->act,
		                            .dtype = run->dtype}});
	else
		run_op(run, &(struct op){.kind = OP_ACT_GRAD,
		                    .act_grad = {.dx = up,
		                            .dout = dhidden,
		                            .x = up,
		                            .count = count,
		                            .act = run->c->act,
		                            .dtype = run->dtype}});
}

/* y = middle + down(act(gate) * up) */
void down_forward(struct stage_run *run)
{
	struct linear down = down_of(run);
	dev_addr hidden = scratch_at(run, run->scratch.hidden), y = run->memory->y;

	if (dev_is_none(y))
		return;
	activate(run, hidden);
	linear_forward(run, &down, rows_at(run, y, run->c->C), run->dtype, rows_at(run, hidden, run->c->F));
	run_add(run, y, y, acts_at(run, run->acts.middle), run->tokens * run->c->C);
}

void down_backward(struct stage_run *run)
{
	struct linear down = down_of(run);
	dev_addr hidden = scratch_at(run, run->scratch.hidden);
	struct rows dy = rows_at(run, run->memory->dx, run->c->C);

	activate(run, hidden);
	linear_backward_weight(run, &down, dy, rows_at(run, hidden, run->c->F));
	linear_backward_input(run, &down, rows_at(run, hidden, run->c->F), run->dtype, LINEAR_WRITE, dy);
	activate_backward(run, hidden);
}

/* With a gate its part is added in fp32 before the sum is rounded. */
void up_backward(struct stage_run *run)
{
	const struct model_config *c = run->c;
	struct linear up = up_of(run);
	struct rows dy = rows_at(run, acts_at(run, run->acts.up), c->F);
	int wide = c->gated || run->dtype == DTYPE_F32;
	dev_addr dnorm = scratch_at(run, wide ? run->scratch.dnorm : run->scratch.dnorm_cast);

	linear_backward_weight(run, &up, dy, rows_at(run, acts_at(run, run->acts.norm2), c->C));
	linear_backward_input(
	        run, &up, rows_at(run, dnorm, c->C), wide ? DTYPE_F32 : run->dtype, LINEAR_WRITE, dy);
	if (!c->gated)
		first_backward(run, dnorm);
}

void gate_backward(struct stage_run *run)
{
	const struct model_config *c = run->c;
	struct linear gate = gate_of(run);
	struct rows dy = rows_at(run, acts_at(run, run->acts.gate), c->F);
	dev_addr dnorm = scratch_at(run, run->scratch.dnorm);
	dev_addr rounded = scratch_at(run, run->scratch.dnorm_cast);

	linear_backward_weight(run, &gate, dy, rows_at(run, acts_at(run, run->acts.norm2), c->C));
	linear_backward_input(run, &gate, rows_at(run, dnorm, c->C), DTYPE_F32, LINEAR_ADD, dy);
	if (run->dtype != DTYPE_F32)
		run_cast(run, rounded, dnorm, run->tokens * c->C);
	first_backward(run, run->dtype == DTYPE_F32 ? dnorm : rounded);
}
