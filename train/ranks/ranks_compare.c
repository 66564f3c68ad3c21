/* Compares the inputs of all ranks with rank 0's at the start, before anything is written. */
#include "train/ranks/ranks_compare.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/hf/hf_import_parts.h"
#include "checkpoint/load.h"
#include "comm/world.h"
#include "train/inputs/file_hash.h"

#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

/* Reports the first line in which two texts differ. */
static int lines_differ(const char *what, const char *own, const char *first)
{
	while (*own && *first) {
		size_t own_len = strcspn(own, "\n"), first_len = strcspn(first, "\n");

		if (own_len != first_len || memcmp(own, first, own_len))
			return err_set(ERR_INPUT,
			        "%s differs: \"%.*s\", rank 0 has \"%.*s\"; start all ranks with the same %s",
			        what, (int)own_len, own, (int)first_len, first, what);
		own += own_len + (own[own_len] == '\n');
		first += first_len + (first[first_len] == '\n');
	}
	if (!*own && !*first)
		return 0;
	return err_set(ERR_INPUT, "%s differs: %s \"%.*s\"; start all ranks with the same %s", what,
	        *own ? "rank 0 lacks" : "this rank lacks", (int)strcspn(*own ? own : first, "\n"),
	        *own ? own : first, what);
}

/* Checks that the text equals rank 0's, and frees it. `code`: error of making the text. */
static int text_compare(const char *what, struct str *text, int code)
{
	char *first = NULL;
	int64_t bytes = 0;
	int rc = world_agree(code ? code : str_check(text));

	if (!rc) {
		bytes = (int64_t)text->len_bytes;
		rc = world_broadcast(&bytes, sizeof(bytes), 0);
	}
	if (!rc) {
		first = mem_alloc((size_t)bytes + 1, 1);
		rc = world_agree(first ? 0 : ERR_NOMEM);
	}
	if (!rc && !world_self()->rank)
		memcpy(first, text->data ? text->data : "", (size_t)bytes);
	if (!rc)
		rc = world_broadcast(first, bytes, 0);
	if (!rc)
		rc = world_agree(lines_differ(what, text->data ? text->data : "", first));
	mem_free(first);
	str_free(text);
	return rc;
}

/* ---- program and configuration ---- */

static int add_file_hash(struct str *text, const char *what, const char *path)
{
	int64_t len_bytes = 0;
	uint64_t hash = 0;
	int rc = file_hash(path, &hash, &len_bytes);

	if (!rc)
		str_printf(text, "%s: %" PRId64 " bytes, checksum %016" PRIx64 "\n", what, len_bytes, hash);
	return rc;
}

int ranks_check(const struct config *c)
{
	struct str text = {0};
	int rc;

	if (world_self()->size == 1)
		return 0;
	/* hash the program's bytes, because two builds of one version may differ */
	rc = text_compare("program", &text, add_file_hash(&text, "version " FERRY_VERSION, "/proc/self/exe"));
	if (rc)
		return rc;
	config_write_yaml(&text, c);
	return text_compare("configuration", &text, 0);
}

/* ---- opened inputs ---- */

static int add_weights(struct str *text, const struct hf_dir *dir)
{
	int rc = 0;

	for (int f = 0; f < dir->file_count && !rc; f++) {
		uint64_t hash = 0;

		rc = hf_file_sample(&hash, dir->files[f]);
		str_printf(text, "weights in %s: %" PRId64 " bytes, checksum of samples %016" PRIx64 "\n",
		        dir->names[f], dir->files[f]->file_bytes, hash);
	}
	return rc;
}

static int add_model(struct str *text, const char *model, const struct hf_import *import)
{
	char *path = file_kind_of(model) == FILE_DIR ? file_join(model, "config.json") : mem_strdup(model);
	int rc = path ? add_file_hash(text, "config.json of the model", path) : ERR_NOMEM;

	mem_free(path);
	return rc || !import ? rc : add_weights(text, import->dir);
}

static int add_checkpoint(struct str *text, const struct checkpoint *checkpoint)
{
	char *path, what[64];
	int rc;

	if (!checkpoint) {
		str_add(text, "no checkpoint is resumed\n");
		return 0;
	}
	path = file_join(checkpoint_path(checkpoint), manifest_name);
	snprintf(what, sizeof(what), "manifest of the checkpoint of step %" PRId64,
	        checkpoint_manifest(checkpoint)->step);
	rc = path ? add_file_hash(text, what, path) : ERR_NOMEM;
	mem_free(path);
	return rc;
}

static void add_rows(struct str *text, const char *key, const char *path, const struct ranks_rows *rows)
{
	const struct dataset *d = rows->data;

	if (d)
		str_printf(text,
		        "%s=%s: %" PRId64 " rows, %" PRId64 " tokens, checksum of all %016" PRIx64 "\n", key,
		        path ? path : "", d->row_count, d->token_count, rows->hash);
}

int ranks_check_inputs(const struct config *c, const struct ranks_inputs *inputs, int code)
{
	struct str text = {0};
	int rc;

	if (world_self()->size == 1 || c->load == CONFIG_LOAD_RANK0_ONLY)
		return code;
	rc = text_compare("model", &text, code ? code : add_model(&text, c->model, inputs->import));
	if (!rc && c->verb == VERB_TRAIN)
		rc = text_compare("checkpoint", &text, add_checkpoint(&text, inputs->resumed));
	if (rc)
		return rc;
	add_rows(&text, "data", c->data, &inputs->train);
	add_rows(&text, inputs->train.data ? "eval_data" : "data",
	        inputs->train.data ? c->eval_data : c->data, &inputs->eval);
	return text_compare("data", &text, 0);
}

/* ---- plans ---- */

static uint64_t exchanges_hash(const struct plan *p, uint64_t hash)
{
	for (int i = 0; i < p->op_count; i++) {
		const struct plan_op *op = &p->ops[i];
		const int64_t facts[] = {op->kind, op->unit, op->micro, op->updates,
		        p->buffers[p->args[op->first_arg].buffer].bytes};

		if (plan_op_is_exchange(op))
			hash = XXH3_64bits_withSeed(facts, sizeof(facts), hash);
	}
	return hash;
}

int ranks_check_plans(const struct engine *engine)
{
	uint64_t own = 0, first;
	int rc;

	for (int kind = 0; kind <= PLAN_LOGITS; kind++)
		if (engine_plan(engine, (enum plan_kind)kind))
			own = exchanges_hash(engine_plan(engine, (enum plan_kind)kind), own + 1);
	first = own;
	rc = world_broadcast(&first, sizeof(first), 0);
	if (!rc && first != own)
		rc = err_set(ERR_INTERNAL,
		        "this rank's plan differs from rank 0's, and they would wait for each other for "
		        "ever; "
		        "set cpu_offload, activations and vram_budget to other values than auto");
	return world_agree(rc);
}
