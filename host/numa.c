/* Binding memory to NUMA nodes. */
#include "host/numa.h"

#include "base/err.h"
#include "base/mem.h"
#include "host/topology.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MASK_WORDS = 16, MASK_BITS = 64 * MASK_WORDS, PAGES_AT_ONCE = 256, PAGES_ASKED_MAX = 16384 };

/* Stand for a node: */
enum { PAGE_ABSENT = -1, PAGE_UNTOLD = -2, NODE_SPREAD = -3 };

struct memory {
	int (*bind)(void *base, int64_t bytes, int node); /* node or NODE_SPREAD; 0 or an errno */
	void (*forget)(void *base, int64_t bytes);
	void (*where)(int *nodes, void **pages, int count);
};

/* ---- the kernel: mbind(2), get_mempolicy(2), move_pages(2) ---- */

static int kernel_bind(void *base, int64_t bytes, int node)
{
	unsigned long mask[MASK_WORDS] = {0};
	int mode = node == NODE_SPREAD ? MPOL_INTERLEAVE : MPOL_PREFERRED, count = 0;

	if (node >= MASK_BITS)
		return EINVAL;
	if (node != NODE_SPREAD) {
		mask[node / 64] = 1ul << node % 64;
	} else {
		if (syscall(SYS_get_mempolicy, NULL, mask, (unsigned long)MASK_BITS, NULL,
		            MPOL_F_MEMS_ALLOWED))
			return errno;
		for (int i = 0; i < MASK_WORDS; i++)
			count += __builtin_popcountl(mask[i]);
		if (count < 2)
			return 0;
	}
	/* the kernel reads one bit less than this number */
	return syscall(SYS_mbind, base, (unsigned long)bytes, mode, mask, MASK_BITS + 1ul, 0) ? errno : 0;
}

static void kernel_forget(void *base, int64_t bytes)
{
	(void)base;
	(void)bytes;
}

/* The kernel's NUMA balancing may mark pages of unbound memory. move_pages reports such a page as absent,
 * mincore(2) does not. Reading the page would clear the mark and might move the page to the reader's node.
 */
static int is_resident(void *page)
{
	unsigned char resident = 0;

	return !mincore(page, 1, &resident) && resident & 1;
}

/* ENOENT: no page. EFAULT: no mapping, or the shared page of zeros. */
static int is_absent(int status)
{
	return status == -ENOENT || status == -EFAULT;
}

static void kernel_where(int *nodes, void **pages, int count)
{
	int failed = (int)syscall(SYS_move_pages, 0, (unsigned long)count, pages, NULL, nodes, 0);

	for (int i = 0; i < count; i++)
		if (failed || nodes[i] < 0)
			nodes[i] = !failed && is_absent(nodes[i]) && !is_resident(pages[i]) ? PAGE_ABSENT
			                                                                    : PAGE_UNTOLD;
}

static const struct memory kernel_memory = {kernel_bind, kernel_forget, kernel_where};

/* ---- the ledger, for a machine that FERRY_TOPOLOGY describes ---- */

struct entry {
	uintptr_t begin, end;
	int node;
};

/* Later entries hide earlier ones. */
static struct {
	pthread_mutex_t lock;
	struct entry *entries;
	int count, cap;
} ledger = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int ledger_bind(void *base, int64_t bytes, int node)
{
	const struct entry e = {(uintptr_t)base, (uintptr_t)base + (uintptr_t)bytes, node};
	int error = 0;

	pthread_mutex_lock(&ledger.lock);
	if (ledger.count == ledger.cap) {
		int cap = ledger.cap ? 2 * ledger.cap : 64;
		struct entry *entries = mem_resize(ledger.entries, (size_t)cap, sizeof(*entries));

		if (entries) {
			ledger.entries = entries;
			ledger.cap = cap;
		} else {
			error = ENOMEM;
		}
	}
	if (!error)
		ledger.entries[ledger.count++] = e;
	pthread_mutex_unlock(&ledger.lock);
	return error;
}

/* Drops the entries that lie inside the range, which is a whole slab. */
static void ledger_forget(void *base, int64_t bytes)
{
	uintptr_t begin = (uintptr_t)base, end = begin + (uintptr_t)bytes;
	int kept = 0;

	pthread_mutex_lock(&ledger.lock);
	for (int i = 0; i < ledger.count; i++)
		if (ledger.entries[i].begin < begin || ledger.entries[i].end > end)
			ledger.entries[kept++] = ledger.entries[i];
	ledger.count = kept;
	if (!kept) {
		mem_free(ledger.entries);
		ledger.entries = NULL;
		ledger.cap = 0;
	}
	pthread_mutex_unlock(&ledger.lock);
}

static int ledger_node(uintptr_t at)
{
	for (int i = ledger.count - 1; i >= 0; i--)
		if (ledger.entries[i].begin <= at && at < ledger.entries[i].end)
			return ledger.entries[i].node;
	return PAGE_UNTOLD;
}

static void ledger_where(int *nodes, void **pages, int count)
{
	kernel_where(nodes, pages, count); /* finds absent pages */
	pthread_mutex_lock(&ledger.lock);
	for (int i = 0; i < count; i++)
		if (nodes[i] != PAGE_ABSENT)
			nodes[i] = ledger_node((uintptr_t)pages[i]);
	pthread_mutex_unlock(&ledger.lock);
}

static const struct memory ledger_memory = {ledger_bind, ledger_forget, ledger_where};

static const struct memory *memory(void)
{
	const char *made_up = getenv(TOPOLOGY_ENVIRONMENT);

	return made_up && *made_up ? &ledger_memory : &kernel_memory;
}

/* ---- for slabs ---- */

int numa_prefer(void *base, int64_t bytes, int os_index)
{
	int error = os_index < 0 ? 0 : memory()->bind(base, bytes, os_index);

	return error ? err_set(ERR_DEVICE, "cannot bind memory to node %d: %s", os_index, strerror(error))
	             : 0;
}

int numa_spread(void *base, int64_t bytes)
{
	int error = memory()->bind(base, bytes, NODE_SPREAD);

	return error ? err_set(ERR_DEVICE, "cannot spread memory over nodes: %s", strerror(error)) : 0;
}

void numa_forget(void *base, int64_t bytes)
{
	memory()->forget(base, bytes);
}

static void count_page(struct numa_found *found, int node, int os_index, int64_t bytes)
{
	if (node == os_index)
		found->right_bytes += bytes;
	else if (node == PAGE_ABSENT)
		found->absent_bytes += bytes;
	else if (node == PAGE_UNTOLD)
		found->untold_bytes += bytes;
	else
		found->wrong_bytes += bytes;
}

void numa_find(struct numa_found *found, const void *base, int64_t bytes, int os_index)
{
	int64_t page_bytes = sysconf(_SC_PAGESIZE);
	uintptr_t begin = (uintptr_t)base, end = begin + (uintptr_t)bytes;
	uintptr_t first = begin / (uintptr_t)page_bytes * (uintptr_t)page_bytes;
	int64_t count = (int64_t)(end - first + (uintptr_t)page_bytes - 1) / page_bytes;
	int64_t step = (count + PAGES_ASKED_MAX - 1) / PAGES_ASKED_MAX;
	const struct memory *m = memory();

	for (int64_t at = 0; at < count;) {
		void *pages[PAGES_AT_ONCE];
		int nodes[PAGES_AT_ONCE], asked = 0;
		int64_t from = at;

		for (; asked < PAGES_AT_ONCE && at < count; at += step)
			pages[asked++] = (void *)(first + (uintptr_t)(at * page_bytes));
		m->where(nodes, pages, asked);
		for (int i = 0; i < asked; i++) {
			/* a sampled page counts for all pages up to the next sample */
			uintptr_t a = first + (uintptr_t)((from + i * step) * page_bytes);
			uintptr_t b = a + (uintptr_t)(step * page_bytes);

			a = a < begin ? begin : a;
			b = b > end ? end : b;
			count_page(found, nodes[i], os_index, (int64_t)(b - a));
		}
	}
}

int numa_may_bind(void)
{
	int64_t page_bytes = sysconf(_SC_PAGESIZE);
	void *page;
	int error;

	if (memory() == &ledger_memory)
		return 1;
	page = mmap(NULL, (size_t)page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return 0;
	/* MPOL_DEFAULT changes nothing, but a filter that forbids the call refuses it too */
	error = (int)syscall(SYS_mbind, page, (unsigned long)page_bytes, MPOL_DEFAULT, NULL, 0ul, 0);
	munmap(page, (size_t)page_bytes);
	return !error;
}
