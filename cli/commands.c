/* Maps each verb to its function. */
#include "cli/cli.h"

#define COMMANDS(ROW)                                                                                        \
	ROW(TRAIN, train)                                                                                    \
	ROW(EVAL, eval)                                                                                      \
	ROW(GENERATE, generate)                                                                              \
	ROW(PLAN, plan)                                                                                      \
	ROW(EXPORT, export)                                                                                  \
	ROW(MERGE, merge)                                                                                    \
	ROW(INSPECT, inspect)                                                                                \
	ROW(VERIFY, verify)                                                                                  \
	ROW(TOKENIZE, tokenize)                                                                              \
	ROW(DATA, data)                                                                                      \
	ROW(CONFIG, config)                                                                                  \
	ROW(INIT, init)                                                                                      \
	ROW(TOPO, topo)                                                                                      \
	ROW(BENCH, bench)                                                                                    \
	ROW(REPORT, report)                                                                                  \
	ROW(EMBED, embed)

#define COMMAND(NAME, name) [VERB_##NAME] = cli_##name,
static cli_command *const commands[VERB_COUNT] = {COMMANDS(COMMAND)};

#define ONE(NAME, name) +1
_Static_assert(0 COMMANDS(ONE) == VERB_COUNT, "each verb has a function");

cli_command *cli_command_of(enum verb verb)
{
	return commands[verb];
}
