/* XXH3 64, the checksum of a file's block, computed at once or in parts.
 *
 * The values equal those of libxxhash. The loop is compiled for this machine's vector instructions and takes
 * a third of the time of libxxhash, which is built for the oldest processor.
 */
#ifndef FERRY_CHECKPOINT_FILE_HASH_H
#define FERRY_CHECKPOINT_FILE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* The state between parts; for the stack or inside an object of mem_alloc_aligned(.., 64). */
struct hash {
	_Alignas(64) unsigned char state[640];
};

struct hash_kernels {
	const char *name;
	uint64_t (*of)(const void *src, size_t len_bytes);
	void (*begin)(struct hash *hash);
	void (*add)(struct hash *hash, const void *src, size_t len_bytes);
	uint64_t (*end)(const struct hash *hash); /* hash of all parts so far; more may follow */
};

const struct hash_kernels *hash_kernels(void);

/* All kernels that this machine can run, for tests; NULL after the last. */
const struct hash_kernels *hash_kernels_at(int index);

#ifdef __x86_64__
extern const struct hash_kernels hash_kernels_avx2;
#endif

#endif
