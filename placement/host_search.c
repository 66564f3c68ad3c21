/* Searches settings that need less host memory. */
#include "placement/host_search.h"

#include "placement/budget.h"
#include "placement/simulate.h"
#include "placement/smaller.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/quantity.h"

#include <inttypes.h>

/* Changes that may save host memory. The first three do not change the result, the next group only its
 * rounding, the last the step itself. */
enum change {
	CHANGE_RECOMPUTE,
	CHANGE_LAYER_MAJOR,
	CHANGE_AHEAD,
	CHANGE_COMPUTE_BF16,
	CHANGE_GRADIENT_BF16,
	CHANGE_STATE, /* one for each format */
	CHANGE_IN_BACKWARD = CHANGE_STATE + ADAMW_STATE_COUNT,
	CHANGES
};

static const char *const change_texts[CHANGES] = {
        [CHANGE_RECOMPUTE] = "activations=recompute",
        [CHANGE_LAYER_MAJOR] = "schedule=layer_major",
        [CHANGE_AHEAD] = "prefetch_units=1",
        [CHANGE_COMPUTE_BF16] = "compute_dtype=bf16 gradient_dtype=bf16",
        [CHANGE_GRADIENT_BF16] = "gradient_dtype=bf16",
#define STATE(id, format, name, ...) [CHANGE_STATE + ADAMW_STATE_##id] = "optimizer_state=" name,
        ADAMW_STATES(STATE)
#undef STATE
                [CHANGE_IN_BACKWARD] = "max_grad_norm=0 skip_nonfinite=off",
};

/* A trial: the keys that a choice reads, and the options. */
struct tried {
	struct config config;
	struct engine_options options;
};

/* Whether the budget chooses the prefetch distance. */
static int ahead_is_chosen(const struct tried *t)
{
	struct choice_freedom freedom;

	budget_freedom(&freedom, &t->config, &t->options);
	return budget_is_spent(&t->config, t->options.device_budget_bytes) && freedom.ahead;
}

/* Makes the change; 0 if it is already so or has no effect. */
static int change_make(struct tried *t, enum change change)
{
	struct engine_options *o = &t->options;
	struct plan_policy *p = &o->policy;

	switch (change) {
	case CHANGE_RECOMPUTE:
		if (p->activations != ACTIVATION_OFFLOAD)
			return 0;
		p->activations = ACTIVATION_RECOMPUTE;
		t->config.activations = CONFIG_ACTIVATIONS_RECOMPUTE;
		return 1;
	case CHANGE_LAYER_MAJOR:
		if (p->order == ORDER_LAYER_MAJOR || p->micro_batches == 1)
			return 0;
		p->order = ORDER_LAYER_MAJOR;
		return 1;
	case CHANGE_AHEAD:
		if (p->prefetch_units == 1 || ahead_is_chosen(t))
			return 0;
		p->prefetch_units = 1;
		t->config.prefetch_units = 1;
		return 1;
	case CHANGE_COMPUTE_BF16:
		if (p->compute_dtype == DTYPE_BF16)
			return 0;
		p->compute_dtype = p->gradient_dtype = DTYPE_BF16;
		return 1;
	case CHANGE_GRADIENT_BF16:
		if (p->compute_dtype != DTYPE_BF16 || p->gradient_dtype == DTYPE_BF16)
			return 0;
		p->gradient_dtype = DTYPE_BF16;
		return 1;
	case CHANGE_IN_BACKWARD:
		if (p->update_in_backward)
			return 0;
		p->update_in_backward = 1;
		o->max_grad_norm = 0;
		o->skip_nonfinite = 0;
		return 1;
	default: /* an optimizer state */
		if (adamw_state_bytes(change - CHANGE_STATE) >= adamw_state_bytes(p->state))
			return 0;
		p->state = change - CHANGE_STATE;
		return 1;
	}
}

/* What is known of a set of changes at some sizes. */
struct judged {
	unsigned changes;
	struct smaller less;
	int64_t need_bytes;
	double step_ms;
	int fits, rc;
};

struct host_search {
	struct host_found *found;
	const struct config *config;
	const struct engine_options *base;
	const struct device_memory *device;
	const struct machine *machine;
	struct device *meta;
	struct smaller less;  /* the sizes that are tried */
	unsigned best, least; /* sets of changes */
	double best_ms;       /* 0: none fits yet */
	struct judged *judged;
	int judged_count, judged_cap;
};

static int changes_make(struct tried *t, unsigned changes, const struct host_search *s)
{
	t->config = *s->config; /* borrows its texts */
	t->options = *s->base;
	t->options.device = s->meta;
	t->options.check_plans = 0;
	if (!s->base->policy.inference)
		smaller_apply(&t->options, &s->less, s->base, s->config);
	for (int i = 0; i < CHANGES; i++)
		if (changes & 1u << i && !change_make(t, (enum change)i))
			return 0;
	return 1;
}

/* Plans *t with its budgets spent and finds its host memory. ERR_FIT if the device lacks room. */
static int tried_plan(struct engine **engine, struct host_memory *host, struct tried *t,
        const struct host_search *s, enum budget_thoroughness thoroughness)
{
	struct engine_memory memory;
	struct choice choice;
	int rc = budget_try(&choice, &t->options, &t->config, s->device, s->machine, thoroughness);

	choice_free(&choice);
	*engine = NULL;
	t->options.scratch_bytes = s->device->is_host ? host_scratch_bytes(&t->options, s->machine) : 0;
	if (!rc)
		rc = engine_open(engine, &t->options);
	if (rc)
		return rc;
	engine_get_memory(*engine, &memory);
	return host_memory_find(host, &t->config,
	        host_need_bytes(&memory, host_load_bytes(&t->config, &t->options, s->machine)) +
	                (s->device->is_host ? memory.device_bytes : 0),
	        s->machine);
}

/* Estimates beyond the limit by this share may fit, and those so near below may not. */
static const double estimate_share = 0.02;

/* Finds the host memory and the step of *t; ERR_FIT if the device lacks room. */
static int tried_measure(
        struct host_memory *host, double *step_ms, struct tried *t, const struct host_search *s)
{
	struct simulated step = {.step_ms = 1};
	struct engine *engine = NULL;
	struct choice_candidate k;
	int rc;

	if (t->options.policy.micro_batches > BUDGET_MICROS && !s->base->policy.inference) {
		rc = budget_estimate(&k, &t->options, &t->config, s->device, s->machine);
		if (!rc && !k.device_bytes)
			return err_set(ERR_FIT, "no candidate fits");
		if (!rc)
			rc = host_memory_find(host, &t->config, k.host_bytes, s->machine);
		host->fits = host->fits &&
		             (double)host->need_bytes <= (1 - estimate_share) * (double)host->limit_bytes;
		*step_ms = !rc && k.step_ms > 0 ? k.step_ms : 1;
		return rc;
	}
	rc = tried_plan(&engine, host, t, s, BUDGET_ROUGHLY);
	if (!rc && host->fits)
		rc = engine_start(engine);
	if (!rc && host->fits && !s->base->policy.inference)
		rc = simulate_step(&step, engine, &t->options, NULL);
	engine_close(engine);
	*step_ms = step.step_ms;
	return rc;
}

static int is_same(const struct judged *j, unsigned changes, const struct smaller *less)
{
	return j->changes == changes && j->less.eval == less->eval && j->less.batch == less->batch &&
	       j->less.accumulation == less->accumulation && j->less.length == less->length;
}

static int judged_keep(struct host_search *s, const struct judged *j)
{
	if (s->judged_count == s->judged_cap) {
		int cap = s->judged_cap ? 2 * s->judged_cap : 16;
		struct judged *grown = mem_resize(s->judged, (size_t)cap, sizeof(*grown));

		if (!grown)
			return ERR_NOMEM;
		s->judged = grown;
		s->judged_cap = cap;
	}
	s->judged[s->judged_count++] = *j;
	return 0;
}

/* Plans and simulates a set of changes at the sizes that are tried, once. j->rc ERR_FIT: the device lacks
 * room. */
static int judged_find(struct judged *j, struct host_search *s, unsigned changes)
{
	struct host_memory host = {0};
	struct tried t;

	for (int i = 0; i < s->judged_count; i++)
		if (is_same(&s->judged[i], changes, &s->less)) {
			*j = s->judged[i];
			return 0;
		}
	changes_make(&t, changes, s);
	*j = (struct judged){.changes = changes, .less = s->less};
	j->rc = tried_measure(&host, &j->step_ms, &t, s);
	if (j->rc && j->rc != ERR_FIT)
		return j->rc;
	j->need_bytes = host.need_bytes;
	j->fits = host.fits;
	return judged_keep(s, j);
}

/* Keeps a set of changes if it is the best. Skips it if the device lacks room. */
static int changes_judge(struct host_search *s, unsigned changes)
{
	struct judged j;
	struct tried t;
	int rc;

	if (!changes_make(&t, changes, s))
		return 0;
	rc = judged_find(&j, s, changes);
	if (rc || j.rc)
		return rc;
	if (j.need_bytes < s->found->least_bytes) {
		s->found->least_bytes = j.need_bytes;
		s->least = changes;
	}
	if (j.fits && (!s->best_ms || j.step_ms < 0.995 * s->best_ms)) {
		s->best_ms = j.step_ms;
		s->best = changes;
	}
	return 0;
}

/* The same where only whether it fits matters: what surely does need not be searched. */
static int changes_fit(struct host_search *s, unsigned changes)
{
	struct tried t;
	int fits = 0, rc = 0;

	if (!s->base->policy.inference && !s->device->is_host && changes_make(&t, changes, s))
		rc = budget_fits(&fits, &t.options, &t.config, s->device, s->machine);
	if (rc || !fits)
		return rc ? rc : changes_judge(s, changes);
	s->best_ms = 1;
	s->best = changes;
	return 0;
}

/* Finds the host memory of a run with the best changes. */
static int best_measure(struct host_search *s)
{
	struct engine *engine;
	struct tried t;
	struct host_memory host;
	int rc;

	changes_make(&t, s->best, s);
	if (t.options.policy.micro_batches > BUDGET_MICROS) {
		struct judged j;

		rc = judged_find(&j, s, s->best);
		s->found->bytes = j.need_bytes;
		return rc;
	}
	rc = tried_plan(&engine, &host, &t, s, BUDGET_AS_A_RUN);
	s->found->bytes = host.need_bytes;
	engine_close(engine);
	return rc;
}

/* The smallest plan of all, whole: what is said to be the least must be enough, and a byte less not. */
static int least_measure(struct host_search *s)
{
	struct engine *engine;
	struct tried t;
	struct host_memory host;
	int rc;

	changes_make(&t, s->least, s);
	if (s->base->policy.inference || t.options.policy.micro_batches <= BUDGET_MICROS)
		return 0; /* it was */
	rc = tried_plan(&engine, &host, &t, s, BUDGET_ROUGHLY);
	if (!rc)
		s->found->least_bytes = host.need_bytes;
	engine_close(engine);
	return rc;
}

static int bits_of(unsigned changes)
{
	int bits = 0;

	for (; changes; changes &= changes - 1)
		bits++;
	return bits;
}

/* All useful changes at once, with only the smallest optimizer state. */
static unsigned changes_most(const struct host_search *s)
{
	struct tried t;
	unsigned changes = 0;

	changes_make(&t, 0, s);
	for (int i = 0; i < CHANGES; i++)
		if ((i < CHANGE_STATE || i >= CHANGE_IN_BACKWARD - 1) && change_make(&t, (enum change)i))
			changes |= 1u << i;
	return changes;
}

/* A size is named only if it saves more than this part. */
static const double size_share = 0.01;

/* Raises the size that *divisor divides as far as that costs little. */
static int size_restore(struct host_search *s, int64_t *divisor)
{
	int64_t kept = *divisor, least = s->found->least_bytes;
	int64_t most = least + (int64_t)(size_share * (double)least);
	int rc = 0;

	for (*divisor = 1; *divisor < kept && !rc; ++*divisor) {
		if (kept % *divisor)
			continue;
		s->found->least_bytes = most;
		rc = changes_judge(s, s->least);
		if (s->found->least_bytes < most)
			return rc;
	}
	s->found->least_bytes = least;
	return rc;
}

/* The smallest plan does not fit: drops what makes no difference, so that the message does not name it. */
static int least_tidy(struct host_search *s)
{
	int64_t *const divisors[] = {&s->less.length, &s->less.accumulation, &s->less.batch, &s->less.eval};
	int rc = 0;

	for (size_t i = 0; i < sizeof(divisors) / sizeof(*divisors) && !rc; i++)
		rc = size_restore(s, divisors[i]);
	for (int i = 0; i < CHANGES && !rc; i++) {
		int64_t least = s->found->least_bytes;

		if (!(s->least & 1u << i))
			continue;
		s->found->least_bytes = least + 1;
		rc = changes_judge(s, s->least & ~(1u << i));
		if (s->found->least_bytes > least)
			s->found->least_bytes = least;
	}
	return rc;
}

/* The sizes after so many steps from those of the run. */
static struct smaller sizes_at(const struct host_search *s, int steps)
{
	struct smaller less = SMALLER_NONE;

	while (steps-- > 0 && smaller_next(&less, s->base, s->config, 1))
		;
	return less;
}

/* Finds the largest sizes that fit: each of the row needs less than the one before. The smallest fit. */
static int sizes_bisect(struct host_search *s, unsigned changes)
{
	struct smaller less = SMALLER_NONE;
	int low = 0, high = 0, rc = 0; /* low does not fit, high does */

	while (smaller_next(&less, s->base, s->config, 1))
		high++;
	while (high - low > 1 && !rc) {
		int middle = (low + high) / 2;

		s->less = sizes_at(s, middle);
		s->best_ms = 0;
		rc = changes_fit(s, changes);
		if (s->best_ms)
			high = middle;
		else
			low = middle;
	}
	s->less = sizes_at(s, high);
	s->best_ms = 1;
	return rc;
}

/* Judges all changes at the run's sizes; if these do not fit, at the smallest, and if those do, at the
 * largest that fit. */
static int sizes_judge(struct host_search *s)
{
	unsigned most = changes_most(s);
	int rc = changes_fit(s, most);

	if (rc || s->best_ms)
		return rc;
	while (smaller_next(&s->less, s->base, s->config, 1))
		;
	rc = changes_fit(s, most);
	if (rc || !s->best_ms)
		return rc;
	return sizes_bisect(s, most);
}

/* Restores sizes that were lowered early, if the later ones made that unnecessary. */
static int sizes_raise(struct host_search *s)
{
	int64_t *const divisors[] = {&s->less.eval, &s->less.batch, &s->less.accumulation};
	int rc = 0;

	for (size_t i = 0; i < sizeof(divisors) / sizeof(*divisors) && !rc; i++) {
		int64_t kept = *divisors[i];

		*divisors[i] = 1;
		s->best_ms = 0;
		if (kept > 1)
			rc = changes_fit(s, s->best);
		if (kept > 1 && !s->best_ms)
			*divisors[i] = kept;
	}
	s->best_ms = 1;
	return rc;
}

static int changes_judge_all(struct host_search *s)
{
	int rc = sizes_judge(s);

	if (!rc && !s->best_ms && s->found->least_bytes < INT64_MAX) {
		rc = least_tidy(s);
		return rc ? rc : least_measure(s);
	}
	if (!s->best_ms) /* the device had no room for any */
		s->less = (struct smaller)SMALLER_NONE;
	s->best_ms = 0;
	for (int count = 0; count <= CHANGES && !rc && !s->best_ms; count++)
		for (unsigned changes = 0; changes < 1u << CHANGES && !rc; changes++)
			if (bits_of(changes) == count)
				rc = changes_judge(s, changes);
	return rc || !s->best_ms ? rc : sizes_raise(s);
}

static void changes_text(struct str *out, unsigned changes)
{
	for (int i = 0; i < CHANGES; i++)
		if (changes & 1u << i)
			str_printf(out, " %s", change_texts[i]);
}

int host_search(struct host_found *found, const struct config *c, const struct engine_options *base,
        const struct device_memory *device, const struct machine *machine)
{
	struct host_search s = {.found = found,
	        .config = c,
	        .base = base,
	        .device = device,
	        .machine = machine,
	        .less = SMALLER_NONE};
	struct device_options o = {.pool = base->pool, .remembers = 1};
	int rc;

	*found = (struct host_found){.least_bytes = INT64_MAX};
	o.speed = device->rates.speed;
	rc = device_open(&s.meta, "meta", &o);
	if (!rc && base->policy.inference)
		rc = changes_judge(&s, 0);
	else if (!rc)
		rc = changes_judge_all(&s);
	found->fits = s.best_ms > 0;
	if (!rc && found->fits)
		rc = best_measure(&s);
	if (!found->fits)
		found->bytes = found->least_bytes;
	if (!rc) {
		changes_text(&found->settings, found->fits ? s.best : s.least);
		smaller_text(&found->settings, &s.less, base, c);
		rc = str_check(&found->settings);
	}
	mem_free(s.judged);
	device_close(s.meta);
	return rc;
}

/* To the byte only for programs and for those who want every detail. */
static void host_search_text(struct str *out, const struct host_found *found, const struct config *c)
{
	int is_changed = found->settings.len_bytes > 0;

	if (found->fits)
		str_printf(out, "set%s (then ", is_changed ? found->settings.data : "");
	else
		str_add(out, is_changed ? "smallest plan: " : "no setting needs less than ");
	quantity_bytes(out, found->bytes);
	if (found->fits)
		str_add(out, ")");
	else if (c->json || c->explain)
		str_printf(out, " (%" PRId64 " bytes)", found->bytes);
	if (!found->fits && is_changed)
		str_printf(out, " with%s", found->settings.data);
}

int host_search_refuse(const struct host_memory *host, const struct host_found *found, const struct config *c)
{
	struct str need = {0}, limit = {0}, text = {0};

	quantity_bytes(&need, host->need_bytes);
	quantity_bytes(&limit, host->limit_bytes);
	host_search_text(&text, found, c);
	err_set(ERR_FIT, "needs %s of host memory; %s %s%s%s%s; %s", need.data ? need.data : "",
	        host->limit_is, limit.data ? limit.data : "", host->limit_why ? " (" : "",
	        host->limit_why ? host->limit_why : "", host->limit_why ? ")" : "",
	        text.data ? text.data : "");
	str_free(&need);
	str_free(&limit);
	str_free(&text);
	return ERR_FIT;
}
