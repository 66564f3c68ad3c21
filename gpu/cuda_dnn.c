/* cuDNN's graph interface: descriptors, and plans made from them. */
#include "gpu/cuda_dnn.h"

#ifdef FERRY_CUDNN

#include "base/err.h"

#include <string.h>

/* ---- descriptors ---- */

static int is_fine(const struct dnn_graph *g)
{
	return g->status == CUDNN_STATUS_SUCCESS;
}

static void note(struct dnn_graph *g, cudnnStatus_t status, const char *what)
{
	if (is_fine(g) && status != CUDNN_STATUS_SUCCESS) {
		g->status = status;
		g->failed = what;
	}
}

static cudnnBackendDescriptor_t make(struct dnn_graph *g, cudnnBackendDescriptorType_t type, const char *what)
{
	cudnnBackendDescriptor_t d = NULL;

	if (is_fine(g) && g->all_count == DNN_DESCRIPTORS_MAX)
		note(g, CUDNN_STATUS_INTERNAL_ERROR, what);
	if (!is_fine(g))
		return NULL;
	note(g, g->f->cudnnBackendCreateDescriptor(type, &d), what);
	if (is_fine(g))
		g->all[g->all_count++] = d;
	return d;
}

static void set(struct dnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
        cudnnBackendAttributeType_t type, int64_t count, const void *values, const char *what)
{
	if (is_fine(g))
		note(g, g->f->cudnnBackendSetAttribute(d, name, type, count, values), what);
}

static void set_descriptor(struct dnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
        cudnnBackendDescriptor_t value, const char *what)
{
	set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value, what);
}

static void finish(struct dnn_graph *g, cudnnBackendDescriptor_t d, const char *what)
{
	if (is_fine(g))
		note(g, g->f->cudnnBackendFinalize(d), what);
}

static void finish_operation(struct dnn_graph *g, cudnnBackendDescriptor_t d, const char *what)
{
	finish(g, d, what);
	if (is_fine(g) && g->operation_count == DNN_OPERATIONS_MAX)
		note(g, CUDNN_STATUS_INTERNAL_ERROR, what);
	if (is_fine(g))
		g->operations[g->operation_count++] = d;
}

/* Later descriptors refer to earlier ones, so later ones are destroyed first. */
static void destroy_all(const struct cudnn *f, cudnnBackendDescriptor_t *all, int count)
{
	while (count--)
		f->cudnnBackendDestroyDescriptor(all[count]);
}

void dnn_graph_close(struct dnn_graph *g)
{
	destroy_all(g->f, g->all, g->all_count);
	g->all_count = 0;
}

/* ---- tensors and operations ---- */

dnn_tensor dnn_tensor_add(struct dnn_graph *g, enum dnn_place place, cudnnDataType_t type,
        struct dnn_shape shape, int64_t uid, int64_t align_bytes)
{
	static const char what[] = "a tensor";
	const unsigned char is_virtual = place == DNN_VIRTUAL, is_value = place == DNN_VALUE;
	cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR, what);

	if (is_virtual)
		uid = --g->virtual_count;
	set(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid, what);
	set(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type, what);
	set(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align_bytes, what);
	set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, DNN_RANK, shape.dims, what);
	set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, DNN_RANK, shape.strides, what);
	set(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual, what);
	set(g, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &is_value, what);
	finish(g, d, what);
	return d;
}

void dnn_matmul(struct dnn_graph *g, dnn_tensor c, dnn_tensor a, dnn_tensor b)
{
	static const char what[] = "a matmul";
	const cudnnDataType_t math = CUDNN_DATA_FLOAT;
	cudnnBackendDescriptor_t kind = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR, what), d;

	set(g, kind, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &math, what);
	finish(g, kind, what);
	d = make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, what);
	set_descriptor(g, d, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a, what);
	set_descriptor(g, d, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b, what);
	set_descriptor(g, d, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c, what);
	set_descriptor(g, d, CUDNN_ATTR_OPERATION_MATMUL_DESC, kind, what);
	finish_operation(g, d, what);
}

void dnn_pointwise(struct dnn_graph *g, cudnnPointwiseMode_t mode, dnn_tensor y, dnn_tensor x, dnn_tensor b,
        dnn_tensor t, cudnnDataType_t math, int64_t axis)
{
	static const char what[] = "a pointwise operation";
	cudnnBackendDescriptor_t kind = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, what), d;

	set(g, kind, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode, what);
	set(g, kind, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &math, what);
	if (axis >= 0)
		set(g, kind, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis, what);
	finish(g, kind, what);
	d = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, what);
	set_descriptor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind, what);
	set_descriptor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x, what);
	if (b)
		set_descriptor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b, what);
	if (t)
		set_descriptor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t, what);
	set_descriptor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y, what);
	finish_operation(g, d, what);
}

void dnn_reduce(struct dnn_graph *g, cudnnReduceTensorOp_t op, dnn_tensor y, dnn_tensor x)
{
	static const char what[] = "a reduction";
	const cudnnDataType_t math = CUDNN_DATA_FLOAT;
	cudnnBackendDescriptor_t kind = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, what), d;

	set(g, kind, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op, what);
	set(g, kind, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &math, what);
	finish(g, kind, what);
	d = make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, what);
	set_descriptor(g, d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x, what);
	set_descriptor(g, d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y, what);
	set_descriptor(g, d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind, what);
	finish_operation(g, d, what);
}

void dnn_reshape(struct dnn_graph *g, dnn_tensor y, dnn_tensor x)
{
	static const char what[] = "a reshape";
	cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, what);

	set_descriptor(g, d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x, what);
	set_descriptor(g, d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y, what);
	finish_operation(g, d, what);
}

/* ---- plans ---- */

enum { CHOICES_MAX = 16, NOTES_MAX = 16 };

static cudnnBackendDescriptor_t describe(struct dnn_graph *g, const char *properties)
{
	static const char what[] = "the properties of a GPU";
	cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, what);

	set(g, d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)strlen(properties),
	        properties, what);
	finish(g, d, what);
	return d;
}

/* How many of `room` values cuDNN filled; count is how many it has. */
static int64_t filled(int64_t count, int64_t room)
{
	return count < room ? count : room;
}

/* Fills choices, which the graph owns, and returns their number. */
static int64_t choose(struct dnn_graph *g, const struct dnn_target *target, cudnnBackendDescriptor_t *choices)
{
	static const char what[] = "the choice of engines";
	const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
	cudnnBackendDescriptor_t graph = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "the graph"), d;
	int64_t count = 0;

	set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->operation_count,
	        g->operations, "the graph");
	if (target->handle)
		set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target->handle,
		        "the graph");
	finish(g, graph, "the graph");
	d = make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, what);
	set_descriptor(g, d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph, what);
	set(g, d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode, what);
	if (!target->handle)
		set_descriptor(g, d, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, describe(g, target->properties), what);
	finish(g, d, what);
	for (int i = 0; i < CHOICES_MAX; i++)
		choices[i] = make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, what);
	if (is_fine(g))
		note(g,
		        g->f->cudnnBackendGetAttribute(d, CUDNN_ATTR_ENGINEHEUR_RESULTS,
		                CUDNN_TYPE_BACKEND_DESCRIPTOR, CHOICES_MAX, &count, choices),
		        what);
	return is_fine(g) ? filled(count, CHOICES_MAX) : 0;
}

/* An engine without readable notes counts as not deterministic. */
static int is_deterministic(struct dnn_graph *g, cudnnBackendDescriptor_t choice)
{
	cudnnBackendNumericalNote_t notes[NOTES_MAX];
	cudnnBackendDescriptor_t engine = make(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR, "an engine");
	int64_t count = 0;

	if (!is_fine(g) || g->f->cudnnBackendGetAttribute(choice, CUDNN_ATTR_ENGINECFG_ENGINE,
	                           CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine) != CUDNN_STATUS_SUCCESS)
		return 0;
	if (g->f->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
	            CUDNN_TYPE_NUMERICAL_NOTE, NOTES_MAX, &count, notes) != CUDNN_STATUS_SUCCESS)
		return 0;
	for (int64_t i = 0; i < filled(count, NOTES_MAX); i++)
		if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
			return 0;
	return 1;
}

/* 1 if cuDNN can make a plan of the choice and the plan fits the workspace. */
static int plan_try(struct dnn_plan *plan, const struct cudnn *f, cudnnBackendDescriptor_t choice,
        int64_t workspace_bytes_max)
{
	int64_t count = 0;

	*plan = (struct dnn_plan){0};
	if (f->cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan->plan))
		return 0;
	if (!f->cudnnBackendSetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
	            CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &choice) &&
	        !f->cudnnBackendFinalize(plan->plan) &&
	        !f->cudnnBackendGetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
	                CUDNN_TYPE_INT64, 1, &count, &plan->workspace_bytes) &&
	        plan->workspace_bytes <= workspace_bytes_max)
		return 1;
	dnn_plan_close(f, plan);
	return 0;
}

int dnn_plan_open(struct dnn_plan *plan, struct dnn_graph *g, const struct dnn_target *target,
        int64_t workspace_bytes_max)
{
	cudnnBackendDescriptor_t choices[CHOICES_MAX];
	int64_t count = choose(g, target, choices), deterministic_count = 0;
	char why[ERR_TEXT_BYTES / 2] = "";

	for (int64_t i = 0; i < count && is_fine(g); i++) {
		if (!is_deterministic(g, choices[i]))
			continue;
		deterministic_count++;
		if (plan_try(plan, g->f, choices[i], workspace_bytes_max))
			return 0;
	}
	g->f->cudnnGetLastErrorString(why, sizeof(why));
	if (!is_fine(g))
		return err_set(ERR_UNSUPPORTED, "cuDNN: %s: %s; %s", g->failed,
		        g->f->cudnnGetErrorString(g->status), why);
	return err_set(ERR_UNSUPPORTED,
	        "cuDNN: %d engines were named, %d of them deterministic, none could be used; %s", (int)count,
	        (int)deterministic_count, why);
}

void dnn_plan_close(const struct cudnn *f, struct dnn_plan *plan)
{
	if (plan->plan)
		f->cudnnBackendDestroyDescriptor(plan->plan);
	plan->plan = NULL;
}

#else

typedef int cuda_dnn_is_not_built;

#endif
