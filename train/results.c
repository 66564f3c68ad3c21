/* Writes results besides checkpoints: the model, and the gradients of a step. */
#include "train/adapters.h"
#include "train/base_format.h"
#include "train/fallback.h"
#include "train/place.h"
#include "train/ranks/collect.h"
#include "train/ranks/planes.h"
#include "train/run_dir/run_dir.h"
#include "train/run_dir/run_owner.h"
#include "train/train.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/hf/hf_export.h"
#include "checkpoint/hf/overlay.h"
#include "checkpoint/hf/peft.h"
#include "comm/world.h"
#include "model/adapter.h"

#include <inttypes.h>
#include <string.h>

enum safetensors_dtype train_export_dtype(const struct trainer *t)
{
	return (enum safetensors_dtype)t->config->export_dtype;
}

struct result {
	struct trainer *trainer;
	const char *fallback; /* NULL: output_dir */
};

static char *model_dir(const struct trainer *t, const char *fallback)
{
	return fallback ? file_join(fallback, "model") : run_dir_model(t->output_dir);
}

_Static_assert((int)PEFT_EXPERTS_FUSED == CONFIG_LORA_EXPERT_FORM_FUSED &&
                       (int)PEFT_EXPERTS_EACH == CONFIG_LORA_EXPERT_FORM_PER_EXPERT,
        "one list");

/* Beside model/. */
static int export_adapter(const struct result *r, const struct plane_source *source)
{
	struct trainer *t = r->trainer;
	const struct model *model = t->session.model;
	char *dir = file_join(r->fallback ? r->fallback : t->output_dir, "adapter");
	struct peft_export export = {.dir = dir,
	        .existing = HF_EXPORT_REPLACE,
	        .base = t->config->model,
	        .rank = t->session.adapter.options.rank,
	        .scale = adapter_scale(&t->session.adapter.options),
	        .experts = (enum peft_experts)t->config->lora_expert_form,
	        .side = &t->session.side,
	        .is_text_only = t->config->export_text_only,
	        .may_appear = r->fallback ? NULL : run_owner_check};
	int rc = dir ? peft_write(&export, model, source) : ERR_NOMEM;

	for (int i = 0; i < model->tensor_count && !rc; i++)
		if (model->tensors[i].trainable && !model->tensors[i].in_adapter) {
			log_warn("%s has the adapter only; %s and other trained parameters of the model are "
			         "in "
			         "model/",
			        dir, model->tensors[i].name);
			break;
		}
	if (rc) {
		mem_free(dir);
		return rc;
	}
	mem_free(t->adapter_dir);
	t->adapter_dir = dir;
	return 0;
}

static int export_model(void *context, const struct plane_source *source)
{
	const struct result *r = context;
	struct trainer *t = r->trainer;
	char *dir = model_dir(t, r->fallback);
	struct hf_export export = {
	        .dir = dir,
	        .existing = HF_EXPORT_REPLACE,
	        .dtype = train_export_dtype(t),
	        .shard_bytes = t->config->max_shard_bytes,
	        .layout = t->config->export_text_only ? NULL : session_layout(&t->session),
	        .side = &t->session.side,
	        .pool = t->session.pool,
	        .may_appear = r->fallback ? NULL : run_owner_check,
	};
	struct overlay overlay;
	int rc = dir ? 0 : ERR_NOMEM;

	if (!rc && export.layout)
		rc = session_check_files(&t->session);
	if (!rc && t->session.model->config.adapter_rank) /* small, so it may fit where the model does not */
		rc = export_adapter(r, source);
	if (!rc)
		base_format_say_result(t->session.model, t->config, hf_import_coded_name(t->session.import));
	if (!rc)
		rc = hf_export_write(
		        &export, t->session.model, adapters_exact(&overlay, &t->session, source));
	if (rc) {
		mem_free(dir);
		return rc;
	}
	mem_free(t->result_dir);
	t->result_dir = dir;
	return 0;
}

static int export_into(struct trainer *t, const char *fallback)
{
	int rc = fallback ? 0 : train_place_keep(t);

	metrics_sync(t->metrics); /* a result stands for the rows of its run */
	if (!rc)
		rc = collect_planes(t->session.engine, planes_state(t->config), export_model,
		        &(struct result){t, fallback});
	if (!rc && !t->result_dir)
		t->result_dir = model_dir(t, fallback);
	return rc;
}

int train_export_model(struct trainer *t)
{
	return fallback_try(t, TRAIN_PATIENCE_END, export_into);
}

/* ---- gradients ---- */

static int gradients_append(
        struct trainer *t, struct safetensors_writer *writer, const struct plane_source *source)
{
	enum { PIECE = 65536 };
	const struct model *model = t->session.model;
	float *piece = mem_alloc(PIECE, sizeof(*piece));
	int rc = piece ? 0 : ERR_NOMEM;

	for (int i = 0; i < model->tensor_count && !rc; i++)
		for (int64_t first = 0; model->tensors[i].trainable && first < model->tensors[i].count && !rc;
		        first += PIECE) {
			int64_t left = model->tensors[i].count - first, count = left < PIECE ? left : PIECE;

			rc = source->read(source->context, i, PLANE_GRADIENT, first, count, piece);
			if (!rc)
				rc = safetensors_append(writer, piece, (size_t)count * sizeof(*piece));
		}
	mem_free(piece);
	return rc;
}

static const struct safetensors_text gradients_mark = {"ferry", "gradients of a step"};

static int is_gradients(const char *path)
{
	struct safetensors *file = NULL;
	int found = 0;

	if (!safetensors_open(&file, path))
		for (int64_t i = 0; i < file->metadata_count; i++)
			found |= !strcmp(file->metadata[i].key, gradients_mark.key) &&
			         !strcmp(file->metadata[i].value, gradients_mark.value);
	safetensors_close(file);
	return found;
}

int train_check_gradients(const struct trainer *t)
{
	const char *path = t->config->dump_gradients;

	if (!path || t->resumed || world_self()->rank || file_kind_of(path) == FILE_NONE ||
	        is_gradients(path))
		return 0;
	return err_set(ERR_INPUT,
	        "%s=%s exists and is not a file of gradients that ferry wrote; remove it or name another "
	        "file",
	        config_where(t->config, "dump_gradients"), path);
}

static int dump_gradients(void *context, const struct plane_source *source)
{
	struct trainer *t = context;
	const struct model *model = t->session.model;
	const char *path = t->config->dump_gradients;
	struct safetensors_decl *decls;
	int64_t count = 0;
	struct safetensors_writer *writer = NULL;
	int rc;

	if (t->resumed && file_kind_of(path) != FILE_NONE) {
		log_info("dump_gradients=%s exists and is kept; remove it before resuming to write the first "
		         "step's gradients",
		        path);
		return 0;
	}
	decls = mem_alloc((size_t)model->tensor_count, sizeof(*decls));
	rc = decls ? 0 : ERR_NOMEM;
	for (int i = 0; i < model->tensor_count && !rc; i++) {
		if (!model->tensors[i].trainable)
			continue;
		decls[count] = (struct safetensors_decl){
		        .name = model->tensors[i].name,
		        .dtype = SAFETENSORS_F32,
		        .rank = model->tensors[i].rank,
		};
		memcpy(decls[count++].shape, model->tensors[i].shape, sizeof(model->tensors[i].shape));
	}
	if (!rc)
		rc = safetensors_replace(&writer, path, decls, count, &gradients_mark, 1);
	if (!rc)
		rc = gradients_append(t, writer, source);
	if (!rc)
		rc = safetensors_finish(writer);
	if (!rc)
		log_info("gradients of step %" PRId64 " written to %s", t->step, path);
	safetensors_writer_free(writer);
	mem_free(decls);
	return rc;
}

int train_dump_gradients(struct trainer *t)
{
	return collect_planes(t->session.engine, planes_state(t->config), dump_gradients, t);
}
