/* Shared by offload/plan_*.c and private to them: appends operations, arguments and buffers. */
#ifndef FERRY_OFFLOAD_PLAN_PARTS_H
#define FERRY_OFFLOAD_PLAN_PARTS_H

#include "offload/plan.h"

enum access { ACCESS_READ = 1, ACCESS_WRITE = 2, ACCESS_BOTH = 3 };

enum { PLACE_ALIGN = 256 /* of offsets, in bytes */ };

/* Order of placement. Buffers that are used to their end (weights, gradients, block inputs) are on top, so
 * that the arena ends at the last used byte. */
enum layout_class { LAYOUT_PERSISTENT, LAYOUT_WORK, LAYOUT_STREAM, LAYOUT_WEIGHT };

/* Adds a buffer or operation and returns its index. If memory runs out, the plan is marked broken, further
 * additions do nothing, and plan_parts_check returns the error. So builders need no check after each. */
int plan_add_buffer(struct plan *p, enum buffer_kind kind, enum plan_space space, enum layout_class layout,
        int64_t bytes);
int plan_add_op(
        struct plan *p, enum plan_op_kind kind, enum queue_kind queue, int unit, int stage, int micro);

/* Adds an argument to the last operation; does nothing if buffer < 0. */
void plan_add_arg(struct plan *p, enum plan_role role, int buffer, enum access access);

/* Keeps a transient buffer's bytes from others up to the last operation listed so far. */
void plan_hold_buffer(struct plan *p, int buffer);
int plan_parts_check(const struct plan *p);

/* A plane of a unit: its home, the buffer there, and a copy of weights on the device if that is not their
 * home. -1: no buffer. */
struct plane_state {
	enum home home;
	int buffer, copy;
};
struct unit_state {
	struct plane_state plane[PLANE_COUNT];
	int is_parted; /* a table of which the rows that the step uses update first, and the others last */
};

/* How far the updates of the step before are listed: the next unit and its gradient beside AdamW. */
struct update_list {
	int is_open, on_host, unit, gradient;
	int rest; /* parted tables before this unit are listed */
};

/* Persistent buffers of each unit and of the run. -1 if the policy has none. */
struct plan_state {
	struct unit_state *units;
	int *batch, *batch_host, *loss_host, *tally, *tally_host; /* per micro */
	int rope, norm, norm_host, vectors_host;
	int *cache;    /* per stage: its state of generation */
	int norm_sums; /* sums of squares from the cpu queue; norm_host unless the device makes some too */
	struct update_list updates;
};

/* Lists the update of a unit inside backward, from its whole gradient in either memory. */
void plan_add_update(struct plan *p, const struct plan_state *s, int unit, int gradient);

/* Lists the first part of the UPDATE of a parted table. */
void plan_add_first_part(struct plan *p, const struct plan_state *s, int unit);

/* Lists updates of the step before, in forward order: first all on the device, then those on the host up
 * to that of unit `last` (-1: none). Does not repeat what is listed already. A PLAN_UPDATE refreshes
 * resident weights at once. A PLAN_TRAIN does it when forward needs the unit, so that no copy delays an
 * earlier one. Second parts of tables come after all others: no FETCH waits for these. */
void plan_add_updates(struct plan *p, struct plan_state *s, int last);

/* A PLAN_TRAIN lists an UPDATE on the host this many units ahead of the FETCH that waits for it, and not
 * earlier. CUDA lets some 50 host functions wait; then every later launch blocks until one has returned. With
 * all updates in front, the GPU would idle until so few are left. */
enum { UPDATES_AHEAD = 16 };

/* Lists the copy of updated weights for a unit with weights on the device and an update on the host. Lists
 * nothing for other units. */
void plan_add_refresh(struct plan *p, const struct plan_state *s, int unit, int updates);

/* The buffer of a plane outside of the device, and on it; -1: none. */
int plan_host_buffer(const struct plan_state *s, int unit, enum plane plane);
int plan_device_buffer(const struct plan_state *s, int unit, enum plane plane);

/* 1 if AdamW of this unit runs on the host. */
int plan_updates_on_host(const struct plan_state *s, int unit);

/* ---- shared by the files that list operations ---- */

/* Weights of one unit on the device from visit `first` to visit `last`. */
struct interval {
	int unit, first, last;
	int emit;     /* the FETCH is listed before the work of this visit */
	int weight;   /* buffer, once listed */
	int scales;   /* buffer of the scales of weights that are codes; else -1 */
	int parts[2]; /* buffers of the fetched planes that it was made from; else -1 */
};

struct unit_home {
	enum home params, gradient, optimizer;
};

/* State of a unit while operations are listed. */
struct unit_listing {
	struct unit_home home;
	int first_interval; /* its intervals end where those of the next unit begin */
	int is_refreshed;   /* 1: its weights on the device have the last update */
	int gradient;       /* buffer of the running fp32 gradient; -1: none */
	int running;        /* between the halves of its close: the running gradient */
	int rounded;        /* between the halves of its close: the rounded gradient; else -1 */
	int gradient_last;  /* the gradient is whole after this visit of a pass; -1: no gradient */
	int closes_next;    /* the next lower unit with that visit; -1: none */
	int ready;       /* buffer of a whole gradient that waits for its UPDATE inside backward; else -1 */
	int ready_since; /* moment since which it waits */
	int stale_since; /* moment of its UPDATE inside backward until its refresh is listed; else -1 */
};

/* What a group has of its activations between forward and backward: nothing, or a level of them, on the
 * device or in host memory meanwhile. */
struct group_acts {
	int is_kept, is_hosted;
	enum acts_level level;
	int64_t bytes;      /* all */
	int64_t held_bytes; /* what is kept or hosted */
	int64_t kept_bytes; /* the same of a level other than ACTS_ALL; else 0 */
};

struct builder {
	struct plan *p;
	const struct model *model;
	struct plan_state state;
	int norm_on_device;           /* 1: squares of some unit are summed there */
	int group_count, visit_count; /* of the model; of a pass */
	int train_stage, train_group; /* the first with a trained tensor: backward ends there */
	struct group_acts *group_acts;
	struct unit_listing *units; /* one more at the end, for its first_interval */
	struct interval *intervals; /* in the order of units */
	int interval_count;
	int *closes; /* for each visit the highest unit whose gradient is whole after it; -1: none */
	int *by_first, *first_at; /* intervals by their first visit; for each visit the index of its first one
	                             in by_first, one more at the end */
	int *x;                   /* [group][micro] block inputs on the device */
	int *spilled;             /* [group][micro] block inputs in staging memory */
	int *acts_kept;           /* [group][micro] */
	int *acts_spilled;        /* [group][micro] activations in staging memory */
	int spilling;             /* the last activations that went to the host; -1: none */
	int *acts;                /* [micro] activations of the groups that share them, while they run */
	int *kept;                /* [micro] those of them that a level keeps apart; -1: none */
	int *dx;                  /* [micro] */
	int *value, *value_grad;  /* [value][micro] */
	int *row_norms;           /* per stage, once listed; -1: none */
	/* [table][micro] rows that a micro-batch uses, in staging memory and on the device; the gradients of
	 * its tokens' rows, on the device and in staging memory */
	int *rows_host, *rows, *row_grad, *row_grad_host;
	int ring_last;   /* buffer of the last gradient returned to the ring; else -1 */
	int first_micro; /* of the pass */
	int now;         /* moment of the listing in a pass: the visit, or a few moments after the last */
};

/* plan_builder.c. Stages group_first up to group_end are those of a group. */
int group_first(const struct builder *b, int g);
int group_end(const struct builder *b, int g);

/* Finds what each group keeps for its backward (builder.group_acts). What it does not keep forward makes
 * again before that, without the parts of divided experts. */
void group_acts_find(struct builder *b);
int group_recomputes(const struct builder *b, int v, int *first, int *end);
int visit_group(const struct builder *b, int v);
int visit_is_backward(const struct builder *b, int v);

/* Number of visits ahead of `v` at which its transfers are listed. */
int visit_distance(const struct builder *b, int v);

/* Units of a stage's tensors, each once: all, or those that train. Returns the number of units, at most
 * STAGE_TENSORS_MAX. */
enum stage_tensors { STAGE_ALL, STAGE_TRAINED };
int stage_units(const struct builder *b, int stage, enum stage_tensors which, int *units);

/* Add a device buffer; a buffer for `count` elements of a unit or a shard of it; a device buffer for a whole
 * unit. */
int device_buffer(
        struct builder *b, enum buffer_kind kind, enum layout_class layout, int64_t bytes, int micro);
int unit_buffer(struct builder *b, enum buffer_kind kind, enum plan_space space, enum layout_class layout,
        int unit, int64_t count, enum dtype dtype);
int whole_buffer(
        struct builder *b, enum buffer_kind kind, enum layout_class layout, int unit, enum dtype dtype);

/* plan_visits.c: lists the pass of micro-batches m0 up to m1. */
void pass_emit(struct builder *b, int m0, int m1);

/* What the head reads, and the gradient that it writes: buffers. */
int visit_input(const struct builder *b, int group, int micro);
int visit_dx(struct builder *b, int micro);

/* Lists the norms of a stage's rows before its first forward in a step. row_norms_arg adds them to what
 * reads them. */
void row_norms_emit(struct builder *b, int v, int stage);
void row_norms_arg(struct builder *b, int stage);

/* plan_vectors.c: the head's visit for an objective over vectors. */
void visit_vectors(struct builder *b, int v, int m0, int m1, int scratch);

/* plan_home.c: adds the persistent buffers of all planes, by the homes of their units. homes_check:
 * ERR_UNSUPPORTED, ERR_RANGE for homes that no plan has. */
void homes_add(struct builder *b);
int homes_check(const struct plan_policy *policy);

/* 1 if UPDATE on the host also makes the codes that the unit's products read, so that these cross instead of
 * HI. Where ranks divide a unit, a square may belong to two of them: HI crosses, and each makes the codes on
 * the device. */
int plan_codes_cross(const struct builder *b, int unit);

/* plan_residency.c: decides where each unit's planes live, after the intervals of a training pass are
 * known. */
int residency_find(struct builder *b);

/* plan_weights.c: decides when a unit's weights are on the device. fetches_emit lists the FETCHes of one
 * moment of a visit; fetches_hold follows the work of the visit. weights_arg adds the weights that a stage
 * reads. */
int intervals_find(struct builder *b);
void intervals_free(struct builder *b);
enum emit_moment { EMIT_BEFORE, EMIT_AFTER };
void fetches_emit(struct builder *b, int v, enum emit_moment moment);
void fetches_hold(struct builder *b, int v);
void weights_arg(struct builder *b, int v, int stage);

/* plan_gradients.c: brings a unit's running fp32 gradient to its UPDATE. gradients_open comes before the
 * first use in a pass. */
int gradient_last_find(struct builder *b);
void gradients_open(struct builder *b, int stage);
void gradients_arg(struct builder *b, int stage);
/* Moves all whole gradients one moment of the listing further. A close has two halves. A gradient is rounded
 * and its squares are summed right after the visit that made it whole; it is returned a visit later. So
 * neither the rounded nor the returned gradient uses bytes that the visit between needs, and no work waits
 * for a copy. Without backward prefetch memory matters more, and both halves come at the same moment. A
 * gradient that is one part of a sum moves a visit later too. */
void gradients_close(struct builder *b, int m0, int m1);
void updates_emit(struct builder *b);

/* plan_rows.c: tables of which only rows cross (unit.row_count). Whether weights, or gradients, of a unit do:
 * rows_cross, row_gradients_cross.
 *
 * rows_pick lists, at the begin of a pass, what brings the rows of all micro-batches to staging memory, after
 * the UPDATE of the table. rows_fetch comes before the forward of a micro-batch, rows_release after it.
 * row_gradient_add gives the last operation, a backward, room for the gradients of its tokens' rows;
 * row_gradients_return copies these to the host; row_gradients_spread adds those of a pass to the unit's
 * gradient. */
void rows_part(struct builder *b); /* finds the tables that are parted */
int rows_cross(const struct builder *b, int u);
int row_gradients_cross(const struct builder *b, int u);
void rows_pick(struct builder *b, int m0, int m1);
void rows_fetch(struct builder *b, int v, int m, int m0, int m1);
void rows_release(struct builder *b, int v, int m);
int rows_buffer(const struct builder *b, int u, int micro);
void row_gradient_add(struct builder *b, int u);
void row_gradients_return(struct builder *b, int stage, int m);
void row_gradients_spread(struct builder *b, int u, int m0, int m1);

/* Sets the space_bytes of a plan without places to lower bounds. ERR_NOMEM. */
int plan_least(struct plan *p);
int plan_insert_discards(struct plan *p);

#endif
