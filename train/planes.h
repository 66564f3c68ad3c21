/* An engine's planes, as checkpoint/ reads and writes them, and which ranges of them a rank holds.
 *
 * A plane is one array of numbers over all parameters: the bf16 weights, their low halves, the moments of
 * AdamW and their scales (checkpoint/plane_io.h). Each rank owns a shard of every unit, and so a range of
 * most tensors.
 */
#ifndef FERRY_TRAIN_PLANES_H
#define FERRY_TRAIN_PLANES_H

#include "checkpoint/plane_io.h"
#include "config/config.h"
#include "offload/engine.h"

/* How the run keeps the moments of AdamW. */
enum adamw_state planes_state(const struct config *c);

/* A sink for the planes of a new engine, to be filled once, and a source of them. They borrow the engine. */
void planes_sink(struct plane_sink *sink, struct engine *e);
void planes_source(struct plane_source *source, struct engine *e);

/* The planes of a snapshot (offload/snapshot.h), for another thread; the source's END ends it. */
void planes_snapshot_source(struct plane_source *source, struct engine *e);

/* The ranges of tensors that this rank's shards hold, in the order of the table (mem_free). PLANES_WRITE: of
 * what several ranks hold, this one's part of the writing. ERR_NOMEM. */
enum planes_purpose { PLANES_READ, PLANES_WRITE };
int planes_held(struct plane_range **ranges, int64_t *range_count, const struct unit_map *map,
        enum planes_purpose purpose);

#endif
