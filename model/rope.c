/* Computes the table of cosines and sines for rotary positions. */
#include "model/model.h"

#include <math.h>

/* 2 if documents longer than the original context have their own frequencies. */
static int64_t rope_variants(const struct model *model)
{
	for (int i = 0; i < model->config.rope_count; i++)
		if (model->config.rope[i].kind == ROPE_LONGROPE)
			return 2;
	return 1;
}

int64_t model_rope_table_rows(const struct model *model, int64_t position_count)
{
	return rope_variants(model) * position_count;
}

/* 1 if the rows of q differ from those of k. */
static int query_differs(const struct rope_config *rope, int64_t position_count)
{
	return rope->query_beta != 0 && position_count > rope->original_max_position_embeddings;
}

int64_t model_rope_table_first(const struct model *model, int rope, int64_t position_count)
{
	const struct rope_config *list = model->config.rope;
	int64_t first = 0, rows = model_rope_table_rows(model, position_count);

	for (int i = 0; i < rope; i++)
		first += list[i].rotary * rows * (1 + query_differs(&list[i], position_count));
	return first;
}

int64_t model_rope_query_first(const struct model *model, int rope, int64_t position_count)
{
	const struct rope_config *of = &model->config.rope[rope];
	int64_t first = model_rope_table_first(model, rope, position_count);

	return first + (query_differs(of, position_count)
	                               ? of->rotary * model_rope_table_rows(model, position_count)
	                               : 0);
}

int64_t model_rope_table_count(const struct model *model, int64_t position_count)
{
	return model_rope_table_first(model, model->config.rope_count, position_count);
}

int64_t model_rope_short_tokens(const struct model *model)
{
	return rope_variants(model) == 2 ? model->config.rope[0].original_max_position_embeddings : INT64_MAX;
}

void model_position_rows(const struct model *model, int32_t *row, const int32_t *position,
        const int32_t *doc_start, const int32_t *doc_end, int64_t tokens, int64_t position_count)
{
	int64_t longest = model_rope_short_tokens(model);

	for (int64_t i = 0; i < tokens; i++)
		row[i] = position[i] + (doc_end[i] - doc_start[i] > longest ? (int32_t)position_count : 0);
}

/* The pair, as a fraction, that rotates `turns` times within the original context. */
static double yarn_pair_at(const struct rope_config *rope, double turns)
{
	double original = (double)rope->original_max_position_embeddings;

	return (double)rope->frequency_dim * log(original / (turns * 2 * M_PI)) / (2 * log(rope->theta));
}

/* Peng et al. 2023: pairs before `low` keep their frequency, pairs after `high` are slowed, with a ramp
 * between. */
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

/* Llama 3.1: the number of rotations within the original context decides whether a frequency is kept, slowed
 * or mixed. */
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

static double pair_frequency(const struct rope_config *rope, int64_t pair, int is_long)
{
	double frequency = pow(rope->theta, -2 * (double)pair / (double)rope->frequency_dim);

	switch (rope->kind) {
	case ROPE_LINEAR:
		return frequency / rope->factor;
	case ROPE_LLAMA3:
		return llama3_frequency(rope, frequency);
	case ROPE_YARN:
		return yarn_frequency(rope, frequency, pair);
	case ROPE_LONGROPE:
		return frequency / rope->factors[is_long * (rope->rotary / 2) + pair];
	case ROPE_PROPORTIONAL:
		return pair < rope->turned ? frequency / rope->factor : 0;
	default:
		return frequency;
	}
}

/* What positions multiply q with. */
static double query_scale(const struct rope_config *rope, int64_t position)
{
	return 1 + rope->query_beta * log(1 + (double)(position / rope->original_max_position_embeddings));
}

static void rope_rows(
        const struct rope_config *rope, float *table, int64_t position_count, int is_long, int is_query)
{
	int64_t half = rope->rotary / 2;

	for (int64_t pair = 0; pair < half; pair++) {
		double frequency = pair_frequency(rope, pair, is_long);

		for (int64_t position = 0; position < position_count; position++) {
			double angle = (double)position * (rope->is_backwards ? -frequency : frequency);
			double factor = rope->attention_factor * (is_query ? query_scale(rope, position) : 1);
			float *row = table + position * rope->rotary;

			row[pair] = (float)(cos(angle) * factor);
			row[half + pair] = (float)(sin(angle) * factor);
		}
	}
}

void model_rope_table(const struct model *model, float *table, int64_t position_count)
{
	for (int i = 0; i < model->config.rope_count; i++) {
		const struct rope_config *rope = &model->config.rope[i];
		float *first = table + model_rope_table_first(model, i, position_count);
		float *query = table + model_rope_query_first(model, i, position_count);

		for (int v = 0; v < rope_variants(model); v++) {
			int64_t at = v * position_count * rope->rotary;

			rope_rows(rope, first + at, position_count, v, 0);
			if (query != first)
				rope_rows(rope, query + at, position_count, v, 1);
		}
	}
}
