/* Signals that stop a run (base/stop_signals.h; SIGHUP not under nohup) set a flag, which the
 * training loop checks between steps.
 *
 * The first signal prints a line on stderr at once, because a step may be long. One press of Ctrl-C may come
 * several times (timeout and mpirun signal a process and its group), so signals within 0.7 s are one request.
 * A second request changes nothing and says so. A third SIGINT, at least 2 s after the first, ends the
 * process as if nothing were caught. SIGPIPE is ignored while signals are caught, because a closed terminal
 * must not end a run. Before the first step there is nothing to save: signals_leave_by ends the process then.
 * Process-wide; call from the main thread before others start.
 */
#ifndef FERRY_CLI_SIGNALS_H
#define FERRY_CLI_SIGNALS_H

#include <stdint.h>

/* Starts catching signals. Call once per process. SIGNALS_QUIET: prints nothing. */
enum signals_voice { SIGNALS_SAY, SIGNALS_QUIET };
void signals_start(enum signals_voice voice);

/* Before that: ends the process at the first signal, or at one that is held. A thread of its own calls
 * `leave`, which does not return, while the others go on. signals_start ends this, and signals_stay, which
 * does not return if a signal was first. ERR_NOMEM: no thread. */
int signals_leave_by(void (*leave)(int signal));
void signals_stay(void);

/* The first signal that came, or 0. steps_left: steps left in the run. A signal during the last step stops
 * nothing, and its line says so. */
int signals_pending(int64_t steps_left);

/* From here to signals_interrupt_end, a first SIGINT only makes signals_interrupted return 1; a second one
 * ends the process. ends_reads: system calls that wait end with EINTR, instead of going on. Do not use while
 * signals_start is in effect. */
void signals_interrupt_begin(int ends_reads);
int signals_interrupted(void);
/* Waits for input; 0: Ctrl-C came, before or meanwhile. */
int signals_interrupt_wait(int fd);
void signals_interrupt_end(void);

/* Ends the process with this exit code if it still runs after so many seconds. */
void signals_exit_after(int seconds, int exit_code);

/* Holds signals during the start of ranks, in which no step ends. From here to signals_release, or to
 * signals_start, which then handles it, a signal only waits. Blocking is not enough, because threads of
 * libraries may get the signal. */
void signals_hold(void);
int signals_held(void);
void signals_release(void);

/* Ignores signals from now on: the run is over and its exit code is final. */
void signals_stop(void);

/* Ends the process by this signal. */
void signals_end_by(int signal);

#endif
