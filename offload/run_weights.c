/* Queues what makes weights of codes, and codes of weights. */
#include "device/op.h"
#include "offload/run_parts.h"

int run_queue_codes(struct run *r, struct stream *q, const struct plan_op *op)
{
	const struct unit_map *map = r->plan->map;
	const struct unit *u = &map->units[op->unit];
	enum dtype dtype = r->plan->policy.compute_dtype;
	int rc = 0;

	for (int i = 0; i < u->piece_count && !rc; i++) {
		const struct unit_piece *piece = &map->pieces[u->pieces[i]];
		int64_t at = piece->offset, cols = model_tensor_cols(&map->model->tensors[piece->tensor]),
		        rows = piece->count / cols;
		dev_addr scales = dev_at(run_arg_address(r, op, ARG_CODE_SCALE), piece->scale);
		int64_t begin = weight_format_scale_begin(u->format, rows, cols);
		struct op expand = {.kind = OP_EXPAND};

		weight_format_shape(u->format, &rows, &cols);
		expand.expand = (struct op_expand){
		        .dst = dev_at(run_arg_address(r, op, ARG_DST), at * dtype_bytes(dtype)),
		        .codes = dev_at(run_arg_address(r, op, ARG_CODES), code_bytes(u->format->code, at)),
		        .scales = dev_at(scales, begin),
		        .outer = begin ? scales : DEV_NONE,
		        .rows = rows,
		        .cols = cols,
		        .block_rows = u->format->block_rows,
		        .block_cols = u->format->block_cols ? u->format->block_cols : cols,
		        .code = u->format->code,
		        .scale = u->format->scale,
		        .dst_dtype = dtype};
		rc = stream_op(q, &expand);
	}
	return rc;
}

/* Zeroes a buffer from `end` on, so that all of it is written, as copies of planes do. */
static int rest_fill(
        struct run *r, struct stream *q, const struct plan_op *op, enum plan_role role, int64_t end)
{
	int64_t bytes = r->plan->buffers[run_arg(r, op, role)].bytes - end;
	struct op fill = {.kind = OP_FILL};

	fill.fill = (struct op_fill){dev_at(run_arg_address(r, op, role), end), bytes, 0};
	return bytes > 0 ? stream_op(q, &fill) : 0;
}

int run_queue_encode(struct run *r, struct stream *q, const struct plan_op *op)
{
	const struct unit_map *map = r->plan->map;
	const struct unit *u = &map->units[op->unit];
	int64_t codes_end = 0, scales_end = 0;
	int rc = 0;

	for (int i = 0; i < u->piece_count && !rc; i++) {
		const struct unit_piece *piece = &map->pieces[u->pieces[i]];
		int64_t cols = model_tensor_cols(&map->model->tensors[piece->tensor]);
		struct op encode = {.kind = OP_ENCODE};

		encode.encode =
		        (struct op_encode){.codes = dev_at(run_arg_address(r, op, ARG_CODES), piece->offset),
		                .scales = dev_at(run_arg_address(r, op, ARG_CODE_SCALE), piece->scale),
		                .src = dev_at(run_arg_address(r, op, ARG_HI), piece->offset * 2),
		                .rows = piece->count / cols,
		                .cols = cols,
		                .src_stride = cols,
		                .block_rows = u->multiplied->block_rows,
		                .src_dtype = DTYPE_BF16};
		rc = stream_op(q, &encode);
		codes_end = piece->offset + piece->count;
		scales_end =
		        piece->scale + 4 * weight_format_scales(u->multiplied, piece->count / cols, cols);
	}
	if (!rc)
		rc = rest_fill(r, q, op, ARG_CODES, codes_end);
	return rc ? rc : rest_fill(r, q, op, ARG_CODE_SCALE, scales_end);
}
