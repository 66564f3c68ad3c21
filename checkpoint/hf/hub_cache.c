/* Finds models and data sets in the cache that HuggingFace's tools download to. */
#include "checkpoint/hf/hub_cache.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"

enum { ID_PART_MAX = 96, REF_BYTES_MAX = 256 };

int hub_is_id(const char *text)
{
	int slashes = 0;
	size_t part = 0;

	for (const char *c = text;; c++) {
		if (*c == '/' || *c == 0 || *c == '@') {
			if (part == 0 || part > ID_PART_MAX || c[-1] == '.')
				return 0;
			if (*c != '/')
				return *c == 0 || c[1] != 0;
			if (++slashes > 1)
				return 0;
			part = 0;
		} else if (isalnum((unsigned char)*c) || *c == '_' ||
		           (part > 0 && (*c == '-' || *c == '.'))) {
			part++;
		} else {
			return 0;
		}
	}
}

/* The value of an environment variable; NULL if unset or empty. */
static const char *variable(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

/* The cache's directory (mem_free); NULL: out of memory, or no variable names one. */
static char *cache_dir(void)
{
	const char *dir;

	if ((dir = variable("HF_HUB_CACHE")) || (dir = variable("HUGGINGFACE_HUB_CACHE")))
		return mem_strdup(dir);
	if ((dir = variable("HF_HOME")))
		return mem_printf("%s/hub", dir);
	if ((dir = variable("XDG_CACHE_HOME")))
		return mem_printf("%s/huggingface/hub", dir);
	dir = variable("HOME");
	return dir ? mem_printf("%s/.cache/huggingface/hub", dir) : NULL;
}

/* CACHE/models--ORG--NAME for the first len bytes of the id. */
static char *repo_dir(const char *cache, const char *id, size_t len, enum hub_kind kind)
{
	const char *slash = memchr(id, '/', len);
	int first = slash ? (int)(slash - id) : 0;

	return mem_printf("%s/%s--%.*s%s%.*s", cache, kind == HUB_MODEL ? "models" : "datasets", first, id,
	        slash ? "--" : "", (int)len - first - (slash ? 1 : 0), id + first + (slash ? 1 : 0));
}

/* Sets *dir to snapshots/NAME if that is a directory. */
static int take_snapshot(char **dir, const char *repo, const char *name)
{
	char *path = mem_printf("%s/snapshots/%s", repo, name);

	if (!path)
		return ERR_NOMEM;
	if (*name && !strchr(name, '/') && name[0] != '.' && file_kind_of(path) == FILE_DIR)
		*dir = path;
	else
		mem_free(path);
	return 0;
}

/* Finds the snapshot named by refs/REVISION. */
static int by_ref(char **dir, const char *repo, const char *revision)
{
	char *path = mem_printf("%s/refs/%s", repo, revision), *text = NULL;
	size_t len = 0;
	int rc = path ? 0 : ERR_NOMEM;

	if (rc == 0 && !strstr(revision, "..") && file_kind_of(path) == FILE_REGULAR) {
		rc = file_read_all(path, REF_BYTES_MAX, &text, &len);
		if (rc == 0) {
			text[strcspn(text, " \r\n")] = 0;
			rc = take_snapshot(dir, repo, text);
		}
	}
	mem_free(text);
	mem_free(path);
	return rc;
}

/* Without a ref, takes the only snapshot. With several the message lists all. */
static int only_snapshot(char **dir, const char *repo, const char *id, const char *revision)
{
	char *path = mem_printf("%s/snapshots", repo), **names = NULL, list[400] = "";
	size_t count = 0;
	int rc = path ? 0 : ERR_NOMEM;

	if (rc == 0 && file_kind_of(path) == FILE_DIR)
		rc = file_list_dir(path, &names, &count);
	if (rc == 0 && count == 1 && !revision)
		rc = take_snapshot(dir, repo, names[0]);
	for (size_t i = 0; i < count && strlen(list) + strlen(names[i]) + 3 < sizeof(list); i++) {
		strcat(list, i ? ", " : "");
		strcat(list, names[i]);
	}
	if (rc == 0 && !*dir && count > 0)
		rc = revision ? err_set(ERR_INPUT,
		                        "%s: this revision is not in the HuggingFace cache; there: %s", id,
		                        list)
		              : err_set(ERR_INPUT,
		                        "%s is in the HuggingFace cache with several revisions; name one: "
		                        "%s@REVISION "
		                        "(%s)",
		                        id, id, list);
	file_list_free(names, count);
	mem_free(path);
	return rc;
}

int hub_cache_find(char **dir, const char *id, enum hub_kind kind)
{
	const char *at = strchr(id, '@'), *revision = at ? at + 1 : NULL;
	char *cache, *repo = NULL;
	int rc = 0;

	*dir = NULL;
	if (!hub_is_id(id))
		return 0;
	cache = cache_dir();
	if (!cache)
		return variable("HOME") ? ERR_NOMEM : 0;
	repo = repo_dir(cache, id, at ? (size_t)(at - id) : strlen(id), kind);
	if (!repo)
		rc = ERR_NOMEM;
	else if (file_kind_of(repo) == FILE_DIR) {
		rc = by_ref(dir, repo, revision ? revision : "main");
		if (rc == 0 && !*dir && revision)
			rc = take_snapshot(dir, repo, revision);
		if (rc == 0 && !*dir)
			rc = only_snapshot(dir, repo, id, revision);
	}
	mem_free(repo);
	mem_free(cache);
	return rc;
}
