/* The plan: one optimizer step as data.
 *
 * Mental model. A plan is a list of operations in program order: the order in which doing one after the other
 * would be right. Each runs on a queue; queues run beside each other. An operation names the buffers that it
 * reads and writes, and from that alone follow the lifetimes, the place of every buffer in one arena, and the
 * waits between queues:
 *
 *     plan_build   lists operations and buffers            (plan_build.c and those that it calls)
 *     plan_layout  gives each buffer its offset             (plan_layout.c)
 *     plan_order   derives the fewest waits that order     (plan_order.c)
 *                  any two operations on the same bytes
 *     plan_check   proves that, independently              (plan_check.c)
 *     run          executes, and decides nothing           (run.h)
 *
 * Policy (prefetch, schedule, activations, what is offloaded) only changes which operations are listed and
 * where. The fewest waits are no less safe than many: each that is left is needed by two operations that
 * touch the same bytes.
 *
 * A training plan begins with the updates of the step before: once its gradient norm is known, units are
 * updated in forward order, and each unit's FETCH waits for its own UPDATE only. That is exact clipping
 * without a stall.
 */
#ifndef FERRY_OFFLOAD_PLAN_H
#define FERRY_OFFLOAD_PLAN_H

#include "device/device.h"
#include "model/blocks/blocks.h"
#include "offload/unit.h"
#include "optim/plane.h"

#include <stdio.h>

enum activation_policy { ACTIVATION_KEEP, ACTIVATION_RECOMPUTE, ACTIVATION_OFFLOAD };
enum visit_order { ORDER_LAYER_MAJOR, ORDER_MICRO_BATCH_MAJOR };
enum backward_prefetch { BACKWARD_PREFETCH_PRE, BACKWARD_PREFETCH_POST, BACKWARD_PREFETCH_NONE };

struct plan_policy {
	int inference; /* 1: only the planes that forward reads; EVAL and LOGITS plans only */
	int offload_params, offload_gradients, offload_optimizer; /* 1: lives in host memory */
	/* Units that live on the device all the same (plan_residency.c says which): their weights, and all of
	 * their state. Where the two meet, state counts; weights only go to units that they spare a fetch. */
	int resident_weights, resident_states;
	/* Blocks, those nearest the head, that keep their activations whatever `activations` says. */
	int kept_blocks;
	enum activation_policy activations;
	enum visit_order order;
	enum backward_prefetch backward_prefetch;
	int forward_prefetch;   /* 1: weights of coming blocks are fetched ahead in forward */
	int prefetch_units;     /* how many blocks ahead, >= 1 */
	int update_in_backward; /* 1: UPDATE follows RETURN at once (no clipping, no skipping) */
	int discard; /* 1: a DISCARD follows each transient buffer's last use (host device with poison) */
	enum dtype compute_dtype, gradient_dtype;
	/* Several ranks: what gradients are summed in over them; how many groups of ranks hold the same
	 * shards; 1: gathered weights stay from forward to backward. */
	enum dtype reduce_dtype;
	int replicas; /* 0 is 1 */
	int keep_gathered;
	enum adamw_state state;          /* how m and v are kept (optim/state_format.h) */
	int micro_batches;               /* per step, >= 1 */
	int64_t max_tokens, max_targets; /* of any micro-batch */
	int64_t rope_positions;          /* rows of the rotary table: the longest document */
	int64_t head_rows;               /* of logits at once; 0: as many as on the host */
	/* Of each block's keys and values, that LOGITS plans keep from one to the next; no rows: tokens see
	 * those of their micro-batch only. */
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
	X(FETCH, "h2d", "own shard of a unit's plane: SRC -> DST")                                           \
	X(COPY, "comm", "own shard of a unit, from one device buffer to another: SRC -> DST")                \
	X(GATHER, "comm", "all_gather of a unit's plane in place (h2d in a world of one): DST")              \
	X(JOIN, "comm", "hi, lo -> fp32 weights")                                                            \
	X(FORWARD, "compute", "one stage of one micro-batch")                                                \
	X(HEAD, "compute", "head of one micro-batch: loss and, in training, its backward")                   \
	X(LOGITS, "compute", "logits of chosen rows")                                                        \
	X(RECOMPUTE, "compute", "forward of a stage again, for its backward")                                \
	X(BACKWARD, "compute", "one stage of one micro-batch")                                               \
	X(ZERO, "compute", "what no first product writes of a unit's fp32 gradient := 0")                    \
	X(SPILL, "d2h", "a block input to the host")                                                         \
	X(REFILL, "h2d", "a block input from the host")                                                      \
	X(NARROW, "comm", "a unit's whole gradient to reduce_dtype: SRC -> DST")                             \
	X(SCATTER, "comm", "reduce_scatter of a unit's gradient in place: DST")                              \
	X(REDUCE, "comm", "all_reduce of own shard over replicas in place: DST")                             \
	X(ROUND, "comm", "gradient to bf16, and its sums of squares in the same pass: SRC -> DST, NORM")     \
	X(CAST, "comm", "a gradient in bf16, to fp32: SRC -> DST")                                           \
	X(SUMSQ, "comm", "sums of squares of the unit's tensors: SRC -> NORM")                               \
	X(RETURN, "d2h", "gradient shard to the host: SRC -> DST")                                           \
	X(ACCUMULATE, "cpu/comm", "gradient sum over micro-batches: DST += SRC, first one copies")           \
	X(FINISH, "cpu", "host gradient sum: round to gradient_dtype in place, sums of squares -> NORM")     \
	X(NORM, "d2h", "all sums of squares to the host")                                                    \
	X(LOSS, "d2h", "token losses (or logits) of a micro-batch to the host")                              \
	X(UPDATE, "cpu", "AdamW on host planes")                                                             \
	X(UPDATE_DEVICE, "compute", "AdamW on device planes")                                                \
	X(DISCARD, "any", "a buffer's bytes are free")

#define PLAN_OP_ENUM(name, ...) PLAN_OP_##name,
enum plan_op_kind { PLAN_OPS(PLAN_OP_ENUM) PLAN_OP_KIND_COUNT };
#undef PLAN_OP_ENUM

/* Where bytes are. */
enum plan_space {
	SPACE_DEVICE,  /* the arena */
	SPACE_STAGING, /* pinned host memory of the run: rings, spilled activations, index arrays, results */
	SPACE_STORE,   /* the store's host planes (offload/store.h); offsets are those of one virtual range */
	SPACE_COUNT
};

/* What an argument is to its operation: a plane, or one of these. WEIGHT and GRADIENT buffers belong to a
 * unit. */
#define PLAN_ROLES(ROLE)                                                                                     \
	PLANES(ROLE)                                                                                         \
	ROLE(SRC, "src")                                                                                     \
	ROLE(DST, "dst")                                                                                     \
	ROLE(WEIGHT, "weight")                                                                               \
	ROLE(X, "x")                                                                                         \
	ROLE(Y, "y")                                                                                         \
	ROLE(ACTS, "acts")                                                                                   \
	ROLE(SCRATCH, "scratch")                                                                             \
	ROLE(DX, "dx")                                                                                       \
	ROLE(BATCH, "batch")                                                                                 \
	ROLE(LOSS, "loss")                                                                                   \
	ROLE(NORM, "norm")                                                                                   \
	ROLE(CACHE, "cache")                                                                                 \
	ROLE(ROPE, "rope")

#define PLAN_ROLE_ENUM(id, ...) ARG_##id,
enum plan_role { PLAN_ROLES(PLAN_ROLE_ENUM) ARG_ROLE_COUNT };
#undef PLAN_ROLE_ENUM

/* What people call parts of memory. */
#define PLAN_PARTS(X)                                                                                        \
	X(WEIGHTS, "weights") /* either plane, and unit weights on the device */                             \
	X(GRADIENTS, "gradients")                                                                            \
	X(OPTIMIZER, "optimizer")                                                                            \
	X(ACTIVATIONS,                                                                                       \
	        "activations")    /* block inputs, their gradients, what a block leaves for its backward */  \
	X(CACHE, "cache")         /* keys and values of tokens that were generated from */                   \
	X(WORKSPACE, "workspace") /* of a block's work; the rotary table */                                  \
	X(STAGING, "staging")     /* index arrays, losses, sums of squares */

#define PLAN_PART_ENUM(id, name) PART_##id,
enum plan_part { PLAN_PARTS(PLAN_PART_ENUM) PART_COUNT };
#undef PLAN_PART_ENUM

/* What a buffer holds: a plane, or one of these; and the part of memory that it counts as. */
#define PLAN_BUFFERS(X)                                                                                      \
	X(WEIGHTS, "weights", WEIGHTS)                                                                       \
	X(WEIGHTS_HI, "weights hi", WEIGHTS)                                                                 \
	X(WEIGHTS_LO, "weights lo", WEIGHTS)                                                                 \
	X(UPDATE_HI, "update hi", WEIGHTS)                                                                   \
	X(GRADIENTS, "gradients", GRADIENTS)                                                                 \
	X(REDUCED_GRADIENTS, "reduced gradients", GRADIENTS)                                                 \
	X(ROUNDED_GRADIENTS, "rounded gradients", GRADIENTS)                                                 \
	X(UPDATE_GRADIENT, "update gradient", GRADIENTS)                                                     \
	X(GRADIENT_RING, "gradient ring", GRADIENTS)                                                         \
	X(ACTIVATIONS, "activations", ACTIVATIONS)                                                           \
	X(BLOCK_INPUTS, "block inputs", ACTIVATIONS)                                                         \
	X(SPILLED_INPUTS, "spilled block inputs", ACTIVATIONS)                                               \
	X(INPUT_GRADIENTS, "block input gradients", ACTIVATIONS)                                             \
	X(CACHE, "cache", CACHE)                                                                             \
	X(SCRATCH, "scratch", WORKSPACE)                                                                     \
	X(ROPE_TABLE, "rope table", WORKSPACE)                                                               \
	X(BATCH, "batch", STAGING)                                                                           \
	X(LOSS, "loss", STAGING)                                                                             \
	X(SUMS_OF_SQUARES, "sums of squares", STAGING)

#define PLAN_PLANE_ENUM(id, ...) BUFFER_PLANE_##id,
#define PLAN_BUFFER_ENUM(id, name, part) BUFFER_##id,
enum buffer_kind { PLANES(PLAN_PLANE_ENUM) PLAN_BUFFERS(PLAN_BUFFER_ENUM) BUFFER_KIND_COUNT };
#undef PLAN_PLANE_ENUM
#undef PLAN_BUFFER_ENUM

/* A plane as an argument and as a buffer, and back: the lists begin with the planes. */
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
	int persistent;   /* lives from plan to plan, at the same place in each */
	int layout_class; /* order of placing: lower first, at lower offsets */
	enum dtype dtype; /* of the elements of a unit */
	int unit, micro;  /* -1 where it has no meaning */
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
	int unit, stage, micro; /* -1 where it has no meaning */
	int first;              /* ACCUMULATE, HEAD, BACKWARD: the first of its sum, which it writes */
	int updates;            /* belongs to the updates of the step before: skipped when there are none */
	int first_arg, arg_count;
	int first_wait, wait_count;
	int signals; /* another queue waits for it */
};

struct plan {
	enum plan_kind kind;
	struct plan_policy policy;
	const struct unit_map *map;
	struct plan_op *ops;
	struct plan_arg *args;
	struct plan_buffer *buffers;
	int *waits; /* ops that must be done before; of other queues, earlier in the list */
	int op_count, arg_count, buffer_count, wait_count;
	int op_cap, arg_cap, buffer_cap, wait_cap;
	int64_t space_bytes[SPACE_COUNT]; /* end of the last buffer */
	int64_t persistent_bytes[SPACE_COUNT];
	int64_t h2d_bytes, d2h_bytes; /* traffic of one execution, all queues */
};

/* Lists, places and orders. The map must outlive the plan. ERR_NOMEM, ERR_RANGE (a policy that makes no
 * sense). */
int plan_build(struct plan **plan, enum plan_kind kind, const struct unit_map *map,
        const struct plan_policy *policy);
void plan_free(struct plan *plan);

/* ERR_INTERNAL, naming both operations and the buffer, unless: any two operations with overlapping bytes, one
 * writing, are ordered by queues and waits; every wait points back; every read of a transient buffer finds
 * bytes last written through it; no two buffers alive at once overlap. Independent of how the waits were
 * found. */
int plan_check(const struct plan *plan);

/* One line per operation, for people and for diffing. */
void plan_print(const struct plan *plan, FILE *out);

const char *plan_op_name(enum plan_op_kind kind);
const char *plan_role_name(enum plan_role role);

/* Bytes of all buffers of a kind in a space, whether or not they live at the same time. */
int64_t plan_bytes_of(const struct plan *plan, enum plan_space space, enum buffer_kind kind);

const char *plan_part_name(enum plan_part part);
const char *plan_buffer_name(enum buffer_kind kind);
const char *plan_buffer_title(enum buffer_kind kind); /* a plane's name for people, other kinds' name */
enum plan_part plan_buffer_part(const struct plan_buffer *buffer);

/* Bytes of a space by part, during *op: the first operation during which most is alive. What the space has
 * beyond their sum are gaps of placing. ERR_NOMEM. */
int plan_parts(int64_t bytes[PART_COUNT], int *op, const struct plan *plan, enum plan_space space);

/* Could a unit become resident that policy offloads? */
int plan_residency_is_open(const struct plan_policy *policy);

/* Units of a plan whose weights alone, and whose whole state, live on the device. */
void plan_residency_get(const struct plan *plan, int *weights, int *states);

/* Bytes over the host's memory bus in one execution, reads and writes, those of copies to and from the device
 * among them: from the arguments of the operations. */
struct plan_memory_traffic {
	int64_t weight_bytes;   /* planes out to the device, and home again where it updates them */
	int64_t gradient_bytes; /* returned; and summed, where that is the host's */
	int64_t update_bytes;   /* AdamW of the host */
	int64_t other_bytes;    /* index arrays, block inputs that leave and return, results */
	int64_t bytes;          /* all */
};
void plan_memory_traffic_find(struct plan_memory_traffic *bus, const struct plan *plan);

/* The ranks that share the shards of a unit, groups of shard_ranks one after the other, and those that hold
 * the same shards as `rank`, one in each group. */
void plan_groups_find(
        struct comm_group *shards, struct comm_group *same, int rank, int world_size, int shard_ranks);

/* Bytes that one rank's collectives send to other ranks in one execution: to those of its own node, and over
 * the network. */
struct plan_traffic {
	int64_t gather_node_bytes, gather_network_bytes; /* weights */
	int64_t sum_node_bytes, sum_network_bytes;       /* gradients: within groups of shards, and over
	                                                    replicas */
	int64_t node_bytes, network_bytes;               /* all */
};
/* links: of the ranks that share shards, and of those that hold the same (not read without replicas). */
void plan_traffic_find(struct plan_traffic *traffic, const struct plan *plan, const struct comm_links *shards,
        const struct comm_links *replicas);

/* ---- shapes that plan and run share ---- */

/* Index arrays of one micro-batch on the device and in staging memory: int32, id, position, doc_start,
 * doc_end of max_tokens, then target_row, target_label of max_targets. */
int64_t plan_batch_bytes(const struct plan_policy *policy);

/* Sums of squares: tensor t's blocks of 64K elements start at first[t] of the NORM buffer (doubles). Returns
 * the total. first: NULL, or room for all tensors. */
int64_t plan_norm_slots(const struct model *model, int64_t *first);

/* Element type of the plane in which a unit's gradient waits for its UPDATE: gradient_dtype, or F32 where
 * micro-batches are summed there. */
enum dtype plan_gradient_home_dtype(const struct plan_policy *policy);

/* Type of a plane's numbers, and bytes of those that belong to `count` elements. */
enum dtype plan_plane_dtype(const struct plan_policy *policy, enum plane plane);
int64_t plan_plane_bytes(const struct plan_policy *policy, enum plane plane, int64_t count);

/* 1 where weights are computed with in more than hi's type, so that stages read hi and lo joined. */
int plan_reads_lo(const struct plan_policy *policy);

/* 1 where copies to or from the device may take it in every step: such planes are pinned. */
int plan_plane_crosses(const struct plan_policy *policy, enum plane plane);

#endif
