/* Signals that stop a run: SIGINT, SIGTERM, SIGUSR1 and SIGHUP (not under nohup) set a flag, which the
 * training loop checks between steps.
 *
 * The first signal leaves a line on stderr, so that it is seen before a long step ends. One press of Ctrl-C
 * may come several times (timeout and mpirun signal a process and its group): signals within 0.7 s are one
 * request. A second request changes nothing and says so; a third SIGINT, 2 s after the first or later, ends
 * the process as if nothing were caught. SIGPIPE is ignored while signals are caught: a closed terminal must
 * not end a run. Process-wide; call from the main thread before others start.
 */
#ifndef FERRY_CLI_SIGNALS_H
#define FERRY_CLI_SIGNALS_H

#include <stdint.h>

/* Starts catching. Once per process. SIGNALS_QUIET: without the line. */
enum signals_voice { SIGNALS_SAY, SIGNALS_QUIET };
void signals_start(enum signals_voice voice);

/* The first signal that came, or 0. steps_left: of the run; a signal during the last one stops nothing, and
 * its line says so. */
int signals_pending(int64_t steps_left);

/* From here to signals_interrupt_end a first SIGINT only sets what signals_interrupted tells; a second one
 * ends the process. Not while signals_start's are caught. */
void signals_interrupt_begin(void);
int signals_interrupted(void);
void signals_interrupt_end(void);

/* "SIGTERM", ... */
const char *signals_name(int signal);

/* Ends the process with this exit code if it is still there after so many seconds. */
void signals_exit_after(int seconds, int exit_code);

/* In the ranks' start no step ends. From here to signals_release, or to signals_start, which minds it, a
 * signal only waits. Other threads than the program's own may get it, so blocking is not enough. */
void signals_hold(void);
int signals_held(void);
void signals_release(void);

/* The run is over and its exit code stands: what comes now is ignored, up to the end of the process. */
void signals_stop(void);

/* Ends the process as this signal would have. */
void signals_end_by(int signal);

#endif
