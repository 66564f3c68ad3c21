/* Writes a new file once from its first byte to its last, at the speed of the disk.
 *
 * Mental model. The writer copies bytes into a ring of BLOCK_WRITER_SLOTS blocks of SAFETENSORS_BLOCK_BYTES.
 * It hashes them on the way and stores them past the CPU caches. A thread writes up to half the ring at once
 * while the caller fills the other half. One large request keeps a disk as busy as several threads, which
 * would wait for each other while a file grows.
 *
 * If the file system allows, writes go past the page cache. Else write-back begins at once, and pages on the
 * disk are dropped. Either way the memory of a file is the ring, for any file length. The last block has no
 * round length and is an ordinary write. So are files of fewer than BLOCK_WRITER_ALONE blocks, which need no
 * thread. A longer file reserves its room on the disk at the start, so a full disk shows at once. The ring
 * stays for the next file.
 *
 * One thread fills the ring. The next call returns an error of a write, and so does every call after it.
 */
#ifndef FERRY_CHECKPOINT_FILE_BLOCK_WRITER_H
#define FERRY_CHECKPOINT_FILE_BLOCK_WRITER_H

#include <stddef.h>
#include <stdint.h>

enum { BLOCK_WRITER_SLOTS = 8, BLOCK_WRITER_ALONE = 4 };

struct block_writer;

/* Memory needed to write a file of total_bytes. */
int64_t block_writer_memory_bytes(int64_t total_bytes);

/* Whether to keep the XXH3 64 of each block. */
enum block_hashing { BLOCK_HASHING_OFF, BLOCK_HASHING_ON };

/* Creates `path`, which must not exist, for exactly total_bytes. ERR_INPUT, ERR_IO, ERR_NOMEM. */
int block_writer_open(
        struct block_writer **writer, const char *path, int64_t total_bytes, enum block_hashing hashing);

/* Appends bytes, at most as many as the file still lacks; waits for free blocks. */
int block_writer_append(struct block_writer *writer, const void *src, int64_t len_bytes);

/* Call after the last byte: waits for the writes, fsyncs, closes. A failure is final: remove the file and
 * write it again. ERR_INTERNAL if bytes are missing. */
int block_writer_finish(struct block_writer *writer);

/* Bytes so far; hashes of the blocks, complete after finish, valid until free. */
int64_t block_writer_bytes(const struct block_writer *writer);
const uint64_t *block_writer_hashes(const struct block_writer *writer, int64_t *block_count);

/* Also closes an unfinished file and leaves it on the disk. NULL is allowed. */
void block_writer_free(struct block_writer *writer);

#endif
