/* Says where a step is while it runs. */
#include "base/work.h"
#include "offload/run_parts.h"

#include <stdlib.h>
#include <string.h>

static int op_is_shown(const struct plan_op *op)
{
	return op->kind == PLAN_OP_FORWARD || op->kind == PLAN_OP_BACKWARD || op->kind == PLAN_OP_HEAD;
}

int run_show(const struct run *r, int index)
{
	static const char block[] = "block ";
	const struct plan_op *op = &r->plan->ops[index];
	const char *name = op->unit >= 0 ? r->plan->map->units[op->unit].name : "";

	if (op_is_shown(op) && op->micro < r->step->micro_count)
		work_at(!strncmp(name, block, strlen(block)) ? atoi(name + strlen(block)) + 1 : 0,
		        (int)r->plan->map->model->config.L, op->micro + 1, r->step->micro_count,
		        op->kind == PLAN_OP_BACKWARD);
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
