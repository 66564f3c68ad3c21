/* Opens a session for a plan. */
#include "cli/plan_open.h"

#include "base/file.h"
#include "base/log.h"
#include "base/size.h"
#include "placement/options.h"
#include "train/inputs/paths.h"
#include "train/sample.h"

#include <inttypes.h>

/* Sizes for rows of max_length, or for the rows of `data` if it is given. */
static int sizes_find(struct session *s, struct engine_options *o)
{
	const struct config *c = s->config;
	const struct model_config *m = &s->model->config;
	int64_t row_tokens = c->max_length ? c->max_length : m->max_positions;
	const struct objective_use use = objective_of_config(c);
	int64_t texts = max_i64(use.type->row_documents, 1),
	        documents = c->per_device_train_batch_size * texts, eval_documents = 0;

	if (s->train.data)
		return sample_run_sizes(s, o);
	if (m->has[ROLE_POSITION] && row_tokens > m->max_positions) {
		row_tokens = m->max_positions;
		log_info("planning for rows of %" PRId64 " tokens, the model's maximum", row_tokens);
	}
	if (c->data)
		log_info("data=%s does not exist; planning for rows of %" PRId64 " tokens", c->data,
		        row_tokens);
	o->train = (struct engine_sizes){row_tokens * documents, row_tokens * documents, documents};
	if (c->eval_data || c->eval_split > 0)
		eval_documents = c->per_device_eval_batch_size * texts;
	if (objective_reads_values(&use))
		eval_documents = max_i64(eval_documents, documents);
	o->eval = (struct engine_sizes){
	        row_tokens * eval_documents, row_tokens * eval_documents, eval_documents};
	o->policy.rope_positions = row_tokens;
	return sample_add_sizes(s, o);
}

int plan_open_model(struct session *s, const struct config *c)
{
	int rc = session_open_model(s, c, SESSION_WEIGHTS_ELSEWHERE);

	if (!rc)
		rc = session_freeze(s);
	if (!rc && c->data && (file_kind_of(c->data) != FILE_NONE || path_is_pattern(c->data)))
		rc = session_open_rows(s);
	if (!rc)
		(void)session_open_side(s); /* a run reports errors of these files */
	return rc ? rc : session_open_device(s, "meta");
}

int plan_open_engine(struct session *s, int *world_size)
{
	struct engine_options o;
	int rc;

	session_engine_options(s, &o);
	o.check_plans = s->config->explain; /* --explain also verifies the plan */
	*world_size = o.world_size;
	rc = sizes_find(s, &o);
	return rc ? rc : session_open_engine(s, &o);
}
