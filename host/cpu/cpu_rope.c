/* Rotary position embedding, forward and backward. */
#include "device/op_rope.h"
#include "host/cpu/cpu_inner.h"

OP_ROPE_LIST(CPU_DECLARE)

/* Rotating back equals rotating with the members of each pair swapped. */
static void rope_turn(const struct cpu_kernels *k, const struct op_rope *o, float *a, float *b,
        const float *cosine, int64_t n)
{
	if (o->direction == ROPE_FORWARD)
		k->rotate(a, b, cosine, cosine + o->rotary / 2, n);
	else
		k->rotate(b, a, cosine, cosine + o->rotary / 2, n);
}

/* The pairs (x[at + 2 j], x[at + 2 j + 1]) of one head of one token. */
static void rope_neighbours(
        const struct cpu_kernels *k, const struct op_rope *o, int64_t at, const float *cosine)
{
	float pairs[2 * CPU_CHUNK], low[CPU_CHUNK], high[CPU_CHUNK];

	for (int64_t j = 0; j < o->rotary / 2; j += CPU_CHUNK) {
		int64_t n = min_i64(CPU_CHUNK, o->rotary / 2 - j), first = at + 2 * j;
		float *x = cpu_out(pairs, cpu_ptr(o->x), first, o->dtype);

		cpu_load(k, pairs, cpu_ptr(o->x), first, 2 * n, o->dtype);
		for (int64_t i = 0; i < n; i++) {
			low[i] = x[2 * i];
			high[i] = x[2 * i + 1];
		}
		rope_turn(k, o, low, high, cosine + j, n);
		for (int64_t i = 0; i < n; i++) {
			x[2 * i] = low[i];
			x[2 * i + 1] = high[i];
		}
		cpu_store(k, cpu_ptr(o->x), first, x, 2 * n, o->dtype);
	}
}

/* The pairs (x[at + j], x[at + half + j]) of one head of one token. */
static void rope_halves(const struct cpu_kernels *k, const struct op_rope *o, int64_t at, const float *cosine)
{
	int64_t half = o->rotary / 2;
	float low[CPU_CHUNK], high[CPU_CHUNK];

	for (int64_t j = 0; j < half; j += CPU_CHUNK) {
		int64_t n = min_i64(CPU_CHUNK, half - j);
		float *a = cpu_out(low, cpu_ptr(o->x), at + j, o->dtype);
		float *b = cpu_out(high, cpu_ptr(o->x), at + half + j, o->dtype);

		cpu_load(k, low, cpu_ptr(o->x), at + j, n, o->dtype);
		cpu_load(k, high, cpu_ptr(o->x), at + half + j, n, o->dtype);
		rope_turn(k, o, a, b, cosine + j, n);
		cpu_store(k, cpu_ptr(o->x), at + j, a, n, o->dtype);
		cpu_store(k, cpu_ptr(o->x), at + half + j, b, n, o->dtype);
	}
}

static void rope_piece(void *context, int64_t piece, int worker)
{
	const struct op_rope *o = context;
	const struct cpu_kernels *k = cpu_kernels();
	const int32_t *position = cpu_ptr(o->position);
	int64_t tokens = cpu_piece_rows(o->heads * o->rotary), end = min_i64((piece + 1) * tokens, o->tokens);

	(void)worker;
	for (int64_t t = piece * tokens; t < end; t++) {
		const float *cosine = (const float *)cpu_ptr(o->table) + position[t] * o->rotary;

		for (int64_t h = 0; h < o->heads; h++)
			(o->pairs == ROPE_NEIGHBOURS ? rope_neighbours : rope_halves)(
			        k, o, t * o->stride + h * o->head_stride, cosine);
	}
}

int cpu_rope(struct cpu_context *cx, const struct op_rope *op)
{
	struct op_rope o = *op;
	int rc = cpu_check_index("rope", cpu_ptr(o.position), o.tokens, o.table_rows);

	if (rc < 0)
		return rc;
	cpu_run(cx, cpu_pieces(o.tokens, cpu_piece_rows(o.heads * o.rotary)), rope_piece, &o);
	return 0;
}
