/* System calls on files, and error texts for those that failed. */
#include "base/sys.h"

#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Errors that the user can fix by naming another path. */
static int is_users(int error)
{
	return error == ENOENT || error == ENOTDIR || error == EISDIR || error == EACCES || error == EPERM ||
	       error == ELOOP || error == ENAMETOOLONG || error == EEXIST || error == EROFS ||
	       error == EINVAL;
}

int sys_fail(const char *path, const char *verb)
{
	int error = errno;

	if (error == ENOMEM)
		return err_set(ERR_NOMEM, "%s: cannot %s: out of memory", path, verb);
	return err_set(is_users(error) ? ERR_INPUT : ERR_IO, "%s: cannot %s: %s%s", path, verb,
	        strerror(error), error == EMFILE ? "; allow more with ulimit -n" : "");
}

int sys_fail_io(const char *path, const char *verb)
{
	return err_set(ERR_IO, "%s: cannot %s: %s", path, verb, strerror(errno));
}

static file_hook *hook;
static void *hook_context;
static pthread_mutex_t hook_lock = PTHREAD_MUTEX_INITIALIZER; /* so that hooks need no lock */

void file_hook_set(file_hook *new_hook, void *context)
{
	hook = new_hook;
	hook_context = context;
}

/* 0: make the call. 1: transfer half. -1 with errno: fail without the call. */
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

int sys_ask(enum file_call_kind kind, const char *path, const char *to)
{
	return ask(&(struct file_call){.kind = kind, .fd = -1, .path = path, .to = to}) == -1 ? -1 : 0;
}

static size_t halved(size_t len_bytes)
{
	return len_bytes > 1 ? len_bytes / 2 : len_bytes;
}

ssize_t sys_read(int fd, const char *path, void *dst, size_t len_bytes, int64_t offset_bytes)
{
	int answer = ask(&(struct file_call){
	        .kind = FILE_CALL_READ, .path = path, .len_bytes = len_bytes, .offset_bytes = offset_bytes});

	if (answer == -1)
		return -1;
	return pread(fd, dst, answer ? halved(len_bytes) : len_bytes, offset_bytes);
}

ssize_t sys_write(int fd, const char *path, const void *src, size_t len_bytes, int64_t offset_bytes)
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

int sys_reserve(int fd, const char *path, int64_t len_bytes)
{
	int answer = ask(&(struct file_call){
	        .kind = FILE_CALL_RESERVE, .fd = fd, .path = path, .len_bytes = (size_t)len_bytes});

	return answer == -1 ? -1 : fallocate(fd, 0, 0, len_bytes);
}

int sys_sync(int fd, const char *path)
{
	return ask_fd(FILE_CALL_SYNC, fd, path) ? -1 : fsync(fd);
}

int sys_close(int fd, const char *path)
{
	int failed = ask_fd(FILE_CALL_CLOSE, fd, path), error = errno;

	if (close(fd))
		return -1;
	errno = error;
	return failed;
}

int sys_rename(const char *from, const char *to)
{
	return sys_ask(FILE_CALL_RENAME, from, to) ? -1 : rename(from, to);
}

int sys_stat(const char *path, struct stat *st)
{
	return sys_ask(FILE_CALL_STAT, path, NULL) ? -1 : stat(path, st);
}

int sys_mkdir(const char *path)
{
	return sys_ask(FILE_CALL_MKDIR, path, NULL) ? -1 : mkdir(path, 0777);
}

int sys_remove(const char *path)
{
	return sys_ask(FILE_CALL_REMOVE, path, NULL) ? -1 : remove(path);
}

int sys_lock(int fd, const char *path)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int rc;

	do
		rc = ask_fd(FILE_CALL_LOCK, fd, path) ? -1 : fcntl(fd, F_OFD_SETLK, &lock);
	while (rc && errno == EINTR);
	return rc;
}

int sys_lock_is_held(int fd)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	return !fcntl(fd, F_OFD_GETLK, &lock) && lock.l_type != F_UNLCK;
}

int sys_open(const char *path, int flags, mode_t mode)
{
	enum file_call_kind kind = flags & O_CREAT ? FILE_CALL_CREATE : FILE_CALL_OPEN;
	int fd;

	do
		fd = sys_ask(kind, path, NULL) ? -1 : open(path, flags | O_CLOEXEC | O_NOCTTY, mode);
	while (fd < 0 && errno == EINTR);
	return fd;
}
