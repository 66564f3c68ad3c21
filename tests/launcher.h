/* mpirun, where it starts ranks; tests/CMakeLists.txt tries it. */
#ifndef FERRY_TESTS_LAUNCHER_H
#define FERRY_TESTS_LAUNCHER_H

#include "base/file.h"

#include <stdlib.h>
#include <unistd.h>

/* Its path; NULL where launcher_absence says why. */
static inline const char *launcher_path(void)
{
	const char *path = getenv("FERRY_MPIRUN");

	return path && *path ? path : NULL;
}

static inline const char *launcher_absence(void)
{
	const char *why = getenv("FERRY_NO_MPIRUN");

	return why && *why ? why : "FERRY_MPIRUN names no mpirun";
}

static char launcher_files[] = "/tmp/ferry-mpi-XXXXXX";
static pid_t launcher_owner;

static inline void launcher_remove(void)
{
	if (getpid() == launcher_owner)
		file_remove_tree(launcher_files);
}

/* Gives the jobs of this test a directory of their own for the launcher's files. Two launchers of Open MPI
 * 4.1 that start at once fail now and then: both make the directory that all jobs of a user share. */
static inline void launcher_apart(void)
{
	if (!mkdtemp(launcher_files))
		return;
	launcher_owner = getpid();
	setenv("OMPI_MCA_orte_tmpdir_base", launcher_files, 1);
	setenv("PRTE_MCA_prte_tmpdir_base", launcher_files, 1);
	atexit(launcher_remove);
}

#endif
