/* Description of the loss: requirements and operands. */
#include "device/op_loss.h"

#include "device/op_facts.h"

OP_LOSS_LIST(OP_DESCRIBED)

/* Per row: the largest logit, the factor of the exponentials, and the gradient at the label. */
int64_t cross_entropy_scratch_count(int64_t rows)
{
	return size_times(3, rows);
}

int op_describe_cross_entropy(struct op_facts *f, const struct op_cross_entropy *p)
{
	int logits;

	if (SIZE(rows, 1) || SIZE(vocab, 1) || COMPUTE_DTYPE(dlogits_dtype))
		return ERR_RANGE;
	if (!(p->smoothing >= 0 && p->smoothing <= 1))
		return err_set(ERR_RANGE, "cross_entropy: smoothing %g is not in [0, 1]", p->smoothing);
	logits = READ(logits, .dtype = DTYPE_F32, .rows = p->rows, .cols = p->vocab);
	READ(label, .dtype = DTYPE_I32, .cols = p->rows);
	WRITE(loss, .dtype = DTYPE_F32, .cols = p->rows);
	WRITE(dlogits, .dtype = p->dlogits_dtype, .rows = p->rows, .cols = p->vocab, .optional = 1,
	        .may_be = BIT(logits));
	WRITE(scratch, .dtype = DTYPE_F32, .cols = cross_entropy_scratch_count(p->rows));
	READ(weight, .dtype = DTYPE_F32, .cols = p->rows, .optional = 1);
	return 0;
}
