/* ferry embed: writes the vectors of texts. */
#include "cli/cli.h"
#include "cli/vectors_file.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "device/contrast_kind.h"
#include "objective/vectors.h"
#include "train/evaluate.h"

#include <inttypes.h>
#include <math.h>

static int output_check(const struct config *c)
{
	char *dir;
	int rc;

	if (!vectors_file_is_known(c->output))
		return err_set(ERR_UNSUPPORTED,
		        "%s=%s: vectors are written as .npy, .jsonl or .parquet; end the name with one of "
		        "these",
		        config_where(c, "output"), c->output);
	if (file_kind_of(c->output) != FILE_NONE)
		return err_set(ERR_INPUT, "%s=%s exists; choose another name, or remove it",
		        config_where(c, "output"), c->output);
	dir = file_dir_of(c->output);
	if (!dir)
		return ERR_NOMEM;
	rc = file_kind_of(dir) == FILE_DIR
	             ? 0
	             : err_set(ERR_INPUT, "%s=%s: there is no folder %s; make it, or name another",
	                       config_where(c, "output"), c->output, dir);
	mem_free(dir);
	return rc;
}

static int micro_embed(struct session *s, struct vectors_file *o)
{
	struct micro_batch *mb = s->eval.micro[0];
	int64_t width = vectors_width(s->model), stride;
	struct host_batch batch;
	const float *losses;
	float *rows;
	int rc;

	host_batch_of(&batch, mb);
	rc = engine_eval(s->engine, &losses, &batch);
	if (rc)
		return rc;
	rows = engine_vectors(s->engine, &stride);
	for (int64_t d = 0; d < mb->doc_count && !rc; d++) {
		float *row = rows + d * stride;

		for (int64_t i = 0; i < width; i++)
			if (!isfinite(row[i]))
				return err_set(ERR_NONFINITE, "the vector of row %" PRId64 " is not finite",
				        mb->doc_row[d] + 1);
		rc = vectors_file_add(o, row);
	}
	return rc;
}

static int all_embed(struct session *s, struct vectors_file *o)
{
	const struct batch_source *source = &s->eval.source;
	int rc = 0;

	for (int64_t step = 0; step < source->sampler.steps_per_epoch && !rc; step++)
		for (int64_t m = 0; m < sampler_micro_count(&source->sampler, step) && !rc; m++) {
			rc = batch_build(s->eval.micro[0], source, step, m);
			if (!rc)
				rc = micro_embed(s, o);
		}
	return rc;
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

static int report(const struct config *c, const struct session *s, double seconds)
{
	int64_t rows = s->eval.data->row_count, width = vectors_width(s->model);
	double speed = (double)s->eval.data->token_count / seconds;
	json_t *object;
	int rc;

	if (!c->json) {
		cli_say(c, "%s: %" PRId64 " vectors of %" PRId64 " numbers   %.0f tokens/s\n", c->output,
		        rows, width, speed);
		return 0;
	}
	object = json_pack("{s:o,s:I,s:I,s:f}", "output", json_string(c->output), "rows", (json_int_t)rows,
	        "dimensions", (json_int_t)width, "tokens_per_s", speed);
	rc = object ? cli_print_json(object) : err_set(ERR_NOMEM, "out of memory for JSON");
	json_decref(object);
	return rc;
}

int cli_embed(const struct config *given)
{
	struct config c = *given; /* with an objective that makes vectors */
	struct session s = {0};
	struct vectors_file *o = NULL;
	double begin;
	int rc = output_check(&c);

	c.embedding_loss = CONTRAST_MNRL;
	c.query_prompt = c.prompt_name;
	if (!rc)
		rc = session_open_model(&s, &c, SESSION_WEIGHTS_MODEL);
	if (!rc)
		rc = session_infer(&s);
	if (!rc)
		rc = session_open_rows(&s);
	if (!rc)
		rc = engine_prepare(&s);
	if (!rc)
		rc = session_load_weights(&s);
	begin = clock_now_s();
	if (!rc)
		rc = vectors_file_open(&o, c.output, s.eval.data->row_count, vectors_width(s.model));
	if (!rc)
		rc = all_embed(&s, o);
	if (!rc)
		rc = vectors_file_end(o);
	vectors_file_close(o);
	if (!rc)
		rc = report(&c, &s, clock_now_s() - begin);
	session_close(&s);
	return rc;
}
