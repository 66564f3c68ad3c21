/* Adds to a plan's lists, prints them, and names their elements. */
#include "offload/plan.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/size.h"
#include "offload/plan_parts.h"
#include "optim/adamw_step.h"

#include <inttypes.h>
#include <string.h>

#define OP_NAME(name, ...) #name,
#define OP_WHAT(name, queue, what) what,
#define NAME(id, name, ...) name,
static const char *const op_names[PLAN_OP_KIND_COUNT] = {PLAN_OPS(OP_NAME)};
static const char *const op_meanings[PLAN_OP_KIND_COUNT] = {PLAN_OPS(OP_WHAT)};
static const char *const role_names[ARG_ROLE_COUNT] = {PLAN_ROLES(NAME)};
static const char *const part_names[PART_COUNT] = {PLAN_PARTS(NAME)};
static const char *const buffer_names[BUFFER_KIND_COUNT] = {PLANES(NAME) PLAN_BUFFERS(NAME)};
#undef OP_NAME
#undef OP_WHAT
#undef NAME
static const char *const space_names[SPACE_COUNT] = {"device", "staging", "store"};

const char *plan_op_name(enum plan_op_kind kind)
{
	return op_names[kind];
}

const char *plan_role_name(enum plan_role role)
{
	return role_names[role];
}

const char *plan_part_name(enum plan_part part)
{
	return part_names[part];
}

const char *plan_buffer_name(enum buffer_kind kind)
{
	return buffer_names[kind];
}

const char *plan_buffer_title(enum buffer_kind kind)
{
	return plan_kind_is_plane(kind) ? plane_title(plan_kind_plane(kind)) : plan_buffer_name(kind);
}

/* Makes room for one more element. On failure op_cap becomes negative, which marks the plan broken. */
static int plan_grow(struct plan *p, void **array, int count, int *cap, size_t element_bytes)
{
	int wanted = *cap ? 2 * *cap : 2048;
	void *grown;

	if (p->op_cap < 0)
		return -1;
	if (count < *cap)
		return 0;
	grown = mem_resize(*array, (size_t)wanted, element_bytes);
	if (!grown) {
		p->op_cap = -1;
		return -1;
	}
	*array = grown;
	*cap = wanted;
	return 0;
}

int plan_add_buffer(
        struct plan *p, enum buffer_kind kind, enum plan_space space, enum layout_class layout, int64_t bytes)
{
	if (plan_grow(p, (void **)&p->buffers, p->buffer_count, &p->buffer_cap, sizeof(*p->buffers)))
		return -1;
	p->buffers[p->buffer_count] = (struct plan_buffer){
	        .kind = kind,
	        .space = space,
	        .layout_class = (int)layout,
	        .persistent = layout == LAYOUT_PERSISTENT,
	        .unit = -1,
	        .micro = -1,
	        .value = -1,
	        .bytes = bytes,
	        .first_op = -1,
	        .last_op = -1,
	};
	return p->buffer_count++;
}

int plan_add_op(struct plan *p, enum plan_op_kind kind, enum queue_kind queue, int unit, int stage, int micro)
{
	if (plan_grow(p, (void **)&p->ops, p->op_count, &p->op_cap, sizeof(*p->ops)))
		return -1;
	p->ops[p->op_count] = (struct plan_op){
	        .kind = kind,
	        .queue = queue,
	        .unit = unit,
	        .stage = stage,
	        .micro = micro,
	        .first_arg = p->arg_count,
	};
	return p->op_count++;
}

void plan_add_arg(struct plan *p, enum plan_role role, int buffer, enum access access)
{
	int op = p->op_count - 1;
	struct plan_buffer *b;

	if (buffer < 0 || plan_grow(p, (void **)&p->args, p->arg_count, &p->arg_cap, sizeof(*p->args)))
		return;
	p->args[p->arg_count++] = (struct plan_arg){
	        .role = role,
	        .buffer = buffer,
	        .reads = !!(access & ACCESS_READ),
	        .writes = !!(access & ACCESS_WRITE),
	};
	p->ops[op].arg_count++;
	b = &p->buffers[buffer];
	if (b->first_op < 0)
		b->first_op = op;
	b->last_op = op;
}

void plan_hold_buffer(struct plan *p, int buffer)
{
	if (buffer >= 0)
		p->buffers[buffer].last_op = p->op_count - 1;
}

int plan_parts_check(const struct plan *p)
{
	return p->op_cap < 0 ? err_set(ERR_NOMEM, "out of memory while building the plan") : 0;
}

void plan_free(struct plan *p)
{
	if (!p)
		return;
	mem_free(p->ops);
	mem_free(p->args);
	mem_free(p->buffers);
	mem_free(p->waits);
	mem_free(p);
}

/* Prints the meaning of each kind of operation in the plan. */
static void print_meanings(const struct plan *p, FILE *out)
{
	int seen[PLAN_OP_KIND_COUNT] = {0};

	for (int i = 0; i < p->op_count; i++)
		seen[p->ops[i].kind] = 1;
	for (int k = 0; k < PLAN_OP_KIND_COUNT; k++)
		if (seen[k])
			fprintf(out, "%-13s %s\n", op_names[k], op_meanings[k]);
}

void plan_print(const struct plan *p, FILE *out)
{
	print_meanings(p, out);
	for (int i = 0; i < p->op_count; i++) {
		const struct plan_op *op = &p->ops[i];

		fprintf(out, "%5d %-7s %-13s", i, queue_name(op->queue), plan_op_name(op->kind));
		if (op->unit >= 0)
			fprintf(out, " unit %d (%s)", op->unit, p->map->units[op->unit].name);
		if (op->stage >= 0)
			fprintf(out, " stage %d (%s)", op->stage,
			        stage_facts[p->map->model->stages[op->stage].kind].name);
		if (op->micro >= 0)
			fprintf(out, " micro %d", op->micro);
		for (int a = 0; a < op->arg_count; a++) {
			const struct plan_arg *arg = &p->args[op->first_arg + a];
			const struct plan_buffer *b = &p->buffers[arg->buffer];

			fprintf(out, "%s %s%s=%s[%s+%" PRId64 ",%" PRId64 "]", a ? "," : ":",
			        arg->writes ? "*" : "", plan_role_name(arg->role), plan_buffer_name(b->kind),
			        space_names[b->space], b->offset, b->bytes);
		}
		for (int w = 0; w < op->wait_count; w++)
			fprintf(out, "%s%d", w ? " " : "  after ", p->waits[op->first_wait + w]);
		fputc('\n', out);
	}
}

int64_t plan_bytes_of(const struct plan *p, enum plan_space space, enum buffer_kind kind)
{
	int64_t bytes = 0;

	for (int i = 0; i < p->buffer_count; i++)
		if (p->buffers[i].space == space && p->buffers[i].kind == kind)
			bytes += p->buffers[i].bytes;
	return bytes;
}

struct plan_batch plan_batch_of(const struct plan_policy *o)
{
	const struct batch_rule *rule = &objective_type(&o->objective)->batch;
	const struct batch_sizes most = {o->max_tokens, o->max_targets, o->max_documents};
	struct plan_batch b = {0};

	b.position = 4 * o->max_tokens;
	b.doc_start = 2 * b.position;
	b.doc_end = 3 * b.position;
	b.target_row = 4 * b.position;
	b.bytes = b.target_row + 4 * o->max_targets;
	b.row = b.bytes;
	b.bytes += o->has_rows ? 4 * o->max_tokens : 0;
	if (o->has_noise) {
		b.noise = round_up(b.bytes, 8);
		b.bytes = b.noise + 8 * o->max_tokens;
	}
	for (int i = 0; i < batch_array_count(rule); i++) {
		b.own[i] = round_up(b.bytes, dtype_bytes(rule->array[i].dtype));
		b.bytes = b.own[i] + batch_array_bytes(&rule->array[i], &most);
	}
	return b;
}

int plan_head_also(const struct plan *p)
{
	return p->kind == PLAN_EVAL ? objective_type(&p->policy.objective)->head->also : 0;
}

int64_t plan_batch_bytes(const struct plan_policy *policy)
{
	return plan_batch_of(policy).bytes;
}

int64_t plan_norm_slots(const struct model *model, int64_t *first)
{
	int64_t total = 0;

	for (int i = 0; i < model->tensor_count; i++) {
		if (first)
			first[i] = total;
		if (model->tensors[i].trainable)
			total += (model->tensors[i].count + SUMSQ_BLOCK - 1) / SUMSQ_BLOCK;
	}
	return total;
}

enum dtype plan_plane_dtype(const struct plan_policy *policy, enum plane plane)
{
	return plane_dtype(plane, policy->state, plan_gradient_home_dtype(policy));
}

int64_t plan_plane_bytes(const struct plan_policy *policy, enum plane plane, int64_t count)
{
	return plane_numbers(plane, policy->state, count) * dtype_bytes(plan_plane_dtype(policy, plane));
}

int plan_reads_lo(const struct plan_policy *policy)
{
	return policy->compute_dtype != plan_plane_dtype(policy, PLANE_HI);
}

int plan_plane_crosses(const struct plan_policy *policy, enum plane plane)
{
	return plane == PLANE_HI || plane == PLANE_GRADIENT || plane_is_in(plane, PLANES_CODED) ||
	       (plane == PLANE_LO && plan_reads_lo(policy));
}
