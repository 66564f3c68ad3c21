/* ferry eval: computes loss and perplexity on rows, without memory for an optimizer. */
#include "cli/cli.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/str.h"
#include "comm/world.h"
#include "placement/options.h"
#include "train/evaluate.h"
#include "train/metrics.h"
#include "train/ranks/ranks_compare.h"
#include "train/ranks/ranks_share.h"
#include "train/run_dir/run_dir.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Token losses of all rows in the order of rows, independent of ranks and the order of computation. */
struct row_losses {
	const struct dataset *data;
	double *values; /* 0 if another rank has the row */
	int64_t *first; /* [row_count] */
};

static int row_losses_open(struct row_losses *r, const struct dataset *data)
{
	int64_t at = 0;

	r->data = data;
	r->values = mem_alloc((size_t)data->target_count, sizeof(*r->values));
	r->first = mem_alloc((size_t)data->row_count, sizeof(*r->first));
	if (!r->values || !r->first)
		return ERR_NOMEM;
	for (int64_t row = 0; row < data->row_count; row++) {
		r->first[row] = at;
		at += dataset_row_targets(data, row);
	}
	return 0;
}

static void row_losses_free(struct row_losses *r)
{
	mem_free(r->values);
	mem_free(r->first);
}

static int row_losses_add(void *context, int64_t row, const float *losses, int64_t count)
{
	struct row_losses *r = context;

	for (int64_t i = 0; i < count; i++)
		r->values[r->first[row] + i] = (double)losses[i];
	return 0;
}

/* Sums over all ranks, in pieces. */
static int row_losses_share(struct row_losses *r)
{
	enum { PIECE = 65536 };
	int rc = 0;

	for (int64_t at = 0; at < r->data->target_count && !rc; at += PIECE) {
		int64_t left = r->data->target_count - at;

		rc = world_sum(r->values + at, (int)(left < PIECE ? left : PIECE));
	}
	return rc;
}

/* Makes a list for each row. */
static int row_losses_lists(json_t **out, const struct row_losses *r)
{
	json_t *lists = json_array();
	int failed = !lists;

	for (int64_t row = 0; row < r->data->row_count && !failed; row++) {
		json_t *list = json_array();

		failed = json_array_append_new(lists, list);
		for (int64_t i = 0; i < dataset_row_targets(r->data, row) && !failed; i++)
			failed = json_array_append_new(list, json_finite(r->values[r->first[row] + i]));
	}
	*out = lists;
	return failed ? err_set(ERR_NOMEM, "out of memory for token losses") : 0;
}

static int eval_report(const struct config *c, const struct evaluation *e, json_t *token_losses)
{
	const struct objective *o = objective_of_config(c).type;
	int64_t rows = o->is_mean_of_rows ? e->units : e->rows;
	struct objective_means means =
	        objective_means_of(o, e->sums, o->is_mean_of_rows ? rows : e->targets, e->targets);
	double speed = (double)e->tokens / e->seconds;
	json_t *object;
	int rc;

	means.scores = e->scores;
	if (!c->json) {
		struct str more = {0};

		if (!o->is_mean_of_entropy)
			evaluate_say(&more, o, &means);
		if (o->is_mean_of_entropy)
			cli_tell(c,
			        "loss %.6f   perplexity %.4f   %lld targets in %lld rows   %.0f tokens/s\n",
			        means.loss, exp(means.loss), (long long)e->targets, (long long)rows, speed);
		else
			cli_tell(c, "loss %.6f%s   %lld rows   %.0f tokens/s\n", means.loss,
			        more.data ? more.data : "", (long long)rows, speed);
		str_free(&more);
		evaluate_say_sets(&more, e, "\n");
		if (more.data)
			cli_tell(c, "%s\n", more.data + 1);
		str_free(&more);
		return 0;
	}
	object = json_pack("{s:f,s:I,s:I,s:f}", "loss", means.loss, "target_tokens", (json_int_t)e->targets,
	        "rows", (json_int_t)rows, "tokens_per_s", speed);
	if (!object)
		return err_set(ERR_NOMEM, "out of memory for the result");
	if (o->is_mean_of_entropy)
		json_object_set_new(object, "perplexity", json_finite(exp(means.loss)));
	for (int i = 0; i < OBJECTIVE_METRICS_MAX && o->metrics[i]; i++)
		json_object_set_new(object, o->metrics[i], json_finite(means.metric[i]));
	for (int i = 0; i < means.scores.count; i++)
		json_object_set_new(object, means.scores.of[i].name, json_finite(means.scores.of[i].value));
	rc = metrics_sets_add(object, "", o, e);
	if (token_losses)
		json_object_set(object, "token_losses", token_losses);
	rc = rc ? rc : cli_print_json(object);
	json_decref(object);
	return rc;
}

static int inputs_open(struct session *s, const struct config *c)
{
	int rc = session_open_model(s, c, SESSION_WEIGHTS_MODEL);

	if (!rc)
		rc = ranks_share_model(c, &s->model);
	if (!rc)
		rc = session_infer(s);
	return rc ? rc : session_open_rows(s);
}

static int engine_prepare(struct session *s)
{
	struct engine_options o;
	int rc = session_open_device(s, NULL);

	if (rc)
		return rc;
	session_engine_options(s, &o);
	o.policy.rope_positions = s->eval.limits.doc_tokens;
	o.eval = session_rows_sizes(&s->eval);
	rc = session_open_engine(s, &o);
	return rc ? rc : session_start_engine(s);
}

static int is_same_path(const char *a, const char *b)
{
	char *real_a = realpath(a, NULL), *real_b = realpath(b, NULL);
	int same = real_a && real_b && !strcmp(real_a, real_b);

	free(real_a);
	free(real_b);
	return same;
}

/* Warns if the run that made the model held back other rows: it was trained on some of these. */
static void compare_split(const struct config *c)
{
	char *up = mem_printf("%s/..", c->model), *dir = up ? realpath(up, NULL) : NULL;
	char *file = dir ? file_join(dir, "config.yaml") : NULL;
	struct config run = {0};

	if (!file || !run_dir_is_run(dir) || file_kind_of(file) != FILE_REGULAR)
		goto out;
	if (config_parse(&run, VERB_TRAIN, 1, &file))
		log_warn("%s; whether the run held back the same rows is unknown", err_text());
	else if (run.eval_split > 0 && (run.seed != c->seed || run.eval_split != c->eval_split))
		log_warn("the run of %s held back other rows and was trained on some of these; for its rows "
		         "set seed=%" PRId64 " eval_split=%s",
		        c->model, run.seed, config_text(&run, "eval_split"));
	config_free(&run);
out:
	mem_free(file);
	free(dir);
	mem_free(up);
}

/* Logs the model, because the config.yaml of a run names the model that the run started from. */
static void say_what(const struct config *c)
{
	char *result = c->output_dir ? mem_printf("%s/model", c->output_dir) : NULL;
	char *config = result ? mem_printf("%s/config.json", result) : NULL;

	if (world_self()->rank)
		goto out;
	log_info("evaluating %s on %s", c->model, c->data);
	if (c->eval_data)
		log_warn("%s=%s is not evaluated; for that set data=%s", config_where(c, "eval_data"),
		        c->eval_data, c->eval_data);
	if (config && file_kind_of(config) == FILE_REGULAR && !is_same_path(result, c->model))
		log_warn("%s is the model that the run started from; to evaluate its result set model=%s",
		        c->model, result);
	if (c->eval_split > 0)
		compare_split(c);
out:
	mem_free(config);
	mem_free(result);
}

int cli_eval(const struct config *c)
{
	struct session s = {0};
	struct evaluation result;
	json_t *token_losses = NULL;
	struct row_losses rows = {0};
	struct ranks_inputs inputs;
	int rc = inputs_open(&s, c);

	if (!rc)
		say_what(c);
	inputs = session_inputs(&s, NULL);
	rc = ranks_check_inputs(c, &inputs, rc);
	if (!rc)
		rc = world_agree(engine_prepare(&s));
	if (!rc)
		rc = session_load_weights(&s);
	if (!rc)
		rc = world_agree(c->per_token ? row_losses_open(&rows, s.eval.data) : 0);
	if (!rc)
		rc = evaluate(&s, &s.eval, &result, c->per_token ? row_losses_add : NULL, &rows);
	if (!rc && c->per_token)
		rc = row_losses_share(&rows);
	if (!rc && c->per_token)
		rc = row_losses_lists(&token_losses, &rows);
	if (!rc && !isfinite(result.sums[0]))
		rc = world_agree(err_set(ERR_NONFINITE, "the loss is not finite (%g)", result.sums[0]));
	if (!rc)
		rc = eval_report(c, &result, token_losses);
	json_decref(token_losses);
	row_losses_free(&rows);
	if (world_can_free(rc))
		session_close(&s);
	return rc;
}
