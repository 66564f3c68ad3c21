/* What a template may use: memory, steps and depth, each with a bound, and one way out.
 *
 * Templates come from strangers, so nothing that they do is unbounded. All memory of a parse or a rendering
 * is taken from one sandbox and freed with it; whatever fails (a limit, an error of the template, memory)
 * leaves by sandbox_fail, which jumps to where the caller set `escape`. Code in between therefore holds
 * nothing that would have to be released, and checks no return codes.
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
	int rc;            /* what sandbox_fail left with; the text is in err_text() */
	jmp_buf escape;
};

/* Zeroed memory, never NULL; lives as long as the sandbox. */
void *sandbox_alloc(struct sandbox *s, size_t count, size_t size_bytes);

/* Work done: fails when it was too much. */
void sandbox_step(struct sandbox *s, int64_t steps);

/* Around whatever calls itself. */
void sandbox_enter(struct sandbox *s);
static inline void sandbox_leave(struct sandbox *s)
{
	s->depth--;
}

_Noreturn void sandbox_fail(struct sandbox *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

void sandbox_free(struct sandbox *s);

#endif
