/* Finds which pages of a file are in the page cache, and restores that state after reading. */
#include "base/page_cache.h"

#include "base/err.h"
#include "base/mem.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_cachestat
#define SYS_cachestat 451 /* Linux 6.5; the same on all architectures of its table */
#endif

enum { WINDOW_PAGES = 65536 };

struct page_cache {
	int fd;
	int64_t len_bytes, page_bytes, found_pages, page_count;
	uint64_t *is_cached; /* one bit for each page; NULL if all or none are cached */
};

/* Number of cached pages; -1 if the kernel lacks this call or refuses to answer. */
static int64_t count_cached(int fd, int64_t len_bytes)
{
	struct {
		uint64_t begin_bytes, len_bytes;
	} range = {0, (uint64_t)len_bytes};
	struct {
		uint64_t cached, dirty, writeback, evicted, recently_evicted;
	} counts = {0};

	return syscall(SYS_cachestat, fd, &range, &counts, 0) ? -1 : (int64_t)counts.cached;
}

/* Sets the bits of one window of pages. If mincore fails, they count as cached. */
static void look_at(struct page_cache *c, unsigned char *seen, int64_t first, int64_t count)
{
	void *at = mmap(
	        NULL, (size_t)(count * c->page_bytes), PROT_READ, MAP_SHARED, c->fd, first * c->page_bytes);
	int unknown = at == MAP_FAILED || mincore(at, (size_t)(count * c->page_bytes), seen);

	for (int64_t i = 0; i < count; i++) {
		if (!unknown && !(seen[i] & 1))
			continue;
		c->is_cached[(first + i) / 64] |= UINT64_C(1) << (first + i) % 64;
		c->found_pages++;
	}
	if (at != MAP_FAILED)
		munmap(at, (size_t)(count * c->page_bytes));
}

/* Finds the state of every page. */
static int look(struct page_cache *c)
{
	unsigned char *seen = mem_alloc(WINDOW_PAGES, 1);
	int err = 0;

	c->is_cached = mem_alloc((size_t)(c->page_count + 63) / 64, sizeof(*c->is_cached));
	if (!seen || !c->is_cached)
		err = ERR_NOMEM;
	for (int64_t first = 0; !err && first < c->page_count; first += WINDOW_PAGES) {
		int64_t left = c->page_count - first;

		look_at(c, seen, first, left < WINDOW_PAGES ? left : WINDOW_PAGES);
	}
	mem_free(seen);
	if (!err && (c->found_pages == 0 || c->found_pages == c->page_count)) {
		mem_free(c->is_cached);
		c->is_cached = NULL;
	}
	return err;
}

int page_cache_open(struct page_cache **out, int fd, int64_t len_bytes)
{
	struct page_cache *c = mem_alloc(1, sizeof(*c));
	int err = 0;

	*out = NULL;
	if (!c)
		return ERR_NOMEM;
	c->fd = fd;
	c->len_bytes = len_bytes;
	c->page_bytes = sysconf(_SC_PAGESIZE);
	c->page_count = (len_bytes + c->page_bytes - 1) / c->page_bytes;
	c->found_pages = count_cached(fd, len_bytes);
	if (c->found_pages < 0 || (c->found_pages > 0 && c->found_pages < c->page_count)) {
		c->found_pages = 0;
		err = look(c);
	}
	if (err)
		page_cache_close(c);
	else
		*out = c;
	return err;
}

void page_cache_close(struct page_cache *c)
{
	if (!c)
		return;
	mem_free(c->is_cached);
	mem_free(c);
}

/* Whether `page` was cached. *run_end is the end of the run of pages in the same state, at most `end`. */
static int run_of(const struct page_cache *c, int64_t page, int64_t end, int64_t *run_end)
{
	int cached;

	*run_end = end;
	if (!c->is_cached)
		return c->found_pages > 0;
	cached = c->is_cached[page / 64] >> page % 64 & 1;
	for (*run_end = page + 1; *run_end < end; ++*run_end) {
		uint64_t word = c->is_cached[*run_end / 64];

		if (*run_end % 64 == 0 && *run_end + 64 <= end && word == (cached ? UINT64_MAX : 0))
			*run_end += 63;
		else if ((int)(word >> *run_end % 64 & 1) != cached)
			break;
	}
	return cached;
}

int64_t page_cache_found_bytes(const struct page_cache *c, int64_t offset_bytes, int64_t len_bytes)
{
	int64_t range_end = offset_bytes + len_bytes, found = 0, run_end, page, end;

	if (!c || len_bytes <= 0)
		return len_bytes;
	end = (range_end + c->page_bytes - 1) / c->page_bytes;
	for (page = offset_bytes / c->page_bytes; page < end; page = run_end) {
		int64_t first = page * c->page_bytes, last;

		if (!run_of(c, page, end, &run_end))
			continue;
		last = run_end * c->page_bytes;
		found +=
		        (last < range_end ? last : range_end) - (first > offset_bytes ? first : offset_bytes);
	}
	return found;
}

/* Gives the advice for each run of pages that were not cached. */
static void advise(const struct page_cache *c, int64_t page, int64_t end, int advice)
{
	int64_t run_end;

	for (; page < end; page = run_end)
		if (!run_of(c, page, end, &run_end))
			posix_fadvise(c->fd, page * c->page_bytes, (run_end - page) * c->page_bytes, advice);
}

void page_cache_expect(const struct page_cache *c, int64_t offset_bytes, int64_t len_bytes)
{
	if (c && len_bytes > 0)
		advise(c, offset_bytes / c->page_bytes,
		        (offset_bytes + len_bytes + c->page_bytes - 1) / c->page_bytes, POSIX_FADV_WILLNEED);
}

/* Pages that are only partly in the range stay: another reader may still need the rest. */
void page_cache_restore(const struct page_cache *c, int64_t offset_bytes, int64_t len_bytes)
{
	int64_t end = offset_bytes + len_bytes;

	if (c && len_bytes > 0)
		advise(c, (offset_bytes + c->page_bytes - 1) / c->page_bytes,
		        end >= c->len_bytes ? c->page_count : end / c->page_bytes, POSIX_FADV_DONTNEED);
}
