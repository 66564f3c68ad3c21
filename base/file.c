#include "base/file.h"

#include "base/err.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* The user can mend these by naming another path; anything else is the system's. */
static int is_users(int error)
{
	return error == ENOENT || error == ENOTDIR || error == EISDIR || error == EACCES || error == EPERM ||
	       error == ELOOP || error == ENAMETOOLONG || error == EEXIST || error == EROFS ||
	       error == EINVAL;
}

/* "PATH: cannot VERB: what the system said", with the code that goes with errno. */
static int fail(const char *path, const char *verb)
{
	int error = errno;

	if (error == ENOMEM)
		return err_set(ERR_NOMEM, "%s: cannot %s: out of memory", path, verb);
	return err_set(
	        is_users(error) ? ERR_INPUT : ERR_IO, "%s: cannot %s: %s", path, verb, strerror(error));
}

static int fail_io(const char *path, const char *verb)
{
	return err_set(ERR_IO, "%s: cannot %s: %s", path, verb, strerror(errno));
}

/* ---- system calls, each by way of the hook ---- */

static file_hook *hook;
static void *hook_context;
static pthread_mutex_t hook_lock = PTHREAD_MUTEX_INITIALIZER; /* so that hooks need none of their own */

void file_hook_set(file_hook *new_hook, void *context)
{
	hook = new_hook;
	hook_context = context;
}

/* 0: make the call; 1: make half of it; -1 with errno: it is to fail. */
static int ask(const struct file_call *call)
{
	int answer = 0;

	if (hook) {
		pthread_mutex_lock(&hook_lock);
		answer = hook(hook_context, call);
		pthread_mutex_unlock(&hook_lock);
	}
	if (answer > 0) {
		errno = answer;
		return -1;
	}
	return answer == FILE_HOOK_SHORT;
}

static int ask_fd(enum file_call_kind kind, int fd, const char *path)
{
	return ask(&(struct file_call){.kind = kind, .fd = fd, .path = path}) == -1 ? -1 : 0;
}

static int ask_path(enum file_call_kind kind, const char *path, const char *to)
{
	return ask(&(struct file_call){.kind = kind, .fd = -1, .path = path, .to = to}) == -1 ? -1 : 0;
}

static size_t halved(size_t len_bytes)
{
	return len_bytes > 1 ? len_bytes / 2 : len_bytes;
}

static ssize_t sys_read(int fd, const char *path, void *dst, size_t len_bytes, int64_t offset_bytes)
{
	int answer = ask(&(struct file_call){
	        .kind = FILE_CALL_READ, .path = path, .len_bytes = len_bytes, .offset_bytes = offset_bytes});

	if (answer == -1)
		return -1;
	return pread(fd, dst, answer ? halved(len_bytes) : len_bytes, offset_bytes);
}

static ssize_t sys_write(int fd, const char *path, const void *src, size_t len_bytes, int64_t offset_bytes)
{
	int answer = ask(&(struct file_call){.kind = FILE_CALL_WRITE,
	        .fd = fd,
	        .path = path,
	        .data = src,
	        .len_bytes = len_bytes,
	        .offset_bytes = offset_bytes});

	if (answer == -1)
		return -1;
	return pwrite(fd, src, answer ? halved(len_bytes) : len_bytes, offset_bytes);
}

static int sys_sync(int fd, const char *path)
{
	return ask_fd(FILE_CALL_SYNC, fd, path) ? -1 : fsync(fd);
}

/* The descriptor is gone afterwards, whatever the answer. */
static int sys_close(int fd, const char *path)
{
	int failed = ask_fd(FILE_CALL_CLOSE, fd, path), error = errno;

	if (close(fd))
		return -1;
	errno = error;
	return failed;
}

static int sys_rename(const char *from, const char *to)
{
	return ask_path(FILE_CALL_RENAME, from, to) ? -1 : rename(from, to);
}

static int sys_stat(const char *path, struct stat *st)
{
	return ask_path(FILE_CALL_STAT, path, NULL) ? -1 : stat(path, st);
}

static int sys_mkdir(const char *path)
{
	return ask_path(FILE_CALL_MKDIR, path, NULL) ? -1 : mkdir(path, 0777);
}

static int sys_remove(const char *path)
{
	return ask_path(FILE_CALL_REMOVE, path, NULL) ? -1 : remove(path);
}

static int open_retry(const char *path, int flags, mode_t mode)
{
	enum file_call_kind kind = flags & O_CREAT ? FILE_CALL_CREATE : FILE_CALL_OPEN;
	int fd;

	do
		fd = ask_path(kind, path, NULL) ? -1 : open(path, flags | O_CLOEXEC | O_NOCTTY, mode);
	while (fd < 0 && errno == EINTR);
	return fd;
}

static int not_regular(const char *path, const struct stat *st)
{
	return err_set(ERR_INPUT, "%s: is %s; a regular file is wanted", path,
	        S_ISDIR(st->st_mode) ? "a directory" : "a pipe, socket or device");
}

int file_open_read(const char *path, int64_t *len_bytes)
{
	struct stat st;
	int fd, err;

	/* before open, because opening a device may do something; after it, because paths change */
	if (sys_stat(path, &st))
		return fail(path, "open");
	if (!S_ISREG(st.st_mode))
		return not_regular(path, &st);
	fd = open_retry(path, O_RDONLY | O_NONBLOCK, 0);
	if (fd < 0)
		return fail(path, "open");
	if (fstat(fd, &st))
		err = fail_io(path, "read its length");
	else if (!S_ISREG(st.st_mode))
		err = not_regular(path, &st);
	else
		err = 0;
	if (err) {
		close(fd);
		return err;
	}
	if (len_bytes)
		*len_bytes = st.st_size;
	return fd;
}

int file_read_at(int fd, const char *path, void *dst, size_t len_bytes, int64_t offset_bytes)
{
	char *at = dst;

	while (len_bytes) {
		ssize_t got = sys_read(fd, path, at, len_bytes, offset_bytes);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_set(ERR_IO, "%s: cannot read %zu bytes at offset %" PRId64 ": %s", path,
			        len_bytes, offset_bytes, strerror(errno));
		if (!got)
			return err_set(ERR_IO,
			        "%s: ends at byte %" PRId64 ", %zu bytes short; it was cut or is still "
			        "being written",
			        path, offset_bytes, len_bytes);
		at += got;
		len_bytes -= (size_t)got;
		offset_bytes += got;
	}
	return 0;
}

int file_open_past_cache(int fd, const char *path)
{
	char name[32];

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd); /* the very file, whatever has its name now */
	if (ask_path(FILE_CALL_OPEN, path, NULL))
		return -1;
	return open(name, O_RDONLY | O_DIRECT | O_CLOEXEC | O_NOCTTY);
}

int file_read_past_cache(
        int past_fd, int fd, const char *path, void *dst, size_t len_bytes, int64_t offset_bytes)
{
	size_t whole = (len_bytes + 4095) / 4096 * 4096;
	ssize_t got;

	do
		got = sys_read(past_fd, path, dst, whole, offset_bytes);
	while (got < 0 && errno == EINTR);
	if (got < 0 && errno != EINVAL)
		return err_set(ERR_IO, "%s: cannot read %zu bytes at offset %" PRId64 ": %s", path, len_bytes,
		        offset_bytes, strerror(errno));
	if (got < 0)
		got = 0;
	if ((size_t)got >= len_bytes)
		return 0;
	return file_read_at(fd, path, (char *)dst + got, len_bytes - (size_t)got, offset_bytes + got);
}

int file_write_at(int fd, const char *path, const void *src, size_t len_bytes, int64_t offset_bytes)
{
	const char *at = src;
	int refused = 0;

	while (len_bytes) {
		ssize_t put = sys_write(fd, path, at, len_bytes, offset_bytes);

		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0 && errno == EINVAL && !refused++ && !file_set_caching(fd, FILE_CACHING_ON))
			continue;
		if (put <= 0)
			return err_set(ERR_IO, "%s: cannot write %zu bytes at offset %" PRId64 ": %s", path,
			        len_bytes, offset_bytes, put ? strerror(errno) : "nothing was taken");
		at += put;
		len_bytes -= (size_t)put;
		offset_bytes += put;
	}
	return 0;
}

int file_read_all(const char *path, int64_t max_bytes, char **data, size_t *len_bytes)
{
	char *text = NULL;
	int64_t len = 0;
	int err = 0, fd;

	fd = file_open_read(path, &len);
	if (fd < 0)
		return fd;
	if (len > max_bytes) {
		err = err_set(ERR_INPUT, "%s: has %" PRId64 " bytes; at most %" PRId64 " are read here", path,
		        len, max_bytes);
		goto out;
	}
	text = mem_alloc((size_t)len + 1, 1);
	if (!text) {
		err = err_note(ERR_NOMEM, "%s", path);
		goto out;
	}
	err = file_read_at(fd, path, text, (size_t)len, 0);
	if (err)
		goto out;
	*data = text;
	*len_bytes = (size_t)len;
	text = NULL;
out:
	mem_free(text);
	close(fd);
	return err;
}

int file_sync(int fd, const char *path)
{
	int rc;

	do
		rc = sys_sync(fd, path);
	while (rc && errno == EINTR);
	return rc ? fail_io(path, "bring to disk") : 0;
}

int file_set_caching(int fd, enum file_caching caching)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0)
		return ERR_UNSUPPORTED;
	flags = caching == FILE_CACHING_OFF ? flags | O_DIRECT : flags & ~O_DIRECT;
	return fcntl(fd, F_SETFL, flags) ? ERR_UNSUPPORTED : 0;
}

static int sync_range(int fd, const char *path, int64_t offset_bytes, int64_t len_bytes, unsigned flags)
{
	if (!sync_file_range(fd, offset_bytes, len_bytes, flags))
		return 0;
	return errno == EIO || errno == ENOSPC || errno == EDQUOT ? fail_io(path, "bring to disk") : 0;
}

int file_write_back(int fd, const char *path, int64_t offset_bytes, int64_t len_bytes)
{
	return sync_range(fd, path, offset_bytes, len_bytes, SYNC_FILE_RANGE_WRITE);
}

int file_drop_written(int fd, const char *path, int64_t offset_bytes, int64_t len_bytes)
{
	int err = sync_range(fd, path, offset_bytes, len_bytes,
	        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);

	(void)!posix_fadvise(fd, offset_bytes, len_bytes, POSIX_FADV_DONTNEED);
	return err;
}

int file_close(int fd, const char *path)
{
	return sys_close(fd, path) ? fail_io(path, "close") : 0;
}

void file_abandon(int fd, const char *path)
{
	(void)!sys_close(fd, path);
}

/* Closes; keeps an error that came first. */
static int close_after(int fd, const char *path, int err)
{
	int error = sys_close(fd, path) ? errno : 0;

	if (err || !error)
		return err;
	errno = error;
	return fail_io(path, "close");
}

int file_create(const char *path)
{
	int fd = open_retry(path, O_RDWR | O_CREAT | O_EXCL, 0666);

	return fd < 0 ? fail(path, "create") : fd;
}

int file_rename(const char *from, const char *to)
{
	return sys_rename(from, to) ? fail(to, "put in place") : 0;
}

int file_exchange(const char *a, const char *b)
{
	if (!ask_path(FILE_CALL_EXCHANGE, a, b) && !renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE))
		return 0;
	if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP)
		return err_set(ERR_UNSUPPORTED, "%s: this file system cannot exchange two names", b);
	return fail(b, "put in place");
}

int file_space(const char *path, int64_t *free_bytes)
{
	struct statvfs st;

	if (ask_path(FILE_CALL_STAT, path, NULL) || statvfs(path, &st))
		return fail(path, "ask for its free space");
	*free_bytes = (int64_t)st.f_bavail * (int64_t)st.f_frsize;
	return 0;
}

int file_sync_dir(const char *path)
{
	int fd = open_retry(path, O_RDONLY | O_DIRECTORY, 0);
	int rc, err = 0;

	if (fd < 0)
		return fail(path, "open");
	do
		rc = sys_sync(fd, path);
	while (rc && errno == EINTR);
	if (rc && errno != EINVAL && errno != EROFS) /* file systems that cannot sync a directory */
		err = fail_io(path, "bring to disk");
	close(fd);
	return err;
}

int file_sync_parent(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *dir;
	int err;

	if (!slash)
		return file_sync_dir(".");
	dir = mem_strndup(path, slash == path ? 1 : (size_t)(slash - path));
	if (!dir)
		return ERR_NOMEM;
	err = file_sync_dir(dir);
	mem_free(dir);
	return err;
}

/* A new file beside `path` that nobody else has: its descriptor and name. */
static int open_temporary(char **name, const char *path)
{
	static atomic_uint serial;
	int fd;

	do {
		mem_free(*name);
		*name = mem_printf("%s.tmp-%d-%u", path, (int)getpid(), atomic_fetch_add(&serial, 1));
		if (!*name)
			return ERR_NOMEM;
		fd = open_retry(*name, O_WRONLY | O_CREAT | O_EXCL, 0666);
	} while (fd < 0 && errno == EEXIST);
	return fd < 0 ? fail(path, "create") : fd;
}

int file_write_all(const char *path, const void *data, size_t len_bytes)
{
	char *name = NULL;
	int fd, err;

	fd = open_temporary(&name, path);
	if (fd < 0) {
		mem_free(name);
		return fd;
	}
	err = file_write_at(fd, path, data, len_bytes, 0);
	if (!err)
		err = file_sync(fd, path);
	err = close_after(fd, path, err);
	if (!err && sys_rename(name, path))
		err = fail(path, "replace");
	if (err)
		sys_remove(name);
	else
		err = file_sync_parent(path);
	mem_free(name);
	return err;
}

int file_copy(const char *from, const char *to)
{
	enum { CHUNK_BYTES = 1 << 20 };
	int64_t len = 0, done = 0;
	char *chunk = NULL;
	int in, out = -1, err = 0;

	in = file_open_read(from, &len);
	if (in < 0)
		return in;
	chunk = mem_alloc(CHUNK_BYTES, 1);
	if (!chunk) {
		err = ERR_NOMEM;
		goto out;
	}
	out = open_retry(to, O_WRONLY | O_CREAT | O_EXCL, 0666);
	if (out < 0) {
		err = fail(to, "create");
		goto out;
	}
	while (!err && done < len) {
		size_t part = (size_t)(len - done < CHUNK_BYTES ? len - done : CHUNK_BYTES);

		err = file_read_at(in, from, chunk, part, done);
		if (!err)
			err = file_write_at(out, to, chunk, part, done);
		done += (int64_t)part;
	}
	if (!err)
		err = file_sync(out, to);
	err = close_after(out, to, err);
	if (err)
		sys_remove(to);
out:
	mem_free(chunk);
	close(in);
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
	if (error != EEXIST || !errno) /* else why it cannot be looked at is the reason */
		errno = error;
	return fail(path, "create the directory");
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
	return fail(path, "remove");
}

int file_remove_tree(const char *path)
{
	struct stat st;
	int rc;

	if (lstat(path, &st))
		return errno == ENOENT ? 0 : fail(path, "remove");
	rc = nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	return rc == -1 ? fail(path, "remove") : rc;
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

	dir = ask_path(FILE_CALL_LIST, path, NULL) ? NULL : opendir(path);
	if (!dir)
		return fail(path, "list");
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
		err = fail_io(path, "list");
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
