/* Runs a plan: streams, events and addresses. It makes no decisions.
 *
 * Mental model. A dock holds the resources that the plans of one rank share on a device: streams, the arena,
 * staging (pinned host memory of the run), the store, and the worker pool of the CPU optimizer. A run binds
 * one plan to a dock. run_execute queues every operation in program order with the plan's waits, and returns
 * when all are done.
 */
#ifndef FERRY_OFFLOAD_RUN_H
#define FERRY_OFFLOAD_RUN_H

#include "host/pool.h"
#include "model/blocks/blocks.h"
#include "offload/snapshot.h"
#include "offload/staging.h"
#include "optim/adamw_options.h"

struct adamw_step; /* optim/adamw_step.h */

struct dock {
	struct device *device;
	struct comm *comm;     /* ranks that share the shards of a unit */
	struct comm *replicas; /* ranks that hold the same shard; NULL: no other rank */
	struct stream *streams[QUEUE_COUNT];
	struct pool *pool; /* of the CPU optimizer; borrowed */
	enum adamw_isa isa;
	struct store *store;
	struct snapshot *snapshot; /* an UPDATE of host planes may have to wait for it */
	dev_addr arena;
	struct staging *staging;
	double micro_times; /* on the meta device each micro-batch's work takes so many times as long; 0: once */
};

/* The arguments of one execution. */
struct run_step {
	const struct host_batch *micro; /* [micro_count], micro_count <= the plan's */
	int micro_count;
	float grad_scale;    /* 1 / what the loss is a mean over, of the step and all ranks */
	int updates_pending; /* 1: there are updates of the step before */
	/* [LR_COUNT], scalars of those updates, or of this step if updates run inside backward; borrowed */
	const struct adamw_step *adamw;
};

/* Times of one operation on the device's clock, for traces. On a virtual clock also its time alone and its
 * bus time (stream_get_work). */
struct run_span {
	int64_t begin_ns, end_ns;
	struct stream_work work;
};

struct run;

/* The plan and the dock must outlive the run. The arena and staging must be at least the plan's spaces. */
int run_open(struct run **run, const struct plan *plan, const struct dock *dock);
void run_close(struct run *run);

/* Blocks until done and returns the first error. spans: NULL, or room for plan->op_count entries (begin -1:
 * skipped). */
int run_execute(struct run *run, const struct run_step *step, struct run_span *spans);

/* Results of the last execution. Meaningless on meta.
 * run_losses: token losses of a micro-batch, or logits, in staging memory.
 * run_norm_add: sum plus the squared gradient norm of this rank's part of a tensor, in double. The sum over
 * all tensors depends on their order; it is not finite if any gradient is not. */
const float *run_losses(const struct run *run, int micro);
const void *run_tally(const struct run *run, int micro); /* of a training plan of a model with experts */
float *run_vectors(const struct run *run);               /* of an objective over vectors; NULL: it has none */
double run_norm_add(const struct run *run, int tensor, double sum);

#endif
