/* Opens the engine of a session: its plans within the memory that is there, and that memory. */
#include "train/session.h"

#include "train/adapters.h"
#include "train/evaluate.h"
#include "train/inputs/context_length.h"
#include "train/session_parts.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "comm/world.h"
#include "host/pool.h"
#include "placement/budget.h"
#include "placement/device_search.h"
#include "placement/host_search.h"
#include "placement/options.h"
#include "placement/ranks.h"

static int speed_need(struct session *s, const struct engine_options *o)
{
	return rates_find(&s->device_memory.rates, s->config, s->machine, s->device_memory.kind, o);
}

/* Gives a meta device the rates of the planned machine. */
static int clock_set(struct session *s, struct engine_options *o)
{
	struct device_options d = {.pool = s->pool,
	        .threads = pool_worker_count(s->pool),
	        .ranks_per_node = ranks_on_node(s->config, s->machine, world_self(), s->config->ranks),
	        .remembers = 1};
	int rc = speed_need(s, o);

	if (rc)
		return rc;
	d.speed = s->device_memory.rates.speed;
	device_close(s->device);
	s->device = NULL;
	rc = device_open(&s->device, "meta", &d);
	o->device = s->device;
	return rc;
}

/* Bytes of rows in memory. Rows that eval_split held back share the store of the others. */
static int64_t rows_bytes(const struct dataset *d, const struct dataset *other)
{
	if (!d)
		return 0;
	return dataset_memory_bytes(d) - (other && other->store == d->store ? dataset_store_bytes(d) : 0);
}

/* Bytes of the teacher's vectors in all micro-batches. */
static int64_t teacher_bytes(const struct session_rows *r)
{
	return r->data ? r->micro_count * micro_batch_teacher_bytes(&r->limits) : 0;
}

void session_engine_options(const struct session *s, struct engine_options *o)
{
	const struct config *c = s->config;

	options_of_config(
	        o, c, s->machine, s->train.data ? s->train.micro_count : (int)c->gradient_accumulation_steps);
	o->device = s->device;
	o->pool = s->pool;
	o->model = s->model;
	o->side_bytes = side_files_bytes(&s->side);
	o->rows_bytes = rows_bytes(s->train.data, NULL) + rows_bytes(s->eval.data, s->train.data) +
	                evaluate_bytes(s) + teacher_bytes(&s->train) + teacher_bytes(&s->eval);
}

int64_t session_host_bytes(const struct session *s, const struct engine_memory *memory)
{
	return host_need_bytes(memory, s->load_bytes) + (s->device_memory.is_host ? memory->device_bytes : 0);
}

/* ferry plan reports the need itself and is not refused here. */
static int memory_check(struct session *s)
{
	struct host_found found = {0};
	struct engine_memory memory;
	struct host_memory host;
	int rc;

	if (s->config->verb == VERB_PLAN)
		return 0;
	engine_get_memory(s->engine, &memory);
	rc = host_memory_find(&host, s->config, session_host_bytes(s, &memory), s->machine);
	if (!rc)
		host_memory_warn(&host, s->config);
	if (rc || host.fits)
		return rc;
	rc = speed_need(s, &s->asked);
	if (!rc)
		rc = host_search(&found, s->config, &s->asked, &s->device_memory, s->machine);
	if (!rc)
		rc = host_search_refuse(&host, &found, s->config);
	str_free(&found.settings);
	return rc;
}

/* Whether cpu_offload=auto means off: if the CPU computes, copies within its memory have no use. Exception:
 * on several NUMA nodes offload keeps state beside the threads that update it. */
static int auto_is_off(const struct session *s, const struct engine_options *o)
{
	return s->config->cpu_offload == CONFIG_AUTO && s->config->vram_budget_bytes == CONFIG_AUTO &&
	       s->device_memory.is_host && (o->policy.inference || !s->has_nodes);
}

int session_keeps_activations(const struct session *s, const struct engine_options *o)
{
	const struct config *c = s->config;

	return auto_is_off(s, o) && !o->policy.inference && c->activations == CONFIG_ACTIVATIONS_AUTO &&
	       c->ram_budget_bytes == CONFIG_AUTO;
}

enum { SECOND_LEAVES = 20 }; /* one part in this many of the memory that is free */

/* What a plan may use of the memory that is free now: all of it, or less after some of it was refused. */
static void device_memory_again(struct session *s, const struct engine_options *o, int is_second)
{
	const struct machine_rates rates = s->device_memory.rates;

	device_memory_find(&s->device_memory, s->config, o, s->machine);
	s->device_memory.rates = rates; /* measured once */
	if (is_second)
		s->device_memory.limit_bytes -= s->device_memory.limit_bytes / SECOND_LEAVES;
}

static int engine_open_in(struct session *s, const struct engine_options *options, int is_second)
{
	struct engine_options o = *options;
	int rc;

	device_memory_again(s, &o, is_second);
	if (auto_is_off(s, &o))
		o.policy.offload_params = o.policy.offload_gradients = o.policy.offload_optimizer = 0;
	o.policy.head_rows = device_memory_head_rows(&s->device_memory, s->model);
	o.scratch_bytes = s->device_memory.is_host ? host_scratch_bytes(&o, s->machine) : 0;
	o.device_budget_bytes = device_memory_budget(&s->device_memory);
	if (!is_second && options_keep_nothing(&o))
		log_warn("%s: no layer of this model has such activations, so all are computed again; set "
		         "activations=keep to keep them",
		        config_said(s->config, "activations"));
	rc = adamw_isa_find(&o.isa, config_text(s->config, "isa"));
	if (!rc && !device_has_bytes(s->device))
		rc = clock_set(s, &o);
	s->asked = o;
	s->load_bytes = host_load_bytes(s->config, &o, s->machine);
	if (!rc && session_keeps_activations(s, &o))
		rc = budget_keep_activations(&o, s->config, &s->device_memory, s->machine);
	if (!rc)
		rc = o.device_budget_bytes < 0 ? ERR_FIT : session_spend(s, &o);
	if (!rc)
		rc = engine_open(&s->engine, &o);
	if (!rc)
		rc = ranks_check_plans(s->engine);
	if (rc == ERR_FIT) {
		rc = speed_need(s, &s->asked);
		return rc ? rc
		          : device_search_refuse(
		                    &s->least, &s->device_memory, s->config, &s->asked, s->machine);
	}
	return rc ? rc : memory_check(s);
}

/* Takes the GPU's memory at once, so that no other process takes it while weights are read. Sets *is_refused
 * where a rank found that one had taken some already. */
static int memory_take(struct session *s, int *is_refused)
{
	double refused = 0;
	int rc = 0;

	*is_refused = 0;
	if (s->config->verb == VERB_PLAN || s->device_memory.is_host || !device_has_bytes(s->device))
		return 0;
	rc = engine_reserve(s->engine);
	refused = rc == ERR_NOMEM;
	*is_refused = !world_sum(&refused, 1) && refused > 0;
	return *is_refused && !rc ? err_set(ERR_NOMEM, "another rank's GPU memory was taken") : rc;
}

/* Ranks on other machines find other things, but plan alike. */
static int ranks_meet(struct session *s)
{
	int on_gpu = device_kind_of(s->device) == DEVICE_CUDA, rc;
	double sums[] = {pool_node_count(s->pool) > 1, on_gpu};

	rc = world_sum(sums, 2);
	s->has_nodes = sums[0] > 0;
	if (!rc && !on_gpu && sums[1] > 0)
		rc = err_set(ERR_INPUT,
		        "no GPU here, but other ranks have one; start ranks only on machines with a GPU, or "
		        "set device=host");
	return world_agree(rc);
}

int session_open_engine(struct session *s, const struct engine_options *options)
{
	struct engine_options o = *options;
	int here = ranks_on_node(s->config, s->machine, world_self(), o.world_size), is_refused = 1;
	int rc = context_length_check(&s->model->config, s->config, s->train.data, s->eval.data, &o);

	adapters_find_base(s);
	if (!rc)
		rc = ranks_meet(s);
	if (!rc)
		rc = ranks_strategy(&o, s->config, world_self(), o.world_size, here);
	if (rc)
		return rc;
	for (int turn = 0; turn < 2 && is_refused; turn++) {
		if (turn) {
			log_warn("%s; planning again with what is free now", err_text());
			engine_close(s->engine);
			s->engine = NULL;
			choice_free(&s->choice);
		}
		o.device = s->device;
		rc = engine_open_in(s, &o, turn);
		if (rc)
			return rc;
		rc = memory_take(s, &is_refused);
	}
	return rc;
}
