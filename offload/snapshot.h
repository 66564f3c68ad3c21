/* A snapshot: the planes as one step left them, read unit by unit while the steps after it run.
 *
 * Mental model. Nothing is copied when a snapshot begins. Each unit is in one of three states:
 *
 *     awaited   its last UPDATE is pending and runs under the next forward; whoever reads waits for that
 *     held      its planes are those of the snapshot; an UPDATE that would change them waits
 *     free      it was read, or there is no snapshot
 *
 * All units begin as awaited where updates are pending, else as held. So the reader has from a unit's UPDATE
 * to the next one, a whole step, before anybody waits for it, and who reads units in the order of their
 * updates (snapshot_order) keeps that distance. No wait is for ever: the UPDATE that an awaited unit needs
 * waits for nothing here, and the reader, once its units are held, needs nobody. Where that UPDATE will not
 * come (the device failed), the owner cancels.
 *
 * For planes of the store only: units that are updated on the device are not to be had this way. One reader
 * at a time, on a thread of its own; begin, is_awaiting and cancel belong to the owning thread.
 */
#ifndef FERRY_OFFLOAD_SNAPSHOT_H
#define FERRY_OFFLOAD_SNAPSHOT_H

#include "offload/store.h"

struct snapshot;

enum snapshot_updates { SNAPSHOT_UPDATES_NONE, SNAPSHOT_UPDATES_PENDING };

/* Plan and store must outlive it. ERR_NOMEM. */
int snapshot_open(struct snapshot **snapshot, const struct plan *plan, const struct store *store);
void snapshot_close(struct snapshot *snapshot); /* NULL is allowed */

/* 1 where the store holds weights and optimizer state of all units: they can be read so. */
int snapshot_is_possible(const struct snapshot *snapshot);

/* Unit `index` of the order in which the next updates will come, 0 <= index < unit_count. */
int snapshot_order(const struct snapshot *snapshot, int index);

/* None is under way: snapshot_end was called for the one before. */
void snapshot_begin(struct snapshot *snapshot, enum snapshot_updates updates);

/* 1 while a unit is awaited: pending updates must run, or be cancelled, before the owner waits for the
 * reader. */
int snapshot_is_awaiting(struct snapshot *snapshot);
void snapshot_cancel(struct snapshot *snapshot);

/* Reader: waits until the tensor's unit may be read, and copies elements that this rank holds, in the plane's
 * own type, as engine_read; or says where they lie until done, all of them, else NULL. ERR_STOPPED after
 * cancel. snapshot_done: nothing more of this tensor; a unit is
 * free when all its tensors are done. snapshot_end: nothing more at all. */
int snapshot_read(
        struct snapshot *snapshot, int tensor, enum plane plane, int64_t first, int64_t count, void *dst);
int snapshot_at(struct snapshot *snapshot, int tensor, enum plane plane, int64_t first, int64_t count,
        const void **at);
void snapshot_done(struct snapshot *snapshot, int tensor);
void snapshot_end(struct snapshot *snapshot);

/* Around every UPDATE of host planes, on the thread that runs it; begin waits while the unit is held. */
void snapshot_update_begin(struct snapshot *snapshot, int unit);
void snapshot_update_end(struct snapshot *snapshot, int unit);

/* How long updates waited here, since open, until now. Any thread. */
int64_t snapshot_wait_ns(struct snapshot *snapshot);

#endif
