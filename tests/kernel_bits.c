/* Prints a hash of the bits that each inner loop of the host device computes from fixed numbers.
 *
 * It uses the widest kernels of the machine, and fails if the scalar kernels give other bits. The program
 * for another architecture must print the same hash (tests/arm64_bits.sh). Needs only host/cpu/kernels*.c
 * and base.
 */
#include "base/num.h"
#include "host/cpu/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 700, CASES = 60 };

static uint64_t random_state = 1;

static uint32_t random_bits(void)
{
	random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(random_state >> 32);
}

/* Mostly of ordinary size, some far from it. */
static float any_float(void)
{
	uint32_t bits = random_bits();

	if (random_bits() % 32 == 0)
		return f32_from_bits(bits);
	return f32_from_bits((bits & 0x807fffff) | (118 + random_bits() % 14) << 23);
}

static void fill(float *x, int n)
{
	for (int i = 0; i < n; i++)
		x[i] = any_float();
}

struct sums {
	uint64_t sum;
};

static void add_bits(struct sums *s, uint64_t bits)
{
	s->sum = (s->sum ^ bits) * UINT64_C(0x100000001b3);
}

/* NaNs count as one: their sign and payload are the machine's. */
static void add_floats(struct sums *s, const float *x, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		add_bits(s, x[i] != x[i] ? 0x7fc00000 : f32_bits(x[i]));
}

static void add_double(struct sums *s, double x)
{
	uint64_t bits;

	memcpy(&bits, &x, sizeof(bits));
	add_bits(s, x != x ? UINT64_C(0x7ff8000000000000) : bits);
}

static void add_halves(struct sums *s, const uint16_t *x, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		add_bits(s, (x[i] & 0x7fff) > 0x7f80 ? 0x7fc0 : x[i]);
}

/* Inputs of kernels, and room for their outputs. */
struct numbers {
	float a[MOST], b[MOST], c[MOST], d[MOST], out[MOST], more[MOST];
	uint16_t half[MOST];
	int16_t low[MOST];
	double wide[MOST];
	float scalar[4];
	int64_t n;
};

enum { MOVES, SUMS, ACTS, NORMS, ROTATE, SOFTMAX, GROUP_COUNT };

static const char *const group_names[GROUP_COUNT] = {"moves", "sums", "acts", "norms", "rotate", "softmax"};

static void run_moves(struct sums *s, struct numbers *x, const struct cpu_kernels *k)
{
	int32_t place[MOST];

	k->widen(x->out, x->half, x->n);
	add_floats(s, x->out, x->n);
	k->narrow(x->half, x->a, x->n);
	add_halves(s, x->half, x->n);
	k->join(x->out, x->half, x->low, x->n);
	add_floats(s, x->out, x->n);
	k->add(x->out, x->a, x->b, x->n);
	add_floats(s, x->out, x->n);
	k->scale(x->out, x->a, x->scalar[0], x->n);
	add_floats(s, x->out, x->n);
	memset(place, 0, sizeof(place));
	k->keep_largest(x->out, place, x->b, 1, x->n);
	add_floats(s, x->out, x->n);
	for (int64_t i = 0; i < x->n; i++)
		add_bits(s, (uint64_t)place[i]);
}

static void run_sums(struct sums *s, struct numbers *x, const struct cpu_kernels *k)
{
	add_double(s, k->sum(x->a, x->n));
	add_double(s, k->sumsq_about(x->a, x->n, x->scalar[0]));
	add_double(s, k->dot(x->a, x->b, x->n));
	add_floats(s, (float[]){k->dot_bf16(x->half, (const uint16_t *)x->low, x->n)}, 1);
	add_double(s, k->narrow_sumsq(x->half, x->a, x->n));
	add_halves(s, x->half, x->n);
	k->accumulate(x->wide, x->a, x->n);
	for (int64_t i = 0; i < x->n; i++)
		add_double(s, x->wide[i]);
	add_floats(s, (float[]){k->max(x->a, x->n)}, 1);
}

static void run_acts(struct sums *s, struct numbers *x, const struct cpu_kernels *k)
{
	for (int act = 0; act < ACT_KIND_COUNT; act++) {
		k->act(x->out, x->a, x->n, (enum act_kind)act);
		add_floats(s, x->out, x->n);
		k->act_grad(x->out, x->b, x->a, x->n, (enum act_kind)act);
		add_floats(s, x->out, x->n);
		k->glu(x->out, x->a, x->b, x->n, (enum act_kind)act);
		add_floats(s, x->out, x->n);
		k->glu_grad(x->out, x->more, x->c, x->a, x->b, x->n, (enum act_kind)act);
		add_floats(s, x->out, x->n);
		add_floats(s, x->more, x->n);
	}
}

static void run_norms(struct sums *s, struct numbers *x, const struct cpu_kernels *k)
{
	const float *v = x->scalar;
	double sums[2];

	k->norm(x->out, x->a, x->b, random_state & 1 ? x->c : NULL, x->n, v[0], v[1]);
	add_floats(s, x->out, x->n);
	k->norm_sums(sums, x->a, x->b, x->c, x->n, v[0], v[1]);
	add_double(s, sums[0]);
	add_double(s, sums[1]);
	k->norm_dx(x->out, x->a, x->b, x->c, x->n, v[0], v[1], v[2], v[3]);
	add_floats(s, x->out, x->n);
	k->norm_dw(x->out, x->more, x->a, x->b, x->n, v[0], v[1]);
	add_floats(s, x->out, x->n);
	add_floats(s, x->more, x->n);
}

static void run_rotate(struct sums *s, struct numbers *x, const struct cpu_kernels *k)
{
	k->rotate(x->a, x->b, x->c, x->d, x->n);
	add_floats(s, x->a, x->n);
	add_floats(s, x->b, x->n);
}

static void run_softmax(struct sums *s, struct numbers *x, const struct cpu_kernels *k)
{
	add_double(s, k->softmax_part(x->out, x->a, x->scalar[0], x->n));
	add_floats(s, x->out, x->n);
	add_double(s, k->exp_sum(x->a, x->scalar[0], x->n));
	k->exp_scaled(x->out, x->a, x->scalar[0], x->scalar[1], x->n);
	add_floats(s, x->out, x->n);
	k->soft_cap(x->out, x->a, 3, x->n);
	add_floats(s, x->out, x->n);
	k->soft_cap_grad(x->b, x->out, 3, x->n);
	add_floats(s, x->b, x->n);
	k->softmax_grad(x->out, x->a, x->c, x->scalar[2], x->scalar[3], x->n);
	add_floats(s, x->out, x->n);
}

static void (*const groups[GROUP_COUNT])(struct sums *, struct numbers *, const struct cpu_kernels *) = {
        run_moves, run_sums, run_acts, run_norms, run_rotate, run_softmax};

static void draw(struct numbers *x)
{
	fill(x->a, MOST);
	fill(x->b, MOST);
	fill(x->c, MOST);
	fill(x->d, MOST);
	fill(x->out, MOST);
	fill(x->more, MOST);
	fill(x->scalar, 4);
	for (int i = 0; i < MOST; i++) {
		x->half[i] = (uint16_t)(f32_bits(any_float()) >> 16);
		x->low[i] = (int16_t)random_bits();
		x->wide[i] = (double)any_float();
	}
	x->n = 1 + random_bits() % MOST;
}

int main(void)
{
	static struct numbers drawn, used;
	struct sums plain[GROUP_COUNT] = {{0}}, wide[GROUP_COUNT] = {{0}};

	for (int i = 0; i < CASES; i++) {
		draw(&drawn);
		for (int g = 0; g < GROUP_COUNT; g++) {
			used = drawn;
			groups[g](&plain[g], &used, cpu_kernels_find("scalar"));
			used = drawn;
			groups[g](&wide[g], &used, cpu_kernels());
			if (plain[g].sum != wide[g].sum) {
				fprintf(stderr, "case %d, %s: %s differs from scalar\n", i, group_names[g],
				        cpu_kernels()->name);
				return 1;
			}
		}
	}
	for (int g = 0; g < GROUP_COUNT; g++)
		printf("%s %016llx%c", group_names[g], (unsigned long long)plain[g].sum,
		        g + 1 < GROUP_COUNT ? ' ' : '\n');
	return 0;
}
