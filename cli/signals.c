/* Catches and holds signals. */
#include "cli/signals.h"

#include "base/err.h"
#include "base/stop_signals.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t pending, held;
static volatile sig_atomic_t is_last; /* 1: the run is in its last step */
static int started, is_quiet;
static volatile double first_s, last_s; /* times of the requests to stop; only the handler uses them */
static volatile sig_atomic_t requests;

static void say(const char *text)
{
	ssize_t ignored = write(STDERR_FILENO, text, strlen(text));

	(void)ignored;
}

/* Seconds of the monotonic clock; safe in a handler. */
static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* A terminal, timeout and mpirun may each deliver one press of Ctrl-C several times, to the process and to
 * its group. So signals close together are one request, and only the third request gives up the
 * checkpoint. */
static void asked_again(int signal)
{
	static const double same_request_s = 0.7, quit_after_s = 2;
	double now = now_s(), since_last = now - last_s;

	last_s = now;
	if (signal != SIGINT || since_last < same_request_s)
		return;
	requests++;
	if (requests > 2 && now - first_s >= quit_after_s) {
		struct sigaction plain = {.sa_handler = SIG_DFL};

		if (!is_quiet)
			say("\nquit without a checkpoint\n");
		sigaction(SIGINT, &plain, NULL);
		raise(SIGINT); /* delivered when the handler returns */
		return;
	}
	if (!is_quiet)
		say(is_last ? "\nthe result is being written; Ctrl-C once more quits without it\n"
		            : "\nthe checkpoint is on its way; Ctrl-C once more quits without it\n");
}

static void handler(int signal)
{
	if (pending) {
		asked_again(signal);
		return;
	}
	first_s = last_s = now_s();
	requests = 1;
	pending = signal;
	if (!is_quiet)
		say(is_last ? "\nthis was the last step; the result is being written\n"
		            : "\nstopping after this step, with a checkpoint\n");
}

static int is_ignored(int signal)
{
	struct sigaction now;

	return !sigaction(signal, NULL, &now) && now.sa_handler == SIG_IGN;
}

/* ---- before the first step ---- */

/* The thread that leaves and the one that begins the steps both claim what comes next. */
enum { NEXT_OPEN, NEXT_STEPS, NEXT_LEAVE };
static atomic_int next;
static sem_t came;
static void (*leave_by)(int signal);

static void *leave_wait(void *context)
{
	int expected = NEXT_OPEN;

	(void)context;
	while (sem_wait(&came))
		;
	if (atomic_compare_exchange_strong(&next, &expected, NEXT_LEAVE))
		leave_by(held);
	return NULL;
}

static void hold_and_wake(int signal)
{
	int error = errno;

	if (!held)
		held = signal;
	sem_post(&came);
	errno = error;
}

int signals_leave_by(void (*leave)(int signal))
{
	struct sigaction action = {.sa_handler = hold_and_wake, .sa_flags = SA_RESTART};
	sigset_t all, before;
	pthread_t thread;
	int rc;

	leave_by = leave;
	sem_init(&came, 0, 0);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before); /* the thread gets none */
	rc = pthread_create(&thread, NULL, leave_wait, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc)
		return err_set(ERR_NOMEM, "cannot start a thread for signals: %s", strerror(rc));
	pthread_detach(thread);
	for (int i = 0; i < STOP_SIGNAL_COUNT; i++)
		if (!is_ignored(stop_signals[i]))
			sigaction(stop_signals[i], &action, NULL);
	if (held)
		sem_post(&came);
	return 0;
}

void signals_stay(void)
{
	int expected = NEXT_OPEN;

	if (!atomic_compare_exchange_strong(&next, &expected, NEXT_STEPS) && expected == NEXT_LEAVE)
		for (;;)
			pause();
}

void signals_start(enum signals_voice voice)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
	struct sigaction ignore = {.sa_handler = SIG_IGN};

	if (started)
		return;
	signals_stay();
	started = 1;
	pending = 0;
	is_quiet = voice == SIGNALS_QUIET;
	sigemptyset(&action.sa_mask);
	for (int i = 0; i < STOP_SIGNAL_COUNT; i++)
		if (stop_signals[i] != SIGHUP || !is_ignored(SIGHUP)) /* nohup */
			sigaction(stop_signals[i], &action, NULL);
	sigaction(SIGPIPE, &ignore, NULL);
	if (!held || pending)
		return;
	pending = held;
	if (!is_quiet)
		say("\nstopping after the first step, with a checkpoint\n");
}

static int late_exit_code;

static void leave_late(int signal)
{
	(void)signal;
	_exit(late_exit_code);
}

void signals_exit_after(int seconds, int exit_code)
{
	struct sigaction action = {.sa_handler = leave_late};

	late_exit_code = exit_code;
	sigaction(SIGALRM, &action, NULL);
	alarm((unsigned)seconds);
}

static volatile sig_atomic_t interrupted;

static void interrupt(int signal)
{
	(void)signal;
	interrupted = 1;
}

void signals_interrupt_begin(int ends_reads)
{
	struct sigaction action = {
	        .sa_handler = interrupt, .sa_flags = (ends_reads ? 0 : SA_RESTART) | (int)SA_RESETHAND};

	interrupted = 0;
	sigaction(SIGINT, &action, NULL);
}

int signals_interrupted(void)
{
	return interrupted;
}

int signals_interrupt_wait(int fd)
{
	struct pollfd comes = {.fd = fd, .events = POLLIN};
	sigset_t interrupts, before;

	sigemptyset(&interrupts);
	sigaddset(&interrupts, SIGINT);
	sigprocmask(SIG_BLOCK, &interrupts, &before); /* so that none comes between the look and the wait */
	while (!interrupted && ppoll(&comes, 1, NULL, &before) < 0 && errno == EINTR)
		;
	sigprocmask(SIG_SETMASK, &before, NULL);
	return !interrupted;
}

void signals_interrupt_end(void)
{
	struct sigaction plain = {.sa_handler = SIG_DFL};

	sigaction(SIGINT, &plain, NULL);
}

static void hold(int signal)
{
	held = signal;
}

void signals_hold(void)
{
	struct sigaction action = {.sa_handler = hold, .sa_flags = SA_RESTART};

	for (int i = 0; i < STOP_SIGNAL_COUNT; i++)
		if (!is_ignored(stop_signals[i]))
			sigaction(stop_signals[i], &action, NULL);
}

int signals_held(void)
{
	return held;
}

void signals_release(void)
{
	struct sigaction plain = {.sa_handler = SIG_DFL};

	for (int i = 0; i < STOP_SIGNAL_COUNT; i++)
		if (!is_ignored(stop_signals[i]))
			sigaction(stop_signals[i], &plain, NULL);
	if (held)
		raise(held);
}

int signals_pending(int64_t steps_left)
{
	is_last = steps_left < 2;
	return pending;
}

void signals_stop(void)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN};

	for (int i = 0; i < STOP_SIGNAL_COUNT; i++)
		sigaction(stop_signals[i], &ignore, NULL);
}

void signals_end_by(int signal)
{
	struct sigaction plain = {.sa_handler = SIG_DFL};
	sigset_t all;

	sigaction(signal, &plain, NULL);
	sigemptyset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	raise(signal);
}
