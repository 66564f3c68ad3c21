/* mpirun, where it starts ranks; tests/CMakeLists.txt tries it. */
#ifndef FERRY_TESTS_LAUNCHER_H
#define FERRY_TESTS_LAUNCHER_H

#include <stdlib.h>

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

#endif
