/* links: base */
/* not: asan */
/* It reads the sources and runs nothing of theirs. */

/* Rules for all source files that no compiler checks.
 *
 * A folder includes only its own headers and those of the folders that cmake/folders.txt gives it; these
 * are above it in the list. Includes have no circle. Only cli/ ends the program or prints. Every file
 * begins with its purpose. Files and functions are short. No notes of unfinished work remain. Each
 * complaint names file and line.
 */
#include "tests/structure_comments.h"
#include "tests/structure_tree.h"

enum { FILE_LINES_MAX = 600, FUNCTION_LINES_MAX = 90 };

/* ---- one line ---- */

/* #include "folder/file.h": the folder must be this one, or one that it may include. A name without a
 * folder must be a file beside this one. */
static void include_check(const struct folder *f, const char *path, int line, const char *text)
{
	size_t len = 0, slash = 0;
	const char *name = included(text, &len);

	if (!name)
		return;
	for (size_t i = 0; i < len; i++)
		if (name[i] == '/')
			slash = i;
	if (slash && !is_listed(f->name, name, slash) && !is_listed(f->may_include, name, slash))
		complain(path, line, "this folder must not know ", name);
}

static int is_word(char c)
{
	return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* A call of exactly this function. */
static int calls(const char *text, const char *function)
{
	size_t len = strlen(function);

	for (const char *at = text; (at = strstr(at, function)); at += len)
		if ((at == text || !is_word(at[-1])) && at[len] == '(')
			return 1;
	return 0;
}

/* This word, outside of texts in quotes (messages may speak of stdout). */
static int names(const char *text, const char *word)
{
	size_t len = strlen(word);
	int quoted = 0;

	for (const char *at = text; *at; at++) {
		if (*at == '"' && (at == text || at[-1] != '\\'))
			quoted = !quoted;
		if (!quoted && !strncmp(at, word, len) && (at == text || !is_word(at[-1])) &&
		        !is_word(at[len]))
			return 1;
	}
	return 0;
}

/* Below cli/ nothing prints or ends the program: errors travel up as codes and texts. */
static void calls_check(const struct folder *f, const char *path, int line, const char *text)
{
	static const char *const forbidden[] = {
	        "exit", "_exit", "abort", "printf", "puts", "putchar", "perror"};

	/* test_run_places finds files by the calls of base/; the heartbeat is memory */
	if (!is_test(f) && strcmp(f->name, "base") != 0 && !strstr(path, "comm/heartbeat.c") &&
	        names(text, "O_CREAT"))
		complain(path, line, "only base/ makes files: ", "O_CREAT");
	if (!strcmp(f->name, "cli") || is_test(f))
		return;
	for (size_t i = 0; i < sizeof(forbidden) / sizeof(*forbidden); i++)
		if (calls(text, forbidden[i]) && !strstr(text, "__attribute__((format("))
			complain(path, line, "only cli/ may call ", forbidden[i]);
	if (names(text, "stderr") || names(text, "stdout"))
		complain(path, line, "only cli/ writes to ", "stdout and stderr");
}

static void words_check(const char *path, int line, const char *text)
{
	/* in two pieces, because this file is read too */
	static const char *const forbidden[][2] = {{"TO", "DO"}, {"FIX", "ME"}, {"XX", "X:"}, {"HA", "CK:"}};

	for (size_t i = 0; i < sizeof(forbidden) / sizeof(*forbidden); i++) {
		char word[16];

		snprintf(word, sizeof(word), "%s%s", forbidden[i][0], forbidden[i][1]);
		if (strstr(text, word))
			complain(path, line, "left for later: ", text);
	}
}

/* ---- one file ---- */

/* A header has a guard named after its place. */
static void guard_check(const char *path, const char *text)
{
	char guard[PATH_BYTES] = "#ifndef FERRY_";
	size_t at = strlen(guard);

	for (const char *c = path; *c && at + 1 < sizeof(guard); c++)
		guard[at++] = *c >= 'a' && *c <= 'z' ? (char)(*c - 'a' + 'A') : is_word(*c) ? *c : '_';
	guard[at] = 0;
	if (!strstr(text, guard))
		complain(path, 1, "the guard is not ", guard);
}

/* The first line after those for the build must be a comment: what lives here. */
static void first_line_check(const char *path, const char *text)
{
	static const struct {
		const char *text;
		int lines;
	} build[] = {
	        {"/* links:", 1}, {"/* also:", 1}, {"/* seeds:", 1}, {"/* not:", 2}, /* and why not */
	};
	size_t i = 0;

	while (i < sizeof(build) / sizeof(*build)) {
		if (strncmp(text, build[i].text, strlen(build[i].text))) {
			i++;
			continue;
		}
		for (int line = 0; line < build[i].lines; line++) {
			text += strcspn(text, "\n");
			text += strspn(text, "\n");
		}
		i = 0;
	}
	if (strncmp(text, "/*", 2) && strncmp(text, "//", 2))
		complain(path, 1, "the file does not say first what lives in it", "");
}

static void lines_check(const struct source *source)
{
	int line = 0, function_line = 0;
	const char *at = source->text;

	while (*at) {
		size_t len = strcspn(at, "\n");
		char *text = mem_strndup(at, len);

		assert_non_null(text);
		line++;
		if (!at[len])
			complain(source->path, line, "no newline at the end", "");
		include_check(source->folder, source->path, line, text);
		calls_check(source->folder, source->path, line, text);
		words_check(source->path, line, text);
		if (!strcmp(text, "{"))
			function_line = line;
		if (!strcmp(text, "}") && function_line) {
			if (line - function_line - 1 > FUNCTION_LINES_MAX)
				complain(source->path, function_line,
				        "a function of more lines than a person reads at once", "");
			function_line = 0;
		}
		mem_free(text);
		at += len + (at[len] == '\n');
	}
	if (line > FILE_LINES_MAX)
		complain(source->path, line, "a file of more lines than a person reads at once", "");
}

static void source_check(const struct source *source)
{
	lines_check(source);
	if (ends_in(source->path, ".h") || ends_in(source->path, ".cuh"))
		guard_check(source->path, source->text);
	first_line_check(source->path, source->text);
	comments_check(source->path, source->text);
}

/* ---- all files ---- */

static void test_sources(void **state)
{
	struct tree *tree = mem_alloc(1, sizeof(*tree));
	char *path, *text = NULL;
	size_t len = 0;

	(void)state;
	assert_non_null(tree);
	assert_non_null(getenv("FERRY_SOURCE"));
	path = source_path("cmake/folders.txt");
	check_ok(file_read_all(path, 1 << 16, &text, &len));
	mem_free(path);
	folders_parse(tree, text);
	folders_check(tree);
	for (size_t i = 0; i < tree->folder_count; i++)
		folder_read(tree, i, tree->folders[i].name);
	assert_true(tree->source_count > 500);
	for (size_t i = 0; i < tree->source_count; i++)
		source_check(&tree->sources[i]);
	circles_check(tree);
	tree_free(tree);
	print_error("%s", said.text);
	assert_int_equal(said.count, 0);
}

/* ---- each check finds its faults ---- */

/* Checks the number of complaints since the last call, and that one contains the text. */
static void check_said(int count, const char *text)
{
	if (said.count != count || !strstr(said.text, text)) {
		print_error("wanted %d complaints, one with \"%s\"; had %d:\n%s", count, text, said.count,
		        said.text);
		fail();
	}
	said.count = 0;
	*said.text = 0;
}

static void test_lines(void **state)
{
	char may_include[] = "base device";
	const struct folder model = {"model", may_include, 1};

	(void)state;
	include_check(&model, "x", 1, "#include \"cli/cli.h\"");
	check_said(1, "x:1: this folder must not know cli/cli.h");
	include_check(&model, "x", 2, "#include \"device/meta/x.h\"");
	check_said(1, "must not know device/meta/x.h");
	include_check(&model, "x", 3, "#include \"model/model.h\"");
	include_check(&model, "x", 4, "#include \"device/op.h\"");
	include_check(&model, "x", 5, "#include <cli/cli.h>");
	include_check(&model, "x", 6, "#include \"beside.h\"");
	check_said(0, "");
	calls_check(&model, "x", 7, "	exit(1);");
	check_said(1, "only cli/ may call exit");
	calls_check(&model, "x", 8, "	if (x) printf(\"x\");");
	check_said(1, "printf");
	calls_check(&model, "x", 9, "	fputs(x, stderr);");
	check_said(1, "stderr");
	calls_check(&model, "x", 9, "	fd = open(path, O_WRONLY | O_CREAT, 0666);");
	check_said(1, "only base/ makes files");
	calls_check(&model, "x", 10, "	str_printf(s, \"x\"); at_exit();");
	check_said(0, "");
	words_check("x", 11,
	        "/* TO"
	        "DO */");
	check_said(1, "left for later");
}

static void test_comments(void **state)
{
	(void)state;
	comments_check("x",
	        "/* Two words:\n *\n *   acts     what forward leaves\n *   scratch  dead between  "
	        "calls\n */\n");
	comments_check("x", "/* a  b  c\n * d  b  e */\n");
	check_said(0, "");
	comments_check("x", "/* y  output  acts  model_acts_bytes: what a forward leaves\n"
	                    " * for its backward scratch  model_scratch_bytes:  dead between calls */\n");
	check_said(2, "x:2: gaps in a comment, and no table");
	comments_check("x",
	        "	/* 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 "
	        "0123456789 0123456789 0123456789 */\n");
	check_said(1, "x:1: a wider comment");
}

static struct source made(const char *path, char *text)
{
	static char nothing[] = "";
	static const struct folder usual = {"new", nothing, 1};

	return (struct source){&usual, (char *)(uintptr_t)path, text};
}

static void test_files(void **state)
{
	static char kernel[] = "new/x.cu", kernel_header[] = "new/x.cuh";
	char *text = mem_alloc(1, 8 * FILE_LINES_MAX), *at = text;
	struct source source = made("new/x.c", text);

	(void)state;
	assert_non_null(text);
	at += sprintf(at, "/* x */\nint f(void)\n{\n");
	for (int i = 0; i < FUNCTION_LINES_MAX; i++)
		at += sprintf(at, "\t;\n");
	sprintf(at, "}\n");
	source_check(&source);
	check_said(0, "");
	sprintf(at, "\t;\n}\n");
	source_check(&source);
	check_said(1, "new/x.c:3: a function of more lines");
	at = text + sprintf(text, "/* x */\n");
	for (int i = 1; i < FILE_LINES_MAX; i++)
		at += sprintf(at, "\n");
	source_check(&source);
	check_said(0, "");
	sprintf(at, "\n");
	source_check(&source);
	check_said(1, "a file of more lines");
	sprintf(text, "/* x */\nint i;");
	source_check(&source);
	check_said(1, "no newline");
	sprintf(text, "int i;\n");
	source_check(&source);
	check_said(1, "say first");
	source.path = kernel;
	source_check(&source);
	check_said(1, "say first");
	sprintf(text, "/* links: base */\n/* also: cuda */\n\n#include <x.h>\n");
	source_check(&source);
	check_said(1, "say first");
	sprintf(text, "/* links: base */\n/* also: cuda */\n\n/* x */\n");
	source_check(&source);
	check_said(0, "");
	sprintf(text, "/* links: base */\n/* seeds: x */\n#include <x.h>\n");
	source_check(&source);
	check_said(1, "say first");
	sprintf(text, "/* links: base */\n/* not: asan */\n/* it forks */\n\n#include <x.h>\n");
	source_check(&source);
	check_said(1, "say first");
	sprintf(text, "/* links: base */\n/* not: asan */\n/* it forks */\n\n/* x */\n");
	source_check(&source);
	check_said(0, "");
	source.path = kernel_header;
	source_check(&source);
	check_said(1, "the guard is not #ifndef FERRY_NEW_X_CUH");
	sprintf(text, "// x\n#ifndef FERRY_NEW_X_CUH\n");
	source_check(&source);
	check_said(0, "");
	mem_free(text);
}

/* A tree of these folders and sources, each source a path and a text that may include one other. */
static struct tree *tree_of(const char *folders, const char *const (*sources)[2], size_t count)
{
	struct tree *tree = mem_alloc(1, sizeof(*tree));

	assert_non_null(tree);
	folders_parse(tree, mem_strdup(folders));
	for (size_t i = 0; i < count; i++) {
		size_t folder = 0, len = (size_t)(strrchr(sources[i][0], '/') - sources[i][0]);

		while (!is_listed(tree->folders[folder].name, sources[i][0], len))
			folder++;
		tree_add(tree, folder, mem_strdup(sources[i][0]), mem_strdup(sources[i][1]));
	}
	return tree;
}

static void test_folders(void **state)
{
	struct tree *tree = tree_of("# order\na:\nb: a\nc: *\ntests: a\n", NULL, 0);

	(void)state;
	folders_check(tree);
	assert_string_equal(tree->folders[2].may_include, "a b");
	check_said(0, "");
	tree_free(tree);
	tree = tree_of("# order\na: b\nb: a\nb:\nc: d\n", NULL, 0);
	folders_check(tree);
	assert_non_null(strstr(said.text, "folders.txt:2: does not stand above: b"));
	assert_non_null(strstr(said.text, "folders.txt:4: a second time: b"));
	check_said(3, "folders.txt:5: does not stand above: d");
	tree_free(tree);
}

static void test_circles(void **state)
{
	static const char *const across[][2] = {
	        {"a/x.c", "#include \"a/x.h\"\n"},
	        {"a/x.h", "#include \"b/y.h\"\n"},
	        {"b/y.c", "int i;\n#include \"a/x.h\"\n"},
	        {"b/y.h", ""},
	};
	static const char *const within[][2] = {
	        {"a/x.c", "#include \"y.h\"\n"},
	        {"a/x.h", ""},
	        {"a/y.h", "#include \"a/z.cuh\"\n"},
	        {"a/z.cu", "#include \"a/x.h\"\n"},
	        {"a/z.cuh", ""},
	        {"b/y.h", "#include \"a/x.h\"\n"},
	};
	struct tree *tree = tree_of("a: b\nb: a\n", across, 4);

	(void)state;
	circles_check(tree);
	check_said(1, "a/x.c:1: its headers make a circle:\n\ta/x includes b/y\n\tb/y includes a/x\n");
	tree_free(tree);
	tree = tree_of("a: b\nb: a\n", across, 2); /* y alone does not come back */
	circles_check(tree);
	check_said(0, "");
	tree_free(tree);
	tree = tree_of("a:\nb: a\n", within, 6);
	circles_check(tree);
	check_said(1, "\n\ta/x includes a/y\n\ta/y includes a/z\n\ta/z includes a/x\n");
	tree->sources[2].text[0] = '/';
	memset(tree->edge, 0, sizeof(tree->edge));
	circles_check(tree);
	check_said(0, "");
	tree_free(tree);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_lines),
	        cmocka_unit_test(test_files),
	        cmocka_unit_test(test_folders),
	        cmocka_unit_test(test_comments),
	        cmocka_unit_test(test_circles),
	        cmocka_unit_test(test_sources),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
