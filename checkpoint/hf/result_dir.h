/* Writes a HuggingFace directory atomically: under a temporary name beside its place, then renamed.
 *
 * Links are followed. A directory that no rename can replace (a mount point, the current directory) is
 * filled instead: the files move into it one by one, config.json last, so that an incomplete directory is
 * not a model. The writer must own the place (base/dir_lock.h).
 */
#ifndef FERRY_CHECKPOINT_HF_RESULT_DIR_H
#define FERRY_CHECKPOINT_HF_RESULT_DIR_H

enum hf_export_existing {
	HF_EXPORT_REFUSE, /* it must be absent or empty */
	/* Replaces a directory that ferry wrote. A directory with other files is kept under another name, and
	   a warning names it. */
	HF_EXPORT_REPLACE,
};

struct result_dir {
	char *temp, *final; /* the directory to write into, and where it goes */
	enum hf_export_existing existing;
	int is_fixed;
};

/* Makes the temporary directory; removes remains of earlier exports. ERR_INPUT: `dir` cannot be used. */
int result_dir_open(struct result_dir *r, const char *dir, enum hf_export_existing existing);

/* Fsyncs the directory and renames it to its place. */
int result_dir_commit(struct result_dir *r);

/* Removes the temporary directory if it was not committed. */
void result_dir_close(struct result_dir *r);

/* 1 if ferry writes such a file or folder, called `name`, into such a directory. */
int result_dir_owns(const char *path, const char *name);

/* 0 if ferry wrote all files, or ERR_INPUT that names another one. */
int result_dir_check(const char *dir);

#endif
