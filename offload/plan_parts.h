/* Shared by offload/plan_*.c and private to them: appends operations, arguments and buffers. */
#ifndef FERRY_OFFLOAD_PLAN_PARTS_H
#define FERRY_OFFLOAD_PLAN_PARTS_H

#include "offload/plan.h"

enum access { ACCESS_READ = 1, ACCESS_WRITE = 2, ACCESS_BOTH = 3 };

/* Order of placement. Buffers that are used whole (weights, gradients, block inputs) are on top, so that the
 * arena ends at the last used byte. */
enum layout_class { LAYOUT_PERSISTENT, LAYOUT_WORK, LAYOUT_STREAM, LAYOUT_WEIGHT };

/* Index of the new buffer or operation. Out of memory marks the plan broken: plan_parts_check reports it
 * once, and further additions do nothing, so that builders need no check after each. */
int plan_add_buffer(struct plan *p, enum buffer_kind kind, enum plan_space space, enum layout_class layout,
        int64_t bytes);
int plan_add_op(
        struct plan *p, enum plan_op_kind kind, enum queue_kind queue, int unit, int stage, int micro);

/* Adds an argument to the last operation; does nothing if buffer < 0. */
void plan_add_arg(struct plan *p, enum plan_role role, int buffer, enum access access);

/* Keeps a transient buffer's bytes from others up to the last operation listed so far. */
void plan_hold_buffer(struct plan *p, int buffer);
int plan_parts_check(const struct plan *p);

/* Buffers of a unit's planes: in SPACE_STORE, and in SPACE_DEVICE if not offloaded. */
struct unit_state {
	int host[PLANE_COUNT], device[PLANE_COUNT];
};

/* Persistent buffers of each unit and of the run. -1 if the policy has none. */
struct plan_state {
	struct unit_state *units;
	int *batch, *batch_host, *loss_host; /* per micro */
	int rope, norm, norm_host;
	int cache;     /* of block 0; those of the others follow it */
	int norm_sums; /* sums of squares from the cpu queue; norm_host unless both kinds exist */
};

/* Lists the update of a unit inside backward, from its whole gradient in either memory. */
void plan_add_update(struct plan *p, const struct plan_state *s, int unit, int gradient);

/* All updates of the step before, in forward order. A PLAN_UPDATE refreshes each unit at once. A PLAN_TRAIN
 * does it when forward needs the unit, so that no copy delays an earlier one. */
void plan_add_updates(struct plan *p, const struct plan_state *s);

/* Lists the copy of updated weights for a unit that stays on the device but updates on the host. Nothing for
 * other units. */
void plan_add_refresh(struct plan *p, const struct plan_state *s, int unit, int updates);

/* 1 if AdamW of this unit runs on the host. */
int plan_updates_on_host(const struct plan_state *s, int unit);

/* ---- the walk of plan_build.c, and the parts that it calls ---- */

/* Weights of one unit on the device from visit `first` to visit `last`. */
struct interval {
	int unit, first, last;
	int emit;   /* visit before whose work the FETCH is listed */
	int weight; /* buffer, once listed */
	int hi, lo; /* buffers of the planes that it was joined from, where they crossed; -1 else */
};

struct unit_home {
	int params_on_host, gradients_on_host, optimizer_on_host;
};

/* State of a unit while operations are listed. */
struct unit_listing {
	struct unit_home home;
	int first_interval; /* its intervals end where the next unit's begin */
	int is_refreshed;   /* its weights on the device are those of the last update */
	int gradient;       /* buffer of the running fp32 gradient, -1: there is none */
	int running;        /* between the halves of its close: the gradient, */
	int rounded;        /* and what it was rounded to, -1 else */
	int gradient_last;  /* visit of a pass after which its gradient is whole, -1: it has none */
	int ready;          /* where a whole gradient waits for its UPDATE inside backward, -1 */
	int ready_since;    /* and since which moment */
	int stale_since;    /* moment of its UPDATE inside backward while no refresh is listed, -1 */
};

struct builder {
	struct plan *p;
	const struct model *model;
	struct plan_state state;
	int norm_on_device;           /* squares of some unit are summed there */
	int group_count, visit_count; /* of a pass */
	int *group_first;             /* first stage of each group; one more at the end */
	int train_stage, train_group; /* the first that has a tensor to train: backward ends there */
	struct unit_listing *units;   /* one more at the end, for its first_interval */
	struct interval *intervals;   /* in the order of units */
	int interval_count;
	int *by_first, *first_at; /* intervals by their first visit; per visit: where in by_first its begin,
	                             one more at the end */
	int *x;                   /* [group][micro] block inputs on the device */
	int *spilled;             /* [group][micro] block inputs in the stage */
	int *acts_kept;           /* [group][micro] */
	int *dx;                  /* [micro] */
	int ring_last;            /* buffer of the last gradient that returned to the ring, -1 */
	int first_micro;          /* of the pass */
	int now;                  /* moment of the listing in a pass: the visit, and a few after the last */
};

/* plan_build.c */
int visit_group(const struct builder *b, int v);
int visit_is_backward(const struct builder *b, int v);

/* How many visits ahead of `v` its transfers are listed. */
int visit_distance(const struct builder *b, int v);

/* Units of a stage's tensors, each once: all, or those that train. Returns the number of units, at most
 * STAGE_TENSORS_MAX. */
enum stage_tensors { STAGE_ALL, STAGE_TRAINED };
int stage_units(const struct builder *b, int stage, enum stage_tensors which, int *units);

/* A device buffer; one for a unit or a shard of it, `count` elements of dtype; one for a whole unit on the
 * device. */
int device_buffer(
        struct builder *b, enum buffer_kind kind, enum layout_class layout, int64_t bytes, int micro);
int unit_buffer(struct builder *b, enum buffer_kind kind, enum plan_space space, enum layout_class layout,
        int unit, int64_t count, enum dtype dtype);
int whole_buffer(
        struct builder *b, enum buffer_kind kind, enum layout_class layout, int unit, enum dtype dtype);

/* plan_residency.c: where each unit's planes live; after the intervals of a training pass are known. */
int residency_find(struct builder *b);

/* plan_weights.c: when a unit's weights are on the device. */
int intervals_find(struct builder *b);
void intervals_free(struct builder *b);
enum emit_moment { EMIT_BEFORE, EMIT_AFTER };
void fetches_emit(struct builder *b, int v,
        enum emit_moment moment);            /* FETCHes that policy lists at this moment of a visit */
void fetches_hold(struct builder *b, int v); /* after the work of the visit in which they were listed */
void weights_arg(struct builder *b, int v, int stage); /* weights that the stage reads in this visit */

/* plan_gradients.c: from the running fp32 gradient of a unit to the place where its UPDATE finds it. */
void gradient_last_find(struct builder *b);
void gradients_open(
        struct builder *b, int stage); /* a unit's running gradient, before its first use in a pass */
void gradients_arg(struct builder *b, int stage);
/* One moment of the listing further, for all gradients on their way. In two halves: rounded and its squares
 * summed right after the visit that made it whole, returned a visit later. So neither what is rounded nor
 * what is returned lies in bytes that the visit between needs, and no work waits for a copy. Without backward
 * prefetch memory counts more, and both halves come at once. A gradient that is one part of a sum moves a
 * visit later too. */
void gradients_close(struct builder *b, int m0, int m1);
void updates_emit(struct builder *b);

int plan_layout(struct plan *p);
int plan_order(struct plan *p);
int plan_insert_discards(struct plan *p);

#endif
