/* Directories and names: rename, list, create, remove. */
#include "base/file.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/sys.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

int file_rename(const char *from, const char *to)
{
	return sys_rename(from, to) ? sys_fail(to, "put in place") : 0;
}

int file_exchange(const char *a, const char *b)
{
	if (!sys_ask(FILE_CALL_EXCHANGE, a, b) && !renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE))
		return 0;
	if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP)
		return err_set(ERR_UNSUPPORTED, "%s: this file system cannot exchange two names", b);
	return sys_fail(b, "put in place");
}

int file_space(const char *path, int64_t *free_bytes)
{
	struct statvfs st;

	if (sys_ask(FILE_CALL_STAT, path, NULL) || statvfs(path, &st))
		return sys_fail(path, "ask for its free space");
	*free_bytes = st.f_blocks ? (int64_t)st.f_bavail * (int64_t)st.f_frsize : INT64_MAX;
	return 0;
}

int file_sync_dir(const char *path)
{
	int fd = sys_open(path, O_RDONLY | O_DIRECTORY, 0);
	int rc, err = 0;

	if (fd < 0)
		return sys_fail(path, "open");
	do
		rc = sys_sync(fd, path);
	while (rc && errno == EINTR);
	if (rc && errno != EINVAL && errno != EROFS) /* some file systems cannot sync a directory */
		err = sys_fail_io(path, "flush to disk");
	close(fd);
	return err;
}

int file_sync_parent(const char *path)
{
	char *dir = file_dir_of(path);
	int err = dir ? file_sync_dir(dir) : ERR_NOMEM;

	mem_free(dir);
	return err;
}

enum file_kind file_kind_of(const char *path)
{
	struct stat st;

	if (sys_stat(path, &st))
		return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? FILE_NONE : FILE_OTHER;
	if (S_ISREG(st.st_mode))
		return FILE_REGULAR;
	return S_ISDIR(st.st_mode) ? FILE_DIR : FILE_OTHER;
}

int file_is_no_name(const char *text)
{
	return strlen(text) >= PATH_MAX || file_kind_of(text) == FILE_NONE;
}

int file_refuse_no_dir(const char *name, const char *path, const char *wanted)
{
	const char *equals = name ? "=" : "";
	struct stat st;

	name = name ? name : "";
	if (sys_stat(path, &st))
		return err_set(
		        ERR_INPUT, "%s%s%s: cannot be accessed: %s", name, equals, path, strerror(errno));
	return err_set(ERR_INPUT, "%s%s%s is a file; expected %s", name, equals, path, wanted);
}

int file_is_link(const char *path)
{
	struct stat st;

	return !lstat(path, &st) && S_ISLNK(st.st_mode);
}

static int make_one_dir(const char *path)
{
	struct stat st;
	int error;

	if (!sys_mkdir(path))
		return file_sync_parent(path);
	error = errno;
	errno = 0;
	if (!sys_stat(path, &st) && S_ISDIR(st.st_mode))
		return 0;
	if (error != EEXIST || !errno) /* else report why stat failed */
		errno = error;
	return sys_fail(path, "create the directory");
}

int file_make_dir(const char *path)
{
	char *prefix;
	int err = 0;

	if (!*path)
		return err_set(ERR_INPUT, "an empty path names no directory");
	prefix = mem_strdup(path);
	if (!prefix)
		return ERR_NOMEM;
	for (char *at = prefix; !err && *at; at++) {
		while (*at == '/')
			at++;
		at += strcspn(at, "/");
		char end = *at;

		*at = 0;
		if (*prefix)
			err = make_one_dir(prefix);
		*at = end;
		if (!end)
			break;
	}
	mem_free(prefix);
	return err;
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *place)
{
	(void)st, (void)kind, (void)place;
	if (!sys_remove(path) || errno == ENOENT)
		return 0;
	return sys_fail(path, "remove");
}

int file_remove_tree(const char *path)
{
	struct stat st;
	int rc;

	if (lstat(path, &st))
		return errno == ENOENT ? 0 : sys_fail(path, "remove");
	rc = nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	return rc == -1 ? sys_fail(path, "remove") : rc;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int file_list_dir(const char *path, char ***names, size_t *count)
{
	size_t used = 0, cap = 0;
	char **list = NULL;
	struct dirent *entry;
	int err = 0;
	DIR *dir;

	dir = sys_ask(FILE_CALL_LIST, path, NULL) ? NULL : opendir(path);
	if (!dir)
		return sys_fail(path, "list");
	while (errno = 0, (entry = readdir(dir))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (used == cap) {
			char **grown = mem_resize(list, cap ? cap * 2 : 32, sizeof(*list));

			if (!grown) {
				err = ERR_NOMEM;
				goto out;
			}
			list = grown;
			cap = cap ? cap * 2 : 32;
		}
		list[used] = mem_strdup(entry->d_name);
		if (!list[used]) {
			err = ERR_NOMEM;
			goto out;
		}
		used++;
	}
	if (errno) {
		err = sys_fail_io(path, "list");
		goto out;
	}
	if (used)
		qsort(list, used, sizeof(*list), compare_names);
	*names = list;
	*count = used;
	list = NULL;
out:
	if (err)
		file_list_free(list, used);
	closedir(dir);
	return err;
}

void file_list_free(char **names, size_t count)
{
	for (size_t i = 0; names && i < count; i++)
		mem_free(names[i]);
	mem_free(names);
}

char *file_join(const char *dir, const char *name)
{
	size_t len = strlen(dir);

	if (!len)
		return mem_strdup(name);
	return mem_printf("%s%s%s", dir, dir[len - 1] == '/' ? "" : "/", name);
}

char *file_dir_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? mem_strndup(path, slash > path ? (size_t)(slash - path) : 1) : mem_strdup(".");
}

int file_is_in(const char *dir, const char *name)
{
	char *path = file_join(dir, name);
	int found = path && file_kind_of(path) != FILE_NONE;

	mem_free(path);
	return found;
}
