/* links: host_cpu */
/* also: tsan cuda */
/* The gated delta rule and Mamba-2's scan, forward, backward and token by token, against their definitions in
 * fp64. */
#include "tests/delta_reference.h"
#include "tests/ops_check.h"

enum { TOKENS_MAX = 1200, TOKENS_USUAL = 150 };

/* Documents of random lengths, some longer than a chunk; their number. */
static int64_t documents_draw(struct ops_case *c, int32_t *doc_start, int64_t tokens)
{
	int64_t count = 0, end = 0;

	for (int64_t t = 0; t < tokens; t++) {
		if (t == end) {
			int64_t most = case_int(c, 0, 2) ? (tokens > TOKENS_USUAL ? 1500 : 200) : 4;

			end = t + case_int(c, 1, most);
			doc_start[t] = (int32_t)t;
			count++;
		} else {
			doc_start[t] = doc_start[t - 1];
		}
	}
	return count;
}

static double round_bf16(double x)
{
	return bf16_to_f32(bf16_from_f32((float)x));
}

static double reference_value(void *context)
{
	struct delta_reference *r = context;
	double sum = 0;

	delta_reference_forward(r);
	for (int64_t i = 0; i < r->tokens * r->dv; i++)
		sum += r->o[i] * r->dout[i];
	return sum;
}

static void test_reference(void **state)
{
	int32_t doc_start[TOKENS_MAX];

	(void)state;
	for (uint64_t seed = 0; seed < case_count(20); seed++) {
		struct ops_case c;
		struct delta_reference r = {.scale = 0.5,
		        .epsilon = 0.1,
		        .doc_start = doc_start,
		        .is_scan = seed % 2 == 1,
		        .low = 0.2,
		        .high = 3};

		case_begin(&c, "reference", seed);
		r.tokens = case_int(&c, 1, 8);
		r.dk = case_int(&c, 1, 4);
		r.dv = case_int(&c, 1, 4);
		documents_draw(&c, doc_start, r.tokens);
		delta_reference_alloc(&r);
		r.decay = case_normal(&c) / 2;
		r.dt_bias = case_normal(&c);
		r.skip = r.is_scan ? case_normal(&c) : 0;
		for (int64_t i = 0; i < r.tokens * r.dk; i++) {
			r.q[i] = case_normal(&c);
			r.k[i] = case_normal(&c);
		}
		for (int64_t i = 0; i < r.tokens * r.dv; i++) {
			r.v[i] = case_normal(&c);
			r.dout[i] = case_normal(&c);
		}
		for (int64_t t = 0; t < r.tokens; t++) {
			r.a[t] = case_normal(&c);
			r.b[t] = case_normal(&c);
		}
		delta_reference_forward(&r);
		delta_reference_backward(&r);
		for (int64_t i = 0; i < r.tokens * r.dk; i++) {
			case_derivative(reference_value, &r, &r.q[i], r.dq[i], 1);
			case_derivative(reference_value, &r, &r.k[i], r.dk_[i], 1);
		}
		for (int64_t i = 0; i < r.tokens * r.dv; i++)
			case_derivative(reference_value, &r, &r.v[i], r.dv_[i], 1);
		for (int64_t t = 0; t < r.tokens; t++) {
			double step = delta_softplus(&r, t);

			/* not where a small change crosses a limit */
			if (fabs(step - r.low) > 0.01 && fabs(step - r.high) > 0.01)
				case_derivative(reference_value, &r, &r.a[t], r.da[t], 1);
			case_derivative(reference_value, &r, &r.b[t], r.db[t], 1);
		}
		case_derivative(reference_value, &r, &r.decay, r.ddecay, 1);
		if (!r.is_scan)
			case_derivative(reference_value, &r, &r.dt_bias, r.ddt_bias, 1);
		else
			case_derivative(reference_value, &r, &r.skip, r.dskip, 1);
		delta_reference_free(&r);
	}
}

/* Arguments of all three ops. */
struct delta_case {
	int64_t tokens, documents, key_heads, value_heads, dk, dv, qkv_stride, gate_stride, out_stride;
	double scale, low, high;
	enum delta_rule rule;
	enum dtype dtype;
	int32_t doc_start[TOKENS_MAX];
	struct tensor *q, *k, *v, *a, *b, *decay, *dt_bias, *skip, *starts; /* b or skip is NULL */
};

/* Sizes as models have them, for a GPU's chunks: rows begin at multiples of 16 bytes, or do not. A long case
 * has small heads. */
static void delta_draw_tiled(struct ops_case *c, struct delta_case *d)
{
	static const int64_t dims[] = {64, 128, 64, 72, 136, 256}, small[] = {8, 16, 24};
	int is_long = d->tokens > TOKENS_USUAL, is_aligned = case_int(c, 0, 3) > 0;

	c->phase = 0;
	d->key_heads = is_long ? 1 : case_int(c, 1, 2);
	d->value_heads = d->key_heads * (is_long ? 1 : case_int(c, 1, 2));
	d->dk = is_long ? small[case_int(c, 0, 2)] : dims[case_int(c, 0, 5)];
	d->dv = is_long ? small[case_int(c, 0, 2)] : dims[case_int(c, 0, d->dk > 128 ? 2 : 4)];
	d->qkv_stride = 2 * d->key_heads * d->dk + d->value_heads * d->dv + (is_aligned ? 8 : 3);
	d->gate_stride = d->value_heads;
	d->out_stride = d->value_heads * d->dv + (is_aligned ? 0 : 1);
	d->dtype = DTYPE_BF16;
}

/* q, k and v lie in one row, as a projection leaves them, or each on its own. */
static void delta_draw(struct ops_case *c, struct delta_case *d, int64_t tokens)
{
	static const int64_t dims[] = {1, 3, 8, 16, 24, 33, 40, 128};
	int is_tiled = tokens >= TOKENS_USUAL && case_int(c, 0, 1);

	if (is_tiled && !case_int(c, 0, 3))
		tokens = TOKENS_MAX;
	d->tokens = case_int(c, 0, 3) ? case_size(c, tokens) : tokens;
	d->documents = documents_draw(c, d->doc_start, d->tokens);
	d->key_heads = case_int(c, 1, 3);
	d->value_heads = d->key_heads * case_int(c, 1, 3);
	d->dk = dims[case_int(c, 0, 7)];
	d->dv = dims[case_int(c, 0, 7)];
	d->qkv_stride = (d->key_heads * d->dk > d->value_heads * d->dv ? d->key_heads * d->dk
	                                                               : d->value_heads * d->dv) +
	                case_int(c, 0, 3);
	d->gate_stride = d->value_heads + case_int(c, 0, 2);
	d->out_stride = d->value_heads * d->dv + case_int(c, 0, 3);
	d->dtype = case_int(c, 0, 1) ? DTYPE_BF16 : DTYPE_F32;
	if (is_tiled)
		delta_draw_tiled(c, d);
	d->scale = 1 / sqrt((double)d->dk);
	d->q = case_tensor(c, d->tokens * d->qkv_stride, d->dtype, 1);
	d->k = case_tensor(c, d->tokens * d->qkv_stride, d->dtype, 1);
	d->v = case_tensor(c, d->tokens * d->qkv_stride, d->dtype, 1);
	d->a = case_tensor(c, d->tokens * d->gate_stride, d->dtype, 1);
	d->rule = case_int(c, 0, 1) ? DELTA_SCAN : DELTA_GATED;
	d->low = case_int(c, 0, 1) ? 0.3 : 0;
	d->high = case_int(c, 0, 1) ? 1.5 : INFINITY;
	d->b = d->rule == DELTA_GATED ? case_tensor(c, d->tokens * d->gate_stride, d->dtype, 1) : NULL;
	d->skip = d->rule == DELTA_SCAN ? case_tensor(c, d->value_heads, d->dtype, 1) : NULL;
	d->decay = case_tensor(c, d->value_heads, d->dtype, 1);
	d->dt_bias = case_tensor(c, d->value_heads, d->dtype, 1);
	d->starts = case_tensor(c, d->tokens, DTYPE_I32, 1);
	for (int64_t t = 0; t < d->tokens; t++)
		tensor_set(d->starts, t, d->doc_start[t]);
}

/* One head of the tensors, as the reference takes it. */
static void reference_load(
        struct delta_reference *r, const struct delta_case *d, const struct tensor *dout, int64_t head)
{
	int64_t key = head / (d->value_heads / d->key_heads);

	*r = (struct delta_reference){.tokens = d->tokens,
	        .dk = d->dk,
	        .dv = d->dv,
	        .scale = d->scale,
	        .epsilon = 1e-6,
	        .decay = tensor_get(d->decay, head),
	        .dt_bias = tensor_get(d->dt_bias, head),
	        .doc_start = d->doc_start,
	        .is_scan = d->rule == DELTA_SCAN,
	        .low = d->low,
	        .high = d->high,
	        .skip = d->skip ? tensor_get(d->skip, head) : 0,
	        .round = d->dtype == DTYPE_BF16 ? round_bf16 : NULL};
	delta_reference_alloc(r);
	for (int64_t t = 0; t < d->tokens; t++) {
		for (int64_t i = 0; i < d->dk; i++) {
			r->q[t * d->dk + i] = tensor_get(d->q, t * d->qkv_stride + key * d->dk + i);
			r->k[t * d->dk + i] = tensor_get(d->k, t * d->qkv_stride + key * d->dk + i);
		}
		for (int64_t i = 0; i < d->dv; i++) {
			r->v[t * d->dv + i] = tensor_get(d->v, t * d->qkv_stride + head * d->dv + i);
			r->dout[t * d->dv + i] =
			        dout ? tensor_get(dout, t * d->out_stride + head * d->dv + i) : 0;
		}
		r->a[t] = tensor_get(d->a, t * d->gate_stride + head);
		r->b[t] = d->b ? tensor_get(d->b, t * d->gate_stride + head) : 0;
	}
	delta_reference_forward(r);
	if (dout)
		delta_reference_backward(r);
}

/* Rounding of sums over a chunk and of the states between chunks, against the largest number of the head. A
 * sum that rounds beta differently moves a token's update by half a unit of bf16. */
static double bound_of(const double *x, int64_t count, double factor)
{
	double most = 0;

	for (int64_t i = 0; i < count; i++)
		most = fmax(most, fabs(x[i]));
	return factor * EPS_F32 * most;
}

#define DELTA_ARGUMENTS(d)                                                                                   \
	.q = tensor_addr((d).q), .k = tensor_addr((d).k), .v = tensor_addr((d).v), .a = tensor_addr((d).a),  \
	.b = (d).b ? tensor_addr((d).b) : DEV_NONE, .skip = (d).skip ? tensor_addr((d).skip) : DEV_NONE,     \
	.low = (d).low, .high = (d).high, .rule = (d).rule, .decay = tensor_addr((d).decay),                 \
	.dt_bias = tensor_addr((d).dt_bias), .doc_start = tensor_addr((d).starts), .tokens = (d).tokens,     \
	.key_heads = (d).key_heads, .value_heads = (d).value_heads, .key_dim = (d).dk, .value_dim = (d).dv,  \
	.qkv_stride = (d).qkv_stride, .gate_stride = (d).gate_stride, .out_stride = (d).out_stride,          \
	.scale = (d).scale, .epsilon = 1e-6, .dtype = (d).dtype

static void forward_try(uint64_t seed)
{
	struct ops_case c;
	struct delta_case d;
	struct tensor *out;
	struct op op = {.kind = OP_DELTA};

	case_begin(&c, "delta", seed);
	delta_draw(&c, &d, TOKENS_USUAL);
	out = case_tensor(&c, d.tokens * d.out_stride, d.dtype, 1);
	op.delta = (struct op_delta){.out = tensor_addr(out), DELTA_ARGUMENTS(d)};
	case_run(&c, &op);
	for (int64_t head = 0; head < d.value_heads; head++) {
		struct delta_reference r;
		double bound;

		reference_load(&r, &d, NULL, head);
		bound = bound_of(r.o, d.tokens * d.dv, 200);
		for (int64_t t = 0; t < d.tokens; t++)
			for (int64_t i = 0; i < d.dv; i++)
				case_check(&c, out, t * d.out_stride + head * d.dv + i, r.o[t * d.dv + i],
				        bound, "out");
		delta_reference_free(&r);
	}
	case_end(&c);
}

static void test_forward(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(24); seed++)
		forward_try(seed);
}

/* A gate that is not a number makes the rest of its head's document so: a limit must not hide it. */
static void test_not_a_number(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(12); seed++) {
		struct ops_case c;
		struct delta_case d;
		struct tensor *out;
		struct op op = {.kind = OP_DELTA};
		int64_t token, head;

		case_begin(&c, "delta of NaN", seed);
		delta_draw(&c, &d, TOKENS_USUAL);
		token = case_int(&c, 0, d.tokens - 1);
		head = case_int(&c, 0, d.value_heads - 1);
		tensor_set(d.a, token * d.gate_stride + head, NAN);
		out = case_tensor(&c, d.tokens * d.out_stride, d.dtype, 1);
		op.delta = (struct op_delta){.out = tensor_addr(out), DELTA_ARGUMENTS(d)};
		case_run(&c, &op);
		/* a document begins with a state of zeros, whatever its first gate keeps of it */
		for (int64_t t = token; t < d.tokens && d.doc_start[t] == d.doc_start[token]; t++)
			for (int64_t i = 0; i < d.dv && (d.rule == DELTA_SCAN || d.doc_start[t] < token); i++)
				assert_true(isnan(tensor_get(out, t * d.out_stride + head * d.dv + i)));
		case_forget(out);
		case_end(&c);
	}
}

/* Gradients of q and k: a sum over the value heads of each key head. */
struct key_grads {
	double *dq, *dk, q_size, k_size;
};

static void keys_check(struct ops_case *c, const struct delta_case *d, struct tensor *dq, struct tensor *dk,
        int64_t key, const struct key_grads *sum)
{
	double q_bound = 1000 * EPS_F32 * sum->q_size, k_bound = 1000 * EPS_F32 * sum->k_size;

	for (int64_t t = 0; t < d->tokens; t++)
		for (int64_t i = 0; i < d->dk; i++) {
			int64_t at = t * d->qkv_stride + key * d->dk + i;

			case_check(c, dq, at, sum->dq[t * d->dk + i], q_bound, "dq");
			case_check(c, dk, at, sum->dk[t * d->dk + i], k_bound, "dk");
		}
}

static void backward_try(uint64_t seed)
{
	struct ops_case c;
	struct delta_case d;
	struct tensor *dout, *dq, *dk, *dv, *da, *db, *ddecay, *ddt_bias, *dskip, *scratch;
	struct op op = {.kind = OP_DELTA_GRAD};
	int64_t each;

	case_begin(&c, "delta_grad", seed);
	delta_draw(&c, &d, TOKENS_USUAL);
	each = d.value_heads / d.key_heads;
	dout = case_tensor(&c, d.tokens * d.out_stride, d.dtype, 1);
	dq = case_tensor(&c, d.tokens * d.qkv_stride, d.dtype, 1);
	dk = case_tensor(&c, d.tokens * d.qkv_stride, d.dtype, 1);
	dv = case_tensor(&c, d.tokens * d.qkv_stride, d.dtype, 1);
	da = case_tensor(&c, d.tokens * d.gate_stride, d.dtype, 1);
	db = d.b ? case_tensor(&c, d.tokens * d.gate_stride, d.dtype, 1) : NULL;
	dskip = d.skip ? case_tensor(&c, d.value_heads, DTYPE_F32, 1) : NULL;
	ddecay = case_tensor(&c, d.value_heads, DTYPE_F32, 1);
	ddt_bias = case_tensor(&c, d.value_heads, DTYPE_F32, 1);
	scratch = case_tensor(&c, delta_scratch_count(d.tokens, d.value_heads, d.dk, d.dv), DTYPE_F32, 1);
	op.delta_grad = (struct op_delta_grad){.dq = tensor_addr(dq),
	        .dk = tensor_addr(dk),
	        .dv = tensor_addr(dv),
	        .da = tensor_addr(da),
	        .db = db ? tensor_addr(db) : DEV_NONE,
	        .dskip = dskip ? tensor_addr(dskip) : DEV_NONE,
	        .ddecay = tensor_addr(ddecay),
	        .ddt_bias = tensor_addr(ddt_bias),
	        .dout = tensor_addr(dout),
	        .scratch = tensor_addr(scratch),
	        DELTA_ARGUMENTS(d)};
	case_run(&c, &op);
	case_forget(scratch);
	for (int64_t key = 0; key < d.key_heads; key++) {
		struct key_grads sum = {delta_numbers(d.tokens * d.dk), delta_numbers(d.tokens * d.dk), 0, 0};

		for (int64_t head = key * each; head < (key + 1) * each; head++) {
			struct delta_reference r;
			double v_bound, a_bound, b_bound, a_sum = 0, size = 0, fastest = 0;

			reference_load(&r, &d, dout, head);
			for (int64_t i = 0; i < d.tokens * d.dk; i++) {
				sum.dq[i] += r.dq[i];
				sum.dk[i] += r.dk_[i];
			}
			sum.q_size += r.dq_size;
			sum.k_size += r.dk_size;
			v_bound = bound_of(r.dv_, d.tokens * d.dv, 1000);
			a_bound = bound_of(r.da, d.tokens, 1000) + 1000 * EPS_F32;
			b_bound = bound_of(r.db, d.tokens, 1000) + 1000 * EPS_F32;
			for (int64_t t = 0; t < d.tokens; t++) {
				for (int64_t i = 0; i < d.dv; i++)
					case_check(&c, dv, t * d.qkv_stride + head * d.dv + i,
					        r.dv_[t * d.dv + i], v_bound, "dv");
				case_check(&c, da, t * d.gate_stride + head, r.da[t], a_bound, "da");
				if (db)
					case_check(&c, db, t * d.gate_stride + head, r.db[t], b_bound, "db");
				a_sum += fabs(delta_speed(&r, t) * r.da[t]) + fabs(r.da[t]);
				fastest = fmax(fastest, fabs(delta_speed(&r, t)));
				for (int64_t i = 0; i < d.dv; i++)
					size += fabs(r.o[t * d.dv + i] * r.dout[t * d.dv + i]);
			}
			/* the gradient of g is a sum over all later tokens that may cancel */
			case_check(&c, ddecay, head, tensor_was(ddecay, head) + r.ddecay,
			        1000 * EPS_F32 * (a_sum + size * fastest + 1), "ddecay");
			case_check(&c, ddt_bias, head, tensor_was(ddt_bias, head) + r.ddt_bias,
			        1000 * EPS_F32 * (a_sum + size + 1), "ddt_bias");
			if (dskip)
				case_check(&c, dskip, head, tensor_was(dskip, head) + r.dskip,
				        1000 * EPS_F32 * (size + fabs(r.dskip) + (double)d.tokens), "dskip");
			delta_reference_free(&r);
		}
		keys_check(&c, &d, dq, dk, key, &sum);
		mem_free(sum.dq);
		mem_free(sum.dk);
	}
	case_end(&c);
}

static void test_backward(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(24); seed++)
		backward_try(seed);
}

/* ---- a document alone ---- */

/* Forward or backward over tokens [first, end) of a case, whose documents begin where `starts` says. */
struct piece {
	struct tensor *out, *dq, *dk, *dv, *da, *db, *dout, *scratch, *sums;
};

static struct op piece_op(
        const struct delta_case *d, const struct piece *p, int is_grad, int64_t first, int64_t end)
{
	struct delta_case own = *d;
	struct op op = {.kind = is_grad ? OP_DELTA_GRAD : OP_DELTA};
	int64_t rows = first * d->qkv_stride, gates = first * d->gate_stride, outs = first * d->out_stride;

	own.tokens = end - first;
	if (!is_grad) {
		op.delta = (struct op_delta){.out = tensor_addr(p->out), DELTA_ARGUMENTS(own)};
		op.delta.out.value += (uint64_t)(2 * outs);
		op.delta.q.value += (uint64_t)(2 * rows);
		op.delta.k.value += (uint64_t)(2 * rows);
		op.delta.v.value += (uint64_t)(2 * rows);
		op.delta.a.value += (uint64_t)(2 * gates);
		op.delta.b.value += (uint64_t)(2 * gates);
		return op;
	}
	op.delta_grad = (struct op_delta_grad){.dq = dev_at(tensor_addr(p->dq), 2 * rows),
	        .dk = dev_at(tensor_addr(p->dk), 2 * rows),
	        .dv = dev_at(tensor_addr(p->dv), 2 * rows),
	        .da = dev_at(tensor_addr(p->da), 2 * gates),
	        .db = dev_at(tensor_addr(p->db), 2 * gates),
	        .dout = dev_at(tensor_addr(p->dout), 2 * outs),
	        .ddecay = tensor_addr(p->sums),
	        .ddt_bias = dev_at(tensor_addr(p->sums), 4 * d->value_heads),
	        .scratch = tensor_addr(p->scratch),
	        DELTA_ARGUMENTS(own)};
	op.delta_grad.q.value += (uint64_t)(2 * rows);
	op.delta_grad.k.value += (uint64_t)(2 * rows);
	op.delta_grad.v.value += (uint64_t)(2 * rows);
	op.delta_grad.a.value += (uint64_t)(2 * gates);
	op.delta_grad.b.value += (uint64_t)(2 * gates);
	return op;
}

enum { RESULTS = 6 };

/* Bytes of results, to `copy`, whose arrays are made, or back from there. */
static void results_copy(struct tensor *const result[RESULTS], uint8_t *copy[RESULTS], int back)
{
	for (int i = 0; i < RESULTS; i++) {
		size_t bytes = (size_t)result[i]->bytes;

		if (!back)
			copy[i] = mem_alloc(bytes, 1);
		memcpy(back ? result[i]->block : copy[i], back ? copy[i] : result[i]->block, bytes);
	}
}

/* Three documents in one row, and each of them alone, give the same bits: chunks begin where documents do. */
static void alone_try(uint64_t seed, int is_grad)
{
	enum { ENDS = 3 };
	struct ops_case c;
	struct delta_case d = {.rule = DELTA_GATED, .high = INFINITY};
	struct tensor *together[RESULTS];
	uint8_t *was[RESULTS], *at_once[RESULTS];
	struct piece p;
	struct op op;
	int64_t ends[ENDS + 1] = {0}, value_cols;

	case_begin(&c, "delta of a document alone", seed);
	for (int n = 0; n < ENDS; n++)
		ends[n + 1] = ends[n] + 8 * case_int(&c, 1, 25);
	d.tokens = ends[ENDS];
	delta_draw_tiled(&c, &d);
	d.dk = d.dv = seed % 2 ? 64 : 128;
	d.qkv_stride = 2 * d.key_heads * d.dk + d.value_heads * d.dv;
	d.out_stride = value_cols = d.value_heads * d.dv;
	d.gate_stride = 8;
	d.scale = 0.1;
	d.q = case_tensor(&c, d.tokens * d.qkv_stride, d.dtype, 1);
	d.k = case_tensor(&c, d.tokens * d.qkv_stride, d.dtype, 1);
	d.v = case_tensor(&c, d.tokens * d.qkv_stride, d.dtype, 1);
	d.a = case_tensor(&c, d.tokens * d.gate_stride, d.dtype, 1);
	d.b = case_tensor(&c, d.tokens * d.gate_stride, d.dtype, 1);
	d.decay = case_tensor(&c, d.value_heads, d.dtype, 1);
	d.dt_bias = case_tensor(&c, d.value_heads, d.dtype, 1);
	d.starts = case_tensor(&c, d.tokens, DTYPE_I32, 1);
	p.out = together[0] = case_tensor(&c, d.tokens * value_cols, d.dtype, 1);
	p.dq = together[1] = case_tensor(&c, d.tokens * d.qkv_stride, d.dtype, 1);
	p.dk = together[2] = case_tensor(&c, d.tokens * d.qkv_stride, d.dtype, 1);
	p.dv = together[3] = case_tensor(&c, d.tokens * d.qkv_stride, d.dtype, 1);
	p.da = together[4] = case_tensor(&c, d.tokens * d.gate_stride, d.dtype, 1);
	p.db = together[5] = case_tensor(&c, d.tokens * d.gate_stride, d.dtype, 1);
	p.dout = case_tensor(&c, d.tokens * value_cols, d.dtype, 1);
	p.sums = case_tensor(&c, 2 * d.value_heads, DTYPE_F32, 1);
	p.scratch = case_tensor(&c, delta_scratch_count(d.tokens, d.value_heads, d.dk, d.dv), DTYPE_F32, 1);
	for (int n = 0; n < ENDS; n++)
		for (int64_t t = ends[n]; t < ends[n + 1]; t++)
			tensor_set(d.starts, t, (double)ends[n]);
	results_copy(together, was, 0);
	op = piece_op(&d, &p, is_grad, 0, d.tokens);
	case_run(&c, &op);
	results_copy(together, at_once, 0);
	results_copy(together, was, 1);
	for (int64_t t = 0; t < d.tokens; t++)
		tensor_set(d.starts, t, 0);
	for (int n = 0; n < ENDS; n++) {
		op = piece_op(&d, &p, is_grad, ends[n], ends[n + 1]);
		case_run(&c, &op);
	}
	for (int i = 0; i < RESULTS; i++) {
		if (memcmp(at_once[i], together[i]->block, (size_t)together[i]->bytes))
			fail_msg("%s, seed %llu: result %d has other bits", c.name, (unsigned long long)seed,
			        i);
		mem_free(was[i]);
		mem_free(at_once[i]);
	}
	for (int i = 0; i < c.tensor_count; i++)
		case_forget(&c.tensors[i]);
	case_end(&c);
}

static void test_alone(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(4); seed++) {
		alone_try(seed, 0);
		alone_try(seed, 1);
	}
}

/* The documents of a case as texts: the first call has the first half of each, the second the rest, so that a
 * state is handed on. */
static void cached_try(uint64_t seed)
{
	struct ops_case c;
	struct delta_case d;
	struct tensor *out, *ends, *memory;
	struct op op = {.kind = OP_DELTA_CACHED};
	int64_t texts, text_rows = 300;
	int32_t doc_start[TOKENS_MAX];

	case_begin(&c, "delta_cached", seed);
	delta_draw(&c, &d, 70);
	texts = d.documents;
	out = case_tensor(&c, d.tokens * d.out_stride, d.dtype, 1);
	ends = case_tensor(&c, d.tokens, DTYPE_I32, 1);
	memory = case_tensor(&c, texts * d.value_heads * d.dk * d.dv, DTYPE_F32, 1);
	memcpy(doc_start, d.doc_start, sizeof(doc_start));
	for (int64_t t = 0, text = -1; t < d.tokens; t++) {
		text += doc_start[t] == t;
		tensor_set(d.starts, t, (double)(text * text_rows));
		tensor_set(ends, t, (double)(text * text_rows + t - doc_start[t] + 1));
	}
	op.delta_cached = (struct op_delta_cached){.out = tensor_addr(out),
	        .state = tensor_addr(memory),
	        .doc_end = tensor_addr(ends),
	        .texts = texts,
	        .text_rows = text_rows,
	        DELTA_ARGUMENTS(d)};
	case_run(&c, &op);
	for (int64_t head = 0; head < d.value_heads; head++) {
		struct delta_reference r;
		double bound;

		reference_load(&r, &d, NULL, head);
		bound = bound_of(r.o, d.tokens * d.dv, 200);
		for (int64_t t = 0; t < d.tokens; t++)
			for (int64_t i = 0; i < d.dv; i++)
				case_check(&c, out, t * d.out_stride + head * d.dv + i, r.o[t * d.dv + i],
				        bound, "out");
		for (int64_t t = 0, text = -1; t < d.tokens; t++) {
			const double *last = r.states + (2 * t + 1) * d.dk * d.dv;

			text += doc_start[t] == t;
			if (t + 1 < d.tokens && doc_start[t + 1] != t + 1)
				continue;
			bound = bound_of(last, d.dk * d.dv, 200) + 1e-9;
			for (int64_t i = 0; i < d.dk * d.dv; i++)
				case_check(&c, memory, (text * d.value_heads + head) * d.dk * d.dv + i,
				        last[i], bound, "state");
		}
		delta_reference_free(&r);
	}
	case_end(&c);
}

static void test_cached(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(24); seed++)
		cached_try(seed);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {cmocka_unit_test(test_reference),
	        cmocka_unit_test(test_forward), cmocka_unit_test(test_not_a_number),
	        cmocka_unit_test(test_backward), cmocka_unit_test(test_alone), cmocka_unit_test(test_cached)};

	return cmocka_run_group_tests(tests, ops_setup, ops_teardown);
}
