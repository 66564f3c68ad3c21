/* Opens a session for a plan: the device computes nothing, and no weights are read. */
#ifndef FERRY_CLI_PLAN_OPEN_H
#define FERRY_CLI_PLAN_OPEN_H

#include "train/session.h"

/* Opens the model, the rows if `data` exists, and the device. Set s->machine before. Close the session, also
 * after an error. ERR_UNSUPPORTED with s->model NULL: no model that ferry trains. */
int plan_open_model(struct session *s, const struct config *c);

/* Builds the plans, for rows of max_length if there are none. ERR_FIT: the device has no room. */
int plan_open_engine(struct session *s, int *world_size);

#endif
