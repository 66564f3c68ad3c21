/* What the files of the plan share: appending operations, arguments and buffers. Private to offload/plan_*.c.
 */
#ifndef FERRY_OFFLOAD_PLAN_PARTS_H
#define FERRY_OFFLOAD_PLAN_PARTS_H

#include "offload/plan.h"

enum access { ACCESS_READ = 1, ACCESS_WRITE = 2, ACCESS_BOTH = 3 };

/* Order of placing. What is touched whole (weights, gradients, block inputs) lies on top, so that the arena
 * ends where the last byte is really used. */
enum place_rank { PLACE_PERSISTENT, PLACE_WORK, PLACE_STREAM, PLACE_WEIGHT };

/* Index of the new buffer or operation. Out of memory marks the plan broken: plan_parts_check reports it
 * once, and further additions do nothing, so that builders need no check after each. */
int plan_add_buffer(
        struct plan *p, const char *what, enum plan_space space, enum place_rank rank, int64_t bytes);
int plan_add_op(
        struct plan *p, enum plan_op_kind kind, enum queue_kind queue, int unit, int stage, int micro);

/* Adds an argument to the last operation; a buffer < 0 is left out. */
void plan_add_arg(struct plan *p, enum plan_role role, int buffer, enum access access);
int plan_parts_check(const struct plan *p);

/* Buffers of state: persistent ones of each unit and of the run. -1 where policy has none. */
struct plan_state {
	int *host[STORE_PLANE_COUNT];        /* per unit: SPACE_STORE */
	int *device[STORE_PLANE_COUNT];      /* per unit: SPACE_DEVICE, for what is not offloaded */
	int *batch, *batch_host, *loss_host; /* per micro */
	int rope, norm, norm_host;
};

/* update of unit `u` from gradient buffer `gradient` (in the stage, the store or on the device). */
void plan_add_update(struct plan *p, const struct plan_state *s, int unit, int gradient, int updates);

/* All updates of the step before, in forward order. */
void plan_add_updates(struct plan *p, const struct plan_state *s);

int plan_place(struct plan *p);
int plan_order(struct plan *p);
int plan_insert_discards(struct plan *p);

#endif
