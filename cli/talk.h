/* Chats with the user in turns: generate chat=on without a prompt. */
#ifndef FERRY_CLI_TALK_H
#define FERRY_CLI_TALK_H

#include "cli/prompts.h"
#include "train/generation/generation.h"

/* Reads the user's turns from standard input, one a line, until it ends. Writes each answer as it is
 * generated. Keeps the chat so far; parts in the cache do not run again. A turn that does not fit the cache
 * is refused and forgotten. With drop_oldest the oldest turns make room instead. */
int talk(struct generation *g, struct prompts *prompts);

#endif
