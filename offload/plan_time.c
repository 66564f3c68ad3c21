/* Finds lower bounds of a step's time, and its waits, from the spans of a simulated step. */
#include "offload/plan_time.h"

#include "base/size.h"

#include <math.h>

/* Whether later forwards of a step come after earlier losses. */
static int micro_batches_alternate(const struct plan *p)
{
	return p->policy.order == ORDER_MICRO_BATCH_MAJOR && p->policy.micro_batches > 1;
}

static void bound_raise(struct plan_time *t, int64_t ns, const char *what)
{
	if (ns <= t->bound_ns)
		return;
	t->bound_ns = ns;
	t->binds = what;
}

/* The first fetch of a plane must come before the first loss. A second one may be for backward. */
static int is_first_fetch(const struct plan *p, int op)
{
	int src = p->args[p->ops[op].first_arg].buffer;

	for (int i = 0; i < op; i++)
		if (p->ops[i].kind == PLAN_OP_FETCH && !p->ops[i].updates &&
		        p->args[p->ops[i].first_arg].buffer == src)
			return 0;
	return 1;
}

void plan_time_add(
        struct plan_time *t, const struct plan *p, int i, const struct stream_work *work, int in_forward)
{
	const struct plan_op *op = &p->ops[i];
	int64_t ns = work->alone_ns;

	t->work_ns[op->queue] += ns;
	t->bus_ns += work->bus_ns;
	if (op->kind == PLAN_OP_UPDATE && op->part != 2) { /* no forward waits for a second part */
		t->update_ns += ns;
		t->update_bus_ns += work->bus_ns;
	} else if (op->kind == PLAN_OP_FETCH && !op->updates && in_forward && is_first_fetch(p, i)) {
		t->fetch_ns += ns;
		t->fetch_bus_ns += work->bus_ns;
	} else if (op->kind == PLAN_OP_RETURN && !op->updates) {
		t->return_ns += ns;
	} else if (op->queue == QUEUE_COMPUTE && !op->updates) {
		int is_forward = op->kind == PLAN_OP_FORWARD || op->kind == PLAN_OP_ROW_NORMS;

		*(is_forward && (in_forward || !micro_batches_alternate(p)) ? &t->forward_ns
		                                                            : &t->backward_ns) += ns;
		if (op->kind == PLAN_OP_HEAD && (!t->head_ns || !micro_batches_alternate(p)))
			t->head_ns += ns;
	}
}

/* Sums the bus time of operations that cannot begin before the last loss, by the order of queues and by
 * waits. If micro-batches alternate, it takes the first loss. */
static void loss_follow(struct plan_time *t, const struct plan *p, const struct run_span *spans)
{
	int first[QUEUE_COUNT]; /* first operation of each queue that must follow; all later ones follow too
	                         */
	int loss = p->op_count;

	for (int q = 0; q < QUEUE_COUNT; q++)
		first[q] = p->op_count;
	for (int i = 0; i < p->op_count; i++)
		if (p->ops[i].kind == PLAN_OP_HEAD && spans[i].begin_ns >= 0 &&
		        (loss == p->op_count || !micro_batches_alternate(p)))
			loss = i;
	first[QUEUE_COMPUTE] = loss;
	for (int i = loss + 1; i < p->op_count; i++) {
		const struct plan_op *op = &p->ops[i];

		for (int w = 0; w < op->wait_count && first[op->queue] > i; w++)
			if (p->waits[op->first_wait + w] >= first[p->ops[p->waits[op->first_wait + w]].queue])
				first[op->queue] = i;
		if (first[op->queue] <= i && spans[i].begin_ns >= 0)
			t->after_bus_ns += spans[i].work.bus_ns;
	}
}

static void cycle_find(struct plan_time *t, const struct plan_policy *policy)
{
	int in_backward = policy->update_in_backward;
	int64_t updates_ns = in_backward ? 0 : max_i64(t->update_ns, t->update_bus_ns + t->fetch_bus_ns);
	int64_t before_ns = max_i64(max_i64(t->forward_ns, t->fetch_ns), updates_ns);
	int64_t loss_ns = max_i64(t->after_bus_ns, in_backward ? t->update_ns : 0);
	int64_t after_ns = max_i64(t->backward_ns, t->head_ns + max_i64(loss_ns, t->return_ns));

	bound_raise(t, before_ns + after_ns,
	        in_backward                  ? "forward, then AdamW inside backward"
	        : after_ns == t->backward_ns ? "backward, then AdamW (waits for the gradient norm)"
	                                     : "gradient copies, then AdamW (waits for the gradient norm)");
}

void plan_time_bound(struct plan_time *t, const struct plan_policy *policy)
{
	t->bound_ns = 0;
	t->binds = "nothing";
	for (int q = 0; q < QUEUE_COUNT; q++)
		bound_raise(t, t->work_ns[q], queue_name((enum queue_kind)q));
	bound_raise(t, t->bus_ns, "host memory bandwidth");
	cycle_find(t, policy);
}

/* Time of collectives during which compute does not run. Both lists are in the order of time. */
static void exposed_find(struct plan_time *t, const struct plan *p, const struct run_span *spans)
{
	int beside = 0;

	for (int i = 0; i < p->op_count; i++) {
		int64_t begin = spans[i].begin_ns, end = spans[i].end_ns;

		if (begin < 0 || !plan_op_is_exchange(&p->ops[i]))
			continue;
		t->sent_ns += end - begin;
		t->exposed_ns += end - begin;
		while (beside < p->op_count &&
		        (p->ops[beside].queue != QUEUE_COMPUTE || spans[beside].begin_ns < 0 ||
		                spans[beside].end_ns <= begin))
			beside++;
		for (int c = beside; c < p->op_count; c++) {
			int64_t from = max_i64(spans[c].begin_ns, begin);
			int64_t to = min_i64(spans[c].end_ns, end);

			if (p->ops[c].queue != QUEUE_COMPUTE || spans[c].begin_ns < 0)
				continue;
			if (spans[c].begin_ns >= end)
				break;
			t->exposed_ns -= max_i64(to - from, 0);
		}
	}
}

/* Charges each idle time of compute to the queue of the last operation that its next one waits for. Charges
 * the time at the end to the operation that ends last. */
static void waits_find(struct plan_time *t, const struct plan *p, const struct run_span *spans)
{
	int64_t free_ns = t->begin_ns;
	int last = -1;

	for (int i = 0; i < p->op_count; i++) {
		const struct plan_op *op = &p->ops[i];
		int for_op = -1;

		if (spans[i].begin_ns < 0)
			continue;
		if (last < 0 || spans[i].end_ns > spans[last].end_ns)
			last = i;
		if (op->queue != QUEUE_COMPUTE)
			continue;
		for (int w = 0; w < op->wait_count; w++) {
			int other = p->waits[op->first_wait + w];

			if (for_op < 0 || spans[other].end_ns > spans[for_op].end_ns)
				for_op = other;
		}
		if (for_op >= 0 && spans[i].begin_ns > free_ns)
			t->wait_ns[p->ops[for_op].queue] += spans[i].begin_ns - free_ns;
		free_ns = max_i64(free_ns, spans[i].end_ns);
	}
	if (last >= 0 && t->end_ns > free_ns)
		t->wait_ns[p->ops[last].queue] += t->end_ns - free_ns;
}

void plan_time_find(struct plan_time *t, const struct plan *p, const struct run_span *spans)
{
	int in_forward = 1;

	*t = (struct plan_time){.begin_ns = INT64_MAX};
	for (int i = 0; i < p->op_count; i++) {
		if (spans[i].begin_ns < 0)
			continue;
		in_forward &= p->ops[i].kind != PLAN_OP_HEAD;
		t->begin_ns = min_i64(t->begin_ns, spans[i].begin_ns);
		t->end_ns = max_i64(t->end_ns, spans[i].end_ns);
		plan_time_add(t, p, i, &spans[i].work, in_forward);
	}
	loss_follow(t, p, spans);
	plan_time_bound(t, &p->policy);
	exposed_find(t, p, spans);
	waits_find(t, p, spans);
}

/* A column of the picture is busy above the first share of its time, idle below the second, and partly busy
 * between. A queue without gaps reaches 1, but for rounding at the borders of columns. */
static const double drawn_busy = 0.95, drawn_idle = 0.05;

void plan_time_draw(struct str *out, const struct plan_time *t, const struct plan *p,
        const struct run_span *spans, int columns)
{
	double column_ns = (double)(t->end_ns - t->begin_ns) / columns;

	for (int q = 0; q < QUEUE_COUNT && column_ns > 0; q++) {
		str_printf(out, "  %-8s|", queue_name((enum queue_kind)q));
		for (int c = 0; c < columns; c++) {
			double from = (double)t->begin_ns + c * column_ns, to = from + column_ns, busy = 0;

			for (int i = 0; i < p->op_count; i++) {
				double begin = (double)spans[i].begin_ns, end = (double)spans[i].end_ns;

				if (p->ops[i].queue != (enum queue_kind)q || begin < 0 || end <= from ||
				        begin >= to)
					continue;
				busy += fmin(end, to) - fmax(begin, from);
			}
			str_add_char(out, busy > drawn_busy * column_ns   ? '#'
			                  : busy > drawn_idle * column_ns ? '-'
			                                                  : ' ');
		}
		str_add(out, "|\n");
	}
}
