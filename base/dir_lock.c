/* Locks on directories. */
#include "base/dir_lock.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

const char dir_lock_name[] = ".ferry.lock";

enum { TRIES = 100, OWNER_BYTES = 200 };

struct dir_lock {
	int fd;
	char *dir, *path;
	size_t made_from; /* length of the prefix of `dir` that existed before the lock */
};

static int is_unknown(int error)
{
	return error == ENOSYS || error == ENOLCK || error == EOPNOTSUPP || error == EINVAL;
}

/* ---- the owner's name ---- */

static void write_owner(const struct dir_lock *lock)
{
	char host[65] = "", since[32] = "", text[OWNER_BYTES];
	time_t now = time(NULL);
	struct tm tm;

	gethostname(host, sizeof(host) - 1);
	if (gmtime_r(&now, &tm))
		strftime(since, sizeof(since), "%Y-%m-%d %H:%M:%S UTC", &tm);
	snprintf(text, sizeof(text), "process %d on %s since %s\n", (int)getpid(), host, since);
	/* Cut the file first, because the old text may be longer. If the file stays empty, the message only
	 * lacks the name. */
	if (ftruncate(lock->fd, 0))
		return;
	(void)!sys_write(lock->fd, lock->path, text, strlen(text), 0);
	(void)!sys_sync(lock->fd, lock->path); /* so that other hosts read it */
}

/* Names the owner of the lock. For a moment the file may still name an earlier owner; that is harmless in a
 * message. */
static int busy(const char *dir, const char *path, int fd)
{
	char owner[OWNER_BYTES];
	ssize_t len = sys_read(fd, path, owner, sizeof(owner) - 1, 0);

	owner[len > 0 ? len : 0] = 0;
	owner[strcspn(owner, "\n")] = 0;
	for (char *at = owner; *at; at++)
		if ((unsigned char)*at < ' ' || *at == 127)
			*at = '?';
	return err_set(ERR_INPUT,
	        "%s: another ferry is writing there%s%s%s; wait for it, stop it, or choose another directory",
	        dir, *owner ? " (" : "", owner, *owner ? ")" : "");
}

/* ---- taking the lock ---- */

/* Removes the last name and the slashes around it from a path of `len` characters. Returns the new length. */
static size_t cut_name(char *path, size_t len)
{
	while (len && path[len - 1] == '/')
		len--;
	while (len && path[len - 1] != '/')
		len--;
	while (len > 1 && path[len - 1] == '/')
		len--;
	path[len] = 0;
	return len;
}

/* Length of the longest prefix of `dir` that exists. */
static size_t existing_prefix(const char *dir)
{
	size_t len = strlen(dir);
	char *prefix = mem_strdup(dir);

	while (prefix && len && file_kind_of(prefix) == FILE_NONE)
		len = cut_name(prefix, len);
	mem_free(prefix);
	return len;
}

static void remove_made(const struct dir_lock *lock)
{
	size_t len = strlen(lock->dir);
	char *prefix = mem_strdup(lock->dir);

	while (prefix && len > lock->made_from) {
		if (rmdir(prefix) && errno != ENOENT) /* no longer empty */
			break;
		len = cut_name(prefix, len);
	}
	mem_free(prefix);
}

/* Calls stat directly: a run calls this at each step, and the calls of base/sys.h may wait for each other. */
static int stands_at(const struct dir_lock *lock, const char *path)
{
	struct stat open_file, named;

	return !fstat(lock->fd, &open_file) && !stat(path, &named) && open_file.st_ino == named.st_ino &&
	       open_file.st_dev == named.st_dev;
}

int dir_lock_is_there(const struct dir_lock *lock)
{
	return stands_at(lock, lock->path);
}

int dir_lock_find(char **dir, const struct dir_lock *lock)
{
	char link[64], path[PATH_MAX], *slash;
	ssize_t len;

	*dir = NULL;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", lock->fd);
	len = readlink(link, path, sizeof(path) - 1);
	path[len > 0 ? len : 0] = 0;
	slash = strrchr(path, '/');
	if (!slash || slash == path || !stands_at(lock, path))
		return 0;
	*dir = mem_strndup(path, (size_t)(slash - path));
	return *dir ? 0 : ERR_NOMEM;
}

int dir_lock_follow(struct dir_lock *lock, const char *dir)
{
	char *own = mem_strdup(dir), *path = file_join(dir, strrchr(lock->path, '/') + 1);

	if (!own || !path) {
		mem_free(own);
		mem_free(path);
		return ERR_NOMEM;
	}
	mem_free(lock->dir);
	mem_free(lock->path);
	lock->dir = own;
	lock->path = path;
	lock->made_from = strlen(own);
	return 0;
}

static int open_file(struct dir_lock *lock)
{
	int err;

	if (file_kind_of(lock->dir) != FILE_DIR) {
		size_t there = existing_prefix(lock->dir);

		if (there < lock->made_from)
			lock->made_from = there;
		err = file_is_link(lock->dir) && file_kind_of(lock->dir) == FILE_NONE
		              ? err_set(ERR_INPUT,
		                        "%s is a broken symbolic link; remove it, or create its target",
		                        lock->dir)
		              : file_make_dir(lock->dir);
		if (err)
			return err;
	}
	lock->fd = sys_open(lock->path, O_RDWR | O_CREAT | O_NOFOLLOW, 0666);
	return lock->fd < 0 ? sys_fail(lock->path, "open") : 0;
}

static void warn_unknown(const struct dir_lock *lock)
{
	log_warn("%s: this file system has no locks (%s), so ferry cannot detect another run there; start "
	         "one run at a time in it",
	        lock->dir, strerror(errno));
}

/* 1: locked. 0: try again, because the file was removed meanwhile, or its directory (then *last has the
 * text). ERR_*. */
static int try_once(struct dir_lock *lock, struct err *last)
{
	int err = open_file(lock);

	if (err == ERR_INPUT && file_kind_of(lock->dir) == FILE_NONE && !file_is_link(lock->dir)) {
		err_take(last, err);
		return 0;
	}
	if (err)
		return err;
	if (sys_lock(lock->fd, lock->path)) {
		if (errno == EAGAIN || errno == EACCES)
			return busy(lock->dir, lock->path, lock->fd);
		if (errno == ESTALE)
			return 0;
		if (!is_unknown(errno))
			return sys_fail_io(lock->path, "lock");
		warn_unknown(lock);
	}
	return dir_lock_is_there(lock);
}

static void free_lock(struct dir_lock *lock)
{
	if (lock->fd >= 0)
		close(lock->fd);
	mem_free(lock->dir);
	mem_free(lock->path);
	mem_free(lock);
}

int dir_lock_take(struct dir_lock **out, const char *dir, const char *name)
{
	struct dir_lock *lock = mem_alloc(1, sizeof(*lock));
	struct err last = {0};
	int err = 0;

	*out = NULL;
	if (!lock)
		return ERR_NOMEM;
	lock->fd = -1;
	lock->made_from = strlen(dir);
	lock->dir = mem_strdup(dir);
	lock->path = file_join(dir, name);
	if (!lock->dir || !lock->path)
		err = ERR_NOMEM;
	for (int i = 0; !err && i < TRIES; i++) {
		if (lock->fd >= 0)
			close(lock->fd);
		lock->fd = -1;
		err = try_once(lock, &last);
	}
	if (err > 0) {
		write_owner(lock);
		*out = lock;
		return 0;
	}
	if (!err) /* failed TRIES times; other processes alone rarely cause that */
		err = last.code ? err_give(&last)
		                : err_set(ERR_IO, "%s: cannot be locked; another process keeps removing it",
		                          lock->path);
	remove_made(lock);
	free_lock(lock);
	return err;
}

void dir_lock_release(struct dir_lock *lock)
{
	if (!lock)
		return;
	if (dir_lock_is_there(lock)) {
		(void)!sys_remove(lock->path); /* before unlocking, while nobody else can have it locked */
		close(lock->fd);
		lock->fd = -1;
		remove_made(lock);
	}
	free_lock(lock);
}

int dir_lock_look(const char *dir, const char *name)
{
	char *path = file_join(dir, name);
	int fd = path ? sys_open(path, O_RDONLY | O_NOFOLLOW, 0) : -1, err = path ? 0 : ERR_NOMEM;

	if (fd >= 0) {
		if (sys_lock_is_held(fd))
			err = busy(dir, path, fd);
		close(fd);
	}
	mem_free(path);
	return err;
}
