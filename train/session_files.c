/* The model's files as results need them: their names, and what they hold besides the model. */
#include "train/session_files.h"

#include "base/err.h"
#include "checkpoint/hf_import.h"
#include "comm/world.h"

#include <string.h>

int session_keeps_whole(const struct config *c)
{
	return !c->export_text_only || c->state_dict_type == CONFIG_STATE_DICT_FULL;
}

const struct hf_layout *session_layout(const struct session *s)
{
	return hf_import_layout(s->import);
}

int session_needs_files(const struct session *s)
{
	const struct config *c = s->config;

	return c->verb == VERB_TRAIN && !world_self()->rank && session_layout(s) && session_keeps_whole(c);
}

int session_find_files(struct session *s, const json_t *resumed)
{
	const char *then = json_string_value(json_object_get(resumed, SESSION_CARRIED));
	const struct config *c = s->config;
	int rc;

	if (!session_layout(s) || c->init_weights == CONFIG_INIT_WEIGHTS_RANDOM)
		return 0;
	rc = hf_import_hash(s->carried, s->import);
	if (rc || !then || !strcmp(then, s->carried))
		return rc;
	return err_set(ERR_INPUT,
	        "%s=%s has other files of weights than the model that the run began with; set model to that "
	        "one",
	        config_where(c, "model"), c->model);
}

int session_check_files(const struct session *s)
{
	char now[HF_HASH_BYTES];
	int rc = session_layout(s) ? hf_import_hash(now, s->import) : 0;

	if (rc || !session_layout(s) || !strcmp(now, s->carried))
		return rc;
	return err_set(ERR_INPUT,
	        "%s: the files of weights changed while the run went on, so a result cannot have the parts "
	        "that it "
	        "does not train from them; put the files back and resume, or resume with export_text_only=on",
	        s->config->model);
}
