/* links: base */
/* not: asan */
/* It reads the sources and runs nothing of theirs. */

/* The rules that hold in every file and that no compiler knows: a folder includes only from folders that it
 * may know (cmake/folders.txt), only cli/ ends the program or prints, files and functions stay readable,
 * nothing is left for later. Each complaint names file and line. */
#include "check.h"

#include "base/mem.h"

enum { FILE_LINES_MAX = 650, FUNCTION_LINES_MAX = 90, PATH_BYTES = 1024 };

/* A folder, and the folders whose headers its files may include beside its own. */
struct folder {
	const char *name;
	const char *may_include; /* separated by blanks */
};

enum { FOLDERS_MAX = 64 };
static struct folder folders[FOLDERS_MAX];
static size_t folder_count;

static int complaints;

static void complain(const char *path, int line, const char *what, const char *detail)
{
	print_error("%s:%d: %s%s\n", path, line, what, detail);
	complaints++;
}

/* ---- one line ---- */

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

/* A folder that may include from all above it in the list: every one whose name has been read before its own.
 */
static int is_above(const struct folder *f, const char *word, size_t len)
{
	if (strcmp(f->may_include, "*") != 0)
		return 0;
	for (size_t i = 0; i < folder_count && strcmp(folders[i].name, f->name) != 0; i++)
		if (strlen(folders[i].name) == len && !memcmp(folders[i].name, word, len))
			return 1;
	return 0;
}

/* #include "folder/file.h": the folder is this one, or one that it may know. Without a folder the file stands
 * beside. */
static void include_check(const struct folder *f, const char *path, int line, const char *text)
{
	const char *name = strstr(text, "#include \""), *slash = NULL;

	if (name != text)
		return;
	name += strlen("#include \"");
	for (const char *c = name; *c && *c != '"'; c++)
		if (*c == '/')
			slash = c;
	if (!slash || is_listed(f->name, name, (size_t)(slash - name)) ||
	        is_listed(f->may_include, name, (size_t)(slash - name)) ||
	        is_above(f, name, (size_t)(slash - name)))
		return;
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

/* Below cli/ nothing prints or ends the program: errors travel up as codes and texts. */
static void calls_check(const struct folder *f, const char *path, int line, const char *text)
{
	static const char *const forbidden[] = {
	        "exit", "_exit", "abort", "printf", "puts", "putchar", "perror"};

	if (!strcmp(f->name, "cli") || !strncmp(f->name, "tests", strlen("tests")))
		return;
	for (size_t i = 0; i < sizeof(forbidden) / sizeof(*forbidden); i++)
		if (calls(text, forbidden[i]) && !strstr(text, "__attribute__((format("))
			complain(path, line, "only cli/ may call ", forbidden[i]);
	if (strstr(text, "stderr") || strstr(text, "stdout"))
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

/* A header opens with its mental model and has a guard named after its place. */
static void header_check(const char *path, const char *text)
{
	char guard[PATH_BYTES] = "#ifndef FERRY_";
	size_t at = strlen(guard);

	for (const char *c = path; *c && at + 1 < sizeof(guard); c++)
		guard[at++] = *c >= 'a' && *c <= 'z' ? (char)(*c - 'a' + 'A') : is_word(*c) ? *c : '_';
	guard[at] = 0;
	if (strncmp(text, "/*", 2))
		complain(path, 1, "a header opens with what it is for", "");
	if (!strstr(text, guard))
		complain(path, 1, "the guard is not ", guard);
}

static void file_check(const struct folder *f, const char *path)
{
	char *full = mem_printf("%s/%s", getenv("FERRY_SOURCE"), path), *text = NULL;
	size_t len = 0, dot = strlen(path) - 2;
	int line = 0, function_line = 0;

	assert_non_null(full);
	check_ok(file_read_all(full, 1 << 24, &text, &len));
	if (!strcmp(path + dot, ".h"))
		header_check(path, text);
	for (char *at = text, *end; at < text + len; at = end + 1) {
		end = strchr(at, '\n');
		if (!end) {
			complain(path, line + 1, "no newline at the end", "");
			break;
		}
		*end = 0;
		line++;
		include_check(f, path, line, at);
		calls_check(f, path, line, at);
		words_check(path, line, at);
		if (!strcmp(at, "{"))
			function_line = line;
		if (!strcmp(at, "}") && function_line && line - function_line - 1 > FUNCTION_LINES_MAX)
			complain(path, function_line, "a function of more lines than a person reads at once",
			        "");
	}
	if (line > FILE_LINES_MAX)
		complain(path, line, "a file of more lines than a person reads at once", "");
	mem_free(full);
	mem_free(text);
}

static int is_source(const char *name)
{
	const char *dot = strrchr(name, '.');

	return name[0] != '.' && dot && (!strcmp(dot, ".c") || !strcmp(dot, ".h") || !strcmp(dot, ".inc"));
}

/* cmake/folders.txt, from which CMake has its libraries too. Its text stays: the folders point into it. */
static char *folders_read(void)
{
	char *path = mem_printf("%s/cmake/folders.txt", getenv("FERRY_SOURCE")), *text = NULL, *rest = NULL;
	size_t len = 0;

	assert_non_null(path);
	check_ok(file_read_all(path, 1 << 16, &text, &len));
	mem_free(path);
	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		char *colon = strchr(line, ':');

		if (*line == '#')
			continue;
		assert_non_null(colon);
		assert_true(folder_count < FOLDERS_MAX);
		*colon = 0;
		folders[folder_count++] = (struct folder){line, colon + 1 + strspn(colon + 1, " ")};
	}
	return text;
}

static void test_sources(void **state)
{
	int files = 0;
	char *text;

	(void)state;
	assert_non_null(getenv("FERRY_SOURCE"));
	text = folders_read();
	for (size_t i = 0; i < folder_count; i++) {
		char *dir = mem_printf("%s/%s", getenv("FERRY_SOURCE"), folders[i].name), **names = NULL;
		size_t count = 0;

		assert_non_null(dir);
		check_ok(file_list_dir(dir, &names, &count));
		mem_free(dir);
		for (size_t n = 0; n < count; n++) {
			char *path = mem_printf("%s/%s", folders[i].name, names[n]);

			assert_non_null(path);
			if (is_source(names[n])) {
				file_check(&folders[i], path);
				files++;
			}
			mem_free(path);
		}
		file_list_free(names, count);
	}
	mem_free(text);
	assert_true(files > 100);
	assert_int_equal(complaints, 0);
}

/* The checks see what they are there to see. */
static void test_checks(void **state)
{
	static const struct folder model = {"model", "base device"};
	int before = complaints, wanted = 0;

	(void)state;
	include_check(&model, "seen", 1, "#include \"cli/cli.h\"");
	include_check(&model, "seen", 2, "#include \"gpu/x.h\"");
	wanted += 2;
	include_check(&model, "not seen", 3, "#include \"model/model.h\"");
	include_check(&model, "not seen", 4, "#include \"device/op.h\"");
	include_check(&model, "not seen", 5, "#include <cli/cli.h>");
	calls_check(&model, "seen", 6, "	exit(1);");
	calls_check(&model, "seen", 7, "	if (x) printf(\"x\");");
	calls_check(&model, "seen", 8, "	fputs(x, stderr);");
	wanted += 3;
	calls_check(&model, "not seen", 9, "	str_printf(s, \"x\"); at_exit();");
	assert_int_equal(complaints - before, wanted);
	complaints = before;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_checks),
	        cmocka_unit_test(test_sources),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
