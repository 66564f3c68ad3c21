/* System calls on files for base/. Each first runs the hook of tests (file_hook_set in base/file.h).
 *
 * They return what the system call returns, with errno. Only sys_fail and sys_fail_io set an error text. */
#ifndef FERRY_BASE_SYS_H
#define FERRY_BASE_SYS_H

#include "base/file.h"

#include <sys/stat.h>
#include <sys/types.h>

/* Sets "PATH: cannot VERB: REASON" from errno. sys_fail returns ERR_INPUT, ERR_NOMEM or ERR_IO by errno,
 * sys_fail_io always ERR_IO. */
int sys_fail(const char *path, const char *verb);
int sys_fail_io(const char *path, const char *verb);

/* Runs the hook for a call that the caller makes itself. 0, or -1 with errno if the call must fail. */
int sys_ask(enum file_call_kind kind, const char *path, const char *to);

int sys_open(const char *path, int flags, mode_t mode);
ssize_t sys_read(int fd, const char *path, void *dst, size_t len_bytes, int64_t offset_bytes);
ssize_t sys_write(int fd, const char *path, const void *src, size_t len_bytes, int64_t offset_bytes);
int sys_reserve(int fd, const char *path, int64_t len_bytes);
int sys_sync(int fd, const char *path);
int sys_close(int fd, const char *path); /* closes the descriptor even if it fails */
int sys_rename(const char *from, const char *to);
int sys_stat(const char *path, struct stat *st);
int sys_mkdir(const char *path);
int sys_remove(const char *path);

/* Locks the whole file against other locks; ends with the open file. EAGAIN or EACCES: another has the
 * lock. */
int sys_lock(int fd, const char *path);
int sys_lock_is_held(int fd); /* by another open file */

#endif
