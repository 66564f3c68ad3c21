/* Threads of a block as fibres: their stacks, and the switch between them. */
#include "tests/simt/simt_fibre.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Stacks begin at different places of their pages, or all would want the same lines of the caches. */
enum { COLOURS = 48, COLOUR_BYTES = 5 * 64 };

int fibre_stacks(struct fibre *fibres, int count)
{
	static unsigned made;
	size_t guard = (size_t)sysconf(_SC_PAGESIZE);

	for (int i = 0; i < count; i++) {
		char *low;

		if (fibres[i].low)
			continue;
		low = mmap(NULL, guard + FIBRE_STACK_BYTES + COLOURS * COLOUR_BYTES, PROT_READ | PROT_WRITE,
		        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (low == MAP_FAILED)
			return -1;
		if (mprotect(low, guard, PROT_NONE)) {
			munmap(low, guard + FIBRE_STACK_BYTES + COLOURS * COLOUR_BYTES);
			return -1;
		}
		fibres[i].low = low + guard + made++ % COLOURS * COLOUR_BYTES;
	}
	return 0;
}

#if defined(__x86_64__)

void fibre_swap(void **from, void *to);

__asm__(".text\n"
        ".p2align 4\n"
        ".type fibre_swap, @function\n"
        "fibre_swap:\n"
        "	pushq %rbp\n"
        "	pushq %rbx\n"
        "	pushq %r12\n"
        "	pushq %r13\n"
        "	pushq %r14\n"
        "	pushq %r15\n"
        "	movq %rsp, (%rdi)\n"
        "	movq %rsi, %rsp\n"
        "	popq %r15\n"
        "	popq %r14\n"
        "	popq %r13\n"
        "	popq %r12\n"
        "	popq %rbx\n"
        "	popq %rbp\n"
        "	ret\n"
        ".size fibre_swap, .-fibre_swap\n");

void fibre_start(struct fibre *fibre, void (*entry)(void))
{
	void **top = (void **)(fibre->low + FIBRE_STACK_BYTES);

	*--top = NULL; /* entry's return address, and the alignment that a call leaves */
	*--top = (void *)entry;
	for (int saved = 0; saved < 6; saved++)
		*--top = NULL;
	fibre->at = top;
}

void fibre_switch(struct fibre *from, struct fibre *to)
{
	fibre_swap(&from->at, to->at);
}

#elif defined(__aarch64__)

void fibre_swap(void **from, void *to);

__asm__(".text\n"
        ".p2align 4\n"
        ".type fibre_swap, %function\n"
        "fibre_swap:\n"
        "	sub sp, sp, #160\n"
        "	stp x19, x20, [sp]\n"
        "	stp x21, x22, [sp, #16]\n"
        "	stp x23, x24, [sp, #32]\n"
        "	stp x25, x26, [sp, #48]\n"
        "	stp x27, x28, [sp, #64]\n"
        "	stp x29, x30, [sp, #80]\n"
        "	stp d8, d9, [sp, #96]\n"
        "	stp d10, d11, [sp, #112]\n"
        "	stp d12, d13, [sp, #128]\n"
        "	stp d14, d15, [sp, #144]\n"
        "	mov x9, sp\n"
        "	str x9, [x0]\n"
        "	mov sp, x1\n"
        "	ldp x19, x20, [sp]\n"
        "	ldp x21, x22, [sp, #16]\n"
        "	ldp x23, x24, [sp, #32]\n"
        "	ldp x25, x26, [sp, #48]\n"
        "	ldp x27, x28, [sp, #64]\n"
        "	ldp x29, x30, [sp, #80]\n"
        "	ldp d8, d9, [sp, #96]\n"
        "	ldp d10, d11, [sp, #112]\n"
        "	ldp d12, d13, [sp, #128]\n"
        "	ldp d14, d15, [sp, #144]\n"
        "	add sp, sp, #160\n"
        "	ret\n"
        ".size fibre_swap, .-fibre_swap\n");

void fibre_start(struct fibre *fibre, void (*entry)(void))
{
	void **saved = (void **)(fibre->low + FIBRE_STACK_BYTES - 160);

	for (int i = 0; i < 20; i++)
		saved[i] = NULL;
	saved[11] = (void *)entry; /* x30, where ret goes */
	fibre->at = saved;
}

void fibre_switch(struct fibre *from, struct fibre *to)
{
	fibre_swap(&from->at, to->at);
}

#else

#include <ucontext.h>

void fibre_start(struct fibre *fibre, void (*entry)(void))
{
	ucontext_t *context = fibre->at ? fibre->at : malloc(sizeof(*context));

	if (!context)
		abort();
	getcontext(context);
	context->uc_stack.ss_sp = fibre->low;
	context->uc_stack.ss_size = FIBRE_STACK_BYTES;
	context->uc_link = NULL;
	makecontext(context, entry, 0);
	fibre->at = context;
}

void fibre_switch(struct fibre *from, struct fibre *to)
{
	if (!from->at && !(from->at = malloc(sizeof(ucontext_t))))
		abort();
	swapcontext(from->at, to->at);
}

#endif
