/* Ownership of a directory by one process, from dir_lock_take to dir_lock_release or to the end of the
 * process.
 *
 * Mental model. The lock is a kernel lock on a small file, not the file itself, so a file that a killed
 * process left behind is not locked. Its text names the owner, only for messages. It is a lock of fcntl on an
 * open file (F_OFD_SETLK). NFS and other network file systems send it to their server. It ends with the
 * process, and it excludes a second owner in the same process too. docs/design/run-directory.md has the
 * reasons.
 *
 * On a file system without locks ferry warns and goes on as if it had the lock.
 */
#ifndef FERRY_BASE_DIR_LOCK_H
#define FERRY_BASE_DIR_LOCK_H

struct dir_lock;

extern const char dir_lock_name[]; /* ".ferry.lock", for a lock inside the directory that it guards */

/* Locks the file `name` in `dir`; makes the directory and its parents if missing. ERR_INPUT: another process
 * has the lock (the text names it if known), or the file cannot be made. ERR_IO, ERR_NOMEM. */
int dir_lock_take(struct dir_lock **lock, const char *dir, const char *name);

/* 1 while the lock's file is at its path: neither it nor its directory was moved or removed. */
int dir_lock_is_there(const struct dir_lock *lock);

/* Finds the file if it is not at its path. *dir (mem_free) is the moved directory with the lock in it. NULL:
 * the file was removed, or another host moved it. ERR_NOMEM. */
int dir_lock_find(char **dir, const struct dir_lock *lock);

/* Sets the lock's directory to `dir`. ERR_NOMEM. */
int dir_lock_follow(struct dir_lock *lock, const char *dir);

/* Removes the file, and the directories that were made for it if they are empty. NULL is allowed. */
void dir_lock_release(struct dir_lock *lock);

/* Checks without writing: ERR_INPUT names the process that owns `dir` through that file; 0 if none does. */
int dir_lock_look(const char *dir, const char *name);

#endif
