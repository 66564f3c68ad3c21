/* The limits of a template: memory, steps and depth, and one exit for every failure.
 *
 * Templates come from strangers, so nothing that they do is unlimited. One sandbox owns all memory of a parse
 * or a rendering, and sandbox_free frees it. Any failure (a limit, an error of the template, no memory) calls
 * sandbox_fail. It jumps to the place where the caller set `escape`. So the code between must not hold
 * anything that needs a release, and checks no return codes.
 */
#ifndef FERRY_DATA_TEMPLATE_SANDBOX_H
#define FERRY_DATA_TEMPLATE_SANDBOX_H

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

struct sandbox {
	struct sandbox_block *blocks;
	size_t free_bytes; /* of the newest block */
	int64_t used_bytes, limit_bytes;
	int64_t steps, limit_steps;
	int depth, limit_depth;
	int line;          /* of the template, for messages */
	const char *where; /* the template's name, for messages */
	int rc;            /* the error of sandbox_fail; its text is in err_text() */
	jmp_buf escape;
};

/* Zeroed memory, never NULL; lives as long as the sandbox. */
void *sandbox_alloc(struct sandbox *s, size_t count, size_t size_bytes);

/* Counts work; fails beyond limit_steps. */
void sandbox_step(struct sandbox *s, int64_t steps);

/* Call these around every recursion; sandbox_enter fails beyond limit_depth. */
void sandbox_enter(struct sandbox *s);
static inline void sandbox_leave(struct sandbox *s)
{
	s->depth--;
}

_Noreturn void sandbox_fail(struct sandbox *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

void sandbox_free(struct sandbox *s);

#endif
