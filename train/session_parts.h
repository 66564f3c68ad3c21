/* Whether a run divides the experts of its blocks (model/experts_parts.h). */
#ifndef FERRY_TRAIN_SESSION_PARTS_H
#define FERRY_TRAIN_SESSION_PARTS_H

#include "train/session.h"

/* Spends the budget as budget_spend, with whole blocks and with divided experts, and takes what fits and has
 * the shorter step. Where ranks share experts that train, these are always divided. Collective. */
int session_spend(struct session *s, struct engine_options *o);

#endif
