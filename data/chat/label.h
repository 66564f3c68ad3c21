/* Labels of tokens, and the rows whose inputs are trained. */
#ifndef FERRY_DATA_CHAT_LABEL_H
#define FERRY_DATA_CHAT_LABEL_H

enum {
	DATASET_IGNORE = -100,    /* the token is not trained; any other label is the token id to predict */
	DATASET_GOES_ON = 1 << 30 /* added to it where whole words are hidden: no word begins here */
};

/* Inputs that are trained, as bits: prompts of prompt_completion and alpaca rows; the other turns of chats.
 * The value 1 stays unused, because older caches of rows have it for both. */
enum dataset_inputs {
	DATASET_INPUTS_MASK = 0,
	DATASET_INPUTS_PROMPTS = 2,
	DATASET_INPUTS_CHATS = 4,
	DATASET_INPUTS_TRAIN = DATASET_INPUTS_PROMPTS | DATASET_INPUTS_CHATS
};

#endif
