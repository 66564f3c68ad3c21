/* Bounds of candidates' steps and memory, from a few simulated ones. */
#include "placement/choice_bound.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/size.h"
#include "offload/plan_time.h"
#include "placement/host_memory.h"
#include "placement/simulate.h"

#include <math.h>

/* What stays of a unit on the device, and of a group's activations. */
enum stays { STAYS_NOTHING, STAYS_WEIGHTS, STAYS_STATE, STAYS_COUNT };
enum keeps { KEEPS_NOTHING, KEEPS_ACTIVATIONS, KEEPS_COUNT };

/* Operations at which bytes are counted: half of them around the head, the others spread over the step. */
enum { MOMENTS = 32, MOMENTS_AT_HEAD = 16 };

struct sums {
	struct plan_time time;
	int64_t bytes[MOMENTS];
	int64_t host_bytes; /* of the store, and of staging memory at the end of forward */
};

struct choice_bound {
	const struct model *model;
	struct plan_policy policy;
	int unit_count, group_count, moment_count;
	int *order;                       /* units in the order in which they stay */
	char *spares;                     /* 1: weights of the unit may stay */
	struct sums *units[STAYS_COUNT];  /* [unit] */
	struct sums *groups[KEEPS_COUNT]; /* [group] */
	struct sums rest, streamed;       /* streamed: of all, with nothing that stays */
	int64_t other_host_bytes;         /* of a run: what no plan's buffers have */
	int is_shared;                    /* 1: units other than STAYS_NOTHING are those of another way */
};

/* ---- sums ---- */

static void sums_add(struct sums *to, const struct sums *from, int sign, int moment_count)
{
	struct plan_time *t = &to->time;
	const struct plan_time *f = &from->time;

	for (int q = 0; q < QUEUE_COUNT; q++)
		t->work_ns[q] += sign * f->work_ns[q];
	t->bus_ns += sign * f->bus_ns;
	t->forward_ns += sign * f->forward_ns;
	t->backward_ns += sign * f->backward_ns;
	t->return_ns += sign * f->return_ns;
	t->update_ns += sign * f->update_ns;
	t->fetch_ns += sign * f->fetch_ns;
	t->update_bus_ns += sign * f->update_bus_ns;
	t->fetch_bus_ns += sign * f->fetch_bus_ns;
	t->head_ns += sign * f->head_ns;
	to->host_bytes += sign * from->host_bytes;
	for (int i = 0; i < moment_count; i++)
		to->bytes[i] += sign * from->bytes[i];
}

/* Takes the lesser of each. */
static void sums_lessen(struct sums *to, const struct sums *by, int moment_count)
{
	struct plan_time *t = &to->time;
	const struct plan_time *f = &by->time;

	for (int q = 0; q < QUEUE_COUNT; q++)
		t->work_ns[q] = min_i64(t->work_ns[q], f->work_ns[q]);
	t->bus_ns = min_i64(t->bus_ns, f->bus_ns);
	t->backward_ns = min_i64(t->backward_ns, f->backward_ns);
	t->return_ns = min_i64(t->return_ns, f->return_ns);
	t->fetch_ns = min_i64(t->fetch_ns, f->fetch_ns);
	t->fetch_bus_ns = min_i64(t->fetch_bus_ns, f->fetch_bus_ns);
	for (int i = 0; i < moment_count; i++)
		to->bytes[i] = min_i64(to->bytes[i], by->bytes[i]);
}

static double sums_ms(const struct sums *sums, const struct choice_bound *b)
{
	struct plan_time time = sums->time;

	plan_time_bound(&time, &b->policy);
	return 1e-6 * (double)time.bound_ns;
}

static int sums_fit(const struct sums *sums, const struct choice_bound *b, int64_t limit_bytes)
{
	for (int i = 0; i < b->moment_count; i++)
		if (limit_bytes && sums->bytes[i] > limit_bytes)
			return 0;
	return 1;
}

/* ---- a simulated candidate ---- */

/* A candidate's plan with the spans of a step, and its moments. */
struct sample {
	struct engine *engine;
	const struct plan *plan;
	struct run_span *spans;
	int moments[MOMENTS], moment_count, head; /* operations */
	/* Of estimates: a plan with one micro-batch fewer, at the same moments. */
	struct engine *fewer;
	int fewer_moments[MOMENTS], fewer_head;
	int64_t growth; /* candidate_growth */
};

static void sample_close(struct sample *s)
{
	engine_close(s->engine);
	engine_close(s->fewer);
	mem_free(s->spans);
}

/* Stages run in the same order in all candidates, but for recomputation. Of estimates only the last
 * micro-batch counts, because plans of fewer have it too. */
static int is_stage_run(const struct plan_op *op, int last)
{
	return op->queue == QUEUE_COMPUTE && op->stage >= 0 && op->kind != PLAN_OP_RECOMPUTE &&
	       (last < 0 || op->micro == last);
}

/* last: of an estimate the last micro-batch, else -1. *head_op: the end of forward. Returns the number of
 * moments. */
static int moments_find(int *moments, int *head_op, const struct plan *p, int last)
{
	int count = 0, head = 0, spread = MOMENTS - MOMENTS_AT_HEAD, n = 0, found = 0;

	*head_op = 0;
	for (int i = 0; i < p->op_count; i++)
		if (is_stage_run(&p->ops[i], last)) {
			int is_forward = p->ops[i].kind == PLAN_OP_FORWARD;

			head = is_forward ? count : head;
			*head_op = is_forward ? i : *head_op;
			count++;
		}
	for (int i = 0, run = 0; i < p->op_count && found < MOMENTS; i++) {
		if (!is_stage_run(&p->ops[i], last))
			continue;
		if (run - head > 0 && run - head <= MOMENTS_AT_HEAD) {
			moments[found++] = i;
		} else if ((int64_t)n * count <= (int64_t)run * spread) {
			moments[found++] = i;
			n++;
		}
		run++;
	}
	return found;
}

static int fewer_open(struct sample *s, struct chooser *c, const struct choice_candidate *k)
{
	const struct plan *fewer;
	int rc = candidate_open_fewer(c, k, &s->fewer), count;

	if (rc)
		return rc;
	fewer = engine_plan(s->fewer, PLAN_TRAIN);
	count = moments_find(s->fewer_moments, &s->fewer_head, fewer, fewer->policy.micro_batches - 1);
	s->moment_count = moments_find(s->moments, &s->head, s->plan, s->plan->policy.micro_batches - 1);
	s->growth = candidate_growth(c);
	if (count != s->moment_count)
		s->moment_count = 0;
	return 0;
}

static int sample_open(struct sample *s, struct chooser *c, struct choice_candidate *k)
{
	struct engine_options o = candidate_options(c, k);
	struct simulated step;
	int rc = candidate_open(c, k, &s->engine);

	if (rc)
		return rc;
	s->plan = engine_plan(s->engine, PLAN_TRAIN);
	s->spans = mem_alloc((size_t)s->plan->op_count, sizeof(*s->spans));
	rc = s->spans ? engine_start(s->engine) : ERR_NOMEM;
	if (!rc)
		rc = simulate_step(&step, s->engine, &o, s->spans);
	s->moment_count = moments_find(s->moments, &s->head, s->plan, -1);
	if (!rc && chooser_estimates(c))
		rc = fewer_open(s, c, k);
	return rc;
}

/* Where the sums of a sample go: NULL are not wanted. */
struct sums_to {
	struct sums *units, *groups, *rest;
};

static struct sums *sums_of(const struct sums_to *to, const struct plan *p, int unit, int op)
{
	int stage = op >= 0 ? p->ops[op].stage : -1;

	if (unit >= 0)
		return to->units ? &to->units[unit] : NULL;
	if (stage >= 0)
		return to->groups ? &to->groups[p->map->model->stages[stage].group] : NULL;
	return to->rest;
}

static void work_sum(const struct sample *s, const struct sums_to *to)
{
	const struct plan *p = s->plan;
	int in_forward = 1;

	for (int i = 0; i < p->op_count; i++) {
		struct sums *sums = sums_of(to, p, p->ops[i].unit, i);

		if (s->spans[i].begin_ns < 0)
			continue;
		in_forward &= p->ops[i].kind != PLAN_OP_HEAD;
		if (sums)
			plan_time_add(&sums->time, p, i, &s->spans[i].work, in_forward);
	}
}

static int is_alive(const struct plan_buffer *b, int op)
{
	return b->persistent || (b->first_op <= op && op <= b->last_op);
}

/* A buffer of no unit belongs to the group that uses it last. */
static void bytes_sum(const struct plan *p, const int *moments, int moment_count, int head,
        const struct sums_to *to, int64_t times)
{
	for (int i = 0; i < p->buffer_count; i++) {
		const struct plan_buffer *b = &p->buffers[i];
		struct sums *sums = sums_of(to, p, b->unit, b->persistent ? -1 : b->last_op);

		if (sums && (b->space == SPACE_STORE || (b->space == SPACE_STAGING && is_alive(b, head))))
			sums->host_bytes += times * b->bytes;
		for (int m = 0; m < moment_count && sums && b->space == SPACE_DEVICE; m++)
			if (is_alive(b, moments[m]))
				sums->bytes[m] += times * b->bytes;
	}
}

static void sample_sum(const struct sample *s, struct sums *units, struct sums *groups, struct sums *rest)
{
	const struct sums_to to = {units, groups, rest};

	work_sum(s, &to);
	bytes_sum(s->plan, s->moments, s->moment_count, s->head, &to, 1 + s->growth);
	if (s->fewer)
		bytes_sum(engine_plan(s->fewer, PLAN_TRAIN), s->fewer_moments, s->moment_count, s->fewer_head,
		        &to, -s->growth);
}

/* ---- a way to stream ---- */

static void spares_find(struct choice_bound *b, const struct plan *all_weights)
{
	for (int i = 0; i < all_weights->buffer_count; i++) {
		const struct plan_buffer *x = &all_weights->buffers[i];

		if (x->space == SPACE_DEVICE && x->persistent && x->unit >= 0 &&
		        (x->kind == BUFFER_PLANE_HI || x->kind == BUFFER_PLANE_CODES))
			b->spares[x->unit] = 1;
	}
}

static double one_bytes(const struct choice_candidate *none, const struct choice_candidate *all, int count)
{
	return count ? (double)(all->device_bytes - none->device_bytes) / count : 0;
}

static int has_shared_activations(const struct model *model)
{
	for (int g = 0; g < model->group_count; g++)
		if (model->groups[g].first != model->groups[g].last)
			return 1;
	return 0;
}

/* Groups that share activations, those of experts in parts, are computed again at the first of their visits.
 * So some of their units are on the device for longer if they do not keep them. The bound has the lesser. */
static int units_lessen(struct choice_bound *b, const struct sample *kept)
{
	struct sums *units = mem_alloc((size_t)b->unit_count, sizeof(*units));

	if (!units)
		return ERR_NOMEM;
	sample_sum(kept, units, NULL, NULL);
	for (int u = 0; u < b->unit_count; u++)
		sums_lessen(&b->units[STAYS_NOTHING][u], &units[u], b->moment_count);
	mem_free(units);
	return 0;
}

/* What a run has in host memory beside its planes and staging memory. */
static int64_t other_host_bytes(const struct sample *sample, const struct chooser *s)
{
	struct engine_memory m;

	engine_get_memory(sample->engine, &m);
	return host_need_bytes(&m, s->limits->load_bytes) - m.store_bytes - m.staging_bytes;
}

static int streamed_sum(struct choice_bound *b, struct chooser *s, struct choice_candidate *none)
{
	struct sample sample = {0};
	int rc = sample_open(&sample, s, none);

	if (!rc) {
		b->policy = sample.plan->policy;
		b->moment_count = sample.moment_count;
		b->other_host_bytes = other_host_bytes(&sample, s);
		sample_sum(&sample, b->units[STAYS_NOTHING], b->groups[KEEPS_NOTHING], &b->rest);
	}
	sample_close(&sample);
	return rc;
}

/* Sums the units of a candidate in which all stay so, or the groups of one in which all keep their
 * activations. */
static int staying_sum(struct choice_bound *b, struct chooser *s, struct choice_candidate *all,
        struct sums *units, struct sums *groups)
{
	struct sample sample = {0};
	int rc = sample_open(&sample, s, all);

	if (!rc) {
		sample_sum(&sample, units, groups, NULL);
		if (units && !all->states)
			spares_find(b, sample.plan);
	}
	if (!rc && groups && has_shared_activations(b->model))
		rc = units_lessen(b, &sample);
	sample_close(&sample);
	return rc;
}

static int bound_alloc(struct choice_bound *b, const struct chooser *s, const struct choice_bound *like)
{
	int rc = 0;

	b->unit_count = s->map->unit_count;
	b->model = s->base->model;
	b->group_count = b->model->group_count;
	b->is_shared = like != NULL;
	b->order = mem_alloc((size_t)b->unit_count, sizeof(*b->order));
	b->spares = mem_alloc((size_t)b->unit_count, 1);
	for (int i = 0; i < STAYS_COUNT; i++) {
		b->units[i] =
		        like && i ? like->units[i] : mem_alloc((size_t)b->unit_count, sizeof(**b->units));
		rc = b->units[i] ? rc : ERR_NOMEM;
	}
	for (int i = 0; i < KEEPS_COUNT; i++) {
		b->groups[i] = mem_alloc((size_t)b->group_count, sizeof(**b->groups));
		rc = b->groups[i] ? rc : ERR_NOMEM;
	}
	return b->order && b->spares ? rc : ERR_NOMEM;
}

static int units_sum(
        struct choice_bound *b, struct chooser *s, struct way *way, const struct choice_candidate *none)
{
	struct choice_candidate weights = *none, states = *none;
	int rc;

	weights.weights = s->units;
	states.states = s->states;
	rc = staying_sum(b, s, &weights, b->units[STAYS_WEIGHTS], NULL);
	if (!rc)
		rc = staying_sum(b, s, &states, b->units[STAYS_STATE], NULL);
	way->weight_bytes = one_bytes(none, &weights, s->units);
	way->state_bytes = one_bytes(none, &states, s->states);
	return rc;
}

int choice_bound_open(
        struct choice_bound **bound, struct chooser *s, struct way *way, const struct choice_bound *like)
{
	struct choice_candidate none = {.ahead = way->ahead, .spills = way->spills}, kept = none;
	struct choice_bound *b = mem_alloc(1, sizeof(*b));
	int rc = b ? bound_alloc(b, s, like) : ERR_NOMEM;

	*bound = b;
	if (rc)
		return rc;
	plan_residency_order(b->order, s->map);
	rc = streamed_sum(b, s, &none);
	kept.kept = s->blocks;
	if (!rc && s->blocks)
		rc = staying_sum(b, s, &kept, NULL, b->groups[KEEPS_ACTIVATIONS]);
	way->kept_bytes = one_bytes(&none, &kept, s->blocks);
	if (!rc && !like)
		rc = units_sum(b, s, way, &none);
	for (int u = 0; u < b->unit_count && like; u++)
		b->spares[u] = like->spares[u];
	b->streamed = b->rest;
	for (int u = 0; u < b->unit_count; u++)
		sums_add(&b->streamed, &b->units[STAYS_NOTHING][u], 1, b->moment_count);
	for (int g = 0; g < b->group_count; g++)
		sums_add(&b->streamed, &b->groups[KEEPS_NOTHING][g], 1, b->moment_count);
	return rc;
}

void choice_bound_close(struct choice_bound *b)
{
	if (!b)
		return;
	for (int i = 0; i < STAYS_COUNT; i++)
		if (!i || !b->is_shared)
			mem_free(b->units[i]);
	for (int i = 0; i < KEEPS_COUNT; i++)
		mem_free(b->groups[i]);
	mem_free(b->order);
	mem_free(b->spares);
	mem_free(b);
}

/* ---- candidates ---- */

/* Sums of a candidate while its counts change; next: the first unit in the order that may yet keep
 * weights. */
struct tally {
	struct sums sums;
	int kept, weights, next;
};

static void unit_change(struct tally *t, const struct choice_bound *b, int u, enum stays stays, int sign)
{
	sums_add(&t->sums, &b->units[stays][u], sign, b->moment_count);
	sums_add(&t->sums, &b->units[STAYS_NOTHING][u], -sign, b->moment_count);
}

static struct tally tally_open(const struct choice_bound *b, int states)
{
	struct tally t = {.sums = b->streamed, .next = states};

	for (int i = 0; i < states; i++)
		unit_change(&t, b, b->order[i], STAYS_STATE, 1);
	return t;
}

/* Changes the kept-th block from the head on, all of its groups. */
static void kept_change(struct tally *t, const struct choice_bound *b, int sign)
{
	const struct model_group *groups = b->model->groups;
	int place = groups[b->group_count - 1].place - (sign > 0 ? ++t->kept : t->kept--);

	for (int g = 0; g < b->group_count; g++) {
		if (groups[g].place != place)
			continue;
		sums_add(&t->sums, &b->groups[KEEPS_ACTIVATIONS][g], sign, b->moment_count);
		sums_add(&t->sums, &b->groups[KEEPS_NOTHING][g], -sign, b->moment_count);
	}
}

/* Keeps weights of more units while they fit, up to `most`. */
static void weights_raise(struct tally *t, const struct choice_bound *b, int most, int64_t limit_bytes)
{
	while (t->weights < most && t->next < b->unit_count) {
		int u = b->order[t->next];

		if (b->spares[u]) {
			unit_change(t, b, u, STAYS_WEIGHTS, 1);
			if (!sums_fit(&t->sums, b, limit_bytes)) {
				unit_change(t, b, u, STAYS_WEIGHTS, -1);
				return;
			}
			t->weights++;
		}
		t->next++;
	}
}

static struct tally tally_of(const struct choice_bound *b, const struct choice_candidate *k)
{
	struct tally t = tally_open(b, k->states);

	while (t.kept < k->kept)
		kept_change(&t, b, 1);
	return t;
}

double choice_bound_ms(const struct choice_bound *b, const struct choice_candidate *k)
{
	struct tally t;

	if (!b)
		return 0;
	t = tally_of(b, k);
	weights_raise(&t, b, k->weights, 0);
	return sums_ms(&t.sums, b);
}

int choice_bound_fits(const struct choice_bound *b, const struct choice_candidate *k, int64_t limit_bytes)
{
	struct tally t;

	if (!b)
		return 1;
	t = tally_of(b, k);
	weights_raise(&t, b, k->weights, 0);
	return sums_fit(&t.sums, b, limit_bytes);
}

int choice_bound_kept(
        const struct choice_bound *b, const struct choice_candidate *k, int most, int64_t limit_bytes)
{
	struct tally t;

	if (!b)
		return most;
	t = tally_open(b, k->states);
	if (!sums_fit(&t.sums, b, limit_bytes))
		return -1;
	while (t.kept < most) {
		kept_change(&t, b, 1);
		if (!sums_fit(&t.sums, b, limit_bytes))
			return t.kept - 1;
	}
	return most;
}

int choice_bound_weights(
        const struct choice_bound *b, const struct choice_candidate *k, int most, int64_t limit_bytes)
{
	struct tally t;

	if (!b)
		return most;
	t = tally_of(b, k);
	weights_raise(&t, b, most, limit_bytes);
	return t.next < b->unit_count ? t.weights : most;
}

struct choice_least choice_bound_least(
        const struct choice_bound *b, const struct choice_candidate *k, int64_t limit_bytes)
{
	struct choice_least least = {.step_ms = INFINITY, .host_bytes = INT64_MAX};
	struct tally t;

	if (!b)
		return (struct choice_least){0};
	t = tally_of(b, k);
	for (;;) {
		weights_raise(&t, b, b->unit_count, limit_bytes);
		if (sums_fit(&t.sums, b, limit_bytes)) {
			least.step_ms = fmin(least.step_ms, sums_ms(&t.sums, b));
			least.host_bytes = min_i64(least.host_bytes, b->other_host_bytes + t.sums.host_bytes);
		}
		if (!t.kept)
			return least;
		kept_change(&t, b, -1);
	}
}
