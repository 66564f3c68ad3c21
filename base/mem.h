/* Memory for host-side objects: zeroed, overflow-checked, and able to fail on purpose.
 *
 * All objects of the program other than slabs and arenas (device/device.h) come from here. Tests set a
 * countdown so that the n-th request fails, once or from then on; every caller must then clean up.
 * Thread-safe. A request of zero bytes yields a unique, freeable pointer.
 */
#ifndef FERRY_BASE_MEM_H
#define FERRY_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

/* count zeroed elements of size_bytes each; on failure or overflow NULL and the error text of ERR_NOMEM. */
void *mem_alloc(size_t count, size_t size_bytes) __attribute__((malloc));

/* The same, aligned to `align_bytes` (a power of two). Free with mem_free. */
void *mem_alloc_aligned(size_t count, size_t size_bytes, size_t align_bytes) __attribute__((malloc));

/* Grows or shrinks a block of mem_alloc, not of mem_alloc_aligned. The old block stays valid on failure. New
 * bytes are not zeroed. */
void *mem_resize(void *block, size_t count, size_t size_bytes);

char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t len_bytes);
char *mem_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* NULL is allowed. */
void mem_free(void *block);

/* memcpy of bytes that this processor will not read soon. If possible it stores them past the caches, which
 * keep their contents. Meanwhile it prefetches the next bytes: up to len_bytes of the next_bytes after src,
 * into the second cache. */
void mem_copy_past_cache(void *dst, const void *src, size_t len_bytes, size_t next_bytes);

enum mem_fault { MEM_FAULT_ONCE, MEM_FAULT_FOREVER };

/* The after_count-th request from now (1 = the next) fails, and with MEM_FAULT_FOREVER all later ones
 * too. 0 disarms. Returns the number of requests made since the last call. For tests. */
int64_t mem_fault_arm(int64_t after_count, enum mem_fault kind);

#endif
