/* The launcher: what mpirun or srun says of a job in the environment, before MPI is asked.
 *
 * Mental model. MPI knows nothing of a rank before its own start is over, which is a meeting of all ranks:
 * one that dies in it leaves the others there. What the launcher has put into the environment is enough for
 * the ranks of a host to find each other without MPI (heartbeat.h).
 */
#ifndef FERRY_COMM_LAUNCH_H
#define FERRY_COMM_LAUNCH_H

#include <stdint.h>

struct launch {
	int rank, size; /* size 1: there is no launcher, or it started one process */
	int local_size; /* ranks of this host; 0: not said */
	int64_t key; /* the same for all ranks of the job on this host, and for no others; 0: not said, or not
	             how many they are */
};

void launch_read(struct launch *launch);

#endif
