/* Who owns a directory: one process, from dir_lock_take to dir_lock_release or to its end, however it ends.
 *
 * Mental model. The lock is a lock of the kernel on a small file, and not the file itself: a file that a
 * killed process left behind is free. Its text names the owner, for messages alone. The kind is a lock of
 * fcntl on an open file (F_OFD_SETLK): NFS and other network file systems carry it to their server, it goes
 * with the process, and two owners in one process exclude each other as well. docs/design/run-directory.md
 * says why.
 *
 * A file system without locks is warned about, and the lock is then taken to be there.
 */
#ifndef FERRY_BASE_DIR_LOCK_H
#define FERRY_BASE_DIR_LOCK_H

struct dir_lock;

extern const char dir_lock_name[]; /* ".ferry.lock", of a lock that stands in what it guards */

/* Locks by the file `name` in `dir`, which is made where it is missing, with its parents. ERR_INPUT: another
 * process has it, which the text names where it is known; or the file cannot be made. ERR_IO, ERR_NOMEM. */
int dir_lock_take(struct dir_lock **lock, const char *dir, const char *name);

/* 1 while the lock's file stands at its path: nobody moved or removed it, or its directory. */
int dir_lock_is_there(const struct dir_lock *lock);

/* Where the file stands now, if it is not at its path: *dir (mem_free) is the directory that was moved, with
 * the lock in it; NULL: the file was removed, or moved where the kernel does not see it (by another host).
 * ERR_NOMEM.
 */
int dir_lock_find(char **dir, const struct dir_lock *lock);

/* Its directory is `dir` from here on. ERR_NOMEM. */
int dir_lock_follow(struct dir_lock *lock, const char *dir);

/* Removes the file, and the directories that were made for it where nothing else came into them. NULL is
 * allowed. */
void dir_lock_release(struct dir_lock *lock);

/* Writes nothing. ERR_INPUT names the process that owns `dir` by that file; 0 where nobody does. */
int dir_lock_look(const char *dir, const char *name);

#endif
