/* Shared by offload/run*.c and private to them. run.c, run_stage.c, run_weights.c and run_gradient.c queue
 * operations; run_work.c and run_rows.c do the work of the cpu queue. */
#ifndef FERRY_OFFLOAD_RUN_PARTS_H
#define FERRY_OFFLOAD_RUN_PARTS_H

#include "offload/run.h"

/* Context of one operation on the cpu queue. */
struct run_call {
	struct run *run;
	const struct plan_op *op;
};

struct run {
	const struct plan *plan;
	const struct dock *dock;
	struct event **events;     /* per operation; NULL if none waits for it */
	struct run_call *calls;    /* per operation */
	dev_addr *weight, *grad;   /* per tensor; of the stage being queued */
	dev_addr *scales;          /* of weights that are codes */
	struct stage_value *value; /* per value of the model; of the stage being queued */
	/* per tensor; of the stage being queued: 1 where these are rows alone (struct stage_memory) */
	uint8_t *weight_rows, *grad_rows;
	struct run_rows *rows; /* NULL: no table, or a device without bytes */
	int64_t *norm_first;   /* per tensor: first block in the NORM buffer */
	int *norm_host;        /* per piece: buffer of its sums of squares on the host */
	char *norm_by_finish;  /* per piece: 1 if FINISH made its sums, 0 for SUMSQ */
	int *loss_host;        /* per micro: buffer */
	int *tally_host;       /* the same; unset without experts */
	const struct run_step *step;
};

/* The objective with the settings of the step's rows: all its micro-batches have the same. */
const struct objective_use *run_use(const struct run *r);

/* Finds the buffers with results. */
void run_results_find(struct run *r);

/* First byte of a staging or store buffer. */
void *run_host_address(const struct run *r, int buffer);

/* First byte of a buffer in the arena. */
dev_addr run_device_address(const struct run *r, int buffer);

/* Buffer of the first argument with that role, or -1. */
int run_arg(const struct run *r, const struct plan_op *op, enum plan_role role);

/* Its address on the device, or DEV_NONE. */
dev_addr run_arg_address(const struct run *r, const struct plan_op *op, enum plan_role role);

/* Vectors of a micro-batch; facts of 0 for documents that it lacks; those of all ranks; their losses. */
dev_addr run_vectors_address(const struct run *r, const struct plan_op *op);
int run_queue_no_vectors(struct run *r, struct stream *q, const struct plan_op *op);
int run_queue_collect(struct run *r, struct stream *q, const struct plan_op *op);
int run_queue_judge(struct run *r, struct stream *q, int op);

/* Queued operations run later, so each that is shown needs an event; a simulated plan shows none. run_show
 * waits for an operation and says where the step is, for whoever waits for it. */
int run_shown_open(struct run *r);
int run_show(const struct run *r, int op);

/* Queue forward, backward, loss or logits of a stage. */
int run_queue_stage(struct run *r, struct stream *q, const struct plan_op *op);

/* Queue the norms of a stage's rows. */
int run_queue_row_norms(struct run *r, struct stream *q, const struct plan_op *op);

/* Queue a CPU operation (UPDATE, ACCUMULATE, FINISH). */
int run_queue_work(struct run *r, struct stream *q, int op);

/* Bytes of host memory that it moves, for the meta clock. */
double run_work_bytes(const struct run *r, const struct plan_op *op);

/* Tables of which only rows cross. run_rows_number finds the rows that micro-batch m uses, and writes the
 * place of each token's row among them to row[tokens]; ERR_RANGE: there is no such row. run_rows_count is how
 * many there are; without bytes, how many there may be. run_queue_rows queues a PICK or a SPREAD. */
int run_rows_open(struct run *r);
void run_rows_close(struct run *r);
int run_rows_number(struct run *r, int32_t *row, int m, const struct host_batch *batch);
int64_t run_rows_count(const struct run *r, int unit, int m);
/* Finds the chunks of ROWS_CHUNK elements that have rows of the step; whether an element is in one. */
enum { ROWS_CHUNK = 4096 };
void run_rows_used(const struct run *r, int unit);
int run_rows_use(const struct run *r, int unit, int64_t element);
int run_queue_rows(struct run *r, struct stream *q, int op);

/* Makes the codes and scales that products read, of a unit's bf16 weights; all of it is on this rank. */
void run_codes_make(
        const struct unit_map *map, int unit, const void *hi, void *codes, void *scales, struct pool *pool);

/* Queue EXPAND of codes, and ENCODE (run_weights.c). */
int run_queue_codes(struct run *r, struct stream *q, const struct plan_op *op);
int run_queue_encode(struct run *r, struct stream *q, const struct plan_op *op);

/* Queue zeros: for a ZERO, and for the first HEAD or BACKWARD of a gradient if its micro-batch has no tokens
 * or targets. */
int run_queue_zero(struct run *r, struct stream *q, const struct plan_op *op);
int run_queue_unwritten(struct run *r, struct stream *q, const struct plan_op *op);

#endif
