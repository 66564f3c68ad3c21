/* The fake runtime without the emulator, for sanitizers, which do not work with fibres. Ops that the test
 * of the CUDA device queues are copies and fills by the runtime; the others do not exist. */
#include "base/err.h"
#include "gpu/cuda_device.h"
#include "gpu/cuda_dnn_attention.h"
#include "gpu/cuda_nccl.h"
#include "tests/simt/simt.h"

static void *at(dev_addr a)
{
	return (void *)(uintptr_t)a.value;
}

static int fill(const struct cuda_launch *launch, const struct op_fill *o)
{
	return cuda_check(cudaMemsetAsync(at(o->dst), o->value, (size_t)o->bytes, launch->stream), "fill");
}

static int copy(const struct cuda_launch *launch, const struct op_copy *o)
{
	return cuda_check(cudaMemcpyAsync(at(o->dst), at(o->src), (size_t)o->bytes, cudaMemcpyDeviceToDevice,
	                          launch->stream),
	        "copy");
}

/* Two calls, as a product and its bias would be. */
static int matmul(const struct cuda_launch *launch, const struct op_matmul *o)
{
	size_t bytes = (size_t)(o->m * o->c_stride * dtype_bytes(o->c_dtype));
	int rc = cuda_check(cudaMemsetAsync(at(o->c), 0, bytes, launch->stream), "matmul");

	return rc ? rc : cuda_check(cudaMemsetAsync(at(o->c), 1, bytes, launch->stream), "matmul");
}

/* The device adds zeros when it opens, to see whether kernels run. */
static int add(const struct cuda_launch *launch, const struct op_add *o)
{
	size_t bytes = (size_t)(o->count * dtype_bytes(o->dtype));

	return cuda_check(cudaMemsetAsync(at(o->dst), 0, bytes, launch->stream), "add");
}

int cuda_op(const struct cuda_launch *launch, const struct op *op)
{
	switch (op->kind) {
	case OP_FILL:
		return fill(launch, &op->fill);
	case OP_COPY:
		return copy(launch, &op->copy);
	case OP_ADD:
		return add(launch, &op->add);
	case OP_MATMUL:
		return matmul(launch, &op->matmul);
	default:
		return err_set(ERR_UNSUPPORTED, "%s has no kernel here", op_name(op->kind));
	}
}

int cuda_blas_open(struct cuda_blas **blas, void *workspace, int64_t workspace_bytes)
{
	(void)workspace;
	(void)workspace_bytes;
	*blas = NULL;
	return 0;
}

void cuda_blas_close(struct cuda_blas *blas)
{
	(void)blas;
}

/* ---- attention by a library: there is none ---- */

int cuda_dnn_open(struct cuda_dnn **dnn, enum device_attention wish, void *workspace, int64_t workspace_bytes)
{
	(void)wish;
	(void)workspace;
	(void)workspace_bytes;
	*dnn = NULL;
	return 0;
}

void cuda_dnn_close(struct cuda_dnn *dnn)
{
	(void)dnn;
}

int cuda_dnn_attention(struct cuda_dnn *dnn, const struct cuda_launch *launch, const struct op *op)
{
	(void)dnn;
	(void)launch;
	(void)op;
	return 1;
}

/* ---- ranks ---- */

int cuda_nccl_open(struct cuda_nccl **nccl, struct cuda_device *device,
        const struct device_bootstrap *bootstrap, const struct comm_group *group)
{
	(void)device;
	(void)bootstrap;
	(void)group;
	*nccl = NULL;
	return err_set(ERR_UNSUPPORTED, "there is no NCCL here");
}

void cuda_nccl_close(struct cuda_nccl *nccl)
{
	(void)nccl;
}

int cuda_nccl_queue(struct cuda_nccl *nccl, cudaStream_t stream, const struct work *work)
{
	(void)nccl;
	(void)stream;
	(void)work;
	return ERR_UNSUPPORTED;
}

/* ---- the emulator: nothing is launched ---- */

int simt_run(struct simt_launch *launch)
{
	(void)launch;
	return cudaErrorLaunchFailure;
}

void simt_launch_free(struct simt_launch *launch)
{
	(void)launch;
}

void simt_note_write(const void *where, size_t bytes)
{
	(void)where;
	(void)bytes;
}

void simt_set_capability(int capability)
{
	(void)capability;
}

int simt_shared_max(void)
{
	return 0;
}

int simt_set_dynamic_max(const void *kernel, int bytes)
{
	(void)kernel;
	(void)bytes;
	return 0;
}

void simt_set_carveout(const void *kernel, int percent)
{
	(void)kernel;
	(void)percent;
}

const char *simt_finding(void)
{
	return "";
}

int simt_finding_error(void)
{
	return 0;
}
