/* Files and directories for the rest of the program.
 *
 * Functions open regular files only, handle EINTR, and fail with messages that name the path and the system's
 * error. Errors: ERR_INPUT if another path would help (missing, wrong kind, no permission), ERR_IO for other
 * failed system calls, ERR_NOMEM. */
#ifndef FERRY_BASE_FILE_H
#define FERRY_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Opens a regular file for reading: not a FIFO, device or directory (never blocks). Returns a
 * descriptor >= 0, or ERR_INPUT (missing, wrong kind, no permission) / ERR_IO. *len_bytes may be NULL. */
int file_open_read(const char *path, int64_t *len_bytes);

/* Reads exactly len_bytes at offset. ERR_IO on failure or a short file; `path` is for the message. */
int file_read_at(int fd, const char *path, void *dst, size_t len_bytes, int64_t offset_bytes);
int file_write_at(int fd, const char *path, const void *src, size_t len_bytes, int64_t offset_bytes);

/* Opens the same file again for reading past the page cache (O_DIRECT); -1, without a text, if that is not
 * supported. file_read_past_cache reads from this descriptor: dst and offset must be multiples of 4096, and
 * dst must have room for len_bytes rounded up to one. Bytes that the system cannot read that way are read
 * from `fd`. */
int file_open_past_cache(int fd, const char *path);
int file_read_past_cache(
        int past_fd, int fd, const char *path, void *dst, size_t len_bytes, int64_t offset_bytes);

/* Reads the whole file into a NUL-terminated block (mem_free). ERR_INPUT for a file above max_bytes. */
int file_read_all(const char *path, int64_t max_bytes, char **data, size_t *len_bytes);

/* 1 if this is the start of a git-lfs pointer in place of a large file. */
int file_is_lfs_pointer(const char *text, size_t len_bytes);

/* A file that appears whole, and replaces one of its name, is written as a *part*: a file beside it,
 * PATH.tmp- and two numbers, which gets the name when it is complete and flushed. A process that is killed
 * leaves the part; whoever writes PATH next removes it (file_clean_parts).
 *
 * file_write_all and file_copy do all of it. Others make a new name (mem_free; NULL: out of memory), write
 * and fsync it, and place it; a part that cannot be placed is removed. */
int file_write_all(const char *path, const void *data, size_t len_bytes);
int file_copy(const char *from, const char *to);
char *file_part_name(const char *path);
int file_part_place(const char *part, const char *path);
void file_part_remove(const char *part); /* if it is there; keeps the current error text */

/* Removes parts, if it can: of these files in `dir`, where no other process writes them now, or of `path`,
 * where the process that made a part is gone from this host. */
void file_clean_parts(const char *dir, const char *const *of, int count);
void file_clean_parts_of(const char *path);

/* Creates a file for writing (file_write_at) and reading back; ERR_INPUT if the name exists. */
int file_create(const char *path);

/* A log: opens it, new or existing, for file_append, which adds bytes at the end: as many as it returns, or
 * -1 with errno. */
int file_open_append(const char *path);
ssize_t file_append(int fd, const char *path, const void *src, size_t len_bytes);

int file_close(int fd, const char *path);    /* closes the descriptor, also after an error */
void file_abandon(int fd, const char *path); /* closes and keeps the current error text */

/* Renames; replaces `to` if it is a file or an empty directory. */
int file_rename(const char *from, const char *to);

/* Exchanges two existing names atomically, also of directories. ERR_UNSUPPORTED if the file system cannot. */
int file_exchange(const char *a, const char *b);

/* Bytes that an ordinary user can still write on the file system of `path` (existing); INT64_MAX: unknown. */
int file_space(const char *path, int64_t *free_bytes);

int file_sync(int fd, const char *path); /* fsync; a failure is final, never retry */

/* OFF: reads and writes bypass the page cache (O_DIRECT); addresses, offsets and lengths must then be
 * multiples of 4096. A write that is refused nevertheless goes through the cache. ERR_UNSUPPORTED, without a
 * text, if the file system cannot. */
enum file_caching { FILE_CACHING_ON, FILE_CACHING_OFF };
int file_set_caching(int fd, enum file_caching caching);
enum file_caching file_get_caching(int fd); /* the current state */

/* Sets the length of the file, zero-filled, and reserves its room on the disk. So writes need not find room,
 * and several at once need not wait for each other as in a growing file. ERR_IO if there is no room; 0
 * without effect if the system cannot. */
int file_reserve(int fd, const char *path, int64_t len_bytes);

/* file_write_back starts writing a range to the disk. file_drop_written waits for it and drops its pages,
 * which bounds memory. Only file_sync makes a file durable. A disk error returned here (ERR_IO) may not be
 * returned by file_sync again. No effect if the system cannot. */
int file_write_back(int fd, const char *path, int64_t offset_bytes, int64_t len_bytes);
int file_drop_written(int fd, const char *path, int64_t offset_bytes, int64_t len_bytes);
int file_sync_dir(const char *path);
int file_sync_parent(const char *path); /* of the directory that holds `path` */

enum file_kind { FILE_NONE, FILE_REGULAR, FILE_DIR, FILE_OTHER };
enum file_kind file_kind_of(const char *path); /* follows links; OTHER also if unknown */
int file_is_link(const char *path);            /* 1 for a symbolic link, also a broken one */

/* 1 if there is no such file, also because the text is longer than any path, as a list of files may be. */
int file_is_no_name(const char *text);

/* ERR_INPUT for a path that is not a directory: "NAME=PATH is a file; expected WANTED" (NAME= only if not
 * NULL), or the system's reason for refusing access. */
int file_refuse_no_dir(const char *name, const char *path, const char *wanted);

int file_make_dir(const char *path);    /* with parents, each durable; an existing directory is fine */
int file_remove_tree(const char *path); /* a missing path is fine */

/* Names in a directory without "." and "..", sorted; free each name and the list with mem_free. */
int file_list_dir(const char *path, char ***names, size_t *count);
void file_list_free(char **names, size_t count);

/* "a/b" from a and b (mem_free), NULL when out of memory. */
char *file_join(const char *dir, const char *name);

/* "a" of a/b, "." of b, "/" of /b (mem_free), NULL when out of memory. */
char *file_dir_of(const char *path);

/* 1 if `dir` contains this name. */
int file_is_in(const char *dir, const char *name);

/* ---- for tests: the system calls of the functions above ---- */

enum file_call_kind {
	FILE_CALL_OPEN,
	FILE_CALL_CREATE,
	FILE_CALL_READ,
	FILE_CALL_WRITE,
	FILE_CALL_RESERVE,
	FILE_CALL_SYNC,
	FILE_CALL_CLOSE,
	FILE_CALL_RENAME,
	FILE_CALL_EXCHANGE,
	FILE_CALL_MKDIR,
	FILE_CALL_REMOVE,
	FILE_CALL_LIST,
	FILE_CALL_STAT,
	FILE_CALL_LOCK,
};

struct file_call {
	enum file_call_kind kind;
	int fd;                /* of calls on an open file; -1 */
	const char *path, *to; /* as messages name it; `to` of a rename or exchange */
	const void *data;      /* of a write */
	size_t len_bytes;      /* of a reservation, too */
	int64_t offset_bytes;
};

/* Sees each call before it is made. 0 lets it pass, an errno makes it fail without being made, and
 * FILE_HOOK_SHORT makes a read or write transfer half (other calls pass). It may also never return. Called
 * for one system call at a time, from any thread. */
enum { FILE_HOOK_SHORT = -1 };
typedef int file_hook(void *context, const struct file_call *call);

/* NULL removes the hook. Call while only one thread uses files. */
void file_hook_set(file_hook *hook, void *context);

#endif
