/* Rows of token ids, checked. */
#include "data/dataset_build.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/chat_labels.h"
#include "data/tokenizer/token_list.h"

int dataset_builder_begin(struct dataset_builder *b)
{
	b->d = mem_alloc(1, sizeof(*b->d));
	b->ids = mem_alloc(1, sizeof(*b->ids));
	b->targets = mem_alloc(1, sizeof(*b->targets));
	b->labels = mem_alloc(1, sizeof(*b->labels));
	if (!b->d || !b->ids || !b->targets || !b->labels)
		return ERR_NOMEM;
	b->d->row_start = mem_alloc(1, sizeof(*b->d->row_start));
	return b->d->row_start ? 0 : ERR_NOMEM;
}

void dataset_builder_free(struct dataset_builder *b)
{
	dataset_close(b->d);
	if (b->ids)
		token_list_free(b->ids);
	if (b->targets)
		token_list_free(b->targets);
	if (b->labels)
		chat_labels_free(b->labels);
	mem_free(b->ids);
	mem_free(b->targets);
	mem_free(b->labels);
}

/* Resizes one pool in place; the old block stays on failure. */
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

static int resize_tokens(struct dataset_builder *b, int64_t cap)
{
	struct dataset *d = b->d;
	int64_t old_bytes = (b->token_cap + 7) / 8, new_bytes = (cap + 7) / 8;

	if (resize(&d->ids, cap, sizeof(*d->ids)) < 0 || resize(&d->trained, new_bytes, 1) < 0 ||
	        (d->labels && resize(&d->labels, cap, sizeof(*d->labels)) < 0))
		return ERR_NOMEM;
	if (new_bytes > old_bytes)
		memset(d->trained + old_bytes, 0, (size_t)(new_bytes - old_bytes));
	b->token_cap = cap;
	return 0;
}

static int resize_rows(struct dataset_builder *b, int64_t cap)
{
	if (resize(&b->d->row_start, cap + 1, sizeof(*b->d->row_start)) < 0 ||
	        resize(&b->d->row_targets, cap, sizeof(*b->d->row_targets)) < 0)
		return ERR_NOMEM;
	b->row_cap = cap;
	return 0;
}

static int reserve(struct dataset_builder *b, int64_t token_count)
{
	int64_t tokens = b->d->token_count + token_count;

	if (tokens > b->token_cap && resize_tokens(b, tokens * 2) < 0)
		return ERR_NOMEM;
	if (b->d->row_count == b->row_cap)
		return resize_rows(b, b->row_cap * 2 + 64);
	return 0;
}

int dataset_builder_end(struct dataset_builder *b)
{
	if (resize_tokens(b, b->d->token_count) < 0)
		return ERR_NOMEM;
	return resize_rows(b, b->d->row_count);
}

/* The labels pool comes into being with the first label that is neither its id nor ignored. */
static int make_labels(struct dataset_builder *b)
{
	struct dataset *d = b->d;

	d->labels = mem_alloc((size_t)b->token_cap, sizeof(*d->labels));
	if (!d->labels)
		return ERR_NOMEM;
	memcpy(d->labels, d->ids, (size_t)d->token_count * sizeof(*d->labels));
	return 0;
}

static int check_row(
        const struct dataset_builder *b, const int32_t *ids, const int32_t *labels, int64_t count)
{
	int64_t top = b->vocab_count ? b->vocab_count : (int64_t)INT32_MAX + 1;

	for (int64_t i = 0; i < count; i++) {
		if (ids[i] >= top && b->d->format != DATASET_FORMAT_TOKENS)
			return err_set(ERR_INPUT,
			        "%s: the tokenizer gives id %d, but the model has ids 0 to %" PRId64
			        "; this is another model's tokenizer",
			        b->where, ids[i], top - 1);
		if (ids[i] < 0 || ids[i] >= top)
			return err_set(ERR_INPUT,
			        "%s: input_ids[%" PRId64 "] is %d; the vocabulary has ids 0 to %" PRId64,
			        b->where, i, ids[i], top - 1);
		if (labels && labels[i] != DATASET_IGNORE && (labels[i] < 0 || labels[i] >= top))
			return err_set(ERR_INPUT,
			        "%s: labels[%" PRId64 "] is %d; it must be -100 or an id from 0 to %" PRId64,
			        b->where, i, labels[i], top - 1);
	}
	return 0;
}

/* Writes the row behind the pools; the caller has reserved the room. */
static int append(
        struct dataset_builder *b, const int32_t *ids, const int32_t *labels, int64_t count, int64_t masked)
{
	struct dataset *d = b->d;
	int64_t at = d->token_count, targets = 0;

	for (int64_t t = 0; t < count; t++) {
		int32_t label = labels ? labels[t] : t < masked ? DATASET_IGNORE : ids[t];

		if (label != DATASET_IGNORE && label != ids[t] && !d->labels && make_labels(b) < 0)
			return ERR_NOMEM;
		d->ids[at + t] = ids[t];
		if (d->labels)
			d->labels[at + t] = label;
		if (label != DATASET_IGNORE)
			d->trained[(at + t) / 8] |= (uint8_t)(1 << (at + t) % 8);
		targets += t > 0 && label != DATASET_IGNORE;
		d->token_count++; /* at once: make_labels copies what is there */
	}
	d->row_targets[d->row_count++] = (int32_t)targets;
	d->row_start[d->row_count] = d->token_count;
	d->target_count += targets;
	return (int)targets == 0 ? 1 : 0;
}

int dataset_builder_add(struct dataset_builder *b, const int32_t *ids, const int32_t *labels,
        int64_t token_count, int64_t masked)
{
	const struct dataset_options *o = b->options;
	struct dataset *d = b->d;
	int rc;

	if (token_count == 0) {
		d->counts.empty++;
		return 0;
	}
	if (token_count > INT32_MAX)
		return err_set(ERR_INPUT, "%s: a row of %" PRId64 " tokens; the limit is 2^31 - 1", b->where,
		        token_count);
	rc = check_row(b, ids, labels, token_count);
	if (rc < 0)
		return rc;
	if (token_count > d->counts.longest_tokens)
		d->counts.longest_tokens = token_count;
	if (o->max_length_tokens && token_count > o->max_length_tokens) {
		if (o->long_rows == DATASET_LONG_ROWS_ERROR)
			return err_set(ERR_INPUT,
			        "%s: the row has %" PRId64 " tokens and max_length is %" PRId64
			        "; set long_rows=truncate or drop",
			        b->where, token_count, o->max_length_tokens);
		if (o->long_rows == DATASET_LONG_ROWS_DROP) {
			d->counts.dropped++;
			return 0;
		}
		d->counts.truncated++;
		token_count = o->max_length_tokens;
	}
	rc = reserve(b, token_count);
	if (rc == 0)
		rc = append(b, ids, labels, token_count, masked);
	if (rc == 1 && d->counts.without_target++ == 0)
		snprintf(d->counts.without_target_first, sizeof(d->counts.without_target_first), "%s",
		        b->where);
	return rc < 0 ? rc : 0;
}

int dataset_builder_copy(struct dataset_builder *b, const struct dataset *from, int64_t row)
{
	int64_t count = dataset_row_tokens(from, row);
	int32_t *labels = mem_alloc((size_t)count, sizeof(*labels));
	int rc = labels ? reserve(b, count) : ERR_NOMEM;

	for (int64_t t = 0; rc == 0 && t < count; t++)
		labels[t] = dataset_label(from, row, t);
	if (rc == 0)
		rc = append(b, dataset_row_ids(from, row), labels, count, 0);
	mem_free(labels);
	return rc < 0 ? rc : 0;
}
