/* Makes directories that appear whole or not at all. */
#include "checkpoint/file/temp_dir.h"

#include "base/dir_lock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char suffix[] = ".tmp";
enum { ID_DIGITS = 16 };

uint64_t temp_dir_id(void)
{
	struct timespec now;
	uint64_t id;

	if (getrandom(&id, sizeof(id), GRND_NONBLOCK) == (ssize_t)sizeof(id))
		return id;
	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec + ((uint64_t)getpid() << 40);
}

char *temp_dir_name(const char *parent, const char *stem, uint64_t id)
{
	char *name = mem_printf("%s.%016" PRIx64 "%s", stem, id, suffix);
	char *path = name ? file_join(parent, name) : NULL;

	mem_free(name);
	return path;
}

/* Whether the name is STEM, its digits, "." and an id, ".tmp". */
static int is_temporary(const char *name, const char *stem, enum temp_dir_stem kind)
{
	size_t len = strlen(stem);

	if (strncmp(name, stem, len))
		return 0;
	name += len;
	if (kind == TEMP_DIR_NUMBERED)
		name += strspn(name, "0123456789");
	return name[0] == '.' && strspn(name + 1, "0123456789abcdef") == ID_DIGITS &&
	       !strcmp(name + 1 + ID_DIGITS, suffix);
}

/* Renames a directory before removing it, because its maker may be about to rename a half-removed directory
 * to its place. */
static int remove_left(const char *parent, const char *name, const char *stem)
{
	char *path = file_join(parent, name), *aside = temp_dir_name(parent, stem, temp_dir_id());
	int err = path && aside ? 0 : ERR_NOMEM;

	if (!err && !file_rename(path, aside))
		err = file_remove_tree(aside);
	else if (!err)
		err = file_remove_tree(path);
	mem_free(path);
	mem_free(aside);
	return err;
}

int temp_dir_clean(const char *parent, const char *stem, enum temp_dir_stem kind)
{
	char **names = NULL;
	size_t count = 0;
	int err = file_list_dir(parent, &names, &count);

	for (size_t i = 0; !err && i < count; i++) {
		if (is_temporary(names[i], stem, kind))
			err = remove_left(parent, names[i], stem);
	}
	file_list_free(names, count);
	return err;
}

int temp_dir_set_aside(const char *path)
{
	enum { NAMES = 1000 };
	int err = ERR_INPUT;

	for (int n = 1; n <= NAMES && err == ERR_INPUT; n++) {
		char *aside = mem_printf("%s.replaced-%d", path, n);

		if (!aside)
			return ERR_NOMEM;
		if (file_kind_of(aside) == FILE_NONE) {
			log_warn("%s; keeping it as %s", err_text(), aside);
			err = file_rename(path, aside);
			n = NAMES;
		}
		mem_free(aside);
	}
	return err;
}

/* Replaces `final`, a directory that is not empty. */
static int replace(const char *temp, const char *final)
{
	char *old;
	int err = file_exchange(temp, final);

	if (!err)
		return 0;
	if (err != ERR_UNSUPPORTED)
		return err;
	old = mem_printf("%s.%016" PRIx64 "%s", final, temp_dir_id(), suffix);
	err = old ? file_rename(final, old) : ERR_NOMEM; /* then `final` is absent for a moment */
	if (!err)
		err = file_rename(temp, final);
	if (!err)
		err = file_rename(old, temp);
	mem_free(old);
	return err;
}

int temp_dir_commit(const char *temp, const char *final)
{
	int there = file_kind_of(final) != FILE_NONE;
	int err = file_sync_dir(temp);

	if (!err)
		err = there ? replace(temp, final) : file_rename(temp, final);
	if (!err)
		err = file_sync_parent(final);
	if (!err && there)
		err = file_remove_tree(temp);
	return err;
}

int temp_dir_remove(const char *path, const char *stem)
{
	char *parent = NULL, *name = NULL, *temp = NULL;
	int err = temp_dir_split(&parent, &name, path);

	if (!err) {
		temp = temp_dir_name(parent, stem, temp_dir_id());
		err = temp ? file_rename(path, temp) : ERR_NOMEM;
	}
	if (!err)
		err = file_sync_dir(parent);
	if (!err)
		err = file_remove_tree(temp);
	mem_free(parent);
	mem_free(name);
	mem_free(temp);
	return err;
}

int temp_dir_split(char **parent, char **name, const char *path)
{
	size_t len = strlen(path), at;

	while (len > 1 && path[len - 1] == '/')
		len--;
	for (at = len; at && path[at - 1] != '/'; at--)
		;
	*name = mem_strndup(path + at, len - at);
	while (at > 1 && path[at - 1] == '/')
		at--;
	*parent = at ? mem_strndup(path, at) : mem_strdup(".");
	if (*name && *parent)
		return 0;
	mem_free(*name);
	mem_free(*parent);
	*name = *parent = NULL;
	return ERR_NOMEM;
}

int temp_dir_nearest(char **nearest, const char *path)
{
	char *at = mem_strdup(path), *parent, *name;
	int err = at ? 0 : ERR_NOMEM;

	while (!err && file_kind_of(at) == FILE_NONE && !file_is_link(at)) {
		err = temp_dir_split(&parent, &name, at);
		mem_free(name);
		mem_free(at);
		at = parent;
	}
	*nearest = at;
	return err;
}

int temp_dir_check_writable(const char *dir, const char *where, const char *path)
{
	char *at;
	int err = temp_dir_nearest(&at, dir);

	if (!err && file_kind_of(at) == FILE_NONE)
		err = err_set(ERR_INPUT,
		        "%s=%s: %s is a broken symbolic link; remove it, or create its target", where, path,
		        at);
	else if (!err && file_kind_of(at) != FILE_DIR)
		err = err_set(ERR_INPUT, "%s=%s: %s is not a directory", where, path, at);
	else if (!err && access(at, W_OK | X_OK))
		err = err_set(ERR_INPUT, "%s=%s cannot be written: %s", where, path, strerror(errno));
	mem_free(at);
	return err;
}

int temp_dir_place(char **parent, char **name, const char *path)
{
	char real[PATH_MAX];

	return temp_dir_split(parent, name, realpath(path, real) ? real : path);
}

int temp_dir_is_fixed(const char *path)
{
	char real[PATH_MAX], here[PATH_MAX];
	struct statx st;

	if (!realpath(path, real))
		return 0;
	if (!strcmp(real, "/") || (getcwd(here, sizeof(here)) && !strcmp(real, here)))
		return 1;
	return !statx(AT_FDCWD, real, 0, STATX_BASIC_STATS, &st) &&
	       (st.stx_attributes & STATX_ATTR_MOUNT_ROOT);
}

int temp_dir_list(const char *path, char ***names, size_t *count)
{
	int err = file_list_dir(path, names, count);
	size_t kept = 0;

	for (size_t i = 0; !err && i < *count; i++)
		if (strcmp((*names)[i], dir_lock_name) && strcmp((*names)[i], "lost+found"))
			(*names)[kept++] = (*names)[i];
		else
			mem_free((*names)[i]);
	if (!err)
		*count = kept;
	return err;
}

int temp_dir_check(const char *dir, int (*is_own)(const char *path, const char *name))
{
	char **names = NULL;
	size_t count = 0;
	int err = temp_dir_list(dir, &names, &count);

	for (size_t i = 0; i < count && !err; i++) {
		char *path = file_join(dir, names[i]);

		if (!path)
			err = ERR_NOMEM;
		else if (!is_own(path, names[i]))
			err = err_set(ERR_INPUT, "%s contains %s, which ferry did not write", dir, names[i]);
		mem_free(path);
	}
	file_list_free(names, count);
	return err;
}
