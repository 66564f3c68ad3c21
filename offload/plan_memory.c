/* Divides a plan's memory into parts for reports. */
#include "offload/plan_parts.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/size.h"

#include <string.h>

enum plan_part plan_buffer_part(const struct plan_buffer *b)
{
#define PART(id, name, part) [BUFFER_##id] = PART_##part,
	static const enum plan_part parts[BUFFER_KIND_COUNT] = {PLAN_BUFFERS(PART)};
#undef PART

	if (!plan_kind_is_plane(b->kind))
		return parts[b->kind];
	if (plane_is_in(plan_kind_plane(b->kind), PLANES_WEIGHT | PLANES_CODED))
		return PART_WEIGHTS;
	return b->kind == BUFFER_PLANE_GRADIENT ? PART_GRADIENTS : PART_OPTIMIZER;
}

static int is_alive(const struct plan_buffer *b, int op)
{
	return b->persistent || (b->first_op >= 0 && b->first_op <= op && op <= b->last_op);
}

int plan_alive(int64_t **bytes, const struct plan *p, enum plan_space space)
{
	int64_t *change = mem_alloc((size_t)p->op_count + 1, sizeof(*change)), now = 0;
	int count = 0;

	*bytes = change;
	if (!change)
		return ERR_NOMEM;
	for (int i = 0; i < p->buffer_count; i++) {
		const struct plan_buffer *b = &p->buffers[i];
		int64_t taken = round_up(b->bytes, PLACE_ALIGN);

		if (b->space != space || (!b->persistent && b->first_op < 0))
			continue;
		change[b->persistent ? 0 : b->first_op] += taken;
		if (!b->persistent)
			change[b->last_op + 1] -= taken;
	}
	for (int op = 0; op < p->op_count; op++) {
		now += change[op];
		if (p->ops[op].stage >= 0 && p->ops[op].queue == QUEUE_COMPUTE &&
		        (!p->ops[op].micro || p->ops[op].micro == p->policy.micro_batches - 1))
			change[count++] = now; /* no operation has more than one place */
	}
	return count;
}

int plan_hosted_blocks(const struct plan *p)
{
	int count = 0;

	for (int i = 0; i < p->buffer_count; i++)
		count += p->buffers[i].kind == BUFFER_SPILLED_ACTIVATIONS;
	return count / p->policy.micro_batches;
}

/* The first operation with the most bytes alive. */
static int fullest_find(int *fullest, const struct plan *p, enum plan_space space)
{
	int64_t *change = mem_alloc((size_t)p->op_count + 1, sizeof(*change));
	int64_t now = 0, most = -1;

	if (!change)
		return ERR_NOMEM;
	for (int i = 0; i < p->buffer_count; i++) {
		const struct plan_buffer *b = &p->buffers[i];

		if (b->space != space || b->persistent || b->first_op < 0)
			continue;
		change[b->first_op] += b->bytes;
		change[b->last_op + 1] -= b->bytes;
	}
	*fullest = 0;
	for (int op = 0; op < p->op_count; op++) {
		now += change[op];
		if (now > most) {
			most = now;
			*fullest = op;
		}
	}
	mem_free(change);
	return 0;
}

int plan_parts(int64_t bytes[PART_COUNT], int *op, const struct plan *p, enum plan_space space)
{
	int rc = fullest_find(op, p, space);

	memset(bytes, 0, PART_COUNT * sizeof(*bytes));
	for (int i = 0; i < p->buffer_count && !rc; i++) {
		const struct plan_buffer *b = &p->buffers[i];

		if (b->space == space && is_alive(b, *op))
			bytes[plan_buffer_part(b)] += b->bytes;
	}
	return rc;
}
