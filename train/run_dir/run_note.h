/* run.json in a run's directory: which ferry ran, when, where, by which command, on which rows.
 *
 *     {"version": "0.1.0", "started": "2026-11-28T08:15:02Z", "host": "node7", "device": "host (CPU)",
 * "ranks": 1,
 *      "command": "ferry train run.yaml", "data_hash": "5c7e...", "resumed": [{"step": 500, "version":
 * ...}]}
 *
 * A resumed run keeps what the first process wrote and adds itself to `resumed`. It is for people and
 * scripts: ferry never reads a setting from it, and a file that is damaged is begun anew.
 */
#ifndef FERRY_TRAIN_RUN_DIR_RUN_NOTE_H
#define FERRY_TRAIN_RUN_DIR_RUN_NOTE_H

#include "base/json.h"

#include <stdint.h>

#define RUN_NOTE_NAME "run.json"

/* This process. */
struct run_facts {
	const char *device, *command; /* command NULL: unknown */
	int ranks;
	uint64_t data_hash;
	int64_t step; /* done before; -1: the run begins */
};

/* The object of this run, with what DIR/run.json says of its past if it was resumed. NULL: out of memory. */
json_t *run_note_make(const struct run_facts *facts, const char *dir);

/* ERR_IO, ERR_NOMEM. */
int run_note_write(const json_t *note, const char *dir);

#endif
