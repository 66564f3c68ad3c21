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
#include "base/quantity.h"
#include "comm/world.h"
#include "data/batches.h"
#include "data/turns.h"
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
	struct dataset_own own[DATA_SETS_MAX];
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
	rc = data_losses_rows(&o, own, &s->losses, c, &s->sentence);
	o.no_tokenizer = &why;
	o.refused = s->model->replaced;
	o.refused_count = TEXT_PART_REPLACED;
	if (!rc)
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

static int batches_make(struct batches **b, struct sampler *s, const struct session_rows *r, int set)
{
	const struct dataset_set *of = &r->data->sets[set];
	int64_t first = r->data->is_apart ? of->first_row : 0;
	uint64_t *text = mem_alloc((size_t)r->data->row_count, sizeof(*text));
	int rc = text ? session_texts_hash(text, r->data) : ERR_NOMEM;

	if (!rc)
		rc = batches_open(b, s, text + first, dataset_set_unit_rows(r->data, set));
	if (!rc)
		sampler_use(s, batches_steps(*b));
	mem_free(text);
	return rc;
}

/* Groups all rows into steps without duplicates. */
static int rows_group(struct session_rows *r, const struct config *c)
{
	struct sampler *s = &r->source.sampler;
	int64_t wanted = s->steps_per_epoch;
	int rc;

	if (r->mix.set_count)
		return err_set(ERR_UNSUPPORTED,
		        "%s=no_duplicates does not work with weights of data sets yet; leave the weights out "
		        "of data",
		        config_where(c, "batch_sampler"));
	rc = batches_make(&r->batches, s, r, 0);
	if (!rc && s->steps_per_epoch > wanted)
		log_warn("%s=no_duplicates: an epoch has %" PRId64 " steps, not %" PRId64
		         ": texts that occur often leave some steps short",
		        config_where(c, "batch_sampler"), s->steps_per_epoch, wanted);
	return rc;
}

/* ---- steps of one data set each ---- */

static int is_grouped(const struct session_rows *r, const struct session *s)
{
	return r == &s->train && s->config->batch_sampler == CONFIG_BATCH_SAMPLER_NO_DUPLICATES;
}

/* The sampler of a set: that of all rows, with fewer of them. */
static int set_make(
        struct turns_set *to, struct session_rows *r, const struct session *s, int set, int64_t first)
{
	const struct config *c = s->config;
	int64_t units = dataset_set_unit_count(r->data, set);
	int rc;

	*to = (struct turns_set){r->source.sampler, first};
	to->sampler.row_count = units;
	to->sampler.stream = PERMUTATION_STREAM_APART(set);
	if (r == &s->train && units < to->sampler.step_rows)
		return err_set(ERR_INPUT,
		        "%s: the data set has %" PRId64 " row%s, too few for a step of %" PRId64
		        ", which has rows of one data set; lower per_device_train_batch_size or "
		        "gradient_accumulation_steps%s",
		        r->data->sets[set].name, units, plural_s(units), to->sampler.step_rows,
		        c->eval_split > 0 ? ", or eval_split" : "");
	rc = units ? sampler_init(&to->sampler)
	           : err_set(ERR_INPUT, "%s: none of its rows are left", r->data->sets[set].name);
	return !rc && is_grouped(r, s) ? batches_make(&r->set_batches[set], &to->sampler, r, set) : rc;
}

static int turns_make(struct session_rows *r, const struct session *s)
{
	const struct config *c = s->config;
	enum turns_order order =
	        r != &s->train ? TURNS_FILE
	        : c->multi_dataset_batch_sampler == CONFIG_MULTI_DATASET_BATCH_SAMPLER_ROUND_ROBIN
	                ? TURNS_ROUND_ROBIN
	                : TURNS_PROPORTIONAL;
	struct turns_set *sets = mem_alloc((size_t)r->data->set_count, sizeof(*sets));
	const char *path = r == &s->eval && s->train.data && c->eval_data ? c->eval_data : c->data;
	int64_t first = 0;
	int rc = sets ? data_losses_of(r->loss_of, &s->losses, c, path) : ERR_NOMEM;

	for (int i = 0; i < r->data->set_count && !rc; i++) {
		rc = set_make(&sets[i], r, s, i, first);
		first += dataset_set_unit_count(r->data, i);
	}
	if (!rc)
		rc = turns_open(&r->turns, sets, r->data->set_count, order, (uint64_t)c->seed);
	if (!rc)
		sampler_use(&r->source.sampler, turns_steps(r->turns));
	mem_free(sets);
	return rc;
}

int session_rows_steps(struct session_rows *r, const struct session *s)
{
	return r->data->is_apart ? turns_make(r, s) : is_grouped(r, s) ? rows_group(r, s->config) : 0;
}

/* What the rows of a step are trained for, where sets stay apart. */
static const struct data_loss *loss_of(const struct session *s, const struct session_rows *r, int64_t step)
{
	return r->turns ? &s->losses.sets[r->loss_of[sampler_step_set(&r->source.sampler, step)]] : NULL;
}

const struct objective_use *session_rows_use(
        const struct session *s, const struct session_rows *r, int64_t step)
{
	const struct data_loss *loss = loss_of(s, r, step);

	return loss ? &loss->use : NULL;
}

const char *session_rows_set(const struct session *s, const struct session_rows *r, int64_t step)
{
	const struct data_loss *loss = loss_of(s, r, step);

	return loss ? loss->name : NULL;
}

/* ---- losses without effect ---- */

/* Warns of steps of one row whose loss compares rows, and finds no other text to compare. */
static void lone_rows_report(const struct session_rows *r, const struct config *c, int set)
{
	const struct sampler *s = &r->source.sampler;
	int64_t lone = 0;

	if (!contrast_facts((enum contrast_kind)c->embedding_loss).compares_rows ||
	        dataset_set_unit_rows(r->data, set) > 2)
		return;
	for (int64_t step = 0; r->batches && step < s->steps_per_epoch; step++)
		lone += sampler_step_rows(s, step) == 1;
	if (lone && s->step_rows > 1)
		log_warn("batch_sampler=no_duplicates: %" PRId64 " of %" PRId64
		         " steps of an epoch have one row: their loss is 0 and nothing is learned there; "
		         "remove rows with equal texts",
		        lone, s->steps_per_epoch);
	if (s->step_rows > 1)
		return;
	log_warn("%s=%s compares the rows of a step, and each step has one: the loss is 0 and nothing is "
	         "learned; set gradient_accumulation_steps=16 or more",
	        config_where(c, "embedding_loss"), config_said(c, "embedding_loss"));
}

/* The same of micro-batches of an evaluation, which compares no further. */
static void lone_evaluated_report(const struct session_rows *r, const struct config *c, int set)
{
	if (!contrast_facts((enum contrast_kind)c->embedding_loss).compares_rows ||
	        c->per_device_eval_batch_size > 1 || dataset_set_unit_rows(r->data, set) != 2)
		return;
	log_warn("%s=%s compares the rows of a micro-batch, and a micro-batch of the evaluation has one row, "
	         "so "
	         "its loss is 0; set per_device_eval_batch_size=16 or more",
	        config_where(c, "embedding_loss"), config_said(c, "embedding_loss"));
}

/* The configuration that a set of the rows is trained by. */
static const struct config *config_of(const struct session *s, const struct session_rows *r, int set)
{
	return r->turns ? s->losses.sets[r->loss_of[set]].config : s->config;
}

void session_warn_lone(const struct session *s)
{
	int embeds = s->config->verb == VERB_EMBED;

	for (int i = 0; s->train.data && i < (s->train.turns ? s->train.data->set_count : 1); i++)
		lone_rows_report(&s->train, config_of(s, &s->train, i), i);
	for (int i = 0; s->eval.data && !embeds && i < (s->eval.turns ? s->eval.data->set_count : 1); i++)
		lone_evaluated_report(&s->eval, config_of(s, &s->eval, i), i);
}
