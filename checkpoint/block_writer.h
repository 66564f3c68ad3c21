/* A new file, written once from its first byte to its last, at the speed of the disk.
 *
 * Mental model. Bytes are put into blocks of SAFETENSORS_BLOCK_BYTES, a ring of BLOCK_WRITER_SLOTS of them.
 * They are hashed on the way and stored past the caches, which have better use for the room, and in which the
 * disk's last reading of the ring would stand in the way. Full blocks go to a thread, which writes up to half
 * the ring at once, past the page cache, where the file system can, while the other half is filled: one large
 * request keeps a disk as busy as several threads, which would wait for each other where a file grows. Where
 * the cache cannot be passed, write-back is begun at once, and pages that are on the disk are dropped, so
 * that the memory that a file costs is the ring either way, however long the file is. The last block, of no
 * round length, is an ordinary write, and so is all of a file of fewer than BLOCK_WRITER_ALONE blocks, which
 * needs no thread. A longer file gets its room on the disk when it is made: the disk need not be asked for it
 * with each write, and one that is too full says so at once. The ring stays, for the next file.
 *
 * One thread fills. An error of a write comes out of the next call, and of every one after it.
 */
#ifndef FERRY_CHECKPOINT_BLOCK_WRITER_H
#define FERRY_CHECKPOINT_BLOCK_WRITER_H

#include <stddef.h>
#include <stdint.h>

enum { BLOCK_WRITER_SLOTS = 8, BLOCK_WRITER_ALONE = 4 };

struct block_writer;

/* What writing a file of so many bytes takes of memory. */
int64_t block_writer_memory_bytes(int64_t total_bytes);

/* XXH3 64 of each block are kept or not. */
enum block_hashing { BLOCK_HASHING_OFF, BLOCK_HASHING_ON };

/* Creates `path`, which must not be there, for exactly total_bytes. ERR_INPUT, ERR_IO, ERR_NOMEM. */
int block_writer_open(
        struct block_writer **writer, const char *path, int64_t total_bytes, enum block_hashing hashing);

/* The next bytes, no more than the file still lacks; waits for free blocks. */
int block_writer_append(struct block_writer *writer, const void *src, int64_t len_bytes);

/* All bytes were put: waits for the writes, fsyncs, closes. A failure is final: remove the file and write it
 * anew. ERR_INTERNAL where bytes are missing. */
int block_writer_finish(struct block_writer *writer);

/* Bytes put so far; hashes of the blocks, all after finish, valid until free. */
int64_t block_writer_bytes(const struct block_writer *writer);
const uint64_t *block_writer_hashes(const struct block_writer *writer, int64_t *block_count);

/* Also closes an unfinished file, which is left where it is. NULL is allowed. */
void block_writer_free(struct block_writer *writer);

#endif
