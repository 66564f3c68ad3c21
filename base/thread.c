/* Starts threads. */
#include "base/thread.h"

#include <signal.h>
#include <stddef.h>

int thread_start(pthread_t *thread, void *(*run)(void *), void *arg)
{
	const size_t least = 4 << 20;
	pthread_attr_t attr;
	sigset_t all, before;
	size_t bytes = 0;
	int error = pthread_attr_init(&attr);

	if (error)
		return error;
	if (!pthread_attr_getstacksize(&attr, &bytes) && bytes < least)
		error = pthread_attr_setstacksize(&attr, least);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (!error)
		error = pthread_create(thread, &attr, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return error;
}
