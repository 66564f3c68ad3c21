/* The gradient of the gated delta rule: forward over the chunks for their states, then back over them. */
#include "host/cpu/delta.h"
#include "host/cpu/matmul.h"

#include "base/err.h"

#include <math.h>
#include <string.h>

OP_RECURRENT_LIST(CPU_DECLARE)

struct delta_grad_run {
	struct op_delta_grad op;
	struct delta_inputs in;
	int64_t worker_count; /* floats of a worker's scratch */
	float *scratch;
};

/* The op's scratch: states of each head, then rows. The state before the chunk that begins at `first`, of a
 * document from `start` on, lies in a slot that no other chunk of the head has: documents do not overlap, and
 * their first chunks need none. */
static float *state_slot(const struct delta_grad_run *run, int64_t head, int64_t start, int64_t first)
{
	int64_t slot = start / DELTA_CHUNK + (first - start) / DELTA_CHUNK - 1;

	return (float *)cpu_ptr(run->op.scratch) +
	       (head * delta_states(run->in.tokens) + slot) * run->in.key_dim * run->in.value_dim;
}

static int64_t rows_first(const struct delta_inputs *in)
{
	return in->value_heads * delta_states(in->tokens) * in->key_dim * in->value_dim;
}

/* A worker's arrays beside those of the chunk. d is a gradient; r is that of the right-hand side, (I + A)^-T
 * dV'. */
struct back {
	float *dout, *r;      /* [count][value_dim] */
	float *x, *y, *z;     /* [count][key_dim]: dO S^T, V' dS^T, r S^T */
	float *dq, *dk;       /* [count][key_dim] */
	float *da, *dp, *dkk; /* [count][DELTA_CHUNK] */
	float *dstate;
	float db[DELTA_CHUNK], dbeta[DELTA_CHUNK];
	double ddecay, ddt_bias, dskip;
};

static void back_place(struct back *b, float *base, int64_t key_dim, int64_t value_dim)
{
	int64_t keys = DELTA_CHUNK * round_up(key_dim, 16), values = DELTA_CHUNK * round_up(value_dim, 16);

	b->dout = base;
	b->r = b->dout + values;
	b->x = b->r + values;
	b->y = b->x + keys;
	b->z = b->y + keys;
	b->dq = b->z + keys;
	b->dk = b->dq + keys;
	b->da = b->dk + keys;
	b->dp = b->da + DELTA_CHUNK * DELTA_CHUNK;
	b->dkk = b->dp + DELTA_CHUNK * DELTA_CHUNK;
	b->dstate = b->dkk + DELTA_CHUNK * DELTA_CHUNK;
}

/* c = alpha op(a) op(b) + beta c, for rows of `count` tokens. */
#define PRODUCT(c, a, b, m, n, k, cs, as, bs, la, lb, alpha, beta)                                           \
	cpu_sgemm(c, a, b, m, n, k, cs, as, bs, MATMUL_##la, MATMUL_##lb, alpha, beta)

static double dot_of(const float *a, const float *b, int64_t n)
{
	return cpu_kernels()->dot(a, b, n);
}

static void dout_load(
        const struct delta_grad_run *run, struct back *b, const struct delta_chunk *c, int64_t head)
{
	int64_t dv = run->in.value_dim;

	for (int64_t i = 0; i < c->count; i++) {
		float *row = b->dout + i * dv;
		const float *dout = cpu_load(cpu_kernels(), row, cpu_ptr(run->op.dout),
		        (c->first + i) * run->op.out_stride + head * dv, dv, run->in.dtype);

		if (dout != row)
			memcpy(row, dout, (size_t)dv * sizeof(*row));
	}
}

/* r, X, Y, Z, and dP, dA without their masks. state NULL: it was zero. is_last: nothing comes after. */
static void products(const struct delta_grad_run *run, struct back *b, struct delta_chunk *c,
        const float *state, int is_last)
{
	const struct delta_inputs *in = &run->in;
	int64_t dk = in->key_dim, dv = in->value_dim, n = c->count, C = DELTA_CHUNK;
	size_t key_bytes = (size_t)(n * dk) * sizeof(float);

	PRODUCT(b->r, c->p, b->dout, n, dv, n, dv, C, dv, TRANSPOSED, NORMAL, 1, 0);
	memset(b->y, 0, key_bytes);
	if (!is_last) {
		delta_rows_scale(c, c->k, c->rest, dk);
		PRODUCT(b->r, c->scaled, b->dstate, n, dv, dk, dv, dk, dv, NORMAL, NORMAL, 1, 1);
		PRODUCT(b->y, c->fresh, b->dstate, n, dk, dv, dk, dv, dv, NORMAL, TRANSPOSED, 1, 0);
	}
	if (!in->is_scan)
		delta_solve_transposed(c, b->r, dv);
	memset(b->x, 0, key_bytes);
	memset(b->z, 0, key_bytes);
	if (state) {
		PRODUCT(b->x, b->dout, state, n, dk, dv, dk, dv, dv, NORMAL, TRANSPOSED, 1, 0);
		if (!in->is_scan)
			PRODUCT(b->z, b->r, state, n, dk, dv, dk, dv, dv, NORMAL, TRANSPOSED, 1, 0);
	}
	PRODUCT(b->dp, b->dout, c->fresh, n, n, dv, C, dv, dv, NORMAL, TRANSPOSED, 1, 0);
	if (!in->is_scan)
		PRODUCT(b->da, b->r, c->fresh, n, n, dv, C, dv, dv, NORMAL, TRANSPOSED, -1, 0);
}

/* From dP and dA: the parts of db and dbeta in the chunk; dP becomes dP Gamma, dKK D + D^T. */
static void within(struct back *b, const struct delta_chunk *c, int is_scan)
{
	enum { C = DELTA_CHUNK };

	memset(b->db, 0, sizeof(b->db));
	memset(b->dbeta, 0, sizeof(b->dbeta));
	memset(b->dkk, 0, (size_t)(c->count * C) * sizeof(float));
	for (int64_t i = 0; i < c->count; i++)
		for (int64_t j = 0; j < c->count; j++) {
			int64_t at = i * C + j;
			float gamma = j <= i ? expf(c->b[i] - c->b[j]) : 0, f, d;

			if (j > i) {
				b->dp[at] = 0;
				continue;
			}
			f = b->dp[at] * c->p[at];
			b->dp[at] *= gamma;
			if (j < i && !is_scan) {
				d = b->da[at] * gamma;
				f += b->da[at] * c->a[at];
				b->dbeta[i] += d * c->kk[at];
				b->dkk[at] += c->beta[i] * d;
				b->dkk[j * C + i] += c->beta[i] * d;
			}
			b->db[i] += f;
			b->db[j] -= f;
		}
}

/* Adds the skip's part to dv of a token. */
static void skip_back(struct back *b, float *dvalue, const float *v, const float *dout, float skip, int64_t n)
{
	b->dskip += dot_of(v, dout, n);
	for (int64_t d = 0; d < n; d++)
		dvalue[d] += skip * dout[d];
}

/* dq and dk of the head, for q and k of length 1, into the op's scratch; dv into its place. */
static void store(const struct delta_grad_run *run, struct back *b, const struct delta_chunk *c, int64_t head)
{
	const struct delta_inputs *in = &run->in;
	const struct cpu_kernels *k = cpu_kernels();
	int64_t dk = in->key_dim, dv = in->value_dim, n = c->count, C = DELTA_CHUNK;
	float *rows =
	        (float *)cpu_ptr(run->op.scratch) + rows_first(in) + (head * in->tokens + c->first) * 2 * dk;

	PRODUCT(b->dq, b->dp, c->k, n, dk, n, dk, C, dk, NORMAL, NORMAL, 1, 0);
	PRODUCT(b->dk, b->dp, c->q, n, dk, n, dk, C, dk, TRANSPOSED, NORMAL, 1, 0);
	if (!in->is_scan)
		PRODUCT(b->dk, b->dkk, c->k, n, dk, n, dk, C, dk, NORMAL, NORMAL, 1, 1);
	for (int64_t i = 0; i < n; i++) {
		float *dq = b->dq + i * dk, *dkey = b->dk + i * dk, *dvalue = b->r + i * dv;
		float from_y = c->rest[i], from_z = -c->beta[i] * c->e[i];
		int64_t at = (c->first + i) * in->qkv_stride + head * dv;

		for (int64_t d = 0; d < dk; d++) {
			rows[i * 2 * dk + d] = (dq[d] + c->e[i] * b->x[i * dk + d]) * (float)in->scale;
			rows[i * 2 * dk + dk + d] =
			        dkey[d] + from_y * b->y[i * dk + d] + from_z * b->z[i * dk + d];
		}
		k->scale(dvalue, dvalue, c->beta[i], dv);
		if (in->is_scan)
			skip_back(b, dvalue, c->v + i * dv, b->dout + i * dv, delta_skip_of(in, head), dv);
		if (in->dtype == DTYPE_F32)
			k->scale((float *)cpu_ptr(run->op.dv) + at, dvalue, 1, dv);
		else
			cpu_store(k, cpu_ptr(run->op.dv), at, dvalue, dv, in->dtype);
	}
}

static void number_store(dev_addr array, int64_t at, float x, enum dtype dtype)
{
	if (dtype == DTYPE_F32)
		((float *)cpu_ptr(array))[at] = x;
	else
		cpu_kernels()->narrow((uint16_t *)cpu_ptr(array) + at, &x, 1);
}

/* The rest of db and dbeta, and from them the gradients of the gates. Before `store`, which scales r. */
static void gates(const struct delta_grad_run *run, struct back *b, const struct delta_chunk *c, int64_t head,
        double state_sum)
{
	const struct delta_inputs *in = &run->in;
	int64_t dk = in->key_dim, dv = in->value_dim, n = c->count;
	double last = c->total * state_sum, dg = 0, da;

	for (int64_t i = 0; i < n; i++) {
		double kz = dot_of(b->z + i * dk, c->k + i * dk, dk) * c->e[i];
		double ky = dot_of(b->y + i * dk, c->k + i * dk, dk) * c->rest[i];
		double qx = dot_of(b->x + i * dk, c->q + i * dk, dk) * c->e[i];

		b->dbeta[i] += (float)dot_of(b->r + i * dv, c->v + i * dv, dv);
		b->db[i] += (float)(qx - c->beta[i] * kz - ky);
		last += ky;
	}
	for (int64_t i = n - 1; i >= 0; i--) {
		const struct delta_gate *gate = &c->gate[i];
		int64_t at = (c->first + i) * in->gate_stride + head;

		dg += b->db[i] + (i == n - 1 ? last : 0);
		da = dg * gate->slope + (double)b->dbeta[i] * gate->step_slope;
		number_store(run->op.da, at, (float)da, in->dtype);
		if (!in->is_scan)
			number_store(
			        run->op.db, at, b->dbeta[i] * gate->sigmoid * (1 - gate->sigmoid), in->dtype);
		b->ddecay += dg * gate->g;
		b->ddt_bias += da;
	}
}

/* dS before the chunk; before `store`, which scales r. */
static void pass_back(const struct delta_grad_run *run, struct back *b, struct delta_chunk *c, int is_last)
{
	const struct delta_inputs *in = &run->in;
	int64_t dk = in->key_dim, dv = in->value_dim, n = c->count;
	float factors[DELTA_CHUNK];

	delta_rows_scale(c, c->q, c->e, dk);
	if (!is_last)
		cpu_kernels()->scale(b->dstate, b->dstate, c->total, dk * dv);
	PRODUCT(b->dstate, c->scaled, b->dout, dk, dv, n, dv, dk, dv, TRANSPOSED, NORMAL, 1, is_last ? 0 : 1);
	for (int64_t i = 0; i < n; i++)
		factors[i] = c->beta[i] * c->e[i];
	if (in->is_scan)
		return;
	delta_rows_scale(c, c->k, factors, dk);
	PRODUCT(b->dstate, c->scaled, b->r, dk, dv, n, dv, dk, dv, TRANSPOSED, NORMAL, -1, 1);
}

static void chunk_back(const struct delta_grad_run *run, struct back *b, struct delta_chunk *c, int64_t head,
        const float *state, int is_last)
{
	const struct delta_inputs *in = &run->in;
	double state_sum = state && !is_last ? dot_of(state, b->dstate, in->key_dim * in->value_dim) : 0;

	delta_chunk_fresh(c, in, state);
	dout_load(run, b, c, head);
	products(run, b, c, state, is_last);
	within(b, c, in->is_scan);
	gates(run, b, c, head, state_sum);
	if (state)
		pass_back(run, b, c, is_last);
	store(run, b, c, head);
}

static void delta_grad_head(void *context, int64_t head, int worker)
{
	const struct delta_grad_run *run = context;
	const struct delta_inputs *in = &run->in;
	int64_t size = in->key_dim * in->value_dim, next = in->tokens;
	float *base = run->scratch + worker * run->worker_count;
	float *state = base, *decay = cpu_ptr(run->op.ddecay), *dt_bias = cpu_ptr(run->op.ddt_bias);
	struct delta_chunk c;
	struct back b = {0};

	base += round_up(size, 16);
	delta_chunk_place(&c, base, in->key_dim, in->value_dim);
	back_place(
	        &b, base + scratch_delta_chunk_count(in->key_dim, in->value_dim), in->key_dim, in->value_dim);
	for (int64_t t = 0; t < in->tokens; t += c.count) {
		int is_first = in->doc_start[t] == t;

		if (!is_first)
			memcpy(state_slot(run, head, in->doc_start[t], t), state,
			        (size_t)size * sizeof(*state));
		delta_chunk_begin(&c, in, head, t);
		delta_chunk_fresh(&c, in, is_first ? NULL : state);
		delta_chunk_pass(&c, in, state, is_first);
	}
	while (next > 0) {
		int64_t first = next - 1, start = in->doc_start[first];
		int is_last = next == in->tokens || in->doc_start[next] == next;

		first = start + (first - start) / DELTA_CHUNK * DELTA_CHUNK;
		delta_chunk_begin(&c, in, head, first);
		chunk_back(run, &b, &c, head, first == start ? NULL : state_slot(run, head, start, first),
		        is_last);
		next = first;
	}
	decay[head] = (float)(decay[head] + b.ddecay);
	dt_bias[head] = (float)(dt_bias[head] + b.ddt_bias);
	if (in->is_scan)
		((float *)cpu_ptr(run->op.dskip))[head] += (float)b.dskip;
}

/* ---- q and k as they came: sums over the value heads of a key head, and back through the lengths ---- */

static void unit_grad(float *dx, const float *unit, float length, int64_t n)
{
	float along = (float)dot_of(dx, unit, n);

	for (int64_t i = 0; i < n; i++)
		dx[i] = (dx[i] - along * unit[i]) * length;
}

static void delta_grad_token(void *context, int64_t piece, int worker)
{
	const struct delta_grad_run *run = context;
	const struct delta_inputs *in = &run->in;
	const struct cpu_kernels *k = cpu_kernels();
	int64_t t = piece / in->key_heads, key = piece % in->key_heads, dk = in->key_dim;
	int64_t each = in->value_heads / in->key_heads, at = t * in->qkv_stride + key * dk;
	const float *rows = (const float *)cpu_ptr(run->op.scratch) + rows_first(in);
	const void *const from[] = {in->q, in->k};
	const dev_addr to[] = {run->op.dq, run->op.dk};
	float *sum = run->scratch + worker * run->worker_count, *unit = sum + round_up(dk, 16);

	for (int side = 0; side < 2; side++) {
		float length = delta_unit(unit, in, from[side], t, key * each, 1);
		float *place = cpu_out(sum, cpu_ptr(to[side]), at, in->dtype);

		memset(sum, 0, (size_t)dk * sizeof(*sum));
		for (int64_t r = 0; r < each; r++)
			k->add(sum, sum, rows + (((key * each + r) * in->tokens + t) * 2 + side) * dk, dk);
		if (!in->is_scan)
			unit_grad(sum, unit, length, dk);
		if (place != sum)
			k->scale(place, sum, 1, dk);
		cpu_store(k, cpu_ptr(to[side]), at, place, dk, in->dtype);
	}
}

int cpu_delta_grad(struct cpu_context *cx, const struct op_delta_grad *o)
{
	struct delta_grad_run run = {.op = *o, .in = DELTA_INPUTS(o)};
	int rc = delta_documents_check("delta_grad", run.in.doc_start, o->tokens);

	if (rc)
		return rc;
	run.worker_count = scratch_delta_count(o->key_dim, o->value_dim) +
	                   scratch_delta_back_count(o->key_dim, o->value_dim);
	run.scratch = cpu_scratch(cx, cpu_workers(cx) * run.worker_count * 4);
	if (!run.scratch)
		return ERR_NOMEM;
	cpu_run(cx, o->value_heads, delta_grad_head, &run);
	cpu_run(cx, o->tokens * o->key_heads, delta_grad_token, &run);
	return 0;
}
