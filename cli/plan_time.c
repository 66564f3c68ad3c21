#include "cli/plan_time.h"

#include <string.h>

static int64_t larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* What of compute's work comes before the first loss. */
static int is_forward(const struct plan_op *op)
{
	return op->kind == PLAN_FORWARD;
}

static void bound_raise(struct plan_time *t, int64_t ns, const char *what)
{
	if (ns <= t->bound_ns)
		return;
	t->bound_ns = ns;
	t->binds = what;
}

void plan_time_find(struct plan_time *t, const struct plan *p, const struct run_span *spans)
{
	int64_t updates_ns = 0;

	*t = (struct plan_time){.begin_ns = INT64_MAX, .binds = "nothing"};
	for (int i = 0; i < p->op_count; i++) {
		const struct plan_op *op = &p->ops[i];
		int64_t ns = spans[i].end_ns - spans[i].begin_ns;

		if (spans[i].begin_ns < 0)
			continue;
		t->begin_ns = t->begin_ns < spans[i].begin_ns ? t->begin_ns : spans[i].begin_ns;
		t->end_ns = larger(t->end_ns, spans[i].end_ns);
		t->busy_ns[op->queue] += ns;
		if (op->kind == PLAN_UPDATE_CPU)
			updates_ns += ns;
		if (op->queue == QUEUE_COMPUTE && !op->updates)
			*(is_forward(op) ? &t->forward_ns : &t->backward_ns) += ns;
	}
	for (int q = 0; q < QUEUE_COUNT; q++)
		bound_raise(t, t->busy_ns[q], queue_name((enum queue_kind)q));
	if (p->policy.update_in_backward)
		bound_raise(t, t->forward_ns + larger(t->backward_ns, updates_ns),
		        "forward, then the updates inside backward");
	else
		bound_raise(t, t->backward_ns + larger(t->forward_ns, updates_ns),
		        "backward, then the updates that wait for its norm");
}

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
				busy += (end < to ? end : to) - (begin > from ? begin : from);
			}
			str_add_char(out, busy > 0.95 * column_ns   ? '#'
			                  : busy > 0.05 * column_ns ? '-'
			                                            : ' ');
		}
		str_add(out, "|\n");
	}
}
