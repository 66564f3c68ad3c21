/* Jobs on one host: ferry starts the ranks itself, without mpirun.
 *
 * Mental model. The user's process becomes the parent. It makes a pair of sockets for each two ranks, starts
 * itself once for each rank with the same arguments, and waits. A rank reads its number and its sockets from
 * the environment (launch.h, as for mpirun) and joins the others through them. Sockets have no names, so no
 * files of a job remain. A closed socket shows that its rank is gone.
 *
 * The parent forwards each signal once to every rank. If a rank fails, the others learn it through their
 * links; the parent kills those that do not end soon. Ranks are killed if the parent is.
 */
#ifndef FERRY_COMM_LOCAL_JOB_H
#define FERRY_COMM_LOCAL_JOB_H

#include "comm/launch.h"

/* The result of a job, from the first rank that failed. */
struct local_job_end {
	int exit_code; /* exit code of that rank, 1 after a signal; 0: none failed */
	int signal;    /* signal to the parent that ended a rank and must end the parent too; 0: none */
	int is_told;   /* 1: err.h has a text that the rank could not print itself: its death by a signal */
};

/* Runs this program `size` times with these arguments, and waits for all. Call once, before other threads;
 * blocks the user's signals from here on. ERR_DEVICE: not all could be started, and none is left. */
int local_job_run(struct local_job_end *end, int size, char *const argv[]);

/* In a rank: fills its socket to each other rank (-1: to itself). ERR_DEVICE without a parent. */
int local_job_join(int *fds, const struct launch *launch);

#endif
