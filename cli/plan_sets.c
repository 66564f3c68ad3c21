/* Simulates a step of each data set. */
#include "cli/plan_sets.h"

#include "base/quantity.h"
#include "base/size.h"
#include "base/str.h"
#include "cli/cli.h"
#include "data/turns.h"

#include <inttypes.h>

/* The largest micro-batches of a set in the epochs of the run. */
static int limits_find(struct batch_limits *limits, const struct session_rows *r, int set)
{
	struct batch_source source = r->source;
	int64_t epochs = (r->step_count - 1) / turns_per_epoch(r->turns) + 1;
	struct turns *alone;
	int rc = turns_open(&alone, turns_set(r->turns, set), 1, TURNS_FILE, 0);

	if (rc)
		return rc;
	sampler_use(&source.sampler, turns_steps(alone));
	rc = batch_limits_find(limits, &source, epochs * turns_per_epoch(alone));
	turns_close(alone);
	return rc;
}

int plan_sets_find(struct plan_sets *out, struct session *s, const struct engine_options *o)
{
	const struct session_rows *r = &s->train;
	int64_t steps = r->turns ? turns_per_epoch(r->turns) : 0;
	int rc = 0;

	*out = (struct plan_sets){.count = r->turns ? r->data->set_count : 0};
	for (int i = 0; i < out->count && !rc; i++) {
		struct engine_options own = *o;
		struct batch_limits limits = {0};
		double share = (double)turns_set_steps(r->turns, i) / (double)steps;

		rc = limits_find(&limits, r, i);
		/* the run may not come to all rows of a set */
		own.train = (struct engine_sizes){min_i64(limits.tokens, o->train.max_tokens),
		        min_i64(limits.targets, o->train.max_targets),
		        min_i64(limits.docs, o->train.max_documents)};
		if (!rc)
			rc = simulate_step(&out->sets[i].step, s->engine, &own, NULL);
		out->sets[i].name = s->losses.sets[r->loss_of[i]].name;
		out->sets[i].epoch_steps = turns_set_steps(r->turns, i);
		out->mean_ms += share * out->sets[i].step.step_ms;
		out->mean_tokens += share * (double)out->sets[i].step.tokens;
	}
	return rc;
}

void plan_sets_say(const struct plan_sets *p, const struct config *c)
{
	for (int i = 0; i < p->count; i++) {
		struct str time = {0};

		quantity_ms(&time, p->sets[i].step.step_ms);
		cli_tell(c, "set      %s: %s for %" PRId64 " tokens, %" PRId64 " step%s of an epoch\n",
		        p->sets[i].name, time.data ? time.data : "", p->sets[i].step.tokens,
		        p->sets[i].epoch_steps, plural_s(p->sets[i].epoch_steps));
		str_free(&time);
	}
}

json_t *plan_sets_json(const struct plan_sets *p)
{
	json_t *list = json_array();

	for (int i = 0; i < p->count; i++)
		json_array_append_new(list,
		        json_pack("{s:o,s:f,s:I,s:I}", "name", json_of_text(p->sets[i].name), "step_ms",
		                p->sets[i].step.step_ms, "step_tokens", (json_int_t)p->sets[i].step.tokens,
		                "epoch_steps", (json_int_t)p->sets[i].epoch_steps));
	return list;
}
