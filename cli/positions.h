/* Are rows and prompts within the positions that the model knows? */
#ifndef FERRY_CLI_POSITIONS_H
#define FERRY_CLI_POSITIONS_H

#include "cli/session.h"

/* ERR_INPUT where positions are learned and end before; else a warning: rotary ones go on, but the model was
 * not made for them. */
int positions_check(const struct session *s, const struct engine_options *o);

#endif
