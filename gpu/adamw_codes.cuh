/* The codes of 8-bit state (optim/adamw_state.h) by tables in shared memory. A code's value takes 3
 * instructions and a value's code 10; by the definition they take 12 and 50. The compiler makes these tables
 * from those of that header, so the bits are the same.
 *
 * No two edges between decades lie between a power of two and the next one. So the sign and the exponent of x
 * select a slot: an edge, and the line below it. One comparison with the edge chooses the line, and p is the
 * whole part of its value. `one` is one more edge with a flat line above it, because all larger values count
 * as 1.
 */
#ifndef FERRY_GPU_ADAMW_CODES_CUH
#define FERRY_GPU_ADAMW_CODES_CUH

#include "gpu/adamw_usual.cuh"

enum {
	CODE_EDGES = 8, /* seven of decades, and `one` */
	CODE_LINES = CODE_EDGES + 1,
	CODE_SLOTS = 128, /* exponents of values below 2 */
	CODE_BIASED = 256 /* exponents of a sign */
};

/* p = trunc(min(fma(x, scale, start), last)); the code is sign * p + offset. */
struct code_line {
	float scale, start, last;
	int32_t sign;
};

struct code_slot {
	float edge;    /* or infinity */
	uint32_t line; /* the line below the edge: its first byte */
};

struct adamw_codes {
	float m_value[256], v_value[256];
	code_line line[3 * CODE_LINES + 1]; /* for m > 0, m < 0, v; one more for a multiple of 16 bytes */
	code_slot m_slot[CODE_BIASED + CODE_SLOTS], v_slot[CODE_SLOTS];
};

constexpr float code_value(const struct adamw_map &map, int position)
{
	int odd = 2 * position + 1, exponent = 0;

	while (odd >> (exponent + 1))
		exponent++;
	return (float)(9 * odd - (int)map.minus[(127 + exponent) % 8]) * map.unit[(127 + exponent) % 8];
}

constexpr void code_lines_make(code_line *line, const struct adamw_map &map, int sign, float one)
{
	for (int i = 0; i < CODE_EDGES; i++)
		line[i] = {sign < 0 ? -map.scale[i] : map.scale[i], map.start[i], map.last[i], sign};
	line[CODE_EDGES] = {0, one, one, sign};
}

constexpr void code_slots_make(code_slot *slot, const struct adamw_map &map, int first_line)
{
	double begin = 0, end = 0x1p-126; /* exponent 0 has zero and subnormals */

	for (int s = 0; s < CODE_SLOTS; s++) {
		int below = 0;

		slot[s].edge = INFINITY;
		for (int i = 0; i < CODE_EDGES; i++) {
			float edge = i < CODE_EDGES - 1 ? map.edge[i] : map.one;

			below += edge < begin;
			if (edge >= begin && edge < end)
				slot[s].edge = edge;
		}
		slot[s].line = (uint32_t)((first_line + below) * sizeof(code_line));
		begin = end;
		end *= 2;
	}
}

constexpr struct adamw_codes adamw_codes_make()
{
	struct adamw_codes codes = {};

	for (int c = 0; c < 256; c++) {
		float size = code_value(adamw_map_signed, c < 127 ? 127 - c : c - 127);

		codes.m_value[c] = c < 127 ? -size : size;
		codes.v_value[c] = code_value(adamw_map_unsigned, c + 1);
	}
	code_lines_make(codes.line, adamw_map_signed, 1, 128);
	code_lines_make(codes.line + CODE_LINES, adamw_map_signed, -1, 127);
	code_lines_make(codes.line + 2 * CODE_LINES, adamw_map_unsigned, 1, 256);
	code_slots_make(codes.m_slot, adamw_map_signed, 0);
	code_slots_make(codes.m_slot + CODE_BIASED, adamw_map_signed, CODE_LINES);
	code_slots_make(codes.v_slot, adamw_map_unsigned, 2 * CODE_LINES);
	return codes;
}

ADAMW_TABLE struct adamw_codes adamw_codes_table = adamw_codes_make();

/* Loads the tables into shared memory, with all threads of the block. A barrier must follow. */
static __device__ __forceinline__ void codes_load(struct adamw_codes *codes)
{
	const vec<uint32_t, 4> *from = (const vec<uint32_t, 4> *)&adamw_codes_table;

	static_assert(sizeof(*codes) % sizeof(*from) == 0, "whole vectors");
	for (unsigned i = threadIdx.x; i < sizeof(*codes) / sizeof(*from); i += blockDim.x)
		((vec<uint32_t, 4> *)codes)[i] = from[i];
}

/* Returns sign * p. |x| is below 2. */
static __device__ __forceinline__ int32_t code_part(
        const struct adamw_codes &codes, const code_slot *slots, float x)
{
	const vec<uint32_t, 2> slot = *(const vec<uint32_t, 2> *)(slots + (__float_as_uint(x) >> 23));
	uint32_t at = slot.at[1];
	vec<float, 4> line;

	if (fabsf(x) > __uint_as_float(slot.at[0]))
		at += sizeof(code_line);
	line = *(const vec<float, 4> *)((const char *)codes.line + at);
	return (int32_t)fminf(fmaf(x, line.at[0], line.at[1]), line.at[2]) *
	       (int32_t)__float_as_uint(line.at[3]);
}

/* The lower byte is the code. */
static __device__ __forceinline__ uint32_t code_of_m(const struct adamw_codes &codes, float x)
{
	return (uint32_t)(127 + code_part(codes, codes.m_slot, x));
}

static __device__ __forceinline__ uint32_t code_of_v(const struct adamw_codes &codes, float x)
{
	return (uint32_t)(code_part(codes, codes.v_slot, x) - 1);
}

static __device__ __forceinline__ uint32_t byte_get(uint32_t word, int i)
{
	return __byte_perm(word, 0, 0x4440 + i);
}

/* The lower bytes of four words. */
static __device__ __forceinline__ uint32_t bytes_join(const uint32_t (&word)[4])
{
	return __byte_perm(
	        __byte_perm(word[0], word[1], 0x0040), __byte_perm(word[2], word[3], 0x0040), 0x5410);
}

#endif
