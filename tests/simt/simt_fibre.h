/* Stacks to run on, and switches between them: the minimum for the threads of a block.
 *
 * For x86-64 and AArch64, a switch saves the registers that a called function must keep (by the calling
 * convention) on the old stack. Other processors use ucontext.
 */
#ifndef FERRY_TESTS_SIMT_SIMT_FIBRE_H
#define FERRY_TESTS_SIMT_SIMT_FIBRE_H

#include <stddef.h>

/* The place where a stack continues. */
struct fibre {
	void *at;
	char *low; /* lowest address of its stack; NULL: the thread that started all fibres */
};

enum { FIBRE_STACK_BYTES = 256 << 10 };

/* Makes stacks for `count` fibres, each with an inaccessible page below it: 0, or -1. Keeps the stacks for
 * later calls. */
int fibre_stacks(struct fibre *fibres, int count);

/* The next switch to the fibre calls entry, which must not return. */
void fibre_start(struct fibre *fibre, void (*entry)(void));

/* Leaves `from`; a later switch to it continues there. */
void fibre_switch(struct fibre *from, struct fibre *to);

#endif
