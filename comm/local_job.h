/* Jobs of one host: ranks that ferry itself starts, without mpirun.
 *
 * Mental model. The process that a person started becomes the parent: it makes a pair of sockets for each two
 * ranks, starts itself again once for each rank, with the same arguments, and waits. A rank finds its number
 * and its sockets in the environment (launch.h reads it as that of mpirun) and joins the others by them.
 * Sockets have no names, so nothing of a job can be left behind, and one that closes says that its rank is
 * gone.
 *
 * Signals to the parent reach each rank once. When a rank fails the others hear of it by themselves; those
 * that do not end soon are killed. Ranks are killed when the parent is.
 */
#ifndef FERRY_COMM_LOCAL_JOB_H
#define FERRY_COMM_LOCAL_JOB_H

#include "comm/launch.h"

/* How it went: of the first rank that failed. */
struct local_job_end {
	int exit_code; /* as it ended, 1 where a signal ended it; 0: none failed */
	int signal;    /* that the parent got and that ended a rank: it is to end the parent too; 0: none */
	int is_told; /* there is a text (err.h) of what a rank cannot have said itself: its death by a signal
	              */
};

/* Runs this program `size` times with these arguments, and waits for all. Once, before other threads; signals
 * of a person are blocked from here on. ERR_DEVICE: not all could be started, and none is there. */
int local_job_run(struct local_job_end *end, int size, char *const argv[]);

/* In a rank: its socket to each other rank (-1: to itself). ERR_DEVICE where no parent is there. */
int local_job_join(int *fds, const struct launch *launch);

#endif
