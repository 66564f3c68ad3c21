/* Chooses the next token from logits, as transformers' generate does. First comes the repetition penalty;
 * then, unless temperature is 0, temperature, top_k, top_p and min_p in this order; then a draw. The draw is
 * a pure function of (seed, text, position). */
#ifndef FERRY_TRAIN_GENERATION_CHOOSE_H
#define FERRY_TRAIN_GENERATION_CHOOSE_H

#include <stdint.h>

struct choose_options {
	double temperature;        /* 0: the likeliest token, the lowest id among equals */
	int64_t top_k;             /* 0: all; equals of the last one stay too */
	double top_p;              /* 1: all; the fewest likeliest with at least this sum of probabilities */
	double min_p;              /* 0: all; those with at least this share of the likeliest's probability */
	double repetition_penalty; /* 1: none; applies to ids that the text has */
	uint64_t seed;
};

struct choose_candidate {
	double weight; /* probability * total of all weights */
	int32_t id;
};

/* Fills list[0 .. count), with room for vocab_count, with the tokens to draw from, and *total with the sum
 * of their weights. With temperature 0 the list has only the chosen token. Changes logits. seen_ids: the ids
 * of the text so far. ERR_NONFINITE. */
int choose_candidates(struct choose_candidate *list, int64_t *count, double *total, float *logits,
        int64_t vocab_count, const struct choose_options *options, const int32_t *seen_ids,
        int64_t seen_count);

/* Chooses the next token of text number `text`, at position seen_count. */
int choose_token(int32_t *id, float *logits, int64_t vocab_count, const struct choose_options *options,
        const int32_t *seen_ids, int64_t seen_count, int64_t text);

#endif
