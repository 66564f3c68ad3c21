/* Chooses the XXH3 kernels for this CPU. */
#include "base/cpu.h"

#define XXH_STATIC_LINKING_ONLY /* for the size of the state */
#include <xxhash.h>

#include "checkpoint/file/hash_kernel.inc"

static const struct hash_kernels library = {"library", hash_of, hash_begin, hash_add, hash_end};

const struct hash_kernels *hash_kernels_at(int index)
{
#ifdef __x86_64__
	if (cpu_has_avx2())
		return index == 0 ? &hash_kernels_avx2 : index == 1 ? &library : NULL;
#endif
	return index == 0 ? &library : NULL;
}

const struct hash_kernels *hash_kernels(void)
{
	return hash_kernels_at(0);
}
