/* Prints the eight lines of ferry plan. */
#include "cli/plan_summary.h"

#include "cli/cli.h"
#include "cli/plan_tables.h"

#include "base/quantity.h"
#include "comm/world.h"
#include "model/freeze.h"
#include "placement/ranks.h"

#include <inttypes.h>
#include <string.h>

/* From this gain on, a step of one row is said to waste the machine. */
static const double waste_factor = 1.5;

static const char details_hint[] = " (more: --details)";

static void line_say(const struct config *c, const char *name, struct str *text)
{
	cli_tell(c, "%-9s%s\n", name, text->data ? text->data : "");
	str_free(text);
}

static void verdict_say(const struct plan_summary *p)
{
	const struct session *s = p->session;
	int64_t trained = model_trained_count(s->model), all = s->model->parameter_count;
	struct str text = {0};

	str_printf(&text, "%s %s: %s, ", p->host && p->host->fits ? "fits" : "does not fit",
	        s->machine ? s->machine->name
	        : s->device_memory.is_host || s->device_memory.rates.origin == RATES_MEASURED
	                ? "this machine"
	                : "an assumed machine (machine=FILE describes yours)",
	        s->model->config.model_type);
	quantity_count(&text, (double)all);
	str_add(&text, " parameters");
	if (trained < all) {
		str_add(&text, ", trains ");
		quantity_count(&text, (double)trained);
	}
	if (p->world_size > 1)
		str_printf(&text, ", %d ranks", p->world_size);
	if (!s->config->details && !p->host)
		str_add(&text, details_hint);
	cli_tell(s->config, "%s\n", text.data ? text.data : "");
	str_free(&text);
	plan_tables_warn(s);
}

static void gpu_say(const struct plan_summary *p)
{
	const struct device_memory *d = &p->session->device_memory;
	struct str text = {0};

	if (d->is_host) {
		str_add(&text, "none; the CPU computes");
	} else {
		quantity_bytes(&text, p->memory->device_bytes + d->reserve_bytes);
		if (p->world_size > 1)
			str_add(&text, " for each rank");
		if (d->limit_bytes) {
			str_printf(&text, "; %s ", d->is_budget ? "vram_budget is" : "the GPU has");
			quantity_bytes(&text, d->limit_bytes);
		}
	}
	line_say(p->session->config, "GPU", &text);
}

static void host_say(const struct plan_summary *p)
{
	const struct session *s = p->session;
	int ranks = ranks_of_host(s->config, s->machine, world_self());
	struct str text = {0};

	quantity_bytes(&text, p->host->need_bytes);
	if (ranks > 1)
		str_printf(&text, " for %d ranks", ranks);
	str_printf(&text, "; %s ", p->host->limit_is);
	quantity_bytes(&text, p->host->limit_bytes);
	if (p->memory->pinned_bytes && !s->device_memory.is_host) {
		str_add(&text, "; pinned ");
		quantity_bytes(&text, p->memory->pinned_bytes);
	}
	if (!s->config->details)
		str_add(&text, details_hint);
	line_say(s->config, "host", &text);
}

static void disk_say(const struct plan_summary *p)
{
	const struct config *c = p->session->config;
	struct str text = {0};

	quantity_bytes(&text, p->checkpoint_bytes);
	str_add(&text, " for each checkpoint");
	if (c->save_total_limit > 0) { /* the oldest is removed when the next is complete */
		str_add(&text, "; ");
		quantity_bytes(&text, (c->save_total_limit + 1) * p->checkpoint_bytes);
		str_printf(&text, " for %" PRId64 " and the next", c->save_total_limit);
	}
	line_say(c, "disk", &text);
}

static void seconds_of_ms(struct str *out, double ms)
{
	if (ms < 1000)
		quantity_ms(out, ms);
	else
		str_printf(out, ms < 1e5 ? "%.1f s" : "%.0f s", 1e-3 * ms);
}

/* What limits the step, in a user's words; without what brackets add, which --details prints. */
static void limit_add(struct str *out, const char *binds)
{
	const char *bracket = strstr(binds, " (");

	if (!strcmp(binds, queue_name(QUEUE_H2D)))
		str_add(out, "copies to the GPU");
	else if (!strcmp(binds, queue_name(QUEUE_D2H)))
		str_add(out, "copies from the GPU");
	else
		str_printf(out, "%.*s", bracket ? (int)(bracket - binds) : -1, binds);
}

static void step_say(const struct plan_summary *p)
{
	double ms = p->step->step_ms;
	struct str text = {0};

	seconds_of_ms(&text, ms);
	str_printf(&text, " for %" PRId64 " tokens, limited by ", p->step->tokens);
	limit_add(&text, p->limited_by);
	if (p->session->device_memory.is_host && p->session->device_memory.rates.origin == RATES_ASSUMED)
		str_add(&text, " (assumed rates)");
	line_say(p->session->config, "step", &text);
}

/* Whether a step of one row, the default, uses the machine far less than another step would. */
static int is_wasteful(const struct plan_summary *p)
{
	const struct config *c = p->session->config;
	const struct gains *g = p->gains;

	return c->per_device_train_batch_size * c->gradient_accumulation_steps == 1 && g && g->fastest >= 0 &&
	       g->list[g->fastest].tokens_per_s > waste_factor * g->now.tokens_per_s;
}

static void data_say(const struct plan_summary *p)
{
	const struct session *s = p->session;
	int64_t steps = s->train.data ? s->train.step_count : 0;
	double ms = p->sets->count ? p->sets->mean_ms : p->step->step_ms,
	       tokens = p->sets->count ? p->sets->mean_tokens : (double)p->step->tokens;
	struct str text = {0};

	quantity_count(&text, 1e3 * tokens / ms);
	str_add(&text, " tokens/s: ");
	if (steps > 0) {
		str_printf(&text, "%" PRId64 " step%s take at most ", steps, plural_s(steps));
		quantity_seconds(&text, 1e-3 * ms * (double)steps);
	} else {
		str_add(&text, "1M tokens take ");
		quantity_seconds(&text, 1e3 * ms / tokens);
	}
	if (is_wasteful(p))
		str_add(&text, "; 1 row a step wastes the machine");
	line_say(s->config, "data", &text);
}

static double host_saved_percent(const struct gain *g, const struct gain *now)
{
	return 100 * (1 - (double)g->host_bytes / (double)now->host_bytes);
}

static void faster_say(const struct config *c, const struct gain *g, const struct gain *now, int is_smaller)
{
	double factor = g->tokens_per_s / now->tokens_per_s;
	struct str text = {0};

	str_printf(&text, "%s: ", g->setting);
	quantity_count(&text, g->tokens_per_s);
	str_printf(&text, " tokens/s (%.*fx), ", factor < 1.95 ? 2 : 1, factor);
	if (is_smaller) {
		str_printf(&text, "host memory -%.0f%%", host_saved_percent(g, now));
	} else {
		seconds_of_ms(&text, g->step_ms);
		str_add(&text, " a step");
	}
	line_say(c, "gain", &text);
}

static void smaller_say(const struct config *c, const struct gain *g, const struct gain *now)
{
	struct str text = {0};

	str_printf(&text, "%s: ", g->setting);
	quantity_bytes(&text, g->host_bytes);
	str_printf(&text, " of host memory (-%.0f%%), ", host_saved_percent(g, now));
	seconds_of_ms(&text, g->step_ms);
	str_add(&text, " a step");
	line_say(c, "gain", &text);
}

static void bf16_say(const struct config *c, const struct gain *g)
{
	struct str text = {0};

	str_printf(&text, "%s is as fast and loses no quality: ", g->setting);
	seconds_of_ms(&text, g->step_ms);
	str_add(&text, " a step, ");
	quantity_bytes(&text, g->host_bytes);
	str_add(&text, " of host memory");
	line_say(c, "bf16", &text);
}

static void gains_say(const struct config *c, const struct gains *g)
{
	struct str text = {0};

	if (g->fastest >= 0)
		faster_say(c, &g->list[g->fastest], &g->now, g->smallest == g->fastest);
	if (g->smallest >= 0 && g->smallest != g->fastest)
		smaller_say(c, &g->list[g->smallest], &g->now);
	if (g->as_fast >= 0)
		bf16_say(c, &g->list[g->as_fast]);
	if (g->fastest >= 0 || g->smallest >= 0)
		return;
	str_add(&text, "no single setting gains 5%");
	line_say(c, "gain", &text);
}

void plan_summary_print(const struct plan_summary *p)
{
	verdict_say(p);
	if (!p->host)
		return;
	gpu_say(p);
	host_say(p);
	disk_say(p);
	step_say(p);
	plan_sets_say(p->sets, p->session->config);
	data_say(p);
	if (p->gains)
		gains_say(p->session->config, p->gains);
}
