/* The limits of a template, and its memory: blocks that are freed together. */
#include "data/template/sandbox.h"

#include "base/err.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

enum { BLOCK_BYTES = 16 << 10, ALIGN_BYTES = 16 };

struct sandbox_block {
	struct sandbox_block *next;
	size_t end;
	_Alignas(ALIGN_BYTES) char data[];
};

static void add_block(struct sandbox *s, size_t len_bytes)
{
	size_t room = len_bytes > BLOCK_BYTES ? len_bytes : BLOCK_BYTES;
	struct sandbox_block *block;

	s->used_bytes += (int64_t)room;
	if (s->used_bytes > s->limit_bytes)
		sandbox_fail(
		        s, "the template needs more than %" PRId64 " MiB of memory", s->limit_bytes >> 20);
	block = mem_alloc(1, sizeof(*block) + room);
	if (!block) {
		s->rc = ERR_NOMEM;
		longjmp(s->escape, 1);
	}
	block->next = s->blocks;
	block->end = room;
	s->blocks = block;
	s->free_bytes = room;
}

void *sandbox_alloc(struct sandbox *s, size_t count, size_t size_bytes)
{
	size_t len_bytes;
	void *memory;

	if (__builtin_mul_overflow(count, size_bytes, &len_bytes) || len_bytes > (size_t)s->limit_bytes)
		sandbox_fail(
		        s, "the template needs more than %" PRId64 " MiB of memory", s->limit_bytes >> 20);
	len_bytes = (len_bytes + ALIGN_BYTES - 1) & ~(size_t)(ALIGN_BYTES - 1);
	if (!s->blocks || len_bytes > s->free_bytes)
		add_block(s, len_bytes);
	memory = s->blocks->data + (s->blocks->end - s->free_bytes);
	s->free_bytes -= len_bytes;
	return memory;
}

void sandbox_step(struct sandbox *s, int64_t steps)
{
	s->steps += steps;
	if (s->steps > s->limit_steps)
		sandbox_fail(
		        s, "the template does not end: it took more than %" PRId64 " steps", s->limit_steps);
}

void sandbox_enter(struct sandbox *s)
{
	if (++s->depth > s->limit_depth)
		sandbox_fail(s, "the template is nested more than %d deep", s->limit_depth);
}

void sandbox_fail(struct sandbox *s, const char *fmt, ...)
{
	char text[ERR_TEXT_BYTES];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	s->rc = err_set(ERR_INPUT, "%s:%d: %s", s->where, s->line, text);
	longjmp(s->escape, 1);
}

void sandbox_free(struct sandbox *s)
{
	while (s->blocks) {
		struct sandbox_block *next = s->blocks->next;

		mem_free(s->blocks);
		s->blocks = next;
	}
	s->free_bytes = 0;
}
