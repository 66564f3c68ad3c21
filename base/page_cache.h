/* The page cache as a reader of a file found it, and how it is left that way.
 *
 * Mental model. Whoever reads a large file once fills the page cache with bytes that nobody wants again, and
 * drives out what others do. A page_cache looks, before the first read, at which pages of the file are in
 * memory. Ranges that are done with are given to page_cache_restore: pages that were not there before leave,
 * pages that were stay. page_cache_expect has the system fetch a range ahead of its reader, so that several
 * requests are in flight however few threads read.
 *
 * All of it is advice to the system: what cannot be told or done leaves the cache as reading left it. Nothing
 * can be told of a file that this user neither owns nor may write (mincore(2), cachestat(2)): all of it then
 * counts as cached.
 */
#ifndef FERRY_BASE_PAGE_CACHE_H
#define FERRY_BASE_PAGE_CACHE_H

#include <stdint.h>

struct page_cache;

/* Before anything of the file is read; fd is borrowed. A bit a page where the file is cached in part, else
 * next to nothing. ERR_NOMEM. */
int page_cache_open(struct page_cache **cache, int fd, int64_t len_bytes);
void page_cache_close(struct page_cache *cache); /* NULL is allowed */

/* Starts to read what was not cached of a range of the file. Both: any number of threads; NULL does nothing.
 */
void page_cache_expect(const struct page_cache *cache, int64_t offset_bytes, int64_t len_bytes);
void page_cache_restore(const struct page_cache *cache, int64_t offset_bytes, int64_t len_bytes);

/* Bytes of a range of the file that were cached when it was opened; all of them where that cannot be told,
 * and with NULL. */
int64_t page_cache_found_bytes(const struct page_cache *cache, int64_t offset_bytes, int64_t len_bytes);

#endif
