/* Directories that appear whole or not at all: written under a temporary name, then put in place.
 *
 * A temporary directory has the name "<stem>.<16 hex digits>.tmp" beside its final name. temp_dir_clean
 * removes such directories of earlier processes.
 */
#ifndef FERRY_CHECKPOINT_FILE_TEMP_DIR_H
#define FERRY_CHECKPOINT_FILE_TEMP_DIR_H

#include <stddef.h>
#include <stdint.h>

/* A random id from the kernel, or from time and pid if the kernel has none. */
uint64_t temp_dir_id(void);

/* "PARENT/STEM.ID.tmp" (mem_free), NULL if out of memory. Creates no directory. */
char *temp_dir_name(const char *parent, const char *stem, uint64_t id);

/* Removes all of PARENT/STEM.<id>.tmp; NUMBERED: also those with digits after STEM. The caller must own
 * these names (base/dir_lock.h). A previous owner that still writes there can no longer commit. */
enum temp_dir_stem { TEMP_DIR_WHOLE, TEMP_DIR_NUMBERED };
int temp_dir_clean(const char *parent, const char *stem, enum temp_dir_stem kind);

/* Fsyncs `temp`, renames it to `final` (replacing and removing a directory there), fsyncs the parent. After
 * ERR_* either name may have the new directory, whole. */
int temp_dir_commit(const char *temp, const char *final);

/* Renames what is not ferry's, as the error in force says, to "PATH.replaced-N", and warns with its text.
 * Returns that error if no name is free, or ERR_IO, ERR_NOMEM. */
int temp_dir_set_aside(const char *path);

/* Removes a directory. It never exists half removed under its own name. */
int temp_dir_remove(const char *path, const char *stem);

/* 1 for a directory that no rename can replace: a mount point, the current directory, the root. */
int temp_dir_is_fixed(const char *path);

/* Like file_list_dir, but without a lock and lost+found. */
int temp_dir_list(const char *path, char ***names, size_t *count);

/* ERR_INPUT that names the file if is_own returns 0 for a path and name in `dir`. */
int temp_dir_check(const char *dir, int (*is_own)(const char *path, const char *name));

/* As temp_dir_split, but follows links if `path` leads to a directory. */
int temp_dir_place(char **parent, char **name, const char *path);

/* The directory of `path` and the name in it (mem_free both); ignores trailing slashes. */
int temp_dir_split(char **parent, char **name, const char *path);

/* `path`, or the nearest one above it that exists; a broken link counts as one (mem_free). */
int temp_dir_nearest(char **nearest, const char *path);

/* ERR_INPUT if nothing can be made in `dir`: the nearest one is no directory, or cannot be written. The text
 * begins with "where=path". */
int temp_dir_check_writable(const char *dir, const char *where, const char *path);

#endif
