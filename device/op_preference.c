/* Description of what losses of answers compute: requirements and operands. */
#include "device/op_preference.h"

#include "device/op_facts.h"

OP_PREFERENCE_LIST(OP_DESCRIBED)

int op_describe_preference(struct op_facts *f, const struct op_preference *p)
{
	if (SIZE(pairs, 1) || SIZE(tokens, 1))
		return ERR_RANGE;
	READ(nll, .dtype = DTYPE_F32, .cols = p->tokens);
	READ(first, .dtype = DTYPE_I32, .cols = 2 * p->pairs + 1);
	READ(answer, .dtype = DTYPE_I32, .cols = 2 * p->pairs);
	READ(reference, .dtype = DTYPE_F64, .cols = 2 * p->pairs);
	WRITE(weight, .dtype = DTYPE_F32, .cols = p->tokens);
	return 0;
}

int op_describe_log_ratio(struct op_facts *f, const struct op_log_ratio *p)
{
	if (SIZE(texts, 1) || SIZE(tokens, 1))
		return ERR_RANGE;
	READ(nll, .dtype = DTYPE_F32, .cols = p->tokens);
	READ(first, .dtype = DTYPE_I32, .cols = p->texts + 1);
	READ(reference, .dtype = DTYPE_F64, .cols = p->texts);
	WRITE(ratio, .dtype = DTYPE_F32, .cols = 2 * p->texts);
	return 0;
}
