/* Finds the data files of a folder or a pattern, and their splits. */
#include "data/source/files.h"

#include <ctype.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/source/records.h"

enum { DEPTH_MAX = 8 };

/* Words that name a file's split, as in HuggingFace's datasets. */
static const struct split_word {
	const char *word;
	int split;
} split_words[] = {
        {"train", 0},
        {"training", 0},
        {"validation", 1},
        {"valid", 1},
        {"val", 1},
        {"dev", 1},
        {"test", 2},
        {"testing", 2},
        {"eval", 2},
        {"evaluation", 2},
};
static const char *const split_names[] = {"train", "validation", "test"};
enum { SPLIT_NONE = -1, SPLIT_COUNT = sizeof(split_names) / sizeof(split_names[0]) };

static const char text_suffixes[] = ".txt .md";

int file_is_text(const char *path)
{
	char suffix[RECORD_SUFFIX_BYTES];

	record_suffix_find(suffix, path);
	return record_suffix_in(suffix, text_suffixes);
}

static int is_data(const char *name)
{
	/* files that hubs and the datasets library put beside data */
	static const char *const others[] = {"README.md", "LICENSE.txt", "LICENSE.md", "dataset_info.json",
	        "dataset_infos.json", "state.json", "dataset_dict.json"};
	char suffix[RECORD_SUFFIX_BYTES];

	if (name[0] == '.' || name[0] == '_')
		return 0;
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (strcasecmp(name, others[i]) == 0)
			return 0;
	record_suffix_find(suffix, name);
	return records_suffix_known(suffix) || file_is_text(name);
}

/* The split that a path below the folder names. Words are runs of letters; the last word that names a split
 * counts, so test/train-01 belongs to train. */
static int split_of(const char *path)
{
	int split = SPLIT_NONE;

	while (*path) {
		size_t len = 0;

		while (isalpha((unsigned char)path[len]))
			len++;
		for (size_t i = 0; i < sizeof(split_words) / sizeof(split_words[0]); i++)
			if (strlen(split_words[i].word) == len &&
			        strncasecmp(path, split_words[i].word, len) == 0)
				split = split_words[i].split;
		path += len ? len : 1;
	}
	return split;
}

/* Takes ownership of `path` (NULL: out of memory). */
static int add(struct files *f, char *path)
{
	if (!path)
		return ERR_NOMEM;
	if (f->count == f->cap_count) {
		size_t cap_count = f->cap_count * 2 + 8;
		char **grown = mem_resize(f->paths, cap_count, sizeof(*grown));

		if (!grown) {
			mem_free(path);
			return ERR_NOMEM;
		}
		f->paths = grown;
		f->cap_count = cap_count;
	}
	f->paths[f->count++] = path;
	return 0;
}

void files_free(struct files *f)
{
	for (size_t i = 0; i < f->count; i++)
		mem_free(f->paths[i]);
	mem_free(f->paths);
	*f = (struct files){0};
}

/* Appends all data files below a folder, in the order of their names. */
static int walk(struct files *f, const char *folder, int depth)
{
	char **names = NULL;
	size_t count = 0;
	int rc = file_list_dir(folder, &names, &count);

	for (size_t i = 0; i < count && rc == 0; i++) {
		char *path = names[i][0] == '.' ? NULL : file_join(folder, names[i]);
		enum file_kind kind;

		if (!path) {
			rc = names[i][0] == '.' ? 0 : ERR_NOMEM;
			continue;
		}
		kind = file_kind_of(path);
		if (kind == FILE_DIR && depth < DEPTH_MAX)
			rc = walk(f, path, depth + 1);
		if (kind == FILE_REGULAR && is_data(names[i])) {
			rc = add(f, path);
			path = NULL;
		}
		mem_free(path);
	}
	file_list_free(names, count);
	return rc;
}

static int wanted_split(const char *split, int *out)
{
	for (size_t i = 0; i < sizeof(split_words) / sizeof(split_words[0]); i++)
		if (strcasecmp(split, split_words[i].word) == 0) {
			*out = split_words[i].split;
			return 0;
		}
	return err_set(ERR_INPUT, "unknown split \"%s\"; supported: train, validation, test", split);
}

int files_split_check(const char *split)
{
	int found;

	return wanted_split(split, &found);
}

/* Keeps the files of one split, if any name contains a split. */
static int keep_split(struct files *all, const char *folder, int wanted, enum files_split want)
{
	size_t in_split[SPLIT_COUNT] = {0}, named = 0, kept = 0, skip = strlen(folder);
	char there[64] = "";

	for (size_t i = 0; i < all->count; i++) {
		int split = split_of(all->paths[i] + skip);

		if (split != SPLIT_NONE)
			in_split[split]++, named++;
	}
	if (!named && (wanted == 0 || want == FILES_SPLIT_DEFAULT))
		return 0; /* no name contains a split: take all files */
	for (int s = 0; s < SPLIT_COUNT; s++)
		if (in_split[s]) {
			strcat(there, *there ? ", " : "");
			strcat(there, split_names[s]);
		}
	if (!in_split[wanted])
		return err_set(ERR_INPUT, "%s has no files of the split %s; %s%s", folder,
		        split_names[wanted], named ? "there are " : "no file name there names a split",
		        there);
	for (size_t i = 0; i < all->count; i++) {
		if (split_of(all->paths[i] + skip) == wanted)
			all->paths[kept++] = all->paths[i];
		else
			mem_free(all->paths[i]);
	}
	all->count = kept;
	return 0;
}

/* Moves the paths of `more` to the end of *f; *more is empty then. */
static int join(struct files *f, struct files *more)
{
	int rc = 0;

	for (size_t i = 0; i < more->count && rc == 0; i++) {
		rc = add(f, more->paths[i]);
		more->paths[i] = NULL;
	}
	files_free(more);
	return rc;
}

static int no_data(const char *folder)
{
	struct str suffixes = {0};

	records_suffixes(&suffixes);
	err_set(ERR_INPUT, "%s is a directory without data files; supported:%s %s, each also as .gz or .zst",
	        folder, suffixes.data ? suffixes.data : "", text_suffixes);
	str_free(&suffixes);
	return ERR_INPUT;
}

static int add_folder(struct files *f, const char *folder, int wanted, enum files_split want)
{
	struct files all = {0};
	int rc = walk(&all, folder, 0);

	if (rc == 0 && all.count == 0)
		rc = no_data(folder);
	if (rc == 0)
		rc = keep_split(&all, folder, wanted, want);
	if (rc == 0)
		return join(f, &all);
	files_free(&all);
	return rc;
}

/* The files that a pattern without ** names; none is no error. */
static int add_flat(struct files *f, const char *pattern)
{
	glob_t found = {0};
	int rc = glob(pattern, 0, NULL, &found);

	if (rc == GLOB_NOMATCH)
		rc = 0;
	else if (rc)
		rc = err_set(ERR_NOMEM, "out of memory for the files of %s", pattern);
	for (size_t i = 0; rc == 0 && i < found.gl_pathc; i++)
		if (file_kind_of(found.gl_pathv[i]) != FILE_DIR)
			rc = add(f, mem_strdup(found.gl_pathv[i]));
	globfree(&found);
	return rc;
}

/* Appends what `rest` names in folder, and in all folders below it, in the order of their names. */
static int add_deep(struct files *f, const char *folder, const char *rest, int depth)
{
	struct str pattern = {0};
	char **names = NULL;
	size_t count = 0;
	int rc;

	for (const char *c = folder; *c; c++) /* as it is, whatever it holds */
		str_printf(&pattern, "%s%c", strchr("*?[\\", *c) ? "\\" : "", *c);
	str_printf(&pattern, "%s%s", folder[strlen(folder) - 1] == '/' ? "" : "/", rest);
	rc = str_check(&pattern);
	if (!rc)
		rc = add_flat(f, pattern.data);
	if (!rc)
		rc = file_list_dir(folder, &names, &count);
	for (size_t i = 0; i < count && !rc; i++) {
		char *path = names[i][0] == '.' ? NULL : file_join(folder, names[i]);

		if (path && file_kind_of(path) == FILE_DIR && depth < DEPTH_MAX)
			rc = add_deep(f, path, rest, depth + 1);
		mem_free(path);
	}
	file_list_free(names, count);
	str_free(&pattern);
	return rc;
}

/* A part ** of a pattern stands for any number of folders, none included. */
static int add_pattern(struct files *f, const char *pattern)
{
	const char *deep = strstr(pattern, "**/");
	size_t before = f->count;
	int rc;

	if (strstr(pattern, "**") &&
	        (!deep || strstr(deep + 3, "**") || (deep != pattern && deep[-1] != '/') ||
	                strcspn(pattern, "*?[") < (size_t)(deep - pattern)))
		return err_set(ERR_INPUT,
		        "%s: write ** once, between slashes, after folders without patterns, as in "
		        "DIR/**/*.jsonl",
		        pattern);
	if (deep) {
		char *folder =
		        deep == pattern ? mem_strdup(".") : mem_strndup(pattern, (size_t)(deep - pattern));

		rc = folder ? add_deep(f, folder, deep + 3, 0) : ERR_NOMEM;
		mem_free(folder);
	} else {
		rc = add_flat(f, pattern);
	}
	if (!rc && f->count == before)
		rc = err_set(ERR_INPUT, "%s: no file matches this pattern", pattern);
	return rc;
}

int files_find(struct files *f, const char *spec, const char *split, enum files_split want)
{
	enum file_kind kind = strcmp(spec, "-") == 0 ? FILE_OTHER : file_kind_of(spec);
	int wanted = 0, rc = wanted_split(split, &wanted);

	if (rc < 0)
		return rc;
	if (kind == FILE_DIR)
		return add_folder(f, spec, wanted, want);
	if (kind == FILE_NONE && strpbrk(spec, "*?["))
		return add_pattern(f, spec);
	return add(f, mem_strdup(spec)); /* opening it will tell whether it can be read */
}
