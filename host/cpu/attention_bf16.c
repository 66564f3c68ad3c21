/* The choice of functions for products of attention's bf16 rows. */
#include "host/cpu/attention_bf16.h"

#include "host/cpu/matmul.h"

#include <stddef.h>

#if defined(__x86_64__) || defined(__aarch64__)
static const struct attention_bf16 by_vectors = {
        .diagonal_rows = 12,
        .pack = attention_bf16_pack,
        .scores = attention_bf16_scores,
        .add = attention_bf16_add,
};
#endif

#if defined(__x86_64__)
static const struct attention_bf16 by_amx = {
        .diagonal_rows = 32,
        .pack = attention_bf16_pack,
        .scores = attention_amx_scores,
        .add = attention_amx_add,
};

/* A tile has 16 rows. With fewer queries most of it is idle, and vectors need no tiles. */
enum { AMX_QUERIES = 8 };

const struct attention_bf16 *attention_bf16(int64_t head_dim, int64_t queries)
{
	enum matmul_way way = matmul_choice(DTYPE_BF16)->way;

	__builtin_cpu_init();
	if (head_dim % 2 || !__builtin_cpu_supports("avx512bf16") || !__builtin_cpu_supports("avx512bw") ||
	        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
		return NULL;
	if (way == MATMUL_AMX && queries >= AMX_QUERIES)
		return head_dim % 32 == 0 && head_dim <= ATTENTION_AMX_HEAD ? &by_amx : NULL;
	return way == MATMUL_AMX || way == MATMUL_AVX512BF16 ? &by_vectors : NULL;
}
#elif defined(__aarch64__)
const struct attention_bf16 *attention_bf16(int64_t head_dim, int64_t queries)
{
	(void)queries;
	return head_dim % 2 == 0 && matmul_choice(DTYPE_BF16)->way == MATMUL_BFMMLA ? &by_vectors : NULL;
}
#else
const struct attention_bf16 *attention_bf16(int64_t head_dim, int64_t queries)
{
	(void)head_dim, (void)queries;
	return NULL;
}
#endif
