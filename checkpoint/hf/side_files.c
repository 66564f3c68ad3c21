/* Keeps the small files of a model's directory in memory. */
#include "checkpoint/hf/side_files.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "checkpoint/hf/hf_dir.h"

#include <string.h>

enum { FILE_BYTES_MAX = 256 << 20 };

/* ---- names ---- */

enum side_of { OF_MODEL, OF_PROCESSOR, OF_TOKENIZER }; /* a processor is of the model */

/* Names with this begin and end; end NULL: exactly `begin`. */
static const struct side_row {
	const char *begin, *end;
	enum side_of of;
} rows[] = {
        {"config.json", NULL, OF_MODEL},
        {"generation_config.json", NULL, OF_MODEL},
        {"", "processor_config.json", OF_PROCESSOR}, /* also preprocessor_, video_preprocessor_ */
        {"tokenizer", ".json", OF_TOKENIZER},
        {"tekken.json", NULL, OF_TOKENIZER},
        {"", ".model", OF_TOKENIZER},
        {"special_tokens_map.json", NULL, OF_TOKENIZER},
        {"added_tokens.json", NULL, OF_TOKENIZER},
        {"vocab.json", NULL, OF_TOKENIZER},
        {"vocab.txt", NULL, OF_TOKENIZER},
        {"merges.txt", NULL, OF_TOKENIZER},
        {"chat_template", "", OF_TOKENIZER},
        {"modules.json", NULL, OF_MODEL},
        {"config_sentence_transformers.json", NULL, OF_MODEL},
        {"sentence_bert_config.json", NULL, OF_MODEL},
        {"", SIDE_FILE_FOLDER "config.json", OF_MODEL},
};

/* NULL: no row. Hidden files belong to other programs ("._tokenizer.model"). */
static const struct side_row *row_of(const char *name)
{
	for (size_t i = 0; *name != '.' && i < sizeof(rows) / sizeof(*rows); i++) {
		const struct side_row *row = &rows[i];

		if (row->end ? !strncmp(name, row->begin, strlen(row->begin)) && str_ends_with(name, row->end)
		             : !strcmp(name, row->begin))
			return row;
	}
	return NULL;
}

int side_file_is(const char *name)
{
	return row_of(name) != NULL;
}

int side_file_is_of_processor(const char *name)
{
	const struct side_row *row = row_of(name);

	return row && row->of == OF_PROCESSOR;
}

/* ---- reading ---- */

const struct side_file *side_files_find(const struct side_files *side, const char *name)
{
	for (int i = 0; i < side->count; i++)
		if (!strcmp(side->files[i].name, name))
			return &side->files[i];
	return NULL;
}

int side_files_put(struct side_files *side, const char *name, char *data, size_t len_bytes)
{
	struct side_file *file = (struct side_file *)side_files_find(side, name), *grown;
	char *copy;

	if (file) {
		mem_free(file->data);
		file->data = data;
		file->len_bytes = len_bytes;
		return 0;
	}
	copy = mem_strdup(name);
	grown = copy ? mem_resize(side->files, (size_t)side->count + 1, sizeof(*grown)) : NULL;
	if (!grown) {
		mem_free(copy);
		mem_free(data);
		return ERR_NOMEM;
	}
	side->files = grown;
	grown[side->count++] = (struct side_file){copy, data, len_bytes};
	return 0;
}

static int read_one(struct side_files *side, const char *path, const char *name)
{
	char *data = NULL;
	size_t len = 0;
	int err = file_read_all(path, FILE_BYTES_MAX, &data, &len);

	return err ? err : side_files_put(side, name, data, len);
}

/* Skips names that are not UTF-8, because the manifest lists them in JSON. */
static int is_utf8(const char *dir, const char *name)
{
	json_t *text = json_string(name);

	if (!text)
		log_warn("%s: leaving %s out of checkpoints and the result, because its name is not UTF-8",
		        dir, name);
	json_decref(text);
	return text != NULL;
}

int side_folder_is(const char *name)
{
	size_t digits = strspn(name, "0123456789");

	return digits && name[digits] == '_';
}

/* A module's settings, from its folder. */
static int read_folder(struct side_files *side, const char *dir, const char *folder)
{
	char *inside = file_join(dir, folder), *file = file_join(folder, "config.json"),
	     *name = mem_printf("%s" SIDE_FILE_FOLDER "config.json", folder), *path = NULL;
	int err = inside && file && name ? 0 : ERR_NOMEM;

	if (!err && file_kind_of(inside) == FILE_DIR)
		err = hf_dir_resolve(&path, dir, file);
	if (!err && path && file_kind_of(path) == FILE_REGULAR && is_utf8(dir, folder))
		err = read_one(side, path, name);
	mem_free(path);
	mem_free(inside);
	mem_free(file);
	mem_free(name);
	return err;
}

/* Reads the files of this kind in a directory. */
static int read_dir(struct side_files *side, const char *dir, enum side_of of)
{
	char **names = NULL;
	size_t count = 0;
	int err = file_list_dir(dir, &names, &count);

	for (size_t i = 0; i < count && !err; i++) {
		const struct side_row *row = row_of(names[i]);
		char *path = NULL;

		if (of == OF_MODEL && side_folder_is(names[i]))
			err = read_folder(side, dir, names[i]);
		if (of == OF_TOKENIZER && !strcmp(names[i], "additional_chat_templates"))
			log_warn("%s/%s is not copied to checkpoints and the result; copy it there", dir,
			        names[i]);
		if (err || !row || (row->of == OF_TOKENIZER) != (of == OF_TOKENIZER) ||
		        !is_utf8(dir, names[i]))
			continue;
		err = hf_dir_resolve(&path, dir, names[i]);
		if (!err && path && file_kind_of(path) != FILE_DIR)
			err = read_one(side, path, names[i]);
		mem_free(path);
	}
	file_list_free(names, count);
	return err;
}

/* `path` is a directory, or a file that takes the place of `name`. *dir (mem_free) is the directory. */
static int read_from(struct side_files *side, char **dir, const char *path, const char *name, enum side_of of)
{
	int is_dir = file_kind_of(path) == FILE_DIR, err;

	*dir = is_dir ? mem_strdup(path) : file_dir_of(path);
	err = *dir ? read_dir(side, *dir, of) : ERR_NOMEM;
	return err || is_dir ? err : read_one(side, path, name);
}

int side_files_read(struct side_files *side, const char *model, const char *tokenizer)
{
	char *model_dir = NULL, *tokenizer_dir = NULL;
	int err;

	*side = (struct side_files){0};
	err = read_from(side, &model_dir, model, "config.json", OF_MODEL);
	if (!err && tokenizer)
		err = read_from(side, &tokenizer_dir, tokenizer,
		        str_ends_with(tokenizer, ".model") ? "tokenizer.model" : "tokenizer.json",
		        OF_TOKENIZER);
	else if (!err)
		err = read_dir(side, model_dir, OF_TOKENIZER);
	mem_free(model_dir);
	mem_free(tokenizer_dir);
	if (err)
		side_files_free(side);
	return err;
}

/* ---- changing ---- */

int side_files_object(json_t **object, const struct side_files *side, const char *name)
{
	const struct side_file *file = side_files_find(side, name);
	int err;

	*object = NULL;
	if (!file)
		return 0;
	err = json_parse(object, name, file->data, file->len_bytes);
	if (!err && !json_is_object(*object)) {
		json_decref(*object);
		*object = NULL;
		err = err_set(ERR_INPUT, "%s: is not a JSON object", name);
	}
	return err;
}

/* Writes numbers with the fewest digits that read back equal, so that 1e-05 stays short. */
static int object_text(char **text, const char *name, const json_t *object)
{
	static const size_t digits[] = {JSON_REAL_PRECISION(15), JSON_REAL_PRECISION(16), 0};
	int err = 0, same = 0;

	*text = NULL;
	for (size_t i = 0; i < sizeof(digits) / sizeof(*digits) && !same && !err; i++) {
		json_t *again = NULL;

		mem_free(*text);
		*text = NULL;
		err = json_write(text, object, JSON_INDENT(2) | digits[i]);
		if (!err)
			err = json_parse(&again, name, *text, strlen(*text));
		same = !err && json_equal(again, object);
		json_decref(again);
	}
	return err;
}

int side_files_put_object(struct side_files *side, const char *name, const json_t *object)
{
	char *text = NULL;
	int err = object_text(&text, name, object);

	if (err) {
		mem_free(text);
		return err;
	}
	return side_files_put(side, name, text, strlen(text));
}

int64_t side_files_bytes(const struct side_files *side)
{
	int64_t bytes = 0;

	for (int i = 0; i < side->count; i++)
		bytes += (int64_t)side->files[i].len_bytes;
	return bytes;
}

/* ---- writing ---- */

int side_files_write(const struct side_files *side, const char *to, const char *without)
{
	int err = 0;

	for (int i = 0; side && i < side->count && !err; i++) {
		char *path;

		if (without && !strcmp(side->files[i].name, without))
			continue;
		path = file_join(to, side->files[i].name);
		err = path ? file_write_all(path, side->files[i].data, side->files[i].len_bytes) : ERR_NOMEM;
		mem_free(path);
	}
	return err;
}

static int write_in_folder(const struct side_file *file, const char *to)
{
	size_t folder = strcspn(file->name, SIDE_FILE_FOLDER);
	char *dir = file->name[folder] ? mem_printf("%s/%.*s", to, (int)folder, file->name) : mem_strdup(to);
	char *path = dir ? file_join(dir, file->name[folder] ? file->name + folder + 1 : file->name) : NULL;
	int err = path ? 0 : ERR_NOMEM;

	if (!err && file->name[folder])
		err = file_make_dir(dir);
	if (!err)
		err = file_write_all(path, file->data, file->len_bytes);
	mem_free(dir);
	mem_free(path);
	return err;
}

int side_files_write_result(const struct side_files *side, const char *to, const char *without)
{
	int err = 0;

	for (int i = 0; side && i < side->count && !err; i++)
		err = without && !strcmp(side->files[i].name, without) ? 0
		                                                       : write_in_folder(&side->files[i], to);
	return err;
}

void side_files_free(struct side_files *side)
{
	for (int i = 0; i < side->count; i++) {
		mem_free(side->files[i].name);
		mem_free(side->files[i].data);
	}
	mem_free(side->files);
	*side = (struct side_files){0};
}
