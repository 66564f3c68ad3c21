/* The output directory of a run: what may be written there, and what stands where.
 *
 *     config.yaml  metrics.jsonl  checkpoint-000500/  model/
 *
 * A directory that holds anything is only written to with resume_from_checkpoint or overwrite_output_dir.
 * Overwriting removes what runs of ours leave, by name, and nothing else.
 */
#ifndef FERRY_TRAIN_RUN_DIR_H
#define FERRY_TRAIN_RUN_DIR_H

#include "config/config.h"

/* Whether `output_dir` may be used as the configuration says. Writes nothing. ERR_INPUT names both ways out.
 */
int run_dir_check(const struct config *c);

/* Makes the directory (and, with overwrite, empties it of what runs leave) and writes config.yaml. Call once
 * everything else was checked. */
int run_dir_open(const struct config *c);

/* Paths, to be freed with mem_free; NULL when out of memory. */
char *run_dir_metrics(const struct config *c);
char *run_dir_model(const struct config *c);

#endif
