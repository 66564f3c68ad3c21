/* The vectors of optim/adamw_kernel.inc: 4 elements, 8 in a pair, in the order of memory. */
#include <arm_neon.h>

#define KERNEL(name) name##_neon
#define INLINE static inline __attribute__((always_inline))

enum { LANES = 4, PREFETCH_LOCALITY = 2 };

typedef float32x4_t vf;
typedef uint32x4_t vi;
typedef uint16x8_t vh;

struct vf2 {
	vf a, b;
};

INLINE vf vf_all(float x)
{
	return vdupq_n_f32(x);
}

INLINE vf vf_sub(vf x, vf y)
{
	return vsubq_f32(x, y);
}

INLINE vf vf_mul(vf x, vf y)
{
	return vmulq_f32(x, y);
}

INLINE vf vf_div(vf x, vf y)
{
	return vdivq_f32(x, y);
}

INLINE vf vf_sqrt(vf x)
{
	return vsqrtq_f32(x);
}

/* x * y + z, x * y - z */
INLINE vf vf_fma(vf x, vf y, vf z)
{
	return vfmaq_f32(z, x, y);
}

INLINE vf vf_fms(vf x, vf y, vf z)
{
	return vfmaq_f32(vnegq_f32(z), x, y);
}

INLINE vf vf_and(vf x, vi mask)
{
	return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(x), mask));
}

/* x where it, or its size, is not below `least`, else +0; NaN stays. */
INLINE vf vf_from(vf x, vf least)
{
	return vf_and(x, vmvnq_u32(vcltq_f32(x, least)));
}

INLINE vf vf_size_from(vf x, vf least)
{
	return vf_and(x, vmvnq_u32(vcaltq_f32(x, least)));
}

INLINE vf vf_size(vf x)
{
	return vabsq_f32(x);
}

INLINE vi vf_bits(vf x)
{
	return vreinterpretq_u32_f32(x);
}

/* x, or +0 where it is subnormal or -0. */
INLINE vf vf_normal(vf x)
{
	return vf_and(x, vtstq_u32(vf_bits(x), vdupq_n_u32(0x7f800000)));
}

INLINE vf vf_load(const float *x)
{
	return vld1q_f32(x);
}

INLINE void vf_store(float *x, vf v)
{
	vst1q_f32(x, v);
}

INLINE struct vf2 vf2_load(const float *x)
{
	return (struct vf2){vld1q_f32(x), vld1q_f32(x + 4)};
}

INLINE vi vi_all(uint32_t x)
{
	return vdupq_n_u32(x);
}

INLINE vi vi_load(const uint32_t *x)
{
	return vld1q_u32(x);
}

INLINE vi vi_xor(vi x, vi y)
{
	return veorq_u32(x, y);
}

INLINE void vi2_reorder(uint32_t *x)
{
	(void)x;
}

INLINE vh vh_all(int x)
{
	return vdupq_n_u16((uint16_t)x);
}

INLINE vh vh_load(const void *x)
{
	return vld1q_u16(x);
}

INLINE void vh_store(void *x, vh v)
{
	vst1q_u16(x, v);
}

INLINE vh vh_and(vh x, vh y)
{
	return vandq_u16(x, y);
}

INLINE vh vh_normal(vh x)
{
	return vandq_u16(x, vtstq_u16(x, vdupq_n_u16(0x7f80)));
}

/* As signed numbers. */
INLINE vh vh_above(vh x, vh y)
{
	return vcgtq_s16(vreinterpretq_s16_u16(x), vreinterpretq_s16_u16(y));
}

INLINE vh vh_max(vh x, vh y)
{
	return vreinterpretq_u16_s16(vmaxq_s16(vreinterpretq_s16_u16(x), vreinterpretq_s16_u16(y)));
}

INLINE int vh_any(vh x)
{
	return vmaxvq_u16(x) != 0;
}

INLINE vf vf_zip(vh x, vh y, int half)
{
	return vreinterpretq_f32_u16(half ? vzip2q_u16(x, y) : vzip1q_u16(x, y));
}

INLINE struct vf2 vh_widen(vh x)
{
	return (struct vf2){vf_zip(vdupq_n_u16(0), x, 0), vf_zip(vdupq_n_u16(0), x, 1)};
}

INLINE vh vh_sign(vh x)
{
	return vreinterpretq_u16_s16(vshrq_n_s16(vreinterpretq_s16_u16(x), 15));
}

/* hi + (lo < 0 ? -1 : 0) is the upper half of the sum. */
INLINE struct vf2 vh_join(vh hi, vh lo)
{
	vh upper = vaddq_u16(hi, vh_sign(lo));

	return (struct vf2){vf_zip(lo, upper, 0), vf_zip(lo, upper, 1)};
}

/* Also the upper halves of w as they are, before lo is taken off. */
INLINE void vh_split(vh *hi, vh *lo, vh *upper, struct vf2 w)
{
	vh a = vreinterpretq_u16_f32(w.a), b = vreinterpretq_u16_f32(w.b);

	*lo = vuzp1q_u16(a, b);
	*upper = vuzp2q_u16(a, b);
	*hi = vsubq_u16(*upper, vh_sign(*lo));
}

/* Upper halves of x + random. */
INLINE vh vh_round(struct vf2 x, vi random_a, vi random_b)
{
	vi a = vaddq_u32(vreinterpretq_u32_f32(x.a), random_a),
	   b = vaddq_u32(vreinterpretq_u32_f32(x.b), random_b);

	return vuzp2q_u16(vreinterpretq_u16_u32(a), vreinterpretq_u16_u32(b));
}

/* Pairs are in the order of memory. */
INLINE struct vf2 vh_widen_in_order(vh x)
{
	return vh_widen(x);
}

INLINE struct vf2 vh_join_in_order(vh hi, vh lo)
{
	return vh_join(hi, lo);
}

INLINE void vh_split_in_order(vh *hi, vh *lo, vh *upper, struct vf2 w)
{
	vh_split(hi, lo, upper, w);
}

INLINE vi vi_max(vi x, vi y)
{
	return vreinterpretq_u32_s32(vmaxq_s32(vreinterpretq_s32_u32(x), vreinterpretq_s32_u32(y)));
}

INLINE uint32_t vi_largest(vi x)
{
	return (uint32_t)vmaxvq_s32(vreinterpretq_s32_u32(x));
}

/* ---- for codes of 8 bits ---- */

/* A number of no sign takes that of the other. */
INLINE vf vf_with_sign(vf number, vf other)
{
	return vbslq_f32(vdupq_n_u32(0x80000000), other, number);
}

INLINE vh vh_add(vh x, vh y)
{
	return vaddq_u16(x, y);
}

INLINE vh vh_left(vh x, int count)
{
	return vshlq_u16(x, vdupq_n_s16((int16_t)count));
}

/* Of signed numbers. */
INLINE vh vh_right(vh x, int count)
{
	return vreinterpretq_u16_s16(vshlq_s16(vreinterpretq_s16_u16(x), vdupq_n_s16((int16_t)-count)));
}

INLINE vh vh_size(vh x)
{
	return vreinterpretq_u16_s16(vabsq_s16(vreinterpretq_s16_u16(x)));
}

/* The number with x's sign. */
INLINE vh vh_with_sign(vh number, vh x)
{
	return vsubq_u16(veorq_u16(number, vh_sign(x)), vh_sign(x));
}

INLINE vh vh_upper(struct vf2 x)
{
	return vuzp2q_u16(vreinterpretq_u16_f32(x.a), vreinterpretq_u16_f32(x.b));
}

INLINE vh vh_of_bytes(const uint8_t *x)
{
	return vmovl_u8(vld1_u8(x));
}

INLINE vh vh_of_signed_bytes(const uint8_t *x)
{
	return vreinterpretq_u16_s16(vmovl_s8(vreinterpret_s8_u8(vld1_u8(x))));
}

/* The nearest numbers that bytes hold. */
INLINE void vh2_store_bytes(uint8_t *x, vh a, vh b)
{
	vst1q_u8(
	        x, vcombine_u8(vqmovun_s16(vreinterpretq_s16_u16(a)), vqmovun_s16(vreinterpretq_s16_u16(b))));
}

INLINE void vh2_store_signed_bytes(uint8_t *x, vh a, vh b)
{
	int8x16_t both =
	        vcombine_s8(vqmovn_s16(vreinterpretq_s16_u16(a)), vqmovn_s16(vreinterpretq_s16_u16(b)));

	vst1q_u8(x, vreinterpretq_u8_s8(both));
}

#include "optim/sumsq_kernel.inc"

#include "optim/adamw_kernel.inc"
