/* Threads of the program. */
#ifndef FERRY_BASE_THREAD_H
#define FERRY_BASE_THREAD_H

#include <pthread.h>

/* Starts a thread without signals, which the program's first thread handles. Its stack has at least 4 MiB,
 * for packed operands of products, whatever ulimit -s says. Returns an errno, or 0. */
int thread_start(pthread_t *thread, void *(*run)(void *), void *arg);

#endif
