/* What a micro-batch has beside its documents, as data: an objective (objective/objective.h) says it,
 * data/batch.c does it, and offload/ copies the arrays without knowing them. */
#ifndef FERRY_BASE_BATCH_RULE_H
#define FERRY_BASE_BATCH_RULE_H

#include "base/dtype.h"

#include <stdint.h>

enum { BATCH_OWN_MAX = 9 };

struct batch_sizes {
	int64_t tokens, targets, documents;
};

/* What an array has an element for. BORDER: before each document and after the last. */
enum batch_per { PER_TOKEN, PER_TARGET, PER_DOCUMENT, PER_DOCUMENT_BORDER };
struct batch_array {
	const char *name;
	enum dtype dtype;
	enum batch_per per;
};

/* Which tokens of a row are targets (struct batch_rule), and what each epoch draws anew of them. */
struct batch_draws {
	int is_own_prompt; /* of a pair's chosen row, the prompt's too */
	uint64_t seed;
	double share;    /* of a row's targets, or words */
	int is_of_words; /* 1: whole words are hidden, and always shown as the mask */
	int32_t mask;    /* id that stands for a hidden token */
	int32_t random;  /* other tokens have ids below this, */
	int32_t pad;     /* but not this; -1: none */
};

/* What a label of words says of chunks, as in B-PER: 'B', 'I', 'E', 'S' or 'O', and the number of the type.
 * kind 0, of all labels: they name no chunks. */
struct label_tag {
	char kind;
	int type;
};

struct dataset;        /* data/rows/dataset.h */
struct micro_batch;    /* data/batch.h */
struct batch_document; /* there */

struct batch_rule {
	struct batch_array array[BATCH_OWN_MAX]; /* up to the first without a name */
	int types; /* 1 + the array with the types of tokens (model/blocks/batch.h); 0: none */
	/* Of the document that the row becomes. */
	int64_t (*targets)(const struct batch_draws *draws, const struct dataset *data, int64_t row);
	/* How many of `count` such targets an epoch draws of the row; NULL: all. Negative: an ERR_ of reading
	 * it. */
	int64_t (*drawn)(const struct batch_draws *draws, const struct dataset *data, int64_t epoch,
	        int64_t row, int64_t count);
	/* Appends those targets, and the document's elements of own arrays. */
	void (*add)(struct micro_batch *mb, const struct batch_document *document);
};

static inline int batch_array_count(const struct batch_rule *rule)
{
	int count = 0;

	while (count < BATCH_OWN_MAX && rule->array[count].name)
		count++;
	return count;
}

static inline int64_t batch_array_bytes(const struct batch_array *array, const struct batch_sizes *sizes)
{
	int64_t count = array->per == PER_TOKEN    ? sizes->tokens
	                : array->per == PER_TARGET ? sizes->targets
	                                           : sizes->documents;

	if (array->per == PER_DOCUMENT_BORDER && count)
		count++;
	return count * dtype_bytes(array->dtype);
}

#endif
