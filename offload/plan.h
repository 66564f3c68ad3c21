/* The plan: one optimizer step as data.
 *
 * Mental model. A plan is a list of operations in program order: running them one after the other gives the
 * right result. Each operation runs on a queue; queues run at the same time. An operation names the buffers
 * that it reads and writes. Three things follow from these names: the lifetime of every buffer, its place in
 * one arena, and the waits between queues:
 *
 *     plan_build   lists operations and buffers            (plan_build.c and files that it calls)
 *     plan_place   gives each buffer its offset             (plan_layout.c)
 *     plan_order   derives the fewest waits that order     (plan_order.c)
 *                  any two operations on the same bytes
 *     plan_check   proves this order independently         (plan_check.c)
 *     run          executes the plan, without decisions    (run.h)
 *
 * The policy (prefetch, schedule, activations, offload) only changes which operations are listed and where.
 * The fewest waits are as safe as more: the others are implied.
 *
 * The forward of a training plan runs beside the updates of the step before, when its gradient norm is
 * known. Units update in forward order, and each unit's FETCH waits only for its own UPDATE. This gives exact
 * clipping without a stall.
 */
#ifndef FERRY_OFFLOAD_PLAN_H
#define FERRY_OFFLOAD_PLAN_H

#include "device/device.h"
#include "model/acts_level.h"
#include "objective/objective.h"
#include "offload/unit.h"
#include "optim/plane.h"

#include <stdio.h>

enum activation_policy { ACTIVATION_KEEP, ACTIVATION_RECOMPUTE, ACTIVATION_OFFLOAD };
enum visit_order { ORDER_LAYER_MAJOR, ORDER_MICRO_BATCH_MAJOR };
enum backward_prefetch { BACKWARD_PREFETCH_PRE, BACKWARD_PREFETCH_POST, BACKWARD_PREFETCH_NONE };

/* Where a plane lives from step to step. Nothing lives on a disk yet. */
enum home { HOME_DEVICE, HOME_HOST, HOME_DISK, HOME_NONE };

struct plan_policy {
	int inference; /* 1: only the planes that forward reads; EVAL and LOGITS plans only */
	enum home offload_params, offload_gradients, offload_optimizer; /* where they live; DISK is refused */
	/* Number of offloaded units that stay on the device nevertheless: with only their weights, and with
	 * all of their state. plan_residency.c chooses the units. Weights stay only if that saves a fetch. */
	int resident_weights, resident_states;
	/* Number of blocks' groups, from the head on, that keep activations regardless of `activations`. */
	int kept_blocks;
	/* Number of blocks' groups whose activations go to host memory after forward and come back before
	 * backward, so that they are not computed again. They are spread evenly over those that backward
	 * reaches and that do not keep them; experts in parts are not among them. */
	int hosted_blocks;
	/* How much of their activations the kept blocks have, and the hosted ones (model/acts_level.h). The
	 * rest is computed again. */
	enum acts_level kept_level, hosted_level;
	enum activation_policy activations;
	enum visit_order order;
	enum backward_prefetch backward_prefetch;
	int forward_prefetch;   /* 1: forward fetches weights of later blocks ahead */
	int prefetch_units;     /* how many visits ahead, >= 1: a visit is a unit in one direction */
	int update_in_backward; /* 1: UPDATE follows RETURN at once (no clipping, no skipping) */
	int discard; /* 1: a DISCARD follows the last use of each transient buffer (tests on the host device)
	              */
	enum dtype compute_dtype, gradient_dtype;
	/* With several ranks: dtype of gradient sums over ranks; number of groups that hold the same shards;
	 * keep_gathered 1: gathered weights stay from forward to backward. */
	enum dtype reduce_dtype;
	int replicas; /* 0 means 1 */
	int replica;  /* the group of shards that this rank is in */
	int keep_gathered;
	enum adamw_state state;          /* format of m and v (optim/state_format.h) */
	int micro_batches;               /* per step, >= 1 */
	int64_t max_tokens, max_targets; /* of any micro-batch */
	int64_t max_documents; /* of any micro-batch; only objectives with arrays by document read it */
	struct objective_use objective;
	double neftune_alpha; /* training: noise of embeddings (device/op_noise.h) */
	int has_rows;         /* 1: micro-batches have arrays for rows that cross alone. plan_list sets it. */
	int has_noise; /* 1: micro-batches have keys of noise. The engine sets it where something reads them. */
	int64_t rope_positions; /* rows of the rotary table: the longest document */
	int64_t head_rows;      /* rows of logits at once; 0: as many as on the host */
	/* The KV cache of each block. LOGITS plans keep it between calls. Without rows a token sees only its
	 * micro-batch. */
	struct cache_shape cache;
};

enum plan_kind {
	PLAN_TRAIN,  /* updates of the step before, forward, backward, norm */
	PLAN_UPDATE, /* only the updates */
	PLAN_EVAL,   /* forward and loss of one micro-batch */
	PLAN_LOGITS, /* forward of one micro-batch, logits of max_targets chosen rows */
};

/* The operations: X(name, queue, what it does). plan_print lists those of a plan. */
#define PLAN_OPS(X)                                                                                          \
	X(LOAD, "h2d", "a micro-batch's index arrays")                                                       \
	X(PICK, "cpu",                                                                                       \
	        "rows of a table that a micro-batch's tokens use, in order of their ids: planes -> DST")     \
	X(FETCH, "h2d", "own shard of a unit's plane, or picked rows: SRC -> DST")                           \
	X(COPY, "comm", "own shard of a unit, from one device buffer to another: SRC -> DST")                \
	X(GATHER, "comm", "all_gather of a unit's plane in place (h2d in a world of one): DST")              \
	X(EXPAND, "comm", "planes of a unit -> weights in compute_dtype")                                    \
	X(ENCODE, "comm", "weights of a unit -> codes and scales of FP8 products")                           \
	X(ROW_NORMS, "compute", "norms of rows, for the magnitudes of a stage (DoRA): DST")                  \
	X(FORWARD, "compute", "one stage of one micro-batch")                                                \
	X(HEAD, "compute", "head of one micro-batch: loss and, in training, its backward")                   \
	X(VECTORS, "compute", "head of one micro-batch: vectors of its documents")                           \
	X(COLLECT, "comm", "all_gather of the vectors of all ranks")                                         \
	X(SHOW, "d2h", "vectors to the host")                                                                \
	X(JUDGE, "cpu", "losses of all vectors, and the vectors' gradients in their place")                  \
	X(GUIDE, "h2d", "gradients of vectors from the host")                                                \
	X(LOGITS, "compute", "logits of chosen rows")                                                        \
	X(RECOMPUTE, "compute", "forward of a stage again, for its backward")                                \
	X(BACKWARD, "compute", "one stage of one micro-batch")                                               \
	X(ZERO, "compute", "a unit's fp32 gradient := 0, except where a product writes first")               \
	X(SPILL, "d2h", "a block input, or what a block keeps for backward, to the host")                    \
	X(REFILL, "h2d", "the same from the host")                                                           \
	X(NARROW, "comm", "a unit's whole gradient to reduce_dtype: SRC -> DST")                             \
	X(SCATTER, "comm", "reduce_scatter of a unit's gradient in place: DST")                              \
	X(REDUCE, "comm", "all_reduce of own shard over replicas in place: DST")                             \
	X(ROUND, "comm", "gradient to bf16, and its sums of squares in the same pass: SRC -> DST, NORM")     \
	X(CAST, "comm", "gradient from bf16 to fp32: SRC -> DST")                                            \
	X(SUMSQ, "comm", "sums of squares of the unit's tensors: SRC -> NORM")                               \
	X(RETURN, "d2h", "gradient shard, or gradients of looked-up rows, to the host: SRC -> DST")          \
	X(SPREAD, "cpu",                                                                                     \
	        "gradients of a pass's tokens to their rows: SRC, ... -> DST, sums of squares -> NORM")      \
	X(ACCUMULATE, "cpu/comm", "gradient sum over micro-batches: DST += SRC, first one copies")           \
	X(FINISH, "cpu", "host gradient sum: round to gradient_dtype in place, sums of squares -> NORM")     \
	X(NORM, "d2h", "all sums of squares to the host")                                                    \
	X(TALLY, "d2h", "how a micro-batch used experts, to the host")                                       \
	X(LOSS, "d2h", "token losses (or logits) of a micro-batch to the host")                              \
	X(UPDATE, "cpu", "AdamW on host planes")                                                             \
	X(UPDATE_DEVICE, "compute", "AdamW on device planes")                                                \
	X(DISCARD, "any", "a buffer's bytes are free")

#define PLAN_OP_ENUM(name, ...) PLAN_OP_##name,
enum plan_op_kind { PLAN_OPS(PLAN_OP_ENUM) PLAN_OP_KIND_COUNT };
#undef PLAN_OP_ENUM

/* The memory that holds a buffer. */
enum plan_space {
	SPACE_DEVICE,  /* the arena */
	SPACE_STAGING, /* pinned host memory of the run: gradient rings, spilled inputs, index arrays, results
	                */
	SPACE_STORE,   /* the store's host planes (offload/store.h); offsets are those of one virtual range */
	SPACE_COUNT
};

/* The role of an argument in its operation: a plane, or one of these. WEIGHT and GRADIENT buffers belong to
 * a unit. */
#define PLAN_ROLES(ROLE)                                                                                     \
	PLANES(ROLE)                                                                                         \
	ROLE(SRC, "src")                                                                                     \
	ROLE(DST, "dst")                                                                                     \
	ROLE(WEIGHT, "weight")                                                                               \
	ROLE(X, "x")                                                                                         \
	ROLE(Y, "y")                                                                                         \
	ROLE(ACTS, "acts")                                                                                   \
	ROLE(KEPT, "kept acts")                                                                              \
	ROLE(SCRATCH, "scratch")                                                                             \
	ROLE(DX, "dx")                                                                                       \
	ROLE(BATCH, "batch")                                                                                 \
	ROLE(LOSS, "loss")                                                                                   \
	ROLE(VECTORS, "vectors")                                                                             \
	ROLE(TALLY, "tally")                                                                                 \
	ROLE(ROW_NORMS, "row norms")                                                                         \
	ROLE(NORM, "norm")                                                                                   \
	ROLE(CACHE, "cache")                                                                                 \
	ROLE(VALUE, "value")                                                                                 \
	ROLE(VALUE_GRADIENT, "value gradient")                                                               \
	ROLE(ROPE, "rope")

#define PLAN_ROLE_ENUM(id, ...) ARG_##id,
enum plan_role { PLAN_ROLES(PLAN_ROLE_ENUM) ARG_ROLE_COUNT };
#undef PLAN_ROLE_ENUM

/* Parts of memory, as reports name them. */
#define PLAN_PARTS(X)                                                                                        \
	X(WEIGHTS, "weights") /* hi and lo, and unit weights on the device */                                \
	X(GRADIENTS, "gradients")                                                                            \
	X(OPTIMIZER, "optimizer")                                                                            \
	X(ACTIVATIONS, "activations") /* block inputs, their gradients, activations for backward */          \
	X(CACHE, "cache")             /* KV cache */                                                         \
	X(WORKSPACE, "workspace")     /* scratch of a block; the rotary table */                             \
	X(STAGING, "staging")         /* index arrays, losses, sums of squares */

#define PLAN_PART_ENUM(id, name) PART_##id,
enum plan_part { PLAN_PARTS(PLAN_PART_ENUM) PART_COUNT };
#undef PLAN_PART_ENUM

/* The contents of a buffer: a plane, or one of these; and the part of memory that it counts as. */
#define PLAN_BUFFERS(X)                                                                                      \
	X(WEIGHTS, "weights", WEIGHTS)                                                                       \
	X(WEIGHTS_HI, "weights hi", WEIGHTS)                                                                 \
	X(WEIGHTS_LO, "weights lo", WEIGHTS)                                                                 \
	X(WEIGHTS_CODES, "weights codes", WEIGHTS)                                                           \
	X(WEIGHTS_SCALES, "weights scales", WEIGHTS)                                                         \
	X(ROWS, "rows of tables", WEIGHTS)                                                                   \
	X(UPDATE_HI, "update hi", WEIGHTS)                                                                   \
	X(GRADIENTS, "gradients", GRADIENTS)                                                                 \
	X(REDUCED_GRADIENTS, "reduced gradients", GRADIENTS)                                                 \
	X(ROUNDED_GRADIENTS, "rounded gradients", GRADIENTS)                                                 \
	X(UPDATE_GRADIENT, "update gradient", GRADIENTS)                                                     \
	X(GRADIENT_RING, "gradient ring", GRADIENTS)                                                         \
	X(ROW_GRADIENTS, "gradients of rows", GRADIENTS)                                                     \
	X(ACTIVATIONS, "activations", ACTIVATIONS)                                                           \
	X(BLOCK_INPUTS, "block inputs", ACTIVATIONS)                                                         \
	X(SPILLED_INPUTS, "spilled block inputs", ACTIVATIONS)                                               \
	X(SPILLED_ACTIVATIONS, "spilled activations", ACTIVATIONS)                                           \
	X(INPUT_GRADIENTS, "block input gradients", ACTIVATIONS)                                             \
	X(VALUES, "values of layers", ACTIVATIONS)                                                           \
	X(VALUE_GRADIENTS, "gradients of values", ACTIVATIONS)                                               \
	X(VECTORS, "vectors", ACTIVATIONS)                                                                   \
	X(CACHE, "cache", CACHE)                                                                             \
	X(SCRATCH, "scratch", WORKSPACE)                                                                     \
	X(ROW_NORMS, "row norms", WORKSPACE)                                                                 \
	X(ROPE_TABLE, "rope table", WORKSPACE)                                                               \
	X(BATCH, "batch", STAGING)                                                                           \
	X(LOSS, "loss", STAGING)                                                                             \
	X(TALLY, "use of experts", STAGING)                                                                  \
	X(SUMS_OF_SQUARES, "sums of squares", STAGING)

#define PLAN_PLANE_ENUM(id, ...) BUFFER_PLANE_##id,
#define PLAN_BUFFER_ENUM(id, name, part) BUFFER_##id,
enum buffer_kind { PLANES(PLAN_PLANE_ENUM) PLAN_BUFFERS(PLAN_BUFFER_ENUM) BUFFER_KIND_COUNT };
#undef PLAN_PLANE_ENUM
#undef PLAN_BUFFER_ENUM

/* Conversions between planes, roles and buffers: both lists begin with the planes. */
static inline enum plan_role plan_plane_role(enum plane plane)
{
	return (enum plan_role)plane;
}

static inline int plan_kind_is_plane(enum buffer_kind kind)
{
	return (int)kind < PLANE_COUNT;
}

static inline enum plane plan_kind_plane(enum buffer_kind kind)
{
	return (enum plane)kind;
}

struct plan_buffer {
	enum buffer_kind kind;
	enum plan_space space;
	int persistent;   /* 1: lives from plan to plan, at the same place in each */
	int layout_class; /* lower classes are placed first, at lower offsets */
	enum dtype dtype; /* dtype of a unit's elements */
	int unit, micro;  /* -1 if it has no meaning */
	int value;        /* of the model's table: VALUES, VALUE_GRADIENTS */
	int64_t bytes, offset;
	int first_op, last_op; /* lifetime in program order, both included; -1 while unused */
};

struct plan_arg {
	enum plan_role role;
	int buffer;
	int reads, writes;
};

struct plan_op {
	enum plan_op_kind kind;
	enum queue_kind queue;
	int unit, stage, micro; /* -1 if it has no meaning */
	int first; /* ACCUMULATE, HEAD, BACKWARD: the first of a sum; it writes instead of adding */
	enum acts_level level; /* FORWARD, RECOMPUTE, BACKWARD: what is in their KEPT */
	int part; /* UPDATE of a table in two: 1 the rows that the step uses, 2 the others; 0: all at once */
	int updates; /* 1: part of the updates of the step before; skipped if there are none */
	int first_arg, arg_count;
	int first_wait, wait_count;
	int signals; /* 1: another queue waits for it */
};

struct plan {
	enum plan_kind kind;
	struct plan_policy policy;
	const struct unit_map *map;
	struct plan_op *ops;
	struct plan_arg *args;
	struct plan_buffer *buffers;
	int *waits; /* operations to wait for: earlier in the list, on other queues */
	int op_count, arg_count, buffer_count, wait_count;
	int is_placed;  /* 1: the buffers have places */
	int is_ordered; /* 1: the waits are there */
	int op_cap, arg_cap, buffer_cap, wait_cap;
	/* End of the last buffer; without places the least that it may be. */
	int64_t space_bytes[SPACE_COUNT];
	int64_t persistent_bytes[SPACE_COUNT];
	int64_t h2d_bytes, d2h_bytes; /* traffic of one execution, all queues */
};

/* Lists operations, places buffers and orders the queues. The map must outlive the plan. ERR_NOMEM,
 * ERR_RANGE (an invalid policy). */
int plan_build(struct plan **plan, enum plan_kind kind, const struct unit_map *map,
        const struct plan_policy *policy);

/* The same in three parts. Lists: traffic is then known, and bounds of memory. Places the buffers, once.
 * Orders the queues of a placed plan, once. */
int plan_list(struct plan **plan, enum plan_kind kind, const struct unit_map *map,
        const struct plan_policy *policy);
int plan_place(struct plan *plan);
int plan_order(struct plan *plan);
void plan_free(struct plan *plan);

/* The operations of all plans that this process listed so far: the work of planning, for tests. */
int64_t plan_listed_ops(void);

/* Proves a plan, independently of how its waits were found. Queues and waits order any two operations with
 * overlapping bytes if one writes. Every wait points back. Every read of a transient buffer finds bytes last
 * written through it. Buffers alive at the same time do not overlap. Otherwise ERR_INTERNAL names both
 * operations and the buffer. */
int plan_check(const struct plan *plan);

/* Prints one line for each operation. */
void plan_print(const struct plan *plan, FILE *out);

const char *plan_op_name(enum plan_op_kind kind);

/* 1 if all ranks of a group take part in it. */
static inline int plan_op_is_exchange(const struct plan_op *op)
{
	return op->kind == PLAN_OP_GATHER || op->kind == PLAN_OP_SCATTER || op->kind == PLAN_OP_REDUCE ||
	       op->kind == PLAN_OP_COLLECT;
}

/* 1 if its work grows with the number of micro-batches in a pass. */
static inline int plan_op_grows(const struct plan_op *op)
{
	return op->micro >= 0 || op->kind == PLAN_OP_SPREAD || op->kind == PLAN_OP_COLLECT ||
	       op->kind == PLAN_OP_SHOW || op->kind == PLAN_OP_JUDGE || op->kind == PLAN_OP_GUIDE;
}

const char *plan_role_name(enum plan_role role);

/* Bytes of all buffers of a kind in a space, whether or not they live at the same time. */
int64_t plan_bytes_of(const struct plan *plan, enum plan_space space, enum buffer_kind kind);

const char *plan_part_name(enum plan_part part);
const char *plan_buffer_name(enum buffer_kind kind);
const char *plan_buffer_title(enum buffer_kind kind); /* for users; planes differ */
enum plan_part plan_buffer_part(const struct plan_buffer *buffer);

/* Bytes of a space by part, at the operation *op with the most bytes alive (the first such). The rest of the
 * space is gaps in the layout. ERR_NOMEM. */
int plan_parts(int64_t bytes[PART_COUNT], int *op, const struct plan *plan, enum plan_space space);

/* Bytes of a space that are in use while each stage works on the first and the last micro-batch, in program
 * order. They grow by the same bytes with each micro-batch. *bytes: mem_free. Returns their number, or
 * ERR_NOMEM. */
int plan_alive(int64_t **bytes, const struct plan *plan, enum plan_space space);

/* Blocks whose activations are in host memory between forward and backward: policy.hosted_blocks, or all that
 * can be. */
int plan_hosted_blocks(const struct plan *plan);

/* 1 if an offloaded unit could become resident. */
int plan_residency_is_open(const struct plan_policy *policy);

/* Units in the order in which they become resident: those of policy.resident_states first, then those of
 * resident_weights whose weights on the device save a fetch. order: unit_count numbers. */
void plan_residency_order(int *order, const struct unit_map *map);

/* Number of units with only their weights on the device, and of units with all of their state there. */
void plan_residency_get(const struct plan *plan, int *weights, int *states);

/* Bytes over the host's memory bus in one execution, reads and writes, including copies to and from the
 * device. Computed from the arguments of the operations. */
struct plan_memory_traffic {
	int64_t weight_bytes;   /* planes copied to the device, and back if the device updates them */
	int64_t gradient_bytes; /* returned, and summed if the host sums them */
	int64_t update_bytes;   /* AdamW on the host */
	int64_t other_bytes;    /* index arrays, offloaded block inputs, results */
	int64_t bytes;          /* all */
};
void plan_memory_traffic_find(struct plan_memory_traffic *bus, const struct plan *plan);

/* *shards: the ranks that divide a unit with `rank`, shard_ranks consecutive ones. *same: the ranks that hold
 * the same shards as `rank`, one in each group. */
void plan_groups_find(
        struct comm_group *shards, struct comm_group *same, int rank, int world_size, int shard_ranks);

/* Bytes that one rank's collectives send in one execution, within its node and over the network. */
struct plan_traffic {
	int64_t gather_node_bytes, gather_network_bytes; /* weights */
	int64_t sum_node_bytes, sum_network_bytes;       /* gradients: within groups of shards, and over
	                                                    replicas */
	int64_t node_bytes, network_bytes;               /* all */
};
/* shards: links of the ranks that divide a unit. replicas: links of the ranks that hold the same shard; not
 * read without replicas. */
void plan_traffic_find(struct plan_traffic *traffic, const struct plan *plan, const struct comm_links *shards,
        const struct comm_links *replicas);

/* ---- shapes that plan and run share ---- */

/* Where the arrays of one micro-batch lie on the device and in staging memory, in bytes
 * (model/blocks/batch.h): those of all micro-batches, and the objective's own. */
struct plan_batch {
	int64_t id, position, doc_start, doc_end, target_row, row, noise, own[BATCH_OWN_MAX], bytes;
};
struct plan_batch plan_batch_of(const struct plan_policy *policy);
int64_t plan_batch_bytes(const struct plan_policy *policy);

/* Rows of a unit's table that a micro-batch of so many tokens may use. */
int64_t plan_rows_most(const struct unit *unit, int64_t tokens);

/* Bytes of host memory that an operation of the cpu queue or a copy reads or writes of an argument: all of
 * its buffer, but of a table's plane what its rows have in other buffers. */
int64_t plan_arg_bytes(const struct plan *plan, const struct plan_op *op, const struct plan_arg *arg);

/* 4-byte numbers of each target that the plan's head writes behind the losses (struct head_pass). */
int plan_head_also(const struct plan *p);

/* Vectors (struct vectors_pass): ranks whose vectors a pass compares, floats of a row, and bytes of all. */
int plan_vector_ranks(const struct plan *plan);
int64_t plan_vector_stride(const struct plan *plan);
int64_t plan_vectors_bytes(const struct plan *plan, int micros);

/* Layout of the sums of squares: tensor t's blocks of 64K elements start at first[t] of the NORM buffer
 * (doubles). Returns the total number. first: NULL, or room for all tensors. */
int64_t plan_norm_slots(const struct model *model, int64_t *first);

/* Element type of a unit's gradient while it waits for its UPDATE: gradient_dtype, or F32 if micro-batches
 * are summed there. */
enum dtype plan_gradient_home_dtype(const struct plan_policy *policy);

/* Type of a plane's numbers, and the bytes of a plane of `count` elements. */
enum dtype plan_plane_dtype(const struct plan_policy *policy, enum plane plane);
int64_t plan_plane_bytes(const struct plan_policy *policy, enum plane plane, int64_t count);

/* 1 if compute_dtype is wider than the hi plane, so that stages read hi and lo joined. */
int plan_reads_lo(const struct plan_policy *policy);

/* 1 if every step may copy the plane to or from the device. Such planes are pinned. */
int plan_plane_crosses(const struct plan_policy *policy, enum plane plane);

#endif
