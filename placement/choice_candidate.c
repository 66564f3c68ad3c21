/* Plans and simulates single candidates, each once. */
#include "placement/choice_candidate.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/size.h"
#include "placement/host_memory.h"
#include "placement/simulate.h"

/* ---- what is known of candidates ---- */

struct choice_known {
	struct choice_candidate candidate;
	int is_simulated; /* 1: the step too, which is 0 without training; else only memory and traffic */
};

enum { FIRST_CAP = 1024 };

int candidate_is_same(const struct choice_candidate *a, const struct choice_candidate *b)
{
	return a->ahead == b->ahead && a->spills == b->spills && a->states == b->states &&
	       a->kept == b->kept && a->weights == b->weights && a->hosted == b->hosted &&
	       a->kept_level == b->kept_level && a->hosted_level == b->hosted_level;
}

/* The slot of the candidate, or the free one where it belongs. A used slot has device memory. */
static struct choice_known *slot_of(struct choice_known *slots, int cap, const struct choice_candidate *k)
{
	const int values[] = {k->ahead, k->spills, k->states, k->kept, k->weights, k->hosted,
	        (int)k->kept_level, (int)k->hosted_level};
	uint64_t hash = 14695981039346656037u; /* FNV-1a */

	for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++)
		hash = (hash ^ (uint64_t)(unsigned)values[i]) * 1099511628211u;
	hash ^= hash >> 32;
	while (slots[hash & (uint64_t)(cap - 1)].candidate.device_bytes &&
	        !candidate_is_same(&slots[hash & (uint64_t)(cap - 1)].candidate, k))
		hash++;
	return &slots[hash & (uint64_t)(cap - 1)];
}

/* NULL: not known. Valid until the next memo_add. */
static struct choice_known *memo_find(const struct choice_memo *memo, const struct choice_candidate *k)
{
	struct choice_known *slot = memo->cap ? slot_of(memo->slots, memo->cap, k) : NULL;

	return slot && slot->candidate.device_bytes ? slot : NULL;
}

static int grow(struct choice_memo *memo)
{
	int cap = memo->cap ? 2 * memo->cap : FIRST_CAP;
	struct choice_known *slots = mem_alloc((size_t)cap, sizeof(*slots));

	if (!slots)
		return ERR_NOMEM;
	for (int i = 0; i < memo->cap; i++)
		if (memo->slots[i].candidate.device_bytes)
			*slot_of(slots, cap, &memo->slots[i].candidate) = memo->slots[i];
	mem_free(memo->slots);
	memo->slots = slots;
	memo->cap = cap;
	return 0;
}

static void memory_take(struct choice_candidate *k, const struct choice_candidate *from)
{
	k->device_bytes = from->device_bytes;
	k->host_bytes = from->host_bytes;
	k->link_bytes = from->link_bytes;
	k->weights_stay = from->weights_stay;
	k->is_placed = from->is_placed;
}

/* Adds a candidate, or what is now known of its memory. ERR_NOMEM. */
static int memo_put(struct choice_memo *memo, const struct choice_candidate *k)
{
	struct choice_known *known = memo_find(memo, k);
	int rc = !known && 2 * memo->count >= memo->cap ? grow(memo) : 0;

	if (rc)
		return rc;
	if (known) {
		memory_take(&known->candidate, k);
		return 0;
	}
	*slot_of(memo->slots, memo->cap, k) = (struct choice_known){.candidate = *k};
	memo->count++;
	return 0;
}

/* ---- its memory ---- */

void candidate_apply(struct plan_policy *p, const struct choice_candidate *k)
{
	p->resident_states = k->states;
	p->resident_weights = k->weights;
	p->kept_blocks = k->kept;
	p->hosted_blocks = k->hosted;
	if (p->activations != ACTIVATION_KEEP) /* else the user has set it */
		p->kept_level = k->kept_level;
	p->hosted_level = k->hosted_level;
	if (k->spills)
		p->activations = ACTIVATION_OFFLOAD;
	if (k->ahead == 0) {
		p->forward_prefetch = 0;
		p->backward_prefetch = BACKWARD_PREFETCH_NONE;
	} else if (k->ahead > 0) {
		p->prefetch_units = k->ahead;
	}
}

int chooser_estimates(const struct chooser *s)
{
	return s->micros && s->micros < s->base->policy.micro_batches;
}

int64_t candidate_growth(const struct chooser *s)
{
	return chooser_estimates(s) ? s->base->policy.micro_batches - s->micros : 0;
}

/* With sums over micro-batches each has a pass of its own, which nothing else runs beside: its time counts
 * once, as in a shorter step. */
static double micro_times(const struct chooser *s)
{
	return s->base->policy.order == ORDER_LAYER_MAJOR ? (double)s->base->policy.micro_batches / s->micros
	                                                  : 1;
}

struct engine_options candidate_options(const struct chooser *s, const struct choice_candidate *k)
{
	struct engine_options o = *s->base;

	o.device = s->meta;
	o.units = s->map;
	o.places_late = 1;
	o.device_budget_bytes = 0;
	o.check_plans = 0;
	if (chooser_estimates(s)) {
		o.policy.micro_batches = s->micros;
		o.micro_times = micro_times(s);
	}
	candidate_apply(&o.policy, k);
	return o;
}

int candidate_fits_device(const struct chooser *s, const struct choice_candidate *k)
{
	return !s->device_bytes || k->device_bytes <= s->device_bytes;
}

int candidate_fits(const struct chooser *s, const struct choice_candidate *k)
{
	return candidate_fits_device(s, k) && (!s->host_bytes || k->host_bytes <= s->host_bytes);
}

static void memory_get(struct choice_candidate *k, const struct chooser *s, const struct engine *engine)
{
	struct engine_memory m;

	engine_get_memory(engine, &m);
	k->device_bytes = m.device_bytes;
	k->host_bytes = host_need_bytes(&m, s->limits->load_bytes);
	k->host_bytes += s->limits->device_is_host ? m.device_bytes : 0;
	k->link_bytes = m.h2d_bytes + m.d2h_bytes;
	k->weights_stay = m.resident_weights;
}

/* Lists the plans: the memory is a bound. */
static int memory_open(
        struct chooser *s, struct choice_candidate *k, struct engine **engine, const struct engine_options *o)
{
	int rc = engine_open(engine, o);

	if (rc)
		return rc;
	memory_get(k, s, *engine);
	s->choice->planned_count++;
	if (engine_plan(*engine, PLAN_TRAIN))
		s->listed_ops += engine_plan(*engine, PLAN_TRAIN)->op_count;
	return 0;
}

static int fewer_open(struct chooser *s, struct choice_candidate *k, struct engine **engine)
{
	struct engine_options o = candidate_options(s, k);

	if (!chooser_estimates(s))
		return 0;
	o.policy.micro_batches--;
	return memory_open(s, k, engine, &o);
}

int candidate_open_fewer(struct chooser *s, const struct choice_candidate *k, struct engine **engine)
{
	struct choice_candidate fewer = *k;

	return fewer_open(s, &fewer, engine);
}

/* Where the slope of the candidate is remembered; NULL: nowhere, or no memory is left. Valid until the next
 * call. */
static struct choice_slope *slope_of(struct chooser *s, const struct choice_candidate *k)
{
	if (s->base->policy.order != ORDER_LAYER_MAJOR)
		return NULL;
	for (int i = 0; i < s->slope_count; i++)
		if (s->slopes[i].ahead == k->ahead && s->slopes[i].spills == k->spills &&
		        s->slopes[i].kept == k->kept && s->slopes[i].hosted == k->hosted &&
		        s->slopes[i].kept_level == k->kept_level &&
		        s->slopes[i].hosted_level == k->hosted_level)
			return &s->slopes[i];
	if (s->slope_count == s->slope_cap) {
		int cap = s->slope_cap ? 2 * s->slope_cap : 64;
		struct choice_slope *grown = mem_resize(s->slopes, (size_t)cap, sizeof(*grown));

		if (!grown)
			return NULL;
		s->slopes = grown;
		s->slope_cap = cap;
	}
	s->slopes[s->slope_count] = (struct choice_slope){.ahead = k->ahead,
	        .spills = k->spills,
	        .kept = k->kept,
	        .hosted = k->hosted,
	        .kept_level = k->kept_level,
	        .hosted_level = k->hosted_level};
	return &s->slopes[s->slope_count++];
}

static void slope_free(struct choice_slope *slope)
{
	mem_free(slope->device_bytes);
	mem_free(slope->staging_bytes);
}

/* Sets bytes to those of more - fewer; ERR_INTERNAL if the plans differ by more than a micro-batch. */
static int alive_subtract(int64_t *bytes, int count, const struct plan *fewer, enum plan_space space)
{
	int64_t *less;
	int less_count = plan_alive(&less, fewer, space);

	for (int i = 0; i < count && less_count == count; i++)
		bytes[i] -= less[i];
	mem_free(less);
	return less_count < 0        ? less_count
	       : less_count != count ? err_set(ERR_INTERNAL, "plans of %d and %d stages", count, less_count)
	                             : 0;
}

/* Finds the slope from a plan with one micro-batch fewer. */
static int slope_find(struct choice_slope *slope, struct chooser *s, const struct choice_candidate *k,
        const struct plan *plan)
{
	struct choice_candidate less = *k;
	struct engine *fewer = NULL;
	int rc = fewer_open(s, &less, &fewer), count;

	if (rc)
		return rc;
	slope->link_bytes = k->link_bytes - less.link_bytes;
	slope->count = count = plan_alive(&slope->device_bytes, plan, SPACE_DEVICE);
	if (count >= 0)
		count = plan_alive(&slope->staging_bytes, plan, SPACE_STAGING);
	rc = count < 0 ? count : 0;
	if (!rc)
		rc = alive_subtract(slope->device_bytes, count, engine_plan(fewer, PLAN_TRAIN), SPACE_DEVICE);
	if (!rc)
		rc = alive_subtract(
		        slope->staging_bytes, count, engine_plan(fewer, PLAN_TRAIN), SPACE_STAGING);
	slope->is_known = !rc;
	engine_close(fewer);
	return rc;
}

/* The most bytes of a space that all micro-batches use while a stage works. */
static int grown_find(
        int64_t *most, const struct plan *plan, enum plan_space space, const int64_t *slope, int64_t growth)
{
	int64_t *alive;
	int count = plan_alive(&alive, plan, space);

	*most = 0;
	for (int i = 0; i < count; i++)
		*most = max_i64(*most, alive[i] + growth * slope[i]);
	mem_free(alive);
	return count < 0 ? count : 0;
}

/* Finds the memory of an estimate: that of the plan, and by how much all micro-batches need more at one
 * time. */
static int memory_estimate(struct chooser *s, struct choice_candidate *k, struct engine *engine)
{
	const struct plan *plan = engine_plan(engine, PLAN_TRAIN);
	struct choice_slope here = {0}, *slope = slope_of(s, k);
	int64_t growth = candidate_growth(s), device_bytes, staging_bytes, more_bytes;
	int64_t staging_before = plan->space_bytes[SPACE_STAGING];
	int rc;

	slope = slope ? slope : &here;
	rc = slope->is_known ? 0 : slope_find(slope, s, k, plan);
	if (!rc)
		rc = grown_find(&device_bytes, plan, SPACE_DEVICE, slope->device_bytes, growth);
	if (!rc)
		rc = grown_find(&staging_bytes, plan, SPACE_STAGING, slope->staging_bytes, growth);
	more_bytes = rc ? 0 : max_i64(device_bytes - k->device_bytes, 0);
	k->is_placed = !rc && (!s->device_bytes || k->device_bytes + more_bytes <= s->device_bytes);
	if (k->is_placed)
		rc = engine_place(engine);
	if (k->is_placed)
		memory_get(k, s, engine);
	if (!rc) {
		k->device_bytes += more_bytes;
		k->host_bytes += max_i64(staging_bytes - staging_before, 0) +
		                 (s->limits->device_is_host ? more_bytes : 0);
		k->link_bytes += growth * slope->link_bytes;
	}
	slope_free(&here);
	return rc;
}

/* Finds a listed candidate's memory: a bound, and what it is if that may fit. */
static int memory_find(struct chooser *s, struct choice_candidate *k, struct engine *engine)
{
	int rc;

	k->is_placed = 0;
	if (chooser_estimates(s))
		return memory_estimate(s, k, engine);
	if (!candidate_fits_device(s, k))
		return 0;
	rc = engine_place(engine);
	k->is_placed = !rc;
	if (!rc)
		memory_get(k, s, engine);
	return rc;
}

int candidate_open(struct chooser *s, struct choice_candidate *k, struct engine **engine)
{
	struct engine_options o = candidate_options(s, k);
	int rc = memory_open(s, k, engine, &o);

	if (rc)
		return rc;
	rc = memory_find(s, k, *engine);
	if (!rc)
		rc = memo_put(&s->memo, k);
	if (rc) {
		engine_close(*engine);
		*engine = NULL;
	}
	return rc;
}

int candidate_plan(struct chooser *s, struct choice_candidate *k)
{
	const struct choice_known *known = memo_find(&s->memo, k);
	struct engine *engine = NULL;
	int rc = 0;

	if (known)
		memory_take(k, &known->candidate);
	if (!known || (!k->is_placed && candidate_fits_device(s, k)))
		rc = candidate_open(s, k, &engine);
	if (rc || !candidate_fits(s, k)) {
		engine_close(engine);
		return rc;
	}
	engine_close(s->engine);
	s->engine = engine;
	s->planned = *k;
	s->has_planned = 1;
	return 0;
}

/* ---- its step ---- */

static int step_simulate(struct choice_candidate *k, struct engine *engine, const struct engine_options *o)
{
	struct simulated step;
	struct plan_time time;
	int rc = simulate_bound(&step, &time, engine, o);

	if (rc)
		return rc;
	k->step_ms = step.step_ms;
	k->bound_ms = 1e-6 * (double)time.bound_ns;
	k->binds = time.binds;
	return 0;
}

static int is_planned(const struct chooser *s, const struct choice_candidate *k)
{
	return s->has_planned && candidate_is_same(&s->planned, k);
}

/* Finds the step of a candidate whose memory is known; without training it is 0. */
static int step_find(struct chooser *s, struct choice_candidate *k)
{
	struct choice_known *known = memo_find(&s->memo, k);
	struct engine_options o = candidate_options(s, k);
	int rc = 0;

	k->step_ms = k->bound_ms = 0;
	if (known->is_simulated) {
		k->step_ms = known->candidate.step_ms;
		k->bound_ms = known->candidate.bound_ms;
		k->binds = known->candidate.binds;
		return 0;
	}
	if (!s->engine)
		rc = candidate_open(s, k, &s->engine);
	if (!rc && engine_plan(s->engine, PLAN_TRAIN))
		rc = step_simulate(k, s->engine, &o);
	known->is_simulated = !rc;
	known->candidate = *k;
	return rc;
}

int candidate_judge(struct chooser *s, struct choice_candidate *k)
{
	int rc = is_planned(s, k) ? 0 : candidate_plan(s, k);

	k->step_ms = k->bound_ms = 0;
	if (!rc && candidate_fits(s, k))
		rc = step_find(s, k);
	engine_close(s->engine);
	s->engine = NULL;
	s->has_planned = 0;
	return rc;
}

int candidate_judge_whole(struct chooser *s, struct choice_candidate *k)
{
	const struct choice_limits *l = s->limits;
	struct engine_options o = candidate_options(s, k);
	struct engine *engine = NULL;
	int rc;

	o.policy.micro_batches = s->base->policy.micro_batches;
	o.micro_times = 0;
	k->step_ms = k->bound_ms = 0;
	rc = memory_open(s, k, &engine, &o);
	if (!rc && (!l->device_bytes || k->device_bytes <= l->device_bytes)) {
		rc = engine_place(engine);
		memory_get(k, s, engine);
	}
	if (!rc && (!l->device_bytes || k->device_bytes <= l->device_bytes) &&
	        (!l->host_bytes || k->host_bytes <= l->host_bytes) && engine_plan(engine, PLAN_TRAIN))
		rc = step_simulate(k, engine, &o);
	engine_close(engine);
	return rc;
}

void chooser_close(struct chooser *s)
{
	engine_close(s->engine);
	unit_map_close(s->map);
	mem_free(s->memo.slots);
	for (int i = 0; i < s->slope_count; i++)
		slope_free(&s->slopes[i]);
	mem_free(s->slopes);
	device_close(s->meta);
}
