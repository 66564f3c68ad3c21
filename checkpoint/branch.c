/* Lines of checkpoints, and the current line of an output_dir. */
#include "checkpoint/branch.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/file/temp_dir.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char branch_file_name[] = "branch.json";

static const char old_id[] = "0000000000000000", key[] = "branch", process_key[] = "process";
enum { FILE_BYTES_MAX = 1 << 20 };

static const char *id_at(const json_t *line, size_t i)
{
	return json_string_value(json_array_get(json_array_get(line, i), 0));
}

static int64_t begin_at(const json_t *line, size_t i)
{
	return i < json_array_size(line) ? json_integer_value(json_array_get(json_array_get(line, i), 1))
	                                 : INT64_MAX;
}

static int is_line(const json_t *line)
{
	int64_t before = 0;

	for (size_t i = 0; i < json_array_size(line); i++) {
		const char *id = id_at(line, i);

		if (!id || strlen(id) != sizeof(old_id) - 1 ||
		        !json_is_integer(json_array_get(json_array_get(line, i), 1)) ||
		        begin_at(line, i) < before || (!i && begin_at(line, i)))
			return 0;
		before = begin_at(line, i);
	}
	return json_array_size(line) > 0;
}

static int append(json_t *line, const char *id, int64_t step)
{
	return json_array_append_new(line, json_pack("[s,I]", id, (json_int_t)step));
}

static json_t *with_branch(json_t *line, int64_t step)
{
	char id[sizeof(old_id)];

	snprintf(id, sizeof(id), "%016" PRIx64, temp_dir_id());
	if (line && !append(line, id, step))
		return line;
	json_decref(line);
	return NULL;
}

json_t *branch_new(void)
{
	return with_branch(json_array(), 0);
}

json_t *branch_fork(const json_t *line, int64_t step)
{
	return with_branch(json_copy((json_t *)line), step);
}

/* Reads the line in an object, or makes the old line if it has none. */
static int line_in(json_t **out, const json_t *object, const char *where)
{
	json_t *line = json_object_get(object, key);

	if (line && !is_line(line))
		return err_set(ERR_INPUT, "%s: \"%s\" is malformed", where, key);
	*out = line ? json_incref(line) : json_array();
	if (!line && *out && append(*out, old_id, 0)) {
		json_decref(*out);
		*out = NULL;
	}
	return *out ? 0 : ERR_NOMEM;
}

int branch_of_training(json_t **line, const json_t *training, const char *where)
{
	return line_in(line, training, where);
}

/* Returns 0 with *root NULL if there is no such file. */
static int file_read(json_t **root, const char *path)
{
	*root = NULL;
	if (!path)
		return ERR_NOMEM;
	return file_kind_of(path) == FILE_NONE ? 0 : json_read_file(root, path, FILE_BYTES_MAX);
}

int branch_read(json_t **line, const char *output_dir)
{
	char *path = file_join(output_dir, branch_file_name);
	json_t *root = NULL;
	int err = file_read(&root, path);

	*line = NULL;
	if (!err && root && !json_object_get(root, key))
		err = err_set(ERR_INPUT, "%s: has no \"%s\"", path, key);
	if (!err && root)
		err = line_in(line, root, path);
	if (err == ERR_INPUT)
		err = err_reword(
		        err, "%s; remove it, and ferry takes the checkpoints as they are", err_text());
	json_decref(root);
	mem_free(path);
	return err;
}

int branch_read_process(uint64_t *process, const char *output_dir)
{
	char *path = file_join(output_dir, branch_file_name);
	json_t *root = NULL;
	int err = file_read(&root, path);
	const char *text = json_string_value(json_object_get(root, process_key));

	*process = text ? strtoull(text, NULL, 16) : 0;
	json_decref(root);
	mem_free(path);
	return err;
}

int branch_write(const json_t *line, uint64_t process, const char *output_dir)
{
	char *path = file_join(output_dir, branch_file_name), *text = NULL, id[sizeof(old_id)];
	json_t *root;
	int err;

	snprintf(id, sizeof(id), "%016" PRIx64, process);
	root = json_pack("{s:O,s:s}", key, line, process_key, id);
	err = json_write(&text, root, JSON_COMPACT);
	if (!err && !path)
		err = ERR_NOMEM;
	if (!err)
		err = file_write_all(path, text, strlen(text));
	json_decref(root);
	mem_free(text);
	mem_free(path);
	return err;
}

int branch_is_old(const json_t *line)
{
	return !strcmp(id_at(line, 0), old_id);
}

int64_t branch_common(const json_t *a, const json_t *b)
{
	size_t i = 0;
	int64_t left, right;

	while (i < json_array_size(a) && i < json_array_size(b) && !strcmp(id_at(a, i), id_at(b, i)))
		i++;
	if (!i)
		return -1;
	left = begin_at(a, i);
	right = begin_at(b, i);
	return left < right ? left : right;
}

int64_t branch_begin(const json_t *line)
{
	return begin_at(line, json_array_size(line) - 1);
}
