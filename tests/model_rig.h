/* A model on a device without an engine: one arena with every buffer of a micro-batch, and stages that run
 * one after another on one stream, like an engine without offload.
 *
 * Guards separate all buffers. The arena starts as NaN of every dtype. So a stage that reads memory that
 * nobody wrote gives a wrong result, and rig_check_guards finds a byte written outside of a buffer.
 */
#ifndef FERRY_TESTS_MODEL_RIG_H
#define FERRY_TESTS_MODEL_RIG_H

#include "tests/check.h"

#include "base/mem.h"
#include "base/num.h"
#include "base/size.h"
#include "device/op.h"
#include "host/cpu/cpu_device.h"
#include "model/blocks/blocks.h"
#include "model/join.h"
#include "model/model.h"

enum { RIG_ALIGN_BYTES = 256, RIG_BUFFERS_MAX = 4096, RIG_GROUPS_MAX = 70 };

/* A micro-batch on the host: documents one after another. Labels are as in the data: not shifted, -100 =
 * none. */
struct rig_batch {
	int32_t *id, *position, *doc_start, *doc_end, *target_row, *target_label;
	int64_t tokens, targets, documents, cap;
};

static inline void rig_batch_free(struct rig_batch *b)
{
	int32_t *arrays[] = {b->id, b->position, b->doc_start, b->doc_end, b->target_row, b->target_label};

	for (size_t i = 0; i < sizeof(arrays) / sizeof(*arrays); i++)
		mem_free(arrays[i]);
	*b = (struct rig_batch){0};
}

static inline void rig_batch_reserve(struct rig_batch *b, int64_t tokens)
{
	int32_t **arrays[] = {
	        &b->id, &b->position, &b->doc_start, &b->doc_end, &b->target_row, &b->target_label};

	if (b->cap >= tokens)
		return;
	b->cap = 2 * tokens;
	for (size_t i = 0; i < sizeof(arrays) / sizeof(*arrays); i++) {
		*arrays[i] = mem_resize(*arrays[i], (size_t)b->cap, sizeof(int32_t));
		assert_non_null(*arrays[i]);
	}
}

static inline void rig_batch_add(
        struct rig_batch *b, const int32_t *ids, const int32_t *labels, int64_t count)
{
	int64_t first = b->tokens;

	rig_batch_reserve(b, first + count);
	for (int64_t i = 0; i < count; i++) {
		b->id[first + i] = ids[i];
		b->position[first + i] = (int32_t)i;
		b->doc_start[first + i] = (int32_t)first;
		b->doc_end[first + i] = (int32_t)(first + count);
		if (i && labels[i] != -100) {
			b->target_row[b->targets] = (int32_t)(first + i - 1);
			b->target_label[b->targets++] = labels[i];
		}
	}
	b->tokens += count;
	b->documents++;
}

struct rig_buffer {
	int64_t offset, bytes;
};

/* RIG_RECOMPUTE + a level keeps the activations of that level (model/acts_level.h). */
enum rig_acts { RIG_KEEP, RIG_RECOMPUTE };

struct rig {
	const struct model *model;
	struct device *device;
	struct stream *stream;
	enum dtype dtype;
	int64_t max_tokens, max_targets, rope_positions, head_rows, arena_bytes, end_bytes;
	dev_addr base;
	struct rig_buffer *buffers;
	int buffer_count, first_gradient;
	dev_addr *weight, *grad, *scales, *codes;         /* scales: of weights that rig_encode made codes */
	dev_addr x[RIG_GROUPS_MAX], acts[RIG_GROUPS_MAX]; /* of each group */
	struct stage_value *value;
	dev_addr *row_norms; /* of each stage */
	dev_addr shared_acts, scratch, head_scratch, embed_scratch, dx, rope, loss, logits, noise, batch[6],
	        own[BATCH_OWN_MAX];   /* own[0] are the labels */
	const struct head_pass *head; /* the objective's */
	int has_noise;                /* the caller has written `noise`, keys of tokens */
};

/* Reserves room in the arena. *address gets the offset first, because the arena is not open yet. */
static inline void rig_take(struct rig *r, dev_addr *address, int64_t bytes)
{
	assert_true(r->buffer_count < RIG_BUFFERS_MAX);
	r->buffers[r->buffer_count++] = (struct rig_buffer){r->end_bytes, bytes};
	*address = dev_at(r->base, r->end_bytes);
	r->end_bytes = round_up(r->end_bytes + bytes, RIG_ALIGN_BYTES) + RIG_ALIGN_BYTES;
}

/* Room for a tensor, or with the earliest of joined ones for all of these side by side. */
static inline void rig_take_joined(struct rig *r, dev_addr *address, int tensor, int64_t element_bytes)
{
	int list[JOIN_MOST], count = model_place(list, r->model, tensor);
	int64_t bytes = 0;

	for (int i = 0; i < count; i++)
		bytes += r->model->tensors[list[i]].count * element_bytes;
	if (count)
		rig_take(r, &address[list[0]], bytes);
	for (int i = 1; i < count; i++)
		address[list[i]] =
		        dev_at(address[list[i - 1]], r->model->tensors[list[i - 1]].count * element_bytes);
}

/* Room for the codes and scales that products of a tensor read. */
static inline void rig_take_codes(struct rig *r, int tensor)
{
	const struct model_tensor *t = &r->model->tensors[tensor];

	if (!t->multiplied)
		return;
	rig_take(r, &r->codes[tensor], t->count);
	rig_take(r, &r->scales[tensor], weight_format_scale_bytes(t->multiplied, t->shape[0], t->shape[1]));
}

static inline void rig_take_all(struct rig *r)
{
	const struct model_config *c = &r->model->config;
	int64_t e = dtype_bytes(r->dtype), stream = r->max_tokens * c->C * e, most_acts = 0, most_scratch = 0;

	r->buffer_count = 0;
	r->end_bytes = RIG_ALIGN_BYTES;
	for (int t = 0; t < r->model->tensor_count; t++) {
		rig_take_joined(r, r->weight, t, e);
		rig_take_joined(r, r->grad, t, 4);
		rig_take_codes(r, t);
	}
	for (int g = 0; g < r->model->group_count; g++) {
		int64_t acts = model_acts_bytes(r->model, g, r->dtype, r->max_tokens);

		rig_take(r, &r->x[g], g ? stream : 0);
		rig_take(r, &r->acts[g], acts);
		most_acts = max_i64(most_acts, acts);
		if (g && r->model->stages[r->model->groups[g].first_stage].kind != STAGE_HEAD)
			most_scratch = max_i64(most_scratch,
			        model_scratch_bytes(r->model, g, r->dtype, r->max_tokens, r->max_targets, 0));
	}
	rig_take(r, &r->shared_acts, most_acts);
	for (int v = 0; v < c->value_count; v++) {
		rig_take(r, &r->value[v].at, r->max_tokens * r->model->values[v].columns * e);
		rig_take(r, &r->value[v].grad, r->max_tokens * r->model->values[v].columns * 4);
	}
	for (int s = 0; s < r->model->stage_count; s++)
		rig_take(r, &r->row_norms[s], model_row_norms_bytes(r->model, s));
	rig_take(r, &r->dx, stream);
	rig_take(r, &r->rope, model_rope_table_count(r->model, r->rope_positions) * 4);
	rig_take(r, &r->loss, r->max_targets * 4);
	rig_take(r, &r->logits, r->max_targets * c->V * 4);
	for (int i = 0; i < 6; i++)
		rig_take(r, &r->batch[i], r->max_tokens * 4);
	for (int i = 1; i < BATCH_OWN_MAX; i++)
		rig_take(r, &r->own[i], (r->max_tokens + 1) * 8);
	rig_take(r, &r->noise, r->max_tokens * 8);
	rig_take(r, &r->embed_scratch,
	        model_scratch_bytes(r->model, 0, r->dtype, r->max_tokens, r->max_targets, 0));
	rig_take(r, &r->head_scratch,
	        model_head_scratch_bytes(r->model, r->head, r->dtype,
	                &(struct batch_sizes){r->max_tokens, r->max_targets, r->max_tokens}, r->head_rows));
	r->own[0] = r->batch[5];
	rig_take(r, &r->scratch, most_scratch);
}

static inline void rig_upload(struct rig *r, dev_addr dst, const void *src, int64_t bytes)
{
	if (!bytes)
		return;
	check_ok(stream_copy_in(r->stream, dst, src, bytes));
	check_ok(stream_sync(r->stream));
}

static inline void rig_download(struct rig *r, void *dst, dev_addr src, int64_t bytes)
{
	if (!bytes)
		return;
	check_ok(stream_copy_out(r->stream, dst, src, bytes));
	check_ok(stream_sync(r->stream));
}

/* Opens the rig. Gradients are zero. RIG_FILLED: all other buffers are NaN. RIG_BARE: they are as the device
 * gives them, and filling does not touch them. */
enum rig_fill { RIG_FILLED, RIG_BARE };
static inline void rig_open_for(struct rig *r, const char *device, const struct model *model,
        enum dtype dtype, int64_t max_tokens, int64_t max_targets, enum rig_fill fill,
        const struct head_pass *head)
{
	struct device_options options = {.threads = 2};
	float *table;
	void *bytes;

	assert_true(model->group_count <= RIG_GROUPS_MAX);
	*r = (struct rig){.model = model,
	        .dtype = dtype,
	        .max_tokens = max_tokens,
	        .max_targets = max_targets,
	        .rope_positions = max_tokens,
	        .head = head};
	r->buffers = mem_alloc(RIG_BUFFERS_MAX, sizeof(*r->buffers));
	r->weight = mem_alloc((size_t)model->tensor_count, sizeof(*r->weight));
	r->grad = mem_alloc((size_t)model->tensor_count, sizeof(*r->grad));
	r->scales = mem_alloc((size_t)model->tensor_count, sizeof(*r->scales));
	r->codes = mem_alloc((size_t)model->tensor_count, sizeof(*r->codes));
	r->value = mem_alloc((size_t)model->config.value_count + 1, sizeof(*r->value));
	r->row_norms = mem_alloc((size_t)model->stage_count, sizeof(*r->row_norms));
	assert_true(r->buffers && r->weight && r->grad && r->scales && r->codes && r->value);
	device_register(&backend_host);
	device_register(&backend_meta);
	check_ok(device_open(&r->device, device, &options));
	r->head_rows = model_head_rows(model->config.V, device_facts_of(device_kind_of(r->device))->piece);
	rig_take_all(r);
	r->arena_bytes = r->end_bytes;
	check_ok(device_arena_open(r->device, &r->base, r->arena_bytes));
	check_ok(stream_open(&r->stream, r->device, QUEUE_COMPUTE));
	rig_take_all(r);
	bytes = mem_alloc((size_t)r->arena_bytes, 1);
	assert_non_null(bytes);
	memset(bytes, 0xff, (size_t)r->arena_bytes);
	if (fill == RIG_FILLED)
		rig_upload(r, r->base, bytes, r->arena_bytes);
	memset(bytes, 0, (size_t)r->arena_bytes);
	for (int t = 0; t < model->tensor_count; t++)
		rig_upload(r, r->grad[t], bytes, model->tensors[t].count * 4);
	mem_free(bytes);
	table = mem_alloc((size_t)model_rope_table_count(model, r->rope_positions) + 1, sizeof(float));
	assert_non_null(table);
	model_rope_table(model, table, r->rope_positions);
	rig_upload(r, r->rope, table, model_rope_table_count(model, r->rope_positions) * 4);
	mem_free(table);
}

static inline void rig_open_as(struct rig *r, const char *device, const struct model *model, enum dtype dtype,
        int64_t max_tokens, int64_t max_targets, enum rig_fill fill)
{
	rig_open_for(r, device, model, dtype, max_tokens, max_targets, fill, &head_of_tokens);
}

static inline void rig_open(struct rig *r, const char *device, const struct model *model, enum dtype dtype,
        int64_t max_tokens, int64_t max_targets)
{
	rig_open_as(r, device, model, dtype, max_tokens, max_targets, RIG_FILLED);
}

static inline void rig_close(struct rig *r)
{
	stream_close(r->stream);
	device_close(r->device);
	mem_free(r->buffers);
	mem_free(r->weight);
	mem_free(r->grad);
	mem_free(r->scales);
	mem_free(r->codes);
	mem_free(r->value);
	mem_free(r->row_norms);
	*r = (struct rig){0};
}

static inline void rig_set_weight(struct rig *r, int tensor, const float *values)
{
	int64_t count = r->model->tensors[tensor].count;
	uint16_t *rounded;

	if (r->dtype == DTYPE_F32) {
		rig_upload(r, r->weight[tensor], values, count * 4);
		return;
	}
	rounded = mem_alloc((size_t)count, sizeof(*rounded));
	assert_non_null(rounded);
	for (int64_t i = 0; i < count; i++)
		rounded[i] = bf16_from_f32(values[i]);
	rig_upload(r, r->weight[tensor], rounded, count * 2);
	mem_free(rounded);
}

/* Replaces the weights that products read as codes by these. */
static inline void rig_encode(struct rig *r)
{
	for (int t = 0; t < r->model->tensor_count; t++) {
		const struct model_tensor *of = &r->model->tensors[t];
		struct op op = {.kind = OP_ENCODE};

		if (!of->multiplied)
			continue;
		op.encode = (struct op_encode){r->codes[t], r->scales[t], r->weight[t], of->shape[0],
		        of->shape[1], of->shape[1], of->multiplied->block_rows, 0, r->dtype};
		check_ok(stream_op(r->stream, &op));
		r->weight[t] = r->codes[t];
	}
}

static inline void rig_get_grad(struct rig *r, int tensor, float *values)
{
	rig_download(r, values, r->grad[tensor], r->model->tensors[tensor].count * 4);
}

/* Checks that every byte outside of the buffers is unchanged. */
static inline void rig_check_guards(struct rig *r)
{
	unsigned char *bytes = mem_alloc((size_t)r->arena_bytes, 1);
	int64_t at = 0;

	assert_non_null(bytes);
	rig_download(r, bytes, r->base, r->arena_bytes);
	for (int i = 0; i <= r->buffer_count; i++) {
		int64_t stop = i < r->buffer_count ? r->buffers[i].offset : r->arena_bytes;

		for (; at < stop; at++)
			if (bytes[at] != 0xff) {
				print_error(
				        "byte %lld, in front of buffer %d, was written\n", (long long)at, i);
				fail();
			}
		if (i < r->buffer_count)
			at += r->buffers[i].bytes;
	}
	mem_free(bytes);
}

static inline struct device_batch rig_load(struct rig *r, const struct rig_batch *b)
{
	const int32_t *arrays[] = {
	        b->id, b->position, b->doc_start, b->doc_end, b->target_row, b->target_label};
	int32_t *rows;

	assert_true(b->tokens <= r->max_tokens && b->targets <= r->max_targets);
	for (int i = 0; i < 6; i++)
		rig_upload(r, r->batch[i], arrays[i], (i < 4 ? b->tokens : b->targets) * 4);
	rows = mem_alloc((size_t)b->tokens, sizeof(*rows));
	assert_non_null(rows);
	model_position_rows(
	        r->model, rows, b->position, b->doc_start, b->doc_end, b->tokens, r->rope_positions);
	rig_upload(r, r->batch[1], rows, b->tokens * 4);
	mem_free(rows);
	return (struct device_batch){.tokens = b->tokens,
	        .targets = b->targets,
	        .documents = b->documents,
	        .id = r->batch[0],
	        .position = r->batch[1],
	        .doc_start = r->batch[2],
	        .doc_end = r->batch[3],
	        .target_row = r->batch[4],
	        .noise = r->has_noise ? r->noise : DEV_NONE,
	        .own = {r->own[0], r->own[1], r->own[2], r->own[3]}};
}

static inline struct stage_memory rig_memory(const struct rig *r, float grad_scale)
{
	return (struct stage_memory){.dtype = r->dtype,
	        .weight = r->weight,
	        .grad = r->grad,
	        .scales = r->scales,
	        .value = r->value,
	        .scratch = r->scratch,
	        .dx = r->dx,
	        .rope_table = r->rope,
	        .loss = r->loss,
	        .row_norms = r->row_norms[r->model->stage_count - 1],
	        .rope_positions = r->rope_positions,
	        .head_rows = r->head_rows,
	        .grad_scale = grad_scale,
	        .first_gradient = r->first_gradient};
}

/* The buffers of a stage outside of the head. Not with RIG_KEEP: all groups use the same activations, but for
 * those of a level. */
static inline struct stage_memory rig_stage_memory(const struct rig *r, int stage, enum rig_acts acts)
{
	struct stage_memory memory = rig_memory(r, 1);
	int g = r->model->stages[stage].group;

	if (!g)
		memory.scratch = r->embed_scratch;
	else
		memory.x = r->x[g];
	memory.acts = acts == RIG_KEEP ? r->acts[g] : r->shared_acts;
	memory.kept = r->acts[g];
	memory.level = acts == RIG_KEEP ? ACTS_ALL : (enum acts_level)(acts - RIG_RECOMPUTE);
	memory.row_norms = r->row_norms[stage];
	return memory;
}

static inline void rig_head_norms(const struct rig *r)
{
	struct stage_memory memory = rig_memory(r, 1);

	check_ok(model_row_norms(r->model, r->model->stage_count - 1, r->stream, &memory));
}

/* Runs forward of all groups but the head, whose norms it makes. */
static inline void rig_forward(struct rig *r, const struct device_batch *batch, enum rig_acts acts)
{
	const struct model *model = r->model;

	for (int s = 0; s < model->stage_count - 1; s++) {
		struct stage_memory memory = rig_stage_memory(r, s, acts);

		if (model_writes_output(model, s))
			memory.y = r->x[model->stages[s].group + 1];
		check_ok(model_row_norms(model, s, r->stream, &memory));
		check_ok(model_forward(model, s, r->stream, &memory, batch));
	}
	rig_head_norms(r);
}

static inline void rig_backward(struct rig *r, const struct device_batch *batch, enum rig_acts acts)
{
	const struct model *model = r->model;

	for (int v = 0; v < model->config.value_count; v++)
		r->value[v].writes_grad = 1;
	for (int g = model->group_count - 2; g >= 0; g--) {
		int first = model->groups[g].first_stage, end = first + model->groups[g].count;
		struct stage_memory memory = rig_stage_memory(r, first, acts);

		memory.recompute = 1;
		for (int s = first; s < end && g && acts != RIG_KEEP; s++) {
			memory.row_norms = r->row_norms[s];
			check_ok(model_forward(model, s, r->stream, &memory, batch));
		}
		memory.recompute = 0;
		for (int s = end - 1; s >= first; s--) {
			memory.row_norms = r->row_norms[s];
			check_ok(model_backward(model, s, r->stream, &memory, batch));
			for (int i = 0; i < model->stages[s].value_count; i++)
				r->value[model->stages[s].value[i]].writes_grad = 0;
		}
	}
}

/* Computes the losses of the targets of a loaded micro-batch. HEAD_TRAIN also adds to the gradients. */
static inline void rig_run_loaded(struct rig *r, float *losses, const struct device_batch *batch,
        struct stage_memory memory, enum head_mode mode, enum rig_acts acts)
{
	rig_forward(r, batch, acts);
	memory.scratch = r->head_scratch;
	memory.x = r->x[r->model->group_count - 1];
	check_ok(model_head(r->model, r->head, mode, r->stream, &memory, batch));
	if (mode == HEAD_TRAIN)
		rig_backward(r, batch, acts);
	rig_download(r, losses, r->loss, batch->targets * 4);
	check_ok(stream_sync(r->stream));
}

static inline void rig_run(struct rig *r, float *losses, const struct rig_batch *b, enum head_mode mode,
        enum rig_acts acts, float grad_scale)
{
	struct device_batch batch = rig_load(r, b);

	rig_run_loaded(r, losses, &batch, rig_memory(r, grad_scale), mode, acts);
}

/* Logits of chosen rows of the last micro-batch. */
static inline void rig_logits(
        struct rig *r, float *logits, const int32_t *rows, int64_t count, int64_t tokens)
{
	struct stage_memory memory = rig_memory(r, 1);

	memory.scratch = r->head_scratch;
	memory.x = r->x[r->model->group_count - 1];
	rig_upload(r, r->batch[4], rows, count * 4);
	check_ok(model_logits(r->model, r->stream, &memory, r->logits, r->batch[4], count, tokens));
	rig_download(r, logits, r->logits, count * r->model->config.V * 4);
}

#endif
