/* Reads the rows of a session, and makes those of a damaged data_cache again. */
#include "train/session.h"

#include "train/inputs/data_cache.h"
#include "train/inputs/data_config.h"
#include "train/inputs/sentence.h"
#include "train/inputs/tokenizer_fit.h"
#include "train/ranks/ranks_share.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "comm/world.h"
#include "data/batches.h"
#include "placement/options.h"
#include "placement/ranks.h"

#include <inttypes.h>
#include <xxhash.h>

/* ROWS_IN_FILES: the rows go to data_cache also where memory would do. */
enum rows_place { ROWS_BY_SIZE, ROWS_IN_FILES };

static int read_own(struct session *s, struct dataset **data, const char *path, enum rows_place place)
{
	const struct config *c = s->config;
	struct chat_template *chat_template = NULL;
	struct data_cache cache = {0};
	struct dataset_options o;
	struct err why = {0};
	int is_copied = c->data_format == DATASET_FORMAT_TOKENS &&
	                objective_of_config(c).type->rows != DATASET_HIDDEN_ONLY,
	    rc;

	if (is_copied && data == &s->train.data &&
	        tokenizer_fit_check(c->tokenizer ? c->tokenizer : s->model_dir, s->model->config.V))
		return ERR_NOMEM;
	rc = is_copied ? 0 : session_need_tokenizer(s);
	/* Rows of ids need no tokenizer. A missing or unsupported one matters only if the rows are text. */
	err_take(&why, rc);
	rc = data_config_chat_template(&chat_template, c, s->model_dir, s->tokenizer);
	if (rc)
		return rc;
	o = data_config_options(c, path, s->tokenizer, chat_template, s->model->config.V);
	o.labels = s->labels.of;
	if (c->embedding_loss)
		sentence_rows(&o, &s->sentence, c);
	o.no_tokenizer = &why;
	o.refused = s->model->replaced;
	o.refused_count = TEXT_PART_REPLACED;
	rc = data_cache_set(&cache, &o, c, s->model_dir, s->model->parameter_count);
	if (place == ROWS_IN_FILES)
		o.memory_bytes = 1;
	if (!rc)
		rc = dataset_open(data, &o);
	if (!rc && (*data)->counts.chats)
		s->writes_date |= chat_template_dates(NULL, chat_template);
	if (!rc && (*data)->counts.chats && path == c->data)
		data_config_template_report(c, chat_template);
	if (!rc && c->verb == VERB_TRAIN && data == &s->train.data)
		rc = session_keep_chat(s, *data, chat_template);
	chat_template_close(chat_template);
	data_cache_free(&cache);
	return rc;
}

/* ---- damage ---- */

enum { MENDS_MAX = 3 };

static int read_again(const struct rows_origin *o, const struct row_store *damaged)
{
	struct dataset *again = NULL;
	int rc = read_own(o->session, &again, o->path, ROWS_IN_FILES);

	if (!rc && again->content_hash != o->content_hash)
		rc = err_set(ERR_IO,
		        "%s has changed since the run began, so its rows in %s, which is damaged, cannot be "
		        "made "
		        "again",
		        o->path, damaged->path);
	if (!rc)
		rc = row_store_replace(damaged, again->store);
	dataset_close(again);
	return rc;
}

/* For row_store.mend: the rows are made again from what they came from, as they were. */
static int mend(void *context, const struct row_store *damaged)
{
	struct rows_origin *o = context;
	int rc;

	if (o->mends++ == MENDS_MAX)
		return err_set(ERR_IO, "%s for the %dth time; set data_cache to another disk", err_text(),
		        MENDS_MAX + 1);
	log_warn("%s; making the rows of %s again", err_text(), o->path);
	world_set_phase("reading rows", HEARTBEAT_PATIENT);
	rc = read_again(o, damaged);
	return rc == ERR_INPUT ? err_reword(ERR_IO, "%s", err_text()) : rc; /* it began with good inputs */
}

static int read_mendable(struct session *s, struct dataset **data, const char *path)
{
	struct rows_origin *o = &s->origins[data == &s->eval.data];
	int rc = read_own(s, data, path, ROWS_BY_SIZE);

	if (rc || !(*data)->store->path || file_kind_of((*data)->store->path) == FILE_NONE)
		return rc; /* in memory, or of a pipe, which cannot be read again */
	*o = (struct rows_origin){.session = s, .path = path, .content_hash = (*data)->content_hash};
	(*data)->store->mend = mend;
	(*data)->store->mend_context = o;
	return 0;
}

int session_read_rows(struct session *s, struct dataset **data, const char *path)
{
	int rc = ranks_reads_files(s->config, world_self()) ? read_mendable(s, data, path) : 0;

	return rc ? rc : ranks_share_dataset(s->config, data);
}

/* ---- steps without duplicates ---- */

int session_texts_hash(uint64_t *text, const struct dataset *d)
{
	struct row_buffer buffer = {0};
	int rc = 0;

	for (int64_t i = 0; i < d->row_count && !rc; i++) {
		struct row_view view;

		rc = dataset_row_read(&view, &buffer, d, i);
		if (!rc)
			text[i] = XXH3_64bits(view.ids, (size_t)view.token_count * sizeof(*view.ids));
	}
	row_buffer_free(&buffer);
	return rc;
}

int session_rows_group(struct session_rows *r, const struct config *c)
{
	uint64_t *text = mem_alloc((size_t)r->data->row_count, sizeof(*text));
	struct sampler *s = &r->source.sampler;
	int64_t wanted = s->steps_per_epoch;
	int rc = text ? 0 : ERR_NOMEM;

	if (r->mix.set_count)
		rc = err_set(ERR_UNSUPPORTED,
		        "%s=no_duplicates does not work with weights of data sets yet; leave the weights out "
		        "of data",
		        config_where(c, "batch_sampler"));
	if (!rc)
		rc = session_texts_hash(text, r->data);
	if (!rc)
		rc = batches_open(&r->batches, s, text, dataset_unit_rows(r->data));
	if (!rc)
		sampler_use(s, r->batches);
	if (!rc && s->steps_per_epoch > wanted)
		log_warn("%s=no_duplicates: an epoch has %" PRId64 " steps, not %" PRId64
		         ": texts that occur often leave some steps short",
		        config_where(c, "batch_sampler"), s->steps_per_epoch, wanted);
	mem_free(text);
	return rc;
}
