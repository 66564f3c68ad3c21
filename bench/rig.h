/* A device opened for measuring: an arena of random numbers, one compute stream, and the machine's limits.
 *
 * The arena has two parts. The limits' part holds the operands of one large copy and of one large matrix
 * product, whose rates are what other figures are shares of; the work's part is the benchmark's own. Numbers
 * are uniform in [-1, 1) as bf16, and pairs of them are as good as fp32 numbers: a GPU that multiplies zeros
 * draws less power and runs faster than one that works.
 *
 * Times are those of the device's clock (stream_stamp) between two points of the stream with many calls
 * between them, so that neither a launch nor a host that looks away is measured.
 */
#ifndef FERRY_BENCH_RIG_H
#define FERRY_BENCH_RIG_H

#include "bench/bench.h"
#include "device/device.h"
#include "device/op.h"

/* How large the work is: a small model's shapes on a CPU, those of Llama 3 8B on anything else, and shapes
 * of no meaning where a test wants it over at once. */
struct bench_scale {
	int64_t tokens, document_tokens, hidden, heads, kv_heads, head_dim, intermediate, vocab;
	int64_t copy_bytes;   /* of the large copy; several times any cache */
	int64_t rotate_bytes; /* operands in turn cover at least this much */
	int64_t product_side;
	double batch_s; /* calls between two stamps take about so long */
	int rounds;
	struct device_piece piece; /* of logits */
};
enum { BENCH_TINY_TOKENS = 256 }; /* a count of tokens below this asks for shapes of no meaning */
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

/* Opens the device that args name, on this pool, and chooses the scale for it; product_dtype is BF16 or F32.
 */
int bench_rig_open(struct bench_rig *rig, const struct bench_args *args, struct pool *pool, int64_t tokens,
        enum dtype product_dtype);

/* Takes an arena of the limits' part and work_bytes more, and fills it. */
int bench_rig_fill(struct bench_rig *rig, int64_t work_bytes);
void bench_rig_close(struct bench_rig *rig); /* half-open ones too */

/* Seconds of one op: `calls` of them queued, op i % op_count each time. Waits. */
int bench_rig_time(struct bench_rig *rig, double *seconds, const struct op *ops, int op_count, int calls);

/* How many calls take about scale.batch_s, at least op_count; runs each op once or more. */
int bench_rig_calls(struct bench_rig *rig, int *calls, const struct op *ops, int op_count);

/* Bytes read and written per second by the large copy; FLOPs per second of the large product. */
int bench_rig_copy_rate(struct bench_rig *rig, double *bytes_per_s);
int bench_rig_product_rate(struct bench_rig *rig, double *flops_per_s);

/* Both limits, medians of scale.rounds, on a device opened and closed for that. */
struct bench_limits {
	double copy_bytes_per_s, product_flops_per_s;
};
int bench_limits_measure(struct bench_limits *limits, const struct bench_args *args, struct pool *pool,
        int64_t tokens, enum dtype product_dtype);

/* Opens the device that args name (NULL: the host device) on this pool. */
int bench_device_open(struct device **device, const struct bench_args *args, struct pool *pool);

/* The device that would be opened. */
int bench_device_find(enum device_kind *kind, const struct bench_args *args, struct pool *pool);

#endif
