/* Opens the objects of a session, cheap ones first. */
#include "train/session.h"

#include "train/adapters.h"
#include "train/base_format.h"
#include "train/devices.h"
#include "train/inputs/data_config.h"
#include "train/inputs/sentence.h"
#include "train/inputs/tokenizer_fit.h"
#include "train/ranks/planes.h"
#include "train/ranks/ranks_load.h"
#include "train/ranks/world_hooks.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/quantity.h"
#include "checkpoint/fresh_weights.h"
#include "comm/world.h"
#include "data/batches.h"
#include "data/turns.h"
#include "host/pool.h"
#include "host/topology.h"
#include "model/families/open.h"
#include "model/family.h"
#include "model/freeze.h"
#include "placement/options.h"
#include "placement/ranks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* ---- model and tokenizer ---- */

/* The directory of a path to it or to its config.json. */
static char *model_dir_of(const char *path)
{
	return file_kind_of(path) == FILE_DIR ? mem_strdup(path) : file_dir_of(path);
}

/* Refuses a model that gives no next token where tokens are wanted. */
static int head_check(const struct model *model, const struct config *c)
{
	int is_of_words = model->config.is_classifier == HEAD_OF_TOKENS;
	const char *set = c->verb == VERB_GENERATE ? ""
	                  : is_of_words            ? "; set objective=token_classification"
	                                           : "; set objective=classification";

	if (model->config.is_classifier && model->config.is_classifier != HEAD_OF_WORDS)
		return err_set(ERR_UNSUPPORTED,
		        "%s is a classifier (...For%sClassification): it gives no logits of tokens%s",
		        c->model, is_of_words ? "Token" : "Sequence", set);
	if (model->config.is_encoder)
		return err_set(ERR_UNSUPPORTED,
		        "%s is an encoder (%s): it gives no logits of a next token%s%s", c->model,
		        model->config.model_type, set, *set ? ", objective=masked or embedding_loss" : "");
	return 0;
}

int session_open_model(struct session *s, const struct config *c, enum session_weights weights)
{
	int rc;

	s->config = c;
	rc = data_losses_open(&s->losses, c);
	if (rc || !ranks_reads_files(c, world_self()))
		return rc; /* ranks_share_model does the rest */
	s->model_dir = model_dir_of(c->model);
	if (!s->model_dir)
		return ERR_NOMEM;
	rc = model_open_path(&s->model, c->model);
	if (!rc && c->embedding_loss)
		rc = sentence_open(&s->sentence, c, s->model);
	if (!rc && c->embedding_loss)
		rc = model_pool(s->model, &s->sentence.pooling);
	if (!rc && !c->objective && !c->embedding_loss)
		rc = head_check(s->model, c);
	if (!rc && c->objective)
		rc = labels_open(&s->labels, c, s->model);
	if (!rc)
		rc = session_adapt(s);
	if (!rc && c->verb == VERB_TRAIN && s->model->config.dropout > 0)
		log_warn("%s: %s is %g: ferry trains without dropout", c->model, s->model->config.dropout_key,
		        s->model->config.dropout);
	if (!rc && weights == SESSION_WEIGHTS_MODEL && c->init_weights == CONFIG_INIT_WEIGHTS_PRETRAINED)
		rc = hf_import_open(&s->import, s->model_dir, s->model);
	if (!rc && s->import && c->merge_base && c->verb == VERB_TRAIN)
		rc = hf_import_open_values(&s->values, c->merge_base, s->model);
	return rc;
}

/* Finds the storage format of weights, which a plan with frozen weights needs. Without files the format of
 * config.json stays. */
static void formats_find(struct session *s)
{
	const struct config *c = s->config;

	if (c->verb == VERB_PLAN && file_kind_of(c->model) == FILE_DIR)
		(void)hf_import_open(&s->import, s->model_dir, s->model);
	for (int t = 0; t < s->model->tensor_count && c->init_weights == CONFIG_INIT_WEIGHTS_RANDOM; t++)
		s->model->tensors[t].storage = FORMAT_F32;
}

/* Whether some tensor never trains, such as the correction bias of a router. */
static int has_frozen(const struct model *model)
{
	for (int t = 0; t < model->tensor_count; t++)
		if (!model->tensors[t].trainable)
			return 1;
	return 0;
}

/* A head with random values has to train. */
static int new_head_check(const struct session *s)
{
	for (int t = 0; t < s->model->tensor_count; t++)
		if (s->model->tensors[t].is_new && !s->model->tensors[t].trainable)
			return err_set(ERR_INPUT,
			        "%s is new and has random values, but freeze or trainable keeps it so; let "
			        "it train",
			        s->model->tensors[t].name);
	return 0;
}

/* The coefficient of the loss of even use of experts, by the key or the model. Classifiers and embedders of
 * transformers lack this loss. */
static int balance_set(struct session *s)
{
	const struct config *c = s->config;
	struct model_config *m = &s->model->config;
	double asked = c->router_aux_loss_coef;
	int has_tokens = !objective_of_config(c).type->vectors;

	if (asked > 0 && !m->balance_class)
		return err_set(ERR_INPUT,
		        "%s=%g: models of type %s have no such loss in transformers; remove the key",
		        config_where(c, "router_aux_loss_coef"), asked, m->model_type);
	if (asked > 0 && !has_tokens)
		return err_set(ERR_INPUT,
		        "%s=%g: embedders and classifiers have no such loss; remove the key",
		        config_where(c, "router_aux_loss_coef"), asked);
	if (asked < 0)
		asked = asked == CONFIG_BALANCE_MODEL || m->balance_asked ? m->balance_coef : 0;
	m->balance = m->balance_class && has_tokens ? asked : 0;
	if (m->balance > 0 && c->verb == VERB_TRAIN && !world_self()->rank)
		log_info("the loss includes router_aux_loss_coef=%g times the loss that keeps experts evenly "
		         "used",
		        m->balance);
	return 0;
}

int session_freeze(struct session *s)
{
	const struct config *c = s->config;
	char *trainable = NULL;
	int rc = session_adapt(s);

	if (!rc)
		rc = balance_set(s);

	if (!rc && s->model->config.adapter_rank)
		rc = adapters_pattern(&trainable, s);
	if (!rc && (c->freeze || c->trainable || trainable || has_frozen(s->model)))
		formats_find(s);
	if (rc || (!c->freeze && !c->trainable && !trainable))
		return rc ? rc : base_format_set(s->model, c, session_leaves_base(s));
	rc = model_freeze(s->model, c->freeze, trainable ? trainable : c->trainable);
	if (!rc)
		rc = new_head_check(s);
	if (!rc)
		rc = base_format_set(s->model, c, session_leaves_base(s));
	if (!rc)
		rc = magnitudes_check(s);
	mem_free(trainable);
	return rc;
}

/* Checks that a tokenizer named by a key fits the model. Vocabularies are often padded, and a few tokens may
 * be added to the tokenizer alone. */
static int tokenizer_check(const struct session *s)
{
	enum { ADDED_TOKENS = 256 };
	int64_t tokens = tokenizer_vocab_count(s->tokenizer), rows = s->model ? s->model->config.V : tokens;
	const char *where = config_where(s->config, "tokenizer");

	if (tokens > rows + ADDED_TOKENS)
		return err_set(ERR_INPUT,
		        "%s=%s has %" PRId64 " tokens, the model only %" PRId64
		        "; this is another model's tokenizer",
		        where, s->config->tokenizer, tokens, rows);
	if (tokens < rows / 2)
		log_warn("%s=%s has %" PRId64 " tokens, the model %" PRId64 "; is it another model's?", where,
		        s->config->tokenizer, tokens, rows);
	return 0;
}

int session_need_tokenizer(struct session *s)
{
	const char *own = s->config->tokenizer;
	int rc;

	if (s->tokenizer)
		return 0;
	rc = tokenizer_open(&s->tokenizer, own ? own : s->model_dir);
	if (!rc && own)
		rc = tokenizer_check(s);
	if (!rc && s->model)
		tokenizer_fit_warn(s->tokenizer, s->model->config.V, own ? own : s->model_dir);
	if (!rc)
		rc = data_config_eos(s->tokenizer, s->config);
	if (rc) {
		tokenizer_close(s->tokenizer);
		s->tokenizer = NULL;
	}
	return rc;
}

/* ---- rows ---- */

/* Hashes the rows in the order of drawing. Checkpoints store the hash, so its definition must not change. */
static int rows_hash(struct session_rows *rows)
{
	const struct sampler *o = &rows->source.sampler;
	const int64_t order[] = {
	        o->row_count, o->order, (int64_t)o->seed, o->batch_rows * o->accumulation * o->world_size};
	const int32_t version = SHUFFLE_VERSION;
	uint64_t hash = 0;
	int rc = dataset_hash(&hash, rows->data);

	if (!rc && rows->packing)
		hash = XXH3_64bits_withSeed(rows->packing->rows,
		        (size_t)rows->packing->row_count * sizeof(*rows->packing->rows), hash);
	if (!rc)
		rc = dataset_hash_labels(&hash, rows->data);
	if (o->order == SAMPLER_ORDER_SHUFFLE)
		hash = XXH3_64bits_withSeed(&version, sizeof(version), hash);
	for (int i = 0; i < rows->mix.set_count; i++) {
		const struct mix_set *m = &rows->mix.sets[i];
		const int64_t set[] = {m->first, m->row_count, m->draws, MIX_VERSION_NEWEST};

		hash = XXH3_64bits_withSeed(set, sizeof(set), hash);
	}
	for (int i = 0; i < rows->data->set_count && rows->turns; i++) {
		const int64_t set[] = {rows->data->sets[i].first_row, rows->data->sets[i].row_count,
		        turns_set_steps(rows->turns, i), turns_per_epoch(rows->turns),
		        turns_order_of(rows->turns)};

		hash = XXH3_64bits_withSeed(set, sizeof(set), hash);
	}
	if (rows->batches || rows->set_batches[0])
		hash = XXH3_64bits_withSeed("no_duplicates", strlen("no_duplicates"), hash);
	rows->hash = XXH3_64bits_withSeed(order, sizeof(order), hash);
	return rc;
}

/* Prepares the sampler, and micro-batches with room for the largest of the run. */
static int rows_prepare(struct session_rows *r, const struct session *s, int64_t batch_rows,
        int64_t accumulation, enum sampler_order order, double epochs, int64_t max_steps)
{
	const struct config *c = s->config;
	int is_held_back = /* read as it is: no weights */
	        r == &s->pass || r == &s->eval_pass ||
	        (r == &s->eval && (s->train.data ? !c->eval_data : c->eval_split > 0));
	int rc = data_config_pack(&r->packing, is_held_back ? NULL : &r->mix, c, r->data);

	if (rc)
		return rc;
	r->source = (struct batch_source){.data = r->data,
	        .packing = r->packing,
	        .rule = &objective_of_config(c).type->batch,
	        .draws = {c->preference_own_tokens == CONFIG_PREFERENCE_OWN_TOKENS_ALL, (uint64_t)c->seed,
	                c->mlm_probability, r->data->has_words, r->data->mask_id, r->data->hidden_ids,
	                r->data->mask_pad_id},
	        .row_value = r->reference};
	r->source.sampler = (struct sampler){
	        .row_count = r->mix.set_count ? r->mix.epoch_rows : batch_source_rows(r->data, r->packing),
	        .mix = r->mix.set_count ? &r->mix : NULL,
	        .order = order,
	        .seed = (uint64_t)c->seed,
	        .batch_rows = batch_rows,
	        .accumulation = accumulation,
	        .world_size = ranks_in_world(c, s->machine, world_self()),
	        .rank = world_self()->rank,
	};
	rc = sampler_init(&r->source.sampler);
	if (!rc)
		rc = session_rows_steps(r, s);
	if (!rc)
		rc = sampler_run_steps(&r->step_count, &r->source.sampler, epochs, max_steps);
	if (!rc)
		rc = batch_limits_find(&r->limits, &r->source, r->step_count);
	if (!rc)
		rc = rows_hash(r);
	if (rc)
		return rc;
	r->micro_count = (int)sampler_micro_most(&r->source.sampler); /* fewer if there are few rows */
	r->micro = mem_alloc((size_t)r->micro_count, sizeof(*r->micro));
	if (!r->micro)
		return ERR_NOMEM;
	for (int m = 0; m < r->micro_count && !rc; m++)
		rc = micro_batch_alloc(&r->micro[m], &r->limits, r->source.rule);
	return rc;
}

/* Warns of steps that have only rows without a target. */
static void untrained_report(const struct session_rows *r, const struct config *c)
{
	int64_t count = r->limits.untrained_steps;

	if (count > 0)
		log_warn("%s: %" PRId64 " of %" PRId64
		         " steps have only rows without a token to train on; they are skipped",
		        c->data, count, r->step_count);
}

/* Refuses a split that leaves one side without a target. */
static int targets_check(const struct session *s)
{
	const struct dataset *sides[] = {s->train.data, s->eval.data};

	for (size_t i = 0; i < 2; i++)
		if (sides[i] && !sides[i]->target_count)
			return err_set(ERR_INPUT,
			        "%s=%s leaves no token to predict in the rows to %s; choose another",
			        config_where(s->config, "eval_split"), config_said(s->config, "eval_split"),
			        i ? "evaluate on" : "train on");
	return 0;
}

/* Refuses weights for results that list each row of the file once, and per_token where targets are drawn. */
static int lists_check(const struct session *s)
{
	const struct config *c = s->config;

	if (!s->eval.data || (!c->per_token && c->verb != VERB_EMBED))
		return 0;
	if (c->per_token && objective_of_config(c).type->batch.drawn)
		return err_set(ERR_INPUT,
		        "%s is not for objective=masked, which hides a share of the tokens; leave it out",
		        config_where(c, "per_token"));
	if (!s->eval.data->is_weighted)
		return 0;
	return err_set(ERR_INPUT,
	        "%s has weights, so ferry reads rows several times or not at all, but %s lists each row "
	        "once; "
	        "remove the weights",
	        config_where(c, "data"), c->per_token ? "per_token" : "embed");
}

/* Makes room for a value of each row, and names the rows to compute them from. */
static int references_make(struct session *s)
{
	const struct objective_use use = objective_of_config(s->config);
	struct session_rows *sides[] = {&s->train, &s->eval};

	for (size_t i = 0; i < 2; i++) {
		if (!sides[i]->data)
			continue;
		sides[i]->reference =
		        mem_alloc((size_t)sides[i]->data->row_count, sizeof(*sides[i]->reference));
		if (!sides[i]->reference)
			return ERR_NOMEM;
		sides[i]->source.row_value = sides[i]->reference;
	}
	if (objective_reads_values(&use))
		s->pass.data = s->train.data;
	return 0;
}

int session_open_rows(struct session *s)
{
	const struct config *c = s->config;
	int trains = c->verb == VERB_TRAIN || c->verb == VERB_PLAN, rc;

	rc = session_read_rows(s, trains ? &s->train.data : &s->eval.data, c->data);
	if (rc)
		return rc;
	data_config_report(c, trains ? s->train.data : s->eval.data);
	if (trains && c->eval_data)
		rc = session_read_rows(s, &s->eval.data, c->eval_data);
	else if (c->eval_split > 0)
		rc = data_config_split(&s->eval.data, trains ? s->train.data : s->eval.data, c);
	if (!rc)
		rc = lists_check(s);
	if (!rc)
		rc = targets_check(s);
	if (!rc && trains)
		rc = rows_prepare(&s->train, s, c->per_device_train_batch_size,
		        c->gradient_accumulation_steps,
		        c->shuffle ? SAMPLER_ORDER_SHUFFLE : SAMPLER_ORDER_FILE, c->num_train_epochs,
		        c->max_steps);
	if (!rc && trains)
		untrained_report(&s->train, c);
	if (!rc && trains && objective_of_config(c).type->reads_values)
		rc = references_make(s);
	if (!rc && s->pass.data)
		rc = rows_prepare(&s->pass, s, c->per_device_train_batch_size, c->gradient_accumulation_steps,
		        c->shuffle && !s->train.mix.set_count ? SAMPLER_ORDER_SHUFFLE : SAMPLER_ORDER_FILE, 1,
		        -1);
	if (!rc && s->eval.data)
		rc = rows_prepare(&s->eval, s, c->per_device_eval_batch_size, 1, SAMPLER_ORDER_FILE, 1, -1);
	if (!rc && s->pass.data && s->eval.mix.set_count) {
		s->eval_pass.data = s->eval.data;
		rc = rows_prepare(
		        &s->eval_pass, s, c->per_device_eval_batch_size, 1, SAMPLER_ORDER_FILE, 1, -1);
	}
	if (!rc)
		session_warn_lone(s);
	return rc;
}

/* ---- device and engine ---- */

/* Checks the address space, because without it libraries end the program or hang in the first product. */
static int addresses_check(struct topology *t, int threads)
{
	struct str limit = {0}, need = {0};
	int64_t least;

	topology_find_usable(t, threads, 1);
	if (t->address_bytes < 0 || t->usable_bytes > 0)
		return 0;
	least = topology_address_bytes(t, threads);
	quantity_bytes(&limit, t->address_bytes);
	quantity_bytes(&need, least);
	err_set(ERR_FIT,
	        "ulimit -v is %s; with %d thread%s ferry maps %s before it loads anything: raise it%s",
	        limit.data ? limit.data : "", threads, plural_s(threads), need.data ? need.data : "",
	        threads > 1 && topology_address_bytes(t, 1) < t->address_bytes ? ", or set threads=1" : "");
	str_free(&limit);
	str_free(&need);
	return ERR_FIT;
}

/* Starts threads on the cores of this rank; a plan's ranks on one host share them. Ignores a launcher's
 * OMP_NUM_THREADS, which is not for this program. */
static int pool_start(struct session *s)
{
	const struct config *c = s->config;
	int ranks = c->verb == VERB_PLAN && !s->machine ? ranks_of_host(c, NULL, world_self()) : 1;
	struct topology t;
	int rc = pool_open_here(&s->pool, &t, c->threads > 0 ? (int)c->threads : 0, ranks), threads;

	if (rc)
		return rc;
	threads = pool_worker_count(s->pool);
	if (c->threads > 0 && threads > t.allowed.processor_count)
		log_warn("%s=%d is more than the %d processors that this process may use; threads=auto is "
		         "faster",
		        config_where(c, "threads"), threads, t.allowed.processor_count);
	if (c->verb == VERB_TRAIN && t.omp_num_threads[0] && atoi(t.omp_num_threads) != threads)
		log_info("ignoring OMP_NUM_THREADS=%s; %d threads (%s)", t.omp_num_threads, threads,
		        c->threads > 0 ? "the key threads" : t.thread_reason);
	return addresses_check(&t, threads);
}

int session_open_device(struct session *s, const char *name)
{
	const struct config *c = s->config;
	struct device_options o = {
	        .host_copy_gbps = c->host_copy_gbps,
	        .stream_delay_seed = (uint64_t)c->stream_delay_seed,
	        .poison = c->stream_delay_seed != 0,
	        .attention = (enum device_attention)c->attention,
	};
	int rc;

	devices_register();
	rc = name ? 0 : devices_name(&name, c);
	if (!rc)
		rc = pool_start(s);
	if (rc)
		return rc;
	o.pool = s->pool;
	o.threads = pool_worker_count(s->pool);
	o.bootstrap = world_for_device();
	o.index = world_self()->local_rank;
	o.ranks_per_node = ranks_on_node(c, s->machine, world_self(), c->ranks);
	rc = device_open(&s->device, name, &o);
	if (!rc && c->attention == DEVICE_ATTENTION_CUDNN && c->verb != VERB_PLAN &&
	        device_kind_of(s->device) != DEVICE_CUDA)
		log_warn("%s=cudnn has no effect: no GPU computes here", config_where(c, "attention"));
	return rc;
}

/* ---- weights ---- */

int session_start_engine(struct session *s)
{
	return engine_start(s->engine);
}

static int weights_draw(
        void *context, const struct plane_sink *sink, const struct plane_range *ranges, int64_t range_count)
{
	const struct session *s = context;

	return fresh_weights_load(s->model, (uint64_t)s->config->seed, sink, ranges, range_count, s->pool);
}

int session_load_weights(struct session *s)
{
	int rc = s->config->init_weights == CONFIG_INIT_WEIGHTS_RANDOM
	                 ? world_agree(planes_load(s->engine, weights_draw, s))
	                 : ranks_load(s->engine, s->config, session_read_weights, s);

	if (!session_rounds(s) && !session_needs_files(s)) {
		hf_import_close(s->import);
		s->import = NULL;
	}
	return rc;
}

static void rows_close(struct session_rows *r)
{
	for (int m = 0; r->micro && m < r->micro_count; m++)
		micro_batch_free(r->micro[m]);
	mem_free(r->micro);
	packing_free(r->packing);
	turns_close(r->turns);
	batches_close(r->batches);
	for (int i = 0; i < DATA_SETS_MAX; i++)
		batches_close(r->set_batches[i]);
	mem_free(r->reference);
	dataset_close(r->data);
}

void session_close(struct session *s)
{
	engine_close(s->engine);
	choice_free(&s->choice);
	device_close(s->device);
	pool_close(s->pool);
	s->pass.data = s->eval_pass.data = NULL; /* those of train and eval */
	rows_close(&s->pass);
	rows_close(&s->eval_pass);
	rows_close(&s->train);
	rows_close(&s->eval);
	tokenizer_close(s->tokenizer);
	hf_chat_free(&s->chat);
	side_files_free(&s->side);
	sentence_dir_free(&s->sentence);
	data_losses_free(&s->losses);
	hf_import_close(s->values);
	labels_free(&s->labels);
	hf_import_close(s->import);
	peft_config_free(&s->adapter);
	json_decref(s->adapter_then);
	model_close(s->model);
	mem_free(s->model_dir);
}
