/* System calls on files, each by way of the hook of tests (file_hook_set in base/file.h). For base/file*.c.
 * They answer as the calls do, with errno; nothing here sets an error's text but sys_fail. */
#ifndef FERRY_BASE_SYS_H
#define FERRY_BASE_SYS_H

#include "base/file.h"

#include <sys/stat.h>
#include <sys/types.h>

/* "PATH: cannot VERB: what the system said", with the code that goes with errno; or ERR_IO whatever it is. */
int sys_fail(const char *path, const char *verb);
int sys_fail_io(const char *path, const char *verb);

/* 0, or -1 with errno where a call of this kind, which the caller makes itself, is to fail. */
int sys_ask(enum file_call_kind kind, const char *path, const char *to);

int sys_open(const char *path, int flags, mode_t mode);
ssize_t sys_read(int fd, const char *path, void *dst, size_t len_bytes, int64_t offset_bytes);
ssize_t sys_write(int fd, const char *path, const void *src, size_t len_bytes, int64_t offset_bytes);
int sys_reserve(int fd, const char *path, int64_t len_bytes);
int sys_sync(int fd, const char *path);
int sys_close(int fd, const char *path); /* the descriptor is gone afterwards, whatever the answer */
int sys_rename(const char *from, const char *to);
int sys_stat(const char *path, struct stat *st);
int sys_mkdir(const char *path);
int sys_remove(const char *path);

/* A lock of the whole file against all that ask for one; goes with the open file. EAGAIN or EACCES: another
 * has it. */
int sys_lock(int fd, const char *path);
int sys_lock_is_held(int fd); /* by another */

#endif
