/* Proves that a plan is safe, from its queues and waits alone, by comparing all uses of the same bytes. */
#include "base/err.h"
#include "base/mem.h"
#include "offload/plan.h"

#include <stdlib.h>
#include <string.h>

/* One use of a buffer by an operation. */
struct use {
	int op, buffer;
	int reads, writes;
	int64_t begin, end;
};

struct check {
	const struct plan *p;
	int (*clocks)[QUEUE_COUNT]; /* [op]: the last operation of each queue that is done when op is */
	struct use *uses;
};

static int check_clocks(struct check *c)
{
	const struct plan *p = c->p;
	int last[QUEUE_COUNT];

	memset(last, -1, sizeof(last));
	for (int i = 0; i < p->op_count; i++) {
		const struct plan_op *op = &p->ops[i];
		int *clock = c->clocks[i];

		if (last[op->queue] >= 0)
			memcpy(clock, c->clocks[last[op->queue]], sizeof(last));
		else
			memset(clock, -1, sizeof(last));
		for (int w = 0; w < op->wait_count; w++) {
			int on = p->waits[op->first_wait + w];

			if (on < 0 || on >= i)
				return err_set(ERR_INTERNAL,
				        "plan: operation %d (%s) waits for %d, which is not before it", i,
				        plan_op_name(op->kind), on);
			for (int q = 0; q < QUEUE_COUNT; q++)
				if (c->clocks[on][q] > clock[q])
					clock[q] = c->clocks[on][q];
		}
		clock[op->queue] = i;
		last[op->queue] = i;
	}
	return 0;
}

static int use_compare(const void *a, const void *b)
{
	const struct use *x = a, *y = b;

	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	return x->op < y->op ? -1 : x->op > y->op;
}

static int pair_check(const struct check *c, const struct use *x, const struct use *y)
{
	const struct plan *p = c->p;
	const struct use *early = x->op < y->op ? x : y, *late = x->op < y->op ? y : x;

	if (early->op == late->op || (!early->writes && !late->writes))
		return 0;
	if (c->clocks[late->op][p->ops[early->op].queue] >= early->op)
		return 0;
	return err_set(ERR_INTERNAL,
	        "plan: operation %d (%s on %s) and operation %d (%s on %s) touch the same bytes (%s, %s) and "
	        "nothing orders them",
	        early->op, plan_op_name(p->ops[early->op].kind), queue_name(p->ops[early->op].queue),
	        late->op, plan_op_name(p->ops[late->op].kind), queue_name(p->ops[late->op].queue),
	        plan_buffer_name(p->buffers[early->buffer].kind),
	        plan_buffer_name(p->buffers[late->buffer].kind));
}

/* Checks all pairs of uses with common bytes. Uses are sorted by begin; each is compared with those that
 * begin before it ends. */
static int check_pairs(struct check *c, enum plan_space space)
{
	const struct plan *p = c->p;
	int count = 0;

	for (int i = 0; i < p->op_count; i++)
		for (int a = 0; a < p->ops[i].arg_count; a++) {
			const struct plan_arg *arg = &p->args[p->ops[i].first_arg + a];
			const struct plan_buffer *b = &p->buffers[arg->buffer];

			if (b->space == space)
				c->uses[count++] = (struct use){i, arg->buffer, arg->reads, arg->writes,
				        b->offset, b->offset + b->bytes};
		}
	qsort(c->uses, (size_t)count, sizeof(*c->uses), use_compare);
	for (int i = 0; i < count; i++)
		for (int j = i + 1; j < count && c->uses[j].begin < c->uses[i].end; j++) {
			int rc = pair_check(c, &c->uses[i], &c->uses[j]);

			if (rc)
				return rc;
		}
	return 0;
}

static int buffers_overlap(const struct plan_buffer *a, const struct plan_buffer *b)
{
	return a->space == b->space && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* Checks that buffers alive at the same time do not share bytes. Persistent ones are always alive. */
static int check_lifetimes(const struct plan *p)
{
	for (int i = 0; i < p->buffer_count; i++) {
		const struct plan_buffer *a = &p->buffers[i];

		if (!a->persistent && a->first_op < 0)
			continue;
		if (a->offset < 0 || a->offset + a->bytes > p->space_bytes[a->space])
			return err_set(ERR_INTERNAL, "plan: buffer %d (%s) lies outside its space", i,
			        plan_buffer_name(a->kind));
		for (int j = 0; j < i; j++) {
			const struct plan_buffer *b = &p->buffers[j];
			int at_once = a->persistent || b->persistent ||
			              (a->first_op <= b->last_op && b->first_op <= a->last_op);

			if ((b->persistent || b->first_op >= 0) && at_once && buffers_overlap(a, b))
				return err_set(ERR_INTERNAL,
				        "plan: buffers %d (%s) and %d (%s) share bytes while both live", j,
				        plan_buffer_name(b->kind), i, plan_buffer_name(a->kind));
		}
	}
	return 0;
}

/* Checks that a transient buffer is written before it is read. (One operation may write and read a work
 * area.) */
static int check_written(const struct plan *p)
{
	char *written = mem_alloc((size_t)p->buffer_count + 1, 1);
	int rc = written ? 0 : ERR_NOMEM;

	for (int i = 0; i < p->op_count && !rc; i++) {
		const struct plan_op *op = &p->ops[i];

		for (int a = 0; a < op->arg_count && !rc; a++) {
			const struct plan_arg *arg = &p->args[op->first_arg + a];
			const struct plan_buffer *b = &p->buffers[arg->buffer];

			if (i < b->first_op || i > b->last_op)
				rc = err_set(ERR_INTERNAL, "plan: operation %d (%s) uses %s outside its life",
				        i, plan_op_name(op->kind), plan_buffer_name(b->kind));
			else if (!b->persistent && arg->reads && !arg->writes && !written[arg->buffer])
				rc = err_set(ERR_INTERNAL,
				        "plan: operation %d (%s) reads %s before anything wrote it", i,
				        plan_op_name(op->kind), plan_buffer_name(b->kind));
		}
		for (int a = 0; a < op->arg_count && !rc; a++)
			if (p->args[op->first_arg + a].writes)
				written[p->args[op->first_arg + a].buffer] = 1;
	}
	mem_free(written);
	return rc;
}

int plan_check(const struct plan *p)
{
	struct check c = {.p = p};
	int rc = ERR_NOMEM;

	c.clocks = mem_alloc((size_t)p->op_count + 1, sizeof(*c.clocks));
	c.uses = mem_alloc((size_t)p->arg_count + 1, sizeof(*c.uses));
	if (!c.clocks || !c.uses)
		goto out;
	rc = check_clocks(&c);
	if (!rc)
		rc = check_lifetimes(p);
	if (!rc)
		rc = check_written(p);
	for (int space = 0; space < SPACE_COUNT && !rc; space++)
		rc = check_pairs(&c, (enum plan_space)space);
out:
	mem_free(c.clocks);
	mem_free(c.uses);
	return rc;
}
