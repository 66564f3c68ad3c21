/* Codes and their scales: the tables behind the lists. */
#include "base/codes.h"

#include "base/num.h"

#include <math.h>
#include <pthread.h>

static const struct {
	int bits, first_is_high;
} facts[CODE_COUNT] = {
#define FACTS(NAME, bits, first_is_high) {bits, first_is_high},
        CODE_LIST(FACTS)
#undef FACTS
};

int code_bits(enum code code)
{
	return facts[code].bits;
}

int code_first_is_high(enum code code)
{
	return facts[code].first_is_high;
}

int code_scale_bytes(enum code_scale scale)
{
	static const int bytes[CODE_SCALE_COUNT] = {
#define BYTES(NAME, bytes) bytes,
	        CODE_SCALE_LIST(BYTES)
#undef BYTES
	};

	return bytes[scale];
}

/* bitsandbytes' numbers, as bits of fp32 (csrc/kernels.cu). FP4's are twelfths, not sorted: sign, then 0,
 * 1/192, 2/3, 1, 1/3, 1/2, 1/6, 1/4. */
static const uint32_t nf4_bits[16] = {0xbf800000, 0xbf3239b1, 0xbf066b30, 0xbeca32a0, 0xbe91a24d, 0xbe3d353f,
        0xbdba7871, 0x00000000, 0x3da2faff, 0x3e24cae3, 0x3e7c04dd, 0x3ead033a, 0x3ee1a4b8, 0x3f1007ab,
        0x3f3913b3, 0x3f800000};
static const float fp4_values[8] = {
        0, 0.005208333333F, 0.66666667F, 1.0F, 0.33333333F, 0.5F, 0.16666667F, 0.25F};
static const float e2m1_values[8] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};

static float value_of(enum code code, int at)
{
	int exponent = at >> 3 & 15, fraction = at & 7;
	float value;

	switch (code) {
	case CODE_I8:
		return (float)(int8_t)(uint8_t)at;
	case CODE_NF4:
		return f32_from_bits(nf4_bits[at]);
	case CODE_FP4:
		return at & 8 ? -fp4_values[at & 7] : fp4_values[at & 7];
	case CODE_E2M1:
		return at & 8 ? -e2m1_values[at & 7] : e2m1_values[at & 7];
	case CODE_E4M3:
		value = exponent ? ldexpf((float)(8 + fraction), exponent - 10) : ldexpf((float)fraction, -9);
		if ((at & 0x7f) == 0x7f)
			value = NAN;
		return at & 0x80 ? -value : value;
	case CODE_COUNT:
		break;
	}
	return NAN;
}

static float values[CODE_COUNT][256], map[256];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

/* Seven decades; in decade i the means of neighbours in linspace(0.1, 1, 2^i + 1), both signs; 0 and 1.
 * (bitsandbytes.functional.create_dynamic_map; torch computes linspace from both ends, in fp32 with fma.) */
static void map_make(void)
{
	int low = 127, high = 127;

	map[127] = 0;
	for (int i = 0; i < 7; i++) {
		int steps = 1 << i;
		float step = (1.0F - 0.1F) / (float)steps, edge = 0.1F;

		for (int n = 1; n <= steps; n++) {
			float next = n <= steps / 2 ? fmaf(step, (float)n, 0.1F)
			                            : fmaf(-step, (float)(steps - n), 1.0F);
			float value = (float)pow(10, i - 6) * ((edge + next) / 2);

			map[++high] = value;
			map[--low] = -value;
			edge = next;
		}
	}
	map[255] = 1;
}

static void tables_make(void)
{
	for (int code = 0; code < CODE_COUNT; code++)
		for (int at = 0; at < 1 << facts[code].bits; at++)
			values[code][at] = value_of((enum code)code, at);
	map_make();
}

const float *code_values(enum code code)
{
	pthread_once(&tables_once, tables_make);
	return values[code];
}

const float *nested_map(void)
{
	pthread_once(&tables_once, tables_make);
	return map;
}

float code_e8m0(uint8_t code)
{
	return f32_from_bits(code == 255 ? 0x7fc00000 : code ? (uint32_t)code << 23 : 0x00400000);
}

void code_scales_read(enum code_scale kind, float *dst, const void *scales, const float *outer, int64_t first,
        int64_t count)
{
	const float *from = nested_map();

	for (int64_t i = 0; i < count; i++) {
		int64_t at = first + i;

		if (kind == CODE_SCALE_F32) {
			dst[i] = ((const float *)scales)[at];
		} else if (kind == CODE_SCALE_E8M0) {
			dst[i] = code_e8m0(((const uint8_t *)scales)[at]);
		} else {
			float product = from[((const uint8_t *)scales)[at]] * outer[1 + at / NESTED_BLOCK];

			dst[i] = product + outer[0];
		}
	}
}

/* The nearest of the map; the lower one at a tie. */
static uint8_t nearest(const float *from, float x)
{
	int low = 0, high = 255;

	while (low < high) {
		int mid = (low + high) / 2;

		if (x > (from[mid] + from[mid + 1]) / 2)
			low = mid + 1;
		else
			high = mid;
	}
	return (uint8_t)low;
}

void nested_make(float *outer, uint8_t *codes, const float *scales, int64_t count)
{
	const float *from = nested_map();
	double sum = 0;

	for (int64_t i = 0; i < count; i++)
		sum += (double)scales[i];
	outer[0] = (float)(sum / (double)count);
	for (int64_t at = 0; at < count; at += NESTED_BLOCK) {
		int64_t end = at + NESTED_BLOCK < count ? at + NESTED_BLOCK : count;
		float most = 0, inverse;

		for (int64_t i = at; i < end; i++)
			most = fmaxf(most, fabsf(scales[i] - outer[0]));
		outer[1 + at / NESTED_BLOCK] = most;
		inverse = most > 0 ? 1 / most : 0;
		for (int64_t i = at; i < end; i++)
			codes[i] = nearest(from, (scales[i] - outer[0]) * inverse);
	}
}
