/* Builds a dataset: checks rows of token ids, and stores them in memory or in cache files. */
#include "data/rows/dataset_build.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/quantity.h"
#include "data/chat/chat_labels.h"
#include "data/chat/chat_lost.h"
#include "data/rows/row_cache.h"
#include "data/tokenizer/token_list.h"
#include "data/tokenizer/tokenizer.h"

enum { TELL_SECONDS = 10 };

/* The chosen row of a pair waits here for the rejected one. */
struct pair {
	struct token_list ids, labels;
	struct dataset_counts before;
	enum { PAIR_NONE, PAIR_CHOSEN, PAIR_REJECTED } next; /* row that is missing */
	int is_left_out;
};

int dataset_builder_begin(struct dataset_builder *b)
{
	b->d = mem_alloc(1, sizeof(*b->d));
	b->ids = mem_alloc(1, sizeof(*b->ids));
	b->targets = mem_alloc(1, sizeof(*b->targets));
	b->labels = mem_alloc(1, sizeof(*b->labels));
	b->warned = mem_alloc(1, sizeof(*b->warned));
	b->pair = mem_alloc(1, sizeof(*b->pair));
	if (!b->d || !b->ids || !b->targets || !b->labels || !b->warned || !b->pair)
		return ERR_NOMEM;
	b->d->store = row_store_new();
	return b->d->store ? 0 : ERR_NOMEM;
}

void dataset_builder_free(struct dataset_builder *b)
{
	dataset_close(b->d);
	row_cache_close(b->cache);
	if (b->ids)
		token_list_free(b->ids);
	if (b->targets)
		token_list_free(b->targets);
	if (b->around)
		token_list_free(b->around);
	if (b->labels)
		chat_labels_free(b->labels);
	if (b->warned)
		chat_warned_free(b->warned);
	if (b->pair) {
		token_list_free(&b->pair->ids);
		token_list_free(&b->pair->labels);
	}
	mem_free(b->pair);
	row_judged_free(b->judged);
	mem_free(b->ids);
	mem_free(b->targets);
	mem_free(b->around);
	mem_free(b->hidden);
	mem_free(b->labels);
	mem_free(b->warned);
	mem_free(b->entries);
	mem_free(b->recipe);
	json_decref(b->columns);
}

/* ---- rows beyond memory ---- */

static void tell_progress(struct dataset_builder *b)
{
	struct str read = {0}, all = {0}, written = {0};
	int64_t now = clock_now_ns();

	if (now - b->told_ns < TELL_SECONDS * (int64_t)1000000000)
		return;
	b->told_ns = now;
	quantity_bytes(&read, b->read_done_bytes + b->read_bytes);
	quantity_bytes(&all, b->all_bytes);
	quantity_bytes(&written, row_cache_bytes(b->cache));
	log_info("%s: %s of %s read, %" PRId64 " rows, %s written to %s", b->options->path,
	        read.data ? read.data : "", all.data ? all.data : "", b->d->row_count,
	        written.data ? written.data : "", b->options->cache_dir);
	str_free(&read);
	str_free(&all);
	str_free(&written);
}

static int begin_cache(struct dataset_builder *b)
{
	struct str limit = {0};
	int rc;

	quantity_bytes(&limit, b->options->memory_bytes);
	if (!b->options->cache_dir)
		rc = err_set(ERR_INPUT,
		        "%s: its rows take more than data_memory=%s, and there is no directory for them; set "
		        "data_cache, or raise data_memory",
		        b->options->path, limit.data ? limit.data : "");
	else
		rc = row_cache_begin(
		        &b->cache, b->options->cache_dir, b->recipe ? b->recipe : "", sizeof(*b->d));
	if (rc == 1)
		b->is_made = 1;
	else if (rc == 0 && b->options->memory_bytes > 1) /* 1: for files again, whatever the size */
		log_info("%s: its rows take more than data_memory=%s; writing them to data_cache=%s",
		        b->options->path, limit.data ? limit.data : "", b->options->cache_dir);
	b->told_ns = clock_now_ns();
	str_free(&limit);
	return rc < 0 ? rc : 0;
}

/* Moves the rows in memory to the files. */
static int spill(struct dataset_builder *b)
{
	int rc = b->cache ? 0 : begin_cache(b);

	if (rc || b->is_made)
		return rc;
	rc = row_cache_append(b->cache, b->d->store->memory, b->record_bytes, b->entries, b->entry_count);
	b->written_bytes += b->record_bytes;
	b->record_bytes = b->entry_count = 0;
	if (!rc)
		tell_progress(b);
	return rc;
}

/* Resizes one block in place; the old one stays on failure. */
static int resize(void *pool, int64_t count, size_t size_bytes)
{
	void *block, *grown;

	memcpy(&block, pool, sizeof(block));
	grown = mem_resize(block, (size_t)count, size_bytes);
	if (!grown)
		return ERR_NOMEM;
	memcpy(pool, &grown, sizeof(grown));
	return 0;
}

static int64_t grown(int64_t cap, int64_t need, int64_t limit)
{
	cap = cap * 2 > need ? cap * 2 : need;
	return limit && cap > limit && need <= limit ? limit : cap;
}

/* Makes room for one more record and its entry. A row above memory_bytes still gets the memory it needs. */
static int reserve(struct dataset_builder *b, int64_t record_bytes)
{
	int64_t limit = b->options->memory_bytes, entry_bytes = (int64_t)sizeof(*b->entries);
	int rc = 0;

	if (limit && b->entry_count &&
	        b->record_bytes + record_bytes + (b->entry_count + 1) * entry_bytes > limit)
		rc = spill(b);
	if (!rc && b->record_bytes + record_bytes > b->record_cap) {
		int64_t cap = grown(b->record_cap, b->record_bytes + record_bytes, limit);

		rc = resize(&b->d->store->memory, cap, 1);
		b->record_cap = rc ? b->record_cap : cap;
	}
	if (!rc && b->entry_count == b->entry_cap) {
		int64_t cap = grown(b->entry_cap, b->entry_count + 64, limit / entry_bytes);

		rc = resize(&b->entries, cap, sizeof(*b->entries));
		b->entry_cap = rc ? b->entry_cap : cap;
	}
	return rc;
}

/* The dataset without its pointers, which mean nothing to other processes. */
static struct dataset facts_of(const struct dataset *d)
{
	struct dataset facts = *d;

	facts.own_rows = NULL;
	facts.rows = NULL;
	facts.store = NULL;
	return facts;
}

static void take(struct dataset_builder *b, const struct dataset *facts, struct row_store *store,
        const struct row_entry *entries)
{
	row_store_release(b->d->store);
	*b->d = *facts;
	b->d->store = store;
	b->d->rows = entries;
}

int dataset_builder_find(struct dataset_builder *b)
{
	const struct row_entry *entries = NULL;
	struct row_store *store = NULL;
	struct dataset facts;
	int64_t count = 0;
	int rc;

	if (!b->options->memory_bytes || !b->options->cache_dir || !b->recipe)
		return 0;
	rc = row_cache_find(
	        &store, &entries, &count, &facts, sizeof(facts), b->options->cache_dir, b->recipe);
	if (rc != 1)
		return rc;
	take(b, &facts, store, entries);
	log_info("%s: reading %" PRId64 " tokenized rows of an earlier run from %s", b->options->path,
	        b->d->row_count, store->path);
	return 1;
}

/* Removes data sets that no run used for long, and reports what the directory holds. */
static void tidy(const struct dataset_builder *b)
{
	struct row_cache_use use;
	struct str bytes = {0}, removed = {0};

	if (row_cache_tidy(&use, b->options->cache_dir))
		return; /* not an error: the rows are written */
	quantity_bytes(&bytes, use.bytes);
	quantity_bytes(&removed, use.removed_bytes);
	if (use.removed)
		log_info("data_cache=%s: removed %d data set%s (%s) that no run used for %d days",
		        b->options->cache_dir, use.removed, plural_s(use.removed),
		        removed.data ? removed.data : "", ROW_CACHE_KEEP_DAYS);
	log_info("data_cache=%s holds %d data set%s, %s", b->options->cache_dir, use.count,
	        plural_s(use.count), bytes.data ? bytes.data : "");
	str_free(&bytes);
	str_free(&removed);
}

/* Completes the files. Computes the hash here, once, so that later runs need not read all rows for it. */
static int end_files(struct dataset_builder *b)
{
	const struct row_entry *entries = NULL;
	struct row_store *store = NULL;
	struct dataset facts;
	struct str size = {0};
	int64_t count = 0;
	int rc = spill(b);

	if (!rc)
		rc = row_cache_open_written(b->cache, &store, &entries, &count);
	if (rc)
		return rc;
	facts = facts_of(b->d);
	take(b, &facts, row_store_share(store), entries);
	rc = dataset_hash(&facts.content_hash, b->d);
	b->d->content_hash = facts.content_hash;
	if (!rc)
		rc = row_cache_publish(b->cache, store, &facts);
	row_store_release(store);
	if (rc)
		return rc;
	quantity_bytes(&size, row_cache_bytes(b->cache));
	log_info("%s: %" PRId64 " rows are in %s (%s)%s", b->options->path, b->d->row_count,
	        row_cache_path(b->cache), size.data ? size.data : "",
	        b->recipe ? "; later runs use it again" : " until this run ends");
	str_free(&size);
	if (b->recipe)
		tidy(b);
	return 0;
}

int dataset_builder_end(struct dataset_builder *b)
{
	if (b->cache)
		return end_files(b);
	if (resize(&b->d->store->memory, b->record_bytes, 1) < 0 ||
	        resize(&b->entries, b->entry_count, sizeof(*b->entries)) < 0)
		return ERR_NOMEM;
	b->d->store->len_bytes = b->record_bytes;
	b->d->own_rows = b->entries;
	b->d->rows = b->entries;
	b->entries = NULL;
	return 0;
}

/* ---- one row ---- */

static int32_t label_id(int32_t label)
{
	return label >= DATASET_GOES_ON ? label - DATASET_GOES_ON : label;
}

static int check_row(
        const struct dataset_builder *b, const int32_t *ids, const int32_t *labels, int64_t count)
{
	int64_t top = b->vocab_count ? b->vocab_count : (int64_t)INT32_MAX + 1;

	for (int64_t i = 0; i < count; i++) {
		if (ids[i] >= top && b->d->format != DATASET_FORMAT_TOKENS)
			return err_note(
			        tokenizer_refuse_id(b->options->tokenizer, ids[i], top), "%s", b->where);
		if (ids[i] < 0 || ids[i] >= top)
			return err_set(ERR_INPUT,
			        "%s: input_ids[%" PRId64 "] is %d; the vocabulary has ids 0 to %" PRId64,
			        b->where, i, ids[i], top - 1);
		for (int k = 0; k < b->options->refused_count; k++)
			if (ids[i] == b->options->refused[k])
				return err_set(ERR_UNSUPPORTED,
				        "%s: token %" PRId64 " is %d, which stands for an image, a video or "
				        "a sound; ferry trains on texts, "
				        "remove it",
				        b->where, i, ids[i]);
		if (labels && labels[i] != DATASET_IGNORE && (labels[i] < 0 || label_id(labels[i]) >= top))
			return err_set(ERR_INPUT,
			        "%s: labels[%" PRId64 "] is %d; it must be -100 or an id from 0 to %" PRId64,
			        b->where, i, labels[i], top - 1);
	}
	return 0;
}

static int has_own_labels(const int32_t *ids, const int32_t *labels, int64_t count)
{
	for (int64_t t = 0; labels && t < count; t++)
		if (labels[t] != DATASET_IGNORE && labels[t] != ids[t])
			return 1;
	return 0;
}

int dataset_builder_append(
        struct dataset_builder *b, const int32_t *ids, const int32_t *labels, int64_t count, int64_t masked)
{
	int hides = b->options->pairs == DATASET_HIDDEN_ONLY,
	    is_of_each = b->options->labels.is_of_tokens || hides;
	int rc = hides ? row_hidden_labels(b, &labels, ids, count, masked) : 0;
	enum row_labels own = has_own_labels(ids, labels, count) ? ROW_LABELS_OWN : ROW_LABELS_SHARED;
	struct dataset *d = b->d;
	int64_t bytes = row_record_bytes(count, own, d->vector_count), targets = 0;
	float *vector;

	rc = rc ? rc : reserve(b, bytes);
	if (rc || b->is_made)
		return rc;
	for (int64_t t = !is_of_each; t < count; t++)
		targets += labels ? labels[t] != DATASET_IGNORE : t >= masked;
	if (d->texts || b->options->pairs == DATASET_REWARDS_ONLY)
		targets = 1; /* its vector */
	vector = row_record_write(d->store->memory + b->record_bytes, ids, labels, count, masked, own);
	if (b->vector)
		memcpy(vector, b->vector, (size_t)d->vector_count * sizeof(*vector));
	else /* of a set without a teacher, beside one with */
		memset(vector, 0, (size_t)d->vector_count * sizeof(*vector));
	b->entries[b->entry_count++] = (struct row_entry){.start_bytes = b->written_bytes + b->record_bytes,
	        .token_count = (int32_t)count,
	        .target_count = (int32_t)targets};
	b->record_bytes += bytes;
	d->own_label_rows += own == ROW_LABELS_OWN;
	d->row_count++;
	d->token_count += count;
	d->target_count += targets;
	return targets == 0;
}

void dataset_builder_note_without_target(struct dataset_builder *b)
{
	struct dataset_counts *counts = &b->d->counts;

	if (counts->without_target++ == 0)
		snprintf(counts->without_target_first, sizeof(counts->without_target_first), "%s", b->where);
}

static int add_row(struct dataset_builder *b, const int32_t *ids, const int32_t *labels, int64_t token_count,
        int64_t masked)
{
	int rc = dataset_builder_append(b, ids, labels, token_count, masked);

	if (rc == 1)
		dataset_builder_note_without_target(b);
	return rc < 0 ? rc : 0;
}

static int add_split(struct dataset_builder *b, const int32_t *ids, const int32_t *labels,
        int64_t token_count, int64_t masked)
{
	const int64_t most = b->options->max_length_tokens;
	int rc = 0;

	b->d->counts.split++;
	for (int64_t at = 0; at + 1 < token_count && !rc; at += most) /* one token alone has no target */
		rc = add_row(b, ids + at, labels ? labels + at : NULL,
		        token_count - at < most ? token_count - at : most, masked > at ? masked - at : 0);
	return rc;
}

/* ---- pairs ---- */

void dataset_builder_begin_pair(struct dataset_builder *b)
{
	b->pair->before = b->d->counts;
	b->pair->next = PAIR_CHOSEN;
	b->pair->is_left_out = 0;
}

static int has_target(const int32_t *labels, int64_t token_count)
{
	for (int64_t t = 1; t < token_count; t++)
		if (labels[t] != DATASET_IGNORE)
			return 1;
	return 0;
}

static int keep_chosen(struct pair *p, const int32_t *ids, const int32_t *labels, int64_t token_count)
{
	size_t bytes = (size_t)token_count * sizeof(*ids);

	p->next = PAIR_REJECTED;
	p->ids.count = p->labels.count = 0;
	if (p->is_left_out)
		return 0;
	if (token_list_reserve(&p->ids, token_count) || token_list_reserve(&p->labels, token_count))
		return ERR_NOMEM;
	memcpy(p->ids.ids, ids, bytes);
	memcpy(p->labels.ids, labels, bytes);
	p->ids.count = p->labels.count = token_count;
	return 0;
}

/* Takes back what the pair's rows added to the counts. */
static void leave_out(struct dataset_builder *b)
{
	struct dataset_counts *counts = &b->d->counts;
	int64_t longest = counts->longest_tokens;
	int is_long = counts->dropped > b->pair->before.dropped;

	*counts = b->pair->before;
	counts->longest_tokens = longest;
	if (is_long)
		counts->dropped++;
	else
		dataset_builder_note_without_target(b);
}

static void note_equal(struct dataset_builder *b, const int32_t *ids, const int32_t *labels, int64_t count)
{
	struct dataset_counts *counts = &b->d->counts;
	const struct pair *p = b->pair;
	size_t bytes = (size_t)count * sizeof(*ids);

	if (p->ids.count != count || memcmp(p->ids.ids, ids, bytes) || memcmp(p->labels.ids, labels, bytes))
		return;
	if (counts->equal_pairs++ == 0)
		snprintf(counts->equal_pairs_first, sizeof(counts->equal_pairs_first), "%s", b->where);
}

/* Adds a row of a pair; token_count 0: the row is dropped. */
static int add_half(struct dataset_builder *b, const int32_t *ids, const int32_t *labels, int64_t token_count)
{
	struct pair *p = b->pair;
	int rc;

	p->is_left_out |=
	        b->options->pairs == DATASET_REWARDS_ONLY ? !token_count : !has_target(labels, token_count);
	if (p->next == PAIR_CHOSEN)
		return keep_chosen(p, ids, labels, token_count);
	p->next = PAIR_NONE;
	if (p->is_left_out) {
		leave_out(b);
		return 0;
	}
	note_equal(b, ids, labels, token_count);
	if (b->options->pairs == DATASET_REWARDS_ONLY) {
		rc = dataset_builder_add_text(b, p->ids.ids, p->ids.count, b->margin, p->ids.count);
		return rc || b->is_made ? rc : dataset_builder_add_text(b, ids, token_count, 0, token_count);
	}
	rc = dataset_builder_append(b, p->ids.ids, p->labels.ids, p->ids.count, 0);
	if (rc >= 0 && !b->is_made)
		rc = dataset_builder_append(b, ids, labels, token_count, 0);
	return rc < 0 ? rc : 0;
}

/* ---- any row ---- */

/* Applies long_rows: the tokens to keep, or 0. */
static int fit(int64_t *kept, struct dataset_builder *b, int64_t token_count)
{
	const struct dataset_options *o = b->options;
	struct dataset_counts *counts = &b->d->counts;

	*kept = token_count;
	if (token_count > counts->longest_tokens)
		counts->longest_tokens = token_count;
	if (!o->max_length_tokens || token_count <= o->max_length_tokens)
		return 0;
	if (o->long_rows == DATASET_LONG_ROWS_ERROR)
		return err_set(ERR_INPUT,
		        "%s: the row has %s%" PRId64 " tokens and max_length is %" PRId64
		        "; set long_rows=truncate, split or drop",
		        b->where, counts->is_longest_cut ? "at least " : "", token_count,
		        o->max_length_tokens);
	if (o->long_rows == DATASET_LONG_ROWS_DROP) {
		counts->dropped++;
		*kept = 0;
	} else if (o->long_rows != DATASET_LONG_ROWS_SPLIT || b->d->format != DATASET_FORMAT_TEXT) {
		counts->truncated++;
		*kept = o->max_length_tokens;
	}
	return 0;
}

int dataset_builder_add(struct dataset_builder *b, const int32_t *ids, const int32_t *labels,
        int64_t token_count, int64_t masked)
{
	const int64_t most = b->options->max_length_tokens;
	int64_t kept = 0;
	int rc;

	if (token_count > INT32_MAX)
		return err_set(ERR_INPUT, "%s: a row of %" PRId64 " tokens; the limit is 2^31 - 1", b->where,
		        token_count);
	rc = check_row(b, ids, labels, token_count);
	if (rc == 0)
		rc = fit(&kept, b, token_count);
	if (rc < 0)
		return rc;
	if (b->pair->next != PAIR_NONE)
		return add_half(b, ids, labels, kept);
	if (b->options->pairs == DATASET_JUDGED_ONLY)
		return row_judged_add(b, ids, labels, token_count, masked, kept);
	b->d->counts.empty += token_count == 0;
	if (kept == 0)
		return 0;
	return most && kept > most ? add_split(b, ids, labels, kept, masked)
	                           : add_row(b, ids, labels, kept, masked);
}

int dataset_builder_fit_text(int64_t *kept, struct dataset_builder *b, int64_t token_count, int64_t around)
{
	int rc = fit(kept, b, token_count + around);

	if (!rc && token_count && *kept && *kept <= around)
		return err_set(ERR_INPUT, "%s: max_length=%" PRId64 " leaves no token of a text; raise it",
		        b->where, b->options->max_length_tokens);
	*kept = *kept > around ? *kept - around : 0;
	return rc;
}

int dataset_builder_add_text(
        struct dataset_builder *b, const int32_t *ids, int64_t token_count, float label, int64_t second)
{
	int rc = check_row(b, ids, NULL, token_count);

	b->targets->count = 0;
	for (int64_t t = 0; t < token_count && !rc; t++)
		rc = token_list_add(b->targets, DATASET_IGNORE);
	if (rc || !token_count)
		return rc;
	if (label != 0)
		memcpy(b->targets->ids, &label, sizeof(label));
	if (second < token_count && token_count > 1)
		b->targets->ids[1] = (int32_t)second;
	rc = dataset_builder_append(b, ids, b->targets->ids, token_count, 0);
	return rc < 0 ? rc : 0;
}
