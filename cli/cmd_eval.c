/* ferry eval: loss and perplexity of a model on rows, without an optimizer's memory. */
#include "cli/cli.h"
#include "cli/session.h"

#include "base/err.h"

#include <math.h>

/* A list of token losses per row, in row order whatever order they were computed in. */
static int row_losses_add(void *context, int64_t row, const float *losses, int64_t count)
{
	json_t *lists = context, *list = json_array_get(lists, (size_t)row);

	for (int64_t i = 0; i < count; i++)
		if (json_array_append_new(list, json_real((double)losses[i])))
			return err_set(ERR_NOMEM, "out of memory for token losses");
	return 0;
}

static json_t *row_lists(int64_t row_count)
{
	json_t *lists = json_array();

	for (int64_t i = 0; lists && i < row_count; i++)
		json_array_append_new(lists, json_array());
	return lists;
}

static int eval_report(const struct config *c, const struct session_eval *e, json_t *token_losses)
{
	double loss = e->loss_sum / (double)e->targets, speed = (double)e->tokens / e->seconds;
	json_t *object;
	int rc;

	if (!c->json) {
		cli_say(c, "loss %.6f   perplexity %.4f   %lld targets in %lld rows   %.0f tokens/s\n", loss,
		        exp(loss), (long long)e->targets, (long long)e->rows, speed);
		return 0;
	}
	object = json_pack("{s:f,s:f,s:I,s:I,s:f}", "loss", loss, "perplexity", exp(loss), "target_tokens",
	        (json_int_t)e->targets, "rows", (json_int_t)e->rows, "tokens_per_s", speed);
	if (!object)
		return err_set(ERR_NOMEM, "out of memory for the result");
	if (token_losses)
		json_object_set(object, "token_losses", token_losses);
	rc = cli_print_json(object);
	json_decref(object);
	return rc;
}

int cli_eval(const struct config *c)
{
	struct session s = {0};
	struct engine_options o;
	struct session_eval result;
	json_t *token_losses = NULL;
	int rc = session_open_model(&s, c, SESSION_WEIGHTS_MODEL);

	if (!rc)
		rc = session_open_rows(&s);
	if (!rc)
		rc = session_open_device(&s, NULL);
	if (rc)
		goto out;
	session_engine_options(&s, &o);
	o.policy.rope_positions = s.eval.limits.doc_tokens;
	o.eval = (struct engine_sizes){s.eval.limits.tokens, s.eval.limits.targets};
	rc = session_open_engine(&s, &o);
	if (!rc)
		rc = session_start_engine(&s);
	if (!rc)
		rc = session_load_weights(&s);
	if (rc)
		goto out;
	if (c->per_token)
		token_losses = row_lists(s.eval.data->row_count);
	rc = session_evaluate(&s, &result, token_losses ? row_losses_add : NULL, token_losses);
	if (!rc && !isfinite(result.loss_sum))
		rc = err_set(ERR_NONFINITE, "the loss is not finite (%g)", result.loss_sum);
	if (!rc)
		rc = eval_report(c, &result, token_losses);
out:
	json_decref(token_losses);
	session_close(&s);
	return rc;
}
