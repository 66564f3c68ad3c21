/* A device opened for measuring: an arena of random numbers, one compute stream, and the machine's limits.
 *
 * The arena has two parts. The limits' part holds the operands of one large copy and one large matrix
 * product; other figures are given as shares of their rates. The work's part is for the benchmark. Numbers
 * are uniform in [-1, 1) as bf16; read in pairs they are valid fp32 numbers. They are not zero, because a GPU
 * that multiplies zeros draws less power and runs faster.
 *
 * Times are from the device's clock (stream_stamp), between two points of the stream with many calls between
 * them. So neither launches nor pauses of the host count.
 */
#ifndef FERRY_BENCH_RIG_H
#define FERRY_BENCH_RIG_H

#include "bench/bench.h"
#include "device/device.h"
#include "device/op.h"

/* The size of the work: shapes of a small model on a CPU, of Llama 3 8B on other devices, and tiny ones for
 * tests. */
struct bench_scale {
	int64_t tokens, document_tokens, hidden, heads, kv_heads, head_dim, intermediate, vocab;
	int64_t copy_bytes;   /* bytes of the large copy; several times any cache */
	int64_t rotate_bytes; /* operands used in turn cover at least this much */
	int64_t product_side;
	double batch_s; /* calls between two stamps take about this long */
	int rounds;
	struct device_piece piece; /* of logits */
};
enum { BENCH_TINY_TOKENS = 256 }; /* fewer tokens than this select tiny shapes */
void bench_scale_init(struct bench_scale *scale, enum device_kind kind, int64_t tokens);

struct bench_rig {
	struct device *device;
	struct stream *stream;
	struct bench_scale scale;
	enum dtype product_dtype;
	dev_addr limits, work;
	struct op copy, product;
	int copy_calls, product_calls;
};

/* Opens the device of args on this pool, and chooses its scale. product_dtype is BF16 or F32. */
int bench_rig_open(struct bench_rig *rig, const struct bench_args *args, struct pool *pool, int64_t tokens,
        enum dtype product_dtype);

/* Takes an arena of the limits' part and work_bytes more, and fills it. */
int bench_rig_fill(struct bench_rig *rig, int64_t work_bytes);
void bench_rig_close(struct bench_rig *rig); /* also if it is only partly open */

/* Seconds of one op. Queues `calls` calls of ops[i % op_count], and waits. */
int bench_rig_time(struct bench_rig *rig, double *seconds, const struct op *ops, int op_count, int calls);

/* Number of calls that take about scale.batch_s, at least op_count. Runs each op at least once. */
int bench_rig_calls(struct bench_rig *rig, int *calls, const struct op *ops, int op_count);

/* Bytes read and written per second by the large copy; FLOPs per second of the large product. */
int bench_rig_copy_rate(struct bench_rig *rig, double *bytes_per_s);
int bench_rig_product_rate(struct bench_rig *rig, double *flops_per_s);

/* Measures both limits as medians of scale.rounds, on a device that it opens and closes. */
struct bench_limits {
	double copy_bytes_per_s, product_flops_per_s;
};
int bench_limits_measure(struct bench_limits *limits, const struct bench_args *args, struct pool *pool,
        int64_t tokens, enum dtype product_dtype);

/* Opens the device of args (NULL: the host device) on this pool. */
int bench_device_open(struct device **device, const struct bench_args *args, struct pool *pool);

/* The kind of device that bench_device_open would open. */
int bench_device_find(enum device_kind *kind, const struct bench_args *args, struct pool *pool);

#endif
