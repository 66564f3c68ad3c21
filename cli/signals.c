#include "cli/signals.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

static const int caught[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};
enum { CAUGHT_COUNT = sizeof(caught) / sizeof(*caught) };

static volatile sig_atomic_t pending;
static struct sigaction before[CAUGHT_COUNT], before_pipe;
static int started;

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
	if (signal == SIGINT)
		say("\nstopping after this step, with a checkpoint; Ctrl-C again quits at once\n");
	else
		say("\nstopping after this step, with a checkpoint\n");
}

void signals_start(void)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
	struct sigaction ignore = {.sa_handler = SIG_IGN};

	if (started)
		return;
	started = 1;
	pending = 0;
	sigemptyset(&action.sa_mask);
	for (int i = 0; i < CAUGHT_COUNT; i++)
		sigaction(caught[i], &action, &before[i]);
	if (before[CAUGHT_COUNT - 1].sa_handler == SIG_IGN) /* nohup */
		sigaction(SIGHUP, &ignore, NULL);
	sigaction(SIGPIPE, &ignore, &before_pipe);
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
	if (!started)
		return;
	for (int i = 0; i < CAUGHT_COUNT; i++)
		sigaction(caught[i], &before[i], NULL);
	sigaction(SIGPIPE, &before_pipe, NULL);
	started = 0;
}
