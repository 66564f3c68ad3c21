/* A snapshot: the planes as one step left them, read unit by unit while the steps after it run.
 *
 * Mental model. Nothing is copied when a snapshot begins. Each unit is in one of three states:
 *
 *     awaited   its last UPDATE is pending and runs under the next forward; whoever reads waits for that
 *     held      its planes are those of the snapshot; an UPDATE that would change them waits (on the cpu
 * queue) free      it was read, or there is no snapshot
 *
 * All units begin as awaited where updates are pending, else as held. So the reader has from a unit's UPDATE
 * to the next one, a whole step, before anybody waits for it. No wait can be for ever: the UPDATE that an
 * awaited unit needs waits for nothing here, and the reader, once its units are held, needs nobody. Where
 * that UPDATE will not come (the device failed), the owner cancels.
 *
 * One reader at a time, on a thread of its own; begin, cancel and wait_ns belong to the owning thread.
 */
#ifndef FERRY_OFFLOAD_SNAPSHOT_H
#define FERRY_OFFLOAD_SNAPSHOT_H

#include <stdint.h>

struct snapshot;

enum snapshot_updates { SNAPSHOT_UPDATES_NONE, SNAPSHOT_UPDATES_PENDING };

int snapshot_open(struct snapshot **snapshot, int unit_count); /* ERR_NOMEM */
void snapshot_close(struct snapshot *snapshot);                /* NULL is allowed */

/* None is under way: snapshot_end was called for the one before. */
void snapshot_begin(struct snapshot *snapshot, enum snapshot_updates updates);

/* 1 while a unit is awaited: pending updates must run, or be cancelled, before the owner waits for the
 * reader. */
int snapshot_is_awaiting(struct snapshot *snapshot);
void snapshot_cancel(struct snapshot *snapshot);

/* Reader. hold waits until the unit may be read; ERR_STOPPED after cancel. free lets it go, end all of them.
 */
int snapshot_hold(struct snapshot *snapshot, int unit);
void snapshot_free(struct snapshot *snapshot, int unit);
void snapshot_end(struct snapshot *snapshot);

/* Around every UPDATE of host planes, on the thread that runs it; begin waits while the unit is held. */
void snapshot_update_begin(struct snapshot *snapshot, int unit);
void snapshot_update_end(struct snapshot *snapshot, int unit);

/* How long updates waited here, since open. */
int64_t snapshot_wait_ns(struct snapshot *snapshot);

#endif
