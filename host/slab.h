/* Large blocks of host memory: planes, arenas, staging.
 *
 * A slab is mapped, never allocated: exactly its bytes (to the page), zero-filled on first touch, in huge
 * pages where the system gives them. On a machine of several NUMA nodes its pages go round the nodes that
 * this process may use, so that no node's memory alone bears the load, whichever thread touches a page first.
 * Who counts slabs is the device (gpu/device.h).
 */
#ifndef FERRY_HOST_SLAB_H
#define FERRY_HOST_SLAB_H

#include <stdint.h>

/* Left between planes that are walked together: bases a power of two apart share the same few lines of the
 * caches, and in-place updates then run at a quarter of the memory's speed. */
enum { SLAB_SKEW_BYTES = 4096 + 256 };

/* bytes > 0; `what` names the slab in the message. ERR_NOMEM where the system refuses. Any thread. */
int slab_map(void **base, int64_t bytes, const char *what);
void slab_unmap(void *base, int64_t bytes); /* NULL is allowed */

#endif
