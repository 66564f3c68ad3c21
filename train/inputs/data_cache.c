/* Chooses data_memory and data_cache, and describes the sources of rows. */
#include "train/inputs/data_cache.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "comm/world.h"
#include "data/chat/chat_template.h"
#include "host/topology.h"
#include "placement/ranks.h"
#include "train/inputs/file_hash.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { AUTO_SHARE = 4, BYTES_A_PARAMETER = 16 };
static const int64_t least_bytes = 64 << 20;

/* A share of the host memory that the model's planes leave. The exact plan comes later, because it needs the
 * rows. */
static int64_t auto_bytes(const struct config *c, int64_t parameter_count)
{
	int ranks = ranks_of_host(c, NULL, world_self()), world = ranks_in_world(c, NULL, world_self());
	struct topology t;
	int64_t bytes = c->ram_budget_bytes;

	if (!topology_read(&t)) {
		topology_find_usable(&t, t.thread_count, ranks > 0 ? ranks : 1);
		if (bytes <= 0 || bytes > t.usable_bytes)
			bytes = t.usable_bytes;
	}
	bytes -= parameter_count * BYTES_A_PARAMETER / (world > 0 ? world : 1) * ranks;
	bytes = bytes / AUTO_SHARE / (ranks > 0 ? ranks : 1);
	return bytes > least_bytes ? bytes : least_bytes;
}

static int find_dir(char **dir, const struct config *c)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");

	if (c->data_cache && *c->data_cache)
		*dir = mem_strdup(c->data_cache);
	else if (cache && *cache == '/')
		*dir = mem_printf("%s/ferry/data", cache);
	else if (home && *home)
		*dir = mem_printf("%s/.cache/ferry/data", home);
	else
		return 0;
	return *dir ? 0 : ERR_NOMEM;
}

/* ---- sources of rows ---- */

static int add_file_hash(struct str *out, const char *path)
{
	int64_t len_bytes = 0;
	uint64_t hash = 0;
	int rc = file_hash(path, &hash, &len_bytes);

	if (!rc)
		str_printf(out, "%s %016" PRIx64 "\n", path, hash);
	return rc;
}

/* Adds the tokenizer by the contents of its files; the last two may name its end of text. */
static int add_tokenizer(struct str *out, const char *path)
{
	static const char *const names[] = {"tokenizer.json", "tokenizer.model", "tokenizer_config.json",
	        "special_tokens_map.json", "added_tokens.json", "generation_config.json", "config.json"};
	int rc = 0;

	if (file_kind_of(path) == FILE_REGULAR)
		return add_file_hash(out, path);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !rc; i++) {
		char *file = file_join(path, names[i]);

		rc = file ? 0 : ERR_NOMEM;
		if (!rc && file_kind_of(file) == FILE_REGULAR)
			rc = add_file_hash(out, file);
		mem_free(file);
	}
	return rc;
}

/* Adds the date too, in the form in which the template writes it. */
static void add_template(struct str *out, const struct config *c, const struct chat_template *t)
{
	str_printf(out, "template %s\n", c->chat_template_kwargs ? c->chat_template_kwargs : "");
	if (t) {
		chat_template_texts(out, t);
		chat_template_dates(out, t);
	}
}

/* Adds the program, because another ferry may make other rows from the same files. */
static void add_program(struct str *out)
{
	struct stat st;

	str_add(out, "ferry " FERRY_VERSION);
	if (!stat("/proc/self/exe", &st))
		str_printf(out, " %lld %lld.%09ld", (long long)st.st_size, (long long)st.st_mtim.tv_sec,
		        st.st_mtim.tv_nsec);
	str_add(out, "\n");
}

int data_cache_set(struct data_cache *cache, struct dataset_options *o, const struct config *c,
        const char *dir, int64_t parameter_count)
{
	const char *tokenizer = c->tokenizer ? c->tokenizer : dir ? dir : c->model;
	struct str recipe = {0};
	int rc;

	o->memory_bytes =
	        c->data_memory_bytes == CONFIG_AUTO ? auto_bytes(c, parameter_count) : c->data_memory_bytes;
	if (!o->memory_bytes)
		return 0;
	add_program(&recipe);
	rc = find_dir(&cache->dir, c);
	if (!rc && tokenizer)
		rc = add_tokenizer(&recipe, tokenizer);
	if (rc) {
		str_free(&recipe);
		return rc;
	}
	add_template(&recipe, c, o->chat_template);
	str_printf(&recipe, "eos_token %s\n", c->eos_token ? c->eos_token : "");
	cache->recipe = str_check(&recipe) ? NULL : str_take(&recipe);
	str_free(&recipe);
	o->cache_dir = cache->dir;
	o->recipe = cache->recipe;
	return cache->recipe ? 0 : ERR_NOMEM;
}

void data_cache_free(struct data_cache *cache)
{
	mem_free(cache->dir);
	mem_free(cache->recipe);
	*cache = (struct data_cache){0};
}
