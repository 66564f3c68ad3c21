/* Descriptions of ops on indexed rows: requirements and operands. */
#include "device/op_table.h"

#include "device/op_facts.h"

OP_TABLE_LIST(OP_DESCRIBED)

int op_describe_gather(struct op_facts *f, const struct op_gather *p)
{
	if (SIZE(rows, 1) || SIZE(cols, 1) || SIZE(table_rows, 1) || COMPUTE_DTYPE(dtype))
		return ERR_RANGE;
	if (p->is_turned && p->accumulate)
		return op_refuse(f, "a turned table with accumulate");
	READ(table, .dtype = p->dtype, .rows = p->is_turned ? p->cols : p->table_rows,
	        .cols = p->is_turned ? p->table_rows : p->cols,
	        .used_rows = p->is_turned ? p->cols : p->rows);
	READ(index, .dtype = DTYPE_I32, .cols = p->rows);
	WRITE_OR_ADD(out, p->accumulate, .dtype = p->dtype, .rows = p->rows, .cols = p->cols);
	return 0;
}

int op_describe_scatter(struct op_facts *f, const struct op_scatter *p)
{
	if (SIZE(rows, 1) || SIZE(cols, 1) || SIZE(out_rows, 1) || COMPUTE_DTYPE(dtype))
		return ERR_RANGE;
	READ(x, .dtype = p->dtype, .rows = p->rows, .cols = p->cols);
	READ(index, .dtype = DTYPE_I32, .cols = p->rows);
	WRITE(out, .dtype = p->dtype, .rows = p->out_rows, .cols = p->cols, .used_rows = p->rows);
	return 0;
}

int64_t embed_grad_scratch_count(int64_t rows, int64_t table_rows)
{
	return size_plus(size_plus(rows, table_rows), 1);
}

int op_describe_embed_grad(struct op_facts *f, const struct op_embed_grad *p)
{
	if (SIZE(rows, 1) || SIZE(cols, 1) || SIZE(table_rows, 1) || COMPUTE_DTYPE(dtype))
		return ERR_RANGE;
	READ(dy, .dtype = p->dtype, .rows = p->rows, .cols = p->cols);
	READ(index, .dtype = DTYPE_I32, .cols = p->rows);
	UPDATE(grad, .dtype = DTYPE_F32, .rows = p->is_turned ? p->cols : p->table_rows,
	        .cols = p->is_turned ? p->table_rows : p->cols,
	        .used_rows = p->is_turned ? p->cols : p->rows);
	WRITE(scratch, .dtype = DTYPE_I32, .cols = embed_grad_scratch_count(p->rows, p->table_rows));
	return 0;
}
