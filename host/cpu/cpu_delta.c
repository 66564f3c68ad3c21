/* The gated delta rule, forward by chunks and token by token for generation. */
#include "host/cpu/delta.h"
#include "host/cpu/matmul.h"

#include "base/err.h"

#include <math.h>
#include <string.h>

OP_RECURRENT_LIST(CPU_DECLARE)

struct delta_run {
	struct delta_inputs in;
	void *out;
	int64_t out_stride, worker_count; /* floats of a worker's scratch */
	float *scratch;
};

/* diag(E) Q S + P V' (and skip V), in the place of v. */
static void chunk_out(const struct delta_run *run, struct delta_chunk *c, int64_t head, const float *state)
{
	const struct delta_inputs *in = &run->in;
	const struct cpu_kernels *k = cpu_kernels();
	int64_t dk = in->key_dim, dv = in->value_dim;

	if (in->is_scan)
		k->scale(c->v, c->v, delta_skip_of(in, head), c->count * dv);
	cpu_sgemm(c->v, c->p, c->fresh, c->count, dv, c->count, dv, DELTA_CHUNK, dv, MATMUL_NORMAL,
	        MATMUL_NORMAL, 1, in->is_scan ? 1 : 0);
	if (state) {
		delta_rows_scale(c, c->q, c->e, dk);
		cpu_sgemm(c->v, c->scaled, state, c->count, dv, dk, dv, dk, dv, MATMUL_NORMAL, MATMUL_NORMAL,
		        1, 1);
	}
	for (int64_t i = 0; i < c->count; i++) {
		int64_t at = (c->first + i) * run->out_stride + head * dv;
		float *place = cpu_out(c->v + i * dv, run->out, at, in->dtype);

		if (place != c->v + i * dv)
			k->scale(place, c->v + i * dv, 1, dv);
		cpu_store(k, run->out, at, place, dv, in->dtype);
	}
}

static void delta_head(void *context, int64_t head, int worker)
{
	const struct delta_run *run = context;
	const struct delta_inputs *in = &run->in;
	float *state = run->scratch + worker * run->worker_count;
	struct delta_chunk c;

	delta_chunk_place(&c, state + round_up(in->key_dim * in->value_dim, 16), in->key_dim, in->value_dim);
	for (int64_t t = 0; t < in->tokens; t += c.count) {
		int is_first = in->doc_start[t] == t;

		delta_chunk_begin(&c, in, head, t);
		delta_chunk_fresh(&c, in, is_first ? NULL : state);
		chunk_out(run, &c, head, is_first ? NULL : state);
		delta_chunk_pass(&c, in, state, is_first);
	}
}

int cpu_delta(struct cpu_context *cx, const struct op_delta *o)
{
	struct delta_run run = {.in = DELTA_INPUTS(o), .out = cpu_ptr(o->out), .out_stride = o->out_stride};
	int rc = delta_documents_check("delta", run.in.doc_start, o->tokens);

	if (rc)
		return rc;
	run.worker_count = scratch_delta_count(o->key_dim, o->value_dim);
	run.scratch = cpu_scratch(cx, cpu_workers(cx) * run.worker_count * 4);
	if (!run.scratch)
		return ERR_NOMEM;
	cpu_run(cx, o->value_heads, delta_head, &run);
	return 0;
}

/* ---- generation ---- */

struct delta_cached_run {
	struct delta_run run;
	float *state;
	const int32_t *doc_end;
	int64_t text_rows;
};

/* S = exp(g) S + k^ x beta (v - exp(g) k^ S); out = scale q^ S. Of a scan, S = exp(g) S + k x beta v; out =
 * scale q S + skip v. */
static void token_step(float *out, float *state, const struct delta_inputs *in, const float *q,
        const float *k, float *v, struct delta_gate gate, float skip)
{
	const struct cpu_kernels *kernels = cpu_kernels();
	int64_t dk = in->key_dim, dv = in->value_dim;

	kernels->scale(state, state, expf(gate.g), dk * dv);
	if (in->is_scan)
		kernels->scale(out, v, skip, dv);
	else
		cpu_sgemm(v, k, state, 1, dv, dk, dv, dk, dv, MATMUL_NORMAL, MATMUL_NORMAL, -1, 1);
	kernels->scale(v, v, gate.beta, dv);
	cpu_sgemm(state, k, v, dk, dv, 1, dv, 1, dv, MATMUL_NORMAL, MATMUL_NORMAL, 1, 1);
	cpu_sgemm(out, q, state, 1, dv, dk, dv, dk, dv, MATMUL_NORMAL, MATMUL_NORMAL, 1, in->is_scan ? 1 : 0);
}

static void cached_head(void *context, int64_t head, int worker)
{
	const struct delta_cached_run *r = context;
	const struct delta_inputs *in = &r->run.in;
	const struct cpu_kernels *kernels = cpu_kernels();
	int64_t dk = in->key_dim, dv = in->value_dim;
	float *q = r->run.scratch + worker * r->run.worker_count, *k = q + round_up(dk, 16);
	float *v = k + round_up(dk, 16), *out = v + round_up(dv, 16);

	for (int64_t t = 0; t < in->tokens; t++) {
		int64_t text = in->doc_start[t] / r->text_rows, at = t * r->run.out_stride + head * dv;
		float *state = r->state + (text * in->value_heads + head) * dk * dv;
		float *place = cpu_out(out, r->run.out, at, in->dtype);

		if (r->doc_end[t] - in->doc_start[t] == 1)
			memset(state, 0, (size_t)(dk * dv) * sizeof(*state));
		delta_unit(q, in, in->q, t, head, (float)in->scale);
		delta_unit(k, in, in->k, t, head, 1);
		delta_value(v, in, t, head);
		token_step(place, state, in, q, k, v, delta_gate_of(in, t, head), delta_skip_of(in, head));
		cpu_store(kernels, r->run.out, at, place, dv, in->dtype);
	}
}

int cpu_texts_check(const char *op_name, const int32_t *doc_start, const int32_t *doc_end, int64_t tokens,
        int64_t texts, int64_t text_rows)
{
	for (int64_t t = 0; t < tokens; t++)
		if (doc_start[t] < 0 || doc_start[t] % text_rows || doc_start[t] / text_rows >= texts ||
		        doc_end[t] <= doc_start[t] || doc_end[t] - doc_start[t] > text_rows)
			return err_set(ERR_RANGE, "%s: token %lld of %lld has rows [%d, %d)", op_name,
			        (long long)t, (long long)tokens, (int)doc_start[t], (int)doc_end[t]);
	return 0;
}

int cpu_delta_cached(struct cpu_context *cx, const struct op_delta_cached *o)
{
	struct delta_cached_run r = {
	        .run = {.in = DELTA_INPUTS(o), .out = cpu_ptr(o->out), .out_stride = o->out_stride},
	        .state = cpu_ptr(o->state),
	        .doc_end = cpu_ptr(o->doc_end),
	        .text_rows = o->text_rows};
	int rc = cpu_texts_check(
	        "delta_cached", r.run.in.doc_start, r.doc_end, o->tokens, o->texts, o->text_rows);

	if (rc)
		return rc;
	r.run.worker_count = 2 * round_up(o->key_dim, 16) + 2 * round_up(o->value_dim, 16);
	r.run.scratch = cpu_scratch(cx, cpu_workers(cx) * r.run.worker_count * 4);
	if (!r.run.scratch)
		return ERR_NOMEM;
	cpu_run(cx, o->value_heads, cached_head, &r);
	return 0;
}
