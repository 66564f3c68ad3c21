/* The launcher: reads the environment that mpirun, srun or ferry itself set for a job, before MPI starts.
 *
 * Mental model. MPI gives no information before its start is over. All ranks wait for each other in it, and
 * a rank that dies there blocks the others. The launcher's environment is enough for the ranks of a host to
 * find each other without MPI (heartbeat.h). launch.c has the one list of launchers.
 */
#ifndef FERRY_COMM_LAUNCH_H
#define FERRY_COMM_LAUNCH_H

#include <stdint.h>

/* Variables that local_job.h sets for each rank. */
#define LOCAL_JOB_RANK "FERRY_LOCAL_RANK"
#define LOCAL_JOB_SIZE "FERRY_LOCAL_RANKS"
#define LOCAL_JOB_KEY "FERRY_LOCAL_JOB"
#define LOCAL_JOB_SOCKETS "FERRY_LOCAL_SOCKETS"
#define LOCAL_JOB_HEART "FERRY_LOCAL_HEARTBEAT"

struct launch {
	int rank, size;      /* size 1: no launcher, or it started one process */
	int local_size;      /* ranks of this host; 0: unknown */
	int is_local;        /* ferry started the ranks itself */
	int heart_fd;        /* descriptor of heartbeat_make if ferry started the ranks; -1: none */
	int is_foreign;      /* ferry cannot join these ranks (torchrun) */
	const char *program; /* the launcher: "mpirun"; NULL: none */
	const char *said;    /* the variable with the size */
	int64_t key; /* the same for all ranks of the job on this host, and for no others; 0: unknown, or
	                local_size is unknown */
};

/* launch_read: only launchers that ferry can join. launch_read_any: all, and sets is_foreign. */
void launch_read(struct launch *launch);
void launch_read_any(struct launch *launch);

/* The index of this process on its host, from any launcher, even if that sets nothing else. `said`: the
 * variable; NULL: none, and the process is 0 of 1. */
struct launch_local {
	int rank, size;
	const char *said;
};
void launch_read_local(struct launch_local *local);

#endif
