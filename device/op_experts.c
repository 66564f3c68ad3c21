/* Descriptions of the ops of experts. */
#include "device/op_experts.h"

#include "device/op_facts.h"

#include <inttypes.h>

OP_EXPERTS_LIST(OP_DESCRIBED)

/* chosen <= experts, and both within what the kernels can. */
static int check_choice(const struct op_facts *f, int64_t experts, int64_t chosen)
{
	if (experts > ROUTE_EXPERTS_MAX)
		return op_refuse(f, "experts is %" PRId64 ", must be at most %d", experts, ROUTE_EXPERTS_MAX);
	if (chosen > experts || chosen > ROUTE_CHOSEN_MAX)
		return op_refuse(f, "chosen is %" PRId64 ", must be at most %d and the %" PRId64 " experts",
		        chosen, ROUTE_CHOSEN_MAX, experts);
	return 0;
}

static int check_rule(const struct op_facts *f, enum route_rule rule)
{
	return (unsigned)rule < ROUTE_RULE_COUNT ? 0 : op_refuse(f, "rule is %d, not a rule", (int)rule);
}

#define ROUTE_SIZES                                                                                          \
	(SIZE(tokens, 1) || SIZE(experts, 1) || SIZE(chosen, 1) || check_choice(f, p->experts, p->chosen) || \
	        check_rule(f, p->rule))
#define SLOTS .rows = p->tokens, .cols = p->chosen
#define ALL_SLOTS .cols = size_times(p->tokens, p->chosen)

int op_describe_route(struct op_facts *f, const struct op_route *p)
{
	if (ROUTE_SIZES || SIZE(groups, 1) || SIZE(groups_chosen, 1) || COMPUTE_DTYPE(bias_dtype))
		return ERR_RANGE;
	if (p->experts % p->groups || p->groups > ROUTE_GROUPS_MAX || p->groups_chosen > p->groups ||
	        p->chosen > p->groups_chosen * (p->experts / p->groups))
		return op_refuse(f, "groups %" PRId64 ", groups_chosen %" PRId64 " do not fit the experts",
		        p->groups, p->groups_chosen);
	if (!dev_is_none(p->bias) && p->rule != ROUTE_SIGMOID)
		return op_refuse(f, "bias is only of ROUTE_SIGMOID");
	READ(logits, .dtype = DTYPE_F32, .rows = p->tokens, .cols = p->experts);
	READ(bias, .dtype = p->bias_dtype, .cols = p->experts, .optional = 1);
	WRITE(ids, .dtype = DTYPE_I32, SLOTS);
	WRITE(weights, .dtype = DTYPE_F32, SLOTS);
	return 0;
}

int op_describe_route_grad(struct op_facts *f, const struct op_route_grad *p)
{
	if (ROUTE_SIZES)
		return ERR_RANGE;
	READ(dweights, .dtype = DTYPE_F32, SLOTS);
	READ(ids, .dtype = DTYPE_I32, SLOTS);
	READ(logits, .dtype = DTYPE_F32, .rows = p->tokens, .cols = p->experts);
	WRITE(dlogits, .dtype = DTYPE_F32, .rows = p->tokens, .cols = p->experts);
	return 0;
}

int op_describe_order(struct op_facts *f, const struct op_order *p)
{
	if (SIZE(tokens, 1) || SIZE(chosen, 1) || SIZE(experts, 1) || check_choice(f, p->experts, p->chosen))
		return ERR_RANGE;
	READ(ids, .dtype = DTYPE_I32, SLOTS);
	WRITE(first, .dtype = DTYPE_I32, .cols = p->experts + 1);
	WRITE(slot, .dtype = DTYPE_I32, ALL_SLOTS);
	WRITE(row, .dtype = DTYPE_I32, SLOTS);
	return 0;
}

int op_describe_dispatch(struct op_facts *f, const struct op_dispatch *p)
{
	int64_t rows = size_times(p->tokens, p->chosen);

	if (SIZE(tokens, 1) || SIZE(chosen, 1) || SIZE(cols, 1) || COMPUTE_DTYPE(dtype) || RANGE_SIZE)
		return ERR_RANGE;
	READ(x, .dtype = p->dtype, .rows = p->tokens, .cols = p->cols, RANGE_ROWS(rows));
	READ(slot, .dtype = DTYPE_I32, ALL_SLOTS);
	RANGE;
	WRITE(y, .dtype = p->dtype, .rows = rows, .cols = p->cols, RANGE_ROWS(rows));
	return 0;
}

int op_describe_combine(struct op_facts *f, const struct op_combine *p)
{
	int64_t rows = size_times(p->tokens, p->chosen);

	if (SIZE(tokens, 1) || SIZE(chosen, 1) || SIZE(cols, 1) || COMPUTE_DTYPE(dtype) ||
	        COMPUTE_DTYPE(y_dtype) || RANGE_SIZE)
		return ERR_RANGE;
	if (p->chosen > ROUTE_CHOSEN_MAX)
		return op_refuse(f, "chosen is %" PRId64 ", must be at most %d", p->chosen, ROUTE_CHOSEN_MAX);
	if (p->y_dtype != DTYPE_F32 && p->y_dtype != p->dtype)
		return op_refuse(f, "y_dtype is neither F32 nor dtype");
	if (p->goes_on && (p->accumulate || p->y_dtype != DTYPE_F32))
		return op_refuse(f, "goes_on needs y_dtype F32, and is not together with accumulate");
	READ(x, .dtype = p->dtype, .rows = rows, .cols = p->cols, RANGE_ROWS(rows));
	READ(row, .dtype = DTYPE_I32, SLOTS);
	RANGE;
	WRITE_OR_ADD(y, p->accumulate || p->goes_on, .dtype = p->y_dtype, .rows = p->tokens, .cols = p->cols);
	return 0;
}

int op_describe_weigh(struct op_facts *f, const struct op_weigh *p)
{
	if (SIZE(rows, 1) || SIZE(cols, 1) || COMPUTE_DTYPE(dtype) || RANGE_SIZE)
		return ERR_RANGE;
	READ(weights, .dtype = DTYPE_F32, .cols = p->rows);
	READ(slot, .dtype = DTYPE_I32, .cols = p->rows, .optional = 1);
	RANGE;
	UPDATE(x, .dtype = p->dtype, .rows = p->rows, .cols = p->cols, RANGE_ROWS(p->rows));
	return 0;
}

int op_describe_weigh_grad(struct op_facts *f, const struct op_weigh_grad *p)
{
	if (SIZE(rows, 1) || SIZE(cols, 1) || COMPUTE_DTYPE(dtype) || RANGE_SIZE)
		return ERR_RANGE;
	READ(weights, .dtype = DTYPE_F32, .cols = p->rows);
	READ(slot, .dtype = DTYPE_I32, .cols = p->rows, .optional = 1);
	RANGE;
	UPDATE(x, .dtype = p->dtype, .rows = p->rows, .cols = p->cols, RANGE_ROWS(p->rows));
	UPDATE(dx, .dtype = p->dtype, .rows = p->rows, .cols = p->cols, RANGE_ROWS(p->rows));
	WRITE(dweights, .dtype = DTYPE_F32, .cols = p->rows);
	return 0;
}

int op_describe_grouped(struct op_facts *f, const struct op_grouped *p)
{
	const struct row_range range = {p->first, p->experts, p->of_experts ? p->of_experts : p->experts};
	int64_t used = row_range_share(&range, p->rows);
	int is_rows = p->of == GROUPED_ROWS;

	if (SIZE(rows, 1) || SIZE(experts, 1) || SIZE(n, 1) || (is_rows ? SIZE(k, 1) : SIZE(m, 1)) ||
	        COMPUTE_DTYPE(ab_dtype) || COMPUTE_DTYPE(c_dtype))
		return ERR_RANGE;
	if ((unsigned)p->of > GROUPED_WEIGHTS)
		return op_refuse(f, "of is %d, not a kind", (int)p->of);
	if (p->c_dtype != DTYPE_F32 && p->c_dtype != p->ab_dtype)
		return op_refuse(
		        f, "c_dtype %s needs ab_dtype %s", dtype_name(p->c_dtype), dtype_name(p->c_dtype));
	READ(a, .dtype = p->ab_dtype, .rows = p->rows, .cols = is_rows ? p->k : p->m, .used_rows = used);
	READ(b, .dtype = p->ab_dtype, .rows = is_rows ? p->experts : p->rows,
	        .cols = is_rows ? size_times(p->n, p->k) : p->n, .used_rows = is_rows ? p->experts : used);
	if (!dev_is_none(p->bias) && (!is_rows || p->accumulate))
		return op_refuse(f, "bias is only of GROUPED_ROWS without accumulate");
	READ(bias, .dtype = p->ab_dtype, .rows = p->experts, .cols = p->n, .optional = 1);
	READ(first, .dtype = DTYPE_I32, .cols = p->experts + 1);
	WRITE_OR_ADD(c, p->accumulate, .dtype = p->c_dtype, .rows = is_rows ? p->rows : p->experts,
	        .cols = is_rows ? p->n : size_times(p->m, p->n), .used_rows = is_rows ? used : p->experts);
	f->flops = 2.0 * (double)used * (double)p->n * (double)(is_rows ? p->k : p->m);
	f->flops_dtype = p->ab_dtype;
	return 0;
}

int op_describe_grouped_colsum(struct op_facts *f, const struct op_grouped_colsum *p)
{
	if (SIZE(rows, 1) || SIZE(experts, 1) || SIZE(cols, 1) || COMPUTE_DTYPE(dtype))
		return ERR_RANGE;
	READ(x, .dtype = p->dtype, .rows = p->rows, .cols = p->cols);
	READ(first, .dtype = DTYPE_I32, .cols = p->experts + 1);
	UPDATE(sum, .dtype = DTYPE_F32, .rows = p->experts, .cols = p->cols);
	return 0;
}

int op_describe_expert_scale(struct op_facts *f, const struct op_expert_scale *p)
{
	if (SIZE(tokens, 1) || SIZE(experts, 1) || SIZE(chosen, 1) ||
	        check_choice(f, p->experts, p->chosen) || COMPUTE_DTYPE(dtype))
		return ERR_RANGE;
	READ(ids, .dtype = DTYPE_I32, SLOTS);
	READ(scale, .dtype = p->dtype, .cols = p->experts);
	UPDATE(weights, .dtype = DTYPE_F32, SLOTS);
	return 0;
}

int op_describe_expert_scale_grad(struct op_facts *f, const struct op_expert_scale_grad *p)
{
	if (SIZE(tokens, 1) || SIZE(experts, 1) || SIZE(chosen, 1) ||
	        check_choice(f, p->experts, p->chosen) || COMPUTE_DTYPE(dtype))
		return ERR_RANGE;
	READ(weights, .dtype = DTYPE_F32, SLOTS);
	READ(first, .dtype = DTYPE_I32, .cols = p->experts + 1);
	READ(slot, .dtype = DTYPE_I32, ALL_SLOTS);
	READ(scale, .dtype = p->dtype, .cols = p->experts);
	UPDATE(dweights, .dtype = DTYPE_F32, SLOTS);
	UPDATE(dscale, .dtype = DTYPE_F32, .cols = p->experts);
	return 0;
}

int op_describe_router_shares(struct op_facts *f, const struct op_router_shares *p)
{
	if (SIZE(tokens, 1) || SIZE(experts, 1) || check_choice(f, p->experts, 1))
		return ERR_RANGE;
	READ(logits, .dtype = DTYPE_F32, .rows = p->tokens, .cols = p->experts);
	WRITE(shares, .dtype = DTYPE_F32, .rows = p->tokens, .cols = p->experts);
	return 0;
}

int op_describe_balance_grad(struct op_facts *f, const struct op_balance_grad *p)
{
	if (SIZE(tokens, 1) || SIZE(experts, 1) || SIZE(layers, 1) || check_choice(f, p->experts, 1))
		return ERR_RANGE;
	if (p->stride <= p->experts)
		return op_refuse(f, "stride is %" PRId64 ", must be more than experts", p->stride);
	READ(logits, .dtype = DTYPE_F32, .rows = p->tokens, .cols = p->experts);
	READ(first, .dtype = DTYPE_I32, .rows = p->layers, .cols = p->stride);
	WRITE(counts, .dtype = DTYPE_F32, .cols = p->experts);
	UPDATE(dlogits, .dtype = DTYPE_F32, .rows = p->tokens, .cols = p->experts);
	return 0;
}
