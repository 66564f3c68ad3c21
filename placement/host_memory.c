/* Counts the host memory that a run needs, and finds its limit. */
#include "placement/host_memory.h"

#include "placement/ranks.h"

#include "base/log.h"
#include "base/quantity.h"
#include "base/size.h"
#include "checkpoint/file/block_writer.h"
#include "checkpoint/file/load_memory.h"
#include "host/op_scratch.h"
#include "host/pool.h"
#include "host/topology.h"
#include "optim/plane.h"

int64_t host_save_bytes(const struct engine_memory *memory)
{
	return memory->state_bytes ? block_writer_memory_bytes(memory->state_bytes) : 0;
}

enum { WORKERS_DESCRIBED = 16 };

static int64_t saved_bytes(const struct engine_options *o)
{
	int64_t bytes = 0;

	for (int p = 0; p < PLANE_SAVED_COUNT; p++)
		for (int t = 0; t < o->model->tensor_count && planes_of(o->policy.state) & 1u << p; t++)
			bytes += plane_bytes((enum plane)p, o->policy.state, o->model->tensors[t].count);
	return bytes;
}

static int workers_of(const struct engine_options *o, const struct machine *machine)
{
	return machine ? WORKERS_DESCRIBED : pool_worker_count(o->pool);
}

int64_t host_scratch_bytes(const struct engine_options *o, const struct machine *machine)
{
	const struct model_config *c = &o->model->config;
	struct scratch_shape shape = {
	        .tokens = max_i64(o->train.max_tokens, max_i64(o->eval.max_tokens, o->logits.max_tokens)),
	        .vocab = c->V,
	        .is_bf16 = o->policy.compute_dtype == DTYPE_BF16,
	        .has_logit_cap = c->logit_cap > 0,
	};

	for (int64_t l = 0; l < c->L; l++) {
		shape.kv_heads = max_i64(shape.kv_heads, c->block[l].KV);
		shape.head_dim = max_i64(shape.head_dim, c->block[l].D);
		shape.delta_key_dim = max_i64(shape.delta_key_dim, c->block[l].delta.key_dim);
		shape.delta_value_dim = max_i64(shape.delta_value_dim, c->block[l].delta.value_dim);
	}
	return scratch_bytes_most(&shape, workers_of(o, machine));
}

/* What making codes takes while weights load: a piece of a wide matrix for each thread, fp32 and codes; and
 * the scales of two matrices that are quantized when all are there, in both forms. */
static int64_t coding_bytes(const struct model *model, int workers)
{
	int64_t piece = 0, scales = 0;

	for (int t = 0; t < model->tensor_count; t++) {
		const struct model_tensor *m = &model->tensors[t];

		if (!m->kept || !weight_format_is_coded(m->kept))
			continue;
		piece = max_i64(piece, weight_format_granule(m->kept, model_tensor_cols(m)));
		if (m->kept->scale == CODE_SCALE_NESTED)
			scales = max_i64(scales,
			        weight_format_scales(m->kept, model_tensor_rows(m), model_tensor_cols(m)));
	}
	return workers * 5 * piece + 2 * 5 * scales;
}

int64_t host_load_bytes(const struct config *c, const struct engine_options *o, const struct machine *machine)
{
	int shards = o->shard_ranks ? o->shard_ranks : o->world_size;
	int reads_for_all = c->load == CONFIG_LOAD_RANK0_ONLY && o->world_size > 1;
	const struct load_memory load = {
	        .workers = workers_of(o, machine),
	        .tensor_count = o->model->tensor_count,
	        .plane_bytes = reads_for_all ? saved_bytes(o) : saved_bytes(o) / shards,
	        .shards = reads_for_all ? shards : 1,
	        .receivers = reads_for_all ? o->world_size / shards : 0,
	};

	return load_memory_bytes(&load) + coding_bytes(o->model, workers_of(o, machine));
}

int64_t host_need_bytes(const struct engine_memory *memory, int64_t load_bytes)
{
	return memory->store_bytes + memory->staging_bytes + memory->rows_bytes + memory->side_bytes +
	       memory->scratch_bytes + max_i64(host_save_bytes(memory), load_bytes);
}

/* The memory that the ranks of this host may use, and the kind of limit. */
static int host_usable(int64_t *bytes, const char **why, const struct config *c, int ranks)
{
	struct topology t;
	int threads, err = topology_read(&t);

	if (err)
		return err;
	threads = c->verb == VERB_PLAN ? (t.thread_count + ranks - 1) / ranks : t.thread_count;
	topology_find_usable(&t, c->threads > 0 ? (int)c->threads : threads, ranks);
	*bytes = t.usable_bytes;
	*why = t.usable_why;
	return 0;
}

int host_memory_find(
        struct host_memory *host, const struct config *c, int64_t need_bytes, const struct machine *machine)
{
	int ranks = ranks_of_host(c, machine, world_self()), err = 0;

	*host = (struct host_memory){.need_bytes = need_bytes * ranks};
	if (machine) {
		host->there_bytes = machine->host_memory_bytes - machine->host_reserve_bytes;
		host->limit_is = "the machine has";
	} else {
		err = host_usable(&host->there_bytes, &host->limit_why, c, ranks);
		host->limit_is = "this process may use";
	}
	host->limit_bytes = host->there_bytes;
	if (c->ram_budget_bytes != CONFIG_AUTO && c->ram_budget_bytes <= host->there_bytes) {
		host->limit_bytes = c->ram_budget_bytes;
		host->limit_is = "ram_budget is";
		host->limit_why = NULL;
	}
	host->fits = !err && host->need_bytes <= host->limit_bytes;
	return err;
}

void budget_warn(
        const struct config *c, const char *key, int64_t budget_bytes, const char *but, int64_t there_bytes)
{
	struct str budget = {0}, there = {0};

	quantity_bytes(&budget, budget_bytes);
	quantity_bytes(&there, there_bytes);
	log_warn("%s is %s, but %s only %s; ferry uses no more than that", config_where(c, key),
	        budget.data ? budget.data : "", but, there.data ? there.data : "");
	str_free(&budget);
	str_free(&there);
}

void host_memory_warn(const struct host_memory *host, const struct config *c)
{
	if (c->ram_budget_bytes != CONFIG_AUTO && c->ram_budget_bytes > host->there_bytes)
		budget_warn(c, "ram_budget", c->ram_budget_bytes, host->limit_is, host->there_bytes);
}

int64_t budget_smaller(int64_t a, int64_t b)
{
	return b && (!a || b < a) ? b : a;
}

int64_t host_limit_bytes(const struct config *c, const struct machine *machine, int ranks_here)
{
	int64_t budget = c->ram_budget_bytes == CONFIG_AUTO ? 0 : c->ram_budget_bytes, there = 0;
	const char *why;

	if (machine)
		there = machine->host_memory_bytes - machine->host_reserve_bytes;
	else if (!host_usable(&there, &why, c, ranks_here))
		there -= there / 64;
	else
		there = 0;
	return budget_smaller(budget, there) / ranks_here;
}
