/* The signals that ask a run to stop with a checkpoint: from people, launchers and batch systems (SIGUSR1,
 * SIGUSR2 before the time ends, SIGXCPU at the soft limit of processor time). */
#ifndef FERRY_BASE_STOP_SIGNALS_H
#define FERRY_BASE_STOP_SIGNALS_H

#include <signal.h>

static const int stop_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};
enum { STOP_SIGNAL_COUNT = sizeof(stop_signals) / sizeof(*stop_signals) };

#endif
