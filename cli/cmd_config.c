/* ferry config: shows what a configuration means, or asks for one. */
#include "cli/cli.h"
#include "cli/config_ask.h"

#include "base/err.h"
#include "config/write.h"

#include <stdio.h>

int cli_config(const struct config *c)
{
	struct str text = {0};
	json_t *object;
	int rc;

	if (!c->word_count)
		return config_ask();
	if (c->json) {
		object = config_json(c);
		rc = object ? cli_print_json(object) : err_set(ERR_NOMEM, "out of memory for the result");
		json_decref(object);
		return rc;
	}
	config_write_origins(&text, c);
	rc = str_check(&text);
	if (!rc && (fputs(text.data ? text.data : "", stdout) == EOF || fflush(stdout)))
		rc = err_set(ERR_IO, "cannot write to stdout");
	str_free(&text);
	return rc;
}
