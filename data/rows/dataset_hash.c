/* Hashes all rows of a dataset, in memory or in files. */
#include "data/rows/dataset.h"

#include <string.h>
#include <xxhash.h>

#include "base/err.h"
#include "base/mem.h"

/* The bits of several rows, one after another. */
struct bits {
	XXH3_state_t *state;
	uint8_t block[4096];
	int64_t count; /* in block */
};

static void bits_flush(struct bits *b)
{
	XXH3_64bits_update(b->state, b->block, (size_t)(b->count + 7) / 8);
	memset(b->block, 0, sizeof(b->block));
	b->count = 0;
}

static void bits_add(struct bits *b, const struct row_view *v)
{
	for (int64_t t = 0; t < v->token_count; t++) {
		if (v->trained[t / 8] >> (t % 8) & 1)
			b->block[b->count / 8] |= (uint8_t)(1 << b->count % 8);
		if (++b->count == (int64_t)sizeof(b->block) * 8)
			bits_flush(b);
	}
}

enum part { PART_IDS, PART_STARTS, PART_TRAINED, PART_VECTORS, PART_LABELS };

/* Hashes labels. Before the first label that is neither its id nor DATASET_IGNORE, ids stand for labels. */
static void labels_add(XXH3_state_t *state, const struct row_view *v, int *begun)
{
	for (int64_t t = 0; t < v->token_count; t++) {
		int32_t label = row_label(v, t);

		*begun |= label != DATASET_IGNORE && label != v->ids[t];
		label = *begun ? label : v->ids[t];
		XXH3_64bits_update(state, &label, sizeof(label));
	}
}

/* Makes one pass over the rows. */
static int add_part(struct bits *b, const struct dataset *d, enum part part, int *has_own)
{
	struct row_buffer buffer = {0};
	struct row_view v;
	int64_t at = 0;
	int begun = 0, rc = 0;

	if (part == PART_STARTS)
		XXH3_64bits_update(b->state, &at, sizeof(at));
	for (int64_t row = 0; rc == 0 && row < d->row_count; row++) {
		at += dataset_row_tokens(d, row);
		if (part == PART_STARTS) {
			XXH3_64bits_update(b->state, &at, sizeof(at));
			continue;
		}
		rc = dataset_row_read(&v, &buffer, d, row);
		if (rc)
			break;
		*has_own |= v.labels != NULL;
		if (part == PART_IDS)
			XXH3_64bits_update(b->state, v.ids, (size_t)v.token_count * sizeof(*v.ids));
		else if (part == PART_TRAINED)
			bits_add(b, &v);
		else if (part == PART_VECTORS)
			XXH3_64bits_update(b->state, v.vector, (size_t)d->vector_count * sizeof(*v.vector));
		else
			labels_add(b->state, &v, &begun);
	}
	if (part == PART_TRAINED)
		bits_flush(b);
	row_buffer_free(&buffer);
	return rc;
}

/* Hashes one part; the hash so far is the seed. */
static int hash_part(uint64_t *hash, struct bits *b, const struct dataset *d, enum part part, int *has_own)
{
	int rc;

	if (part == PART_IDS)
		XXH3_64bits_reset(b->state);
	else
		XXH3_64bits_reset_withSeed(b->state, *hash);
	rc = add_part(b, d, part, has_own);
	*hash = XXH3_64bits_digest(b->state);
	return rc;
}

static int hash_parts(uint64_t *hash, const struct dataset *d, enum part first, enum part last, int *has_own)
{
	struct bits *b = mem_alloc(1, sizeof(*b));
	int rc = 0;

	if (b)
		b->state = XXH3_createState();
	if (!b || !b->state)
		rc = err_set(ERR_NOMEM, "out of memory");
	for (enum part part = first; !rc && part <= last; part++)
		rc = hash_part(hash, b, d, part, has_own);
	if (b)
		XXH3_freeState(b->state);
	mem_free(b);
	return rc;
}

int dataset_hash(uint64_t *hash, const struct dataset *d)
{
	int has_own = 0;

	if (d->content_hash) {
		*hash = d->content_hash;
		return 0;
	}
	return hash_parts(hash, d, PART_IDS, d->vector_count ? PART_VECTORS : PART_TRAINED, &has_own);
}

int dataset_hash_labels(uint64_t *hash, const struct dataset *d)
{
	struct row_buffer buffer = {0};
	struct row_view v;
	int has_own = 0, rc = 0;

	for (int64_t row = 0; d->own_label_rows && !rc && !has_own && row < d->row_count; row++) {
		rc = dataset_row_read(&v, &buffer, d, row);
		has_own = !rc && v.labels != NULL;
	}
	row_buffer_free(&buffer);
	return rc || !has_own ? rc : hash_parts(hash, d, PART_LABELS, PART_LABELS, &has_own);
}
