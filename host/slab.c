#include "host/slab.h"

#include "base/err.h"

#include <errno.h>
#include <hwloc.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

static pthread_once_t nodes_once = PTHREAD_ONCE_INIT;
static hwloc_topology_t nodes; /* NULL: one node, or unknown; kept to the end of the process */

static void nodes_read(void)
{
	hwloc_topology_t h;

	if (hwloc_topology_init(&h))
		return;
	if (!hwloc_topology_load(h) && hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_NUMANODE) > 1)
		nodes = h;
	else
		hwloc_topology_destroy(h);
}

int slab_map(void **base, int64_t bytes, const char *what)
{
	void *at = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	*base = NULL;
	if (at == MAP_FAILED)
		return err_set(ERR_NOMEM, "%s of %" PRId64 " bytes: %s", what, bytes, strerror(errno));
	madvise(at, (size_t)bytes, MADV_HUGEPAGE); /* where refused, small pages do */
	pthread_once(&nodes_once, nodes_read);
	if (nodes) /* where refused, the first thread to touch a page places it */
		hwloc_set_area_membind(nodes, at, (size_t)bytes, hwloc_topology_get_allowed_nodeset(nodes),
		        HWLOC_MEMBIND_INTERLEAVE, HWLOC_MEMBIND_BYNODESET);
	*base = at;
	return 0;
}

void slab_unmap(void *base, int64_t bytes)
{
	if (base)
		munmap(base, (size_t)bytes);
}
