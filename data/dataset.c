/* Opening a data set: format, splits, what is refused. */
#include "data/dataset.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/dataset_build.h"
#include "data/sampler.h"
#include "data/source/records.h"
#include "data/tokenizer/tokenizer.h"

/* Records until the end of the file or max_samples. */
static int read_records(struct dataset_builder *b, struct records *records)
{
	const struct dataset_options *o = b->options;
	json_t *record = NULL;
	int rc;

	while (o->max_samples == 0 || b->d->counts.records < o->max_samples) {
		rc = records_next(records, &record);
		if (rc <= 0)
			return rc;
		b->where = records_where(records);
		rc = 0;
		if (!json_is_object(record))
			rc = err_set(
			        ERR_INPUT, "%s: %s; expected an object", b->where, json_kind_name(record));
		if (rc == 0 && b->d->format == DATASET_FORMAT_AUTO)
			rc = row_format_find(&b->d->format, b, record);
		b->ids->count = b->targets->count = 0;
		if (rc == 0)
			rc = row_format_read(b, record);
		json_decref(record);
		if (rc < 0)
			return rc;
		b->d->counts.records++;
	}
	return 0;
}

/* What must hold once everything is read, and the one line that says what was left out. */
static int check_result(const struct dataset_builder *b)
{
	const struct dataset *d = b->d;
	const char *path = b->options->path;

	if (d->counts.records == 0)
		return err_set(ERR_INPUT, "%s: the file has no rows", path);
	if (d->row_count == 0)
		return err_set(ERR_INPUT,
		        "%s: no row is left: %" PRId64 " longer than max_length were dropped, %" PRId64
		        " had no tokens",
		        path, d->counts.dropped, d->counts.empty);
	if (d->target_count == 0)
		return err_set(ERR_INPUT,
		        "%s: no row has a token to train on (%s is the first without); with prompts, "
		        "max_length "
		        "may cut every answer off",
		        path, d->counts.without_target_first);
	if (d->counts.without_target)
		log_warn("%s: %" PRId64 " of %" PRId64 " rows have no token to train on; the first is %s",
		        path, d->counts.without_target, d->row_count, d->counts.without_target_first);
	return 0;
}

static int check_options(const struct dataset_options *o)
{
	if (o->max_length_tokens < 0 || o->max_length_tokens == 1)
		return err_set(ERR_INPUT, "max_length is %" PRId64 ": a row needs at least 2 tokens",
		        o->max_length_tokens);
	if (o->max_samples < 0)
		return err_set(ERR_INPUT, "max_samples is %" PRId64, o->max_samples);
	return 0;
}

static int read_file(struct dataset_builder *b, const char *path)
{
	struct records *records = NULL;
	int rc;

	b->where = path;
	if (file_is_text(path) &&
	        (b->d->format == DATASET_FORMAT_AUTO || b->d->format == DATASET_FORMAT_TEXT)) {
		b->d->format = DATASET_FORMAT_TEXT;
		return dataset_read_plain(b, path);
	}
	rc = records_open(&records, path);
	if (rc == 0)
		rc = read_records(b, records);
	b->where = path;
	records_close(records);
	return rc;
}

int dataset_open(struct dataset **out, const struct dataset_options *options)
{
	struct dataset_builder b = {.options = options, .where = options->path};
	struct files files = {0};
	int rc;

	*out = NULL;
	rc = check_options(options);
	if (rc < 0)
		return rc;
	b.text_field = options->text_field ? options->text_field : "text";
	b.vocab_count = options->vocab_count;
	if (b.vocab_count == 0 && options->tokenizer)
		b.vocab_count = tokenizer_vocab_count(options->tokenizer);
	rc = dataset_builder_begin(&b);
	if (rc == 0)
		rc = files_find(&files, options->path, options->split ? options->split : "train",
		        options->split_want);
	if (rc == 0)
		b.d->format = options->format;
	for (size_t i = 0; rc == 0 && i < files.count; i++)
		rc = read_file(&b, files.paths[i]);
	if (rc == 0)
		rc = check_result(&b);
	if (rc == 0)
		rc = dataset_builder_end(&b);
	if (rc == 0) {
		*out = b.d;
		b.d = NULL;
	}
	files_free(&files);
	dataset_builder_free(&b);
	return rc;
}

void dataset_close(struct dataset *d)
{
	if (!d)
		return;
	mem_free(d->row_start);
	mem_free(d->row_targets);
	mem_free(d->ids);
	mem_free(d->trained);
	mem_free(d->labels);
	mem_free(d);
}

/* Copies the rows with chosen[row] == want into a dataset of their own. */
static int copy_rows(struct dataset **out, const struct dataset *d, const uint8_t *chosen, int want)
{
	struct dataset_options none = {.path = ""};
	struct dataset_builder b = {.options = &none};
	int rc = dataset_builder_begin(&b);

	*out = NULL;
	for (int64_t row = 0; rc == 0 && row < d->row_count; row++)
		if (chosen[row] == want)
			rc = dataset_builder_copy(&b, d, row);
	if (rc == 0)
		rc = dataset_builder_end(&b);
	if (rc == 0) {
		b.d->format = d->format;
		b.d->counts = d->counts;
		*out = b.d;
		b.d = NULL;
	}
	dataset_builder_free(&b);
	return rc;
}

int dataset_split(
        struct dataset **eval, struct dataset *d, double part, enum shuffle_version shuffle, uint64_t seed)
{
	double rows = part < 1 ? ceil(part * (double)d->row_count) : part;
	struct dataset *kept = NULL, old;
	uint8_t *chosen = NULL;
	int rc;

	*eval = NULL;
	if (!(part > 0) || rows != floor(rows) || !(rows < (double)d->row_count))
		return err_set(ERR_INPUT,
		        "eval_split %g of %" PRId64
		        " rows: set a fraction below 1 or a whole number of rows, and leave rows to train on",
		        part, d->row_count);
	chosen = mem_alloc((size_t)d->row_count, 1);
	if (!chosen)
		return ERR_NOMEM;
	for (int64_t i = 0; i < (int64_t)rows; i++)
		chosen[permutation_at(shuffle, seed, PERMUTATION_STREAM_EVAL_SPLIT, d->row_count, i)] = 1;
	rc = copy_rows(eval, d, chosen, 1);
	if (rc == 0)
		rc = copy_rows(&kept, d, chosen, 0);
	if (rc == 0) { /* the caller's struct stays where it is, with the kept rows in it */
		old = *d;
		*d = *kept;
		*kept = old;
	} else {
		dataset_close(*eval);
		*eval = NULL;
	}
	dataset_close(kept);
	mem_free(chosen);
	return rc;
}
