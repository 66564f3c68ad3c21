/* Allocation that counts requests, and that tests can make fail; copies past the caches. */
#include "base/mem.h"

#include "base/err.h"

#include <assert.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

static atomic_llong request_count; /* requests since mem_fault_arm */
static atomic_llong fail_at;       /* 0: never */
static atomic_int fail_forever;

/* Counts one request of count x size_bytes. 0 and the byte count (at least 1), or ERR_NOMEM. */
static int request(size_t *len_bytes, size_t count, size_t size_bytes)
{
	long long n = atomic_fetch_add(&request_count, 1) + 1;
	long long at = atomic_load(&fail_at);

	if (__builtin_mul_overflow(count, size_bytes, len_bytes) || *len_bytes > PTRDIFF_MAX)
		return err_set(ERR_NOMEM, "out of memory: %zu elements of %zu bytes exceed the address space",
		        count, size_bytes);
	if (at && (n == at || (n > at && atomic_load(&fail_forever))))
		return err_set(
		        ERR_NOMEM, "out of memory: %zu bytes (a fault injected by a test)", *len_bytes);
	if (!*len_bytes)
		*len_bytes = 1;
	return 0;
}

static void *checked(void *block, size_t len_bytes)
{
	if (!block)
		err_set(ERR_NOMEM, "out of memory: the system refused %zu bytes", len_bytes);
	return block;
}

void *mem_alloc(size_t count, size_t size_bytes)
{
	size_t len;

	if (request(&len, count, size_bytes))
		return NULL;
	return checked(calloc(1, len), len);
}

void *mem_alloc_aligned(size_t count, size_t size_bytes, size_t align_bytes)
{
	void *block = NULL;
	size_t len;

	assert(align_bytes && !(align_bytes & (align_bytes - 1)));
	if (align_bytes < sizeof(void *))
		align_bytes = sizeof(void *);
	if (request(&len, count, size_bytes))
		return NULL;
	if (posix_memalign(&block, align_bytes, len))
		return checked(NULL, len);
	return memset(block, 0, len);
}

void *mem_resize(void *block, size_t count, size_t size_bytes)
{
	size_t len;

	if (request(&len, count, size_bytes))
		return NULL;
	return checked(realloc(block, len), len);
}

char *mem_strndup(const char *s, size_t len_bytes)
{
	size_t len = strnlen(s, len_bytes);
	char *copy = mem_alloc(len + 1, 1);

	if (copy)
		memcpy(copy, s, len);
	return copy;
}

char *mem_strdup(const char *s)
{
	return mem_strndup(s, strlen(s));
}

char *mem_printf(const char *fmt, ...)
{
	char *text = NULL;
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (len < 0) {
		err_set(ERR_NOMEM, "out of memory: a text exceeds 2 GiB");
		return NULL;
	}
	text = mem_alloc((size_t)len + 1, 1);
	if (!text)
		return NULL;
	va_start(ap, fmt);
	vsnprintf(text, (size_t)len + 1, fmt, ap);
	va_end(ap);
	return text;
}

void mem_free(void *block)
{
	free(block);
}

void mem_copy_past_cache(void *dst, const void *src, size_t len_bytes, size_t next_bytes)
{
	char *to = dst;
	const char *from = src;

#ifdef __SSE2__
	const char *next = from + len_bytes, *next_end = next + next_bytes;
	size_t head = -(uintptr_t)to % 64;

	if (len_bytes >= 256) {
		memcpy(to, from, head);
		to += head;
		from += head;
		len_bytes -= head;
		for (; len_bytes >= 64; to += 64, from += 64, len_bytes -= 64) { /* one cache line */
			__m128i a = _mm_loadu_si128((const __m128i *)from);
			__m128i b = _mm_loadu_si128((const __m128i *)(from + 16));
			__m128i c = _mm_loadu_si128((const __m128i *)(from + 32));
			__m128i d = _mm_loadu_si128((const __m128i *)(from + 48));

			if (next < next_end) {
				_mm_prefetch(next, _MM_HINT_T1);
				next += 64;
			}
			_mm_stream_si128((__m128i *)to, a);
			_mm_stream_si128((__m128i *)(to + 16), b);
			_mm_stream_si128((__m128i *)(to + 32), c);
			_mm_stream_si128((__m128i *)(to + 48), d);
		}
		_mm_sfence(); /* order the stores before a later store that announces them */
	}
#else
	(void)next_bytes;
#endif
	memcpy(to, from, len_bytes);
}

int64_t mem_fault_arm(int64_t after_count, enum mem_fault kind)
{
	int64_t seen;

	atomic_store(&fail_at, 0);
	seen = atomic_exchange(&request_count, 0);
	atomic_store(&fail_forever, kind == MEM_FAULT_FOREVER);
	atomic_store(&fail_at, after_count);
	return seen;
}
