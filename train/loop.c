/* Runs the steps of training, and evaluates, samples, logs and saves between them. */
#include "train/evaluate.h"
#include "train/place.h"
#include "train/ranks/replicas.h"
#include "train/run_dir/run_owner.h"
#include "train/sample.h"
#include "train/trace.h"
#include "train/train.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/process.h"
#include "base/quantity.h"
#include "base/size.h"
#include "base/stop_signals.h"
#include "comm/world.h"
#include "placement/options.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NOISE_STREAM = 0x6e6f6973 }; /* of the run's seed; no other use of it has this number */

/* ---- one step ---- */

static int batches_build(struct trainer *t)
{
	struct session_rows *rows = &t->session.train;
	int64_t count = sampler_micro_count(&rows->source.sampler, t->step);
	int rc = 0;

	for (int m = 0; m < count && !rc; m++)
		rc = batch_build(rows->micro[m], &rows->source, t->step, m);
	return rc;
}

static const struct objective *objective_of(const struct trainer *t)
{
	return objective_of_config(t->config).type;
}

/* What the step's loss is a mean over. */
static int64_t loss_count(const struct trainer *t, int64_t targets)
{
	return objective_of(t)->is_mean_of_rows ? batch_step_rows(&t->session.train.source, t->step)
	                                        : targets;
}

/* Writes the trace once. If the run ends early, writes the steps traced so far. */
static void trace_end(struct trainer *t)
{
	char *path;

	if (!json_array_size(t->trace) || world_self()->rank)
		return;
	path = file_join(t->output_dir, "trace.json");
	if (path && !trace_write(t->trace, path))
		log_info("trace written to %s", path);
	else
		log_warn("cannot write the trace: %s", err_text());
	t->trace_spans_left = 0;
	json_array_clear(t->trace);
	mem_free(path);
}

static int step_run(struct trainer *t, struct engine_result *result, int64_t *targets, int64_t *tokens)
{
	struct session_rows *rows = &t->session.train;
	struct host_batch *micro = mem_alloc((size_t)rows->micro_count, sizeof(*micro));
	struct run_span *spans = t->trace_spans_left > 0 ? t->spans : NULL;
	int micro_count = (int)sampler_micro_count(&rows->source.sampler, t->step),
	    rc = micro ? 0 : ERR_NOMEM;
	/* micro-batches of the step with rows, on all ranks */
	double share =
	        1 /
	        (double)((batch_step_rows(&rows->source, t->step) - 1) / rows->source.sampler.batch_rows + 1);
	struct device_stats before, after;

	for (int m = 0; m < micro_count && !rc; m++) {
		host_batch_of(&micro[m], rows->micro[m]);
		micro[m].share = share;
		micro[m].use = session_rows_use(&t->session, rows, t->step);
		micro[m].noise = rng_u64((uint64_t)t->config->seed, NOISE_STREAM, (uint64_t)t->step);
	}
	if (!rc)
		rc = batch_step_counts(targets, tokens, &rows->source, t->step);
	device_get_stats(t->session.device, &before);
	if (!rc)
		rc = engine_step(t->session.engine, result, micro, micro_count, loss_count(t, *targets),
		        lr_schedule_rate(&t->schedule, t->step + 1), spans);
	device_get_stats(t->session.device, &after);
	t->sent.node_bytes = after.sent_node_bytes - before.sent_node_bytes;
	t->sent.network_bytes = after.sent_network_bytes - before.sent_network_bytes;
	t->sent.node_sum += t->sent.node_bytes;
	t->sent.network_sum += t->sent.network_bytes;
	t->sent.steps++;
	mem_free(micro);
	if (!rc && spans)
		rc = trace_add(t->trace, engine_plan(t->session.engine, PLAN_TRAIN), spans);
	if (!rc && spans && --t->trace_spans_left == 0)
		trace_end(t);
	return rc;
}

/* ---- between steps ---- */

/* Time that this step's updates, and the loop before it, waited for a save. */
static int64_t disk_wait_ns(struct trainer *t)
{
	int64_t updates = snapshot_wait_ns(engine_snapshot(t->session.engine));
	int64_t ns = t->disk_wait_ns + updates - t->snapshot_wait_ns;

	t->disk_wait_ns = 0;
	t->snapshot_wait_ns = updates;
	return ns;
}

/* Holds rows of metrics back while output_dir is not in its place, because the file may belong to another
 * run. */
static void rows_hold(struct trainer *t)
{
	metrics_hold(t->metrics, !run_owner_is_there());
}

/* Call after a row was written. */
static void rows_report(struct trainer *t)
{
	if (t->events && run_owner_is_there())
		events_follow(t->events);
}

static int is_due(int64_t step, int64_t every)
{
	return every > 0 && step % every == 0;
}

static void step_log(struct trainer *t, const struct engine_result *result, int64_t count, int64_t targets,
        int64_t tokens, double seconds)
{
	struct device_stats now;
	struct metrics_step row = {
	        .step = t->step,
	        .epoch = sampler_epochs_done(&t->session.train.source.sampler, t->step),
	        .objective = objective_of(t),
	        .means = objective_means_of(objective_of(t), result->sums, count, targets),
	        .grad_norm = result->grad_norm,
	        .learning_rate = t->schedule.learning_rate ? lr_schedule_rate(&t->schedule, t->step) : 0,
	        .target_tokens = targets,
	        .tokens = tokens,
	        .step_ms = 1e3 * seconds,
	        .tokens_per_s = (double)t->interval_tokens / t->interval_seconds,
	        .host_peak_bytes = process_peak_bytes(),
	        .skipped = result->skipped,
	        .sent_node_bytes = t->sent.node_bytes,
	        .sent_network_bytes = t->sent.network_bytes,
	};
	double waited = 0;

	row.data_set = session_rows_set(&t->session, &t->session.train, t->step - 1);
	row.loss = row.means.loss + t->session.model->config.balance * result->balance;
	row.aux_loss = result->balance;
	row.expert_load = result->expert_load;
	row.experts_used = result->experts_used;
	device_get_stats(t->session.device, &now);
	row.pinned_bytes = now.slab_pinned_peak_bytes;
	row.device_peak_bytes = now.arena_touched_bytes + now.reserve_bytes;
	for (int q = 0; q < QUEUE_COUNT; q++) {
		row.wait_ms[q] = 1e-6 * (double)(now.wait_ns[q] - t->before.wait_ns[q]);
		waited += row.wait_ms[q];
	}
	t->before = now;
	row.disk_wait_ms = 1e-6 * (double)disk_wait_ns(t);
	if ((!is_due(t->step, t->log_every) && t->step != t->total_steps) || world_self()->rank)
		return;
	if (t->session.choice.count && t->session.choice.best >= 0)
		row.planned_ms = t->session.choice.list[t->session.choice.best].step_ms;
	row.has_condition = device_get_condition(t->session.device, &row.condition);
	rows_hold(t);
	metrics_write_step(t->metrics, &row);
	rows_report(t);
	t->caller.step(t->caller.context, &row, row.step_ms > 0 ? waited / row.step_ms : 0);
	t->interval_seconds = 0;
	t->interval_tokens = 0;
}

static int rows_evaluate(struct trainer *t)
{
	struct evaluation e;
	struct metrics_eval row = {.step = t->step, .objective = objective_of(t)};
	struct str more = {0};
	int64_t count;
	int rc;

	t->session.is_stopped = t->caller.signal;
	rc = evaluate(&t->session, &t->session.eval, &e, NULL, NULL);
	t->session.is_stopped = NULL;
	t->caller.signal(t->total_steps - t->step); /* what a signal does from here on */
	t->evaluation_due = rc == ERR_STOPPED;      /* the loop sees the signal next, and saves */
	if (rc)
		return t->evaluation_due ? 0 : rc;
	row.epoch = sampler_epochs_done(&t->session.train.source.sampler, t->step);
	row.tokens = e.targets;
	count = row.objective->is_mean_of_rows ? e.units : e.targets;
	row.means = objective_means_of(row.objective, e.sums, count, e.targets);
	row.means.scores = e.scores;
	row.loss = row.means.loss;
	row.perplexity = exp(row.loss);
	row.sets = &e;
	evaluate_say(&more, row.objective, &row.means);
	evaluate_say_sets(&more, &e, "; ");
	log_info("step %" PRId64 ": eval loss %.4f%s", t->step, row.loss, more.data ? more.data : "");
	str_free(&more);
	if (!world_self()->rank) {
		rows_hold(t);
		metrics_write_eval(t->metrics, &row);
		rows_report(t);
	}
	return best_take(t, &row);
}

static int sample(struct trainer *t)
{
	struct session *s = &t->session;
	struct token_list ids = {0};
	enum generation_finish finish;
	int64_t prompt_count;
	char *text = NULL;
	int rc = sample_prompt_ids(s, &ids, t->config->sample_prompt, strlen(t->config->sample_prompt));

	prompt_count = ids.count;
	if (!rc)
		rc = sample_continue(s, &ids, &finish, t->config->max_new_tokens);
	if (rc == ERR_NONFINITE) { /* the next steps decide whether the run ends */
		log_warn("step %" PRId64 ": no sample: %s", t->step, err_text());
		token_list_free(&ids);
		return 0;
	}
	if (!rc && !world_self()->rank) /* only rank 0 logs it */
		rc = tokenizer_decode_more(
		        s->tokenizer, &text, NULL, ids.ids, prompt_count, ids.count, SKIP_SPECIAL_ON);
	if (!rc && text)
		log_info("step %" PRId64 ": %s -> %s", t->step, t->config->sample_prompt, text);
	token_list_free(&ids);
	mem_free(text);
	return rc;
}

static int step_watch(struct trainer *t)
{
	int rc = 0;

	if (is_due(t->step, t->config->check_replicas))
		rc = replicas_check(t->session.engine, t->step);
	if (!rc && t->step == t->begin_step + 1 && t->config->dump_gradients)
		rc = train_dump_gradients(t);
	if (!rc && is_due(t->step, t->eval_every) && t->session.eval.data)
		rc = rows_evaluate(t);
	if (!rc && is_due(t->step, t->sample_every) && !t->evaluation_due)
		rc = sample(t);
	device_get_stats(t->session.device, &t->before); /* the next step did not wait for these */
	world_set_phase("saving", HEARTBEAT_PATIENT);
	if (!rc && t->step < t->total_steps &&
	        (is_due(t->step, t->save_every) || (t->step == 1 && t->config->save_first_step) ||
	                best_saves(t)))
		rc = train_save_begin(t);
	return rc;
}

/* Skipped steps advance data and schedule; too many in a row end the run. */
static int skip_check(struct trainer *t, const struct engine_result *result, int64_t targets)
{
	if (!targets) /* no target: reported before the first step, and not a fault of the numbers */
		return 0;
	t->skipped_in_row = result->skipped ? t->skipped_in_row + 1 : 0;
	if (!t->skipped_in_row)
		return 0;
	log_warn("step %" PRId64 ": %s; skipping the step", t->step, result->nonfinite);
	if (t->skipped_in_row < t->config->nonfinite_limit)
		return 0;
	return world_agree(err_set(ERR_NONFINITE,
	        "%" PRId64
	        " steps in a row were skipped (nonfinite_limit), now because %s; lower learning_rate",
	        t->skipped_in_row, result->nonfinite));
}

/* Logs the bytes that all ranks sent and those that were planned. */
static int sent_report(struct trainer *t)
{
	struct plan_traffic planned;
	struct str text[4] = {{0}};
	double sums[4];
	int rc;

	if (world_self()->size == 1 || !t->sent.steps)
		return 0;
	engine_get_traffic(t->session.engine, &planned);
	sums[0] = (double)t->sent.node_sum / (double)t->sent.steps;
	sums[1] = (double)t->sent.network_sum / (double)t->sent.steps;
	sums[2] = (double)planned.node_bytes;
	sums[3] = (double)planned.network_bytes;
	rc = world_sum(sums, 4);
	for (int i = 0; i < 4 && !rc; i++) {
		quantity_bytes(&text[i], (int64_t)sums[i]);
		rc = str_check(&text[i]);
	}
	if (!rc && !world_self()->rank)
		log_info("all ranks sent %s within nodes and %s between nodes each step; planned: %s and %s",
		        text[0].data, text[1].data, text[2].data, text[3].data);
	for (int i = 0; i < 4; i++)
		str_free(&text[i]);
	return rc;
}

/* Shares events, so that all ranks have the same. *signal: one that any rank got, or 0. *is_lost: output_dir
 * is not in its place. */
static int events_share(const struct trainer *t, int *signal, int *is_lost)
{
	enum { COUNT = STOP_SIGNAL_COUNT };
	double caught[COUNT + 1];
	int rc;

	for (int i = 0; i < COUNT; i++)
		caught[i] = t->caller.signal(t->total_steps - t->step) == stop_signals[i];
	caught[COUNT] = !world_self()->rank && !run_owner_is_there();
	rc = world_sum(caught, COUNT + 1);
	*is_lost = caught[COUNT] > 0;
	*signal = 0;
	for (int i = 0; i < COUNT && !*signal; i++)
		if (caught[i] > 0)
			*signal = stop_signals[i];
	return rc;
}

/* Finds the run's directory after output_dir was moved or removed. Saves a checkpoint if the new place has
 * none. */
static int place_find(struct trainer *t)
{
	int64_t saved = t->saved_step;
	int rc = train_save_wait(t);

	if (!rc) {
		rc = train_place_keep(t);
		rc = rc ? save_trouble_take(&t->save_trouble, t->step, t->saved_step, rc) : 0;
	}
	return !rc && saved >= 0 && t->saved_step < 0 ? train_save_begin(t) : rc;
}

/* The first and the last losses of a run. Single ones differ as rows do. */
enum { TREND_LOSSES = 10 };
struct trend {
	double first[TREND_LOSSES], last[TREND_LOSSES];
	int64_t count;
};

static void trend_add(struct trend *trend, double loss)
{
	if (trend->count < TREND_LOSSES)
		trend->first[trend->count] = loss;
	trend->last[trend->count++ % TREND_LOSSES] = loss;
}

/* Warns if training made the model worse: means of the first and of the last tenth, at most TREND_LOSSES.
 */
static void diverged_warn(const struct trend *trend)
{
	int64_t n = trend->count < 2 ? 0 : min_i64(TREND_LOSSES, trend->count / 10 + 1);
	double first = 0, last = 0;

	for (int64_t i = 0; i < n; i++) {
		first += trend->first[i] / (double)n;
		last += trend->last[(trend->count - 1 - i) % TREND_LOSSES] / (double)n;
	}
	if (last > 1.5 * first + 1)
		log_warn("the mean loss of %" PRId64 " steps went from %.4g to %.4g: the training diverged; "
		         "lower learning_rate",
		        n, first, last);
}

/* The run is at its end and the last steps were skipped, because `why`. If it took none, it has no result. */
static int skipped_end(const struct trainer *t, const struct trend *trend, const char *why)
{
	int64_t skipped = t->skipped_in_row;

	if (!skipped)
		return 0;
	if (!trend->count)
		return world_agree(err_set(ERR_NONFINITE,
		        "all %" PRId64 " step%s skipped, the last one because %s; there is no result; lower "
		        "learning_rate, or look for damage in the model, the adapter and the data",
		        t->step - t->begin_step, t->step - t->begin_step == 1 ? " was" : "s were", why));
	if (!world_self()->rank)
		log_warn("the last %" PRId64
		         " step%s skipped, because %s; the result is that of step %" PRId64
		         "; lower learning_rate",
		        skipped, skipped == 1 ? " was" : "s were", why, t->step - skipped);
	return 0;
}

/* Rows can no longer be read, but the weights are good: saves them. Other ranks are in the step already, so
 * on several ranks the last checkpoint stands. */
static int rows_lost(struct trainer *t, int rc)
{
	struct err why = {0};

	if (world_self()->size > 1 || t->step <= t->saved_step || t->step == 0)
		return rc;
	err_take(&why, rc);
	if (train_save_last(t, TRAIN_PATIENCE_SIGNAL))
		log_warn("%s", err_text());
	return err_give(&why);
}

static int stop(struct trainer *t, int signal)
{
	int rc = train_save_last(t, TRAIN_PATIENCE_SIGNAL);

	trace_end(t);
	return world_agree(
	        rc ? rc
	           : err_set(ERR_STOPPED,
	                     "stopped by SIG%s after step %" PRId64 ", with a checkpoint; to resume:",
	                     sigabbrev_np(signal), t->step));
}

/* Evaluates outside of a step. A signal meanwhile stops the run. */
static int evaluate_and_look(struct trainer *t)
{
	int signal = 0, is_lost, rc = rows_evaluate(t);

	if (!rc && t->evaluation_due)
		rc = events_share(t, &signal, &is_lost);
	return !rc && signal ? stop(t, signal) : rc;
}

int train_run(struct trainer *t)
{
	struct engine_result result = {0};
	struct trend trend = {0};
	int rc = t->evaluation_due && t->session.eval.data ? evaluate_and_look(t) : 0;

	if (rc)
		return rc;
	t->begin_step = t->step;
	if (t->step == t->total_steps || best_ends_run(t))
		return 0;
	t->caller.signal(t->total_steps - t->step);
	if (t->step == 0 && t->sample_at_ends)
		rc = sample(t);
	device_get_stats(t->session.device, &t->before);
	while (t->step < t->total_steps && !best_ends_run(t) && !rc) {
		int64_t targets, tokens, count;
		double begin = clock_now_s(), seconds;
		char phase[32];
		int signal, is_lost;

		snprintf(phase, sizeof(phase), "step %" PRId64, t->step + 1);
		world_set_phase(phase, HEARTBEAT_BRISK);

		rc = batches_build(t);
		if (rc)
			return rows_lost(t, rc);
		rc = step_run(t, &result, &targets, &tokens);
		if (rc)
			return rc;
		seconds = clock_now_s() - begin;
		count = loss_count(t, targets);
		t->step++;
		t->interval_seconds += seconds;
		t->interval_tokens += targets ? tokens : 0; /* a step without targets computes nothing */
		if (targets && !result.skipped)
			trend_add(&trend, result.loss_sum / (double)count);
		step_log(t, &result, count, targets, tokens, seconds);
		rc = skip_check(t, &result, targets);
		if (!rc)
			rc = train_save_poll(t);
		if (!rc)
			rc = step_watch(t);
		if (!rc)
			rc = events_share(t, &signal, &is_lost);
		if (!rc && is_lost && t->step < t->total_steps)
			rc = place_find(t);
		if (!rc && signal && (t->step < t->total_steps || t->evaluation_due))
			return stop(t, signal);
	}
	if (!rc)
		rc = skipped_end(t, &trend, result.nonfinite);
	/* means of a few rows differ more than those of all their tokens, and several losses more still */
	if (!rc && !t->session.train.turns &&
	        (!objective_of(t)->is_mean_of_rows || trend.count >= TREND_LOSSES))
		diverged_warn(&trend);
	if (!rc && t->session.eval.data && !is_due(t->step, t->eval_every))
		rc = evaluate_and_look(t);
	if (!rc && t->sample_at_ends)
		rc = sample(t);
	rc = rc ? rc : sent_report(t);
	trace_end(t);
	return rc;
}
