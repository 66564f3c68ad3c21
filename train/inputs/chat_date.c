/* Finds the date that the chat template of a run writes. */
#include "train/inputs/chat_date.h"

#include "base/err.h"
#include "base/mem.h"
#include "comm/world.h"
#include "config/table.h"
#include "data/template/moment.h"

int chat_date_begin(struct config *c)
{
	int64_t now = moment_now();
	char text[MOMENT_TEXT_BYTES];
	int rc;

	if (c->chat_template_date || !(config_key_find("chat_template_date")->verbs >> c->verb & 1))
		return 0;
	rc = world_broadcast(&now, sizeof(now), 0); /* ranks may start on both sides of midnight */
	if (rc)
		return rc;
	moment_text(text, now);
	c->chat_template_date = mem_strdup(text);
	return c->chat_template_date ? 0 : ERR_NOMEM;
}

const char *chat_date_of_checkpoint(const json_t *resumed)
{
	const json_t *date = json_object_get(json_object_get(resumed, "settings"), "chat_template_date");

	return json_string_length(date) ? json_string_value(date) : NULL;
}

const char *chat_date_of_run(const struct config *c, const json_t *resumed)
{
	const char *then = chat_date_of_checkpoint(resumed);

	return then && !config_was_set(c, "chat_template_date") ? then : c->chat_template_date;
}
