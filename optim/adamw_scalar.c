/* The definition of adamw_state.h, element by element: the kernel of any machine, and what the others leave
 * to it. */
#define KERNEL(name) name##_scalar
#include "optim/sumsq_kernel.inc"

/* How to update so many elements from `at` on. */
struct pass {
	const struct adamw_span *span;
	const struct adamw_step *step;
	struct adamw_keys keys;
	float decay_factor;
	int64_t at;
	int count;
};

static struct adamw_element updated(const struct pass *p, int64_t i, float m, float v, enum dtype dtype)
{
	const struct adamw_span *s = p->span;
	struct adamw_element e = {m, v, f32_from_bits(plane_join(s->hi[i], s->lo[i]))};
	uint32_t bits;

	e = adamw_next(e, grad_at(s->grad, dtype, i), p->decay_factor, p->step);
	bits = f32_bits(e.w);
	s->hi[i] = (uint16_t)((bits + 0x8000) >> 16);
	s->lo[i] = (int16_t)(uint16_t)bits;
	return e;
}

static void pass_f32(const struct pass *p, enum dtype dtype)
{
	float *m = (float *)p->span->m, *v = (float *)p->span->v;

	for (int64_t i = p->at; i < p->at + p->count; i++) {
		struct adamw_element e = updated(p, i, m[i], v[i], dtype);

		m[i] = adamw_kept(e.m);
		v[i] = adamw_kept(e.v);
	}
}

static void pass_bf16(const struct pass *p, enum dtype dtype)
{
	uint16_t *m = p->span->m, *v = p->span->v;

	for (int64_t i = p->at; i < p->at + p->count; i++) {
		uint32_t random = adamw_random(p->keys, p->span->first + i);
		struct adamw_element e = updated(p, i, bf16_to_f32(m[i]), bf16_to_f32(v[i]), dtype);

		m[i] = adamw_round(e.m, random & 0xffff);
		v[i] = adamw_round(e.v, random >> 16);
	}
}

/* One block: its new state waits for the scale. */
static void pass_8bit(const struct pass *p, enum dtype dtype)
{
	uint8_t *m = (uint8_t *)p->span->m + p->at, *v = (uint8_t *)p->span->v + p->at;
	float *m_scale = p->span->m_scale + p->at / ADAMW_BLOCK_8BIT,
	      *v_scale = p->span->v_scale + p->at / ADAMW_BLOCK_8BIT;
	float new_m[ADAMW_BLOCK_8BIT], root[ADAMW_BLOCK_8BIT], m_inverse, v_inverse;
	uint32_t m_size = 0, v_size = 0;

	for (int i = 0; i < p->count; i++) {
		struct adamw_element e = updated(
		        p, p->at + i, adamw_decode_m(m[i], *m_scale), adamw_decode_r(v[i], *v_scale), dtype);

		new_m[i] = e.m;
		root[i] = adamw_plain_nan(sqrtf(e.v));
		m_size = adamw_size(new_m[i]) > m_size ? adamw_size(new_m[i]) : m_size;
		v_size = adamw_size(root[i]) > v_size ? adamw_size(root[i]) : v_size;
	}
	*m_scale = adamw_scale(m_size, ADAMW_TOP_M);
	*v_scale = adamw_scale(v_size, ADAMW_TOP_R);
	m_inverse = adamw_inverse(*m_scale);
	v_inverse = adamw_inverse(*v_scale);
	for (int i = 0; i < p->count; i++) {
		m[i] = adamw_encode_m(new_m[i], m_inverse, adamw_offset_m(p->step, i));
		v[i] = adamw_encode_r(root[i], v_inverse, adamw_offset_r(p->step, i));
	}
}

static void update_span(const struct adamw_span *span, const struct adamw_step *step, enum dtype dtype)
{
	struct pass p = {.span = span,
	        .step = step,
	        .keys = adamw_keys_of(step->rounding_key, span->tensor),
	        .decay_factor = span->decay ? step->decay_factor : 1.0f};
	int block = adamw_state_block(span->state);

	for (; p.at < span->count; p.at += p.count) {
		int64_t rest = span->count - p.at;

		p.count = rest < block ? (int)rest : block;
		switch (span->state) { /* no default: the compiler names a format that has no pass */
		case ADAMW_STATE_F32:
			pass_f32(&p, dtype);
			break;
		case ADAMW_STATE_BF16:
			pass_bf16(&p, dtype);
			break;
		case ADAMW_STATE_8BIT:
			pass_8bit(&p, dtype);
			break;
		case ADAMW_STATE_COUNT:
			break;
		}
	}
}

void adamw_update_scalar(const struct adamw_span *span, const struct adamw_step *step)
{
	update_span(span, step, span->grad_dtype);
}
