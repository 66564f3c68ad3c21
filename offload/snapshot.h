/* A snapshot: the planes after one step, read unit by unit while later steps run.
 *
 * Mental model. Nothing is copied when a snapshot begins. Each unit is in one of three states:
 *
 *     awaited   its last UPDATE is pending and runs under the next forward; a reader waits for that
 *     held      its planes are those of the snapshot; the next UPDATE waits
 *     free      the reader needs no more of it, or there is no snapshot
 *
 * All units begin as awaited if updates are pending, else as held. So the reader has a whole step, from a
 * unit's UPDATE to the next one, before anything waits for it. A reader that follows the order of updates
 * (snapshot_order) keeps that distance.
 *
 * No wait lasts forever. The UPDATE of an awaited unit does not wait here, and the reader waits for nothing
 * once its units are held. If that UPDATE will never run because the device failed, the owner cancels.
 *
 * Only for planes of the store, not for units that update on the device. One reader at a time, on its own
 * thread. Only the owning thread calls begin, is_awaiting and cancel.
 */
#ifndef FERRY_OFFLOAD_SNAPSHOT_H
#define FERRY_OFFLOAD_SNAPSHOT_H

#include "offload/store.h"

struct snapshot;

enum snapshot_updates { SNAPSHOT_UPDATES_NONE, SNAPSHOT_UPDATES_PENDING };

/* Plan and store must outlive it. ERR_NOMEM. */
int snapshot_open(struct snapshot **snapshot, const struct plan *plan, struct store *store);
void snapshot_close(struct snapshot *snapshot); /* NULL is allowed */

/* 1 if the store holds weights and optimizer state of all units, so that a snapshot can read them. */
int snapshot_is_possible(const struct snapshot *snapshot);

/* The unit at place `index` in the order of the next updates, 0 <= index < unit_count. */
int snapshot_order(const struct snapshot *snapshot, int index);

/* Call only after snapshot_end of the previous snapshot. */
void snapshot_begin(struct snapshot *snapshot, enum snapshot_updates updates);

/* 1 while a unit is awaited. The owner must run or cancel pending updates before it waits for the reader. */
int snapshot_is_awaiting(struct snapshot *snapshot);
void snapshot_cancel(struct snapshot *snapshot);

/* For the reader. snapshot_read waits until the tensor's unit may be read, then copies the elements that
 * this rank holds, in the plane's type, as engine_read. snapshot_at returns their address instead, valid
 * until done, or NULL if the rank lacks some. ERR_STOPPED after cancel. snapshot_done: the reader needs no
 * more of the tensor's piece with this element; a unit is free when all its pieces are done. snapshot_end:
 * the reader is finished. */
int snapshot_read(
        struct snapshot *snapshot, int tensor, enum plane plane, int64_t first, int64_t count, void *dst);
int snapshot_at(struct snapshot *snapshot, int tensor, enum plane plane, int64_t first, int64_t count,
        const void **at);
void snapshot_done(struct snapshot *snapshot, int tensor, int64_t first);
void snapshot_end(struct snapshot *snapshot);

/* Call around every UPDATE of host planes, on the thread that runs it. begin waits while the unit is held. */
void snapshot_update_begin(struct snapshot *snapshot, int unit);
void snapshot_update_end(struct snapshot *snapshot, int unit);

/* Total time that updates waited here since open. Any thread. */
int64_t snapshot_wait_ns(struct snapshot *snapshot);

#endif
