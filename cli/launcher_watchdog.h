/* A process that outlives this rank and waits for the launcher's end.
 *
 * The PMIx 4.2 server in Open MPI 4.1's mpirun frees a rank's entry twice where that rank dies while it says
 * hello, and then may wait for ever at its own end, when all ranks have ended. Nobody of the job is left to
 * see it, so a rank that leaves because another died in MPI's start leaves this behind.
 */
#ifndef FERRY_CLI_LAUNCHER_WATCHDOG_H
#define FERRY_CLI_LAUNCHER_WATCHDOG_H

/* If no rank of this host is there for three seconds (heartbeat_all_left) and the launcher still is, it gets
 * SIGTERM, and soon SIGKILL. Nothing is started where the launcher is not one of Open MPI's, or where this
 * rank does not see the others. Any thread. */
void launcher_watchdog_start(void);

#endif
