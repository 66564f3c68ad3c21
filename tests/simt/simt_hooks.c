/* The interface between compilers and ThreadSanitizer's library, implemented for the emulator: with
 * -fsanitize=thread, each load and store of the kernels calls it. Code of launchers also calls it, and
 * passes. */
#include "tests/simt/simt_machine.h"

#include <string.h>

/* The stack of the thread that runs is its own affair. */
static inline __attribute__((always_inline)) void hook(
        const void *at, size_t bytes, enum access_kind kind, size_t align)
{
	struct thread *self = machine.self;

	if (self && (uintptr_t)at - (uintptr_t)self->fibre.low >= FIBRE_STACK_BYTES)
		check_access_of(__builtin_return_address(0), at, bytes, kind, align);
}

#define HOOKS(bytes)                                                                                         \
	void __tsan_read##bytes(void *at);                                                                   \
	void __tsan_read##bytes(void *at)                                                                    \
	{                                                                                                    \
		hook(at, bytes, ACCESS_READ, bytes);                                                         \
	}                                                                                                    \
	void __tsan_write##bytes(void *at);                                                                  \
	void __tsan_write##bytes(void *at)                                                                   \
	{                                                                                                    \
		hook(at, bytes, ACCESS_WRITE, bytes);                                                        \
	}                                                                                                    \
	void __tsan_unaligned_read##bytes(void *at);                                                         \
	void __tsan_unaligned_read##bytes(void *at)                                                          \
	{                                                                                                    \
		hook(at, bytes, ACCESS_READ, 1);                                                             \
	}                                                                                                    \
	void __tsan_unaligned_write##bytes(void *at);                                                        \
	void __tsan_unaligned_write##bytes(void *at)                                                         \
	{                                                                                                    \
		hook(at, bytes, ACCESS_WRITE, 1);                                                            \
	}
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

void __tsan_read_range(void *at, size_t bytes);
void __tsan_read_range(void *at, size_t bytes)
{
	hook(at, bytes, ACCESS_READ, 1);
}

void __tsan_write_range(void *at, size_t bytes);
void __tsan_write_range(void *at, size_t bytes)
{
	hook(at, bytes, ACCESS_WRITE, 1);
}

void *__tsan_memcpy(void *to, const void *from, size_t bytes);
void *__tsan_memcpy(void *to, const void *from, size_t bytes)
{
	hook(from, bytes, ACCESS_READ, 1);
	hook(to, bytes, ACCESS_WRITE, 1);
	return memcpy(to, from, bytes);
}

void *__tsan_memmove(void *to, const void *from, size_t bytes);
void *__tsan_memmove(void *to, const void *from, size_t bytes)
{
	hook(from, bytes, ACCESS_READ, 1);
	hook(to, bytes, ACCESS_WRITE, 1);
	return memmove(to, from, bytes);
}

void *__tsan_memset(void *to, int value, size_t bytes);
void *__tsan_memset(void *to, int value, size_t bytes)
{
	hook(to, bytes, ACCESS_WRITE, 1);
	return memset(to, value, bytes);
}

/* A file with kernels was loaded that call all these. */
void __tsan_init(void);
void __tsan_init(void)
{
	machine.checks = 1;
}

void __tsan_func_entry(void *caller);
void __tsan_func_entry(void *caller)
{
	(void)caller;
}

void __tsan_func_exit(void);
void __tsan_func_exit(void) {}
