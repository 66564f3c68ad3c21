/* Names, checks, byte ranges and costs of all ops, derived from their descriptions. */
#include "device/op.h"

#include "device/op_facts.h"

#include <assert.h>
#include <inttypes.h>

OP_LIST(OP_DESCRIBED)

const char *op_name(enum op_kind kind)
{
	static const char *const names[OP_KIND_COUNT] = {
#define OP_NAME(NAME, name, args) #name,
	        OP_LIST(OP_NAME)
#undef OP_NAME
	};

	return (unsigned)kind < OP_KIND_COUNT ? names[kind] : "?";
}

int op_describe(struct op_facts *f, const struct op *op)
{
	f->name = op_name(op->kind);
	f->operand_count = 0;
	f->flops = 0;
	f->flops_dtype = DTYPE_F32;
	f->is_attention = 0;
	f->is_recurrent = 0;
	switch (op->kind) {
#define OP_CASE(NAME, name, args)                                                                            \
	case OP_##NAME:                                                                                      \
		return op_describe_##name(f, &op->name);
		OP_LIST(OP_CASE)
#undef OP_CASE
	default:
		return err_set(ERR_RANGE, "op kind %d does not exist", (int)op->kind);
	}
}

/* ---- checks ---- */

/* Operands with gaps are not compared: q, k and v of one projection lie in each other's gaps. */
static int overlap(const struct operand *a, const struct operand *b)
{
	if (dev_is_none(a->base) || dev_is_none(b->base) || a->has_gaps || b->has_gaps)
		return 0;
	return a->base.value - b->base.value < (uint64_t)b->bytes ||
	       b->base.value - a->base.value < (uint64_t)a->bytes;
}

static int check_overlaps(const struct op_facts *f)
{
	const struct operand *o = f->operands;

	for (int i = 0; i < f->operand_count; i++)
		for (int j = 0; j < f->operand_count; j++) {
			if (i == j || !(o[i].use & OPERAND_WRITE) || !overlap(&o[i], &o[j]))
				continue;
			if (o[i].base.value == o[j].base.value &&
			        ((o[i].may_be & BIT(j)) || (o[j].may_be & BIT(i))))
				continue;
			return op_refuse(f, "%s, which is written, overlaps %s", o[i].name, o[j].name);
		}
	return 0;
}

static int describe_checked(struct op_facts *f, const struct op *op)
{
	int rc = op_describe(f, op);

	if (rc)
		return rc;
	for (int i = 0; i < f->operand_count; i++) {
		const struct operand *o = &f->operands[i];

		if (dev_is_none(o->base) && !o->optional)
			return op_refuse(f, "%s has no address", o->name);
		if (o->base.value % (uint64_t)o->align_bytes)
			return op_refuse(f, "%s is not aligned to its elements of %" PRId64 " bytes", o->name,
			        o->align_bytes);
	}
	return check_overlaps(f);
}

int op_check(const struct op *op)
{
	struct op_facts f;

	return describe_checked(&f, op);
}

/* ---- byte ranges and costs ---- */

int op_access_list(const struct op *op, struct op_access *list)
{
	struct op_facts f;
	int count = 0, rc = describe_checked(&f, op);

	if (rc)
		return rc;
	for (int i = 0; i < f.operand_count; i++) {
		const struct operand *o = &f.operands[i];

		if (dev_is_none(o->base))
			continue;
		assert(count + 2 <= OP_ACCESS_MAX);
		if (o->use & OPERAND_READ)
			list[count++] = (struct op_access){o->base, o->bytes, 0};
		if (o->use & OPERAND_WRITE)
			list[count++] = (struct op_access){o->base, o->bytes, 1};
	}
	return count;
}

void op_cost_of(const struct op *op, struct op_cost *cost)
{
	struct op_facts f;
	int rc = op_describe(&f, op);

	assert(!rc);
	(void)rc;
	*cost = (struct op_cost){0};
	if (f.flops_dtype == DTYPE_F32)
		cost->flops_f32 = f.flops;
	else
		cost->flops_bf16 = f.flops;
	if (f.is_attention)
		cost->attention_flops = f.flops;
	if (f.is_recurrent)
		cost->recurrent_flops = f.flops;
	for (int i = 0; i < f.operand_count; i++) {
		const struct operand *o = &f.operands[i];
		double moved = dev_is_none(o->base) ? 0 : (double)o->dense_bytes;

		cost->memory_bytes += o->use == OPERAND_UPDATE ? 2 * moved : moved;
	}
}
