/* The label of a token that is not trained. Every other label is the token id to predict. */
#ifndef FERRY_DATA_LABEL_H
#define FERRY_DATA_LABEL_H

enum { DATASET_IGNORE = -100 };

/* Rows whose inputs are trained on, as bits: the prompts of prompt_completion and alpaca rows, and what
 * others say in chats. 1 meant both in caches of tokenized rows. */
enum dataset_inputs {
	DATASET_INPUTS_MASK = 0,
	DATASET_INPUTS_PROMPTS = 2,
	DATASET_INPUTS_CHATS = 4,
	DATASET_INPUTS_TRAIN = DATASET_INPUTS_PROMPTS | DATASET_INPUTS_CHATS
};

#endif
