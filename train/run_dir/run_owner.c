/* Takes and keeps the ownership of a run's directory. */
#include "train/run_dir/run_owner.h"

#include "train/run_dir/run_dir.h"

#include "base/dir_lock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/branch.h"
#include "checkpoint/file/temp_dir.h"
#include "comm/world.h"

#include <time.h>

enum { BUSY_TRIES = 20, BUSY_NS = 100000000 };

/* ---- taking the directory ---- */

static struct dir_lock *owned; /* output_dir, or the directory that replaced it */
static struct dir_lock *spare; /* in save_fallback_dir */

/* Refuses an export into a run's directory or its model/, because both would write there. */
static int check_run(const char *parent, const char *dir)
{
	int err = dir_lock_look(dir, dir_lock_name);

	return err ? err : dir_lock_look(parent, dir_lock_name);
}

/* export and init replace a directory with all its files, so the lock is beside it. It is inside if the
 * directory cannot be replaced. */
static int own_result(const char *dir)
{
	char *parent = NULL, *name = NULL, *file = NULL;
	int err = temp_dir_place(&parent, &name, dir);

	if (!err)
		err = check_run(parent, dir);
	if (!err && temp_dir_is_fixed(dir))
		err = dir_lock_take(&owned, dir, dir_lock_name);
	else if (!err) {
		file = mem_printf(".%s%s", name, dir_lock_name);
		err = file ? dir_lock_take(&owned, parent, file) : ERR_NOMEM;
	}
	mem_free(parent);
	mem_free(name);
	mem_free(file);
	return err;
}

/* Removes temporary directories, so that an earlier run without its lock can commit nothing here after this
 * run has read the directory. The first save reports what cannot be removed. */
static int train_take(const struct config *c)
{
	int err = dir_lock_take(&owned, c->output_dir, dir_lock_name);

	if (!err)
		run_dir_clean(c->output_dir);
	if (!err && c->resume_from_checkpoint) {
		(void)!temp_dir_clean(c->output_dir, "step-", TEMP_DIR_NUMBERED);
		for (const char *const *result = run_dir_results; *result; result++)
			(void)!temp_dir_clean(c->output_dir, *result, TEMP_DIR_WHOLE);
	}
	return err;
}

/* What export and init put in place, they put beside it first. */
static int check_writable(const struct config *c)
{
	const char *where = config_where(c, "output_dir");
	int is_beside = c->verb != VERB_TRAIN && !temp_dir_is_fixed(c->output_dir);
	char *parent = NULL, *name = NULL;
	int err = temp_dir_place(&parent, &name, c->output_dir);

	if (!err)
		err = temp_dir_check_writable(is_beside ? parent : c->output_dir, where, c->output_dir);
	mem_free(parent);
	mem_free(name);
	return err;
}

int run_owner_take(const struct config *c)
{
	enum file_kind kind = c->output_dir ? file_kind_of(c->output_dir) : FILE_OTHER;
	int err = 0;

	if (world_self()->rank || !verb_makes_result(c->verb) || (kind != FILE_NONE && kind != FILE_DIR))
		return 0;
	err = check_writable(c);
	if (err || c->dry_run)
		return err;
	err = c->verb == VERB_TRAIN ? train_take(c) : own_result(c->output_dir);
	return err ? err_note(err, "output_dir") : 0;
}

void run_owner_release(void)
{
	dir_lock_release(owned);
	dir_lock_release(spare);
	owned = spare = NULL;
}

/* ---- a directory of this run alone ---- */

/* NAME.N in save_fallback_dir, or beside output_dir. */
static char *spare_path(const struct config *c, int number)
{
	char *parent = NULL, *name = NULL, *path = NULL;

	if (!temp_dir_place(&parent, &name, c->output_dir))
		path = mem_printf(
		        "%s/%s.%d", c->save_fallback_dir ? c->save_fallback_dir : parent, name, number);
	mem_free(parent);
	mem_free(name);
	return path;
}

/* 1: this run owns it. 0: it belongs to another run or is not empty. */
static int spare_take(struct dir_lock **lock, const char *path)
{
	char **names = NULL;
	size_t count = 0;
	int err;

	*lock = NULL;
	if (file_kind_of(path) != FILE_NONE || file_is_link(path))
		return 0;
	err = dir_lock_take(lock, path, dir_lock_name);
	if (err)
		return dir_lock_look(path, dir_lock_name) == ERR_INPUT ? 0 : err;
	err = temp_dir_list(path, &names, &count);
	file_list_free(names, count);
	if (err || count) {
		dir_lock_release(*lock);
		*lock = NULL;
	}
	return err ? err : !count;
}

static int spare_make(struct dir_lock **lock, char **path, const struct config *c)
{
	int taken = 0;

	*path = NULL;
	for (int n = 1; !taken; n++) {
		mem_free(*path);
		*path = spare_path(c, n);
		taken = *path ? spare_take(lock, *path) : ERR_NOMEM;
	}
	if (taken > 0)
		return 0;
	mem_free(*path);
	*path = NULL;
	return taken;
}

int run_owner_spare(char **path, const struct config *c)
{
	int err;

	dir_lock_release(spare);
	err = spare_make(&spare, path, c);
	if (!err && (err = run_dir_write_config(c, *path, c->output_dir))) {
		mem_free(*path);
		*path = NULL;
	}
	return err;
}

/* ---- keeping the directory ---- */

int run_owner_is_there(void)
{
	return !owned || dir_lock_is_there(owned);
}

int run_owner_check(void)
{
	return run_owner_is_there()
	               ? 0
	               : err_set(ERR_IO, "output_dir was moved or removed, or belongs to another run");
}

/* Whether this process wrote the directory's branch.json. */
static int is_ours(const char *dir, const struct run_branch *branch)
{
	uint64_t process = 0;

	return !branch_read_process(&process, dir) && process == branch->process;
}

static int files_write(const char *dir, const struct config *c, const struct run_branch *branch)
{
	int err = branch_write(branch->line, branch->process, dir);

	return err ? err : run_dir_write_config(c, dir, dir);
}

/* Follows a directory that was moved. */
static int follow(enum run_place *place, char **dir, char *now, const struct config *c)
{
	int err = dir_lock_follow(owned, now);

	if (err)
		return err;
	log_warn("output_dir=%s was moved to %s during the run; the run goes on there", *dir, now);
	if (run_dir_write_config(c, now, now))
		log_warn("%s/config.yaml has the old output_dir: %s", now, err_text());
	mem_free(*dir);
	*dir = mem_strdup(now);
	*place = RUN_PLACE_MOVED;
	return *dir ? 0 : ERR_NOMEM;
}

/* Goes on in a new directory, because another run has or had the old one. */
static int leave(enum run_place *place, char **dir, const struct config *c, const struct run_branch *branch)
{
	struct dir_lock *lock = NULL;
	char *path = NULL;
	int err = spare_make(&lock, &path, c);

	if (!err)
		err = files_write(path, c, branch);
	if (err) {
		dir_lock_release(lock);
		mem_free(path);
		return err_note(err, "output_dir=%s now belongs to another run", *dir);
	}
	log_warn("%s was removed during this run, and another run took output_dir=%s; this run goes on in %s",
	        dir_lock_name, *dir, path);
	dir_lock_release(owned);
	owned = lock;
	mem_free(*dir);
	*dir = path;
	*place = RUN_PLACE_ANEW;
	return 0;
}

/* Takes the directory again if no run has it, after its lock file, or all of it, was removed. */
static int take_again(
        enum run_place *place, char **dir, const struct config *c, const struct run_branch *branch)
{
	struct dir_lock *lock = NULL;
	int err = dir_lock_take(&lock, *dir, dir_lock_name), is_new;

	for (int i = 0; i < BUSY_TRIES && err && dir_lock_look(*dir, dir_lock_name) == ERR_INPUT; i++) {
		nanosleep(&(struct timespec){.tv_nsec = BUSY_NS}, NULL); /* the other may be about to fail */
		err = dir_lock_take(&lock, *dir, dir_lock_name);
	}
	if (err)
		return dir_lock_look(*dir, dir_lock_name) == ERR_INPUT ? leave(place, dir, c, branch) : err;
	is_new = !run_dir_is_run(*dir);
	if (!is_new && !is_ours(*dir, branch)) {
		dir_lock_release(lock);
		return leave(place, dir, c, branch);
	}
	err = is_new ? files_write(*dir, c, branch) : 0;
	if (err) {
		dir_lock_release(lock);
		return err;
	}
	if (is_new)
		log_warn("output_dir=%s was removed during the run; ferry makes it again, but its files are "
		         "lost",
		        *dir);
	else
		log_warn("%s/%s was removed during the run; ferry puts it back, because it keeps other runs "
		         "out",
		        *dir, dir_lock_name);
	dir_lock_release(owned);
	owned = lock;
	*place = is_new ? RUN_PLACE_ANEW : RUN_PLACE_SAME;
	return 0;
}

int run_owner_keep(enum run_place *place, char **dir, const struct config *c, const struct run_branch *branch)
{
	char *now = NULL;
	int err;

	*place = RUN_PLACE_SAME;
	if (run_owner_is_there())
		return 0;
	err = dir_lock_find(&now, owned);
	if (!err && now && is_ours(now, branch))
		err = follow(place, dir, now, c);
	else if (!err)
		err = take_again(place, dir, c, branch);
	mem_free(now);
	return err == ERR_INPUT ? err_reword(ERR_IO, "%s", err_text()) : err;
}
