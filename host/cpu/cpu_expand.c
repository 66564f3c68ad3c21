/* Weights from codes and the scales of their blocks. */
#include "device/op_move.h"
#include "host/cpu/cpu_inner.h"

OP_MOVE_LIST(CPU_DECLARE)

struct expand {
	const struct op_expand *o;
	int64_t across; /* pieces of a row */
};

/* Elements [at, at + n) of a row, which share a scale. */
static void expand_run(float *out, enum code code, const uint8_t *codes, const float *values, float scale,
        int64_t at, int64_t n)
{
	const int8_t *whole = (const int8_t *)codes + at;
	int64_t i = 0;

	if (code == CODE_I8) {
		for (; i < n; i++)
			out[i] = (float)whole[i] * scale;
	} else if (code_bits(code) == 8) {
		for (; i < n; i++)
			out[i] = values[codes[at + i]] * scale;
	} else {
		int high = code_first_is_high(code) ? 4 : 0, low = 4 - high;

		if (at % 2 && n)
			out[i++] = values[code_at(code, codes, at)] * scale;
		for (codes += (at + i) / 2; i + 1 < n; i += 2, codes++) {
			out[i] = values[*codes >> high & 15] * scale;
			out[i + 1] = values[*codes >> low & 15] * scale;
		}
		if (i < n)
			out[i] = values[*codes >> high & 15] * scale;
	}
}

static void expand_piece(void *context, int64_t piece, int worker)
{
	const struct expand *e = context;
	const struct op_expand *o = e->o;
	const struct cpu_kernels *k = cpu_kernels();
	const float *values = code_values(o->code),
	            *outer = o->scale == CODE_SCALE_NESTED ? cpu_ptr(o->outer) : NULL;
	int64_t row = piece / e->across, first = piece % e->across * CPU_PIECE,
	        end = min_i64(first + CPU_PIECE, o->cols),
	        scales = row / o->block_rows * ((o->cols - 1) / o->block_cols + 1);
	const uint8_t *codes = (const uint8_t *)cpu_ptr(o->codes) + row * code_bytes(o->code, o->cols);
	float buffer[CPU_CHUNK];

	(void)worker;
	for (int64_t at = first, n; at < end; at += n) {
		float *out, scale;

		n = min_i64(CPU_CHUNK, end - at);
		out = cpu_out(buffer, cpu_ptr(o->dst), row * o->cols + at, o->dst_dtype);
		for (int64_t i = 0, run; i < n; i += run) {
			int64_t block = (at + i) / o->block_cols;

			run = min_i64(n, (block + 1) * o->block_cols - at) - i;
			code_scales_read(o->scale, &scale, cpu_ptr(o->scales), outer, scales + block, 1);
			expand_run(out + i, o->code, codes, values, scale, at + i, run);
		}
		cpu_store(k, cpu_ptr(o->dst), row * o->cols + at, out, n, o->dst_dtype);
	}
}

int cpu_expand(struct cpu_context *cx, const struct op_expand *op)
{
	struct expand e = {op, cpu_pieces(op->cols, CPU_PIECE)};

	cpu_run(cx, op->rows * e.across, expand_piece, &e);
	return 0;
}
