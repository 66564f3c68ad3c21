/* Stacks to run on, and the step from one to another: the least that the threads of a block need.
 *
 * Written for x86-64 and for AArch64, by the calling convention of each (what a called function must keep is
 * saved on the stack that is left); by ucontext elsewhere.
 */
#ifndef FERRY_TESTS_SIMT_SIMT_FIBRE_H
#define FERRY_TESTS_SIMT_SIMT_FIBRE_H

#include <stddef.h>

/* Where a stack goes on. */
struct fibre {
	void *at;
	char *low; /* of its stack; NULL: the thread that started them all */
};

enum { FIBRE_STACK_BYTES = 256 << 10 };

/* Stacks for `count` fibres, each above a page that cannot be touched: 0, or -1. Keeps them for later calls.
 */
int fibre_stacks(struct fibre *fibres, int count);

/* The next switch to it calls entry, which must not return. */
void fibre_start(struct fibre *fibre, void (*entry)(void));

/* Leaves `from`, which a later switch to it takes up again. */
void fibre_switch(struct fibre *from, struct fibre *to);

#endif
