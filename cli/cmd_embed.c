/* ferry embed: writes the vectors of texts. */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "device/contrast_kind.h"
#include "objective/vectors.h"
#include "train/evaluate.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum kind { KIND_NPY, KIND_JSONL };

/* The file that is written beside its place, and renamed when it is whole. */
struct out {
	enum kind kind;
	const char *path;
	char *temp;
	FILE *file;
};

static int kind_find(enum kind *kind, const struct config *c)
{
	*kind = str_ends_with(c->output, ".jsonl") ? KIND_JSONL : KIND_NPY;
	if (str_ends_with(c->output, ".parquet"))
		return err_set(ERR_UNSUPPORTED,
		        "%s=%s: ferry writes no Parquet; write .npy and convert it "
		        "(docs/guide/embeddings.md)",
		        config_where(c, "output"), c->output);
	if (*kind == KIND_NPY && !str_ends_with(c->output, ".npy"))
		return err_set(ERR_UNSUPPORTED,
		        "%s=%s: vectors are written as .npy or .jsonl; end the name so",
		        config_where(c, "output"), c->output);
	if (file_kind_of(c->output) != FILE_NONE)
		return err_set(ERR_INPUT, "%s=%s exists; choose another name, or remove it",
		        config_where(c, "output"), c->output);
	return 0;
}

/* NumPy's format 1.0: fp32, rows one after the other. The header ends at a multiple of 64 bytes. */
static int npy_begin(FILE *file, int64_t rows, int64_t width)
{
	char text[118];
	int len = snprintf(text, sizeof(text),
	        "{'descr': '<f4', 'fortran_order': False, 'shape': (%" PRId64 ", %" PRId64 "), }", rows,
	        width);

	memset(text + len, ' ', sizeof(text) - (size_t)len);
	text[sizeof(text) - 1] = '\n';
	return fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, file) == 10 &&
	                       fwrite(text, 1, sizeof(text), file) == sizeof(text)
	               ? 0
	               : ERR_IO;
}

static int jsonl_write(FILE *file, const float *row, int64_t width)
{
	int failed = fputs("{\"embedding\":[", file) < 0;

	for (int64_t i = 0; i < width && !failed; i++)
		failed = fprintf(file, "%s%.9g", i ? "," : "", (double)row[i]) < 0;
	return failed || fputs("]}\n", file) < 0 ? ERR_IO : 0;
}

static int out_open(struct out *o, const struct config *c, int64_t rows, int64_t width)
{
	o->path = c->output;
	o->temp = mem_printf("%s.part", c->output);
	if (!o->temp)
		return ERR_NOMEM;
	o->file = fopen(o->temp, "wb");
	if (!o->file || (o->kind == KIND_NPY && npy_begin(o->file, rows, width)))
		return err_set(ERR_IO, "%s: cannot write: %m", o->temp);
	return 0;
}

static int out_end(struct out *o, int rc)
{
	int failed = o->file && (fflush(o->file) || fclose(o->file));

	if (!rc && failed)
		rc = err_set(ERR_IO, "%s: cannot write: %m", o->temp);
	if (!rc)
		rc = file_rename(o->temp, o->path);
	else if (o->file)
		(void)remove(o->temp);
	mem_free(o->temp);
	return rc;
}

/* ---- vectors ---- */

static int micro_embed(struct session *s, struct out *o)
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
		if (o->kind == KIND_NPY)
			rc = fwrite(row, sizeof(*row), (size_t)width, o->file) == (size_t)width ? 0 : ERR_IO;
		else
			rc = jsonl_write(o->file, row, width);
		if (rc)
			rc = err_set(ERR_IO, "%s: cannot write: %m", o->temp);
	}
	return rc;
}

static int all_embed(struct session *s, struct out *o)
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
	struct out o = {0};
	double begin;
	int rc = kind_find(&o.kind, &c);

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
		rc = out_open(&o, &c, s.eval.data->row_count, vectors_width(s.model));
	if (!rc)
		rc = all_embed(&s, &o);
	rc = out_end(&o, rc);
	if (!rc)
		rc = report(&c, &s, clock_now_s() - begin);
	session_close(&s);
	return rc;
}
