/* Moments of AdamW from one format to another, by way of fp32. */
#include "optim/adamw_convert.h"

#include "base/num.h"

void adamw_state_widen(float *x, const void *stored, const float *scale, int64_t count,
        enum adamw_state state, enum adamw_moment moment)
{
	const uint8_t *codes = stored;

	switch (state) {
	case ADAMW_STATE_F32:
		memcpy(x, stored, (size_t)count * sizeof(*x));
		break;
	case ADAMW_STATE_BF16:
		for (int64_t i = 0; i < count; i++)
			x[i] = bf16_to_f32(((const uint16_t *)stored)[i]);
		break;
	case ADAMW_STATE_8BIT:
		for (int64_t i = 0; i < count; i++)
			x[i] = moment == ADAMW_MOMENT_M
			               ? adamw_decode_m(codes[i], scale[i / ADAMW_BLOCK_8BIT])
			               : adamw_decode_r(codes[i], scale[i / ADAMW_BLOCK_8BIT]);
		break;
	case ADAMW_STATE_COUNT:
		break;
	}
}

static uint16_t nearest(float x)
{
	uint16_t half = bf16_from_f32(adamw_flush(x));

	/* beyond the largest bf16 */
	return (half & 0x7fff) == 0x7f80 && x - x == 0 ? (uint16_t)((half & 0x8000) | 0x7f7f) : half;
}

/* What 8 bits store of m, and of v: its root. */
static float coded(float x, enum adamw_moment moment)
{
	return moment == ADAMW_MOMENT_M ? x : adamw_plain_nan(sqrtf(adamw_floor(x)));
}

static void block_narrow(uint8_t *codes, float *scale, const float *x, int count, enum adamw_moment moment)
{
	const int is_m = moment == ADAMW_MOMENT_M;
	uint32_t largest = 0;
	float inverse;

	for (int i = 0; i < count; i++) {
		uint32_t size = adamw_size(coded(x[i], moment));

		largest = size > largest ? size : largest;
	}
	*scale = adamw_scale(largest, is_m ? ADAMW_TOP_M : ADAMW_TOP_R);
	inverse = adamw_inverse(*scale);
	for (int i = 0; i < count; i++)
		codes[i] = is_m ? adamw_encode_m(x[i], inverse, ADAMW_NEAREST_M)
		                : adamw_encode_r(coded(x[i], moment), inverse, ADAMW_NEAREST_R);
}

void adamw_state_narrow(void *stored, float *scale, const float *x, int64_t count, enum adamw_state state,
        enum adamw_moment moment)
{
	switch (state) {
	case ADAMW_STATE_F32:
		memcpy(stored, x, (size_t)count * sizeof(*x));
		break;
	case ADAMW_STATE_BF16:
		for (int64_t i = 0; i < count; i++)
			((uint16_t *)stored)[i] = nearest(x[i]);
		break;
	case ADAMW_STATE_8BIT:
		for (int64_t i = 0; i < count; i += ADAMW_BLOCK_8BIT)
			block_narrow((uint8_t *)stored + i, scale + i / ADAMW_BLOCK_8BIT, x + i,
			        count - i < ADAMW_BLOCK_8BIT ? (int)(count - i) : ADAMW_BLOCK_8BIT, moment);
		break;
	case ADAMW_STATE_COUNT:
		break;
	}
}
