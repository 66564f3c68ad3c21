/* A HuggingFace directory on its way to its place: written under a temporary name beside it, then put there
 * as a whole.
 *
 * Where links lead is where it goes. What no rename can replace (a mount point, the directory that this
 * process stands in) is filled instead: the files move into it one by one, config.json last, so that it is no
 * model before it is complete. Whoever writes owns the place (base/dir_lock.h).
 */
#ifndef FERRY_CHECKPOINT_RESULT_DIR_H
#define FERRY_CHECKPOINT_RESULT_DIR_H

enum hf_export_existing {
	HF_EXPORT_REFUSE, /* it must be absent or empty */
	/* What ferry wrote there is replaced. A directory with anything else in it keeps it, under another
	 * name, which a warning says. */
	HF_EXPORT_REPLACE,
};

struct result_dir {
	char *temp, *final; /* the directory to write into, and where it goes */
	enum hf_export_existing existing;
	int is_fixed;
};

/* Makes the temporary directory; removes what an earlier export left. ERR_INPUT: `dir` cannot be used. */
int result_dir_open(struct result_dir *r, const char *dir, enum hf_export_existing existing);

/* fsync, and in place. */
int result_dir_commit(struct result_dir *r);

/* Removes the temporary directory if it was not put in place. */
void result_dir_close(struct result_dir *r);

/* Can a file of this name be one that ferry writes into such a directory? */
int result_dir_writes(const char *name);

/* 0, or ERR_INPUT that names one of the others. */
int result_dir_check(const char *dir);

#endif
