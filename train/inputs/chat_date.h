/* The date that chat templates write, one for all rows of a run.
 *
 * A template may write today's date. Rows that are rendered on another day are other rows, so a run keeps the
 * date that it began with in its key chat_template_date: in config.yaml, and in the settings of checkpoints.
 */
#ifndef FERRY_TRAIN_INPUTS_CHAT_DATE_H
#define FERRY_TRAIN_INPUTS_CHAT_DATE_H

#include "config/config.h"

#include <jansson.h>

/* Sets the key to rank 0's clock if nobody set it. Collective. */
int chat_date_begin(struct config *c);

/* The date of the run: the checkpoint's, unless the user set the key. resumed: its training state, or NULL.
 */
const char *chat_date_of_run(const struct config *c, const json_t *resumed);

/* What the checkpoint's rows have; NULL: it does not say. */
const char *chat_date_of_checkpoint(const json_t *resumed);

#endif
