/* Signals, caught and held. */
#include "cli/signals.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

static const int caught[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};
enum { CAUGHT_COUNT = sizeof(caught) / sizeof(*caught) };

static volatile sig_atomic_t pending, held;
static int started, is_quiet;

static void say(const char *text)
{
	ssize_t ignored = write(STDERR_FILENO, text, strlen(text));

	(void)ignored;
}

static void handler(int signal)
{
	if (pending && signal == SIGINT) {
		struct sigaction plain = {.sa_handler = SIG_DFL};

		sigaction(SIGINT, &plain, NULL);
		raise(SIGINT); /* is delivered when this returns */
		return;
	}
	if (pending)
		return;
	pending = signal;
	if (is_quiet)
		return;
	if (signal == SIGINT)
		say("\nstopping after this step, with a checkpoint; Ctrl-C again quits at once\n");
	else
		say("\nstopping after this step, with a checkpoint\n");
}

static int is_ignored(int signal)
{
	struct sigaction now;

	return !sigaction(signal, NULL, &now) && now.sa_handler == SIG_IGN;
}

void signals_start(enum signals_voice voice)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
	struct sigaction ignore = {.sa_handler = SIG_IGN};

	if (started)
		return;
	started = 1;
	pending = 0;
	is_quiet = voice == SIGNALS_QUIET;
	sigemptyset(&action.sa_mask);
	for (int i = 0; i < CAUGHT_COUNT; i++)
		if (caught[i] != SIGHUP || !is_ignored(SIGHUP)) /* nohup */
			sigaction(caught[i], &action, NULL);
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

static void hold(int signal)
{
	held = signal;
}

void signals_hold(void)
{
	struct sigaction action = {.sa_handler = hold, .sa_flags = SA_RESTART};

	for (int i = 0; i < CAUGHT_COUNT; i++)
		if (!is_ignored(caught[i]))
			sigaction(caught[i], &action, NULL);
}

int signals_held(void)
{
	return held;
}

void signals_release(void)
{
	struct sigaction plain = {.sa_handler = SIG_DFL};

	for (int i = 0; i < CAUGHT_COUNT; i++)
		if (!is_ignored(caught[i]))
			sigaction(caught[i], &plain, NULL);
	if (held)
		raise(held);
}

int signals_pending(void)
{
	return pending;
}

const char *signals_name(int signal)
{
	return signal == SIGINT    ? "SIGINT"
	       : signal == SIGTERM ? "SIGTERM"
	       : signal == SIGUSR1 ? "SIGUSR1"
	       : signal == SIGHUP  ? "SIGHUP"
	                           : "a signal";
}

void signals_stop(void)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN};

	for (int i = 0; i < CAUGHT_COUNT; i++)
		sigaction(caught[i], &ignore, NULL);
}
