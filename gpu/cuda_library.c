/* The search for libraries that are opened while the program runs. */
#include "gpu/cuda_library.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SONAMES_MAX = 2 };

/* A library: its files, best first, and its functions. */
static const struct {
	const char *name;
	const char *header; /* the header that this build lacks; NULL: none */
	const char *sonames[SONAMES_MAX];
	int version_least, version_end; /* least <= version < end */
	int version_by_pointer;         /* 1: the function writes the version through a pointer */
	const char *const *functions;
	size_t function_count;
} libraries[CUDA_LIBRARY_COUNT] = {
#define NAME(function) #function,
#define FUNCTIONS(list)                                                                                      \
	(const char *const[]){list(NAME)}, sizeof((const char *const[]){list(NAME)}) / sizeof(char *)
        [CUDA_LIBRARY_CUBLASLT] = {"cuBLASLt", NULL,
#if CUDART_VERSION >= 13000
                {"libcublasLt.so.13", "libcublasLt.so.12"},
#else
                {"libcublasLt.so.12", "libcublasLt.so.13"},
#endif
                120000, 140000, 0, FUNCTIONS(CUBLASLT_FUNCTIONS)},
        [CUDA_LIBRARY_CUDNN] = {"cuDNN",
#if __has_include(<cudnn.h>)
                NULL,
#else
                "cudnn.h",
#endif
                {"libcudnn.so.9"}, 90000, 100000, 0, FUNCTIONS(CUDNN_FUNCTIONS)},
        [CUDA_LIBRARY_NCCL] = {"NCCL",
#if __has_include(<nccl.h>)
                NULL,
#else
                "nccl.h",
#endif
                {"libnccl.so.2"}, 21400, 30000, 1, FUNCTIONS(NCCL_FUNCTIONS)},
};

/* Places of libraries. Folders are added to each base; both may have the wildcards of glob. */
enum place_kind {
	PLACE_LIST,   /* base: an environment variable, with parts between colons */
	PLACE_LOADER, /* the places where dlopen finds a name */
	PLACE_PYTHON, /* base: the directory above each one on PATH that has a python3, and above the
	                 directory of its link's target */
	PLACE_FIXED,  /* base: a path */
};

#define PYTHON_FOLDERS(above)                                                                                \
	above "/lib/python3*/site-packages/nvidia/*/lib", above "/lib/python3*/dist-packages/nvidia/*/lib",  \
	        above "/lib64/python3*/site-packages/nvidia/*/lib"

/* A directory named by the user has a library, or is the root of a toolkit or of a python3. */
static const char
        *const named[] = {"", "/lib64", "/lib", "/targets/*/lib", PYTHON_FOLDERS(""), NULL},
               *const toolkit[] = {"/lib64", "/lib", "/targets/*/lib", NULL},
               *const wheels[] = {"/nvidia/*/lib", NULL}, *const python[] = {PYTHON_FOLDERS(""), NULL},
               *const opt[] = {PYTHON_FOLDERS(""), PYTHON_FOLDERS("/.venv"), PYTHON_FOLDERS("/venv"), NULL},
               *const user[] = {PYTHON_FOLDERS("/.local"), PYTHON_FOLDERS("/.venv"), PYTHON_FOLDERS("/venv"),
                       PYTHON_FOLDERS("/*conda3"), PYTHON_FOLDERS("/.pyenv/versions/*"), NULL};

static const struct place {
	enum place_kind kind;
	const char *base;
	const char *const *folders;
} places[] = {
        {PLACE_LIST, "FERRY_LIBRARY_PATH", named},
        {PLACE_LOADER, NULL, NULL},
        {PLACE_LIST, "CUDA_HOME", toolkit},
        {PLACE_LIST, "CUDA_PATH", toolkit},
        {PLACE_FIXED, "/usr/local/cuda", toolkit},
        {PLACE_FIXED, "/usr/local/cuda-*", toolkit},
        {PLACE_FIXED, "/opt/cuda", toolkit},
        {PLACE_FIXED, "/opt/nvidia/hpc_sdk/Linux_*/*/math_libs", toolkit},
        {PLACE_FIXED, "/opt/nvidia/hpc_sdk/Linux_*/*/comm_libs/nccl", toolkit},
        {PLACE_LIST, "VIRTUAL_ENV", python},
        {PLACE_LIST, "CONDA_PREFIX", python},
        {PLACE_PYTHON, "PATH", python},
        {PLACE_LIST, "PYTHONPATH", wheels},
        {PLACE_LIST, "HOME", user},
        {PLACE_FIXED, "/usr/local", python},
        {PLACE_FIXED, "/usr", python},
        {PLACE_FIXED, "/opt/*", opt},
        {PLACE_FIXED, "/venv", python},
        {PLACE_FIXED, "/venv/*", python},
};

static const char looked_in[] =
        "FERRY_LIBRARY_PATH, the loader's path, CUDA_HOME, CUDA_PATH, /usr/local/cuda* and the nvidia/*/lib "
        "folders of python3 installations; install it, or set FERRY_LIBRARY_PATH to its directory";

/* ---- one file ---- */

struct search {
	struct cuda_library *found;
	enum cuda_library_kind kind;
	const char *root;
	struct str refused; /* files that exist but cannot be used, and why */
};

/* Most texts of the loader begin with the path. */
static int search_refuse(struct search *s, const char *path, const char *why)
{
	if (strncmp(why, path, strlen(path)))
		str_printf(&s->refused, "; %s: %s", path, why);
	else
		str_printf(&s->refused, "; %s", why);
	return 0;
}

static int version_of(enum cuda_library_kind kind, void *function)
{
	typedef size_t version_function(void);
	int version = 0;

	if (!libraries[kind].version_by_pointer)
		return (int)((version_function *)(uintptr_t)function)();
	((int (*)(int *))(uintptr_t)function)(&version);
	return version;
}

/* cuDNN opens these by name when it compiles an engine for the GPU. Python packages keep them in folders of
 * their own, where the loader does not look. A library that is open is found by its name. */
static void opened_by_name(const char *path)
{
	static const char *const names[] = {"libnvrtc.so.1[23]", "libcublasLt.so.1[23]",
	        "libcublas.so.1[23]"},
	                         *const folders[] = {"", "/../../*/lib"};
	int directory = (int)(strrchr(path, '/') ? strrchr(path, '/') - path : 0);

	for (size_t i = 0; i < 2 * sizeof(names) / sizeof(*names) && directory; i++) {
		char *pattern = mem_printf("%.*s%s/%s", directory, path, folders[i % 2], names[i / 2]);
		glob_t match = {0};

		if (pattern && !glob(pattern, 0, NULL, &match))
			for (size_t m = 0; m < match.gl_pathc; m++)
				if (!dlopen(strrchr(match.gl_pathv[m], '/') + 1, RTLD_NOW))
					dlopen(match.gl_pathv[m], RTLD_NOW);
		globfree(&match);
		mem_free(pattern);
	}
}

static int functions_find(struct search *s, const char *path)
{
	struct cuda_library *l = s->found;
	char text[64];

	l->functions = mem_alloc(libraries[s->kind].function_count, sizeof(*l->functions));
	if (!l->functions)
		return ERR_NOMEM;
	for (size_t i = 0; i < libraries[s->kind].function_count; i++) {
		l->functions[i] = dlsym(l->handle, libraries[s->kind].functions[i]);
		if (l->functions[i])
			continue;
		snprintf(text, sizeof(text), "has no %s", libraries[s->kind].functions[i]);
		return search_refuse(s, path, text);
	}
	l->version = version_of(s->kind, l->functions[0]);
	if (l->version >= libraries[s->kind].version_least && l->version < libraries[s->kind].version_end)
		return 1;
	snprintf(text, sizeof(text), "is version %d, not %d to %d", l->version,
	        libraries[s->kind].version_least, libraries[s->kind].version_end - 1);
	return search_refuse(s, path, text);
}

/* Returns 1: taken, 0: missing or refused, or ERR_NOMEM. The loader searches for a `path` without a slash. */
static int file_try(struct search *s, const char *path)
{
	struct cuda_library *l = s->found;
	struct link_map *map = NULL;
	const char *error;
	int rc;

	if (strchr(path, '/') && access(path, F_OK))
		return 0;
	l->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!l->handle) {
		error = dlerror();
		if (strchr(path, '/') || !strstr(error, "No such file"))
			search_refuse(s, path, error);
		return 0;
	}
	if (!dlinfo(l->handle, RTLD_DI_LINKMAP, &map) && map->l_name[0])
		path = map->l_name;
	rc = functions_find(s, path);
	if (rc == 1 && s->kind == CUDA_LIBRARY_CUDNN)
		opened_by_name(path);
	if (rc == 1) {
		l->path = mem_strdup(path);
		rc = l->path ? 1 : ERR_NOMEM;
	}
	if (rc != 1)
		cuda_library_close(l);
	return rc;
}

static int directory_try(struct search *s, const char *directory)
{
	int rc = 0;

	for (int i = 0; i < SONAMES_MAX && libraries[s->kind].sonames[i] && !rc; i++) {
		const char *soname = libraries[s->kind].sonames[i];
		char *path = directory ? mem_printf("%s/%s", directory, soname) : mem_strdup(soname);

		rc = path ? file_try(s, path) : ERR_NOMEM;
		mem_free(path);
	}
	return rc;
}

/* ---- places ---- */

/* Tries all directories of a pattern. The last goes first: of versions it is the newest. */
static int pattern_try(struct search *s, const char *pattern)
{
	glob_t match = {0};
	int rc = 0, failed = glob(pattern, 0, NULL, &match);

	if (failed == GLOB_NOSPACE)
		rc = err_set(ERR_NOMEM, "out of memory");
	for (size_t i = match.gl_pathc; !failed && i-- && !rc;)
		rc = directory_try(s, match.gl_pathv[i]);
	globfree(&match);
	return rc;
}

/* Appends text as a plain path: quotes the characters that are wildcards for glob. */
static void str_add_quoted(struct str *pattern, const char *text, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		if (strchr("*?[]\\", text[i]))
			str_add_char(pattern, '\\');
		str_add_char(pattern, text[i]);
	}
}

static int folders_try(struct search *s, const struct str *base, const char *const *folders)
{
	int rc = str_check(base);

	for (; *folders && !rc; folders++) {
		char *pattern = mem_printf("%s%s", base->data, *folders);

		rc = pattern ? pattern_try(s, pattern) : ERR_NOMEM;
		mem_free(pattern);
	}
	return rc;
}

static int folder_try(struct search *s, const char *folder, size_t bytes, const char *const *folders)
{
	struct str base = {0};
	int rc;

	str_add_quoted(&base, folder, bytes);
	rc = folders_try(s, &base, folders);
	str_free(&base);
	return rc;
}

/* The python3 of a virtual environment is a link. The packages of the environment are next to the link, those
 * of the installation next to its target. */
static int python_try(struct search *s, const char *directory, size_t bytes, const char *const *folders)
{
	char *path = mem_printf("%.*s/python3", (int)bytes, directory),
	     *above = mem_printf("%.*s/..", (int)bytes, directory), *real = NULL;
	int rc = path && above ? 0 : ERR_NOMEM;

	if (!rc && !access(path, X_OK)) {
		rc = folder_try(s, above, strlen(above), folders);
		real = realpath(path, NULL);
	}
	for (int up = 0; real && up < 2; up++)
		if (strrchr(real, '/'))
			*strrchr(real, '/') = 0;
	if (!rc && real && *real)
		rc = folder_try(s, real, strlen(real), folders);
	free(real);
	mem_free(path);
	mem_free(above);
	return rc;
}

static int list_try(struct search *s, const struct place *p)
{
	const char *part = getenv(p->base);
	int rc = 0;

	while (part && *part && !rc) {
		size_t bytes = strcspn(part, ":");

		if (bytes)
			rc = (p->kind == PLACE_PYTHON ? python_try : folder_try)(s, part, bytes, p->folders);
		part += bytes + (part[bytes] == ':');
	}
	return rc;
}

static int place_try(struct search *s, const struct place *p)
{
	struct str base = {0};
	int rc;

	if (p->kind == PLACE_LOADER)
		return s->root ? 0 : directory_try(s, NULL);
	if (p->kind != PLACE_FIXED)
		return list_try(s, p);
	if (s->root)
		str_add_quoted(&base, s->root, strlen(s->root));
	str_add(&base, p->base);
	rc = folders_try(s, &base, p->folders);
	str_free(&base);
	return rc;
}

/* ---- a search ---- */

static char *why_not(const struct search *s)
{
	const char *const *sonames = libraries[s->kind].sonames;

	return mem_printf("%s%s%s was not found in %s%s", sonames[0], sonames[1] ? " or " : "",
	        sonames[1] ? sonames[1] : "", looked_in, s->refused.data ? s->refused.data : "");
}

int cuda_library_search(struct cuda_library *library, enum cuda_library_kind kind, const char *root)
{
	struct search s = {.found = library, .kind = kind, .root = root};
	int rc = 0;

	*library = (struct cuda_library){0};
	for (size_t i = 0; i < sizeof(places) / sizeof(*places) && !rc; i++)
		rc = place_try(&s, &places[i]);
	if (!rc)
		rc = str_check(&s.refused);
	if (!rc) {
		library->why = why_not(&s);
		rc = library->why ? err_set(ERR_UNSUPPORTED, "%s: %s", libraries[kind].name, library->why)
		                  : ERR_NOMEM;
	}
	str_free(&s.refused);
	return rc < 0 ? rc : 0;
}

void cuda_library_close(struct cuda_library *library)
{
	if (!library)
		return;
	if (library->handle)
		dlclose(library->handle);
	mem_free(library->functions);
	mem_free(library->path);
	mem_free(library->why);
	*library = (struct cuda_library){0};
}

/* ---- libraries that are open ---- */

static pthread_mutex_t opened_lock = PTHREAD_MUTEX_INITIALIZER;
static struct cuda_library opened[CUDA_LIBRARY_COUNT];

/* Call under the lock. Searches once; only a search that ran out of memory is repeated. */
static int library_open(enum cuda_library_kind kind)
{
	struct cuda_library *l = &opened[kind];

	if (l->functions)
		return 0;
	if (!l->why)
		return cuda_library_search(l, kind, NULL);
	return err_set(ERR_UNSUPPORTED, "%s: %s", libraries[kind].name, l->why);
}

int cuda_library_bind(void *functions, size_t bytes, enum cuda_library_kind kind)
{
	int rc;

	if (bytes != libraries[kind].function_count * sizeof(void *))
		return err_set(ERR_INTERNAL, "%s: a table of %zu bytes for %zu functions",
		        libraries[kind].name, bytes, libraries[kind].function_count);
	pthread_mutex_lock(&opened_lock);
	rc = library_open(kind);
	if (!rc)
		memcpy(functions, opened[kind].functions, bytes);
	pthread_mutex_unlock(&opened_lock);
	return rc;
}

char *cuda_library_describe(enum cuda_library_kind kind)
{
	const struct cuda_library *l = &opened[kind];
	const char *name = libraries[kind].name, *header = libraries[kind].header;
	char *text = NULL;
	int rc;

	pthread_mutex_lock(&opened_lock);
	rc = library_open(kind);
	if (rc == ERR_UNSUPPORTED)
		text = mem_printf("%s: not found (%s)", name, l->why);
	else if (!rc)
		text = mem_printf("%s %d.%d.%d, %s%s%s%s", name, l->version / 10000, l->version / 100 % 100,
		        l->version % 100, l->path ? l->path : "given by the program",
		        header ? " (not used: this build was made without " : "", header ? header : "",
		        header ? ")" : "");
	pthread_mutex_unlock(&opened_lock);
	return text;
}

void cuda_library_replace(enum cuda_library_kind kind, void *const *functions, int version)
{
	pthread_mutex_lock(&opened_lock);
	opened[kind] = (struct cuda_library){.functions = (void **)functions, .version = version};
	pthread_mutex_unlock(&opened_lock);
}
