/* The table of cosines and sines. */
#include "model/model.h"

#include <math.h>

int64_t model_rope_table_count(const struct model *model, int64_t position_count)
{
	return model->config.rope.rotary * position_count;
}

/* Where the wavelength that turns `turns` times within the original context stands among the pairs. */
static double yarn_pair_at(const struct rope_config *rope, double turns)
{
	double original = (double)rope->original_max_position_embeddings;

	return (double)rope->frequency_dim * log(original / (turns * 2 * M_PI)) / (2 * log(rope->theta));
}

/* Peng et al. 2023: pairs before `low` keep their frequency, those after `high` are slowed, a ramp between.
 */
static double yarn_frequency(const struct rope_config *rope, double frequency, int64_t pair)
{
	double low = yarn_pair_at(rope, rope->beta_fast), high = yarn_pair_at(rope, rope->beta_slow), ramp;

	if (rope->truncate) {
		low = floor(low);
		high = ceil(high);
	}
	low = fmax(low, 0);
	high = fmin(high, (double)(rope->frequency_dim - 1));
	if (low == high)
		high += 0.001;
	ramp = fmin(fmax(((double)pair - low) / (high - low), 0), 1);
	return frequency / rope->factor * ramp + frequency * (1 - ramp);
}

/* Llama 3.1: wavelengths are kept, slowed or mixed by how often they turn within the original context. */
static double llama3_frequency(const struct rope_config *rope, double frequency)
{
	double original = (double)rope->original_max_position_embeddings;
	double wavelength = 2 * M_PI / frequency, mix;

	if (wavelength > original / rope->low_freq_factor)
		return frequency / rope->factor;
	if (wavelength < original / rope->high_freq_factor)
		return frequency;
	mix = (original / wavelength - rope->low_freq_factor) /
	      (rope->high_freq_factor - rope->low_freq_factor);
	return (1 - mix) * frequency / rope->factor + mix * frequency;
}

static double pair_frequency(const struct rope_config *rope, int64_t pair)
{
	double frequency = pow(rope->theta, -2 * (double)pair / (double)rope->frequency_dim);

	switch (rope->kind) {
	case ROPE_LINEAR:
		return frequency / rope->factor;
	case ROPE_LLAMA3:
		return llama3_frequency(rope, frequency);
	case ROPE_YARN:
		return yarn_frequency(rope, frequency, pair);
	default:
		return frequency;
	}
}

void model_rope_table(const struct model *model, float *table, int64_t position_count)
{
	const struct rope_config *rope = &model->config.rope;
	int64_t half = rope->rotary / 2;

	for (int64_t pair = 0; pair < half; pair++) {
		double frequency = pair_frequency(rope, pair);

		for (int64_t position = 0; position < position_count; position++) {
			double angle = (double)position * frequency;
			float *row = table + position * rope->rotary;

			row[pair] = (float)(cos(angle) * rope->attention_factor);
			row[half + pair] = (float)(sin(angle) * rope->attention_factor);
		}
	}
}
