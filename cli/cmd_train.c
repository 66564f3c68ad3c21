/* ferry train: shows the run's plan, trains, and prints the results. */
#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/row_show.h"
#include "cli/signals.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/quantity.h"
#include "comm/hosts.h"
#include "comm/launch.h"
#include "comm/world.h"
#include "data/turns.h"
#include "model/freeze.h"
#include "placement/host_memory.h"
#include "train/evaluate.h"
#include "train/inputs/data_config.h"
#include "train/train.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* ---- before the run ---- */

static void print_bytes_row(const struct config *c, const char *what, const char *where, int64_t bytes)
{
	struct str text = {0};

	quantity_bytes(&text, bytes);
	cli_tell(c, "  %-34s %-8s %14s\n", what, where, text.data ? text.data : "");
	str_free(&text);
}

/* Prints the memory table: the plan's kinds of buffers, in the order of their first use. */
static void print_buffers(
        const struct trainer *t, const struct plan *p, enum plan_space space, const char *where)
{
	for (int i = 0; i < p->buffer_count; i++) {
		const struct plan_buffer *b = &p->buffers[i];
		int seen = 0;

		if (b->space != space || !b->persistent)
			continue;
		for (int j = 0; j < i && !seen; j++)
			seen = p->buffers[j].space == space && p->buffers[j].persistent &&
			       p->buffers[j].kind == b->kind;
		if (!seen && plan_bytes_of(p, space, b->kind))
			print_bytes_row(t->config, plan_buffer_title(b->kind), where,
			        plan_bytes_of(p, space, b->kind));
	}
}

static void print_parts(const struct trainer *t)
{
	const struct session *s = &t->session;
	const struct plan *p = engine_plan(s->engine, PLAN_TRAIN);
	struct engine_memory m;

	engine_get_memory(s->engine, &m);
	cli_tell(t->config, "memory by part\n");
	print_buffers(t, p, SPACE_STORE, "host");
	print_bytes_row(t->config, "staging buffers", "host", m.staging_bytes);
	print_bytes_row(t->config, "checkpoint write buffer", "host", host_save_bytes(&m));
	print_bytes_row(t->config, "read buffers, while loading", "host", s->load_bytes);
	print_bytes_row(t->config, evaluate_bytes(s) ? "tokenized rows and vectors" : "tokenized rows",
	        "host", m.rows_bytes);
	print_bytes_row(t->config, "config and tokenizer files", "host", m.side_bytes);
	print_bytes_row(t->config, "scratch of CPU kernels, at most", "host", m.scratch_bytes);
	print_buffers(t, p, SPACE_DEVICE, "device");
	print_bytes_row(t->config, "weights, gradients, activations", "device",
	        m.device_bytes - p->persistent_bytes[SPACE_DEVICE]);
	for (int i = 0; i < s->device_memory.reserve_count; i++)
		print_bytes_row(t->config, s->device_memory.reserves[i].name, "device",
		        s->device_memory.reserves[i].bytes);
	print_bytes_row(t->config, "host memory, total", "host", host_need_bytes(&m, s->load_bytes));
	print_bytes_row(t->config, "  pinned", "host", m.pinned_bytes);
	print_bytes_row(
	        t->config, "device memory, total", "device", m.device_bytes + s->device_memory.reserve_bytes);
	print_bytes_row(t->config, "copied to the device each step", "copied", m.h2d_bytes);
	print_bytes_row(t->config, "copied from the device each step", "copied", m.d2h_bytes);
}

/* The totals; their parts are the business of ferry plan and --dry-run. */
static void print_totals(const struct trainer *t)
{
	const struct session *s = &t->session;
	struct engine_memory m;
	struct str text = {0};

	engine_get_memory(s->engine, &m);
	str_add(&text, "memory   ");
	if (!s->device_memory.is_host) {
		quantity_bytes(&text, m.device_bytes + s->device_memory.reserve_bytes);
		str_add(&text, " of GPU memory, ");
	}
	quantity_bytes(&text, session_host_bytes(s, &m));
	str_add(&text, " of host memory");
	if (!s->device_memory.is_host) {
		str_add(&text, " (");
		quantity_bytes(&text, m.pinned_bytes);
		str_add(&text, " pinned)");
	}
	str_add(&text, "\ndisk     ");
	if (!t->config->save_only_model) {
		quantity_bytes(&text, train_checkpoint_bytes(t));
		str_add(&text, " for each checkpoint, ");
	}
	quantity_bytes(&text, train_result_bytes(t));
	str_add(&text, " for the model\n");
	cli_tell(t->config, "%s", text.data ? text.data : "");
	str_free(&text);
}

static void print_plan(const struct trainer *t)
{
	const struct session *s = &t->session;
	struct engine_memory m;
	struct str resident = {0};

	print_totals(t);
	if (t->config->dry_run)
		print_parts(t);
	if (s->device_memory.is_host && t->config->vram_budget_bytes == CONFIG_AUTO)
		return;
	engine_get_memory(s->engine, &m);
	device_memory_resident_text(&resident, &s->device_memory, &m, engine_units(s->engine));
	if (resident.data)
		cli_tell(t->config, "%s\n", resident.data);
	str_free(&resident);
}

/* Prints the effect of cpu_offload. */
static void print_offload(const struct trainer *t)
{
	const struct plan_policy *o = &engine_plan(t->session.engine, PLAN_TRAIN)->policy;
	const char *const names[] = {"params", "gradients", "optimizer", "activations"};
	const int offloaded[] = {o->offload_params, o->offload_gradients, o->offload_optimizer,
	        o->activations == ACTIVATION_OFFLOAD};
	int count = 0;

	for (int i = 0; i < 4; i++)
		if (offloaded[i])
			cli_tell(t->config, "%s%s", count++ ? ", " : "", names[i]);
	cli_tell(t->config, "%s",
	        count                              ? " in host memory"
	        : t->session.device_memory.is_host ? "no offload"
	                                           : "everything on the device");
}

/* Prints the rates that the choice within the budget used. */
static void print_speed(const struct session *s)
{
	struct str text = {0};

	if (s->device_memory.rates.origin == RATES_UNKNOWN)
		return;
	rates_text(&text, &s->device_memory.rates);
	cli_tell(s->config, "speed    %s\n", text.data ? text.data : "");
	str_free(&text);
}

static void mix_say(const struct config *c, const struct session_rows *rows)
{
	struct str mixed = {0};

	if (!rows->mix.set_count)
		return;
	mix_show(&mixed, &rows->mix, rows->data, data_config_drawn(rows->data, rows->packing));
	cli_tell(c, "mix      %s\n", mixed.data ? mixed.data : "");
	str_free(&mixed);
}

/* Data sets that stay apart. */
static void sets_say(const struct session *s)
{
	const struct session_rows *r = &s->train;

	for (int i = 0; r->turns && i < r->data->set_count; i++) {
		const struct data_loss *loss = &s->losses.sets[r->loss_of[i]];
		int64_t rows = dataset_set_unit_count(r->data, i);

		cli_tell(s->config,
		        "set      %s: %s, %" PRId64 " row%s, %" PRId64 " of the %" PRId64
		        " steps of an epoch\n",
		        loss->name, config_text(loss->config, "embedding_loss"), rows, plural_s(rows),
		        turns_set_steps(r->turns, i), turns_per_epoch(r->turns));
	}
}

/* hosts: the ranks of each host, if there are several; else NULL. */
static void print_head(const struct trainer *t, const char *hosts)
{
	const struct session *s = &t->session;
	const struct config *c = t->config;
	const struct session_rows *rows = &s->train;
	const char *drawn = data_config_drawn(rows->data, rows->packing);
	int64_t step_rows = rows->source.sampler.step_rows;
	struct str parameters = {0};

	quantity_count(&parameters, (double)s->model->parameter_count);
	cli_tell(c, "model    %s: %s, %s parameters, %d block%s\n", c->model, s->model->config.model_type,
	        parameters.data ? parameters.data : "", (int)s->model->config.L,
	        plural_s(s->model->config.L));
	if (model_trained_count(s->model) < s->model->parameter_count) {
		struct str trained = {0};

		model_trained_words(&trained, s->model);
		cli_tell(c, "trains   %s\n", trained.data ? trained.data : "");
		str_free(&trained);
	}
	cli_tell(c, "data     %s: %" PRId64 " %s%s, %" PRId64 " tokens, %" PRId64 " targets%s\n", c->data,
	        dataset_unit_count(rows->data), dataset_unit(rows->data),
	        plural_s(dataset_unit_count(rows->data)), rows->data->token_count, rows->data->target_count,
	        c->packing == CONFIG_PACKING_BFD ? ", packed" : "");
	mix_say(c, rows);
	sets_say(s);
	if (s->eval.data)
		cli_tell(c, "eval     %s: %" PRId64 " %s%s, %" PRId64 " tokens, %" PRId64 " targets\n",
		        c->eval_data ? c->eval_data : "held back", dataset_unit_count(s->eval.data),
		        dataset_unit(s->eval.data), plural_s(dataset_unit_count(s->eval.data)),
		        s->eval.data->token_count, s->eval.data->target_count);
	mix_say(c, &s->eval);
	if (world_self()->size > 1)
		cli_tell(c, "ranks    %d (%d on this host), %s: each holds 1/%d of every layer\n",
		        world_self()->size, world_self()->local_size, config_text(c, "sharding_strategy"),
		        engine_units(s->engine)->shard_ranks);
	if (hosts)
		cli_tell(c, "hosts    %s\n", hosts);
	cli_tell(c,
	        "run      %" PRId64 " step%s of %" PRId64 " %.*s%s (batch %" PRId64 " x accumulation %" PRId64
	        "%s), %s compute, ",
	        t->total_steps, plural_s(t->total_steps), step_rows, (int)strlen(drawn) - 1, drawn,
	        plural_s(step_rows), c->per_device_train_batch_size, c->gradient_accumulation_steps,
	        world_self()->size > 1 ? " on each rank" : "", config_text(c, "compute_dtype"));
	print_offload(t);
	cli_tell(c, "\ndevice   %s, %d thread%s\n",
	        s->device_memory.is_host ? "host (CPU)" : device_name(s->device), pool_worker_count(s->pool),
	        plural_s(pool_worker_count(s->pool)));
	print_speed(s);
	str_free(&parameters);
}

/* ---- the command ---- */

static void add_resume(struct str *line, const struct trainer *t)
{
	const char *from = t->is_in_fallback ? t->saved_path : "auto";
	char *path = file_join(t->is_in_fallback ? t->fallback_dir : t->output_dir, "config.yaml");
	struct launch launch;

	launch_read(&launch);
	if (launch.size > 1 && !launch.is_local) /* only the job's script knows the hosts */
		str_printf(line, "%s -n %d ", launch.program, launch.size);
	cli_add_word(line, cli_program());
	str_add(line, path && *path == '-' ? " train ./" : " train ");
	cli_add_word(line, path ? path : "");
	str_add(line, " resume_from_checkpoint=");
	cli_add_word(line, from ? from : "");
	mem_free(path);
}

/* Sets as the last lines what a failed run has saved and the command to resume, for copying. */
static void after_failure(const struct trainer *t, int rc)
{
	const int is_error = rc != ERR_STOPPED;
	struct str line = {0};

	if (is_error && t->result_dir)
		str_printf(&line, "%s holds the result of step %" PRId64 "; only its checkpoint is missing\n",
		        t->result_dir, t->step);
	else if (is_error && t->adapter_dir)
		str_printf(&line,
		        "%s holds the adapter of step %" PRId64 "; only the merged model is missing\n",
		        t->adapter_dir, t->step);
	if (is_error && t->saved_step > 0)
		str_printf(&line, "the last checkpoint is of step %" PRId64 "; to resume:\n", t->saved_step);
	if (is_error && t->saved_step <= 0)
		str_add(&line, "no checkpoint was saved yet");
	else
		add_resume(&line, t);
	cli_say_last(&line);
}

/* Prints the command to use the model in the format that it was trained on, unless that is plain text. */
static void print_use(const struct trainer *t)
{
	const struct dataset *d = t->session.train.data;
	const char *how = d->counts.chats                      ? "chat=on"
	                  : d->format != DATASET_FORMAT_ALPACA ? NULL
	                  : data_config_alpaca(t->config) == DATASET_ALPACA_STANFORD_NEWLINE
	                          ? "data_format=alpaca alpaca_form=stanford_newline prompt=TEXT"
	                          : "data_format=alpaca prompt=TEXT";
	struct str line = {0}, word = {0};

	if (how && t->result_dir) {
		str_printf(&line, "model=%s", t->result_dir);
		cli_add_word(&word, line.data ? line.data : "");
		cli_say(t->config, "to use it: ferry generate %s %s\n", word.data ? word.data : "", how);
	}
	str_free(&word);
	str_free(&line);
}

static int report(const struct trainer *t, double last_loss)
{
	json_t *object;
	int rc;

	if (!t->config->json) {
		cli_tell(t->config, "done: %s holds the result\n", t->result_dir ? t->result_dir : "");
		if (t->session.model->config.adapter_rank)
			cli_tell(t->config, "the adapter is merged there; %s holds it alone\n",
			        t->adapter_dir ? t->adapter_dir : "");
		print_use(t);
		return 0;
	}
	object = json_pack("{s:I,s:s,s:o,s:o*}", "steps", (json_int_t)t->step, "output_dir", t->output_dir,
	        "loss", json_finite(last_loss), "best", best_report(t));
	rc = object ? cli_print_json(object) : ERR_NOMEM;
	json_decref(object);
	return rc;
}

/* What the steps are shown to, and what is kept of them. */
struct shown {
	struct progress *progress;
	double last_loss;
};

static void step_show(void *context, const struct metrics_step *row, double wait_share)
{
	struct shown *s = context;

	s->last_loss = isfinite(row->loss) ? row->loss : s->last_loss;
	progress_show(s->progress, &(struct progress_step){
	                                   .step = row->step,
	                                   .loss = row->loss,
	                                   .grad_norm = row->grad_norm,
	                                   .learning_rate = row->learning_rate,
	                                   .tokens_per_s = row->tokens_per_s,
	                                   .host_bytes = row->host_peak_bytes,
	                                   .device_bytes = row->device_peak_bytes,
	                                   .wait_share = wait_share,
	                                   .objective = row->objective,
	                                   .means = &row->means,
	                                   .row = row,
	                                   .skipped = !row->skipped        ? NULL
	                                              : row->target_tokens ? "not finite"
	                                                                   : "no token to train on",
	                           });
}

static int train_whole(struct trainer *t)
{
	struct shown shown = {.last_loss = NAN};
	int rc = 0;

	if (!world_self()->rank)
		rc = progress_open(&shown.progress, stderr, t->total_steps, PROGRESS_STYLE_AUTO);
	rc = world_agree(rc);
	if (!rc)
		rc = train_start(t);
	if (rc) {
		progress_close(shown.progress);
		return rc;
	}
	if (shown.progress)
		progress_begin(shown.progress, t->step);
	t->caller = (struct train_caller){&shown, step_show, signals_pending};
	signals_start(world_self()->rank ? SIGNALS_QUIET : SIGNALS_SAY);
	rc = train_execute(t);
	progress_close(shown.progress);
	if (cli_exit_code(rc) == CLI_EXIT_USAGE && t->step > t->begin_step)
		rc = err_reword(ERR_IO, "%s", err_text()); /* not wrong usage: it has trained */
	if (rc)
		after_failure(t, rc);
	signals_stop();
	return rc ? rc : report(t, shown.last_loss);
}

/* Prints the first example for --dry-run, or with --json the whole report. */
static int dry_run_report(struct trainer *t)
{
	const struct session *s = &t->session;
	const struct dataset *d = s->train.data;
	struct engine_memory m;
	struct str text = {0};
	json_t *object;
	int rc;

	if (!t->config->json) {
		enum row_style style = isatty(STDOUT_FILENO) ? ROW_STYLE_TERMINAL : ROW_STYLE_PLAIN;

		rc = 0;
		for (int64_t row = 0; row < dataset_set_unit_rows(d, 0) && !rc; row++)
			rc = row_show(&text, d, s->tokenizer, row, style);
		if (!rc)
			cli_say(t->config, "%s", text.data);
		str_free(&text);
		return rc;
	}
	engine_get_memory(s->engine, &m);
	object = json_pack("{s:b,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "dry_run", 1, "steps",
	        (json_int_t)t->total_steps, "parameters", (json_int_t)s->model->parameter_count, "rows",
	        (json_int_t)d->row_count, "tokens", (json_int_t)d->token_count, "target_tokens",
	        (json_int_t)d->target_count, "device_bytes", (json_int_t)m.device_bytes, "host_bytes",
	        (json_int_t)host_need_bytes(&m, s->load_bytes), "pinned_bytes", (json_int_t)m.pinned_bytes);
	rc = object ? cli_print_json(object) : ERR_NOMEM;
	json_decref(object);
	return rc;
}

int cli_train(const struct config *c)
{
	struct str hosts = {0}, command = {0};
	struct trainer t = {.config = c, .saved_step = -1};
	int rc;

	cli_add_command(&command);
	t.command = command.data;
	rc = train_open(&t);

	if (!rc)
		rc = world_hosts(&hosts);
	if (!rc) {
		print_head(&t, hosts.data);
		print_plan(&t);
	}
	str_free(&hosts);
	if (!rc)
		rc = c->dry_run ? dry_run_report(&t) : train_whole(&t);
	if (world_can_free(rc))
		train_close(&t);
	str_free(&command);
	return rc;
}
