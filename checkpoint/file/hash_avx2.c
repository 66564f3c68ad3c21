/* XXH3, compiled for AVX2. */
#define XXH_INLINE_ALL /* the library's source, compiled here */
#include <xxhash.h>

#include "checkpoint/file/hash_kernel.inc"

const struct hash_kernels hash_kernels_avx2 = {"avx2", hash_of, hash_begin, hash_add, hash_end};
