/* A file system with the habits of network disks, over an ordinary directory; for
 * scripts/campaign_disks.py.
 *
 *     fuse_disk BACKING MOUNTPOINT [fold]
 *
 * If an open file is removed, it stays under a hidden name (.fuse_hidden...), as on NFS; its directory
 * cannot be removed before it is closed. Direct writes (O_DIRECT) fail when they write. Exchanging two
 * names and reserving space are not supported. fold: names that differ only in case are equal. SIGUSR1
 * makes the file system read-only, or writable again. SIGUSR2 makes it full, or frees the room again.
 */
#define FUSE_USE_VERSION 31
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const char *backing;
static int is_folding;
static volatile sig_atomic_t is_read_only, is_full;

static void toggle(int signal)
{
	if (signal == SIGUSR1)
		is_read_only = !is_read_only;
	else
		is_full = !is_full;
}

/* Where `path` lies; answers with 0 or -errno. */
static int place_of(char real[PATH_MAX], const char *path)
{
	int len = snprintf(real, PATH_MAX, "%s%s", backing, path);

	if (len < 0 || len >= PATH_MAX)
		return -ENAMETOOLONG;
	for (char *c = real + strlen(backing); is_folding && *c; c++)
		*c = (char)tolower((unsigned char)*c);
	return 0;
}

/* The same for what changes something. */
static int change_place(char real[PATH_MAX], const char *path)
{
	return is_read_only ? -EROFS : place_of(real, path);
}

static int answer(int rc)
{
	return rc < 0 ? -errno : 0;
}

static int disk_getattr(const char *path, struct stat *st, struct fuse_file_info *file)
{
	char real[PATH_MAX];
	int rc;

	if (file)
		return answer(fstat((int)file->fh, st));
	rc = place_of(real, path);
	return rc ? rc : answer(lstat(real, st));
}

static int disk_readlink(const char *path, char *target, size_t size)
{
	char real[PATH_MAX];
	int rc = place_of(real, path);
	ssize_t len = rc ? 0 : readlink(real, target, size - 1);

	if (rc || len < 0)
		return rc ? rc : -errno;
	target[len] = 0;
	return 0;
}

static int disk_readdir(const char *path, void *out, fuse_fill_dir_t fill, off_t offset,
        struct fuse_file_info *file, enum fuse_readdir_flags flags)
{
	char real[PATH_MAX];
	struct dirent *entry;
	int rc = place_of(real, path);
	DIR *dir = rc ? NULL : opendir(real);

	(void)offset, (void)file, (void)flags;
	if (!dir)
		return rc ? rc : -errno;
	while ((entry = readdir(dir)))
		if (fill(out, entry->d_name, NULL, 0, 0))
			break;
	closedir(dir);
	return 0;
}

static int disk_mkdir(const char *path, mode_t mode)
{
	char real[PATH_MAX];
	int rc = is_full ? -ENOSPC : change_place(real, path);

	return rc ? rc : answer(mkdir(real, mode));
}

static int disk_unlink(const char *path)
{
	char real[PATH_MAX];
	int rc = change_place(real, path);

	return rc ? rc : answer(unlink(real));
}

static int disk_rmdir(const char *path)
{
	char real[PATH_MAX];
	int rc = change_place(real, path);

	return rc ? rc : answer(rmdir(real));
}

static int disk_symlink(const char *target, const char *path)
{
	char real[PATH_MAX];
	int rc = change_place(real, path);

	return rc ? rc : answer(symlink(target, real));
}

static int disk_rename(const char *from, const char *to, unsigned flags)
{
	char real_from[PATH_MAX], real_to[PATH_MAX];
	int rc = flags ? -EINVAL : change_place(real_from, from);

	if (!rc)
		rc = change_place(real_to, to);
	return rc ? rc : answer(rename(real_from, real_to));
}

static int disk_chmod(const char *path, mode_t mode, struct fuse_file_info *file)
{
	char real[PATH_MAX];
	int rc = change_place(real, path);

	(void)file;
	return rc ? rc : answer(chmod(real, mode));
}

static int disk_utimens(const char *path, const struct timespec times[2], struct fuse_file_info *file)
{
	char real[PATH_MAX];
	int rc = change_place(real, path);

	(void)file;
	return rc ? rc : answer(utimensat(AT_FDCWD, real, times, AT_SYMLINK_NOFOLLOW));
}

static int disk_truncate(const char *path, off_t size, struct fuse_file_info *file)
{
	char real[PATH_MAX];
	int rc = change_place(real, path);

	if (rc)
		return rc;
	return answer(file ? ftruncate((int)file->fh, size) : truncate(real, size));
}

static int open_real(const char *path, int flags, mode_t mode, struct fuse_file_info *file)
{
	char real[PATH_MAX];
	int changes = (flags & O_ACCMODE) != O_RDONLY || flags & (O_CREAT | O_TRUNC);
	int rc = changes ? change_place(real, path) : place_of(real, path), fd;

	if (rc)
		return rc;
	if (flags & O_CREAT && is_full)
		return -ENOSPC;
	fd = open(
	        real, (flags & ~(O_DIRECT | O_APPEND)) | O_CLOEXEC, mode); /* the kernel appends by offset */
	if (fd < 0)
		return -errno;
	file->fh = (uint64_t)fd;
	return 0;
}

static int disk_open(const char *path, struct fuse_file_info *file)
{
	return open_real(path, file->flags & ~O_CREAT, 0, file);
}

static int disk_create(const char *path, mode_t mode, struct fuse_file_info *file)
{
	return open_real(path, file->flags | O_CREAT, mode, file);
}

static int disk_read(const char *path, char *out, size_t size, off_t offset, struct fuse_file_info *file)
{
	ssize_t got = pread((int)file->fh, out, size, offset);

	(void)path;
	return got < 0 ? -errno : (int)got;
}

static int disk_write(
        const char *path, const char *data, size_t size, off_t offset, struct fuse_file_info *file)
{
	ssize_t put;

	(void)path;
	if (is_read_only || is_full)
		return is_read_only ? -EROFS : -ENOSPC;
	if (file->flags & O_DIRECT)
		return -EINVAL;
	put = pwrite((int)file->fh, data, size, offset);
	return put < 0 ? -errno : (int)put;
}

static int disk_fsync(const char *path, int data_only, struct fuse_file_info *file)
{
	(void)path, (void)data_only;
	return is_read_only ? -EROFS : answer(fsync((int)file->fh));
}

static int disk_release(const char *path, struct fuse_file_info *file)
{
	(void)path;
	close((int)file->fh);
	return 0;
}

static int disk_statfs(const char *path, struct statvfs *st)
{
	char real[PATH_MAX];
	int rc = place_of(real, path);

	return rc ? rc : answer(statvfs(real, st));
}

static const struct fuse_operations operations = {
        .getattr = disk_getattr,
        .readlink = disk_readlink,
        .readdir = disk_readdir,
        .mkdir = disk_mkdir,
        .unlink = disk_unlink,
        .rmdir = disk_rmdir,
        .symlink = disk_symlink,
        .rename = disk_rename,
        .chmod = disk_chmod,
        .utimens = disk_utimens,
        .truncate = disk_truncate,
        .open = disk_open,
        .create = disk_create,
        .read = disk_read,
        .write = disk_write,
        .fsync = disk_fsync,
        .release = disk_release,
        .statfs = disk_statfs,
};

int main(int argc, char *argv[])
{
	struct sigaction action = {.sa_handler = toggle, .sa_flags = SA_RESTART};
	char *args[] = {argv[0], "-f", "-s", argc > 2 ? argv[2] : NULL, NULL};

	if (argc < 3) {
		fprintf(stderr, "usage: %s BACKING MOUNTPOINT [fold]\n", argv[0]);
		return 2;
	}
	backing = realpath(argv[1], NULL);
	is_folding = argc > 3 && !strcmp(argv[3], "fold");
	if (!backing) {
		perror(argv[1]);
		return 1;
	}
	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGUSR2, &action, NULL);
	umask(0);
	return fuse_main(4, args, &operations, NULL);
}
