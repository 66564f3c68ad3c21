/* Makes models and rows for benchmarks. */
#include "bench/bench_model.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/num.h"
#include "device/backend.h"
#include "host/pool.h"
#include "model/families/open.h"
#include "placement/measure.h"
#include "placement/simulate.h"

#include <string.h>

enum { TABLE_COUNT = 1048573, PIECE = 1 << 20 };

int bench_rows_open(struct bench_rows *r, const struct bench_shape *s)
{
	int64_t tokens = s->rows * s->row_tokens, targets = 0;
	int32_t *id, *position, *start, *end, *row, *label;

	r->arrays = mem_alloc((size_t)(6 * tokens), sizeof(*r->arrays));
	if (!r->arrays)
		return ERR_NOMEM;
	id = r->arrays;
	position = id + tokens;
	start = position + tokens;
	end = start + tokens;
	row = end + tokens;
	label = row + tokens;
	for (int64_t i = 0; i < tokens; i++) {
		id[i] = (int32_t)rng_below(1, 2, (uint64_t)i, (uint64_t)s->vocab);
		position[i] = (int32_t)(i % s->row_tokens);
		start[i] = (int32_t)(i - position[i]);
		end[i] = (int32_t)(start[i] + s->row_tokens);
	}
	for (int64_t i = 0; i < tokens; i++)
		if (i + 1 < end[i]) {
			row[targets] = (int32_t)i;
			label[targets++] = id[i + 1];
		}
	r->batch = (struct host_batch){.tokens = tokens,
	        .targets = targets,
	        .documents = s->rows,
	        .id = id,
	        .position = position,
	        .doc_start = start,
	        .doc_end = end,
	        .target_row = row,
	        .own = {label}};
	return 0;
}

void bench_rows_close(struct bench_rows *rows)
{
	mem_free(rows->arrays);
	rows->arrays = NULL;
}

int bench_shape_find(const struct bench_shape **shape, const char *models)
{
	static const struct bench_shape usual = {512, 8, 8, 1408, 4000, 128, 1, 0, 0, 0},
	                                tiny = {64, 4, 4, 128, 500, 32, 1, 0, 0, 0};
	int is_named = models && *models, is_tiny = is_named && !strcmp(models, "tiny");

	*shape = is_tiny ? &tiny : &usual;
	return is_named && !is_tiny
	               ? err_set(ERR_INPUT,
	                         "unknown model '%s'; set models=tiny, or leave models out for the usual one",
	                         models)
	               : 0;
}

struct engine_options bench_engine_options(const struct model *model, const struct bench_rows *rows,
        struct device *device, struct pool *pool, enum adamw_isa isa)
{
	const struct host_batch *b = &rows->batch;

	return (struct engine_options){
	        .device = device,
	        .pool = pool,
	        .isa = isa,
	        .model = model,
	        .wrap = WRAP_TRANSFORMER,
	        .world_size = 1,
	        .policy =
	                {
	                        .offload_params = 1,
	                        .offload_gradients = 1,
	                        .offload_optimizer = 1,
	                        .activations = ACTIVATION_RECOMPUTE,
	                        .order = ORDER_LAYER_MAJOR,
	                        .backward_prefetch = BACKWARD_PREFETCH_PRE,
	                        .forward_prefetch = 1,
	                        .prefetch_units = 2,
	                        .compute_dtype = DTYPE_BF16,
	                        .gradient_dtype = DTYPE_BF16,
	                        .micro_batches = 1,
	                        .rope_positions = b->tokens / b->documents,
	                        .head_rows = model_head_rows(
	                                model->config.V, device_facts_of(device_kind_of(device))->piece),
	                },
	        .train = {.max_tokens = b->tokens, .max_targets = b->targets},
	        .adamw = {0.9, 0.999, 1e-8, 0.01, 1},
	        .max_grad_norm = 1,
	        .skip_nonfinite = 1,
	        .crossing = SLAB_PINNED,
	};
}

int bench_speed_find(
        struct device_speed *speed, const struct engine_options *options, const struct bench_args *args)
{
	int rc;

	*speed = (struct device_speed){0};
	device_register(&backend_meta);
	if (device_facts_of(device_kind_of(options->device))->is_host)
		simulate_host_speed(speed, pool_worker_count(options->pool), args->copy_gbps);
	rc = device_has_bytes(options->device) ? measure_speed(speed, options, 0) : 0;
	return rc == ERR_FIT ? 0 : rc;
}

/* Three layers of linear attention, then one of attention with heads of 256. */
static int hybrid_set(json_t *config, const struct bench_shape *s)
{
	return json_object_update_new(
	        config, json_pack("{s:s, s:i, s:I, s:I, s:i, s:i, s:i}", "model_type", "qwen3_5_text",
	                        "head_dim", 256, "linear_num_key_heads", (json_int_t)s->delta_heads,
	                        "linear_num_value_heads", (json_int_t)s->delta_heads, "linear_key_head_dim",
	                        128, "linear_value_head_dim", 128, "full_attention_interval", 4));
}

int bench_model_open(struct model **model, const struct bench_shape *s)
{
	json_t *config = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "model_type", "llama",
	        "vocab_size", (json_int_t)s->vocab, "hidden_size", (json_int_t)s->hidden, "intermediate_size",
	        (json_int_t)s->intermediate, "num_hidden_layers", (json_int_t)s->layers,
	        "num_attention_heads", (json_int_t)s->heads, "num_key_value_heads",
	        (json_int_t)(s->kv_heads ? s->kv_heads : s->heads), "max_position_embeddings",
	        (json_int_t)(s->row_tokens > 2048 ? s->row_tokens : 2048), "tie_word_embeddings", s->tied);
	int is_made = config && (!s->delta_heads || !hybrid_set(config, s));
	int rc = is_made ? model_open(model, config, "benchmark")
	                 : err_set(ERR_NOMEM, "out of memory for a model");

	json_decref(config);
	return rc;
}

/* Fills both planes of the table twice, so that a piece can begin anywhere. */
static void table_fill(uint16_t *hi, int16_t *lo)
{
	uint64_t random = 1;

	for (int64_t i = 0; i < TABLE_COUNT; i++) {
		uint32_t bits;

		random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		bits = f32_bits((float)(int32_t)(random >> 32) * (0.035f * 0x1p-31f));
		hi[i] = plane_hi(bits);
		lo[i] = plane_lo(bits);
	}
	memcpy(hi + TABLE_COUNT, hi, TABLE_COUNT * sizeof(*hi));
	memcpy(lo + TABLE_COUNT, lo, TABLE_COUNT * sizeof(*lo));
}

static int tensor_write(
        struct engine *engine, int tensor, int64_t count, const uint16_t *hi, const int16_t *lo, int64_t *at)
{
	int rc = 0;

	for (int64_t first = 0; first < count && !rc; first += PIECE) {
		int64_t left = count - first, piece = left < PIECE ? left : PIECE;

		rc = engine_write(engine, tensor, PLANE_HI, first, piece, hi + *at);
		if (!rc)
			rc = engine_write(engine, tensor, PLANE_LO, first, piece, lo + *at);
		*at = (*at + piece) % TABLE_COUNT;
	}
	return rc;
}

static int ones_write(struct engine *engine, int tensor, int64_t count)
{
	uint16_t *hi = mem_alloc((size_t)count, sizeof(*hi));
	int16_t *lo = mem_alloc((size_t)count, sizeof(*lo));
	int rc = hi && lo ? 0 : ERR_NOMEM;

	for (int64_t i = 0; i < count && !rc; i++)
		hi[i] = plane_hi(f32_bits(1));
	if (!rc)
		rc = engine_write(engine, tensor, PLANE_HI, 0, count, hi);
	if (!rc)
		rc = engine_write(engine, tensor, PLANE_LO, 0, count, lo);
	mem_free(hi);
	mem_free(lo);
	return rc;
}

int bench_weights_write(struct engine *engine, const struct model *model)
{
	uint16_t *hi = mem_alloc(2 * TABLE_COUNT, sizeof(*hi));
	int16_t *lo = mem_alloc(2 * TABLE_COUNT, sizeof(*lo));
	int rc = hi && lo ? 0 : ERR_NOMEM;
	int64_t at = 0;

	if (!rc)
		table_fill(hi, lo);
	for (int t = 0; t < model->tensor_count && !rc; t++)
		rc = model->tensors[t].rank == 1
		             ? ones_write(engine, t, model->tensors[t].count)
		             : tensor_write(engine, t, model->tensors[t].count, hi, lo, &at);
	mem_free(hi);
	mem_free(lo);
	return rc;
}
