/* Directories that appear whole or not at all: written under a temporary name, then put in place.
 *
 * A temporary directory is called "<stem>.<16 hex digits>.tmp" and stands beside its final name. Whatever of
 * that form an earlier process left behind is garbage: temp_dir_clean removes it.
 */
#ifndef FERRY_CHECKPOINT_TEMP_DIR_H
#define FERRY_CHECKPOINT_TEMP_DIR_H

#include <stddef.h>
#include <stdint.h>

/* Hard to guess twice: from the kernel, or time and pid where it gives none. */
uint64_t temp_dir_id(void);

/* "PARENT/STEM.ID.tmp" (mem_free), NULL when out of memory. Makes nothing. */
char *temp_dir_name(const char *parent, const char *stem, uint64_t id);

/* Removes all of PARENT/STEM.<id>.tmp; NUMBERED: also those with digits after STEM. Whoever calls it owns
 * these names (base/dir_lock.h). A process that owned them before and still writes there can put none in its
 * place any more. */
enum temp_dir_stem { TEMP_DIR_WHOLE, TEMP_DIR_NUMBERED };
int temp_dir_clean(const char *parent, const char *stem, enum temp_dir_stem kind);

/* Directory and then the name: fsync of `temp`, rename to `final` (a directory that stands there is replaced
 * and removed), fsync of the parent. After ERR_* either name may hold the new directory, whole. */
int temp_dir_commit(const char *temp, const char *final);

/* Takes a directory away without a moment in which it stands half removed under its own name. */
int temp_dir_remove(const char *path, const char *stem);

/* A directory that no rename can replace: a mount point, the one that this process stands in, the root. */
int temp_dir_is_fixed(const char *path);

/* Names in it, but for those that are no content: a lock, lost+found. As file_list_dir. */
int temp_dir_list(const char *path, char ***names, size_t *count);

/* ERR_INPUT, with the name in its text: one of these is not ferry's. is_own: 1 or 0, of its path and name. */
int temp_dir_check(const char *dir, int (*is_own)(const char *path, const char *name));

/* As temp_dir_split, of the directory that `path` leads to by links where it is one. */
int temp_dir_place(char **parent, char **name, const char *path);

/* The directory that holds `path` and the name in it (mem_free both); trailing slashes do not count. */
int temp_dir_split(char **parent, char **name, const char *path);

#endif
