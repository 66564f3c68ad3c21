/* Changes the dtype in the text of config.json. */
#include "checkpoint/hf/hf_dtype.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"

#include <string.h>

enum { CONFIG_BYTES_MAX = 16 << 20 };

static const char blanks[] = " \t\r\n";

/* Length of the JSON value at `text` if it is a dtype of weights or null. 0 for other values, such as a dtype
 * of quantization. */
static size_t value_length(const char *text)
{
	static const char *const others[] = {"null", "\"float64\"", "\"auto\""};
	static const char module[] = "\"torch.";

	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		if (!strncmp(text, others[i], strlen(others[i])))
			return strlen(others[i]);
	for (int f = 0; f < FORMAT_COUNT; f++) {
		const char *name = format_facts[f].torch_name;
		size_t quoted = strncmp(text, module, strlen(module)) ? 1 : strlen(module);

		if (format_facts[f].is_of_weights && *text == '"' &&
		        !strncmp(text + quoted, name, strlen(name)) && text[quoted + strlen(name)] == '"')
			return quoted + strlen(name) + 1;
	}
	return 0;
}

/* Finds the next value of one of the keys, or NULL. A quoted name before a colon is always a key, because
 * quotes inside texts are escaped. */
static const char *value_find(const char *text)
{
	static const char *const keys[] = {"\"torch_dtype\"", "\"dtype\""};
	const char *best = NULL;

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		for (const char *at = text; (at = strstr(at, keys[i]));) {
			at += strlen(keys[i]);
			at += strspn(at, blanks);
			if (*at != ':')
				continue;
			at++;
			at += strspn(at, blanks);
			if (value_length(at) && (!best || at < best))
				best = at;
		}
	}
	return best;
}

static void rewrite(struct str *out, const char *text, const char *name)
{
	const char *value, *brace = strchr(text, '{');
	int count = 0;

	for (; (value = value_find(text)); count++) {
		str_add_bytes(out, text, (size_t)(value - text));
		str_printf(out, "\"%s\"", name);
		text = value + value_length(value);
	}
	if (!count && brace) {
		str_add_bytes(out, text, (size_t)(brace + 1 - text));
		str_printf(out, "\n  \"torch_dtype\": \"%s\"%s", name,
		        brace[1 + strspn(brace + 1, blanks)] == '}' ? "" : ",");
		text = brace + 1;
	}
	str_add(out, text);
}

int hf_dtype_write(enum safetensors_dtype dtype, const char *dir)
{
	char *path = file_join(dir, "config.json"), *text = NULL;
	struct str out = {0};
	enum format format;
	size_t len_bytes;
	int err = path ? 0 : ERR_NOMEM;

	if (err || !format_of_weights(&format, (enum dtype)dtype) || file_kind_of(path) != FILE_REGULAR)
		goto out;
	err = file_read_all(path, CONFIG_BYTES_MAX, &text, &len_bytes);
	if (err)
		goto out;
	rewrite(&out, text, format_facts[format].torch_name);
	err = str_check(&out);
	if (!err && strcmp(out.data, text))
		err = file_write_all(path, out.data, out.len_bytes);
out:
	str_free(&out);
	mem_free(text);
	mem_free(path);
	return err;
}
