/* The engine: trains a model on one device, one step at a time, with its state in host memory if needed.
 *
 * Mental model. engine_open builds the plans of the run (offload/plan.h): a training step, its pending
 * updates alone, evaluation, logits. engine_start allocates exactly the memory of these plans. The caller
 * then writes the weights with engine_write. Each engine_step returns the losses and the gradient norm of one
 * step.
 *
 * With clipping or skipping, the updates of a step stay pending until the norm is known. They run under the
 * next step's forward; engine_flush runs them alone. Every function that reads weights (read, eval, logits)
 * flushes first.
 *
 * One thread owns an engine. After an error of the device only engine_close works.
 */
#ifndef FERRY_OFFLOAD_ENGINE_H
#define FERRY_OFFLOAD_ENGINE_H

#include "offload/run.h"

/* max_tokens 0: the engine does not plan memory for this use. */
struct engine_sizes {
	int64_t max_tokens, max_targets; /* of any micro-batch */
	int64_t max_documents;           /* only objectives with arrays by document read it */
};

struct engine_options {
	struct device *device;
	struct pool *pool;
	enum adamw_isa isa;
	const struct model *model;
	enum wrap_policy wrap;
	int64_t min_num_params;
	int rank, world_size;
	/* Number of ranks that divide a unit among them. Ranks n * shard_ranks to (n + 1) * shard_ranks - 1
	 * form a group; the groups are replicas of each other. Must divide world_size; 0: all ranks. */
	int shard_ranks;
	struct plan_policy policy; /* sizes come from `train`, `eval`, `logits` */
	struct engine_sizes train, eval, logits;
	struct adamw_options adamw;
	double loraplus_ratio;        /* rate of LR_LORAPLUS over the usual one; 0: 1 */
	double max_grad_norm;         /* 0: no clipping */
	int skip_nonfinite;           /* 1: a step with gradients that are not finite changes nothing */
	int64_t device_budget_bytes;  /* maximum size of the arena; 0: no limit */
	int check_plans;              /* 1: plan_check on every plan */
	const struct unit_map *units; /* borrowed, of engine_units_open; NULL: the engine makes its own */
	double micro_times;           /* of a simulation: so many micro-batches as each stands for; 0: 1 */
	int places_late; /* 1: memory is a lower bound until engine_place; engine_start does that too */
	/* Other host memory of the caller; counted, never used. */
	int64_t rows_bytes, side_bytes, scratch_bytes;
	enum slab_kind crossing; /* kind of host memory for copies: planes, staging */
};

struct engine_result {
	double loss_sum; /* over the step's targets of all ranks, or what else the objective is a mean over; in
	                    double, in order */
	double sums[OBJECTIVE_SUMS_MAX]; /* the objective's; the first is loss_sum */
	int64_t targets;                 /* of this rank */
	/* With experts, on all ranks: the mean of the micro-batches' losses of even use, without its
	 * coefficient (0: it is off), and what tally_load says of the step (model/blocks/balance.h). */
	double balance, expert_load, experts_used;
	double grad_norm;    /* of all ranks, before clipping */
	int skipped;         /* 1: the step changed nothing: not finite, or no target */
	char nonfinite[256]; /* what was not finite, as the start of a sentence; "" if everything was */
};

/* Memory of the plans, known before anything is allocated. */
struct engine_memory {
	int64_t device_bytes; /* the arena */
	int64_t store_bytes, staging_bytes, pinned_bytes;
	int64_t rows_bytes, side_bytes, scratch_bytes; /* from the options */
	int64_t state_bytes; /* weights and optimizer state in all memories: this rank's part of a checkpoint.
	                        0 without training */
	int64_t h2d_bytes, d2h_bytes;          /* per training step */
	int resident_weights, resident_states; /* units on the device with only their weights, and with all of
	                                          their state */
	int kept_blocks;                       /* blocks that keep their activations, for any reason */
	int hosted_blocks;                     /* those whose activations are in host memory meanwhile */
	enum acts_level kept_level, hosted_level; /* how much of them */
	int64_t spared_bytes; /* copies per step that resident units and kept blocks save; 0 without a budget
	                       */
};

struct engine;

/* The units of engines with these options; the policy's numbers do not matter. unit_map_close. */
int engine_units_open(struct unit_map **units, const struct engine_options *options);

/* Builds the plans; engine_start allocates their memory. ERR_FIT if the arena would exceed
 * device_budget_bytes. Copies options, and borrows the objects that they point to. */
int engine_open(struct engine **engine, const struct engine_options *options);
void engine_close(struct engine *engine);

/* Gives the buffers of all plans their places, once. ERR_NOMEM. */
int engine_place(struct engine *engine);

void engine_get_memory(const struct engine *engine, struct engine_memory *memory);
const struct plan *engine_plan(const struct engine *engine, enum plan_kind kind); /* NULL if there is none */

/* Bytes that this rank sends to other ranks in a training step with all its micro-batches. */
void engine_get_traffic(const struct engine *engine, struct plan_traffic *traffic);
const struct unit_map *engine_units(const struct engine *engine);
const struct store *engine_store(const struct engine *engine); /* both: NULL before engine_start */
const struct staging *engine_staging(const struct engine *engine);

/* Allocates the arena before engine_start does. Between reading what is free and this, another process
 * may have taken some: ERR_NOMEM. */
int engine_reserve(struct engine *engine);

/* Allocates arena, staging memory and store; zeroes device planes; uploads the rotary table. */
int engine_start(struct engine *engine);

/* Writes or reads elements [first, first + count) of a tensor in a plane, in host or device memory. Skips
 * parts that another rank owns. Data has the plane's type (plan_plane_dtype). For planes of scales the call
 * copies one scale per block; `first` and the end must be borders of blocks, or the end of the tensor.
 * Reading flushes. */
int engine_write(
        struct engine *engine, int tensor, enum plane plane, int64_t first, int64_t count, const void *src);
int engine_read(struct engine *engine, int tensor, enum plane plane, int64_t first, int64_t count, void *dst);

/* The same for a range of bytes of codes or scales (unit_map_coded); of the range, only what this rank holds.
 */
int engine_write_coded(
        struct engine *engine, int unit, enum plane plane, struct unit_bytes bytes, const void *src);
int engine_read_coded(struct engine *engine, int unit, enum plane plane, struct unit_bytes bytes, void *dst);

/* Returns the address of these elements, contiguous in host memory. NULL if another rank owns one of them, or
 * if the plane is on the device. Threads may fill the memory before the first step; planes are zero until
 * then. Valid until close. */
void *engine_plane_at(
        const struct engine *engine, int tensor, enum plane plane, int64_t first, int64_t count);

/* The gradient of the last step (before clipping) as fp32. ERR_RANGE if updates ran inside backward. */
int engine_read_gradient(struct engine *engine, int tensor, int64_t first, int64_t count, float *dst);

/* A snapshot of weights and optimizer state after the last step. Another thread reads it while steps go on
 * (offload/snapshot.h). Call after engine_start. Call settle before the owning thread waits for the reader:
 * it runs the updates that the reader waits for, and cancels the snapshot if they fail. */
struct snapshot *engine_snapshot(struct engine *engine);
void engine_snapshot_begin(struct engine *engine);
int engine_snapshot_settle(struct engine *engine);

/* One optimizer step at this learning rate. total_targets: what the loss is a mean over, such as the targets
 * of the step over all ranks; with 0 the step is skipped without an update, and the loss is 0.
 * ERR_NONFINITE only if updates run inside backward. spans as in run_execute. */
int engine_step(struct engine *engine, struct engine_result *result, const struct host_batch *micro,
        int micro_count, int64_t total_targets, double learning_rate, struct run_span *spans);
int engine_flush(struct engine *engine);

/* As if a step had run, so that the next one has its updates too. For simulated devices. */
void engine_assume_step(struct engine *engine);

/* Token losses of one micro-batch, [batch->targets], valid until the next call. */
int engine_eval(struct engine *engine, const float **losses, const struct host_batch *batch);

/* The vectors of the documents of the last engine_eval, with an objective over vectors: rows of *stride
 * floats, each a vector and its facts. The caller may change them; valid until the next call. */
float *engine_vectors(struct engine *engine, int64_t *stride);

/* Logits [batch->targets, V] of the token indices in batch->target_row, valid until the next call; without a
 * target the call only fills the cache.
 *
 * With policy.cache a batch has only the new tokens of its texts; keys and values of earlier tokens stay in
 * the cache. doc_start is the cache row where the token's text begins. doc_end is that row plus the number
 * of the text's tokens so far, including this batch. position is the token's place in the text. New tokens
 * overwrite their rows.
 */
int engine_logits(struct engine *engine, const float **logits, const struct host_batch *batch);

/* Adam's step count: updates so far, including a pending one. Set it after loading a checkpoint. */
int64_t engine_update_count(const struct engine *engine);
void engine_set_update_count(struct engine *engine, int64_t count);

#endif
