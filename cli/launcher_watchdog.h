/* A process that outlives this rank and waits for the launcher's end.
 *
 * The PMIx 4.2 server in Open MPI 4.1's mpirun frees a rank's entry twice if that rank dies while it
 * connects. mpirun may then wait forever at its own end, after all ranks have ended. No process of the job is
 * left to notice. So a rank that leaves because another died during MPI's start leaves this process behind.
 */
#ifndef FERRY_CLI_LAUNCHER_WATCHDOG_H
#define FERRY_CLI_LAUNCHER_WATCHDOG_H

/* If no rank of this host is left for three seconds (heartbeat_all_left) and the launcher still runs, sends
 * it SIGTERM, and soon SIGKILL. Does nothing if the launcher is not Open MPI's or this rank does not see the
 * others. Any thread. */
void launcher_watchdog_start(void);

#endif
