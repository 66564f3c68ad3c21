/* ferry plan: counts memory, traffic and time of a run with the same plan and executor on the meta device. */
#include "cli/cli.h"
#include "cli/plan_open.h"
#include "cli/plan_summary.h"
#include "cli/plan_tables.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/quantity.h"
#include "comm/world.h"
#include "host/pool.h"
#include "offload/plan_time.h"
#include "placement/estimate.h"
#include "placement/host_search.h"
#include "placement/ranks.h"
#include "placement/simulate.h"
#include "train/adapters.h"
#include "train/devices.h"
#include "train/evaluate.h"
#include "train/ranks/planes.h"
#include "train/trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TIMELINE_COLUMNS = 68 };

/* A step this close to its lower bound needs no advice. */
static const double BOUND_NEAR = 1.05;

struct plan_figures {
	struct engine_memory memory;
	int64_t valley_bytes;  /* on the device between steps, with the memory of libraries */
	int64_t touched_bytes; /* end of the last byte of the arena that the simulated steps used */
	struct estimate estimate;
	struct host_memory host;
	struct host_found helps; /* settings that help if it does not fit */
	int world_size;
	struct simulated step; /* the largest */
	struct plan_sets sets;
	struct plan_time time;
	struct str timeline; /* only for text output */
};

static int trace_save(const char *path, const struct plan *plan, const struct run_span *spans)
{
	json_t *events = json_array();
	int rc = events ? trace_add(events, plan, spans) : ERR_NOMEM;

	if (!rc)
		rc = trace_write(events, path);
	json_decref(events);
	return rc;
}

static int step_find(struct session *s, struct plan_figures *f, const struct engine_options *o)
{
	const struct plan *plan = engine_plan(s->engine, PLAN_TRAIN);
	struct run_span *spans = mem_alloc((size_t)plan->op_count, sizeof(*spans));
	int rc = spans ? simulate_step(&f->step, s->engine, o, spans) : ERR_NOMEM;
	struct device_stats stats;

	device_get_stats(s->device, &stats);
	f->touched_bytes = stats.arena_touched_bytes;
	f->valley_bytes = plan->persistent_bytes[SPACE_DEVICE] + s->device_memory.reserve_bytes;
	if (!rc && s->config->trace_file)
		rc = trace_save(s->config->trace_file, plan, spans);
	if (!rc)
		plan_time_find(&f->time, plan, spans);
	if (!rc)
		rc = plan_sets_find(&f->sets, s, o);
	if (!rc && !s->config->json)
		plan_time_draw(&f->timeline, &f->time, plan, spans, TIMELINE_COLUMNS);
	mem_free(spans);
	return rc;
}

/* Bytes of a checkpoint's planes. */
static int64_t disk_bytes(const struct session *s)
{
	enum adamw_state state = planes_state(s->config);
	int64_t bytes = 0;

	for (int p = 0; p < PLANE_SAVED_COUNT; p++)
		for (int t = 0; t < s->model->tensor_count; t++) {
			const struct model_tensor *x = &s->model->tensors[t];

			if ((!model_tensor_is_of_base(x) || !session_leaves_base(s)) &&
			        planes_of_unit(model_tensor_format(x, DTYPE_F32), x->trainable, state) &
			                1u << p)
				bytes += plane_bytes((enum plane)p, state, x->count);
		}
	return bytes;
}

/* Minimum seconds for this host's part of a checkpoint at the disk's rate; 0: no rate. */
static double disk_s(const struct session *s, const struct plan_figures *f, double gbps)
{
	double share = (double)ranks_of_host(s->config, s->machine, world_self()) / f->world_size;

	return gbps > 0 ? share * (double)disk_bytes(s) / (1e9 * gbps) : 0;
}

static json_t *waits_json(const struct plan_time *t)
{
	json_t *object = json_object();

	for (int q = 0; q < QUEUE_COUNT; q++)
		if (q != QUEUE_COMPUTE)
			json_object_set_new(object, queue_name((enum queue_kind)q),
			        json_real(1e-6 * (double)t->wait_ns[q]));
	return object;
}

static json_t *reserves_json(const struct device_memory *f)
{
	json_t *list = json_array();

	for (int i = 0; i < f->reserve_count; i++)
		json_array_append_new(list, json_pack("{s:s,s:I}", "name", f->reserves[i].name, "bytes",
		                                    (json_int_t)f->reserves[i].bytes));
	return list;
}

static double bound_ratio(const struct plan_figures *f)
{
	return f->step.step_ms / (1e-6 * (double)f->time.bound_ns);
}

/* Seconds to pin memory; 0: nothing is pinned, or the rate is unknown. */
static double pin_s(const struct session *s, const struct plan_figures *f)
{
	double rate = s->device_memory.rates.speed.pin_bytes;

	return rate > 0 ? (double)f->memory.pinned_bytes / rate : 0;
}

static int gains_of(struct gains *gains, const struct session *s, const struct plan_figures *f)
{
	return gains_find(gains,
	        &(struct gains_from){.config = s->config,
	                .asked = &s->asked,
	                .device = &s->device_memory,
	                .machine = s->machine,
	                .now = {.step_ms = f->step.step_ms,
	                        .compute_ms = f->step.queue_ms[QUEUE_COMPUTE],
	                        .tokens_per_s = 1e3 * (double)f->step.tokens / f->step.step_ms,
	                        .host_bytes = f->host.need_bytes,
	                        .device_bytes = f->memory.device_bytes + s->device_memory.reserve_bytes},
	                .keeps_activations = session_keeps_activations(s, &s->asked),
	                .host_limit_bytes = f->host.limit_bytes,
	                .row_count = s->train.data ? dataset_unit_count(s->train.data) : 0});
}

/* Adds what each setting would give. */
static int gains_json(json_t *object, const struct session *s, const struct plan_figures *f)
{
	struct gains gains;
	json_t *list = json_array();
	int rc = gains_of(&gains, s, f);

	for (int i = 0; i < gains.count && !rc; i++) {
		const struct gain *g = &gains.list[i];

		if (json_array_append_new(list,
		            json_pack("{s:s,s:f,s:f,s:I,s:I}", "setting", g->setting, "step_ms", g->step_ms,
		                    "tokens_per_s", g->tokens_per_s, "host_need_bytes",
		                    (json_int_t)g->host_bytes, "device_bytes", (json_int_t)g->device_bytes)))
			rc = ERR_NOMEM;
	}
	if (json_object_set_new(object, "gains", list))
		rc = ERR_NOMEM;
	return rc;
}

static int print_json(const struct session *s, const struct plan_figures *f, const char *why)
{
	const struct engine_memory *m = &f->memory;
	json_t *object = json_pack(
	        "{s:I,s:I,s:I,s:I,s:I,s:f,s:f,s:b,s:I,s:I,s:I,s:I,s:I,s:I,s:i,s:i,s:i,s:I}", "parameters",
	        (json_int_t)s->model->parameter_count, "device_bytes",
	        (json_int_t)(m->device_bytes + s->device_memory.reserve_bytes), "host_bytes",
	        (json_int_t)host_need_bytes(m, s->load_bytes), "pinned_bytes", (json_int_t)m->pinned_bytes,
	        "disk_bytes", (json_int_t)disk_bytes(s), "step_ms", f->step.step_ms, "tokens_per_s",
	        1e3 * (double)f->step.tokens / f->step.step_ms, "fits", f->host.fits, "store_bytes",
	        (json_int_t)m->store_bytes, "staging_bytes", (json_int_t)m->staging_bytes, "h2d_bytes",
	        (json_int_t)m->h2d_bytes, "d2h_bytes", (json_int_t)m->d2h_bytes, "arena_bytes",
	        (json_int_t)m->device_bytes, "reserve_bytes", (json_int_t)s->device_memory.reserve_bytes,
	        "resident_units", m->resident_states, "resident_weight_units", m->resident_weights,
	        "kept_blocks", m->kept_blocks, "spared_bytes", (json_int_t)m->spared_bytes);
	int rc;

	for (int q = 0; object && q < QUEUE_COUNT; q++) {
		char key[32];

		snprintf(key, sizeof(key), "%s_ms", queue_name((enum queue_kind)q));
		json_object_set_new(object, key, json_real(f->step.queue_ms[q]));
	}
	json_object_set_new(object, "collective_ms", json_real(1e-6 * (double)f->time.sent_ns));
	json_object_set_new(object, "exposed_collective_ms", json_real(1e-6 * (double)f->time.exposed_ns));
	json_object_set_new(object, "bound_ms", json_real(1e-6 * (double)f->time.bound_ns));
	json_object_set_new(object, "hosted_blocks", json_integer(m->hosted_blocks));
	json_object_set_new(object, "kept_level", json_string(acts_level_name(m->kept_level)));
	json_object_set_new(object, "hosted_level", json_string(acts_level_name(m->hosted_level)));
	json_object_set_new(object, "op_count", json_integer(f->step.op_count));
	json_object_set_new(object, "op_bytes", json_real(f->step.op_bytes));
	json_object_set_new(object, "bound_by", json_string(f->time.binds));
	if (pin_s(s, f) > 0)
		json_object_set_new(object, "pin_s", json_real(pin_s(s, f)));
	json_object_set_new(object, "save_bytes", json_integer(host_save_bytes(m)));
	json_object_set_new(object, "load_bytes", json_integer(s->load_bytes));
	json_object_set_new(object, "rows_bytes", json_integer(m->rows_bytes));
	json_object_set_new(object, "side_bytes", json_integer(m->side_bytes));
	json_object_set_new(object, "scratch_bytes", json_integer(m->scratch_bytes));
	json_object_set_new(object, "valley_bytes", json_integer(f->valley_bytes));
	json_object_set_new(object, "arena_touched_bytes", json_integer(f->touched_bytes));
	json_object_set_new(object, "host_need_bytes", json_integer(f->host.need_bytes));
	json_object_set_new(object, "host_limit_bytes", json_integer(f->host.limit_bytes));
	if (!f->host.fits && f->helps.settings.len_bytes)
		json_object_set_new(object, f->helps.fits ? "fits_with" : "least_with",
		        json_string(f->helps.settings.data + 1));
	if (!f->host.fits)
		json_object_set_new(object, "host_least_bytes", json_integer(f->helps.bytes));
	json_object_set_new(object, "world_size", json_integer(f->world_size));
	json_object_set_new(
	        object, "host_ranks", json_integer(ranks_of_host(s->config, s->machine, world_self())));
	if (!s->machine)
		json_object_set_new(object, "threads", json_integer(pool_worker_count(s->pool)));
	json_object_set_new(object, "model_type", json_string(s->model->config.model_type));
	json_object_set_new(object, "machine", s->machine ? json_string(s->machine->name) : json_null());
	json_object_set_new(object, "device", json_string(device_facts_of(s->device_memory.kind)->name));
	json_object_set_new(object, "device_why", json_of_text(why));
	json_object_set_new(object, "units", json_integer(engine_units(s->engine)->unit_count));
	json_object_set_new(object, "blocks", json_integer(s->model->config.L));
	json_object_set_new(object, "step_tokens", json_integer(f->step.tokens));
	if (f->sets.count) {
		json_object_set_new(object, "data_sets", plan_sets_json(&f->sets));
		json_object_set_new(object, "mean_step_ms", json_real(f->sets.mean_ms));
	}
	json_object_set_new(object, "bound_ratio", json_real(bound_ratio(f)));
	if (s->machine && s->machine->disk_write_gbps > 0)
		json_object_set_new(
		        object, "disk_write_s", json_real(disk_s(s, f, s->machine->disk_write_gbps)));
	if (s->machine && s->machine->disk_read_gbps > 0)
		json_object_set_new(
		        object, "disk_read_s", json_real(disk_s(s, f, s->machine->disk_read_gbps)));
	json_object_set_new(object, "wait_ms", waits_json(&f->time));
	json_object_set_new(object, "reserves", reserves_json(&s->device_memory));
	json_object_set_new(object, "speed", rates_json(&s->device_memory.rates));
	json_object_set_new(object, "estimate", estimate_json(&f->estimate));
	rc = 0;
	if (object && s->config->details && f->host.fits)
		rc = gains_json(object, s, f);
	if (!rc)
		rc = object ? plan_tables_json(object, s)
		            : err_set(ERR_NOMEM, "out of memory for the result");
	if (!rc)
		rc = cli_print_json(object);
	json_decref(object);
	return rc;
}

static void print_row(const struct config *c, const char *what, int64_t bytes)
{
	struct str text = {0};

	quantity_bytes(&text, bytes);
	cli_tell(c, "  %-32s %14s\n", what, text.data ? text.data : "");
	str_free(&text);
}

static void print_estimate(const struct config *c, const struct estimate *e)
{
	struct str text = {0};

	estimate_text(&text, e);
	cli_tell(c, "%s", text.data ? text.data : "");
	str_free(&text);
}

static void print_seconds(const struct config *c, const char *what, double seconds)
{
	cli_tell(c, "  %-32s %12.1f s\n", what, seconds);
}

static void print_reserve(const struct config *c, const struct device_reserve *reserve)
{
	char what[64];

	snprintf(what, sizeof(what), "  %s", reserve->name);
	print_row(c, what, reserve->bytes);
}

static void print_device(const struct session *s, int64_t arena_bytes)
{
	print_row(s->config, "device", arena_bytes + s->device_memory.reserve_bytes);
	if (s->device_memory.reserve_count)
		print_row(s->config, "  layers, gradients, activations", arena_bytes);
	for (int i = 0; i < s->device_memory.reserve_count; i++)
		print_reserve(s->config, &s->device_memory.reserves[i]);
}

/* Prints what vram_budget keeps on the device, and the copies that this saves. */
static void print_resident(const struct session *s, const struct engine_memory *m)
{
	struct str text = {0};

	device_memory_resident_text(&text, &s->device_memory, m, engine_units(s->engine));
	if (text.data)
		cli_tell(s->config, "%s\n", text.data);
	str_free(&text);
}

static void print_ms(const struct config *c, const char *before, double ms, const char *after)
{
	struct str text = {0};

	quantity_ms(&text, ms);
	cli_tell(c, "%s%s%s", before, text.data ? text.data : "", after);
	str_free(&text);
}

/* Prints how long compute waits for each queue. */
static void print_waits(const struct session *s, const struct plan_figures *f)
{
	const struct plan_policy *p = &s->asked.policy;
	const struct config *c = s->config;
	const char *what = "compute waits for";

	for (int q = 0; q < QUEUE_COUNT; q++) {
		if (f->time.wait_ns[q] * 1000 < f->time.end_ns - f->time.begin_ns)
			continue;
		cli_tell(c, "%s %s", what, queue_name((enum queue_kind)q));
		print_ms(c, " ", 1e-6 * (double)f->time.wait_ns[q], "");
		what = ",";
	}
	if (*what == ',' && bound_ratio(f) > BOUND_NEAR)
		cli_tell(c, "; to reduce it, %s",
		        p->order == ORDER_LAYER_MAJOR ? "raise gradient_accumulation_steps"
		        : p->micro_batches > 1        ? "set schedule=layer_major"
		                                      : "raise per_device_train_batch_size");
	if (*what == ',')
		cli_tell(c, "\n");
}

static void print_time(const struct session *s, const struct plan_figures *f)
{
	const struct config *c = s->config;

	cli_tell(c, "a step on %s: ",
	        s->machine                                        ? s->machine->name
	        : s->device_memory.rates.origin == RATES_MEASURED ? "this machine"
	                                                          : "the assumed machine");
	print_ms(c, "", f->step.step_ms, ", ");
	cli_tell(c, "%.0f tokens/s; busy:", 1e3 * (double)f->step.tokens / f->step.step_ms);
	for (int q = 0; q < QUEUE_COUNT; q++) {
		if (q == QUEUE_COMM &&
		        f->world_size == 1) /* one rank sends nothing; this queue only copies on the device */
			continue;
		cli_tell(c, " %s", queue_name((enum queue_kind)q));
		print_ms(c, " ", f->step.queue_ms[q], "");
	}
	if (f->time.sent_ns) {
		print_ms(c, "; collectives ", 1e-6 * (double)f->time.sent_ns, ", ");
		print_ms(c, "", 1e-6 * (double)f->time.exposed_ns, " exposed");
	}
	cli_tell(c, "\n%s", f->timeline.data ? f->timeline.data : "");
	print_ms(c, "lower bound ", 1e-6 * (double)f->time.bound_ns, ", ");
	cli_tell(c, "limited by %s; the plan takes %.2f times as long\n", f->time.binds, bound_ratio(f));
	print_waits(s, f);
}

/* What is planned for where no machine is described and none could be measured. */
static void print_assumed(const struct session *s)
{
	struct str text = {0};

	if (s->device_memory.rates.origin != RATES_ASSUMED)
		return;
	rates_text(&text, &s->device_memory.rates);
	cli_tell(s->config, "%s%s; to plan for yours, set machine=FILE\n", text.data ? text.data : "",
	        s->device_memory.is_host || s->device_memory.limit_bytes ? ""
	                                                                 : ", GPU memory without a limit");
	str_free(&text);
}

/* Explains the choice of the device. */
static int why_device(struct str *out, const struct session *s)
{
	if (!s->machine)
		return devices_plan_why(out, s->config);
	if (s->machine->gpu_count)
		str_printf(out, "\"%s\" has %" PRId64 " GPU%s", s->machine->name, s->machine->gpu_count,
		        plural_s(s->machine->gpu_count));
	else
		str_printf(out, "\"%s\" has no GPU", s->machine->name);
	return str_check(out);
}

static int print_details(const struct session *s, const struct plan_figures *f, const char *why)
{
	const struct config *c = s->config;
	int rc;

	cli_tell(c, "%d layer%s in %d groups, which are copied together\n", (int)s->model->config.L,
	        plural_s(s->model->config.L), engine_units(s->engine)->unit_count);
	plan_tables_parameters(s);
	if (s->machine && s->machine->gpu_count && f->world_size > s->machine->gpu_count)
		cli_tell(c,
		        "on %" PRId64 " machines of %" PRId64
		        " GPU%s each; for more GPUs in one machine, set gpus in %s\n",
		        (f->world_size + s->machine->gpu_count - 1) / s->machine->gpu_count,
		        s->machine->gpu_count, plural_s(s->machine->gpu_count), c->machine);
	cli_tell(c, "planned for %s: %s\n", s->device_memory.is_host ? "the host" : "a GPU", why);
	print_assumed(s);
	print_device(s, f->memory.device_bytes);
	print_row(c, "  kept between steps", f->valley_bytes);
	print_row(c, "host", host_need_bytes(&f->memory, s->load_bytes));
	print_row(c, "  pinned", f->memory.pinned_bytes);
	if (pin_s(s, f) > 0)
		print_seconds(c, "  time to pin, at the start", pin_s(s, f));
	print_row(c, "  checkpoint write buffer", host_save_bytes(&f->memory));
	print_row(c, "  read buffers, while loading", s->load_bytes);
	if (f->memory.rows_bytes)
		print_row(c, evaluate_bytes(s) ? "  tokenized rows and vectors" : "  tokenized rows",
		        f->memory.rows_bytes);
	print_row(c, "  config and tokenizer files", f->memory.side_bytes);
	if (f->memory.scratch_bytes)
		print_row(c, "  scratch of CPU kernels, at most", f->memory.scratch_bytes);
	print_row(c, "disk for each checkpoint", disk_bytes(s));
	if (c->save_total_limit > 0) /* the oldest is removed when the next is complete */
		print_row(c, "  kept ones and the next, at most", (c->save_total_limit + 1) * disk_bytes(s));
	if (s->machine && s->machine->disk_write_gbps > 0)
		print_seconds(c, "  time to write, at least", disk_s(s, f, s->machine->disk_write_gbps));
	if (s->machine && s->machine->disk_read_gbps > 0)
		print_seconds(c, "  time to read, at least", disk_s(s, f, s->machine->disk_read_gbps));
	print_row(c, "copied to the device each step", f->memory.h2d_bytes);
	print_row(c, "copied from the device each step", f->memory.d2h_bytes);
	plan_tables_traffic(s);
	print_resident(s, &f->memory);
	rc = plan_tables_memory(s);
	if (rc)
		return rc;
	plan_tables_bus(s);
	print_time(s, f);
	return 0;
}

static int print_people(const struct session *s, const struct plan_figures *f, const char *why)
{
	struct gains gains;
	int rc = f->host.fits ? gains_of(&gains, s, f) : 0;

	if (rc)
		return rc;
	plan_summary_print(&(struct plan_summary){.session = s,
	        .host = &f->host,
	        .memory = &f->memory,
	        .step = &f->step,
	        .sets = &f->sets,
	        .gains = f->host.fits ? &gains : NULL,
	        .limited_by = f->time.binds,
	        .checkpoint_bytes = disk_bytes(s),
	        .world_size = f->world_size});
	return s->config->details || s->config->explain ? print_details(s, f, why) : 0;
}

static int estimate_only(const struct config *c)
{
	struct estimate e;
	int rc = estimate_read(&e, c->model);

	if (!rc && c->json) {
		json_t *object =
		        json_pack("{s:s,s:o}", "model_type", e.model_type, "estimate", estimate_json(&e));

		rc = object ? cli_print_json(object) : err_set(ERR_NOMEM, "out of memory for the result");
		json_decref(object);
	} else if (!rc) {
		cli_tell(c, "%s: %s\n", c->model, e.model_type);
		print_estimate(c, &e);
	}
	estimate_free(&e);
	return rc;
}

/* Suggests --estimate for a model that ferry cannot train but can count. */
static int estimate_named(const struct config *c, int unsupported)
{
	struct estimate e;
	struct err said = {0};

	err_take(&said, unsupported);
	if (!estimate_read(&e, c->model))
		snprintf(said.text + strlen(said.text), sizeof(said.text) - strlen(said.text),
		        "; to count its weights alone: ferry plan %.300s --estimate", c->model);
	estimate_free(&e);
	return err_give(&said);
}

/* Explains the choice within the budget, and lists the operations. */
static void print_why(const struct session *s, FILE *out)
{
	struct str text = {0};

	str_add(&text, "steps are simulated with the rates of ");
	rates_text(&text, &s->device_memory.rates);
	str_add_char(&text, '\n');
	choice_explain(&text, &s->choice, engine_units(s->engine));
	str_printf(&text, "the head computes logits of %" PRId64 " rows at once\n",
	        engine_plan(s->engine, PLAN_TRAIN)->policy.head_rows);
	fputs(text.data ? text.data : "", out);
	str_free(&text);
	plan_print(engine_plan(s->engine, PLAN_TRAIN), out);
}

/* Where the device has no room: the parts of the least that is needed. */
static int print_least(struct session *s, int world_size, int rc)
{
	struct engine_memory m;
	struct err why = {0};

	err_take(&why, rc);
	rc = s->least.device && !s->config->json ? engine_open(&s->engine, &s->least) : ERR_FIT;
	if (!rc) {
		plan_summary_print(&(struct plan_summary){.session = s, .world_size = world_size});
		if (s->config->details) {
			cli_tell(s->config, "the smallest plan with these settings:\n");
			engine_get_memory(s->engine, &m);
			print_device(s, m.device_bytes);
			rc = plan_tables_memory(s);
		}
	}
	return rc == ERR_NOMEM ? rc : err_give(&why);
}

int cli_plan(const struct config *c)
{
	struct session s = {0};
	struct plan_figures f = {0};
	struct machine *machine = NULL;
	struct str why = {0};
	int rc;

	if (c->estimate)
		return estimate_only(c);
	rc = c->machine ? machine_read(&machine, c->machine) : 0;
	s.machine = machine;
	if (!rc)
		rc = plan_open_model(&s, c);
	if (rc == ERR_UNSUPPORTED && !s.model)
		rc = estimate_named(c, rc);
	if (rc)
		goto out;
	estimate_of_model(&f.estimate, s.model);
	rc = plan_open_engine(&s, &f.world_size);
	if (rc == ERR_FIT)
		rc = print_least(&s, f.world_size, rc);
	if (!rc)
		rc = session_start_engine(&s);
	if (rc)
		goto out;
	engine_get_memory(s.engine, &f.memory);
	rc = host_memory_find(&f.host, c, session_host_bytes(&s, &f.memory), machine);
	if (rc)
		goto out;
	host_memory_warn(&f.host, c);
	if (c->explain)
		print_why(&s, c->json ? stderr : stdout);
	rc = step_find(&s, &f, &s.asked);
	if (!rc && !f.host.fits)
		rc = host_search(&f.helps, c, &s.asked, &s.device_memory, machine);
	if (!rc)
		rc = why_device(&why, &s);
	if (!rc)
		rc = (c->json ? print_json : print_people)(&s, &f, why.data);
	if (!rc && !f.host.fits)
		rc = host_search_refuse(&f.host, &f.helps, c);
out:
	str_free(&why);
	str_free(&f.helps.settings);
	str_free(&f.timeline);
	session_close(&s);
	machine_free(machine);
	return rc;
}
