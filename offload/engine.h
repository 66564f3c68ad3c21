/* The engine: a model in training on one device, a step at a time.
 *
 * Mental model. engine_open builds the plans that the run needs (a training step, its pending updates alone,
 * evaluation, logits), takes exactly the memory that they say, and binds them. Weights are then written
 * through engine_write. Each engine_step gives the losses and the gradient norm of one step. With clipping or
 * skipping on, a step's updates stay pending until the norm is known and run under the next step's forward;
 * engine_flush runs them alone. Everything that looks at the weights (read, eval, logits) flushes first.
 *
 * One thread owns an engine. After an error of the device only engine_close is of use.
 */
#ifndef FERRY_OFFLOAD_ENGINE_H
#define FERRY_OFFLOAD_ENGINE_H

#include "offload/run.h"

/* max_tokens 0: the engine is never used that way, and no memory is planned for it. */
struct engine_sizes {
	int64_t max_tokens, max_targets; /* of any micro-batch */
};

struct engine_options {
	struct device *device;
	struct pool *pool;
	enum adamw_isa isa;
	const struct model *model;
	enum wrap_policy wrap;
	int64_t min_num_params;
	int rank, world_size;
	/* Ranks that share out a unit: rank / shard_ranks * shard_ranks and those after it; a divisor of
	 * world_size. 0: all. The groups are replicas of each other. */
	int shard_ranks;
	struct plan_policy policy; /* max_tokens and max_targets come from `train` */
	struct engine_sizes train, eval, logits;
	struct adamw_options adamw;
	double max_grad_norm;        /* 0: no clipping */
	int skip_nonfinite;          /* 1: a step whose gradients are not finite changes nothing */
	int64_t device_budget_bytes; /* that the arena may not pass; 0: no limit */
	int check_plans;             /* 1: plan_check on every plan */
	/* What the caller keeps in host memory beside planes; counted, never used. */
	int64_t rows_bytes, side_bytes, scratch_bytes;
	enum slab_kind crossing; /* of host memory that copies read and write: planes, staging */
};

struct engine_result {
	double loss_sum;  /* over the step's targets, all ranks, in double, in order */
	int64_t targets;  /* of this rank */
	double grad_norm; /* before clipping, all ranks */
	int skipped;      /* nothing will change: gradients were not finite, or there was no target */
};

/* Memory that the plans ask for, before anything is allocated. */
struct engine_memory {
	int64_t device_bytes; /* the arena */
	int64_t store_bytes, staging_bytes, pinned_bytes;
	int64_t rows_bytes, side_bytes, scratch_bytes; /* of the options */
	int64_t state_bytes; /* of weights and optimizer state, wherever they live: what a checkpoint holds of
	                        this rank. 0 where nothing is trained */
	int64_t h2d_bytes, d2h_bytes; /* per training step */
	int resident_weights,
	        resident_states; /* units whose weights, and whose whole state, stay on the device */
	int kept_blocks;         /* whose activations policy keeps, too */
	int64_t spared_bytes;    /* that need not cross per step, because of those; 0 without a budget */
};

struct engine;

/* Plans only; engine_start allocates. ERR_FIT when the arena would exceed device_budget_bytes. options are
 * copied, what they point to is borrowed. */
int engine_open(struct engine **engine, const struct engine_options *options);
void engine_close(struct engine *engine);

void engine_get_memory(const struct engine *engine, struct engine_memory *memory);
const struct plan *engine_plan(const struct engine *engine, enum plan_kind kind); /* NULL if there is none */

/* What this rank sends to others in a training step with all its micro-batches. */
void engine_get_traffic(const struct engine *engine, struct plan_traffic *traffic);
const struct unit_map *engine_units(const struct engine *engine);
const struct store *engine_store(const struct engine *engine); /* both: NULL before engine_start */
const struct staging *engine_staging(const struct engine *engine);

/* Takes arena, staging memory and store; zeroes device planes; uploads the rotary table. */
int engine_start(struct engine *engine);

/* Elements [first, first + count) of a tensor in a plane, wherever it lives; parts that another rank owns are
 * left alone. Data in the plane's own type (plan_plane_dtype). The scales of these elements: one for each
 * block; `first` and the end must be borders of blocks (or the tensor's end). Reading flushes. */
int engine_write(
        struct engine *engine, int tensor, enum plane plane, int64_t first, int64_t count, const void *src);
int engine_read(struct engine *engine, int tensor, enum plane plane, int64_t first, int64_t count, void *dst);

/* Where these elements lie in host memory, one behind the other; NULL where any of them is another rank's or
 * the plane has a home on the device. To be filled before the first step, by any number of threads; planes
 * are zero until then. Valid until close. */
void *engine_plane_at(
        const struct engine *engine, int tensor, enum plane plane, int64_t first, int64_t count);

/* The gradient of the last step (before clipping) as fp32. ERR_RANGE when updates ran inside backward. */
int engine_read_gradient(struct engine *engine, int tensor, int64_t first, int64_t count, float *dst);

/* Weights and optimizer state as the last step leaves them, for another thread to read while steps go on
 * (offload/snapshot.h), after engine_start. settle: before the owning thread waits for that reader, runs the
 * updates that it waits for; where they fail the snapshot is cancelled. */
struct snapshot *engine_snapshot(struct engine *engine);
void engine_snapshot_begin(struct engine *engine);
int engine_snapshot_settle(struct engine *engine);

/* One optimizer step at this learning rate. total_targets: of the step over all ranks (0: nothing to learn
 * from, skipped as a step without update: loss 0). ERR_NONFINITE where updates ran inside backward. spans as
 * in run_execute. */
int engine_step(struct engine *engine, struct engine_result *result, const struct host_batch *micro,
        int micro_count, int64_t total_targets, double learning_rate, struct run_span *spans);
int engine_flush(struct engine *engine);

/* Token losses of one micro-batch, [batch->targets], valid until the next call. */
int engine_eval(struct engine *engine, const float **losses, const struct host_batch *batch);

/* Logits [batch->targets, V] of the token indices in batch->target_row, valid until the next call; with no
 * target the call only fills the cache.
 *
 * With policy.cache a batch has the new tokens of its texts only, and keys and values stay: doc_start is
 * the row of the cache where the token's text begins, doc_end that row plus the text's tokens so far, those
 * of this batch included, and position the token's place in the text. What a row held before is gone. */
int engine_logits(struct engine *engine, const float **logits, const struct host_batch *batch);

/* Adam's own count: updates decided so far, a pending one included. Set after loading a checkpoint. */
int64_t engine_update_count(const struct engine *engine);
void engine_set_update_count(struct engine *engine, int64_t count);

#endif
