/* Checks that the files of a configuration exist. */
#include "train/preflight.h"

#include "train/inputs/paths.h"
#include "train/run_dir/run_dir.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "checkpoint/file/temp_dir.h"
#include "checkpoint/hf/hub_cache.h"
#include "checkpoint/manifest.h"
#include "comm/world.h"
#include "config/table.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum path_kind { WANT_DIR, WANT_FILE, WANT_EITHER };

/* Whether the text is probably a hub id, not a mistyped path: its owner is no folder here, and it has no
 * file's ending. */
static int looks_like_hub_id(const char *text)
{
	static const char *const endings[] = {
	        ".json", ".jsonl", ".txt", ".csv", ".parquet", ".yaml", ".safetensors", ".bin", ".gz"};
	size_t owner_len = strcspn(text, "/");
	char owner[PATH_MAX];

	if (!hub_is_id(text) || owner_len >= sizeof(owner))
		return 0;
	memcpy(owner, text, owner_len);
	owner[owner_len] = 0;
	if (text[owner_len] && file_kind_of(owner) == FILE_DIR)
		return 0;
	for (size_t i = 0; i < sizeof(endings) / sizeof(*endings); i++)
		if (str_ends_with(text, endings[i]))
			return 0;
	return 1;
}

static int hub_error(const struct config *c, const char *where, const struct config_key *key, const char *id)
{
	const char *slash = strchr(id, '/'), *name = slash ? slash + 1 : id, *revision = strchr(id, '@');
	int id_len = (int)strcspn(id, "@"), name_len = (int)strcspn(name, "@");
	const char *file = config_set_at(c, key->name);
	const char *beside = file && *file ? ", neither in the current directory nor beside that file" : "";
	int is_data = key->path == CONFIG_PATH_DATA;

	if (c->verb == VERB_PLAN && key->offset == offsetof(struct config, model))
		return err_set(ERR_INPUT,
		        "%s=%s does not exist%s. A plan needs only config.json; for a name on the "
		        "HuggingFace hub:\n"
		        "    pip install -U huggingface_hub\n    hf download %.*s config.json%s%s "
		        "--local-dir %.*s\n"
		        "then set model=%.*s; examples/models of ferry's sources has some",
		        where, id, beside, id_len, id, revision ? " --revision " : "",
		        revision ? revision + 1 : "", name_len, name, name_len, name);
	return err_set(ERR_INPUT,
	        "%s=%s does not exist%s. If it is a name on the HuggingFace hub, these two commands fetch "
	        "it:\n    pip install -U huggingface_hub\n    hf download %.*s%s%s%s --local-dir %.*s\nthen "
	        "set %s=%.*s",
	        where, id, beside, id_len, id, is_data ? " --repo-type dataset" : "",
	        revision ? " --revision " : "", revision ? revision + 1 : "", name_len, name, key->name,
	        name_len, name);
}

static int check_path(const struct config *c, const char *key, const char *path, enum path_kind want)
{
	const struct config_key *row = config_key_find(key);
	enum file_kind kind;
	const char *where;

	if (!path || !(row->verbs >> c->verb & 1))
		return 0;
	where = config_where(c, key);
	kind = file_kind_of(path);
	if (kind == FILE_NONE && (row->path == CONFIG_PATH_MODEL || row->path == CONFIG_PATH_DATA) &&
	        looks_like_hub_id(path))
		return hub_error(c, where, row, path);
	if (kind == FILE_NONE && strstr(path, "://"))
		return err_set(
		        ERR_INPUT, "%s=%s is a URL; ferry reads files, so download it first", where, path);
	if (kind == FILE_NONE)
		return err_set(ERR_INPUT, "%s=%s: no such file or directory", where, path);
	if (want == WANT_DIR && kind != FILE_DIR)
		return file_refuse_no_dir(where, path, "a directory");
	if (want == WANT_FILE && kind == FILE_DIR)
		return err_set(ERR_INPUT, "%s=%s is a directory; expected a file", where, path);
	return 0;
}

static int is_adapter(const struct config *c)
{
	char *path = file_join(c->model, "adapter_config.json");
	int found = path && file_kind_of(path) == FILE_REGULAR;

	mem_free(path);
	return found;
}

static int no_model(const struct config *c)
{
	char *inner = mem_printf("%s/model/config.json", c->model);
	int found = inner && file_kind_of(inner) == FILE_REGULAR;

	mem_free(inner);
	if (is_adapter(c))
		return err_set(ERR_INPUT,
		        "%s=%s is a LoRA adapter (adapter_config.json), not a model; set lora_adapter=%s "
		        "model=BASE, the model that it was trained for",
		        config_where(c, "model"), c->model, c->model);
	if (found)
		return err_set(ERR_INPUT, "%s=%s has no config.json; the result of that run is %s/model",
		        config_where(c, "model"), c->model, c->model);
	return err_set(ERR_INPUT,
	        "%s=%s has no config.json; expected a HuggingFace directory (ferry export makes one from a "
	        "checkpoint)",
	        config_where(c, "model"), c->model);
}

/* transformers loads a model and the adapter beside it together; here lora_adapter says so. */
static int check_no_adapter(const struct config *c)
{
	static const char *const names[] = {
	        "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"};

	if (c->lora_adapter && !strcmp(c->lora_adapter, c->model))
		return 0;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		char *path = file_join(c->model, names[i]);
		enum file_kind kind = path ? file_kind_of(path) : FILE_NONE;

		mem_free(path);
		if (!path)
			return ERR_NOMEM;
		if (kind == FILE_REGULAR)
			return err_set(ERR_INPUT,
			        "%s=%s has a LoRA adapter (%s) beside its weights; set lora_adapter=%s to "
			        "use both, or move it out of the directory",
			        config_where(c, "model"), c->model, names[i], c->model);
	}
	return 0;
}

/* A directory of a model must hold a config.json to be one. */
static int check_model(const struct config *c)
{
	int plain = c->verb == VERB_PLAN || c->init_weights == CONFIG_INIT_WEIGHTS_RANDOM;
	char *path;
	int err = check_path(c, "model", c->model, plain ? WANT_EITHER : WANT_DIR);

	if (err || !c->model || c->verb == VERB_TOKENIZE || c->verb == VERB_DATA ||
	        file_kind_of(c->model) != FILE_DIR)
		return err;
	path = file_join(c->model, "config.json");
	if (!path)
		return ERR_NOMEM;
	if (file_kind_of(path) != FILE_REGULAR)
		err = access(path, F_OK) && errno == EACCES
		              ? err_set(ERR_INPUT, "%s: %s", path, strerror(EACCES))
		              : no_model(c);
	mem_free(path);
	return err || plain ? err : check_no_adapter(c);
}

/* Checks a file that is written only after the first step, so that an error shows now. */
static int check_new_file(const struct config *c, const char *key, const char *path)
{
	char *dir;
	int err = 0;

	if (!path || !(config_key_find(key)->verbs >> c->verb & 1))
		return 0;
	dir = file_dir_of(path);
	if (!dir)
		return ERR_NOMEM;
	if (file_kind_of(dir) != FILE_DIR)
		err = err_set(ERR_INPUT, "%s=%s: no such directory: %s", config_where(c, key), path, dir);
	else if (file_kind_of(path) == FILE_DIR)
		err = err_set(
		        ERR_INPUT, "%s=%s is a directory; name a file in it", config_where(c, key), path);
	else if (file_kind_of(path) != FILE_NONE && !c->resume_from_checkpoint)
		err = err_set(ERR_INPUT, "%s=%s exists; remove it or name another file", config_where(c, key),
		        path);
	else if (access(file_kind_of(path) == FILE_NONE ? dir : path, W_OK))
		err = err_set(ERR_INPUT, "%s=%s cannot be written: %s", config_where(c, key), path,
		        strerror(errno));
	mem_free(dir);
	return err;
}

/* Checks that save_fallback_dir can be made later. Warns if it is on output_dir's disk, because both would be
 * full at once. */
static int check_fallback(const struct config *c)
{
	const char *dir = c->save_fallback_dir;
	char *at = NULL;
	struct stat here, there;
	int err = dir ? temp_dir_check_writable(dir, config_where(c, "save_fallback_dir"), dir) : 0;

	if (!err && dir)
		err = temp_dir_nearest(&at, dir);
	if (at && !stat(at, &there) && !stat(c->output_dir, &here) && here.st_dev == there.st_dev)
		log_warn("%s=%s is on the same disk as output_dir, so it does not help if that disk is full; "
		         "use another disk",
		        config_where(c, "save_fallback_dir"), dir);
	mem_free(at);
	return err;
}

static int check_resume(const struct config *c, const char *path)
{
	char *manifest;
	int err = check_path(c, "resume_from_checkpoint", path, WANT_DIR);

	if (err)
		return err;
	manifest = file_join(path, manifest_name);
	if (!manifest)
		return ERR_NOMEM;
	if (file_kind_of(manifest) == FILE_NONE)
		err = err_set(ERR_INPUT,
		        "%s=%s is not a ferry checkpoint: it has no %s; name a directory like "
		        "OUTPUT_DIR/checkpoint-000500, or auto for the newest",
		        config_where(c, "resume_from_checkpoint"), path, manifest_name);
	mem_free(manifest);
	return err;
}

/* Checks a file, folder, pattern or standard input. Several ranks cannot share a pipe. */
static int check_data(const struct config *c, const char *key, const char *path)
{
	int is_pipe = path && (!strcmp(path, "-") || file_kind_of(path) == FILE_OTHER);

	if (is_pipe && world_self()->size > 1 && c->load != CONFIG_LOAD_RANK0_ONLY)
		return err_set(ERR_INPUT,
		        "%s=%s: several ranks cannot read one pipe; name a file, or set load=rank0_only",
		        config_where(c, key), path);
	return path && path_is_pattern(path) ? 0 : check_path(c, key, path, WANT_EITHER);
}

int preflight_check(const struct config *c)
{
	const char *resume = c->verb == VERB_TRAIN ? c->resume_from_checkpoint : NULL;
	int plans_without_data =
	        c->verb == VERB_PLAN &&
	        (!c->data || (file_kind_of(c->data) == FILE_NONE && !path_is_pattern(c->data)));
	int err;

	if (c->verb == VERB_CONFIG) /* it shows what a configuration says, wherever its files are */
		return 0;
	err = check_model(c);
	if (!err && !plans_without_data)
		err = check_data(c, "data", c->data);
	if (!err && !plans_without_data)
		err = check_data(c, "eval_data", c->eval_data);
	if (!err)
		err = check_path(c, "tokenizer", c->tokenizer, WANT_EITHER);
	if (!err)
		err = check_path(c, "machine", c->machine, WANT_FILE);
	if (!err)
		err = check_path(c, "checkpoint", c->checkpoint, WANT_DIR);
	if (!err)
		err = check_path(c, "config", c->config_json, WANT_EITHER);
	if (!err && strcmp(c->path ? c->path : "-", "-"))
		err = check_path(c, "path", c->path, c->verb == VERB_TOKENIZE ? WANT_FILE : WANT_EITHER);
	if (!err && c->verb == VERB_TRAIN)
		err = check_new_file(c, "dump_gradients", c->dump_gradients);
	if (!err)
		err = check_new_file(c, "trace_file", c->trace_file);
	if (!err && c->verb == VERB_TRAIN)
		err = check_fallback(c);
	if (!err && resume && strcmp(resume, "auto"))
		err = check_resume(c, resume);
	if (!err && c->output_dir && verb_makes_result(c->verb))
		err = run_dir_check(c);
	return err;
}
