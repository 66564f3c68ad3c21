/* The CUDA backend; checks that each kernel accesses only the bytes of its op. */
#include "tests/simt/simt_backend.h"

#include "tests/simt/simt.h"

extern const struct backend backend_cuda;

struct backend backend_simt;

static int queue(struct stream *stream, const struct work *work)
{
	struct op_access list[OP_ACCESS_MAX];
	struct simt_access accesses[SIMT_ACCESS_MAX];
	int count = -1, rc;

	_Static_assert((int)OP_ACCESS_MAX <= (int)SIMT_ACCESS_MAX, "room for the accesses of an op");
	if (work->kind == WORK_OP) {
		count = op_access_list(&work->op, list);
		for (int i = 0; i < count; i++)
			accesses[i] = (struct simt_access){list[i].base.value, list[i].bytes, list[i].writes};
	}
	simt_set_access(accesses, count);
	rc = backend_cuda.queue(stream, work);
	simt_set_access(NULL, -1);
	return rc;
}

/* Before main: the tests register it as they would register backend_cuda. */
__attribute__((constructor)) static void backend_copy(void)
{
	backend_simt = backend_cuda;
	backend_simt.queue = queue;
}
