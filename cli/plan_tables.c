/* Prints the tables of ferry plan. */
#include "cli/plan_tables.h"

#include "cli/cli.h"

#include "base/err.h"
#include "base/quantity.h"
#include "model/freeze.h"
#include "placement/host_memory.h"
#include "train/adapters.h"

/* ---- parameters ---- */

static void parameters_count(int64_t count[MODEL_PART_COUNT], const struct model *model)
{
	for (int t = 0; t < model->tensor_count; t++)
		count[role_facts[model->tensors[t].role].part] += model->tensors[t].count;
}

static void trained_print(const struct session *s)
{
	struct str text = {0};

	if (model_trained_count(s->model) == s->model->parameter_count)
		return;
	model_trained_words(&text, s->model);
	cli_tell(s->config, "trains %s\n", text.data ? text.data : "");
	str_free(&text);
}

void plan_tables_warn(const struct session *s)
{
	if (model_trained_count(s->model) == s->model->parameter_count)
		return;
	if (!s->import && s->model->storage == FORMAT_COUNT && !session_rounds(s))
		cli_tell(s->config, "frozen weights count as fp32, because %s names no torch_dtype\n",
		        s->config->model);
}

void plan_tables_parameters(const struct session *s)
{
	int64_t count[MODEL_PART_COUNT] = {0};
	const char *comma = "";

	parameters_count(count, s->model);
	cli_tell(s->config, "parameters: ");
	for (int i = 0; i < MODEL_PART_COUNT; i++) {
		struct str text = {0};

		if (!count[i])
			continue;
		quantity_count(&text, (double)count[i]);
		cli_tell(s->config, "%s%s %s", comma, model_part_name((enum model_part)i),
		        text.data ? text.data : "");
		str_free(&text);
		comma = ", ";
	}
	cli_tell(s->config, "%s\n", s->model->config.tied ? "; head and embedding are tied" : "");
	trained_print(s);
}

/* ---- memory ---- */

struct memory_parts {
	int64_t device[PART_COUNT], host[PART_COUNT];
	int64_t gap_bytes, host_gap_bytes;   /* gaps of the layout, in the device's arena and on the host */
	int64_t eval_bytes, host_eval_bytes; /* memory of evaluation and samples beyond that of a step */
	int64_t file_bytes;                  /* on the host, while it saves or loads */
	int64_t side_bytes;                  /* on the host, for config and tokenizer files */
	int64_t scratch_bytes;               /* on the host, for the CPU's kernels */
	int fullest;                         /* index of the operation with the peak */
};

static int memory_find(struct memory_parts *m, const struct session *s)
{
	const struct plan *p = engine_plan(s->engine, PLAN_TRAIN);
	struct engine_memory memory;
	int64_t stage[PART_COUNT];
	int op, rc = plan_parts(m->host, &op, p, SPACE_STORE);

	if (!rc)
		rc = plan_parts(stage, &op, p, SPACE_STAGING);
	if (!rc)
		rc = plan_parts(m->device, &m->fullest, p, SPACE_DEVICE);
	m->gap_bytes = p->space_bytes[SPACE_DEVICE];
	engine_get_memory(s->engine, &memory);
	m->host_gap_bytes = memory.store_bytes + p->space_bytes[SPACE_STAGING];
	m->eval_bytes = memory.device_bytes - m->gap_bytes;
	m->host_eval_bytes = memory.staging_bytes - p->space_bytes[SPACE_STAGING];
	for (int i = 0; i < PART_COUNT && !rc; i++) {
		m->host[i] += stage[i];
		m->gap_bytes -= m->device[i];
		m->host_gap_bytes -= m->host[i];
	}
	m->side_bytes = memory.side_bytes;
	m->scratch_bytes = memory.scratch_bytes;
	m->file_bytes = host_need_bytes(&memory, s->load_bytes) - memory.store_bytes - memory.staging_bytes -
	                memory.rows_bytes - memory.side_bytes - memory.scratch_bytes;
	return rc;
}

static void print_pair(const struct session *s, const char *what, int64_t device, int64_t host)
{
	struct str texts[2] = {0};
	const int64_t bytes[2] = {device, host};

	for (int i = 0; i < 2; i++)
		if (bytes[i])
			quantity_bytes(&texts[i], bytes[i]);
	cli_tell(s->config, "  %-32s %14s %14s\n", what, texts[0].data ? texts[0].data : "",
	        texts[1].data ? texts[1].data : "");
	str_free(&texts[0]);
	str_free(&texts[1]);
}

int plan_tables_memory(const struct session *s)
{
	const struct plan *p = engine_plan(s->engine, PLAN_TRAIN);
	struct memory_parts m;
	int rc = memory_find(&m, s);

	if (rc)
		return rc;
	cli_tell(s->config, "  %-32s %14s %14s\n", "memory by part", "device", "host");
	for (int i = 0; i < PART_COUNT; i++)
		if (m.device[i] || m.host[i])
			print_pair(s, plan_part_name((enum plan_part)i), m.device[i], m.host[i]);
	print_pair(s, "write or read buffers", 0, m.file_bytes);
	print_pair(s, "config and tokenizer files", 0, m.side_bytes);
	if (m.scratch_bytes)
		print_pair(s, "scratch of CPU kernels, at most", 0, m.scratch_bytes);
	if (s->config->explain && (m.gap_bytes || m.host_gap_bytes))
		print_pair(s, "alignment and gaps", m.gap_bytes, m.host_gap_bytes);
	if (m.eval_bytes || m.host_eval_bytes)
		print_pair(s, "evaluation, beyond training", m.eval_bytes, m.host_eval_bytes);
	if (s->config->explain)
		cli_tell(s->config, "  (device memory peaks during operation %d of %d, %s)\n", m.fullest,
		        p->op_count, plan_op_name(p->ops[m.fullest].kind));
	return 0;
}

static json_t *parts_json(const int64_t bytes[PART_COUNT])
{
	json_t *object = json_object();

	for (int i = 0; i < PART_COUNT; i++) {
		char key[32];

		snprintf(key, sizeof(key), "%s_bytes", plan_part_name((enum plan_part)i));
		json_object_set_new(object, key, json_integer(bytes[i]));
	}
	return object;
}

/* ---- the host's memory bus ---- */

struct bus_figures {
	struct plan_memory_traffic bus;
	double parameters; /* parameters of this rank */
	double ms;
};

static void bus_find(struct bus_figures *f, const struct session *s)
{
	struct device_stats stats;

	plan_memory_traffic_find(&f->bus, engine_plan(s->engine, PLAN_TRAIN));
	device_get_stats(s->device, &stats);
	f->parameters = (double)s->model->parameter_count / engine_units(s->engine)->shard_ranks;
	f->ms = 1e3 * (double)f->bus.bytes / stats.host_memory_rate;
}

void plan_tables_bus(const struct session *s)
{
	struct bus_figures f;
	struct str bytes = {0}, ms = {0};

	bus_find(&f, s);
	quantity_bytes(&bytes, f.bus.bytes);
	quantity_ms(&ms, f.ms);
	cli_tell(s->config,
	        "host memory traffic %s each step, %.1f bytes a parameter (weights %.1f, gradients %.1f, "
	        "AdamW %.1f): at least %s\n",
	        bytes.data ? bytes.data : "", (double)f.bus.bytes / f.parameters,
	        (double)f.bus.weight_bytes / f.parameters, (double)f.bus.gradient_bytes / f.parameters,
	        (double)f.bus.update_bytes / f.parameters, ms.data ? ms.data : "");
	str_free(&bytes);
	str_free(&ms);
}

static json_t *bus_json(const struct session *s)
{
	struct bus_figures f;

	bus_find(&f, s);
	return json_pack("{s:I,s:I,s:I,s:I,s:I,s:f,s:f}", "bytes", (json_int_t)f.bus.bytes, "weight_bytes",
	        (json_int_t)f.bus.weight_bytes, "gradient_bytes", (json_int_t)f.bus.gradient_bytes,
	        "update_bytes", (json_int_t)f.bus.update_bytes, "other_bytes", (json_int_t)f.bus.other_bytes,
	        "bytes_per_parameter", (double)f.bus.bytes / f.parameters, "ms", f.ms);
}

/* ---- between ranks ---- */

static void print_sent(const struct session *s, const char *what, int64_t node, int64_t network)
{
	struct str texts[2] = {0};

	quantity_bytes(&texts[0], node);
	quantity_bytes(&texts[1], network);
	cli_tell(s->config, "  %-32s %14s %14s\n", what, node ? texts[0].data : "",
	        network ? texts[1].data : "");
	str_free(&texts[0]);
	str_free(&texts[1]);
}

void plan_tables_traffic(const struct session *s)
{
	struct plan_traffic t;

	engine_get_traffic(s->engine, &t);
	if (!t.node_bytes && !t.network_bytes)
		return;
	cli_tell(s->config, "  %-32s %14s %14s\n", "sent to other ranks each step:", "in its node",
	        "to others");
	print_sent(s, "  weights", t.gather_node_bytes, t.gather_network_bytes);
	print_sent(s, "  gradients", t.sum_node_bytes, t.sum_network_bytes);
}

static json_t *traffic_json(const struct session *s)
{
	const struct plan *p = engine_plan(s->engine, PLAN_TRAIN);
	struct plan_traffic t;

	engine_get_traffic(s->engine, &t);
	return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "h2d_bytes", (json_int_t)p->h2d_bytes,
	        "d2h_bytes", (json_int_t)p->d2h_bytes, "gather_node_bytes", (json_int_t)t.gather_node_bytes,
	        "gather_network_bytes", (json_int_t)t.gather_network_bytes, "sum_node_bytes",
	        (json_int_t)t.sum_node_bytes, "sum_network_bytes", (json_int_t)t.sum_network_bytes,
	        "node_bytes", (json_int_t)t.node_bytes, "network_bytes", (json_int_t)t.network_bytes);
}

int plan_tables_json(json_t *object, const struct session *s)
{
	json_t *parameters = json_object(), *memory;
	int64_t count[MODEL_PART_COUNT] = {0};
	struct memory_parts m;
	int rc = memory_find(&m, s);

	parameters_count(count, s->model);
	for (int i = 0; i < MODEL_PART_COUNT; i++)
		json_object_set_new(parameters, model_part_name((enum model_part)i), json_integer(count[i]));
	memory = rc ? NULL
	            : json_pack("{s:o,s:o,s:I,s:I,s:I,s:I}", "device", parts_json(m.device), "host",
	                      parts_json(m.host), "device_gap_bytes", (json_int_t)m.gap_bytes,
	                      "device_eval_bytes", (json_int_t)m.eval_bytes, "host_gap_bytes",
	                      (json_int_t)m.host_gap_bytes, "host_eval_bytes", (json_int_t)m.host_eval_bytes);
	if (memory) {
		json_object_set_new(json_object_get(memory, "host"), "saving_or_loading_bytes",
		        json_integer(m.file_bytes));
		json_object_set_new(
		        json_object_get(memory, "host"), "side_bytes", json_integer(m.side_bytes));
		json_object_set_new(
		        json_object_get(memory, "host"), "scratch_bytes", json_integer(m.scratch_bytes));
	}
	if (!rc && (json_object_set_new(object, "parameters_by_part", parameters) ||
	                   json_object_set_new(object, "trained_parameters",
	                           json_integer(model_trained_count(s->model))) ||
	                   json_object_set_new(object, "memory", memory) ||
	                   json_object_set_new(object, "fullest_operation", json_integer(m.fullest)) ||
	                   json_object_set_new(object, "operations",
	                           json_integer(engine_plan(s->engine, PLAN_TRAIN)->op_count)) ||
	                   json_object_set_new(object, "bus", bus_json(s)) ||
	                   json_object_set_new(object, "traffic", traffic_json(s))))
		rc = err_set(ERR_NOMEM, "out of memory for the result");
	else if (rc)
		json_decref(parameters);
	return rc;
}
