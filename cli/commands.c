#include "cli/cli.h"

#include <stddef.h>

/* One row per command that this version has. */
static cli_command *const commands[VERB_COUNT] = {
        [VERB_TRAIN] = NULL,
};

cli_command *cli_command_of(enum verb verb)
{
	return commands[verb];
}
