/* Says where a step is while it runs. */
#include "base/work.h"
#include "offload/run_parts.h"

static int op_is_shown(const struct plan_op *op)
{
	return op->kind == PLAN_OP_FORWARD || op->kind == PLAN_OP_BACKWARD || op->kind == PLAN_OP_HEAD;
}

int run_show(const struct run *r, int index)
{
	const struct plan_op *op = &r->plan->ops[index];
	const struct model *model = r->plan->map->model;

	if (op_is_shown(op) && op->micro < r->step->micro_count)
		work_at(op->stage >= 0 ? model->stages[op->stage].layer + 1 : 0, (int)model->config.L,
		        op->micro + 1, r->step->micro_count, op->kind == PLAN_OP_BACKWARD);
	work_add(1);
	return r->events[index] ? event_sync(r->events[index]) : 0;
}

int run_shown_open(struct run *r)
{
	int rc = 0;

	for (int i = 0; i < r->plan->op_count && !rc; i++)
		if (op_is_shown(&r->plan->ops[i]) && !r->events[i])
			rc = event_open(&r->events[i], r->dock->device);
	return rc;
}
