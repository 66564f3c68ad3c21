/* Which function a verb is. */
#include "cli/cli.h"

/* One row per verb. */
static cli_command *const commands[VERB_COUNT] = {
        [VERB_INSPECT] = cli_inspect,
        [VERB_EXPORT] = cli_export,
        [VERB_VERIFY] = cli_verify,
        [VERB_TOKENIZE] = cli_tokenize,
        [VERB_DATA] = cli_data,
        [VERB_INIT] = cli_init,
        [VERB_BENCH] = cli_bench,
        [VERB_TOPO] = cli_topo,
        [VERB_TRAIN] = cli_train,
        [VERB_EVAL] = cli_eval,
        [VERB_GENERATE] = cli_generate,
        [VERB_PLAN] = cli_plan,
};

cli_command *cli_command_of(enum verb verb)
{
	return commands[verb];
}
