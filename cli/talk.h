/* Talking with a model in turns: generate chat=on without a prompt. */
#ifndef FERRY_CLI_TALK_H
#define FERRY_CLI_TALK_H

#include "cli/prompts.h"
#include "train/generation.h"

/* Reads the user's turns from standard input, a line each, until it ends; the answer to each is written as it
 * comes. The chat so far is kept, and what the cache has of it is not run again. A turn that does not fit the
 * cache is refused and forgotten, or with drop_oldest the oldest turns make room. */
int talk(struct generation *g, struct prompts *prompts);

#endif
