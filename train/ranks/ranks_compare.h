/* Compares the inputs of all ranks with those of rank 0 at the start, before anything is written.
 * Collective; returns the same code on all ranks. */
#ifndef FERRY_TRAIN_RANKS_RANKS_COMPARE_H
#define FERRY_TRAIN_RANKS_RANKS_COMPARE_H

#include "checkpoint/hf/hf_import.h"
#include "checkpoint/load.h"
#include "config/config.h"
#include "data/rows/dataset.h"
#include "offload/engine.h"

/* Compares program and configuration. ERR_INPUT on all ranks names the rank and the first difference. */
int ranks_check(const struct config *c);

/* Opened inputs of a rank; NULL: none. hash: of all rows in the order of drawing. */
struct ranks_inputs {
	const struct hf_import *import;
	const struct checkpoint *resumed;
	struct ranks_rows {
		const struct dataset *data;
		uint64_t hash;
	} train, eval;
};

/* Compares the model, the checkpoint and the rows. Of rows: all token ids, labels and orders.
 * Of the model: config.json and, for each file of weights, length, header and 32 blocks of 4 KiB. Of a
 * checkpoint: its manifest, which has a checksum for every block. `code` is this rank's result of opening
 * them. Compares nothing with load=rank0_only. */
int ranks_check_inputs(const struct config *c, const struct ranks_inputs *inputs, int code);

/* Compares what the plans exchange between ranks, because a rank would wait for ever for an exchange that
 * another does not plan. ERR_INTERNAL: all that plans follow from is the same on all ranks. */
int ranks_check_plans(const struct engine *engine);

#endif
