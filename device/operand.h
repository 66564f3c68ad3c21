/* The operands of an op: the one place that knows which bytes each argument covers.
 *
 * op_check, op_access_list and op_cost_of are all read off this list. Internal to gpu/.
 */
#ifndef FERRY_DEVICE_OPERAND_H
#define FERRY_DEVICE_OPERAND_H

#include "device/op.h"

enum operand_use { OPERAND_READ = 1, OPERAND_WRITE = 2, OPERAND_UPDATE = 3 };

struct operand {
	const char *name;
	dev_addr base; /* DEV_NONE where left out */
	int64_t bytes; /* first to last, gaps of strides included; INT64_MAX when it is more than that */
	int64_t dense_bytes; /* what is really moved: without gaps, and of a table only the rows used */
	int64_t align_bytes;
	enum operand_use use;
	int optional, has_gaps;
};

enum { OPERAND_MAX = 12 };

/* Fills list[OPERAND_MAX] and returns how many there are. The scalars of the op must have been checked, or
 * the byte counts mean nothing. */
int op_operands(const struct op *op, struct operand *list);

#endif
