/* Sends the inputs that only rank 0 reads to the other ranks. */
#include "train/ranks/ranks_share.h"

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "comm/world.h"
#include "data/rows/row_cache.h"
#include "model/families/open.h"

#include <string.h>

enum { CONFIG_BYTES_MAX = 16 << 20 };

static int is_shared(const struct config *c)
{
	return c->load == CONFIG_LOAD_RANK0_ONLY && world_self()->size > 1;
}

/* Copies an array of rank 0. The other ranks allocate memory for it. */
static int share_array(void **values, int64_t bytes)
{
	int rc = 0;

	if (world_self()->rank) {
		*values = mem_alloc((size_t)bytes + 1, 1);
		rc = *values ? 0 : ERR_NOMEM;
	}
	rc = world_agree(rc);
	return rc ? rc : world_broadcast(*values, bytes, 0);
}

int ranks_share_block(const struct config *c, char **block, int64_t *len_bytes)
{
	int rc;

	if (!is_shared(c))
		return 0;
	if (!*block)
		*len_bytes = -1;
	rc = world_broadcast(len_bytes, sizeof(*len_bytes), 0);
	if (rc || *len_bytes < 0)
		return rc;
	return share_array((void **)block, *len_bytes);
}

int ranks_share_tokens(const struct config *c, struct token_list *ids)
{
	int64_t count = ids->count;
	int rc;

	if (!is_shared(c))
		return 0;
	rc = world_broadcast(&count, sizeof(count), 0);
	if (!rc)
		rc = world_agree(world_self()->rank ? token_list_reserve(ids, count) : 0);
	ids->count = count;
	return rc ? rc : world_broadcast(ids->ids, count * (int64_t)sizeof(*ids->ids), 0);
}

/* Opens rank 0's files of rows on the other ranks, which must see them. */
static int share_files(struct dataset *d)
{
	int rank = world_self()->rank, rc;
	int64_t len = rank ? 0 : (int64_t)strlen(d->store->path) + 1;
	char *path = rank ? NULL : d->store->path;
	struct dataset facts;

	rc = world_broadcast(&len, sizeof(len), 0);
	if (!rc)
		rc = share_array((void **)&path, len);
	if (!rc && rank) {
		const struct row_entry *entries = NULL;
		int64_t count = 0;

		rc = row_cache_open(&d->store, &entries, &count, &facts, sizeof(facts), path);
		d->rows = entries;
		if (!rc)
			rc = err_set(ERR_INPUT,
			        "rank 0 keeps the rows in %s, which this rank cannot read: set data_cache to "
			        "a "
			        "directory that all ranks see, or raise data_memory",
			        path);
	}
	if (rank)
		mem_free(path);
	return world_agree(rc < 0 ? rc : 0);
}

static int share_memory(struct dataset *d, int64_t len_bytes)
{
	int rc = share_array((void **)&d->own_rows, d->row_count * (int64_t)sizeof(*d->own_rows));

	d->rows = d->own_rows;
	if (!rc && world_self()->rank) {
		d->store = row_store_new();
		rc = d->store ? 0 : ERR_NOMEM;
	}
	rc = rc ? rc : world_agree(rc);
	if (!rc)
		rc = share_array((void **)&d->store->memory, len_bytes);
	if (!rc)
		d->store->len_bytes = len_bytes;
	return rc;
}

int ranks_share_dataset(const struct config *c, struct dataset **out)
{
	struct dataset *d = *out, head;
	int64_t memory_bytes = 0;
	int rc = 0;

	if (!is_shared(c))
		return 0;
	if (world_self()->rank)
		*out = d = mem_alloc(1, sizeof(*d));
	rc = world_agree(d ? 0 : ERR_NOMEM);
	if (rc)
		return rc;
	head = *d;
	memory_bytes = d->store && d->store->memory ? d->store->len_bytes : -1;
	rc = world_broadcast(&head, sizeof(head), 0);
	if (!rc)
		rc = world_broadcast(&memory_bytes, sizeof(memory_bytes), 0);
	if (!rc && world_self()->rank) { /* copies the numbers; the rows follow */
		head.own_rows = NULL;
		head.rows = NULL;
		head.store = NULL;
		*d = head;
	}
	if (rc)
		return rc;
	return memory_bytes < 0 ? share_files(d) : share_memory(d, memory_bytes);
}

/* ---- the model's table ---- */

static int config_read(char **text, int64_t *len_bytes, const char *path)
{
	char *file = file_kind_of(path) == FILE_DIR ? file_join(path, "config.json") : mem_strdup(path);
	size_t len = 0;
	int rc = file ? file_read_all(file, CONFIG_BYTES_MAX, text, &len) : ERR_NOMEM;

	*len_bytes = (int64_t)len;
	mem_free(file);
	return rc;
}

static int model_build(struct model **model, const char *text, int64_t len_bytes)
{
	json_t *config = NULL;
	int rc = json_parse(&config, "rank 0's config.json", text, (size_t)len_bytes);

	if (!rc)
		rc = model_open(model, config, "rank 0's config.json");
	json_decref(config);
	return rc;
}

static int experts_in_out(const struct model *model)
{
	int tensor = model_first_experts(model);

	return tensor >= 0 && model->config.block[model->tensors[tensor].layer].experts.in_out;
}

int ranks_share_model(const struct config *c, struct model **model)
{
	char *text = NULL;
	int64_t len_bytes = 0;
	int rank = world_self()->rank, is_tied = 0, in_out = 0, rc;
	struct pooling pooling = {0};
	int64_t labels[2] = {0}; /* the kind of head, and how many */

	if (!is_shared(c))
		return 0;
	rc = rank ? 0 : config_read(&text, &len_bytes, c->model);
	if (!rank && !rc)
		is_tied = (*model)->config.tied;
	if (!rank && !rc)
		in_out = experts_in_out(*model);
	if (!rank && !rc)
		pooling = (*model)->config.pooling;
	if (!rank && !rc)
		memcpy(labels, (int64_t[]){(*model)->config.is_classifier, (*model)->config.labels},
		        sizeof(labels));
	if (!rc)
		rc = ranks_share_block(c, &text, &len_bytes);
	if (!rc)
		rc = world_broadcast(&is_tied, sizeof(is_tied), 0);
	if (!rc)
		rc = world_broadcast(&in_out, sizeof(in_out), 0);
	if (!rc && rank)
		rc = model_build(model, text, len_bytes);
	if (!rc && rank && experts_in_out(*model) != in_out)
		rc = model_turn_experts(*model);
	if (!rc)
		rc = world_broadcast(&pooling, sizeof(pooling), 0);
	if (!rc)
		rc = world_broadcast(labels, sizeof(labels), 0);
	if (!rc && rank && labels[0])
		rc = model_classify(*model, (int)labels[0], labels[1]);
	else if (!rc && rank && pooling.mode_count)
		rc = model_pool(*model, &pooling);
	if (!rc && rank && !is_tied)
		rc = model_untie(*model);
	mem_free(text);
	return rc;
}

/* How rank 0's files have a tensor; block 0: not in codes. */
struct shared_format {
	int32_t storage, code, scale, is_turned, is_kept;
	int64_t block;
};

static struct shared_format format_of(const struct model_tensor *t)
{
	const struct weight_format *stored = t->stored;
	struct shared_format f = {.storage = (int32_t)t->storage, .is_turned = t->is_stored_turned};

	if (!stored)
		return f;
	f.code = (int32_t)stored->code;
	f.scale = (int32_t)stored->scale;
	f.block = stored->block_cols ? stored->block_cols : WEIGHT_BLOCK_ROW;
	f.is_kept = t->kept == stored;
	return f;
}

static void format_take(struct model_tensor *t, const struct shared_format *f)
{
	t->storage = (enum format)f->storage;
	t->is_stored_turned = f->is_turned;
	if (f->block)
		t->stored = weight_format_coded((enum code)f->code, (enum code_scale)f->scale, f->block);
	if (f->is_kept)
		t->kept = t->stored;
}

int ranks_share_formats(const struct config *c, struct model *model)
{
	int count = model->tensor_count, rc;
	struct shared_format *formats;

	if (!is_shared(c))
		return 0;
	formats = mem_alloc((size_t)count, sizeof(*formats));
	rc = world_agree(formats ? 0 : ERR_NOMEM);
	for (int t = 0; t < count && !rc; t++)
		formats[t] = format_of(&model->tensors[t]);
	if (!rc)
		rc = world_broadcast(formats, count * (int64_t)sizeof(*formats), 0);
	for (int t = 0; t < count && !rc && world_self()->rank; t++)
		format_take(&model->tensors[t], &formats[t]);
	mem_free(formats);
	return rc;
}
