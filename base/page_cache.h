/* Leaves the page cache as a reader of a file found it.
 *
 * Mental model. Reading a large file once fills the page cache with bytes that nobody needs again, and evicts
 * data of others. A page_cache notes before the first read which pages of the file are cached.
 * page_cache_restore drops the pages of a range that were not cached before and keeps the others.
 * page_cache_expect makes the system fetch a range ahead of its reader, so that several requests are in
 * flight even with few reading threads.
 *
 * All of it is advice to the system and may have no effect. The system does not tell which pages of a file
 * are cached to a user who neither owns the file nor may write it (mincore(2), cachestat(2)). Then all pages
 * count as cached.
 */
#ifndef FERRY_BASE_PAGE_CACHE_H
#define FERRY_BASE_PAGE_CACHE_H

#include <stdint.h>

struct page_cache;

/* Call before reading the file. Borrows fd, which must stay open. Uses one bit for each page if the file is
 * partly cached, else almost no memory. ERR_NOMEM. */
int page_cache_open(struct page_cache **cache, int fd, int64_t len_bytes);
void page_cache_close(struct page_cache *cache); /* NULL is allowed */

/* page_cache_expect starts to read the pages of a range that were not cached. page_cache_restore drops them.
 * Any thread may call both; NULL does nothing. */
void page_cache_expect(const struct page_cache *cache, int64_t offset_bytes, int64_t len_bytes);
void page_cache_restore(const struct page_cache *cache, int64_t offset_bytes, int64_t len_bytes);

/* Bytes of a range that were cached at page_cache_open. All of them if that is unknown, or for NULL. */
int64_t page_cache_found_bytes(const struct page_cache *cache, int64_t offset_bytes, int64_t len_bytes);

#endif
