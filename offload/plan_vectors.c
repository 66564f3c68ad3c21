/* Lists the head's work for an objective over vectors: all of a pass's vectors, then their gradients. */
#include "offload/plan_parts.h"

#include "base/num.h"

int plan_vector_ranks(const struct plan *p)
{
	return p->kind == PLAN_TRAIN ? p->map->shard_ranks * (p->policy.replicas ? p->policy.replicas : 1)
	                             : 1;
}

int64_t plan_vector_stride(const struct plan *p)
{
	return objective_type(&p->policy.objective)->vectors->width(p->map->model) + VECTOR_FACTS;
}

/* Of all ranks; `micros` of a pass. */
int64_t plan_vectors_bytes(const struct plan *p, int micros)
{
	return 4 * plan_vector_ranks(p) * micros * p->policy.max_documents * plan_vector_stride(p);
}

static void vectors_find(struct builder *b, int v, int m, int scratch, int vectors)
{
	int g = visit_group(b, v), s = group_first(b, g);

	row_norms_emit(b, v, s);
	plan_add_op(b->p, PLAN_OP_VECTORS, QUEUE_COMPUTE, -1, s, m);
	weights_arg(b, v, s);
	row_norms_arg(b, s);
	plan_add_arg(b->p, ARG_BATCH, b->state.batch[m], ACCESS_READ);
	plan_add_arg(b->p, ARG_X, visit_input(b, g, m), ACCESS_READ);
	plan_add_arg(b->p, ARG_SCRATCH, scratch, ACCESS_BOTH);
	plan_add_arg(b->p, ARG_VECTORS, vectors, ACCESS_WRITE);
}

static void head_backward(struct builder *b, int v, int m, int scratch, int vectors)
{
	int g = visit_group(b, v), s = group_first(b, g);

	gradients_open(b, s);
	b->dx[m] = g > b->train_group ? visit_dx(b, m) : -1;
	plan_add_op(b->p, PLAN_OP_HEAD, QUEUE_COMPUTE, -1, s, m);
	weights_arg(b, v, s);
	row_norms_arg(b, s);
	plan_add_arg(b->p, ARG_BATCH, b->state.batch[m], ACCESS_READ);
	plan_add_arg(b->p, ARG_X, visit_input(b, g, m), ACCESS_READ);
	plan_add_arg(b->p, ARG_SCRATCH, scratch, ACCESS_BOTH);
	plan_add_arg(b->p, ARG_VECTORS, vectors, ACCESS_READ);
	plan_add_arg(b->p, ARG_DX, b->dx[m], ACCESS_WRITE);
	gradients_arg(b, s);
}

void visit_vectors(struct builder *b, int v, int m0, int m1, int scratch)
{
	struct plan *p = b->p;
	int64_t bytes = plan_vectors_bytes(p, m1 - m0);
	int vectors = device_buffer(b, BUFFER_VECTORS, LAYOUT_WORK, bytes, -1);

	for (int m = m0; m < m1; m++)
		vectors_find(b, v, m, scratch, vectors);
	if (plan_vector_ranks(p) > 1) {
		plan_add_op(p, PLAN_OP_COLLECT, QUEUE_COMM, -1, -1, -1);
		plan_add_arg(p, ARG_DST, vectors, ACCESS_BOTH);
	}
	plan_add_op(p, PLAN_OP_SHOW, QUEUE_D2H, -1, -1, -1);
	plan_add_arg(p, ARG_SRC, vectors, ACCESS_READ);
	plan_add_arg(p, ARG_DST, b->state.vectors_host, ACCESS_WRITE);
	p->d2h_bytes += bytes;
	plan_add_op(p, PLAN_OP_JUDGE, QUEUE_CPU, -1, -1, -1);
	plan_add_arg(
	        p, ARG_VECTORS, b->state.vectors_host, p->kind == PLAN_TRAIN ? ACCESS_BOTH : ACCESS_READ);
	for (int m = m0; m < m1; m++)
		plan_add_arg(p, ARG_LOSS, b->state.loss_host[m], ACCESS_WRITE);
	if (p->kind != PLAN_TRAIN)
		return;
	plan_add_op(p, PLAN_OP_GUIDE, QUEUE_H2D, -1, -1, -1);
	plan_add_arg(p, ARG_SRC, b->state.vectors_host, ACCESS_READ);
	plan_add_arg(p, ARG_DST, vectors, ACCESS_WRITE);
	p->h2d_bytes += bytes;
	for (int m = m0; m < m1; m++)
		head_backward(b, v, m, scratch, vectors);
}
