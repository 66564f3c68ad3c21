/* The launcher: what mpirun, srun or ferry itself says of a job in the environment, before MPI is asked.
 *
 * Mental model. MPI knows nothing of a rank before its own start is over, which is a meeting of all ranks:
 * one that dies in it leaves the others there. What the launcher has put into the environment is enough for
 * the ranks of a host to find each other without MPI (heartbeat.h).
 */
#ifndef FERRY_COMM_LAUNCH_H
#define FERRY_COMM_LAUNCH_H

#include <stdint.h>

/* What local_job.h says to each rank. */
#define LOCAL_JOB_RANK "FERRY_LOCAL_RANK"
#define LOCAL_JOB_SIZE "FERRY_LOCAL_RANKS"
#define LOCAL_JOB_KEY "FERRY_LOCAL_JOB"
#define LOCAL_JOB_SOCKETS "FERRY_LOCAL_SOCKETS"

struct launch {
	int rank, size;      /* size 1: there is no launcher, or it started one process */
	int local_size;      /* ranks of this host; 0: not said */
	int is_local;        /* ferry started the ranks itself */
	const char *program; /* that started it: "mpirun"; NULL: there is no launcher */
	int64_t key; /* the same for all ranks of the job on this host, and for no others; 0: not said, or not
	             how many they are */
};

void launch_read(struct launch *launch);

/* The key of a job that ferry starts, by what LOCAL_JOB_KEY says. */
int64_t launch_local_key(const char *job);

#endif
