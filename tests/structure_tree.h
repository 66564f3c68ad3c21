/* The source tree for test_structure.c: the folders in the order of cmake/folders.txt, their sources, and
 * the includes between these.
 *
 * A module is a .c file with the header of the same name. Module A leads to B if a file of A includes a
 * header of B. Complaints are collected in `said`, so that tests of these checks can look for them.
 */
#ifndef FERRY_TESTS_STRUCTURE_TREE_H
#define FERRY_TESTS_STRUCTURE_TREE_H

#include "tests/check.h"

#include "base/mem.h"

enum {
	CIRCLE_MODULES_MAX = 2, /* x.h and x_parts.h may include each other */
	PATH_BYTES = 1024,
	FOLDERS_MAX = 64,
	SOURCES_MAX = 2048,
	SAID_BYTES = 16384,
};

/* A folder, and the other folders with headers that its files may include. */
struct folder {
	const char *name;
	char *may_include; /* separated by blanks */
	int line;          /* in cmake/folders.txt */
};

struct source {
	const struct folder *folder;
	char *path; /* relative to the root */
	char *text;
};

/* The number of a module is that of its first source: x.c and x.h both have the number of x.c. */
struct tree {
	struct folder folders[FOLDERS_MAX];
	size_t folder_count;
	struct source sources[SOURCES_MAX];
	size_t source_count;
	int module[SOURCES_MAX];                      /* of a source */
	uint64_t edge[SOURCES_MAX][SOURCES_MAX / 64]; /* from a module: it includes a header of those */
	uint64_t reach[SOURCES_MAX][SOURCES_MAX / 64];
	char *folders_text;
};

static struct {
	int count;
	char text[SAID_BYTES];
} said;

static void complain(const char *path, int line, const char *what, const char *detail)
{
	size_t at = strlen(said.text);

	snprintf(said.text + at, sizeof(said.text) - at, "%s:%d: %s%s\n", path, line, what, detail);
	said.count++;
}

static int ends_in(const char *text, const char *end)
{
	size_t len = strlen(text), end_len = strlen(end);

	return len >= end_len && !strcmp(text + len - end_len, end);
}

static int is_source(const char *name)
{
	static const char *const ends[] = {".c", ".h", ".inc", ".cu", ".cuh"};

	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++)
		if (name[0] != '.' && ends_in(name, ends[i]))
			return 1;
	return 0;
}

/* 1 for test programs, their rigs and fuzz targets: these may print, and may exit anywhere. */
static int is_test(const struct folder *f)
{
	return !strncmp(f->name, "tests", strlen("tests"));
}

static int is_listed(const char *list, const char *word, size_t len)
{
	while (*list) {
		size_t n = strcspn(list, " ");

		if (n == len && !memcmp(list, word, len))
			return 1;
		list += n + strspn(list + n, " ");
	}
	return 0;
}

/* The name in #include "name", with its length in *len; NULL for another line. */
static const char *included(const char *text, size_t *len)
{
	static const char start[] = "#include \"";

	if (strncmp(text, start, sizeof(start) - 1))
		return NULL;
	text += sizeof(start) - 1;
	*len = strcspn(text, "\"\n");
	return text;
}

/* ---- all files ---- */

/* Checks the order of folders: each names only folders above it, and is listed once. */
static void folders_check(const struct tree *tree)
{
	const char *path = "cmake/folders.txt";

	for (size_t i = 0; i < tree->folder_count; i++) {
		const struct folder *f = &tree->folders[i];

		for (size_t j = 0; j < i; j++)
			if (!strcmp(tree->folders[j].name, f->name))
				complain(path, f->line, "a second time: ", f->name);
		for (const char *name = f->may_include; *name; name += strspn(name, " ")) {
			size_t len = strcspn(name, " "), j = 0;

			while (j < i && (strlen(tree->folders[j].name) != len ||
			                        memcmp(tree->folders[j].name, name, len)))
				j++;
			/* the folder tests/ has the headers of all tests, those of tests/simt too */
			if (j == i && !(is_test(f) && is_listed("tests", name, len)))
				complain(path, f->line, "does not stand above: ", name);
			name += len;
		}
	}
}

/* The source for this name in an #include of a file in `folder`, or -1. */
static int source_find(const struct tree *tree, const struct folder *folder, const char *name, size_t len)
{
	char beside[PATH_BYTES];
	size_t beside_len = (size_t)snprintf(beside, sizeof(beside), "%s/%.*s", folder->name, (int)len, name);

	for (size_t i = 0; i < tree->source_count; i++) {
		const char *path = tree->sources[i].path;

		if ((strlen(path) == len && !memcmp(path, name, len)) ||
		        (strlen(path) == beside_len && !memcmp(path, beside, beside_len)))
			return (int)i;
	}
	return -1;
}

static size_t stem_len(const char *path)
{
	return (size_t)(strrchr(path, '.') - path);
}

static int has(const uint64_t *set, int at)
{
	return set[at / 64] >> (at % 64) & 1;
}

static void add(uint64_t *set, int at)
{
	set[at / 64] |= (uint64_t)1 << (at % 64);
}

/* Finds modules, their includes, and all modules that each can reach. */
static void modules_find(struct tree *tree)
{
	int count = (int)tree->source_count;

	for (int i = 0; i < count; i++) {
		const char *path = tree->sources[i].path;
		int first = 0;

		while (stem_len(tree->sources[first].path) != stem_len(path) ||
		        memcmp(tree->sources[first].path, path, stem_len(path)))
			first++;
		tree->module[i] = first;
	}
	for (int i = 0; i < count; i++) {
		const char *line = tree->sources[i].text;

		for (size_t len; *line; line += strcspn(line, "\n"), line += *line == '\n') {
			const char *name = included(line, &len);
			int to = name ? source_find(tree, tree->sources[i].folder, name, len) : -1;

			if (to >= 0 && tree->module[to] != tree->module[i])
				add(tree->edge[tree->module[i]], tree->module[to]);
		}
	}
	memcpy(tree->reach, tree->edge, sizeof(tree->reach));
	for (int via = 0; via < count; via++)
		for (int from = 0; from < count; from++)
			for (size_t w = 0; has(tree->reach[from], via) && w < SOURCES_MAX / 64; w++)
				tree->reach[from][w] |= tree->reach[via][w];
}

/* Complains about the circle of modules of `first` if it crosses folders or has too many modules. */
static void circle_check(const struct tree *tree, int first)
{
	int modules = 0, across = 0, count = (int)tree->source_count;
	char text[4096] = "";

	for (int i = first; i < count; i++) {
		const struct source *source = &tree->sources[i];
		char name[PATH_BYTES];
		size_t at = strlen(text);

		if (!has(tree->reach[first], i) || !has(tree->reach[i], first))
			continue;
		modules++;
		across |= source->folder != tree->sources[first].folder;
		snprintf(name, sizeof(name), "%.*s", (int)stem_len(source->path), source->path);
		at += (size_t)snprintf(text + at, sizeof(text) - at, "\n\t%s includes", name);
		for (int to = 0; to < count; to++)
			if (has(tree->edge[i], to) && has(tree->reach[to], i) && at < sizeof(text))
				at += (size_t)snprintf(text + at, sizeof(text) - at, " %.*s",
				        (int)stem_len(tree->sources[to].path), tree->sources[to].path);
	}
	if (across || modules > CIRCLE_MODULES_MAX)
		complain(tree->sources[first].path, 1, "its headers make a circle:", text);
}

static void circles_check(struct tree *tree)
{
	modules_find(tree);
	for (int i = 0; i < (int)tree->source_count; i++) {
		int first = 0; /* the first module of a circle */

		while (first < i && !(has(tree->reach[first], i) && has(tree->reach[i], first)))
			first++;
		if (first == i && has(tree->reach[i], i))
			circle_check(tree, i);
	}
}

/* ---- reading the disk ---- */

static char *source_path(const char *name)
{
	char *path = mem_printf("%s/%s", getenv("FERRY_SOURCE"), name);

	assert_non_null(path);
	return path;
}

static void tree_add(struct tree *tree, size_t folder, char *path, char *text)
{
	assert_true(tree->source_count < SOURCES_MAX);
	tree->sources[tree->source_count++] = (struct source){&tree->folders[folder], path, text};
}

static void tree_free(struct tree *tree)
{
	for (size_t i = 0; i < tree->source_count; i++) {
		mem_free(tree->sources[i].path);
		mem_free(tree->sources[i].text);
	}
	for (size_t i = 0; i < tree->folder_count; i++)
		mem_free(tree->folders[i].may_include);
	mem_free(tree->folders_text);
	mem_free(tree);
}

/* The names of all folders so far (mem_free). */
static char *above(const struct tree *tree)
{
	char *names = mem_strdup("");

	for (size_t i = 0; i < tree->folder_count; i++) {
		char *more = mem_printf("%s%s%s", names, i ? " " : "", tree->folders[i].name);

		mem_free(names);
		names = more;
	}
	assert_non_null(names);
	return names;
}

/* Parses cmake/folders.txt, from which CMake also takes its libraries. The folders point into the text. */
static void folders_parse(struct tree *tree, char *text)
{
	int number = 0;

	tree->folders_text = text;
	for (char *line = text, *next; line && *line; line = next) {
		char *colon = strchr(line, ':');

		number++;
		next = strchr(line, '\n');
		if (next)
			*next++ = 0;
		if (*line == '#')
			continue;
		assert_true(colon && (!next || colon < next) && tree->folder_count < FOLDERS_MAX);
		*colon = 0;
		colon += 1 + strspn(colon + 1, " ");
		colon = strcmp(colon, "*") ? mem_strdup(colon) : above(tree);
		assert_non_null(colon);
		tree->folders[tree->folder_count++] = (struct folder){line, colon, number};
	}
}

/* Reads the sources of a folder. Complains about a directory in it that has sources but is not a folder. */
static void folder_read(struct tree *tree, size_t folder, const char *place)
{
	char *dir = source_path(place), **names = NULL;
	const char *listed = NULL;
	size_t count = 0, sources = 0;

	for (size_t i = 0; i < tree->folder_count; i++)
		if (!strcmp(tree->folders[i].name, place))
			listed = place;
	check_ok(file_list_dir(dir, &names, &count));
	mem_free(dir);
	for (size_t n = 0; n < count; n++) {
		char *path = mem_printf("%s/%s", place, names[n]), *full = source_path(path), *text = NULL;
		size_t len = 0;

		assert_non_null(path);
		if (file_kind_of(full) == FILE_DIR) {
			int known = 0;

			for (size_t i = 0; i < tree->folder_count; i++)
				known |= !strcmp(tree->folders[i].name, path);
			/* the headers there have other projects' names */
			if (!known && strcmp(path, "tests/simt/include"))
				folder_read(tree, folder, path);
		} else if (is_source(names[n])) {
			sources++;
			if (listed) {
				check_ok(file_read_all(full, 1 << 24, &text, &len));
				tree_add(tree, folder, path, text);
				path = NULL;
			}
		}
		mem_free(full);
		mem_free(path);
	}
	if (sources && !listed)
		complain("cmake/folders.txt", 1, "has no line for ", place);
	file_list_free(names, count);
}

#endif
