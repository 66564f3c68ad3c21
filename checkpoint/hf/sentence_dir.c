/* Reads and writes the modules of sentence-transformers. */
#include "checkpoint/hf/sentence_dir.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>

enum { FILE_BYTES_MAX = 16 << 20 };

/* Names of pooling_mode, and of the flags of older files behind "pooling_mode_". In the order in which older
 * files put them side by side. */
static const struct {
	const char *name, *flag;
	enum pool_mode mode;
} modes[] = {{"cls", "cls_token", POOL_CLS}, {"max", "max_tokens", POOL_MAX},
        {"mean", "mean_tokens", POOL_MEAN},
        {"mean_sqrt_len_tokens", "mean_sqrt_len_tokens", POOL_MEAN_SQRT_LEN},
        {"weightedmean", "weightedmean_tokens", POOL_WEIGHTED_MEAN},
        {"lasttoken", "lasttoken", POOL_LASTTOKEN}};
enum { MODE_COUNT = sizeof(modes) / sizeof(*modes) };
_Static_assert((int)MODE_COUNT == (int)POOL_MODES_MAX, "there is room for all modes at once");

/* Activations of Dense, by their classes in torch. */
static const struct {
	const char *name;
	enum act_kind act;
} acts[] = {{"Tanh", ACT_TANH}, {"Identity", ACT_LINEAR}, {"ReLU", ACT_RELU}, {"GELU", ACT_GELU},
        {"SiLU", ACT_SILU}, {"Sigmoid", ACT_SIGMOID}};

const char *pool_mode_name(enum pool_mode mode)
{
	for (int i = 0; i < MODE_COUNT; i++)
		if (modes[i].mode == mode)
			return modes[i].name;
	return "none";
}

/* ---- reading ---- */

static int object_read(json_t **object, const char *dir, const char *folder, const char *name)
{
	char *path = *folder ? mem_printf("%s/%s/%s", dir, folder, name) : file_join(dir, name);
	int rc = path ? 0 : ERR_NOMEM;

	*object = NULL;
	if (!rc && *folder && file_kind_of(path) == FILE_NONE) { /* in a checkpoint */
		mem_free(path);
		path = mem_printf("%s/%s" SIDE_FILE_FOLDER "%s", dir, folder, name);
		rc = path ? 0 : ERR_NOMEM;
	}
	if (!rc && file_kind_of(path) == FILE_REGULAR)
		rc = json_read_file(object, path, FILE_BYTES_MAX);
	if (!rc && *object && !json_is_object(*object))
		rc = err_set(ERR_INPUT, "%s: %s; expected an object", path, json_kind_name(*object));
	mem_free(path);
	return rc;
}

static int mode_add(struct sentence_dir *s, const char *where, const char *name)
{
	struct pooling *p = &s->pooling;

	for (int i = 0; name && i < MODE_COUNT; i++)
		if (!strcmp(name, modes[i].name)) {
			if (pooling_has(p, modes[i].mode))
				return err_set(ERR_INPUT, "%s: pooling_mode has %s twice", where, name);
			p->mode[p->mode_count++] = modes[i].mode;
			return 0;
		}
	return err_set(ERR_UNSUPPORTED,
	        "%s: pooling_mode %.60s%s; supported: cls, lasttoken, max, mean, "
	        "mean_sqrt_len_tokens, weightedmean",
	        where, name ? name : "is no text", name ? " is not supported" : "");
}

/* A text such as "mean", a list of them, or a flag for each. */
static int pooling_take(struct sentence_dir *s, const json_t *settings, const char *where)
{
	const json_t *mode = json_object_get(settings, "pooling_mode");
	int rc = 0;

	for (int i = 0; i < MODE_COUNT && !mode && !rc; i++) {
		char flag[64];

		snprintf(flag, sizeof(flag), "pooling_mode_%s", modes[i].flag);
		if (json_is_true(json_object_get(settings, flag)))
			rc = mode_add(s, where, modes[i].name);
	}
	for (size_t i = 0; i < json_array_size(mode) && !rc; i++)
		rc = mode_add(s, where, json_string_value(json_array_get(mode, i)));
	if (!rc && mode && !json_is_array(mode))
		rc = mode_add(s, where, json_string_value(mode));
	s->leaves_prompt_out = json_is_false(json_object_get(settings, "include_prompt"));
	if (!rc && !s->pooling.mode_count && mode)
		rc = err_set(ERR_INPUT, "%s: pooling_mode is an empty list", where);
	if (!rc && !s->pooling.mode_count) /* as sentence-transformers does */
		rc = mode_add(s, where, "mean");
	return rc;
}

static int pooling_read(struct sentence_dir *s, const char *dir, const char *folder)
{
	char *where = mem_printf("%s/%s/config.json", dir, folder);
	json_t *settings = NULL;
	int rc = where ? object_read(&settings, dir, folder, "config.json") : ERR_NOMEM;

	if (!rc && s->pooling.mode_count)
		rc = err_set(ERR_UNSUPPORTED, "%s: a second pooling is not supported", where);
	if (!rc && !settings)
		rc = err_set(ERR_INPUT, "%s is missing, but modules.json names it", where);
	if (!rc)
		rc = pooling_take(s, settings, where);
	json_decref(settings);
	mem_free(where);
	return rc;
}

/* ---- modules behind the pooling ---- */

/* NULL: no more room. */
static struct pool_layer *layer_add(struct sentence_dir *s, enum pool_layer_kind kind, int64_t in)
{
	struct pooling *p = &s->pooling;
	struct pool_layer *layer = &p->layer[p->layer_count];

	if (p->layer_count == POOL_LAYERS_MAX)
		return NULL;
	p->layer_count++;
	*layer = (struct pool_layer){.kind = kind, .in = in, .out = in};
	return layer;
}

static int act_find(enum act_kind *act, const json_t *settings, const char *where)
{
	const char *name = "torch.nn.Tanh", *last;

	if (json_get_str(settings, where, "activation_function", &name) < 0)
		return ERR_INPUT;
	last = strrchr(name, '.') ? strrchr(name, '.') + 1 : name;
	for (size_t i = 0; i < sizeof(acts) / sizeof(*acts); i++)
		if (!strncmp(name, "torch.", 6) && !strcmp(last, acts[i].name)) {
			*act = acts[i].act;
			return 0;
		}
	return err_set(ERR_UNSUPPORTED,
	        "%s: activation_function %.80s is not supported; supported: torch.nn.Tanh, Identity, ReLU, "
	        "GELU, SiLU, Sigmoid",
	        where, name);
}

/* Settings of a Dense that change what it reads or adds. */
static int dense_check(const json_t *settings, const char *where)
{
	static const char *const keys[] = {"module_input_name", "module_output_name"};

	if (json_is_true(json_object_get(settings, "use_residual")))
		return err_set(ERR_UNSUPPORTED, "%s: use_residual is not supported yet", where);
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		const char *name = json_string_value(json_object_get(settings, keys[i]));

		if (name && strcmp(name, "sentence_embedding"))
			return err_set(ERR_UNSUPPORTED,
			        "%s: %s is %.60s; only sentence_embedding is supported", where, keys[i],
			        name);
	}
	return 0;
}

static int dense_take(struct sentence_dir *s, const json_t *settings, const char *where, const char *folder)
{
	struct pool_layer *layer = layer_add(s, POOL_LAYER_DENSE, s->width);
	int64_t in = 0, out = 0;
	int bias = 1, rc = dense_check(settings, where), denses = 0;

	for (int l = 0; l < s->pooling.layer_count; l++)
		denses += s->pooling.layer[l].kind == POOL_LAYER_DENSE;
	if (!rc && (!layer || denses > POOL_DENSE_MAX))
		rc = err_set(ERR_UNSUPPORTED, "%s: more than %d Dense modules are not supported", where,
		        POOL_DENSE_MAX);
	if (!rc && (json_get_int(settings, where, "in_features", &in) < 0 ||
	                   json_get_int(settings, where, "out_features", &out) < 0 ||
	                   json_get_bool(settings, where, "bias", &bias) < 0))
		rc = ERR_INPUT;
	if (!rc && (in < 1 || out < 1 || out > INT32_MAX))
		rc = err_set(ERR_INPUT, "%s: needs in_features and out_features above 0", where);
	if (!rc && in != s->width)
		rc = err_set(ERR_INPUT,
		        "%s: in_features is %lld, but the module before it gives %lld numbers", where,
		        (long long)in, (long long)s->width);
	if (!rc)
		rc = act_find(&layer->act, settings, where);
	if (rc)
		return rc;
	layer->out = s->width = out;
	layer->has_bias = bias;
	snprintf(layer->folder, sizeof(layer->folder), "%s", folder);
	return 0;
}

static int dense_read(struct sentence_dir *s, const char *dir, const char *folder)
{
	char *where = mem_printf("%s/%s/config.json", dir, folder),
	     *pickle = mem_printf("%s/%s/pytorch_model.bin", dir, folder),
	     *weights = mem_printf("%s/%s/model.safetensors", dir, folder);
	json_t *settings = NULL;
	int rc = where && pickle && weights ? object_read(&settings, dir, folder, "config.json") : ERR_NOMEM;

	if (!rc && !settings)
		rc = err_set(ERR_INPUT, "%s is missing, but modules.json names it", where);
	if (!rc && file_kind_of(weights) == FILE_NONE && file_kind_of(pickle) != FILE_NONE)
		rc = err_set(ERR_UNSUPPORTED,
		        "%s is a Python pickle; convert it with: python3 -c \"from sentence_transformers "
		        "import "
		        "SentenceTransformer as S; S('%s').save('%s-safetensors')\"",
		        pickle, dir, dir);
	if (!rc)
		rc = dense_take(s, settings, where, folder);
	json_decref(settings);
	mem_free(where);
	mem_free(pickle);
	mem_free(weights);
	return rc;
}

/* A module behind the first. */
static int other_read(
        struct sentence_dir *s, const char *dir, const char *type, const char *kind, const char *folder)
{
	if (!side_folder_is(folder) || strlen(folder) >= POOL_FOLDER_BYTES ||
	        strpbrk(folder, "./" SIDE_FILE_FOLDER))
		return err_set(ERR_UNSUPPORTED,
		        "%s/modules.json: module %s is in \"%.60s\"; ferry reads folders such as 1_Pooling",
		        dir, type, folder);
	if (!strcmp(kind, "Pooling")) {
		int rc = pooling_read(s, dir, folder);

		s->width *= s->pooling.mode_count;
		return rc;
	}
	if (s->pooling.mode_count && !strcmp(kind, "Normalize"))
		return layer_add(s, POOL_LAYER_UNIT, s->width)
		               ? 0
		               : err_set(ERR_UNSUPPORTED,
		                         "%s/modules.json: more than %d modules are not supported", dir,
		                         POOL_LAYERS_MAX);
	if (s->pooling.mode_count && !strcmp(kind, "Dense"))
		return dense_read(s, dir, folder);
	if (s->pooling.mode_count && !strcmp(kind, "Dropout")) {
		log_warn("%s: leaving out its module %s: ferry trains without dropout", dir, folder);
		return 0;
	}
	return err_set(ERR_UNSUPPORTED,
	        "%s/modules.json: module %s is not supported yet; supported: Transformer, Pooling, Dense, "
	        "Normalize",
	        dir, type);
}

static int module_read(struct sentence_dir *s, const char *dir, const json_t *module, size_t place)
{
	const char *type = json_string_value(json_object_get(module, "type")), *kind,
	           *folder = json_string_value(json_object_get(module, "path"));

	if (!type || !folder)
		return err_set(
		        ERR_INPUT, "%s/modules.json: module %zu lacks \"type\" or \"path\"", dir, place);
	kind = strrchr(type, '.') ? strrchr(type, '.') + 1 : type;
	if (place)
		return other_read(s, dir, type, kind, folder);
	if (!strcmp(kind, "Transformer") && !*folder)
		return 0;
	return err_set(ERR_UNSUPPORTED,
	        "%s/modules.json: the first module is %s in \"%s\"; ferry reads a Transformer at the top",
	        dir, type, folder);
}

static int modules_read(struct sentence_dir *s, const char *dir)
{
	char *path = file_join(dir, "modules.json");
	json_t *list = NULL;
	int rc = path ? 0 : ERR_NOMEM;

	if (!rc && file_kind_of(path) == FILE_REGULAR) {
		rc = json_read_file(&list, path, FILE_BYTES_MAX);
		s->is_there = 1;
		if (!rc && !json_is_array(list))
			rc = err_set(
			        ERR_INPUT, "%s: %s; expected a list of modules", path, json_kind_name(list));
		for (size_t i = 0; !rc && i < json_array_size(list); i++)
			rc = module_read(s, dir, json_array_get(list, i), i);
		if (!rc && !s->pooling.mode_count)
			rc = err_set(ERR_UNSUPPORTED, "%s: no module is a Pooling", path);
	}
	json_decref(list);
	mem_free(path);
	return rc;
}

static int settings_read(struct sentence_dir *s, const char *dir)
{
	json_t *settings = NULL, *sentence = NULL;
	int rc = object_read(&settings, dir, "", "config_sentence_transformers.json");

	if (!rc)
		rc = object_read(&sentence, dir, "", "sentence_bert_config.json");
	if (!rc && json_is_object(json_object_get(settings, "prompts")))
		s->prompts = json_incref(json_object_get(settings, "prompts"));
	if (!rc && json_is_integer(json_object_get(sentence, "max_seq_length")))
		s->max_tokens = json_integer_value(json_object_get(sentence, "max_seq_length"));
	json_decref(settings);
	json_decref(sentence);
	return rc;
}

int sentence_dir_read(struct sentence_dir *s, const char *dir, int64_t width)
{
	int rc;

	*s = (struct sentence_dir){.width = width};
	rc = modules_read(s, dir);
	if (!rc && s->is_there)
		rc = settings_read(s, dir);
	if (rc)
		sentence_dir_free(s);
	return rc;
}

void sentence_dir_free(struct sentence_dir *s)
{
	json_decref(s->prompts);
	*s = (struct sentence_dir){0};
}

const char *sentence_dir_prompt(const struct sentence_dir *s, const char *name)
{
	return json_string_value(json_object_get(s->prompts, name));
}

/* ---- writing ---- */

static int put(struct side_files *side, const char *name, json_t *object)
{
	char *text = NULL;
	int rc = object ? json_write(&text, object, JSON_INDENT(2)) : ERR_NOMEM;

	json_decref(object);
	if (!rc)
		return side_files_put(side, name, text, strlen(text));
	mem_free(text);
	return rc;
}

/* The older names and settings, which every version reads. */
static json_t *modules_make(const struct pooling *p)
{
	static const char *const kinds[] = {"Transformer", "Pooling", "Normalize"};
	json_t *list = json_array();

	for (int i = 0; list && i < 2 + p->layer_count; i++) {
		char path[32], type[64];

		snprintf(path, sizeof(path), "%d_%s", i, kinds[i < 2 ? i : 2]);
		snprintf(type, sizeof(type), "sentence_transformers.models.%s", kinds[i < 2 ? i : 2]);
		json_array_append_new(
		        list, json_pack("{s:i,s:o,s:s,s:s}", "idx", i, "name", json_sprintf("%d", i), "path",
		                      i ? path : "", "type", type));
	}
	return list;
}

static json_t *pooling_make(const struct pooling *p, int64_t width)
{
	json_t *settings = json_pack("{s:I}", "word_embedding_dimension", (json_int_t)width);

	for (int i = 0; settings && i < MODE_COUNT; i++) {
		char flag[64];

		snprintf(flag, sizeof(flag), "pooling_mode_%s", modes[i].flag);
		json_object_set_new(settings, flag, json_boolean(pooling_has(p, modes[i].mode)));
	}
	json_object_set_new(settings, "include_prompt", json_true());
	return settings;
}

int sentence_dir_complete(struct side_files *side, const struct sentence_dir *s, int64_t width)
{
	int rc;

	if (side_files_find(side, "modules.json"))
		return 0;
	rc = put(side, "modules.json", modules_make(&s->pooling));
	if (!rc)
		rc = put(side, "1_Pooling" SIDE_FILE_FOLDER "config.json", pooling_make(&s->pooling, width));
	return rc ? rc
	          : put(side, "config_sentence_transformers.json",
	                    json_pack("{s:{},s:n,s:s}", "prompts", "default_prompt_name",
	                            "similarity_fn_name", "cosine"));
}
