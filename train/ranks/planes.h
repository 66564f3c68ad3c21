/* An engine's planes as a source and a sink for checkpoint/, and the ranges of a rank.
 *
 * A plane is one array of numbers over all parameters: the bf16 weights, their low halves, the moments of
 * AdamW and their scales (checkpoint/file/plane_io.h). Each rank owns a shard of every unit, and so a
 * range of most tensors.
 */
#ifndef FERRY_TRAIN_RANKS_PLANES_H
#define FERRY_TRAIN_RANKS_PLANES_H

#include "checkpoint/file/plane_io.h"
#include "config/config.h"
#include "offload/engine.h"

/* The run's format of AdamW's moments. */
enum adamw_state planes_state(const struct config *c);

/* A sink to fill the planes of a new engine once, and a source to read them. Both borrow the engine. */
void planes_sink(struct plane_sink *sink, struct engine *e);
void planes_source(struct plane_source *source, struct engine *e);

/* A source of a snapshot's planes (offload/snapshot.h), for another thread; the source's END ends the
 * snapshot. */
void planes_snapshot_source(struct plane_source *source, struct engine *e);

/* The ranges of tensors in this rank's shards, in the order of the table (mem_free). PLANES_LOAD: those that
 * fill the shards, which are more where blocks of codes are cut (unit_map_needed). PLANES_WRITE: if several
 * ranks hold the same shards, only this rank's part to write. ERR_NOMEM. */
enum planes_purpose { PLANES_LOAD, PLANES_READ, PLANES_WRITE };
int planes_held(struct plane_range **ranges, int64_t *range_count, const struct unit_map *map,
        enum planes_purpose purpose);

/* Fills this rank's ranges of a new engine. */
int planes_load(struct engine *e, plane_fill *fill, void *context);

#endif
