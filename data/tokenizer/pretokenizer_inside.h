/* The steps of a pre-tokenizer: shared by the file that loads them and the file that runs them. */
#ifndef FERRY_DATA_TOKENIZER_PRETOKENIZER_INSIDE_H
#define FERRY_DATA_TOKENIZER_PRETOKENIZER_INSIDE_H

#include "data/tokenizer/pretokenizer.h"

/* A run over one text. */
struct walk;

/* One word of a walk. */
struct word {
	const char *text;
	size_t len_bytes;
	size_t head_bytes; /* as in pretokenizer_run */
};

/* Applies the step at `index` to a word, and passes the parts to the next step. */
struct pretokenizer_action {
	int (*run)(struct walk *walk, int index, struct word word);
};

extern const struct pretokenizer_action action_split, action_class, action_char, action_words,
        action_prefix_space, action_bytes, action_metaspace, action_length;

#endif
