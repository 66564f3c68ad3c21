/* The launcher: what mpirun, srun or ferry itself says of a job in the environment, before MPI is asked.
 *
 * Mental model. MPI knows nothing of a rank before its own start is over, which is a meeting of all ranks:
 * one that dies in it leaves the others there. What the launcher has put into the environment is enough for
 * the ranks of a host to find each other without MPI (heartbeat.h). launch.c has the one list of launchers.
 */
#ifndef FERRY_COMM_LAUNCH_H
#define FERRY_COMM_LAUNCH_H

#include <stdint.h>

/* What local_job.h says to each rank. */
#define LOCAL_JOB_RANK "FERRY_LOCAL_RANK"
#define LOCAL_JOB_SIZE "FERRY_LOCAL_RANKS"
#define LOCAL_JOB_KEY "FERRY_LOCAL_JOB"
#define LOCAL_JOB_SOCKETS "FERRY_LOCAL_SOCKETS"
#define LOCAL_JOB_HEART "FERRY_LOCAL_HEARTBEAT"

struct launch {
	int rank, size;      /* size 1: there is no launcher, or it started one process */
	int local_size;      /* ranks of this host; 0: not said */
	int is_local;        /* ferry started the ranks itself */
	int heart_fd;        /* heartbeat_make's, of ferry that started them; -1: none */
	int is_foreign;      /* ferry cannot join these ranks (torchrun) */
	const char *program; /* that started it: "mpirun"; NULL: there is no launcher */
	const char *said;    /* the variable that has the size */
	int64_t key; /* the same for all ranks of the job on this host, and for no others; 0: not said, or not
	             how many they are */
};

/* Of the launchers whose ranks ferry joins; of any, is_foreign too. */
void launch_read(struct launch *launch);
void launch_read_any(struct launch *launch);

/* Which process of this host it is, by any launcher, also one that says no more than that. `said`: by which
 * variable; NULL: nobody says it, and it is 0 of 1. */
struct launch_local {
	int rank, size;
	const char *said;
};
void launch_read_local(struct launch_local *local);

#endif
