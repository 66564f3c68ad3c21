/* The rates of a probe: products, attention, memory, and the sensors while products run. */
#include "gpu/cuda_probe_parts.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/size.h"
#include "device/op.h"

#include <math.h>

enum {
	SIDE_MOST = 4096,
	TOKENS_MOST = 4096,
	HEADS_MOST = 32,
	GROUP = 4, /* heads that share keys and values */
	HEAD = 128,
	TRIES = 3,
	REPEATS_MOST = 4000
};
static const double LONG_S = 1.5; /* of products: clocks and power settle */
static const double SHORT_S = 0.5;

/* Runs an op some times, then as often as fits `seconds`, and finds the time of one. */
static int op_time(double *each_s, struct probe *p, const struct op *op, double seconds)
{
	int64_t at_ns[2] = {0}, begin_ns = 0;
	int rc = 0, count = TRIES;

	for (int round = 0; round < 2 && !rc; round++) {
		begin_ns = clock_now_ns();
		rc = stream_stamp(p->compute, &at_ns[0]);
		for (int i = 0; i < count && !rc; i++)
			rc = stream_op(p->compute, op);
		if (!rc)
			rc = stream_stamp(p->compute, &at_ns[1]);
		if (!rc)
			rc = device_sync(p->device);
		*each_s = 1e-9 * (double)(at_ns[1] - at_ns[0]) / count;
		count = (int)fmin(
		        REPEATS_MOST, 1 + seconds * count / (1e-9 * (double)(clock_now_ns() - begin_ns)));
	}
	return rc;
}

static double tflops(const struct op *op, double each_s)
{
	struct op_cost cost;

	op_cost_of(op, &cost);
	return each_s > 0 ? 1e-12 * (cost.flops_bf16 + cost.flops_f32) / each_s : 0;
}

/* ---- sensors ---- */

/* Large products often run at the power limit; whatever else slows them is worth a look. */
static void sensors_tell(struct probe *p, const struct device_condition *c)
{
	static const char *const slowed[] = {
#define SLOWED(NAME, text) "held down by: " text,
	        DEVICE_SLOW_LIST(SLOWED)
#undef SLOWED
	};
	const char *verdict = "ok";

	for (int i = 0; i < DEVICE_SLOW_COUNT; i++)
		if (i != DEVICE_SLOW_POWER && (c->slowed >> i & 1))
			verdict = slowed[i];
	const struct cuda_probe_row rows[] = {
	        {"sm_clock", "MHz", "multiprocessors while products run", c->sm_mhz, NULL, verdict},
	        {"memory_clock", "MHz", "the GPU's memory", c->memory_mhz, NULL, NULL},
	        {"power", "W",
	                c->slowed >> DEVICE_SLOW_POWER & 1 ? "while products run; it is at its limit"
	                                                   : "while products run",
	                c->watts, NULL, NULL},
	        {"temperature", "C", "the highest meanwhile", c->celsius, NULL, NULL},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		if (rows[i].value > 0) /* 0: the card has no such sensor */
			probe_tell_verdict(p, &rows[i]);
}

/* ---- ops ---- */

/* [n, k] = [n, 2 n] x [n, 2 n], as large as fits: 10 n^2 bytes. */
static void product_tell(struct probe *p)
{
	int64_t n = SIDE_MOST;
	struct device_condition condition;
	struct op op;
	double each_s = 0;
	int rc;

	while (10 * n * n > 2 * p->copy_bytes)
		n /= 2;
	op = (struct op){.kind = OP_MATMUL,
	        .matmul = {.a = p->arena,
	                .b = dev_at(p->arena, 4 * n * n),
	                .c = dev_at(p->arena, 8 * n * n),
	                .m = n,
	                .n = n,
	                .k = 2 * n,
	                .a_stride = 2 * n,
	                .b_stride = 2 * n,
	                .c_stride = n,
	                .ab_dtype = DTYPE_BF16,
	                .c_dtype = DTYPE_BF16}};
	device_get_condition(p->device, &condition);
	rc = op_time(&each_s, p, &op, LONG_S);
	probe_tell(p, rc, "product_rate", tflops(&op, each_s), "TF/s", "large products of bf16");
	if (!rc && device_get_condition(p->device, &condition))
		sensors_tell(p, &condition);
}

/* Places attention of one document in the arena; returns the bytes that it takes. */
static int64_t attention_lay(
        struct op_attention *o, struct op_attention_grad *g, dev_addr at, int64_t tokens, int64_t heads)
{
	int64_t kv_heads = (heads + GROUP - 1) / GROUP, width = heads * HEAD, kv = kv_heads * HEAD,
	        stride = width + 2 * kv, end = 0;
	dev_addr place[8];
	const int64_t bytes[8] = {2 * tokens * stride, 2 * tokens * stride, 2 * tokens * width,
	        2 * tokens * width, 4 * tokens * heads, 4 * tokens, 4 * tokens,
	        4 * attention_scratch_count(tokens, heads, HEAD)};

	for (int i = 0; i < 8; i++) {
		place[i] = dev_at(at, end);
		end = round_up(end + bytes[i], 256);
	}
	*o = (struct op_attention){.q = place[0],
	        .k = dev_at(place[0], 2 * width),
	        .v = dev_at(place[0], 2 * (width + kv)),
	        .out = place[2],
	        .lse = place[4],
	        .doc_start = place[5],
	        .doc_end = place[6],
	        .tokens = tokens,
	        .documents = 1,
	        .document_tokens = tokens,
	        .heads = heads,
	        .kv_heads = kv_heads,
	        .head_dim = HEAD,
	        .qkv_stride = stride,
	        .q_head_stride = HEAD,
	        .kv_head_stride = HEAD,
	        .out_stride = width,
	        .scale = 0.1,
	        .dtype = DTYPE_BF16};
	*g = (struct op_attention_grad){.dq = place[1],
	        .dk = dev_at(place[1], 2 * width),
	        .dv = dev_at(place[1], 2 * (width + kv)),
	        .dout = place[3],
	        .out = o->out,
	        .lse = o->lse,
	        .q = o->q,
	        .k = o->k,
	        .v = o->v,
	        .doc_start = o->doc_start,
	        .doc_end = o->doc_end,
	        .scratch = place[7],
	        .tokens = tokens,
	        .documents = 1,
	        .document_tokens = tokens,
	        .heads = heads,
	        .kv_heads = kv_heads,
	        .head_dim = HEAD,
	        .qkv_stride = stride,
	        .q_head_stride = HEAD,
	        .kv_head_stride = HEAD,
	        .out_stride = width,
	        .scale = 0.1,
	        .dtype = DTYPE_BF16};
	return end;
}

/* All tokens are of one document. The host has the borders in pinned memory. */
static int documents_set(struct probe *p, const struct op_attention *o)
{
	int32_t *borders = (int32_t *)(void *)p->pinned;

	for (int64_t t = 0; t < o->tokens; t++) {
		borders[t] = 0;
		borders[o->tokens + t] = (int32_t)o->tokens;
	}
	if (stream_copy_in(p->compute, o->doc_start, borders, 4 * o->tokens) ||
	        stream_copy_in(p->compute, o->doc_end, borders + o->tokens, 4 * o->tokens))
		return ERR_DEVICE;
	return device_sync(p->device);
}

static void attention_tell(struct probe *p)
{
	int64_t tokens = TOKENS_MOST, heads = HEADS_MOST;
	struct op forward = {.kind = OP_ATTENTION}, backward = {.kind = OP_ATTENTION_GRAD};
	double each_s = 0;
	int rc;

	while (attention_lay(&forward.attention, &backward.attention_grad, p->arena, tokens, heads) >
	        2 * p->copy_bytes) {
		if (heads > 1)
			heads /= 2;
		else
			tokens /= 2;
	}
	rc = documents_set(p, &forward.attention);
	if (!rc)
		rc = op_time(&each_s, p, &forward, SHORT_S);
	probe_tell(p, rc, "attention_rate", tflops(&forward, each_s), "TF/s",
	        "attention forward, one document of bf16, heads of 128");
	if (!rc)
		rc = op_time(&each_s, p, &backward, SHORT_S);
	probe_tell(p, rc, "attention_grad_rate", tflops(&backward, each_s), "TF/s", "its backward");
}

static void memory_tell(struct probe *p)
{
	int64_t count = p->copy_bytes / 8;
	struct op op = {.kind = OP_ADD,
	        .add = {.dst = p->arena,
	                .a = dev_at(p->arena, 4 * count),
	                .b = dev_at(p->arena, 8 * count),
	                .count = count,
	                .dtype = DTYPE_F32}};
	double each_s = 0;
	int rc = op_time(&each_s, p, &op, SHORT_S);

	probe_tell(p, rc, "memory_rate", each_s > 0 ? 12e-9 * (double)count / each_s : 0, "GB/s",
	        "memory read and written by a sum");
}

void probe_rates(struct probe *p)
{
	memory_tell(p);
	product_tell(p);
	attention_tell(p);
}
