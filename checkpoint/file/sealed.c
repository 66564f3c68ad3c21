/* Writes and reads a JSON object with a checksum as the last line of its file. */
#include "checkpoint/file/sealed.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"

#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

static const int64_t sealed_max_bytes = 1 << 30;

enum { TAIL_BYTES = 50 };

static void make_tail(char tail[TAIL_BYTES], const char *text, size_t len_bytes)
{
	snprintf(tail, TAIL_BYTES, " \"checksum\": \"xxh3-64:%016" PRIx64 "\"\n}\n",
	        (uint64_t)XXH3_64bits(text, len_bytes));
}

static int add_compact(struct str *out, const json_t *value)
{
	char *text;
	int err = json_write(&text, value, JSON_COMPACT);

	if (err)
		return err;
	str_add(out, text);
	mem_free(text);
	return 0;
}

/* Writes one line for each object of a list. */
static int add_value(struct str *out, const json_t *value)
{
	int err = 0;

	if (!json_is_object(json_array_get(value, 0)))
		return add_compact(out, value);
	for (size_t i = 0; !err && i < json_array_size(value); i++) {
		str_add(out, i ? ",\n  " : "[\n  ");
		err = add_compact(out, json_array_get(value, i));
	}
	str_add(out, "\n ]");
	return err;
}

int sealed_write(const char *path, json_t *root)
{
	char tail[TAIL_BYTES];
	struct str out = {0};
	const char *key;
	json_t *value;
	int err = root ? 0 : err_set(ERR_NOMEM, "out of memory");

	str_add(&out, "{\n");
	json_object_foreach(root, key, value)
	{
		str_printf(&out, " \"%s\": ", key);
		err = add_value(&out, value);
		if (err)
			goto out;
		str_add(&out, ",\n");
	}
	if (!err)
		err = str_check(&out);
	if (err)
		goto out;
	make_tail(tail, out.data, out.len_bytes);
	str_add(&out, tail);
	err = str_check(&out);
	if (!err)
		err = file_write_all(path, out.data, out.len_bytes);
out:
	str_free(&out);
	return err == ERR_NOMEM ? err_note(err, "%s", path) : err;
}

int sealed_read(json_t **root, const char *path)
{
	char *text = NULL, tail[TAIL_BYTES];
	size_t len = 0, tail_len;
	int err = file_read_all(path, sealed_max_bytes, &text, &len);

	*root = NULL;
	if (err)
		return err;
	make_tail(tail, "", 0);
	tail_len = strlen(tail);
	if (len > tail_len)
		make_tail(tail, text, len - tail_len);
	if (len <= tail_len || memcmp(text + len - tail_len, tail, tail_len))
		err = err_set(ERR_INPUT,
		        "%s: its checksum line does not match: it is damaged or was cut (%zu bytes)", path,
		        len);
	else
		err = json_parse(root, path, text, len);
	if (!err && !json_is_object(*root))
		err = err_set(ERR_INPUT, "%s: is not a JSON object", path);
	mem_free(text);
	return err;
}
