/* What only rank 0 reads, sent to the others. */
#include "train/ranks_share.h"

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "comm/world.h"
#include "model/families/open.h"

#include <string.h>

enum { CONFIG_BYTES_MAX = 16 << 20 };

static int is_shared(const struct config *c)
{
	return c->load == CONFIG_LOAD_RANK0_ONLY && world_self()->size > 1;
}

/* An array of rank 0's; the others get memory for it. */
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

int ranks_share_dataset(const struct config *c, struct dataset **out)
{
	struct dataset *d = *out;
	int rc = 0, has_labels;

	if (!is_shared(c))
		return 0;
	if (world_self()->rank) {
		*out = d = mem_alloc(1, sizeof(*d));
		rc = d ? 0 : ERR_NOMEM;
	}
	rc = world_agree(rc);
	if (!rc) {
		struct dataset head = *d;

		rc = world_broadcast(&head, sizeof(head), 0);
		has_labels = head.labels != NULL;
		if (world_self()->rank) { /* its numbers; the arrays follow */
			head.row_start = NULL;
			head.row_targets = NULL;
			head.ids = NULL;
			head.trained = NULL;
			head.labels = NULL;
			*d = head;
		}
	}
	if (!rc)
		rc = share_array((void **)&d->row_start, (d->row_count + 1) * (int64_t)sizeof(*d->row_start));
	if (!rc)
		rc = share_array((void **)&d->row_targets, d->row_count * (int64_t)sizeof(*d->row_targets));
	if (!rc)
		rc = share_array((void **)&d->ids, d->token_count * (int64_t)sizeof(*d->ids));
	if (!rc)
		rc = share_array((void **)&d->trained, (d->token_count + 7) / 8);
	if (!rc && has_labels)
		rc = share_array((void **)&d->labels, d->token_count * (int64_t)sizeof(*d->labels));
	return rc;
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

int ranks_share_model(const struct config *c, struct model **model)
{
	char *text = NULL;
	int64_t len_bytes = 0;
	int rank = world_self()->rank, is_tied = 0, rc;

	if (!is_shared(c))
		return 0;
	rc = rank ? 0 : config_read(&text, &len_bytes, c->model);
	if (!rank && !rc)
		is_tied = (*model)->config.tied;
	if (!rc)
		rc = ranks_share_block(c, &text, &len_bytes);
	if (!rc)
		rc = world_broadcast(&is_tied, sizeof(is_tied), 0);
	if (!rc && rank)
		rc = model_build(model, text, len_bytes);
	if (!rc && rank && !is_tied)
		rc = model_untie(*model);
	mem_free(text);
	return rc;
}

int ranks_share_formats(const struct config *c, struct model *model)
{
	int count = model->tensor_count, rc;
	char *wide;

	if (!is_shared(c))
		return 0;
	wide = mem_alloc((size_t)count, 1);
	rc = world_agree(wide ? 0 : ERR_NOMEM);
	for (int t = 0; t < count && !rc; t++)
		wide[t] = (char)model->tensors[t].is_wide;
	if (!rc)
		rc = world_broadcast(wide, count, 0);
	for (int t = 0; t < count && !rc; t++)
		model->tensors[t].is_wide = wide[t] != 0;
	mem_free(wide);
	return rc;
}
