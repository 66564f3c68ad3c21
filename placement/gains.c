/* Tries single settings on the meta clock, for the advice of ferry plan. */
#include "placement/gains.h"

#include "placement/budget.h"
#include "placement/host_memory.h"
#include "placement/simulate.h"

#include "base/err.h"
#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* A gain must be this large to be worth a word, and a larger change this much better than a smaller one. Less
 * host memory may cost a tenth of the speed. */
static const double least_gain = 1.05, clear_gain = 1.1, speed_kept = 0.9;

/* A run that takes less of the host's memory needs no advice to take less. */
static const double much_memory = 0.25;

enum what { MICRO_BATCHES, ROWS, STATE, GRADIENTS, BF16 };

struct search {
	const struct gains_from *from;
	struct device *meta;
	struct gains *gains;
	double most; /* tokens a second, so far */
};

struct trial {
	struct config config;
	struct engine_options options;
	char setting[64];
	struct model model; /* BF16: the run's, with tensors of its own */
};

static void sizes_scale(struct engine_sizes *s, int64_t by)
{
	s->max_tokens *= by;
	s->max_targets *= by;
	s->max_documents *= by;
}

/* Rows are not changed where a row has several texts, or where the data's rows differ in length. */
static int rows_are_alike(const struct trial *t, const struct search *s)
{
	return !s->from->row_count && t->options.policy.objective.type->row_documents <= 1;
}

/* Whether base_format makes codes of frozen weights that the files have as numbers. */
static int is_quantizing(const struct trial *t)
{
	const struct model *model = t->options.model;

	for (int i = 0; i < model->tensor_count && t->config.base_format != CONFIG_BASE_FORMAT_AUTO; i++)
		if (model->tensors[i].kept && model->tensors[i].kept != model->tensors[i].stored)
			return 1;
	return 0;
}

/* Whether products are FP8. */
static int has_coded_products(const struct trial *t)
{
	const struct model *model = t->options.model;

	for (int i = 0; i < model->tensor_count; i++)
		if (model->tensors[i].multiplied)
			return 1;
	return 0;
}

/* Makes the change; 0 if it is in force already, or if the data have too few rows. */
static int trial_make(struct trial *t, const struct search *s, enum what what, int64_t value)
{
	struct config *c = &t->config;
	struct plan_policy *p = &t->options.policy;
	int64_t factor;

	switch (what) {
	case MICRO_BATCHES:
		if (value <= p->micro_batches ||
		        (s->from->row_count &&
		                c->per_device_train_batch_size * value * t->options.world_size >
		                        s->from->row_count))
			return 0;
		p->micro_batches = (int)value;
		c->gradient_accumulation_steps = value;
		snprintf(t->setting, sizeof(t->setting), "gradient_accumulation_steps=%" PRId64, value);
		return 1;
	case ROWS:
		factor = value / c->per_device_train_batch_size;
		if (factor < 2 || value % c->per_device_train_batch_size || !rows_are_alike(t, s))
			return 0;
		sizes_scale(&t->options.train, factor);
		c->per_device_train_batch_size = value;
		snprintf(t->setting, sizeof(t->setting), "per_device_train_batch_size=%" PRId64, value);
		return 1;
	case STATE:
		if (adamw_state_bytes((enum adamw_state)value) >= adamw_state_bytes(p->state))
			return 0;
		p->state = (enum adamw_state)value;
		c->optimizer_state = (int)value;
		snprintf(t->setting, sizeof(t->setting), "optimizer_state=%s",
		        adamw_state_name((enum adamw_state)value));
		return 1;
	case GRADIENTS:
		if (p->compute_dtype != DTYPE_BF16 || p->gradient_dtype == DTYPE_BF16)
			return 0;
		p->gradient_dtype = DTYPE_BF16;
		snprintf(t->setting, sizeof(t->setting), "gradient_dtype=bf16");
		return 1;
	case BF16: /* FP8 products round a base in bf16 too, so they lose as much */
		snprintf(t->setting, sizeof(t->setting), "%s%s%s",
		        has_coded_products(t) ? "compute_dtype=bf16" : "",
		        has_coded_products(t) && is_quantizing(t) ? " " : "",
		        is_quantizing(t) ? "base_format=bf16" : "");
		return *t->setting != 0;
	}
	return 0;
}

static int bf16_make(struct trial *t)
{
	const struct model *model = t->options.model;
	int loses_kept = is_quantizing(t);
	struct model_tensor *tensors = mem_alloc((size_t)model->tensor_count, sizeof(*tensors));

	if (!tensors)
		return ERR_NOMEM;
	for (int i = 0; i < model->tensor_count; i++) {
		tensors[i] = model->tensors[i];
		tensors[i].multiplied = NULL;
		if (loses_kept)
			tensors[i].kept = NULL;
		else if (tensors[i].kept) /* codes of the files, or those that products read */
			tensors[i].kept = tensors[i].stored;
	}
	t->config.compute_dtype = (int)t->options.policy.compute_dtype;
	t->model = *model;
	t->model.tensors = tensors;
	t->options.model = &t->model;
	return 0;
}

/* As session_open_engine does: keeps activations on a CPU, or spends the budget. A run that spends it less
 * roughly is as fast or faster; host memory is said to the byte. */
static int budgets_spend(struct trial *t, enum what what, const struct search *s)
{
	const struct device_memory *device = s->from->device;
	struct choice choice = {.best = -1};
	int rc;

	if (s->from->keeps_activations)
		return budget_keep_activations(&t->options, &t->config, device, s->from->machine);
	rc = budget_try(&choice, &t->options, &t->config, device, s->from->machine,
	        what == STATE || what == GRADIENTS ? BUDGET_AS_A_RUN : BUDGET_ROUGHLY);
	choice_free(&choice);
	return rc;
}

/* Plans and simulates the trial; *fits 0: it does not fit. */
static int trial_measure(struct gain *g, int *fits, struct trial *t, enum what what, const struct search *s)
{
	const struct device_memory *device = s->from->device;
	const struct machine *machine = s->from->machine;
	struct engine *engine = NULL;
	struct engine_memory memory;
	struct host_memory host = {0};
	struct simulated step;
	int rc;

	t->options.scratch_bytes = device->is_host ? host_scratch_bytes(&t->options, machine) : 0;
	rc = budgets_spend(t, what, s);
	if (!rc)
		rc = engine_open(&engine, &t->options);
	*fits = !rc;
	if (!rc) {
		engine_get_memory(engine, &memory);
		rc = host_memory_find(&host, &t->config,
		        host_need_bytes(&memory, host_load_bytes(&t->config, &t->options, machine)) +
		                (device->is_host ? memory.device_bytes : 0),
		        machine);
		*fits = host.fits;
	}
	if (!rc && *fits)
		rc = engine_start(engine);
	if (!rc && *fits)
		rc = simulate_step(&step, engine, &t->options, NULL);
	if (!rc && *fits) {
		*g = (struct gain){.step_ms = step.step_ms,
		        .compute_ms = step.queue_ms[QUEUE_COMPUTE],
		        .tokens_per_s = 1e3 * (double)step.tokens / step.step_ms,
		        .host_bytes = host.need_bytes,
		        .device_bytes = memory.device_bytes + device->reserve_bytes};
		memcpy(g->setting, t->setting, sizeof(g->setting));
	}
	*fits = *fits && !rc;
	engine_close(engine);
	return rc == ERR_FIT ? 0 : rc;
}

/* Whether a step takes clearly longer than its compute, which more micro-batches do not shorten. */
static int is_waiting(const struct gain *g)
{
	return g->step_ms > clear_gain * g->compute_ms;
}

/* Tries a setting. *is_worth: whether a larger value may gain clearly more. */
static int setting_try(int *is_worth, struct search *s, enum what what, int64_t value)
{
	struct gain *g = &s->gains->list[s->gains->count];
	struct trial t = {.config = *s->from->config, .options = *s->from->asked}; /* borrows the texts */
	int fits = 0, rc;

	t.options.device = s->meta;
	t.options.check_plans = 0;
	if (!trial_make(&t, s, what, value))
		return 0;
	rc = what == BF16 ? bf16_make(&t) : 0;
	if (!rc)
		rc = trial_measure(g, &fits, &t, what, s);
	mem_free(t.model.tensors);
	*is_worth = fits && g->tokens_per_s > clear_gain * s->most && is_waiting(g);
	if (fits && what == BF16 && g->tokens_per_s * least_gain >= s->from->now.tokens_per_s)
		s->gains->as_fast = s->gains->count;
	if (fits) {
		s->most = fmax(s->most, g->tokens_per_s);
		s->gains->count++;
	}
	return rc;
}

static int ladder_try(struct search *s, enum what what)
{
	static const int64_t values[] = {4, 16};
	int is_worth = 1, rc = 0;

	for (size_t i = 0; i < sizeof(values) / sizeof(*values) && is_worth && !rc; i++)
		rc = setting_try(&is_worth, s, what, values[i]);
	return rc;
}

static void best_find(struct gains *g)
{
	double most = g->now.tokens_per_s * least_gain;
	double least = (double)g->now.host_bytes / least_gain;

	g->fastest = g->smallest = -1;
	for (int i = 0; i < g->count; i++)
		most = fmax(most, g->list[i].tokens_per_s);
	for (int i = 0; i < g->count; i++) {
		const struct gain *x = &g->list[i];

		if (i == g->as_fast) /* said by itself */
			continue;
		if (g->fastest < 0 && x->tokens_per_s >= g->now.tokens_per_s * least_gain &&
		        x->tokens_per_s * clear_gain >= most)
			g->fastest = i;
		if ((double)x->host_bytes <= least && x->tokens_per_s >= speed_kept * g->now.tokens_per_s) {
			least = (double)x->host_bytes - 1;
			g->smallest = i;
		}
	}
}

int gains_find(struct gains *gains, const struct gains_from *from)
{
	struct search s = {.from = from, .gains = gains, .most = from->now.tokens_per_s};
	struct device_options o = {
	        .pool = from->asked->pool, .speed = from->device->rates.speed, .remembers = 1};
	int is_worth, rc = device_open(&s.meta, "meta", &o);

	*gains = (struct gains){.now = from->now, .fastest = -1, .smallest = -1, .as_fast = -1};
	if (!rc && is_waiting(&from->now))
		rc = ladder_try(&s, MICRO_BATCHES);
	if (!rc && s.most <= clear_gain * from->now.tokens_per_s)
		rc = ladder_try(&s, ROWS);
	if ((double)from->now.host_bytes > much_memory * (double)from->host_limit_bytes) {
		if (!rc)
			rc = setting_try(&is_worth, &s, STATE, ADAMW_STATE_8BIT);
		if (!rc)
			rc = setting_try(&is_worth, &s, GRADIENTS, 0);
	}
	if (!rc)
		rc = setting_try(&is_worth, &s, BF16, 0);
	best_find(gains);
	device_close(s.meta);
	return rc;
}
