/* The values that a format with codes keeps of a matrix, found piece by piece: for what depends on them
 * before the codes are in their place. */
#ifndef FERRY_OPTIM_WEIGHT_ROUNDED_H
#define FERRY_OPTIM_WEIGHT_ROUNDED_H

#include "optim/weight_format.h"

/* NESTED scales follow from those of the whole matrix: so all of it goes through weight_rounded_see first,
 * then through weight_rounded_put. With other scales the second is enough. */
struct weight_rounded {
	const struct weight_format *format;
	int64_t cols;
	int64_t most;   /* elements of a piece, rows of whole blocks */
	uint8_t *codes; /* of a piece */
	float *scales;  /* of a piece; NESTED: of the matrix */
};

/* For a matrix [rows, cols], in pieces of about `about` elements. ERR_NOMEM. */
int weight_rounded_open(struct weight_rounded *w, const struct weight_format *format, int64_t rows,
        int64_t cols, int64_t about);
void weight_rounded_close(struct weight_rounded *w);

/* Elements [first, first + count); pieces begin at multiples of `most`. */
void weight_rounded_see(struct weight_rounded *w, const float *value, int64_t first, int64_t count);
int weight_rounded_end(struct weight_rounded *w, int64_t rows); /* all were seen; ERR_NOMEM */

/* Replaces them by the values of their codes. */
void weight_rounded_put(struct weight_rounded *w, float *value, int64_t first, int64_t count);

#endif
