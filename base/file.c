/* Regular files: complete reads and writes at an offset, fsync, direct I/O, reserved space. */
#include "base/file.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int not_regular(const char *path, const struct stat *st)
{
	return err_set(ERR_INPUT, "%s: is %s; expected a regular file", path,
	        S_ISDIR(st->st_mode) ? "a directory" : "a pipe, socket or device");
}

int file_open_read(const char *path, int64_t *len_bytes)
{
	struct stat st;
	int fd, err;

	/* checked before open, because opening a device may have effects, and after it, because paths
	 * change */
	if (sys_stat(path, &st))
		return sys_fail(path, "open");
	if (!S_ISREG(st.st_mode))
		return not_regular(path, &st);
	fd = sys_open(path, O_RDONLY | O_NONBLOCK, 0);
	if (fd < 0)
		return sys_fail(path, "open");
	if (fstat(fd, &st))
		err = sys_fail_io(path, "read its length");
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
			        "%s: ends at byte %" PRId64
			        ", %zu bytes short; it was cut off or is still being written",
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

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd); /* the same file, even if its name changed */
	if (sys_ask(FILE_CALL_OPEN, path, NULL))
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
			        len_bytes, offset_bytes, put ? strerror(errno) : "nothing was written");
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
		err = err_set(
		        ERR_INPUT, "%s: has %" PRId64 " bytes; the limit is %" PRId64, path, len, max_bytes);
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
	return rc ? sys_fail_io(path, "flush to disk") : 0;
}

int file_set_caching(int fd, enum file_caching caching)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0)
		return ERR_UNSUPPORTED;
	flags = caching == FILE_CACHING_OFF ? flags | O_DIRECT : flags & ~O_DIRECT;
	return fcntl(fd, F_SETFL, flags) ? ERR_UNSUPPORTED : 0;
}

enum file_caching file_get_caching(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && flags & O_DIRECT ? FILE_CACHING_OFF : FILE_CACHING_ON;
}

int file_reserve(int fd, const char *path, int64_t len_bytes)
{
	int rc;

	do
		rc = sys_reserve(fd, path, len_bytes);
	while (rc && errno == EINTR);
	return rc && (errno == ENOSPC || errno == EDQUOT || errno == EIO)
	               ? sys_fail_io(path, "reserve space for it")
	               : 0;
}

static int sync_range(int fd, const char *path, int64_t offset_bytes, int64_t len_bytes, unsigned flags)
{
	if (!sync_file_range(fd, offset_bytes, len_bytes, flags))
		return 0;
	return errno == EIO || errno == ENOSPC || errno == EDQUOT ? sys_fail_io(path, "flush to disk") : 0;
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
	return sys_close(fd, path) ? sys_fail_io(path, "close") : 0;
}

void file_abandon(int fd, const char *path)
{
	(void)!sys_close(fd, path);
}

/* Closes. An earlier error wins over an error of close. */
static int close_after(int fd, const char *path, int err)
{
	int error = sys_close(fd, path) ? errno : 0;

	if (err || !error)
		return err;
	errno = error;
	return sys_fail_io(path, "close");
}

int file_create(const char *path)
{
	int fd = sys_open(path, O_RDWR | O_CREAT | O_EXCL, 0666);

	return fd < 0 ? sys_fail(path, "create") : fd;
}

int file_open_append(const char *path)
{
	int fd = sys_open(path, O_WRONLY | O_APPEND | O_CREAT, 0666);

	return fd < 0 ? sys_fail_io(path, "open") : fd;
}

ssize_t file_append(int fd, const char *path, const void *src, size_t len_bytes)
{
	return sys_write(fd, path, src, len_bytes, 0); /* O_APPEND: the offset does not count */
}

/* ---- files that appear whole ---- */

char *file_part_name(const char *path)
{
	static atomic_uint serial;
	char *name;

	do /* a killed process with the same number may have left one */
		name = mem_printf("%s.tmp-%d-%u", path, (int)getpid(), atomic_fetch_add(&serial, 1));
	while (name && !access(name, F_OK) && (mem_free(name), 1));
	return name;
}

int file_part_place(const char *part, const char *path)
{
	int err;

	if (!sys_rename(part, path))
		return file_sync_parent(path);
	err = sys_fail(path, "replace");
	sys_remove(part);
	return err;
}

void file_part_remove(const char *part)
{
	(void)!sys_remove(part);
}

/* Creates a part of `path`. Returns its descriptor and *name. */
static int open_part(char **name, const char *path)
{
	int fd;

	do {
		mem_free(*name);
		*name = file_part_name(path);
		if (!*name)
			return ERR_NOMEM;
		fd = sys_open(*name, O_WRONLY | O_CREAT | O_EXCL, 0666);
	} while (fd < 0 && errno == EEXIST);
	return fd < 0 ? sys_fail(path, "create") : fd;
}

/* The process that writes `name`, if that is a part of a file called `of`; else 0. */
static pid_t part_writer(const char *name, const char *of)
{
	size_t len = strlen(of), digits, serial;

	if (strncmp(name, of, len) || strncmp(name + len, ".tmp-", 5))
		return 0;
	name += len + 5;
	digits = strspn(name, "0123456789");
	serial = name[digits] == '-' ? strspn(name + digits + 1, "0123456789") : 0;
	return digits && serial && !name[digits + 1 + serial] ? (pid_t)strtol(name, NULL, 10) : 0;
}

enum parts { PARTS_ALL, PARTS_OF_THE_DEAD };

static void clean(const char *dir, const char *const *of, int count, enum parts parts)
{
	char **names = NULL;
	size_t name_count = 0;

	if (file_list_dir(dir, &names, &name_count))
		return;
	for (size_t i = 0; i < name_count; i++) {
		char *path = NULL;
		pid_t writer = 0;

		for (int n = 0; n < count && !writer; n++)
			writer = part_writer(names[i], of[n]);
		if (writer && (parts == PARTS_ALL || (kill(writer, 0) && errno == ESRCH)))
			path = file_join(dir, names[i]);
		if (path && file_kind_of(path) == FILE_REGULAR)
			sys_remove(path);
		mem_free(path);
	}
	file_list_free(names, name_count);
}

void file_clean_parts(const char *dir, const char *const *of, int count)
{
	clean(dir, of, count, PARTS_ALL);
}

void file_clean_parts_of(const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	char *dir = file_dir_of(path);

	if (dir)
		clean(dir, &name, 1, PARTS_OF_THE_DEAD);
	mem_free(dir);
}

int file_is_lfs_pointer(const char *text, size_t len_bytes)
{
	static const char begin[] = "version https://git-lfs";

	return len_bytes >= sizeof(begin) - 1 && !memcmp(text, begin, sizeof(begin) - 1);
}

/* Ends the writing of a part: fsyncs, closes and places it, or removes it after an error. */
static int part_end(int fd, char *part, const char *path, int err)
{
	if (!err)
		err = file_sync(fd, path);
	err = close_after(fd, path, err);
	if (err)
		sys_remove(part);
	return err ? err : file_part_place(part, path);
}

int file_write_all(const char *path, const void *data, size_t len_bytes)
{
	char *part = NULL;
	int fd = open_part(&part, path), err;

	err = fd < 0 ? fd : part_end(fd, part, path, file_write_at(fd, path, data, len_bytes, 0));
	mem_free(part);
	return err;
}

/* Copies all bytes through a block of memory. */
static int copy_bytes(int in, const char *from, int64_t len, int out, const char *to)
{
	enum { CHUNK_BYTES = 1 << 20 };
	char *chunk = mem_alloc(CHUNK_BYTES, 1);
	int err = chunk ? 0 : ERR_NOMEM;

	for (int64_t done = 0, part; done < len && !err; done += part) {
		part = len - done < CHUNK_BYTES ? len - done : CHUNK_BYTES;
		err = file_read_at(in, from, chunk, (size_t)part, done);
		if (!err)
			err = file_write_at(out, to, chunk, (size_t)part, done);
	}
	mem_free(chunk);
	return err;
}

int file_copy(const char *from, const char *to)
{
	char *part = NULL;
	int64_t len = 0;
	int in = file_open_read(from, &len), out, err;

	if (in < 0)
		return in;
	out = open_part(&part, to);
	err = out < 0 ? out : part_end(out, part, to, copy_bytes(in, from, len, out, to));
	mem_free(part);
	close(in);
	return err;
}
