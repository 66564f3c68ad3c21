/* One chunk of the gated delta rule, shared by forward and backward (device/op_recurrent.h has the rule).
 *
 * For a chunk of c tokens of one value head, with E = exp(b), b the sum of g within the chunk, and
 * Gamma[i][j] = exp(b_i - b_j) for j <= i (Yang et al. 2024, with the state in the right-hand side):
 *
 *     A = strictly lower(diag(beta) K K^T Gamma)     P = lower(Q K^T Gamma)
 *     (I + A) V' = diag(beta) (V - diag(E) K S)      O = diag(E) Q S + P V'
 *     S <- exp(b_c) S + (diag(exp(b_c - b)) K)^T V'
 *
 * Q holds scale q^, K holds k^. All arrays are fp32 of the worker's scratch, rows without gaps.
 */
#ifndef FERRY_HOST_CPU_DELTA_H
#define FERRY_HOST_CPU_DELTA_H

#include "device/op_recurrent.h"
#include "host/cpu/cpu_inner.h"
#include "host/op_scratch.h"

/* The arguments that forward, backward and generation share. */
struct delta_inputs {
	const void *q, *k, *v, *a, *b, *decay, *dt_bias, *skip;
	const int32_t *doc_start;
	int64_t tokens, key_heads, value_heads, key_dim, value_dim, qkv_stride, gate_stride;
	double scale, epsilon, low, high;
	int is_scan; /* DELTA_SCAN: A = 0, and diag(E) K S is not taken from V */
	enum dtype dtype;
};

#define DELTA_INPUTS(o)                                                                                      \
	(struct delta_inputs)                                                                                \
	{                                                                                                    \
		.q = cpu_ptr((o)->q), .k = cpu_ptr((o)->k), .v = cpu_ptr((o)->v), .a = cpu_ptr((o)->a),      \
		.b = cpu_ptr((o)->b), .decay = cpu_ptr((o)->decay), .dt_bias = cpu_ptr((o)->dt_bias),        \
		.doc_start = cpu_ptr((o)->doc_start), .tokens = (o)->tokens, .key_heads = (o)->key_heads,    \
		.value_heads = (o)->value_heads, .key_dim = (o)->key_dim, .value_dim = (o)->value_dim,       \
		.qkv_stride = (o)->qkv_stride, .gate_stride = (o)->gate_stride, .scale = (o)->scale,         \
		.epsilon = (o)->epsilon, .low = (o)->low, .high = (o)->high,                                 \
		.is_scan = (o)->rule == DELTA_SCAN, .skip = cpu_ptr((o)->skip), .dtype = (o)->dtype          \
	}

/* A gate of one token and head, with what its gradient needs. */
struct delta_gate {
	float beta, sigmoid; /* beta rounded to dtype, and as it is; of a scan, beta is the step */
	float g;             /* log of the decay, at most 0 */
	float slope;         /* dg/da */
	float step_slope;    /* dbeta/da of a scan */
};

struct delta_chunk {
	int64_t first, count; /* tokens */
	float *q, *k;         /* [count][key_dim] */
	float *scaled;        /* rows of q or k times a factor each */
	float *v, *fresh;     /* [count][value_dim]: v, then V - diag(E) K S; V' */
	float *a, *p, *kk;    /* [count][DELTA_CHUNK] */
	float beta[DELTA_CHUNK], b[DELTA_CHUNK], e[DELTA_CHUNK], rest[DELTA_CHUNK]; /* rest: exp(b_c - b) */
	struct delta_gate gate[DELTA_CHUNK];
	float q_norm[DELTA_CHUNK], k_norm[DELTA_CHUNK]; /* 1 / sqrt(sum of squares + epsilon) */
	float total;                                    /* exp(b_c) */
};

/* Gives a chunk's arrays their places in scratch_delta_chunk_count floats. */
void delta_chunk_place(struct delta_chunk *c, float *base, int64_t key_dim, int64_t value_dim);

/* One token of a head: q and k over their lengths (of a scan, as they are), v, and the gate. */
struct delta_gate delta_gate_of(const struct delta_inputs *in, int64_t token, int64_t head);
float delta_unit(float *to, const struct delta_inputs *in, const void *from, int64_t token, int64_t head,
        float factor);
float delta_skip_of(const struct delta_inputs *in, int64_t head); /* 0 without skip */
void delta_value(float *to, const struct delta_inputs *in, int64_t token, int64_t head);

/* Loads the chunk from `first` on, which ends with its document or after DELTA_CHUNK tokens, and computes A
 * and P. */
void delta_chunk_begin(struct delta_chunk *c, const struct delta_inputs *in, int64_t head, int64_t first);

/* V' from the state before the chunk; NULL: zero. */
void delta_chunk_fresh(struct delta_chunk *c, const struct delta_inputs *in, const float *state);

/* The state after the chunk, in its place. is_zero: `state` holds nothing yet. */
void delta_chunk_pass(struct delta_chunk *c, const struct delta_inputs *in, float *state, int is_zero);

/* scaled = rows of x times factors. */
void delta_rows_scale(struct delta_chunk *c, const float *x, const float *factors, int64_t cols);

/* Solves (I + A)^T X = X for X [count][cols] in its place. */
void delta_solve_transposed(const struct delta_chunk *c, float *x, int64_t cols);

/* 0, or ERR_RANGE for a document that does not start where it says. */
int delta_documents_check(const char *op_name, const int32_t *doc_start, int64_t tokens);

/* 0, or ERR_RANGE for a token outside the rows of its text. */
int cpu_texts_check(const char *op_name, const int32_t *doc_start, const int32_t *doc_end, int64_t tokens,
        int64_t texts, int64_t text_rows);

#endif
