/* Queues the operations of a plan on the streams of a device. */
#include "offload/run.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/work.h"
#include "device/op.h"
#include "offload/run_parts.h"
#include "optim/adamw_step.h"

#include <stdlib.h>
#include <string.h>

/* ---- arguments ---- */

int run_arg(const struct run *r, const struct plan_op *op, enum plan_role role)
{
	for (int i = 0; i < op->arg_count; i++)
		if (r->plan->args[op->first_arg + i].role == role)
			return r->plan->args[op->first_arg + i].buffer;
	return -1;
}

void *run_host_address(const struct run *r, int buffer)
{
	const struct plan_buffer *b = &r->plan->buffers[buffer];

	if (b->space == SPACE_STORE)
		return store_at(r->dock->store, plan_kind_plane(b->kind), b->unit);
	return staging_base(r->dock->staging) + b->offset;
}

dev_addr run_device_address(const struct run *r, int buffer)
{
	return dev_at(r->dock->arena, r->plan->buffers[buffer].offset);
}

dev_addr run_arg_address(const struct run *r, const struct plan_op *op, enum plan_role role)
{
	int buffer = run_arg(r, op, role);

	return buffer >= 0 ? run_device_address(r, buffer) : DEV_NONE;
}

/* Bytes of this rank's shard in a buffer of a unit. */
static int64_t shard_bytes_of(const struct run *r, int buffer)
{
	const struct plan_buffer *b = &r->plan->buffers[buffer];
	const struct unit *u = &r->plan->map->units[b->unit];

	switch (b->kind) {
	case BUFFER_PLANE_CODES:
	case BUFFER_WEIGHTS_CODES:
		return unit_coded_shard_bytes(u, PLANE_CODES);
	case BUFFER_PLANE_CODE_SCALE:
	case BUFFER_WEIGHTS_SCALES:
		return unit_coded_shard_bytes(u, PLANE_CODE_SCALE);
	default:
		return u->shard_count * dtype_bytes(b->dtype);
	}
}

/* Address of this rank's shard: the begin of a buffer for a shard, or a place in a buffer for a whole
 * unit. */
static dev_addr shard_address(const struct run *r, int buffer)
{
	const struct plan_buffer *b = &r->plan->buffers[buffer];
	int64_t shard_bytes = shard_bytes_of(r, buffer);

	return dev_at(run_device_address(r, buffer),
	        b->bytes == shard_bytes ? 0 : shard_bytes * r->plan->map->shard_rank);
}

static int64_t shard_count(const struct run *r, const struct plan_op *op)
{
	return r->plan->map->units[op->unit].shard_count;
}

/* Numbers of this rank in a plane of a whole unit. */
static int64_t plane_count(const struct run *r, int buffer)
{
	const struct plan_buffer *b = &r->plan->buffers[buffer];

	return b->bytes / dtype_bytes(b->dtype) / r->plan->map->shard_ranks;
}

/* ---- copies ---- */

/* Bytes of a row of the unit's table on the device. */
static int64_t row_bytes(const struct run *r, const struct plan_op *op)
{
	return r->plan->map->units[op->unit].row_count * dtype_bytes(r->plan->policy.compute_dtype);
}

static int queue_copy(struct run *r, struct stream *q, const struct plan_op *op)
{
	int src = run_arg(r, op, ARG_SRC), dst = run_arg(r, op, ARG_DST);
	const struct plan_buffer *from = &r->plan->buffers[src], *to = &r->plan->buffers[dst];
	int64_t bytes = from->bytes < to->bytes ? from->bytes : to->bytes;

	if (op->kind == PLAN_OP_LOSS && r->plan->kind != PLAN_LOGITS)
		bytes = 4 * r->step->micro[op->micro].targets * (1 + plan_head_also(r->plan));
	if (from->kind == BUFFER_ROWS)
		bytes = row_bytes(r, op) * run_rows_count(r, op->unit, op->micro);
	if (from->kind == BUFFER_ROW_GRADIENTS)
		bytes = row_bytes(r, op) * r->step->micro[op->micro].tokens;
	if (!bytes)
		return 0;
	if (to->space == SPACE_DEVICE)
		return stream_copy_in(q, to->unit >= 0 ? shard_address(r, dst) : run_device_address(r, dst),
		        run_host_address(r, src), bytes);
	return stream_copy_out(q, run_host_address(r, dst),
	        from->unit >= 0 ? shard_address(r, src) : run_device_address(r, src), bytes);
}

/* ---- gradients and updates on the device ---- */

static int queue_cast(struct run *r, struct stream *q, const struct plan_op *op)
{
	int src = run_arg(r, op, ARG_SRC), dst = run_arg(r, op, ARG_DST);
	struct op cast = {.kind = OP_CAST};

	cast.cast = (struct op_cast){
	        .dst = shard_address(r, dst),
	        .src = shard_address(r, src),
	        .count = shard_count(r, op),
	        .dst_dtype = r->plan->buffers[dst].dtype,
	        .src_dtype = r->plan->buffers[src].dtype,
	};
	return stream_op(q, &cast);
}

static int queue_copy_shard(struct run *r, struct stream *q, const struct plan_op *op)
{
	int src = run_arg(r, op, ARG_SRC), dst = run_arg(r, op, ARG_DST);
	struct op copy = {.kind = OP_COPY};

	copy.copy = (struct op_copy){
	        .dst = shard_address(r, dst), .src = shard_address(r, src), .bytes = shard_bytes_of(r, dst)};
	return stream_op(q, &copy);
}

/* Casts a whole unit. */
static int queue_cast_whole(struct run *r, struct stream *q, const struct plan_op *op, int src)
{
	int dst = run_arg(r, op, ARG_DST);
	struct op cast = {.kind = OP_CAST};

	cast.cast = (struct op_cast){
	        .dst = run_device_address(r, dst),
	        .src = run_device_address(r, src),
	        .count = r->plan->map->units[op->unit].count,
	        .dst_dtype = r->plan->buffers[dst].dtype,
	        .src_dtype = r->plan->buffers[src].dtype,
	};
	return stream_op(q, &cast);
}

static int queue_accumulate(struct run *r, struct stream *q, const struct plan_op *op)
{
	dev_addr src = shard_address(r, run_arg(r, op, ARG_SRC)),
	         dst = shard_address(r, run_arg(r, op, ARG_DST));
	struct op work = {.kind = op->first ? OP_COPY : OP_ADD};

	if (op->first)
		work.copy = (struct op_copy){.dst = dst, .src = src, .bytes = 4 * shard_count(r, op)};
	else
		work.add = (struct op_add){dst, dst, src, shard_count(r, op), DTYPE_F32};
	return stream_op(q, &work);
}

/* The part of a piece in this rank's shard. */
struct part {
	int tensor;
	int64_t at;    /* elements from the shard's start */
	int64_t first; /* elements from the tensor's start */
	int64_t count;
	int64_t sums; /* its first block of sums of squares */
};
typedef int part_fn(struct run *r, struct stream *q, const struct plan_op *op, const struct part *part);

static int queue_parts(struct run *r, struct stream *q, const struct plan_op *op, part_fn *fn)
{
	const struct unit_map *map = r->plan->map;
	const struct unit *u = &map->units[op->unit];
	int rc = 0;

	for (int i = 0; i < u->piece_count && !rc; i++) {
		const struct unit_piece *piece = &map->pieces[u->pieces[i]];
		struct part part = {.tensor = piece->tensor,
		        .sums = r->norm_first[piece->tensor] + piece->first / SUMSQ_BLOCK};

		unit_map_locate(
		        map, part.tensor, piece->first, piece->count, &part.at, &part.count, &part.first);
		part.at -= u->first;
		part.first += piece->first;
		if (part.count)
			rc = fn(r, q, op, &part);
	}
	return rc;
}

static int part_sumsq(struct run *r, struct stream *q, const struct plan_op *op, const struct part *part)
{
	int src = run_arg(r, op, ARG_SRC);
	enum dtype dtype = r->plan->buffers[src].dtype;
	struct op sumsq = {.kind = OP_SUMSQ};

	sumsq.sumsq = (struct op_sumsq){
	        .partial = dev_at(run_arg_address(r, op, ARG_NORM), 8 * part->sums),
	        .x = dev_at(shard_address(r, src), part->at * dtype_bytes(dtype)),
	        .count = part->count,
	        .dtype = dtype,
	};
	return stream_op(q, &sumsq);
}

/* Rounds up to the next tensor. The gap is zero and adds nothing to the last block's sum. */
static int part_round(struct run *r, struct stream *q, const struct plan_op *op, const struct part *part)
{
	struct op round = {.kind = OP_CAST_SUMSQ};

	round.cast_sumsq = (struct op_cast_sumsq){
	        .dst = dev_at(shard_address(r, run_arg(r, op, ARG_DST)), 2 * part->at),
	        .partial = dev_at(run_arg_address(r, op, ARG_NORM), 8 * part->sums),
	        .src = dev_at(shard_address(r, run_arg(r, op, ARG_SRC)), 4 * part->at),
	        .count = round_up(part->count, UNIT_ALIGN),
	};
	return stream_op(q, &round);
}

/* Rounds all tensors, and zeroes the rest of the shard after the last tensor. */
static int queue_round(struct run *r, struct stream *q, const struct plan_op *op)
{
	const struct unit_map *map = r->plan->map;
	const struct unit *u = &map->units[op->unit];
	const struct unit_piece *last = &map->pieces[u->pieces[u->piece_count - 1]];
	int64_t end = last->offset + round_up(last->count, UNIT_ALIGN);
	int rc = queue_parts(r, q, op, part_round);
	int64_t rest = end - u->shard_count * map->shard_rank;
	struct op fill = {.kind = OP_FILL};

	rest = rest > 0 ? rest : 0;
	if (rc || rest >= u->shard_count)
		return rc;
	fill.fill = (struct op_fill){.dst = dev_at(shard_address(r, run_arg(r, op, ARG_DST)), 2 * rest),
	        .bytes = 2 * (u->shard_count - rest)};
	return stream_op(q, &fill);
}

/* Address of element `at` of a shard in a state plane; DEV_NONE if the operation has no such plane. */
static dev_addr state_at(const struct run *r, const struct plan_op *op, enum plane plane, int64_t at)
{
	int buffer = run_arg(r, op, plan_plane_role(plane));

	if (buffer < 0)
		return DEV_NONE;
	return dev_at(run_device_address(r, buffer), plan_plane_bytes(&r->plan->policy, plane, at));
}

static int part_update(struct run *r, struct stream *q, const struct plan_op *op, const struct part *part)
{
	const struct model_tensor *tensor = &r->plan->map->model->tensors[part->tensor];
	int grad = run_arg(r, op, ARG_SRC);
	enum dtype dtype = r->plan->buffers[grad].dtype;
	struct op adamw = {.kind = OP_ADAMW};

	adamw.adamw = (struct op_adamw){
	        .hi = state_at(r, op, PLANE_HI, part->at),
	        .lo = state_at(r, op, PLANE_LO, part->at),
	        .m = state_at(r, op, PLANE_M, part->at),
	        .v = state_at(r, op, PLANE_V, part->at),
	        .m_scale = state_at(r, op, PLANE_M_SCALE, part->at),
	        .v_scale = state_at(r, op, PLANE_V_SCALE, part->at),
	        .grad = dev_at(shard_address(r, grad), part->at * dtype_bytes(dtype)),
	        .count = part->count,
	        .first = part->first,
	        .tensor = part->tensor,
	        .decay = tensor->decay,
	        .grad_dtype = dtype,
	        .state = r->plan->policy.state,
	        .step = r->step->adamw[model_tensor_lr(tensor)],
	};
	return stream_op(q, &adamw);
}

static int queue_expand(struct run *r, struct stream *q, const struct plan_op *op)
{
	struct op join = {.kind = OP_JOIN};

	if (run_arg(r, op, ARG_CODES) >= 0)
		return run_queue_codes(r, q, op);
	if (run_arg(r, op, ARG_LO) < 0) /* without lo, hi alone is the weight */
		return queue_cast_whole(r, q, op, run_arg(r, op, ARG_HI));
	join.join = (struct op_join){
	        .dst = run_arg_address(r, op, ARG_DST),
	        .hi = run_arg_address(r, op, ARG_HI),
	        .lo = run_arg_address(r, op, ARG_LO),
	        .count = r->plan->map->units[op->unit].count,
	};
	return stream_op(q, &join);
}

/* ---- execution ---- */

static int queue_op(struct run *r, struct stream *q, int index)
{
	const struct plan_op *op = &r->plan->ops[index];
	int dst = run_arg(r, op, ARG_DST);

	switch (op->kind) {
	case PLAN_OP_LOAD:
	case PLAN_OP_FETCH:
	case PLAN_OP_SPILL:
	case PLAN_OP_REFILL:
	case PLAN_OP_RETURN:
	case PLAN_OP_NORM:
	case PLAN_OP_LOSS:
	case PLAN_OP_TALLY:
	case PLAN_OP_SHOW:
	case PLAN_OP_GUIDE:
		return queue_copy(r, q, op);
	case PLAN_OP_COLLECT:
		return run_queue_collect(r, q, op);
	case PLAN_OP_JUDGE:
		return run_queue_judge(r, q, index);
	case PLAN_OP_COPY:
		return queue_copy_shard(r, q, op);
	case PLAN_OP_GATHER:
		return comm_all_gather(r->dock->comm, q, run_device_address(r, dst), plane_count(r, dst),
		        r->plan->buffers[dst].dtype);
	case PLAN_OP_SCATTER:
		return comm_reduce_scatter(r->dock->comm, q, run_device_address(r, dst), shard_count(r, op),
		        r->plan->buffers[dst].dtype);
	case PLAN_OP_NARROW:
		return queue_cast_whole(r, q, op, run_arg(r, op, ARG_SRC));
	case PLAN_OP_REDUCE:
		return comm_all_reduce(r->dock->replicas, q, shard_address(r, dst), shard_count(r, op),
		        r->plan->buffers[dst].dtype);
	case PLAN_OP_EXPAND:
		return queue_expand(r, q, op);
	case PLAN_OP_ENCODE:
		return run_queue_encode(r, q, op);
	case PLAN_OP_ROW_NORMS:
		return run_queue_row_norms(r, q, op);
	case PLAN_OP_FORWARD:
	case PLAN_OP_HEAD:
	case PLAN_OP_VECTORS:
	case PLAN_OP_LOGITS:
	case PLAN_OP_RECOMPUTE:
	case PLAN_OP_BACKWARD:
		return run_queue_stage(r, q, op);
	case PLAN_OP_ZERO:
		return run_queue_zero(r, q, op);
	case PLAN_OP_ROUND:
		return queue_round(r, q, op);
	case PLAN_OP_CAST:
		return queue_cast(r, q, op);
	case PLAN_OP_SUMSQ:
		return queue_parts(r, q, op, part_sumsq);
	case PLAN_OP_ACCUMULATE:
		return op->queue == QUEUE_CPU ? run_queue_work(r, q, index) : queue_accumulate(r, q, op);
	case PLAN_OP_FINISH:
	case PLAN_OP_UPDATE:
		return run_queue_work(r, q, index);
	case PLAN_OP_PICK:
	case PLAN_OP_SPREAD:
		return run_queue_rows(r, q, index);
	case PLAN_OP_UPDATE_DEVICE:
		return queue_parts(r, q, op, part_update);
	case PLAN_OP_DISCARD:
		return stream_discard(q, run_device_address(r, dst), r->plan->buffers[dst].bytes);
	case PLAN_OP_KIND_COUNT:
		break;
	}
	return err_set(ERR_INTERNAL, "operation %d has no kind", index);
}

/* Skips updates if none are pending, and work on micro-batches that this step lacks (at the end of an
 * epoch). */
static int op_is_skipped(const struct run *r, const struct plan_op *op)
{
	if (op->updates && !r->step->updates_pending)
		return 1;
	if (op->micro < 0 || op->micro >= r->step->micro_count)
		return op->micro >= 0;
	/* a rank without rows still sums the other ranks' gradients in its shard */
	return op->kind != PLAN_OP_ACCUMULATE && !r->step->micro[op->micro].tokens;
}

/* Whether the first operation on a gradient writes nothing, because its micro-batch is missing or has no
 * targets. */
static int op_leaves_unwritten(const struct run *r, const struct plan_op *op, int skip)
{
	if (!op->first)
		return 0;
	if (op->kind == PLAN_OP_HEAD)
		return skip || !r->step->micro[op->micro].targets;
	return op->kind == PLAN_OP_BACKWARD && skip;
}

static int execute_op(struct run *r, int index, struct run_span *span)
{
	const struct plan_op *op = &r->plan->ops[index];
	struct stream *q = r->dock->streams[op->queue];
	int skip = op_is_skipped(r, op), rc = 0;
	struct stream_work before, after;

	for (int w = 0; w < op->wait_count && !rc; w++)
		rc = stream_wait(q, r->events[r->plan->waits[op->first_wait + w]]);
	if (span && !rc) {
		*span = (struct run_span){.begin_ns = -1};
		rc = skip ? 0 : stream_stamp(q, &span->begin_ns);
	}
	stream_get_work(q, &before);
	if (r->dock->micro_times > 0)
		stream_times(q, plan_op_grows(op) ? r->dock->micro_times : 1);
	if (!rc && !skip)
		rc = queue_op(r, q, index);
	if (!rc && op->kind == PLAN_OP_VECTORS)
		rc = run_queue_no_vectors(r, q, op);
	if (!rc && op_leaves_unwritten(r, op, skip))
		rc = run_queue_unwritten(r, q, op);
	stream_get_work(q, &after);
	if (span && !rc && !skip) {
		span->work =
		        (struct stream_work){after.alone_ns - before.alone_ns, after.bus_ns - before.bus_ns};
		rc = stream_stamp(q, &span->end_ns);
	}
	if (!rc && r->events[index] && (op->signals || !span))
		rc = event_record(r->events[index], q);
	return rc ? err_note(rc, "operation %d (%s)", index, plan_op_name(op->kind)) : 0;
}

/* The plan has room for the micro-batch. */
static int micro_check(const struct plan_policy *o, const struct host_batch *micro)
{
	const struct batch_rule *rule = &objective_type(&o->objective)->batch;
	const struct batch_sizes most = {o->max_tokens, o->max_targets, o->max_documents},
	                         sizes = {micro->tokens, micro->targets, micro->documents};
	int fits = sizes.tokens <= most.tokens && sizes.targets <= most.targets;

	for (int i = 0; i < batch_array_count(rule); i++)
		fits &= batch_array_bytes(&rule->array[i], &sizes) <=
		        batch_array_bytes(&rule->array[i], &most);
	return fits ? 0
	            : err_set(ERR_RANGE,
	                      "micro-batch of %lld tokens, %lld targets, %lld documents, plan of %lld, %lld, "
	                      "%lld",
	                      (long long)sizes.tokens, (long long)sizes.targets, (long long)sizes.documents,
	                      (long long)most.tokens, (long long)most.targets, (long long)most.documents);
}

/* Operations that may be queued ahead of the one that is shown. */
enum { SHOWN_LAG = 256 };

int run_execute(struct run *r, const struct run_step *step, struct run_span *spans)
{
	int is_shown = r->plan->kind == PLAN_TRAIN && !spans && device_has_bytes(r->dock->device);
	int count = r->plan->op_count, rc = 0, done;

	if (step->micro_count > r->plan->policy.micro_batches)
		return err_set(ERR_RANGE, "step of %d micro-batches, plan of %d", step->micro_count,
		        r->plan->policy.micro_batches);
	for (int m = 0; m < step->micro_count && !rc; m++)
		rc = micro_check(&r->plan->policy, &step->micro[m]);
	if (!rc && is_shown)
		rc = run_shown_open(r);
	if (rc)
		return rc;
	r->step = step;
	if (is_shown)
		work_begin(work_step, count);
	for (int i = 0; i < count + SHOWN_LAG && !rc; i++) {
		if (i < count)
			rc = execute_op(r, i, spans ? &spans[i] : NULL);
		if (!rc && is_shown && i >= SHOWN_LAG)
			rc = run_show(r, i - SHOWN_LAG);
	}
	done = device_sync(r->dock->device);
	if (is_shown)
		work_end();
	r->step = NULL;
	return rc ? rc : done;
}

/* ---- open and close ---- */

static int run_events_open(struct run *r)
{
	int rc = 0;

	for (int i = 0; i < r->plan->op_count && !rc; i++)
		if (r->plan->ops[i].signals)
			rc = event_open(&r->events[i], r->dock->device);
	return rc;
}

int run_open(struct run **out, const struct plan *plan, const struct dock *dock)
{
	const struct model *model = plan->map->model;
	struct run *r = mem_alloc(1, sizeof(*r));
	int rc = ERR_NOMEM;

	if (!r)
		return rc;
	r->plan = plan;
	r->dock = dock;
	r->events = mem_alloc((size_t)plan->op_count, sizeof(*r->events));
	r->calls = mem_alloc((size_t)plan->op_count, sizeof(*r->calls));
	r->weight = mem_alloc((size_t)model->tensor_count, sizeof(*r->weight));
	r->scales = mem_alloc((size_t)model->tensor_count, sizeof(*r->scales));
	r->grad = mem_alloc((size_t)model->tensor_count, sizeof(*r->grad));
	r->weight_rows = mem_alloc((size_t)model->tensor_count, 1);
	r->grad_rows = mem_alloc((size_t)model->tensor_count, 1);
	r->value = mem_alloc((size_t)model->config.value_count + 1, sizeof(*r->value));
	r->norm_first = mem_alloc((size_t)model->tensor_count, sizeof(*r->norm_first));
	r->norm_host = mem_alloc((size_t)plan->map->piece_count, sizeof(*r->norm_host));
	r->loss_host = mem_alloc((size_t)plan->policy.micro_batches, sizeof(*r->loss_host));
	r->tally_host = mem_alloc((size_t)plan->policy.micro_batches, sizeof(*r->tally_host));
	r->norm_by_finish = mem_alloc((size_t)plan->map->piece_count, 1);
	if (r->events && r->calls && r->weight && r->scales && r->grad && r->weight_rows && r->grad_rows &&
	        r->value && r->norm_first && r->norm_host && r->loss_host && r->tally_host &&
	        r->norm_by_finish) {
		for (int n = 0; n < plan->map->piece_count; n++)
			r->norm_host[n] = -1;
		plan_norm_slots(model, r->norm_first);
		run_results_find(r);
		rc = run_events_open(r);
	}
	if (!rc)
		rc = run_rows_open(r);
	if (rc) {
		run_close(r);
		return rc;
	}
	*out = r;
	return 0;
}

void run_close(struct run *r)
{
	if (!r)
		return;
	for (int i = 0; r->events && i < r->plan->op_count; i++)
		event_close(r->events[i]);
	mem_free(r->events);
	mem_free(r->calls);
	mem_free(r->weight);
	mem_free(r->scales);
	mem_free(r->grad);
	mem_free(r->weight_rows);
	mem_free(r->grad_rows);
	run_rows_close(r);
	mem_free(r->value);
	mem_free(r->norm_first);
	mem_free(r->norm_host);
	mem_free(r->norm_by_finish);
	mem_free(r->loss_host);
	mem_free(r->tally_host);
	mem_free(r);
}
